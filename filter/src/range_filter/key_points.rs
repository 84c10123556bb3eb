//! Maps keys to points, and key ranges to ranges of points.
//!
//! The point of a key is the 8 bytes after the common prefix of the table's keys, as a big-endian
//! integer padded with zeros. It has fewer bytes if the longest key has fewer after the prefix, so
//! that adjacent numbers are adjacent points for any prefix. Points are in the order of their keys.
//!
//! # Limits
//!
//! Keys that agree in these 8 bytes share a point, and any range between two of them matches.
//! Ranges are as long as the distance of their points. If the bounds differ in the last of the 8
//! bytes, a range has up to 256 points. If they differ in the last but one, it has up to 65,536.
//! The rate is proportional to that number.
//!
//! So the filter suits keys that differ in these 8 bytes, such as big-endian numbers and times,
//! also after a prefix. It does not suit long texts with much in common. It does not suit decimal
//! digits either, each of which costs a factor of 256 for one of ten.

use alloc::vec::Vec;
use core::ops::Bound;

use super::RangeFilter;

/// Maximum bytes of a key that form its point.
pub const POINT_BYTES_MAX: usize = size_of::<u64>();

/// Returns the first 8 bytes of `rest`, padded with zeros.
fn first_bytes(rest: &[u8]) -> u64 {
    let mut bytes = [0; POINT_BYTES_MAX];
    let used = rest.len().min(POINT_BYTES_MAX);
    bytes[..used].copy_from_slice(&rest[..used]);
    u64::from_be_bytes(bytes)
}

/// Returns the shift of the first 8 bytes for points of `point_bytes` bytes, 1 to 8.
fn shift(point_bytes: usize) -> u32 {
    8 * (POINT_BYTES_MAX - point_bytes) as u32
}

/// Input of a [`RangeFilter`].
#[derive(Debug, Clone)]
pub struct Points {
    pub(super) prefix_bytes: usize,
    /// Bytes of a key that form a point, 1 to 8; 8 if the points are not keys.
    pub(super) point_bytes: usize,
    pub(super) points: Vec<u64>,
}

impl Points {
    /// Wraps ascending integers, which may repeat. If they are not sorted, nonadjacent duplicates
    /// count twice.
    #[must_use]
    pub fn new(points: Vec<u64>) -> Self {
        Self { prefix_bytes: 0, point_bytes: POINT_BYTES_MAX, points }
    }

    /// Returns the number of points, duplicates included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.points.len()
    }

    /// Returns `true` if there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.points.is_empty()
    }
}

/// A collector of the keys of a table, whose common prefix is known only after the last key.
///
/// Uses 8 bytes per key, and a copy of the first key.
#[derive(Debug, Clone, Default)]
pub struct PointCollector {
    first: Vec<u8>,
    longest: usize,
    points: Vec<u64>,
    /// Index from which on keys share a shorter prefix with the first, and its length.
    prefixes: Vec<(usize, usize)>,
}

impl PointCollector {
    /// Creates a collector without keys.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a key. Keys must be ascending.
    pub fn push(&mut self, key: &[u8]) {
        let common = match self.prefixes.last() {
            Some(&(_, prefix_bytes)) => common_prefix(&self.first[..prefix_bytes], key),
            None => {
                self.first.extend_from_slice(key);
                key.len()
            }
        };
        if self.prefixes.last().is_none_or(|&(_, prefix_bytes)| common < prefix_bytes) {
            self.prefixes.push((self.points.len(), common));
        }
        self.longest = self.longest.max(key.len());
        self.points.push(first_bytes(&key[common..]));
    }

    /// Returns the number of keys.
    #[must_use]
    pub fn len(&self) -> usize {
        self.points.len()
    }

