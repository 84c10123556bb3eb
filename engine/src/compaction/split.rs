//! The ranges of keys that a compaction merges at the same time.
//!
//! All versions of a user key are in one range, because the borders are user keys. RocksDB calls
//! such ranges subcompactions.

use sievedb_format::TableBounds;

/// Minimum input of a range, in bytes. A range ends with a table of its own, and a larger
/// [`table_bytes`](crate::KeyspaceOptions::table_bytes) is the minimum instead: the outputs of two
/// ranges are at most twice as many as those of one.
const RANGE_BYTES_MIN: u64 = 16 << 20;
/// Pieces of a range, at least: the ranges differ by at most this part, and by an entry of an
/// index.
const PIECES_IN_RANGE: u64 = 16;

/// Limits of a split.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SplitLimits {
    /// Bytes of all inputs.
    pub(crate) input_bytes: u64,
    pub(crate) table_bytes: u64,
    /// Buffers for reading all runs, without read-ahead, in bytes.
    pub(crate) buffer_bytes: u64,
    /// Maximum of these buffers for each range.
    pub(crate) buffer_bytes_max: u64,
}

impl SplitLimits {
    /// Returns the maximum number of ranges on a machine with this number of processors: at most
    /// half of them, for ranges that are not short. 1 if the buffers have no room: long entries
    /// exceed the share of a worker for writing, which one job at a time may do.
    pub(crate) fn ranges_max(&self, processors: impl FnOnce() -> usize) -> usize {
        if self.buffer_bytes > self.buffer_bytes_max {
            return 1;
        }
        let by_bytes = self.input_bytes / RANGE_BYTES_MIN.max(self.table_bytes);
        if by_bytes < 2 {
            return 1;
        }
        usize::try_from(by_bytes).unwrap_or(usize::MAX).min(processors() / 2).max(1)
    }

    /// Returns the size of the pieces from which [`split`] makes this number of ranges.
    pub(crate) fn piece_bytes(&self, ranges: usize) -> u64 {
        self.input_bytes / (ranges as u64).saturating_mul(PIECES_IN_RANGE)
    }
}

/// A part of an input: the keys after the previous part of its table, up to `last`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Piece {
    /// A user key at or after all keys of the piece.
    pub(crate) last: Vec<u8>,
    pub(crate) bytes: u64,
}

/// Returns at most `ranges` ranges with about equal shares of the pieces, in any order. The ranges
/// ascend without gaps, from the least key to an open end.
pub(crate) fn split(mut pieces: Vec<Piece>, ranges: usize) -> Vec<TableBounds> {
    pieces.sort_unstable_by(|one, other| one.last.cmp(&other.last));
    let total: u64 = pieces.iter().map(|piece| piece.bytes).sum();
    let mut borders: Vec<Vec<u8>> = vec![Vec::new()];
    // The end of the last piece ends the last range.
    pieces.pop();
    let mut bytes = 0;
    for Piece { last, bytes: of_piece } in pieces {
        bytes += of_piece;
        let share = u128::from(bytes) * ranges as u128;
        let is_due = share >= u128::from(total) * borders.len() as u128;
        if borders.len() < ranges && is_due && borders.last().is_none_or(|border| *border < last) {
            borders.push(last);
        }
    }
    let ends = borders[1..].iter().map(Vec::as_slice).chain([&[][..]]);
    borders.iter().zip(ends).map(|(start, end)| TableBounds::of_range(start, end)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn limits(input_mib: u64) -> SplitLimits {
        SplitLimits {
            input_bytes: input_mib * MIB,
            table_bytes: 4 * MIB,
            buffer_bytes: 100,
            buffer_bytes_max: 100,
        }
    }

    #[test]
    fn ranges_are_long_and_use_half_of_the_processors() {
        let large_tables = SplitLimits { table_bytes: 64 * MIB, ..limits(1000) };
        let long_entries = SplitLimits { buffer_bytes: 101, ..limits(1000) };
        let cases = [
            ("nothing", limits(0), 64, 1),
            ("short", limits(31), 64, 1),
            ("two minima", limits(32), 64, 2),
            ("one processor", limits(1000), 1, 1),
            ("two processors", limits(1000), 2, 1),
            ("three processors", limits(1000), 3, 1),
            ("eight processors", limits(1000), 8, 4),
            ("large tables", large_tables, 64, 15),
            ("long entries", long_entries, 64, 1),
        ];
        for (name, limits, processors, want) in cases {
            assert_eq!(limits.ranges_max(|| processors), want, "{name}");
        }
        assert_eq!(limits(1 << 10).piece_bytes(4), 16 * MIB);
        assert_eq!(limits(0).piece_bytes(1), 0);
    }

    fn pieces(of: &[(&str, u64)]) -> Vec<Piece> {
        of.iter().map(|&(last, bytes)| Piece { last: last.into(), bytes }).collect()
    }

    #[test]
    fn borders_are_where_the_bytes_are() {
        let letters = || ('a'..='z').map(|last| Piece { last: vec![last as u8], bytes: 10 });
        let mut two_tables: Vec<_> = letters().chain(letters()).collect();
        two_tables.reverse();
        let cases: [(&str, Vec<Piece>, usize, &[&str]); 9] = [
            ("no input", Vec::new(), 4, &[]),
            ("one piece", pieces(&[("k", 100)]), 4, &[]),
            ("one range", letters().collect(), 1, &[]),
            ("two halves", letters().collect(), 2, &["m"]),
            ("four", letters().collect(), 4, &["g", "m", "t"]),
            ("two tables", two_tables, 4, &["g", "m", "t"]),
            ("most bytes at the start", pieces(&[("a", 90), ("b", 5), ("c", 5)]), 2, &["a"]),
            ("most bytes at the end", pieces(&[("a", 5), ("b", 5), ("c", 90)]), 3, &[]),
            ("a key with most bytes", pieces(&[("a", 9), ("b", 90), ("b", 90)]), 3, &["b"]),
        ];
        for (name, pieces, count, want) in cases {
            let ranges = split(pieces, count);
            let borders: Vec<_> =
                ranges[1..].iter().map(|range| str::from_utf8(&range.smallest).unwrap()).collect();
            assert_eq!(borders, want, "{name}");
            assert!(ranges[0].smallest.is_empty() && ranges[ranges.len() - 1].is_unbounded());
            for pair in ranges.windows(2) {
                assert_eq!(pair[0].largest, pair[1].smallest, "{name}");
            }
            assert!(ranges.iter().all(|range| !range.is_empty()), "{name}");
        }
    }
}
