//! The user-key bounds of a table or a run.
//!
//! Each end is inclusive or exclusive. Exclusive ends allow a range tombstone to be split between
//! two tables: the left table ends, exclusively, at the first key of the right one. An exclusive,
//! empty largest key means "no upper bound", as the empty end of a range tombstone does.
//!
//! # Encoded form
//!
//! Both keys are separate fields. A third field, one varint, marks exclusive ends: bit 0 the
//! smallest key, bit 1 the largest key. The field is required, and omitted if no bit is set.

use std::{cmp::Ordering, ops::Bound, sync::Arc};

use crate::Corruption;

const SMALLEST_EXCLUDED: u64 = 1;
const LARGEST_EXCLUDED: u64 = 2;

/// The user-key bounds of a table or a run, range tombstones included.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct TableBounds {
    /// Smallest user key.
    pub smallest: Arc<[u8]>,
    /// Largest user key. Empty and exclusive: no upper bound.
    pub largest: Arc<[u8]>,
    /// `smallest` is exclusive.
    pub smallest_excluded: bool,
    /// `largest` is exclusive, as the end of a range tombstone is.
    pub largest_excluded: bool,
}

impl TableBounds {
    /// Creates bounds that include both keys.
    #[must_use]
    pub fn inclusive(smallest: impl Into<Arc<[u8]>>, largest: impl Into<Arc<[u8]>>) -> Self {
        let (smallest, largest) = (smallest.into(), largest.into());
        Self { smallest, largest, ..Self::default() }
    }

    /// Creates the bounds of a range tombstone from `start` up to `end`, exclusive.
    #[must_use]
    pub fn of_range(start: &[u8], end: &[u8]) -> Self {
        Self { largest_excluded: true, ..Self::inclusive(start, end) }
    }

    /// Returns `true` if there is no upper bound.
    #[inline]
    #[must_use]
    pub fn is_unbounded(&self) -> bool {
        self.largest_excluded && self.largest.is_empty()
    }

    /// Returns the lower and the upper bound.
    #[must_use]
    pub fn as_range(&self) -> (Bound<&[u8]>, Bound<&[u8]>) {
        let bound =
            |key, excluded| if excluded { Bound::Excluded(key) } else { Bound::Included(key) };
        let start = bound(&*self.smallest, self.smallest_excluded);
        match self.is_unbounded() {
            true => (start, Bound::Unbounded),
            false => (start, bound(&*self.largest, self.largest_excluded)),
        }
    }

