//! Compares a merge with the sorted list of all entries.

use std::rc::Rc;

use proptest::prelude::*;
use sievedb_format::{InternalKey, SequenceNumber, Trailer};

use super::model::{Entry, History, Moves, any_history, any_key, check, entries};
use crate::iter::{cursor::Cursor, merge::MergeCursor, tests::model::VecCursor};

/// A move of a cursor.
#[derive(Debug, Clone)]
pub(crate) enum Move {
    First,
    Last,
    Seek(Vec<u8>, SequenceNumber),
    SeekBefore(Vec<u8>, SequenceNumber),
    Next,
    Prev,
}

pub(crate) fn any_move() -> impl Strategy<Value = Move> {
    prop_oneof![
        1 => Just(Move::First),
        1 => Just(Move::Last),
        2 => (any_key(), 0..40_u64).prop_map(|(key, sequence)| Move::Seek(key, sequence)),
        2 => (any_key(), 0..40_u64).prop_map(|(key, sequence)| Move::SeekBefore(key, sequence)),
        8 => Just(Move::Next),
        8 => Just(Move::Prev),
    ]
}

/// Moves `cursor` and an index into `sorted` together, and compares them after each move.
pub(crate) fn follow(
    cursor: &mut impl Cursor,
    sorted: &[Entry],
    moves: &[Move],
) -> Result<(), TestCaseError> {
    let mut at: Option<usize> = None;
    // The last two moves were forward.
    let mut goes_up = [false; 2];
    let first_at = |target: InternalKey<'_>| sorted.partition_point(|e| e.key() < target);
    for step in moves {
        match step {
            Move::First => (cursor.seek_to_first().unwrap(), at = Some(0)).0,
            Move::Last => (cursor.seek_to_last().unwrap(), at = sorted.len().checked_sub(1)).0,
            Move::Seek(key, sequence) => {
                let target = InternalKey::seek(key, *sequence);
                if sequence % 2 == 0 {
                    cursor.advise_seek_step(0);
                }
                cursor.seek(target).unwrap();
                at = Some(first_at(target));
            }
            Move::SeekBefore(key, sequence) => {
                let target = InternalKey::seek(key, *sequence);
                if sequence % 2 == 0 {
                    cursor.advise_seek_before(target);
                }
                cursor.seek_before(target).unwrap();
                at = first_at(target).checked_sub(1);
            }
            Move::Next | Move::Prev if at.is_none() => continue,
            Move::Next => (cursor.next().unwrap(), at = at.map(|at| at + 1)).0,
            Move::Prev => (cursor.prev().unwrap(), at = at.and_then(|at| at.checked_sub(1))).0,
        }
        at = at.filter(|&at| at < sorted.len());
        let want = at.map(|at| &sorted[at]);
        prop_assert_eq!(cursor.key(), want.map(Entry::key), "after {:?}", step);
        prop_assert_eq!(cursor.is_positioned(), want.is_some());
        goes_up = [matches!(step, Move::First | Move::Seek(..) | Move::Next), goes_up[0]];
        if let (Some(want), Some(at)) = (want, at) {
            prop_assert_eq!(cursor.value(), &want.value);
            prop_assert_eq!(cursor.value_ref(), &want.value);
            let before = at.checked_sub(1).map(|before| &sorted[before].user_key);
            let repeats = before == Some(&want.user_key);
            if matches!(step, Move::Next) && goes_up[1] {
                prop_assert_eq!(cursor.is_older_version(), repeats, "after {:?}", step);
            }
            prop_assert!(!cursor.is_newest_version() || !repeats, "after {:?}", step);
            prop_assert_eq!(cursor.key(), Some(want.key()), "a look moves nothing");
        }
    }
    Ok(())
}

#[test]
fn merge_yields_the_sorted_list() {
    let moves = prop::collection::vec(any_move(), 0..60);
    check(2000, &(any_history(40, 5), moves), |(history, moves)| {
        follow(&mut history.merge(&Rc::default()), &history.sorted(), &moves)
    });
}

#[test]
fn merge_without_entries_is_empty() {
    let moves = Rc::<Moves>::default();
    for sources in [0, 1, 3] {
        let cursors = (0..sources).map(|_| VecCursor::new(Vec::new(), &moves)).collect();
        let mut merge = MergeCursor::new(cursors, 0);
        merge.seek_to_first().unwrap();
        assert_eq!(merge.key(), None);
        merge.seek_before(InternalKey::new(b"k", Trailer::OLDEST)).unwrap();
        assert_eq!(merge.key(), None);
    }
}

#[test]
fn a_step_moves_one_source() {
    let history = History::new(
        entries("a@1 b@2 c@3 d@4").into_iter().enumerate().map(|(n, e)| (n % 2, e)).collect(),
        Vec::new(),
    );
    let moves = Rc::<Moves>::default();
    let mut merge = history.merge(&moves);
    merge.seek_to_first().unwrap();
    let count = moves.count.get();
    merge.next().unwrap();
    merge.next().unwrap();
    assert_eq!(moves.count.get(), count + 2);
}

