//! The double-ended range against the range of a `BTreeMap`.

use std::{
    cell::{Cell, RefCell},
    ops::Bound,
    rc::Rc,
};

use bytes::Bytes;
use proptest::prelude::*;

use super::{
    model::{History, Moves, VecCursor, any_bounds, any_history, check, entries, failure},
    visible::sources,
};
use crate::iter::{
    bounds::KeyBounds,
    merge::MergeCursor,
    range::{CursorSource, Range},
    visible::RangeTombstoneSources,
};

/// A view of a history that tells how often a cursor was made, and for which bounds.
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

    fn cursor(&self, bounds: &KeyBounds) -> Self::Cursor {
        self.cursors.set(self.cursors.get() + 1);
        *self.bounds.borrow_mut() = Some(bounds.clone());
        self.history.merge(&self.moves)
    }

    fn range_tombstones(&self) -> RangeTombstoneSources {
        sources(&self.history.range_tombstones)
    }
}

#[test]
fn any_mix_of_both_ends_yields_what_a_map_yields() {
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
        let mut range = Range::new(Rc::clone(&view), sequence, bounds.clone());
        let mut keys = Range::new(view, sequence, bounds).keys();
        let mut want = want.into_iter();
        // The keys grow beyond the map's by then: both ends stay at the end.
        for back in ends {
            let (got, key, want) = match back {
                false => (range.next(), keys.next(), want.next()),
                true => (range.next_back(), keys.next_back(), want.next_back()),
            };
            let got = got.map(|entry| entry.unwrap());
            prop_assert_eq!(key.map(|key| key.unwrap()), want.clone().map(|(key, _)| key));
            prop_assert_eq!(got, want, "back: {}", back);
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
fn a_scan_in_one_direction_makes_one_cursor() {
    let view = view("a@1 b@2 c@3 d@4");
    let mut range = Range::new(Rc::clone(&view), 9, KeyBounds::ALL);
    assert_eq!(view.cursors.get(), 0);
    range.next();
    range.next();
    assert_eq!((view.cursors.get(), view.bounds.take()), (1, Some(KeyBounds::ALL)));
    range.next_back();
    let rest = KeyBounds::copy(Bound::Excluded(b"b"), Bound::Unbounded);
    assert_eq!((view.cursors.get(), view.bounds.take()), (2, Some(rest)));
}

#[test]
fn empty_bounds_make_no_cursor() {
    let view = view("a@1 b@2");
    let inverted = KeyBounds::new(&("b".."a"));
    let mut range = Range::new(Rc::clone(&view), 9, inverted);
    assert!(range.next().is_none() && range.next_back().is_none());
    assert_eq!(view.cursors.get(), 0);
}

#[test]
fn an_error_is_yielded_once_and_ends_the_range() {
    for back in [false, true] {
        let view = view("a@1 b@2 c@3 d@4");
        let mut range = Range::new(Rc::clone(&view), 9, KeyBounds::ALL);
        let mut step = || if back { range.next_back() } else { range.next() };
        assert!(step().is_some_and(|entry| entry.is_ok()));
        view.moves.fail_at.set(Some(view.moves.count.get()));
        let error = step().expect("an item").expect_err("the move fails");
        assert_eq!(error.to_string(), failure().to_string());
        assert!(step().is_none());
        assert!(range.next().is_none() && range.next_back().is_none());
    }
}

#[test]
fn keys_share_their_memory() {
    let view = view("alpha@1 beta@2");
    let keys: Vec<_> = Range::new(view, 9, KeyBounds::ALL).keys().map(|key| key.unwrap()).collect();
    assert_eq!(keys, ["alpha", "beta"]);
    assert_eq!(keys[0].as_ptr().wrapping_add(keys[0].len()), keys[1].as_ptr());
}