    /// Returns `true` if there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.points.is_empty()
    }

    /// Returns the points of all keys, after the common prefix of `smallest` and `largest`, which
    /// bound all keys.
    #[must_use]
    pub fn finish(self, smallest: &[u8], largest: &[u8]) -> Points {
        let Self { first, longest, mut points, prefixes } = self;
        let shortest = prefixes.last().map_or(0, |&(_, prefix_bytes)| prefix_bytes);
        let prefix_bytes = common_prefix(smallest, largest).min(shortest);
        let point_bytes = longest.saturating_sub(prefix_bytes).clamp(1, POINT_BYTES_MAX);
        let mut end = points.len();
        for &(start, longer) in prefixes.iter().rev() {
            // These keys share the bytes between both prefixes with the first.
            let between = first_bytes(&first[prefix_bytes..longer]);
            let shift_bits = 8 * (longer - prefix_bytes).min(POINT_BYTES_MAX) as u32;
            for point in &mut points[start..end] {
                *point = between | point.checked_shr(shift_bits).unwrap_or(0);
                *point >>= shift(point_bytes);
            }
            end = start;
        }
        Points { prefix_bytes, point_bytes, points }
    }
}

impl RangeFilter {
    /// Returns `false` only if no key within the bounds was added.
    ///
    /// `table_key` is any key with the common prefix of all keys of the filter, such as a bound of
    /// the table. If it is shorter than [`prefix_bytes`](Self::prefix_bytes), the result is `true`.
    #[must_use]
    pub fn may_contain_keys(
        &self,
        table_key: &[u8],
        lower: Bound<&[u8]>,
        upper: Bound<&[u8]>,
    ) -> bool {
        let prefix_bytes = usize::try_from(self.prefix_bytes()).ok();
        let Some(prefix) = prefix_bytes.and_then(|bytes| table_key.get(..bytes)) else {
            return true;
        };
        let point_bytes = usize::from(self.point_bytes);
        let first = first_point(prefix, point_bytes, lower);
        let points = first.zip(last_point(prefix, point_bytes, upper));
        points.is_some_and(|(first, last)| self.may_contain_range(first, last))
    }
}

/// Returns the smallest point from `lower` on of a key with `prefix`; `None` if there is none.
fn first_point(prefix: &[u8], point_bytes: usize, lower: Bound<&[u8]>) -> Option<u64> {
    let (Bound::Included(key) | Bound::Excluded(key)) = lower else { return Some(0) };
    match key.strip_prefix(prefix) {
        // Also for an excluded bound: longer keys share its point.
        Some(rest) => Some(first_bytes(rest) >> shift(point_bytes)),
        None => (key < prefix).then_some(0),
    }
}

/// Returns the largest point up to `upper` of a key with `prefix`; `None` if there is none.
fn last_point(prefix: &[u8], point_bytes: usize, upper: Bound<&[u8]>) -> Option<u64> {
    let highest = u64::MAX >> shift(point_bytes);
    let (Bound::Included(key) | Bound::Excluded(key)) = upper else { return Some(highest) };
    let Some(rest) = key.strip_prefix(prefix) else {
        return (key > prefix).then_some(highest);
    };
    let last = first_bytes(rest) >> shift(point_bytes);
    // A smaller key shares its point only if this key continues after the point, or ends with a
    // zero that the other one lacks.
    let is_shared = rest.len() > point_bytes || rest.last() == Some(&0);
    if matches!(upper, Bound::Included(_)) || is_shared { Some(last) } else { last.checked_sub(1) }
}