#[test]
fn a_change_of_direction_steps_each_source_once() {
    let moves = Rc::<Moves>::default();
    let history = History::new(
        entries("a@1 b@2 c@3 d@4 e@5 f@6 g@7 h@8 i@9")
            .into_iter()
            .enumerate()
            .map(|(n, e)| (n % 3, e))
            .collect(),
        Vec::new(),
    );
    let mut merge = history.merge(&moves);
    merge.seek(InternalKey::seek(b"f", 9)).unwrap();
    moves.searches.set(0);
    merge.prev().unwrap();
    assert_eq!(merge.key().map(|key| key.user_key), Some(&b"e"[..]));
    merge.next().unwrap();
    assert_eq!(merge.key().map(|key| key.user_key), Some(&b"f"[..]));
    assert_eq!(moves.searches.get(), 0);
}

#[test]
fn error_leaves_the_merge_unpositioned_until_the_next_search() {
    let history = History::new(
        entries("a@1 b@2 c@3 d@4 e@5").into_iter().enumerate().map(|(n, e)| (n % 2, e)).collect(),
        Vec::new(),
    );
    let script = [Move::First, Move::Next, Move::Prev, Move::Next, Move::Last, Move::Prev];
    let walk = |merge: &mut MergeCursor<VecCursor>| {
        script.iter().try_for_each(|step| match step {
            Move::First => merge.seek_to_first(),
            Move::Last => merge.seek_to_last(),
            Move::Next => merge.next(),
            _ => merge.prev(),
        })
    };
    let clean = Rc::<Moves>::default();
    walk(&mut history.merge(&clean)).unwrap();
    assert!(clean.count.get() > script.len());
    for fail_at in 0..clean.count.get() {
        let moves = Rc::<Moves>::default();
        moves.fail_at.set(Some(fail_at));
        let mut merge = history.merge(&moves);
        assert!(walk(&mut merge).is_err(), "move {fail_at}");
        assert_eq!(merge.key(), None, "move {fail_at}");
        let again = [Move::First, Move::Next, Move::Next, Move::Prev, Move::Last, Move::Next];
        follow(&mut merge, &history.sorted(), &again).unwrap();
    }
}

#[test]
fn searches_behind_a_cache_miss_are_prefetched() {
    // Cursors that read, of four; prefetches of each after one search, and after two.
    let cases = [
        ("none reads", [false; 4], [0; 4], [0; 4]),
        ("the first", [true, false, false, false], [0, 0, 1, 1], [0, 1, 2, 2]),
        ("the third", [false, false, true, false], [0, 0, 0, 0], [0, 1, 1, 1]),
        ("all", [true; 4], [0, 0, 1, 1], [0, 1, 2, 2]),
    ];
    for (name, reads, after_one, after_two) in cases {
        for back in [false, true] {
            let moves: [Rc<Moves>; 4] = Default::default();
            let cursor = |(moves, reads): (_, bool)| {
                let cursor = VecCursor::new(entries("a@1 c@1"), moves);
                if reads { cursor.reading() } else { cursor }
            };
            let mut merge = MergeCursor::new(moves.iter().zip(reads).map(cursor).collect(), 0);
            for want in [after_one, after_two] {
                let target = InternalKey::new(b"b", Trailer::OLDEST);
                if back { merge.seek_before(target) } else { merge.seek(target) }.unwrap();
                assert!(merge.is_positioned());
                let announced = moves.each_ref().map(|moves| moves.announced.get());
                assert_eq!(announced, want, "{name}, back: {back}");
            }
        }
    }
}

#[test]
fn expected_reads_of_a_seek_step_are_prefetched_before_the_first() {
    // Cursors that read, of four; prefetches of each after one seek, and after two.
    let cases = [
        ("none reads", [false; 4], [0; 4], [0; 4]),
        ("the first", [true, false, false, false], [0, 1, 1, 1], [0, 2, 2, 2]),
        ("the third", [false, false, true, false], [0, 1, 1, 1], [0, 2, 2, 2]),
        ("all", [true; 4], [0, 1, 1, 1], [0, 2, 2, 2]),
    ];
    for (name, reads, after_one, after_two) in cases {
        let moves: [Rc<Moves>; 4] = Default::default();
        let cursor = |(moves, reads): (_, bool)| {
            let cursor = VecCursor::new(entries("a@1 c@1"), moves).searching_in(4);
            if reads { cursor.reading() } else { cursor }
        };
        let mut merge = MergeCursor::new(moves.iter().zip(reads).map(cursor).collect(), 0);
        for (want, searches) in [(after_one, 1), (after_two, 2)] {
            merge.seek(InternalKey::new(b"b", Trailer::OLDEST)).unwrap();
            assert_eq!(merge.key().map(|key| key.user_key), Some(&b"c"[..]), "{name}");
            let announced = moves.each_ref().map(|moves| moves.announced.get());
            assert_eq!(announced, want, "{name}");
            assert!(moves.iter().all(|moves| moves.searches.get() == searches), "{name}");
        }
    }
}
