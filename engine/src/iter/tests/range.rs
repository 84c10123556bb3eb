//! Compares the double-ended range with the range of a `BTreeMap`.

use std::{
    cell::{Cell, RefCell},
    ops::Bound,
    rc::Rc,
    sync::Arc,
};

use bytes::Bytes;
use proptest::prelude::*;

use super::{
    model::{
        History, Moves, VecCursor, any_bounds, any_history, any_key, append, check, entries,
        failure,
    },
    visible::sources,
};
use crate::{
    fold::OperatorCell,
    iter::{
        bounds::{KeyBounds, is_above, is_below},
        merge::MergeCursor,
        range::{CursorSource, End, Range},
        range_tombstone_sources::RangeTombstoneSources,
    },
    resolve::ReadPoint,
};

/// A view of a history that counts the created cursors, and records their bounds.
#[derive(Debug)]
struct View {
    history: History,
    moves: Rc<Moves>,
    cursors: Cell<usize>,
    bounds: RefCell<Option<KeyBounds>>,
}

impl View {
    fn new(history: History) -> Rc<Self> {
        let (moves, cursors, bounds) = (Rc::default(), Cell::new(0), RefCell::default());
        Rc::new(Self { history, moves, cursors, bounds })
    }
}

impl CursorSource for Rc<View> {
    type Cursor = MergeCursor<VecCursor>;

    fn cursor(&self, bounds: &Arc<KeyBounds>) -> Self::Cursor {
        self.cursors.set(self.cursors.get() + 1);
        *self.bounds.borrow_mut() = Some((**bounds).clone());
        self.history.merge_within(bounds, &self.moves)
    }

    fn range_tombstones(&self) -> RangeTombstoneSources {
        sources(&self.history.range_tombstones)
    }

    fn operator(&self) -> OperatorCell {
        append()
    }
}

#[test]
fn any_mix_of_both_ends_yields_the_entries_of_a_map() {
    let ends = prop::collection::vec(any::<bool>(), 40);
    let inputs = (any_history(80, 4), 0..90_u64, any_bounds(), ends);
    check(2000, &inputs, |(history, sequence, bounds, ends)| {
        let state = history.read(sequence);
        let mut want: Vec<(Bytes, Bytes)> = Vec::new();
        if !bounds.is_empty() {
            let owned = |bound: Bound<&[u8]>| bound.map(<[u8]>::to_vec);
            let (start, end) = bounds.as_slices();
            let inside = state.range((owned(start), owned(end)));
            want.extend(inside.map(|(key, value)| (Bytes::from(key.clone()), value.clone())));
        }
        let view = View::new(history);
        let mut range = Range::new(Rc::clone(&view), ReadPoint::new(sequence), bounds.clone());
        let mut keys = Range::new(view, ReadPoint::new(sequence), bounds);
        let mut want = want.into_iter();
        // Both ends remain at the end.
        for back in ends {
            let (got, key, want) = match back {
                false => (range.next(), keys.key(End::Front), want.next()),
                true => (range.next_back(), keys.key(End::Back), want.next_back()),
            };
            let got = got.map(|entry| entry.unwrap());
            prop_assert_eq!(key.map(|key| key.unwrap()), want.clone().map(|(key, _)| key));
            prop_assert_eq!(got, want, "back: {}", back);
        }
        Ok(())
    });
}

/// A move of a range.
#[derive(Debug, Clone)]
enum Move {
    Step(End),
    /// To this key or, if `None`, to the last key that the front or the back yielded.
    Seek(End, Option<Vec<u8>>),
}

fn any_move() -> impl Strategy<Value = Move> {
    let end = || prop_oneof![Just(End::Front), Just(End::Back)];
    let key = prop_oneof![2 => any_key().prop_map(Some), 1 => Just(None)];
    prop_oneof![
        4 => end().prop_map(Move::Step),
        1 => (end(), key).prop_map(|(end, key)| Move::Seek(end, key)),
    ]
}

