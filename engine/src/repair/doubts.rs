//! Keys whose versions may be lost.

use std::{
    collections::BTreeMap,
    ops::{Bound, RangeBounds as _},
};

use bytes::Bytes;

use super::tables::Keys;

/// A union of key ranges, each with its ends: older versions of a key at an open end may be in the
/// damaged block.
#[derive(Debug, Default)]
pub(super) struct Doubts {
    /// Last key by first key, disjoint. `None` is the end of the keyspace.
    ranges: BTreeMap<Bytes, Option<Bytes>>,
}

impl Doubts {
    pub(super) fn add(&mut self, (start, end): Keys) {
        let (mut first, mut last) = (end_key(start).unwrap_or_default(), end_key(end));
        while let Some((start, end)) = self.range_up_to(last.as_ref())
            && is_up_to(&first, end.as_ref())
        {
            let (start, end) = (start.clone(), end.clone());
            self.ranges.remove(&start);
            first = first.min(start);
            last = last.zip(end).map(|(one, other)| one.max(other));
        }
        self.ranges.insert(first, last);
    }

    /// Returns `true` if versions of the key may be lost.
    pub(super) fn contain(&self, key: &[u8]) -> bool {
        let mut before = self.ranges.range::<[u8], _>((Bound::Unbounded, Bound::Included(key)));
        before.next_back().is_some_and(|(_, last)| is_up_to(key, last.as_ref()))
    }

    /// Returns the last range that begins at or before `last`.
    fn range_up_to(&self, last: Option<&Bytes>) -> Option<(&Bytes, &Option<Bytes>)> {
        match last {
            Some(last) => self.ranges.range(..=last.clone()).next_back(),
            None => self.ranges.last_key_value(),
        }
    }
}

fn end_key(bound: Bound<Bytes>) -> Option<Bytes> {
    match bound {
        Bound::Included(key) | Bound::Excluded(key) => Some(key),
        Bound::Unbounded => None,
    }
}

fn is_up_to(key: &[u8], last: Option<&Bytes>) -> bool {
    last.is_none_or(|last| key <= &**last)
}

/// Unreadable keys of a table, with the maximum of their sequence numbers.
#[derive(Debug)]
pub(super) struct Damage {
    pub(super) keys: Keys,
    pub(super) largest_sequence: u64,
}

/// Damages of tables whose entries are merged in the order of their keys.
#[derive(Debug, Default)]
pub(super) struct MergedDamages {
    /// Damages that may contain the current key.
    current: Vec<Damage>,
    /// Damages of later keys, by the start of their range.
    later: BTreeMap<Bytes, Vec<Damage>>,
}

impl MergedDamages {
    pub(super) fn add(&mut self, damage: Damage) {
        let start = end_key(damage.keys.0.clone()).unwrap_or_default();
        self.later.entry(start).or_default().push(damage);
    }

    /// Returns `true` if a version of `key` with at least this sequence number may be lost. Keys
    /// must ascend.
    pub(super) fn may_be_newer(&mut self, key: &[u8], sequence: u64) -> bool {
        while let Some(first) = self.later.first_entry().filter(|first| first.key() <= key) {
            self.current.extend(first.remove());
        }
        self.current.retain(|damage| match &damage.keys.1 {
            Bound::Included(end) => key <= &**end,
            Bound::Excluded(end) => key < &**end,
            Bound::Unbounded => true,
        });
        let mut damages = self.current.iter();
        damages.any(|it| it.largest_sequence >= sequence && it.keys.contains(key))
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use super::*;
    use crate::tests::Random;

    fn key(number: u64) -> Bytes {
        number.to_be_bytes().to_vec().into()
    }

    fn keys(range: Range<u64>) -> Keys {
        (Bound::Excluded(key(range.start)), Bound::Included(key(range.end)))
    }

    #[test]
    fn doubts_are_a_union_of_closed_ranges() {
        let mut random = Random::new(1);
        for _ in 0..300 {
            let (mut doubts, mut known) = (Doubts::default(), Vec::new());
            for _ in 0..random.below(8) + 1 {
                let start = random.below(40);
                let (mut first, mut last) = (start, start + random.below(9));
                let mut range = keys(first..last);
                if random.one_in(20) {
                    (range.0, first) = (Bound::Unbounded, 0);
                }
                if random.one_in(20) {
                    (range.1, last) = (Bound::Unbounded, u64::MAX);
                }
                doubts.add(range);
                known.push(first..=last);
            }
            for number in 0..60 {
                let want = known.iter().any(|range| range.contains(&number));
                assert_eq!(doubts.contain(&key(number)), want, "{number} in {known:?}");
            }
            let ends = doubts.ranges.values().map(|last| last.clone().unwrap_or_default());
            let starts = doubts.ranges.keys().skip(1);
            assert!(ends.zip(starts).all(|(last, next)| last < next), "{doubts:?}");
        }
    }

    #[test]
    fn adjacent_damages_are_one_range() {
        let mut doubts = Doubts::default();
        (0..5_000).for_each(|number| doubts.add(keys(number..number + 1)));
        assert_eq!(doubts.ranges.len(), 1);
    }

    #[test]
    fn a_key_is_compared_with_the_damages_around_it() {
        let mut damages = MergedDamages::default();
        for number in (0..10_000).step_by(2) {
            damages.add(Damage { keys: keys(number..number + 1), largest_sequence: 7 });
        }
        for number in 0..10_000 {
            let is_lost = number % 2 == 1;
            assert_eq!(damages.may_be_newer(&key(number), 7), is_lost, "{number}");
            assert!(!damages.may_be_newer(&key(number), 8), "{number}");
            assert!(damages.current.len() <= 1, "{number}");
        }
    }
}