/// Returns the length of the common prefix.
fn common_prefix(one: &[u8], other: &[u8]) -> usize {
    one.iter().zip(other).take_while(|(one, other)| one == other).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Name, keys, bytes of the prefix, points.
    type Collected = (&'static str, &'static [&'static [u8]], usize, Vec<u64>);

    /// Name, bound, the point as the lower one, the point as the upper one.
    type Bounded = (&'static str, Bound<&'static [u8]>, Option<u64>, Option<u64>);

    #[test]
    fn points_follow_the_final_prefix() {
        let cases: [Collected; 7] = [
            ("none", &[], 0, vec![]),
            ("one", &[b"ant"], 3, vec![0]),
            ("one byte", &[b"ant", b"any"], 2, vec![0x74, 0x79]),
            ("two bytes", &[b"pa", b"pab", b"pbc"], 1, vec![0x6100, 0x6162, 0x6263]),
            (
                "shorter and shorter",
                &[b"aaaaaaaaaaaaaa", b"aaaaaaaaaaab", b"aab", b"b"],
                0,
                vec![
                    u64::from_be_bytes(*b"aaaaaaaa"),
                    u64::from_be_bytes(*b"aaaaaaaa"),
                    u64::from_be_bytes(*b"aab\0\0\0\0\0"),
                    0x62 << 56,
                ],
            ),
            ("a prefix of the next", &[b"ab", b"ab\0", b"ab\x01"], 2, vec![0, 0, 1]),
            ("the empty key", &[b"", b"x"], 0, vec![0, 0x78]),
        ];
        for (name, keys, prefix_bytes, want) in cases {
            let mut collector = PointCollector::new();
            keys.iter().for_each(|key| collector.push(key));
            let ends = keys.first().zip(keys.last());
            let (first, last) = ends.map_or((&b""[..], &b""[..]), |(first, last)| (*first, *last));
            let points = collector.finish(first, last);
            assert_eq!((points.prefix_bytes, points.points), (prefix_bytes, want), "{name}");
        }
    }

    #[test]
    fn wider_bounds_shorten_the_prefix() {
        let mut collector = PointCollector::new();
        [b"user1", b"user2"].iter().for_each(|key| collector.push(*key));
        let points = collector.finish(b"us", b"user2");
        assert_eq!(points.prefix_bytes, 2);
        assert_eq!(points.points[1], 0x65_7232);
    }

    #[test]
    fn bounds_become_points() {
        use Bound::{Excluded, Included, Unbounded};
        let byte = |byte: u8| u64::from(byte) << 56;
        let cases: [Bounded; 17] = [
            ("all", Unbounded, Some(0), Some(u64::MAX)),
            ("before the prefix", Included(b"oz"), Some(0), None),
            ("in the prefix", Included(b"p"), Some(0), None),
            ("behind it", Included(b"q"), None, Some(u64::MAX)),
            ("behind it, longer", Excluded(b"pr"), None, Some(u64::MAX)),
            ("the prefix", Included(b"pq"), Some(0), Some(0)),
            ("but the prefix", Excluded(b"pq"), Some(0), None),
            ("a byte", Included(b"pqx"), Some(byte(b'x')), Some(byte(b'x'))),
            ("but a byte", Excluded(b"pqx"), Some(byte(b'x')), Some(byte(b'x') - 1)),
            ("zero", Included(b"pq\0"), Some(0), Some(0)),
            ("but zero", Excluded(b"pq\0"), Some(0), Some(0)),
            ("but 8 bytes", Excluded(b"pq\0\0\0\0\0\0\0\x05"), Some(5), Some(4)),
            ("but 8 bytes, a zero last", Excluded(b"pq\0\0\0\0\0\0\x05\0"), Some(1280), Some(1280)),
            ("8 bytes", Included(b"pq\0\0\0\0\0\0\0\x05"), Some(5), Some(5)),
            ("9 bytes", Included(b"pq\0\0\0\0\0\0\0\x05\x06"), Some(5), Some(5)),
            ("but 9 bytes", Excluded(b"pq\0\0\0\0\0\0\0\x05\x06"), Some(5), Some(5)),
            ("but 0x01 0x00", Excluded(b"pq\x01\0"), Some(byte(1)), Some(byte(1))),
        ];
        for (name, bound, first, last) in cases {
            assert_eq!(first_point(b"pq", 8, bound), first, "{name}, as the lower one");
            assert_eq!(last_point(b"pq", 8, bound), last, "{name}, as the upper one");
        }
        // Points of two bytes.
        assert_eq!(last_point(b"pq", 2, Unbounded), Some(0xffff));
        assert_eq!(first_point(b"pq", 2, Included(b"pq\x01\x02\x03")), Some(0x102));
        assert_eq!(last_point(b"pq", 2, Excluded(b"pq\x01\x02\x03")), Some(0x102));
        assert_eq!(last_point(b"pq", 2, Excluded(b"pq\x01\x02")), Some(0x101));
        assert_eq!(last_point(b"pq", 2, Excluded(b"pq\x01")), Some(0xff));
    }
}