    /// Returns `true` if no key can be within the bounds.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        if self.is_unbounded() {
            return false;
        }
        match self.smallest.cmp(&self.largest) {
            Ordering::Less => false,
            Ordering::Equal => self.smallest_excluded || self.largest_excluded,
            Ordering::Greater => true,
        }
    }

    /// Returns `true` if `key` is within the bounds.
    #[must_use]
    pub fn holds(&self, key: &[u8]) -> bool {
        !self.starts_above(key) && !self.ends_below(key)
    }

    /// Returns `true` if all keys within the bounds are above `key`.
    #[must_use]
    pub fn starts_above(&self, key: &[u8]) -> bool {
        match (*self.smallest).cmp(key) {
            Ordering::Less => false,
            Ordering::Equal => self.smallest_excluded,
            Ordering::Greater => true,
        }
    }

    /// Returns `true` if all keys within the bounds are below `key`.
    #[must_use]
    pub fn ends_below(&self, key: &[u8]) -> bool {
        match (*self.largest).cmp(key) {
            Ordering::Less => !self.is_unbounded(),
            Ordering::Equal => self.largest_excluded && !self.is_unbounded(),
            Ordering::Greater => false,
        }
    }

    /// Returns `true` if all keys within these bounds are below all keys within `other`.
    #[must_use]
    pub fn is_before(&self, other: &Self) -> bool {
        if self.is_unbounded() {
            return false;
        }
        match self.largest.cmp(&other.smallest) {
            Ordering::Less => true,
            Ordering::Equal => self.largest_excluded || other.smallest_excluded,
            Ordering::Greater => false,
        }
    }

    /// Returns `true` if neither of the bounds is [before](Self::is_before) the other.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        !self.is_before(other) && !other.is_before(self)
    }

    /// Returns `false` only if all keys within the bounds are outside of the lower bound `start`.
    #[must_use]
    pub fn reaches_above(&self, start: Bound<&[u8]>) -> bool {
        match start {
            Bound::Included(start) => !self.ends_below(start),
            Bound::Excluded(start) => self.is_unbounded() || *self.largest > *start,
            Bound::Unbounded => true,
        }
    }

    /// Returns `false` only if all keys within the bounds are outside of the upper bound `end`.
    #[must_use]
    pub fn reaches_below(&self, end: Bound<&[u8]>) -> bool {
        match end {
            Bound::Included(end) => !self.starts_above(end),
            Bound::Excluded(end) => *self.smallest < *end,
            Bound::Unbounded => true,
        }
    }

    /// Returns `true` if all keys within the bounds are within the upper bound `end`.
    ///
    /// May return `false` although they are, if these bounds have an exclusive end.
    #[must_use]
    pub fn stays_below(&self, end: Bound<&[u8]>) -> bool {
        match end {
            Bound::Included(end) => !self.is_unbounded() && *self.largest <= *end,
            Bound::Excluded(end) => !self.is_unbounded() && *self.largest < *end,
            Bound::Unbounded => true,
        }
    }

    /// Compares the lower ends. The tables of a run are sorted in this order.
    #[must_use]
    pub fn cmp_starts(&self, other: &Self) -> Ordering {
        let start = |bounds: &Self| bounds.smallest_excluded;
        self.smallest.cmp(&other.smallest).then_with(|| start(self).cmp(&start(other)))
    }

    /// Compares the upper ends.
    #[must_use]
    pub fn cmp_ends(&self, other: &Self) -> Ordering {
        let end = |bounds: &Self| !bounds.largest_excluded;
        let by_key = match (self.is_unbounded(), other.is_unbounded()) {
            (false, false) => self.largest.cmp(&other.largest),
            (own, of_other) => return own.cmp(&of_other),
        };
        by_key.then_with(|| end(self).cmp(&end(other)))
    }

    /// Returns the smallest bounds that cover all of `bounds`; `None` if `bounds` is empty.
    pub fn hull<'a>(bounds: impl IntoIterator<Item = &'a Self>) -> Option<Self> {
        let mut bounds = bounds.into_iter();
        let mut hull = bounds.next()?.clone();
        for other in bounds {
            if other.cmp_starts(&hull).is_lt() {
                hull.smallest = other.smallest.clone();
                hull.smallest_excluded = other.smallest_excluded;
            }
            if other.cmp_ends(&hull).is_gt() {
                hull.largest = other.largest.clone();
                hull.largest_excluded = other.largest_excluded;
            }
        }
        Some(hull)
    }

    /// Returns the bounds of the keys that are within both, possibly [empty](Self::is_empty).
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        let start = if self.cmp_starts(other).is_lt() { other } else { self };
        let end = if self.cmp_ends(other).is_gt() { other } else { self };
        Self {
            smallest: Arc::clone(&start.smallest),
            largest: Arc::clone(&end.largest),
            smallest_excluded: start.smallest_excluded,
            largest_excluded: end.largest_excluded,
        }
    }

    /// Returns the field that marks exclusive ends; 0 if both are inclusive.
    #[must_use]
    pub fn exclusions(&self) -> u64 {
        let smallest = if self.smallest_excluded { SMALLEST_EXCLUDED } else { 0 };
        let largest = if self.largest_excluded { LARGEST_EXCLUDED } else { 0 };
        smallest | largest
    }

    /// Sets the exclusive ends from the stored field `what`.
    ///
    /// # Errors
    ///
    /// [`Corruption::Unsupported`] if a bit is set that this release does not support.
    pub fn set_exclusions(&mut self, what: &'static str, value: u64) -> Result<(), Corruption> {
        if value & !(SMALLEST_EXCLUDED | LARGEST_EXCLUDED) != 0 {
            return Err(Corruption::Unsupported { what, value });
        }
        self.smallest_excluded = value & SMALLEST_EXCLUDED != 0;
        self.largest_excluded = value & LARGEST_EXCLUDED != 0;
        Ok(())
    }

    /// Returns the memory of the keys, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.smallest.len() + self.largest.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns all nonempty bounds with keys from 0 to 4, as bytes.
    fn all() -> Vec<TableBounds> {
        let mut all = Vec::new();
        for from in 0..5_u8 {
            for to in from..5 {
                for exclusions in 0..4 {
                    let mut bounds = TableBounds::inclusive([from], [to]);
                    bounds.set_exclusions("test", exclusions).unwrap();
                    if !bounds.is_empty() {
                        all.push(bounds);
                    }
                }
            }
            all.push(TableBounds::of_range(&[from], b""));
        }
        all
    }

    #[test]
    fn an_intersection_holds_the_keys_of_both() {
        for one in all() {
            for other in all() {
                let both = one.intersection(&other);
                let want: Vec<_> = keys(&one).into_iter().filter(|key| other.holds(key)).collect();
                assert_eq!(keys(&both), want, "{one:?} and {other:?}");
            }
        }
    }

    /// Returns the keys within `bounds`, of one byte or with a second one.
    fn keys(bounds: &TableBounds) -> Vec<Vec<u8>> {
        let candidates = (0..5_u8).flat_map(|key| [vec![key], vec![key, 7]]);
        candidates.filter(|key| bounds.holds(key)).collect()
    }

    #[cfg_attr(miri, ignore = "long loops without unsafe code")]
    #[test]
    fn formats_bounds_agree_with_the_keys_within_them() {
        let all = all();
        for one in &all {
            let within = keys(one);
            let (from, to) = one.as_range();
            for key in (0..5_u8).flat_map(|key| [vec![key], vec![key, 7]]) {
                let inside =
                    <(Bound<&[u8]>, Bound<&[u8]>) as std::ops::RangeBounds<[u8]>>::contains(
                        &(from, to),
                        &*key,
                    );
                assert_eq!(one.holds(&key), inside, "{one:?} {key:?}");
                assert_eq!(one.starts_above(&key), within.iter().all(|k| *k > key), "{one:?}");
                assert_eq!(one.ends_below(&key), within.iter().all(|k| *k < key), "{one:?}");
                for bound in [Bound::Included(&*key), Bound::Excluded(&*key)] {
                    let above = |k: &[u8]| (bound, Bound::Unbounded).contains_key(k);
                    let below = |k: &[u8]| (Bound::Unbounded, bound).contains_key(k);
                    assert!(one.reaches_above(bound) || !within.iter().any(|k| above(k)));
                    assert!(one.reaches_below(bound) || !within.iter().any(|k| below(k)));
                    assert!(!one.stays_below(bound) || within.iter().all(|k| below(k)));
                }
            }
            for other in &all {
                let others = keys(other);
                let before = within.iter().all(|key| others.iter().all(|other| key < other));
                assert_eq!(one.is_before(other), before, "{one:?} {other:?}");
                assert_eq!(one.overlaps(other), other.overlaps(one), "{one:?} {other:?}");
                let hull = TableBounds::hull([one, other]).unwrap();
                assert!(within.iter().chain(&others).all(|key| hull.holds(key)), "{hull:?}");
            }
        }
    }

    trait ContainsKey {
        fn contains_key(&self, key: &[u8]) -> bool;
    }

    impl ContainsKey for (Bound<&[u8]>, Bound<&[u8]>) {
        fn contains_key(&self, key: &[u8]) -> bool {
            std::ops::RangeBounds::<[u8]>::contains(self, key)
        }
    }

    #[test]
    fn formats_an_unknown_exclusion_is_rejected() {
        let want = Corruption::Unsupported { what: "bounds", value: 4 };
        assert_eq!(TableBounds::default().set_exclusions("bounds", 4), Err(want));
    }
}
