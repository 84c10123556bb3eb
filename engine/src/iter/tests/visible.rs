//! Compares visible entries with the history applied in order.

use std::{ops::Bound, rc::Rc, sync::Arc};

use proptest::prelude::*;
use sievedb_format::{Corruption, Kind, RangeTombstone, RangeTombstones};

use super::model::{
    Entry, History, Moves, VecCursor, any_history, any_key, append, check, entries, failure,
};
use crate::{
    Error, Result,
    iter::{
        cursor::Cursor, merge::MergeCursor, range_tombstone_sources::RangeTombstoneSources,
        visible::VisibleCursor,
    },
    resolve::ReadPoint,
};

/// A source of range tombstones for each of `range_tombstones`, and an empty one.
pub(crate) fn sources(range_tombstones: &[RangeTombstone]) -> RangeTombstoneSources {
    let one = |range: &RangeTombstone| vec![range.clone()];
    let lists = range_tombstones.iter().map(one).chain([Vec::new()]);
    let lists = lists.map(|list| {
        let list = RangeTombstones::new(list).expect("well-formed range tombstones");
        (0, Arc::new(list))
    });
    RangeTombstoneSources::new(lists, None)
}

fn visible(history: &History, sequence: u64) -> VisibleCursor<MergeCursor<VecCursor>> {
    let tombstones = sources(&history.range_tombstones);
    VisibleCursor::new(
        history.merge(&Rc::default()),
        ReadPoint::new(sequence),
        tombstones,
        append(),
    )
}

#[derive(Debug, Clone)]
enum Move {
    Seek(Bound<Vec<u8>>),
    SeekBack(Bound<Vec<u8>>),
    Next,
    Prev,
}

fn any_move() -> impl Strategy<Value = Move> {
    let bound = || {
        prop_oneof![
            any_key().prop_map(Bound::Included),
            any_key().prop_map(Bound::Excluded),
            Just(Bound::Unbounded),
        ]
    };
    prop_oneof![
        1 => bound().prop_map(Move::Seek),
        1 => bound().prop_map(Move::SeekBack),
        3 => Just(Move::Next),
        3 => Just(Move::Prev),
    ]
}

#[test]
fn visible_cursor_yields_the_history_at_any_sequence() {
    let moves = prop::collection::vec(any_move(), 0..40);
    check(2000, &(any_history(80, 4), 0..90_u64, moves), |(history, sequence, moves)| {
        let state = history.read(sequence);
        let mut cursor = visible(&history, sequence);
        let mut at: Option<Vec<u8>> = None;
        for step in &moves {
            let key = |entry: Option<(&Vec<u8>, _)>| entry.map(|(key, _)| key.clone());
            match (step, at.take()) {
                (Move::Next | Move::Prev, None) => continue,
                (Move::Next, Some(from)) => {
                    cursor.next(Bound::Unbounded).unwrap();
                    at = key(state.range((Bound::Excluded(from), Bound::Unbounded)).next());
                }
                (Move::Prev, Some(from)) => {
                    cursor.prev(Bound::Unbounded).unwrap();
                    at = key(state.range(..from).next_back());
                }
                (Move::Seek(start), _) => {
                    cursor.seek(start.as_ref().map(Vec::as_slice), Bound::Unbounded).unwrap();
                    at = key(state.range((start.clone(), Bound::Unbounded)).next());
                }
                (Move::SeekBack(end), _) => {
                    cursor.seek_back(Bound::Unbounded, end.as_ref().map(Vec::as_slice)).unwrap();
                    at = key(state.range((Bound::Unbounded, end.clone())).next_back());
                }
            }
            prop_assert_eq!(cursor.key(), at.as_deref(), "after {:?}", step);
            if let Some(at) = &at {
                prop_assert_eq!(&cursor.value(), &state[at]);
                prop_assert_eq!(cursor.value_ref(), &state[at]);
            }
        }
        Ok(())
    });
}

