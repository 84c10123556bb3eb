//! Deletions of key ranges.
//!
//! For each version that it finds, a reader checks the range tombstones of all sources through
//! [`RangeTombstoneSource`]. Filters contain only points, so a negative probe does not rule out a
//! range tombstone.
//!
//! # Ends
//!
//! A range has an inclusive start and an exclusive end. An empty end means "no upper bound": as an
//! exclusive end it would be below every key. This holds in the log, in memtables, in the block of
//! a table, and in [`TableBounds`](crate::TableBounds).
//!
//! # Encoded form
//!
//! The content of a table's block of range tombstones. Range tombstones are sorted by start
//! ascending, then sequence number descending, then end ascending. No two are equal.
//!
//! | field      | bytes    | meaning                                          |
//! |------------|----------|--------------------------------------------------|
//! | `count`    | varint   | number of range tombstones                       |
//! | `start`    | prefixed | first deleted user key                           |
//! | `end`      | prefixed | first user key after the deleted range, or empty |
//! | `sequence` | varint   | position of the write in the history, from 1     |
//!
//! The last three repeat `count` times.

mod fragments;
mod list;

use std::{cmp::Ordering, fmt::Debug, sync::Arc};

pub use list::{Cover, HeadRange, RangeTombstones};

use crate::{Corruption, KEY_BYTES_MAX, SEQUENCE_MAX, SequenceNumber};

/// A source of range tombstones: a memtable or a table.
pub trait RangeTombstoneSource: Debug + Send + Sync {
    /// Returns `true` if there are no range tombstones, which is the common case.
    fn is_empty(&self) -> bool;

    /// Returns the largest sequence number, up to `at`, of a range tombstone that covers
    /// `user_key`.
    ///
    /// For a reader at `at`, every version of the key with a smaller sequence number is deleted.
    fn newest_cover(&self, user_key: &[u8], at: SequenceNumber) -> Option<SequenceNumber>;
}

/// Deletes the user keys from `start` up to `end`, exclusive, as of `sequence`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RangeTombstone {
    /// First deleted user key.
    pub start: Arc<[u8]>,
    /// First user key after the range, above `start`; empty for no upper bound.
    pub end: Arc<[u8]>,
    /// Position of the write in the history.
    pub sequence: SequenceNumber,
}

impl RangeTombstone {
    /// Creates a deletion of the keys from `start` up to `end`, exclusive.
    #[must_use]
    pub fn new(start: &[u8], end: &[u8], sequence: SequenceNumber) -> Self {
        Self { start: start.into(), end: end.into(), sequence }
    }

    /// Returns `true` if `user_key` is in the range.
    #[must_use]
    pub fn covers(&self, user_key: &[u8]) -> bool {
        *self.start <= *user_key && ends_above(&self.end, user_key)
    }

    fn check(&self) -> Result<(), Corruption> {
        for (what, key) in
            [("start of a range tombstone", &self.start), ("end of a range tombstone", &self.end)]
        {
            if key.len() > KEY_BYTES_MAX {
                return Err(Corruption::OutOfRange { what, value: key.len() as u64 });
            }
        }
        if !ends_above(&self.end, &self.start) {
            return Err(Corruption::Order { what: "start and end of a range tombstone" });
        }
        if !(1..=SEQUENCE_MAX).contains(&self.sequence) {
            let what = "sequence number of a range tombstone";
            return Err(Corruption::OutOfRange { what, value: self.sequence });
        }
        Ok(())
    }
}

impl Ord for RangeTombstone {
    fn cmp(&self, other: &Self) -> Ordering {
        let by_start = self.start.cmp(&other.start);
        let newest_first = || other.sequence.cmp(&self.sequence);
        by_start.then_with(newest_first).then_with(|| self.end.cmp(&other.end))
    }
}