#[test]
fn seeks_restart_a_live_range() {
    let moves = prop::collection::vec(any_move(), 0..60);
    let inputs = (any_history(80, 4), 0..90_u64, any_bounds(), moves);
    check(2000, &inputs, |(history, sequence, bounds, moves)| {
        let state = history.read(sequence);
        let mut range = Range::new(View::new(history), ReadPoint::new(sequence), bounds.clone());
        let (mut rest, mut is_used_up, mut last) = (bounds.clone(), false, Bytes::new());
        for step in moves {
            match step {
                Move::Step(end) => {
                    let (from, to) = rest.as_slices();
                    let within = |key: &&[u8]| is_above(key, from) && is_below(key, to);
                    let mut keys = state.keys().map(Vec::as_slice).filter(within);
                    let want = match end {
                        _ if is_used_up => None,
                        End::Front => keys.next(),
                        End::Back => keys.next_back(),
                    };
                    let want = want.map(|key| (Bytes::copy_from_slice(key), state[key].clone()));
                    let advanced = range.advance(end).unwrap();
                    let got = advanced.map(|cursor| {
                        let key = Bytes::copy_from_slice(cursor.key().unwrap());
                        assert_eq!(cursor.value(), cursor.value_ref());
                        (key, cursor.value())
                    });
                    prop_assert_eq!(&got, &want, "{:?}", end);
                    match (want, end) {
                        (None, _) => is_used_up = true,
                        (Some((key, _)), End::Front) => {
                            (rest.start, last) = (Bound::Excluded(key.clone()), key);
                        }
                        (Some((key, _)), End::Back) => {
                            (rest.end, last) = (Bound::Excluded(key.clone()), key);
                        }
                    }
                }
                Move::Seek(end, key) => {
                    let key = key.map_or(last.clone(), Bytes::from);
                    range.seek(end, &key);
                    rest = bounds.clone();
                    let (from, to) = bounds.as_slices();
                    let (above, below) = (is_above(&key, from), is_below(&key, to));
                    is_used_up = bounds.is_empty();
                    match end {
                        End::Front if above => rest.start = Bound::Included(key),
                        End::Back if below => rest.end = Bound::Included(key),
                        _ => {}
                    }
                }
            }
        }
        Ok(())
    });
}

/// A view of entries in one source.
fn view(text: &str) -> Rc<View> {
    let entries = entries(text).into_iter().map(|entry| (0, entry)).collect();
    View::new(History::new(entries, Vec::new()))
}

#[test]
fn scan_in_one_direction_creates_one_cursor() {
    let view = view("a@1 b@2 c@3 d@4");
    let mut range = Range::new(Rc::clone(&view), ReadPoint::new(9), KeyBounds::ALL);
    assert_eq!(view.cursors.get(), 0);
    range.next();
    range.next();
    assert_eq!((view.cursors.get(), view.bounds.take()), (1, Some(KeyBounds::ALL)));
    range.next_back();
    assert_eq!((view.cursors.get(), view.bounds.take()), (2, Some(KeyBounds::ALL)));
    // Their cursors are reused, in either direction.
    range.seek(End::Front, b"a");
    assert_eq!(range.next().unwrap().unwrap().0, "a");
    range.seek(End::Back, b"c");
    assert_eq!(range.next_back().unwrap().unwrap().0, "c");
    assert_eq!(view.cursors.get(), 2);
}

#[test]
fn empty_bounds_create_no_cursor() {
    let view = view("a@1 b@2");
    let inverted = KeyBounds::new(&("b".."a"));
    let mut range = Range::new(Rc::clone(&view), ReadPoint::new(9), inverted);
    assert!(range.next().is_none() && range.next_back().is_none());
    assert_eq!(view.cursors.get(), 0);
}

#[test]
fn error_is_yielded_once_and_ends_the_range_until_a_seek() {
    for back in [false, true] {
        let view = view("a@1 b@2 c@3 d@4");
        let mut range = Range::new(Rc::clone(&view), ReadPoint::new(9), KeyBounds::ALL);
        let mut step = || if back { range.next_back() } else { range.next() };
        assert!(step().is_some_and(|entry| entry.is_ok()));
        view.moves.fail_at.set(Some(view.moves.count.get()));
        // An end may yield one more entry without a move.
        let error = (0..3).find_map(|_| step().expect("an item").err()).expect("the move fails");
        assert_eq!(error.to_string(), failure().to_string());
        assert!(step().is_none());
        assert!(range.next().is_none() && range.next_back().is_none());
        // Acts as a new range, from either end. The error repeats if it persists.
        range.seek(End::Front, b"b");
        assert_eq!(range.next().unwrap().unwrap().0, "b");
        assert_eq!(range.next_back().unwrap().unwrap().0, "d");
        view.moves.fail_at.set(Some(view.moves.count.get()));
        range.seek(End::Back, b"c");
        assert_eq!(range.next_back().unwrap().unwrap_err().to_string(), failure().to_string());
        range.seek(End::Back, b"c");
        let rest: Vec<_> = range.rev().map(|entry| entry.unwrap().0).collect();
        assert_eq!(rest, ["c", "b", "a"]);
    }
}

#[test]
fn keys_share_their_memory() {
    let view = view("alpha@1 beta@2");
    let mut range = Range::new(view, ReadPoint::new(9), KeyBounds::ALL);
    let keys: Vec<_> = (0..2).map(|_| range.key(End::Front).unwrap().unwrap()).collect();
    assert_eq!(keys, ["alpha", "beta"]);
    assert_eq!(keys[0].as_ptr().wrapping_add(keys[0].len()), keys[1].as_ptr());
}