/// Moves to one end of all entries.
fn search(cursor: &mut VisibleCursor<impl Cursor>, back: bool) -> Result<()> {
    match back {
        false => cursor.seek(Bound::Unbounded, Bound::Unbounded),
        true => cursor.seek_back(Bound::Unbounded, Bound::Unbounded),
    }
}

/// Moves away from that end by one entry.
fn step(cursor: &mut VisibleCursor<impl Cursor>, back: bool) -> Result<()> {
    match back {
        false => cursor.next(Bound::Unbounded),
        true => cursor.prev(Bound::Unbounded),
    }
}

/// A history of one source.
fn one_source(text: &str) -> History {
    History::new(entries(text).into_iter().map(|entry| (0, entry)).collect(), Vec::new())
}

#[test]
fn range_tombstones_hide_older_versions_only() {
    let mut history = one_source("a@1 a@5 b@2 c@9 d@3");
    history.range_tombstones = vec![RangeTombstone::new(b"a", b"d", 4)];
    let cases: [(&str, u64, &[&str]); 4] = [
        ("before the range tombstone", 3, &["a", "b", "d"]),
        ("at it", 4, &["d"]),
        ("a newer version of a", 5, &["a", "d"]),
        ("a new key inside", 9, &["a", "c", "d"]),
    ];
    for (name, sequence, want) in cases {
        let mut cursor = visible(&history, sequence);
        for back in [false, true] {
            let mut keys = Vec::new();
            search(&mut cursor, back).unwrap();
            while let Some(key) = cursor.key() {
                keys.push(String::from_utf8_lossy(key).into_owned());
                step(&mut cursor, back).unwrap();
            }
            keys.sort();
            assert_eq!(keys, want, "{name}, back: {back}");
        }
    }
}

#[test]
fn long_chains_of_versions_are_skipped_by_a_search() {
    // 1,000 versions of k, between a and z, half of them too new for the reader.
    let chain = (1..=1000).map(|sequence| Entry::new(b"k", sequence, Kind::Put));
    let edges = [b"a", b"z"].map(|key| Entry::new(key, 1001, Kind::Put));
    let history = History::new(chain.chain(edges).map(|entry| (0, entry)).collect(), Vec::new());
    let moves = Rc::<Moves>::default();
    for sequence in [500, 1001] {
        let mut cursor = VisibleCursor::new(
            history.merge(&moves),
            ReadPoint::new(sequence),
            RangeTombstoneSources::default(),
            append(),
        );
        moves.count.set(0);
        for back in [false, true] {
            search(&mut cursor, back).unwrap();
            while cursor.key().is_some() {
                step(&mut cursor, back).unwrap();
            }
        }
        let count = moves.count.get();
        assert!(count < 60, "{count} moves at {sequence}");
    }
}

#[test]
fn hidden_keys_out_of_range_are_not_read() {
    let hidden = (0..200_u64).map(|n| {
        let key = format!("k{n:03}");
        Entry::new(key.as_bytes(), n + 1, Kind::Tombstone)
    });
    let history = History::new(hidden.map(|entry| (0, entry)).collect(), Vec::new());
    let moves = Rc::<Moves>::default();
    let none = RangeTombstoneSources::default();
    let mut cursor = VisibleCursor::new(history.merge(&moves), ReadPoint::new(999), none, append());
    cursor.seek(Bound::Included(b"k010"), Bound::Excluded(b"k020")).unwrap();
    assert_eq!((cursor.key(), moves.count.get()), (None, 11));
    moves.count.set(0);
    cursor.seek_back(Bound::Included(b"k010"), Bound::Excluded(b"k020")).unwrap();
    assert_eq!((cursor.key(), moves.count.get()), (None, 11));
}

