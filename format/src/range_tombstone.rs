//! Deletions of key ranges.
//!
//! A reader checks them, in all sources, for each version that it finds, through
//! [`RangeTombstoneSource`]. Filters contain only points, so a negative filter does not exclude a
//! range.
//!
//! # Encoded form
//!
//! The content of a table's block of range tombstones. Sorted by start ascending, then sequence
//! number descending, then end ascending; no two are equal.
//!
//! | field      | bytes    | meaning                                        |
//! |------------|----------|------------------------------------------------|
//! | `count`    | varint   | number of range tombstones                     |
//! | `start`    | prefixed | first deleted user key                         |
//! | `end`      | prefixed | first user key after the deleted range         |
//! | `sequence` | varint   | position of the write in the history, from 1   |
//!
//! The last three repeat `count` times.

use std::{cmp::Ordering, fmt::Debug};

use crate::{
    Annotation, Corruption, Decoder, Encode, KEY_BYTES_MAX, SEQUENCE_MAX, SequenceNumber,
    annotation::printable,
};

/// Minimum bytes of an encoded range tombstone: two lengths, one byte of `end`, a sequence number.
const ENCODED_BYTES_MIN: usize = 4;

/// A source of range tombstones: a memtable or a table.
pub trait RangeTombstoneSource: Debug + Send + Sync {
    /// Returns `true` if there are none, which is the common case.
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
    pub start: Box<[u8]>,
    /// First user key after the range; above `start`.
    pub end: Box<[u8]>,
    /// Position of the write in the history.
    pub sequence: SequenceNumber,
}

impl RangeTombstone {
    /// Creates a deletion of the keys from `start` up to `end`, exclusive.
    #[must_use]
    pub fn new(start: &[u8], end: &[u8], sequence: SequenceNumber) -> Self {
        Self { start: start.into(), end: end.into(), sequence }
    }

    fn covers(&self, user_key: &[u8]) -> bool {
        *self.start <= *user_key && *user_key < *self.end
    }

    fn check(&self) -> Result<(), Corruption> {
        for (what, key) in
            [("start of a range tombstone", &self.start), ("end of a range tombstone", &self.end)]
        {
            if key.len() > KEY_BYTES_MAX {
                return Err(Corruption::OutOfRange { what, value: key.len() as u64 });
            }
        }
        if self.start >= self.end {
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

/// A sorted list of range tombstones, which may overlap.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RangeTombstones {
    sorted: Vec<RangeTombstone>,
    /// At `i`, the index of the largest `end` among `sorted[..=i]`, which bounds searches.
    reach: Vec<usize>,
}

impl RangeTombstones {
    /// Sorts `tombstones` and removes duplicates.
    ///
    /// # Errors
    ///
    /// [`Corruption`] if one is empty, too long, or has an invalid sequence number.
    pub fn new(mut tombstones: Vec<RangeTombstone>) -> Result<Self, Corruption> {
        tombstones.iter().try_for_each(RangeTombstone::check)?;
        tombstones.sort_unstable();
        tombstones.dedup();
        let mut reach: Vec<usize> = Vec::with_capacity(tombstones.len());
        for (index, tombstone) in tombstones.iter().enumerate() {
            let before = reach.last().copied().unwrap_or(index);
            reach.push(if tombstones[before].end < tombstone.end { index } else { before });
        }
        Ok(Self { sorted: tombstones, reach })
    }

    /// Decodes the encoded form.
    ///
    /// # Errors
    ///
    /// [`Corruption`] if the bytes are truncated or a field violates the table above.
    pub fn decode(bytes: &[u8]) -> Result<Self, Corruption> {
        let mut decoder = Decoder::new(bytes);
        let count = decoder.varint_usize("count of range tombstones")?;
        if count > decoder.rest().len() / ENCODED_BYTES_MIN {
            let what = "count of range tombstones";
            return Err(Corruption::OutOfRange { what, value: count as u64 });
        }
        let mut tombstones: Vec<RangeTombstone> = Vec::with_capacity(count);
        for _ in 0..count {
            let tombstone = RangeTombstone {
                start: decoder.prefixed("start of a range tombstone")?.into(),
                end: decoder.prefixed("end of a range tombstone")?.into(),
                sequence: decoder.varint("sequence number of a range tombstone")?,
            };
            if tombstones.last().is_some_and(|last| *last >= tombstone) {
                return Err(Corruption::Order { what: "list of range tombstones" });
            }
            tombstones.push(tombstone);
        }
        decoder.finish("list of range tombstones")?;
        Self::new(tombstones)
    }

    /// Appends the encoded form to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_varint(self.sorted.len() as u64);
        for tombstone in &self.sorted {
            out.put_prefixed(&tombstone.start);
            out.put_prefixed(&tombstone.end);
            out.put_varint(tombstone.sequence);
        }
    }

    /// Iterates over the range tombstones in the order of the encoded form.
    pub fn iter(&self) -> std::slice::Iter<'_, RangeTombstone> {
        self.sorted.iter()
    }