impl PartialOrd for RangeTombstone {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Returns `true` if the exclusive end `end` of a range is above `user_key`.
#[inline]
#[must_use]
pub fn ends_above(end: &[u8], user_key: &[u8]) -> bool {
    end.is_empty() || user_key < end
}

/// Compares the exclusive ends of two ranges.
#[must_use]
pub fn cmp_ends(left: &[u8], right: &[u8]) -> Ordering {
    // An empty end has no upper bound.
    left.is_empty().cmp(&right.is_empty()).then_with(|| left.cmp(right))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packed_keys::head;

    fn list(tombstones: &[(&str, &str, SequenceNumber)]) -> RangeTombstones {
        let new = |&(start, end, sequence): &(&str, &str, _)| {
            RangeTombstone::new(start.as_bytes(), end.as_bytes(), sequence)
        };
        RangeTombstones::new(tombstones.iter().map(new).collect()).unwrap()
    }

    #[test]
    fn newest_cover_is_half_open_and_bounded_by_the_reader() {
        let list = list(&[("b", "d", 5), ("a", "z", 3), ("c", "d", 9), ("x", "y", 7)]);
        let cases = [
            ("before all", "", 100, None),
            ("start is covered", "a", 100, Some(3)),
            ("the reader is older", "a", 2, None),
            ("the reader is at the same sequence number", "a", 3, Some(3)),
            ("the newest of two", "b", 100, Some(5)),
            ("the newest of three", "cc", 100, Some(9)),
            ("the newest visible one", "cc", 8, Some(5)),
            ("end is not covered", "d", 100, Some(3)),
            ("after a nested range", "yy", 100, Some(3)),
            ("after all", "z", 100, None),
        ];
        for (name, key, at, want) in cases {
            assert_eq!(list.newest_cover(key.as_bytes(), at), want, "{name}");
        }
        assert_eq!(list.bounds(), Some((&b"a"[..], &b"z"[..])));
    }

    #[cfg_attr(miri, ignore = "long loops without unsafe code")]
    #[test]
    fn newest_cover_agrees_with_a_scan() {
        let seed = std::env::var("SIEVE_SEED").map_or(42, |seed| seed.parse().unwrap());
        eprintln!("SIEVE_SEED={seed}");
        let mut random: u64 = seed;
        let mut below = |bound: u64| {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            (random >> 33) % bound // The low bits of this generator repeat.
        };
        for round in 0..200 {
            // Some lists have several blocks.
            let (count_max, starts) = if round % 8 == 0 { (400, 200) } else { (20, 30) };
            let tombstones: Vec<_> = (0..below(count_max))
                .map(|_| {
                    let start = below(starts) as u8;
                    let end = start + 1 + below(12) as u8;
                    let end: &[u8] = if below(count_max) > 2 { &[end] } else { &[] };
                    RangeTombstone::new(&[start], end, 1 + below(9))
                })
                .collect();
            let list = RangeTombstones::new(tombstones.clone()).unwrap();
            for key in 0..starts as u8 + 15 {
                let widest = list.widest().filter(|one| one.covers_head(head(&[key])));
                assert!(widest.is_none_or(|one| {
                    tombstones.iter().any(|it| it.sequence == one.sequence() && it.covers(&[key]))
                }));
                for at in 0..11 {
                    let seen = tombstones.iter().filter(|one| one.sequence <= at);
                    let want = seen.filter(|one| one.covers(&[key])).map(|one| one.sequence).max();
                    assert_eq!(list.newest_cover(&[key], at), want, "{round}: {key} at {at}");
                    let Some(cover) = list.cover(&[key], at) else {
                        assert_eq!(want, None, "{round}: {key} at {at}");
                        continue;
                    };
                    let Cover { start, end, sequence } = cover;
                    assert!(RangeTombstone::new(start, end, sequence).covers(&[key]));
                    let is_within =
                        |&other: &u8| *start <= [other][..] && ends_above(end, &[other]);
                    for other in (0..50).filter(is_within) {
                        let newest = list.newest_cover(&[other], at);
                        assert!(newest >= Some(sequence), "{round}: {other} by {cover:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn the_widest_range_covers_most_heads() {
        let list = list(&[("a", "c", 5), ("b", "z", 3), ("x", "y", 7)]);
        let widest = list.widest().unwrap();
        assert_eq!(widest.sequence(), 3);
        for (key, want) in [("b", false), ("ba", true), ("y", true), ("z", false)] {
            assert_eq!(widest.covers_head(head(key.as_bytes())), want, "{key}");
        }
        assert_eq!(RangeTombstones::default().widest(), None);
    }

    #[test]
    fn lists_round_trip() {
        for tombstones in [
            &[][..],
            &[("", "a", 1)],
            &[("", "", 1), ("b", "", 2)],
            &[("a", "b", 1), ("a", "c", 2), ("a", "d", 2), ("a", "b", 1), ("b", "c", SEQUENCE_MAX)],
        ] {
            let list = list(tombstones);
            let mut bytes = Vec::new();
            list.encode(&mut bytes);
            assert_eq!(RangeTombstones::decode(&bytes), Ok(list));
            for cut in 0..bytes.len() {
                assert!(RangeTombstones::decode(&bytes[..cut]).is_err(), "cut at {cut}");
            }
        }
    }

    #[test]
    fn decode_rejects_malformed_lists() {
        use Corruption::{Order, OutOfRange, Trailing};
        let order = Order { what: "list of range tombstones" };
        let sequence = "sequence number of a range tombstone";
        let cases: [(&str, &[u8], Corruption); 7] = [
            (
                "count without bytes",
                b"\xff\x01",
                OutOfRange { what: "count of range tombstones", value: 255 },
            ),
            (
                "empty range",
                b"\x01\x01a\x01a\x05",
                Order { what: "start and end of a range tombstone" },
            ),
            ("sequence 0", b"\x01\0\x01a\0", OutOfRange { what: sequence, value: 0 }),
            (
                "sequence of 57 bits",
                b"\x01\0\x01a\x80\x80\x80\x80\x80\x80\x80\x80\x01",
                OutOfRange { what: sequence, value: 1 << 56 },
            ),
            ("unsorted", b"\x02\x01b\x01c\x05\x01a\x01c\x05", order.clone()),
            ("repeated", b"\x02\x01a\x01c\x05\x01a\x01c\x05", order),
            (
                "trailing bytes",
                b"\x01\0\x01a\x05!",
                Trailing { what: "list of range tombstones", bytes: 1 },
            ),
        ];
        for (name, bytes, want) in cases {
            assert_eq!(RangeTombstones::decode(bytes), Err(want), "{name}");
        }
    }
}