#[test]
fn the_last_key_of_an_inclusive_range_ends_it_without_a_read() {
    let history = one_source("a@1 b@2 c@3");
    let moves = Rc::<Moves>::default();
    let none = RangeTombstoneSources::default();
    let mut cursor = VisibleCursor::new(history.merge(&moves), ReadPoint::new(9), none, append());
    let only = (Bound::Included(&b"b"[..]), Bound::Included(&b"b"[..]));
    cursor.seek(only.0, only.1).unwrap();
    let count = moves.count.get();
    cursor.next(only.1).unwrap();
    assert_eq!((cursor.key(), moves.count.get()), (None, count));
}

#[test]
fn a_blob_without_a_file_is_refused_unless_a_newer_version_hides_it() {
    let walk = |text: &str, sequence: u64, back: bool| -> Result<usize> {
        let mut cursor = visible(&one_source(text), sequence);
        let mut keys = 0;
        search(&mut cursor, back)?;
        while cursor.key().is_some() {
            keys += 1;
            cursor.load_value()?;
            step(&mut cursor, back)?;
        }
        Ok(keys)
    };
    let cases = [
        ("newest", "a@1 b@5? b@4 c@1", 9, None),
        ("hidden by a put", "a@1 b@6 b@5? c@1", 9, Some(3)),
        ("hidden by a tombstone", "a@1 b@6- b@5? c@1", 9, Some(2)),
        ("too new", "a@1 b@5? b@4 c@1", 4, Some(3)),
        ("at the start", "a@5?", 9, None),
    ];
    for (name, text, sequence, want) in cases {
        for back in [false, true] {
            match (walk(text, sequence, back), want) {
                (Ok(keys), Some(want)) => assert_eq!(keys, want, "{name}, back: {back}"),
                (Err(Error::Corrupt { path, source, .. }), None) => {
                    assert_eq!(path.to_str(), Some("model.sst"), "{name}, back: {back}");
                    let value = Kind::BlobReference as u64;
                    let want = Corruption::Unsupported { what: "kind of an entry", value };
                    assert_eq!(source, want, "{name}, back: {back}");
                }
                (got, _) => panic!("{name}, back: {back}: {got:?}"),
            }
        }
    }
}

#[test]
fn a_source_out_of_order_ends_in_an_error() {
    let moves = Rc::<Moves>::default();
    let damaged = entries("a@1 c@2 b@3 d@4");
    let mut cursor = VisibleCursor::new(
        VecCursor::new(damaged, &moves),
        ReadPoint::new(9),
        RangeTombstoneSources::default(),
        append(),
    );
    // Forward, keys are compared at block boundaries: within a block they are in order.
    let mut walk = || -> Result<()> {
        search(&mut cursor, true)?;
        while cursor.key().is_some() {
            step(&mut cursor, true)?;
        }
        Ok(())
    };
    let error = walk().unwrap_err();
    let source = Corruption::Order { what: "an entry" };
    assert!(matches!(&error, Error::Corrupt { source: got, .. } if *got == source), "{error:?}");
}

#[test]
fn error_of_the_source_leaves_the_cursor_unpositioned() {
    let history = one_source("a@1 b@2 b@1- c@3 d@4- e@5");
    for fail_at in 0..12 {
        let moves = Rc::<Moves>::default();
        moves.fail_at.set(Some(fail_at));
        let none = RangeTombstoneSources::default();
        let mut cursor =
            VisibleCursor::new(history.merge(&moves), ReadPoint::new(9), none, append());
        let all = Bound::Unbounded;
        let mut walk = || -> Result<()> {
            cursor.seek(all, all)?;
            for _ in 0..2 {
                cursor.next(all)?;
            }
            for _ in 0..2 {
                cursor.prev(all)?;
            }
            Ok(())
        };
        if let Err(error) = walk() {
            assert_eq!(error.to_string(), failure().to_string());
            assert_eq!(cursor.key(), None, "move {fail_at}");
        } else {
            assert!(fail_at > 5, "move {fail_at} was not made");
        }
    }
}