    /// Returns the number of range tombstones.
    #[must_use]
    pub fn len(&self) -> usize {
        self.sorted.len()
    }

    /// Returns `true` if there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sorted.is_empty()
    }

    /// Returns the smallest `start` and the largest `end`; `None` if there are no range tombstones.
    #[must_use]
    pub fn bounds(&self) -> Option<(&[u8], &[u8])> {
        let (first, &reach) = self.sorted.first().zip(self.reach.last())?;
        Some((&first.start, &self.sorted[reach].end))
    }

    /// Returns the memory of the list, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let keys: usize = self.iter().map(|one| one.start.len() + one.end.len()).sum();
        self.sorted.capacity() * size_of::<RangeTombstone>()
            + self.reach.capacity() * size_of::<usize>()
            + keys
    }

    /// Adds the fields of the encoded form to `annotation`, relative to its first byte.
    pub fn describe(&self, annotation: &mut Annotation) {
        let mut bytes = Vec::new();
        bytes.put_varint(self.len() as u64);
        annotation.field(0..bytes.len() as u64, "count", self.len());
        for RangeTombstone { start, end, sequence } in &self.sorted {
            let from = bytes.len() as u64;
            bytes.put_prefixed(start);
            bytes.put_prefixed(end);
            bytes.put_varint(*sequence);
            let meaning = format!("{}..{} @{sequence}", printable(start), printable(end));
            annotation.field(from..bytes.len() as u64, "range_tombstone", meaning);
        }
    }
}

impl<'a> IntoIterator for &'a RangeTombstones {
    type Item = &'a RangeTombstone;
    type IntoIter = std::slice::Iter<'a, RangeTombstone>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl RangeTombstoneSource for RangeTombstones {
    fn is_empty(&self) -> bool {
        self.sorted.is_empty()
    }

    /// A binary search, then a step back per range tombstone that starts at or before the key, as
    /// long as an earlier one may reach the key.
    fn newest_cover(&self, user_key: &[u8], at: SequenceNumber) -> Option<SequenceNumber> {
        let starts_before = self.sorted.partition_point(|one| *one.start <= *user_key);
        let may_reach = |&index: &usize| *user_key < *self.sorted[self.reach[index]].end;
        (0..starts_before)
            .rev()
            .take_while(may_reach)
            .map(|index| &self.sorted[index])
            .filter(|one| one.sequence <= at && one.covers(user_key))
            .map(|one| one.sequence)
            .max()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            (random >> 33) % bound // The low bits of such a generator repeat.
        };
        for round in 0..200 {
            let tombstones: Vec<_> = (0..below(20))
                .map(|_| {
                    let start = below(30) as u8;
                    let end = start + 1 + below(12) as u8;
                    RangeTombstone::new(&[start], &[end], 1 + below(9))
                })
                .collect();
            let list = RangeTombstones::new(tombstones.clone()).unwrap();
            for key in 0..45 {
                for at in 0..11 {
                    let seen = tombstones.iter().filter(|one| one.sequence <= at);
                    let want = seen.filter(|one| one.covers(&[key])).map(|one| one.sequence).max();
                    assert_eq!(list.newest_cover(&[key], at), want, "{round}: {key} at {at}");
                }
            }
        }
    }

    #[test]
    fn lists_round_trip() {
        for tombstones in [
            &[][..],
            &[("", "a", 1)],
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
