//! Disjoint ranges of keys.

use std::{cmp::Ordering, ops::Bound, sync::Arc};

use bytes::Bytes;
use sievedb_format::range_tombstone::ends_above;

use crate::iter::bounds::{KeyBounds, is_above, is_below};

/// Disjoint ranges, in key order.
#[derive(Debug, Default)]
pub(super) struct KeyRanges(Vec<Arc<KeyBounds>>);

impl KeyRanges {
    /// Merges `ranges`, which may overlap and be in any order. Skips empty ones.
    pub(super) fn new(ranges: impl Iterator<Item = KeyBounds>) -> Self {
        let mut ranges: Vec<_> = ranges.filter(|range| !range.is_empty()).collect();
        ranges.sort_by(|a, b| cmp_starts(&a.start, &b.start));
        let mut merged: Vec<KeyBounds> = Vec::new();
        for range in ranges {
            match merged.last_mut().filter(|last| touches(&last.end, &range.start)) {
                Some(last) if cmp_ends(&last.end, &range.end) == Ordering::Less => {
                    last.end = range.end;
                }
                Some(_) => {}
                None => merged.push(range),
            }
        }
        Self(merged.into_iter().map(Arc::new).collect())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<KeyBounds>> {
        self.0.iter()
    }

    /// Returns `true` if a range contains `key`.
    pub(super) fn contain(&self, key: &[u8]) -> bool {
        let ends_below = |range: &Arc<KeyBounds>| !is_below(key, range.as_slices().1);
        let at = self.0.partition_point(ends_below);
        self.0.get(at).is_some_and(|range| is_above(key, range.as_slices().0))
    }

    /// Returns `true` if a range may contain a key that a range tombstone from `start` to `end`
    /// covers.
    pub(super) fn overlap(&self, start: &[u8], end: &[u8]) -> bool {
        let ends_before = |range: &Arc<KeyBounds>| !is_below(start, range.as_slices().1);
        let at = self.0.partition_point(ends_before);
        self.0.get(at).is_some_and(|range| match range.as_slices().0 {
            Bound::Included(first) | Bound::Excluded(first) => ends_above(end, first),
            Bound::Unbounded => true,
        })
    }
}

fn cmp_starts(a: &Bound<Bytes>, b: &Bound<Bytes>) -> Ordering {
    /// The bound excludes its key.
    fn parts(bound: &Bound<Bytes>) -> Option<(&[u8], bool)> {
        match bound {
            Bound::Unbounded => None,
            Bound::Included(key) => Some((key, false)),
            Bound::Excluded(key) => Some((key, true)),
        }
    }
    // `None` is the smallest.
    parts(a).cmp(&parts(b))
}

fn cmp_ends(a: &Bound<Bytes>, b: &Bound<Bytes>) -> Ordering {
    /// The bound includes its key.
    fn parts(bound: &Bound<Bytes>) -> Option<(&[u8], bool)> {
        match bound {
            Bound::Unbounded => None,
            Bound::Included(key) => Some((key, true)),
            Bound::Excluded(key) => Some((key, false)),
        }
    }
    match (parts(a), parts(b)) {
        (None, None) => Ordering::Equal,
        (None, Some(_)) => Ordering::Greater,
        (Some(_), None) => Ordering::Less,
        (Some(a), Some(b)) => a.cmp(&b),
    }
}

/// Returns `true` if no key is between the `end` of a range and the `start` of a later one.
fn touches(end: &Bound<Bytes>, start: &Bound<Bytes>) -> bool {
    match (end, start) {
        (Bound::Unbounded, _) | (_, Bound::Unbounded) => true,
        (Bound::Excluded(end), Bound::Excluded(start)) => start < end,
        (
            Bound::Included(end) | Bound::Excluded(end),
            Bound::Included(start) | Bound::Excluded(start),
        ) => start <= end,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bound(text: &str) -> Bound<Bytes> {
        let key = || Bytes::copy_from_slice(&text.as_bytes()[1..]);
        match text.as_bytes()[0] {
            b'=' => Bound::Included(key()),
            b'~' => Bound::Excluded(key()),
            _ => Bound::Unbounded,
        }
    }

    #[test]
    fn ranges_are_merged() {
        type Case =
            (&'static [(&'static str, &'static str)], &'static [(&'static str, &'static str)]);
        let cases: [Case; 8] = [
            (&[], &[]),
            (&[("=b", "=a"), ("~a", "~a")], &[]),
            (&[("=c", "=d"), ("=a", "=b")], &[("=a", "=b"), ("=c", "=d")]),
            (&[("=a", "=c"), ("=b", "=b")], &[("=a", "=c")]),
            (&[("=a", "~b"), ("=b", "=c")], &[("=a", "=c")]),
            (&[("=a", "~b"), ("~b", "=c")], &[("=a", "~b"), ("~b", "=c")]),
            (&[("=a", "=b"), ("~b", "*")], &[("=a", "*")]),
            (&[("*", "=a"), ("=a", "~a"), ("*", "~c")], &[("*", "~c")]),
        ];
        for (ranges, want) in cases {
            let all = |list: &[(&str, &str)]| -> Vec<KeyBounds> {
                list.iter().map(|(a, b)| KeyBounds { start: bound(a), end: bound(b) }).collect()
            };
            let merged = KeyRanges::new(all(ranges).into_iter());
            let got: Vec<_> = merged.iter().map(|range| (**range).clone()).collect();
            assert_eq!(got, all(want), "{ranges:?}");
            for key in ["", "a", "aa", "b", "bb", "c", "d", "e"] {
                let key = key.as_bytes();
                let within = |range: &KeyBounds| {
                    let (start, end) = range.as_slices();
                    is_above(key, start) && is_below(key, end)
                };
                assert_eq!(merged.contain(key), all(ranges).iter().any(within), "{key:?}");
            }
            for (start, end) in [("a", "b"), ("aa", "b"), ("b", "bb"), ("c", "d"), ("d", "e")] {
                let keys = ["a", "aa", "b", "bb", "c", "cc", "d", "dd"];
                let mut keys = keys.iter().filter(|key| (start..end).contains(*key));
                let is_hit = keys.any(|key| merged.contain(key.as_bytes()));
                let overlaps = merged.overlap(start.as_bytes(), end.as_bytes());
                assert!(overlaps || !is_hit, "{ranges:?}, {start}..{end}");
            }
            assert!(!merged.overlap(b"x", b"y") || merged.contain(b"x"), "{ranges:?}");
            assert!(merged.is_empty() || merged.overlap(b"", b""), "{ranges:?}");
        }
    }
}
