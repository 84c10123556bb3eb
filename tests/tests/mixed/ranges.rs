//! Iterators, read from both ends beside writes.

use std::ops::Bound;

use bytes::Bytes;
use sievedb::{Error, Range};
use sievedb_tests::model::{KeyRange, Name, shown};

use super::{
    model::{Contents, Seen, prefix_range},
    story::Story,
};

/// An iterator, and what it must still yield.
pub(super) struct HeldRange {
    range: Range,
    id: u64,
    /// The store when it was created or refreshed.
    contents: Contents,
    now_ms: u64,
    bounds: KeyRange,
    rest: KeyRange,
    is_at_end: bool,
}

impl Story {
    /// Reads a range at once.
    pub(super) fn range(&mut self) {
        let mut held = self.new_range();
        let steps = if self.lots.chance(1, 8) { 300 } else { 1 + self.lots.below(12) };
        self.step_range(&mut held, steps);
    }

    pub(super) fn hold_range(&mut self) {
        if self.ranges.len() < 4 {
            let held = self.new_range();
            self.ranges.push(held);
        }
    }

    fn new_range(&mut self) -> HeldRange {
        let (name, space, handle) = self.keyspace();
        let (bounds, range) = match self.lots.below(6) {
            0 => ((Bound::Unbounded, Bound::Unbounded), handle.iter()),
            1 => {
                let key = self.key();
                let prefix = key.slice(..self.lots.below(key.len() + 1).min(5));
                (prefix_range(&prefix), handle.prefix(&prefix))
            }
            2 => {
                let bounds = self.key_range();
                (bounds.clone(), handle.range(bounds))
            }
            _ => {
                let bounds = self.narrow_range();
                (bounds.clone(), handle.range(bounds))
            }
        };
        self.note(|| format!("range {name} {bounds:?}"));
        HeldRange {
            range,
            id: space.id,
            contents: self.history.now().clone(),
            now_ms: self.now_ms(),
            rest: bounds.clone(),
            bounds,
            is_at_end: false,
        }
    }

    pub(super) fn continue_range(&mut self) {
        if self.ranges.is_empty() {
            return;
        }
        let at = self.lots.below(self.ranges.len());
        let mut held = self.ranges.swap_remove(at);
        if self.lots.chance(1, 4) && !self.refresh(&mut held) {
            return;
        }
        let steps = 1 + self.lots.below(20);
        if self.step_range(&mut held, steps) && !self.lots.chance(1, 8) {
            self.ranges.push(held);
        }
    }

    fn refresh(&mut self, held: &mut HeldRange) -> bool {
        self.note(|| "refresh a range".to_owned());
        let lives = self.history.now().of_id(held.id).is_some();
        match held.range.refresh() {
            Ok(()) => {
                assert!(lives, "refreshed to a dropped keyspace");
                held.contents = self.history.now().clone();
                held.now_ms = self.now_ms();
                true
            }
            Err(Error::KeyspaceDropped { .. }) if !lives => true,
            Err(error) => {
                self.tolerate("refresh", &error);
                false
            }
        }
    }

    /// Makes some steps, and returns whether the range can be used further.
    fn step_range(&mut self, held: &mut HeldRange, steps: usize) -> bool {
        let from_back_in_8 = *self.lots.pick(&[0, 8, 3]);
        let (seeks, lends) = (self.lots.chance(1, 3), self.lots.chance(1, 2));
        let (name, space) = held.contents.of_id(held.id).expect("the range is of a keyspace");
        let (name, space) = (Name::clone(name), space.clone());
        for _ in 0..steps {
            let from_back = self.lots.chance(from_back_in_8, 8);
            if seeks && self.lots.chance(1, 5) {
                let key = self.key();
                self.note(|| format!("seek {}, back: {from_back}", shown(&key)));
                held.seek(key, from_back);
            }
            let wanted = held.next(&space, from_back);
            let read = match (lends, from_back) {
                (true, false) => held.range.next_ref(),
                (true, true) => held.range.next_back_ref(),
                (false, false) => {
                    let read = held.range.next().transpose();
                    if !self.check_step(&name, read, wanted.as_ref()) {
                        return false;
                    }
                    held.is_at_end = matches!(wanted, None | Some((_, Seen::MergeFails)));
                    continue;
                }
                (false, true) => {
                    let read = held.range.next_back().transpose();
                    if !self.check_step(&name, read, wanted.as_ref()) {
                        return false;
                    }
                    held.is_at_end = matches!(wanted, None | Some((_, Seen::MergeFails)));
                    continue;
                }
            };
            let read = read.map(|entry| {
                entry.map(|entry| {
                    assert_eq!(entry.value(), entry.value_bytes());
                    (Bytes::copy_from_slice(entry.key()), entry.value_bytes())
                })
            });
            if !self.check_step(&name, read, wanted.as_ref()) {
                return false;
            }
            held.is_at_end = matches!(wanted, None | Some((_, Seen::MergeFails)));
        }
        true
    }

    fn check_step(
        &mut self,
        name: &str,
        read: Result<Option<(Bytes, Bytes)>, Error>,
        wanted: Option<&(Bytes, Seen)>,
    ) -> bool {
        match (read, wanted) {
            (Err(Error::MergeFailed { key, .. }), Some((wanted, Seen::MergeFails))) => {
                assert_eq!(&key[..], wanted, "{name}");
            }
            (read, wanted) => {
                let Some(read) = self.accept("range", read) else { return false };
                let read = read.map(|(key, value)| (key, Seen::Value(value)));
                assert_eq!(read.as_ref(), wanted, "a range of {name}");
            }
        }
        true
    }
}

impl HeldRange {
    /// Returns the next entry, and removes it from the rest.
    fn next(&mut self, space: &super::model::Space, from_back: bool) -> Option<(Bytes, Seen)> {
        if self.is_at_end {
            return None;
        }
        let mut rest = space.range(&self.rest, self.now_ms);
        let next = if from_back { rest.next_back() } else { rest.next() };
        let next = next.map(|(key, seen)| (key.clone(), seen));
        if let Some((key, _)) = &next {
            let bound = Bound::Excluded(key.clone());
            if from_back {
                self.rest.1 = bound;
            } else {
                self.rest.0 = bound;
            }
        }
        next
    }

    fn seek(&mut self, key: Bytes, from_back: bool) {
        let (start, end) = &self.bounds;
        self.is_at_end = false;
        if from_back {
            self.range.seek_back(&key);
            let is_inside = match end {
                Bound::Included(end) | Bound::Excluded(end) => key < *end,
                Bound::Unbounded => true,
            };
            let end = if is_inside { Bound::Included(key) } else { end.clone() };
            self.rest = (start.clone(), end);
        } else {
            self.range.seek(&key);
            let is_inside = match start {
                Bound::Included(start) | Bound::Excluded(start) => key > *start,
                Bound::Unbounded => true,
            };
            let start = if is_inside { Bound::Included(key) } else { start.clone() };
            self.rest = (start, end.clone());
        }
    }
}
