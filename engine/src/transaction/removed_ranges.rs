//! Ranges of keys that a transaction removes.

use std::{
    collections::{BTreeMap, VecDeque},
    ops::Bound,
};

use bytes::Bytes;
use sievedb_format::range_tombstone::{cmp_ends, ends_above};

use crate::iter::bounds::{KeyBounds, is_above, is_below};

/// The first key of a range, and the first key after it, which is empty without an upper bound.
pub(super) type RemovedRange = (Bytes, Bytes);

/// Disjoint ranges with gaps between them, by their first keys.
#[derive(Debug, Default)]
pub(super) struct RemovedRanges(BTreeMap<Bytes, Bytes>);

impl RemovedRanges {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = KeyBounds> {
        self.0.iter().map(|(start, end)| bounds(start, end))
    }

    /// Returns `true` if a range contains `key`.
    pub(super) fn contain(&self, key: &[u8]) -> bool {
        self.at_or_before(key).is_some_and(|(_, end)| ends_above(end, key))
    }

    fn at_or_before(&self, key: &[u8]) -> Option<(&Bytes, &Bytes)> {
        self.0.range::<[u8], _>((Bound::Unbounded, Bound::Included(key))).next_back()
    }

    /// Returns the union of `range` and the ranges that it overlaps or touches, and these ranges.
    pub(super) fn merge(&self, (start, end): RemovedRange) -> (RemovedRange, Vec<RemovedRange>) {
        let copy = |(start, end): (&Bytes, &Bytes)| (start.clone(), end.clone());
        let before = self.at_or_before(&start).filter(|(_, end)| end.is_empty() || **end >= start);
        let behind = self.0.range::<[u8], _>((Bound::Excluded(&*start), Bound::Unbounded));
        let reached = behind.take_while(|(start, _)| end.is_empty() || **start <= end);
        let replaced: Vec<_> = before.into_iter().chain(reached).map(copy).collect();
        let mut merged = (start, end);
        for (start, end) in &replaced {
            merged.0 = merged.0.min(start.clone());
            if cmp_ends(&merged.1, end).is_lt() {
                merged.1 = end.clone();
            }
        }
        (merged, replaced)
    }

    /// Replaces `from` by `to`.
    pub(super) fn replace(&mut self, from: &[RemovedRange], to: &[RemovedRange]) {
        for (start, _) in from {
            let removed = self.0.remove(start);
            debug_assert!(removed.is_some(), "a range that is not there is replaced");
        }
        self.0.extend(to.iter().cloned());
        debug_assert!(
            self.0.iter().zip(self.0.keys().skip(1)).all(|((_, end), next)| end < next),
            "ranges have gaps between them"
        );
    }

    /// Returns the parts of `bounds` outside of all ranges, in key order. No part is empty.
    pub(super) fn gaps(&self, bounds: &KeyBounds) -> VecDeque<KeyBounds> {
        let mut gaps = VecDeque::new();
        if bounds.is_empty() {
            return gaps;
        }
        let KeyBounds { start: mut from, end: to } = bounds.clone();
        let first = match &from {
            Bound::Included(key) | Bound::Excluded(key) => self.at_or_before(key),
            Bound::Unbounded => None,
        };
        let first = first.map_or(Bound::Unbounded, |(start, _)| Bound::Included(&**start));
        for (start, end) in self.0.range::<[u8], _>((first, Bound::Unbounded)) {
            if !is_below(start, bounds.as_slices().1) {
                break;
            }
            let gap = KeyBounds { start: from.clone(), end: Bound::Excluded(start.clone()) };
            if !gap.is_empty() {
                gaps.push_back(gap);
            }
            if end.is_empty() {
                return gaps;
            }
            if is_above(end, from.as_ref().map(AsRef::as_ref)) {
                from = Bound::Included(end.clone());
            }
        }
        let rest = KeyBounds { start: from, end: to };
        if !rest.is_empty() {
            gaps.push_back(rest);
        }
        gaps
    }
}

/// Returns the bounds of a range.
pub(super) fn bounds(start: &Bytes, end: &Bytes) -> KeyBounds {
    let end = if end.is_empty() { Bound::Unbounded } else { Bound::Excluded(end.clone()) };
    KeyBounds { start: Bound::Included(start.clone()), end }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    fn key(number: u8) -> Bytes {
        vec![number].into()
    }

    fn bound(kind: u8, number: u8) -> Bound<Bytes> {
        match kind {
            0 => Bound::Unbounded,
            1 => Bound::Excluded(key(number)),
            _ => Bound::Included(key(number)),
        }
    }

    proptest! {
        #[test]
        fn ranges_agree_with_a_set_of_keys(
            added in vec((0..30_u8, 0..10_u8), 0..12),
            kinds in (0..3_u8, 0..3_u8),
            ends in (0..30_u8, 0..30_u8),
        ) {
            let (mut ranges, mut removed) = (RemovedRanges::default(), [false; 40]);
            for (start, length) in added {
                let end = if length == 0 { Bytes::new() } else { key(start + length) };
                let (merged, replaced) = ranges.merge((key(start), end));
                ranges.replace(&replaced, &[merged]);
                let behind = if length == 0 { 40 } else { usize::from(start + length) };
                removed[usize::from(start)..behind].fill(true);
            }
            let bounds = KeyBounds { start: bound(kinds.0, ends.0), end: bound(kinds.1, ends.1) };
            let gaps = ranges.gaps(&bounds);
            prop_assert!(gaps.iter().all(|gap| !gap.is_empty()));
            for number in 0..40_u8 {
                let key = [number];
                let is_removed = removed[usize::from(number)];
                prop_assert_eq!(ranges.contain(&key), is_removed, "{} in {:?}", number, &ranges);
                let is_in = |bounds: &KeyBounds| {
                    let (start, end) = bounds.as_slices();
                    is_above(&key, start) && is_below(&key, end)
                };
                let holding = gaps.iter().filter(|gap| is_in(gap)).count();
                let want = usize::from(is_in(&bounds) && !is_removed);
                prop_assert_eq!(holding, want, "{} in {:?} of {:?}", number, &gaps, &ranges);
            }
        }
    }
}
