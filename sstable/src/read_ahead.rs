//! Read-ahead of scans.
//!
//! Two reads of adjacent blocks, in either direction, indicate a scan. The next read fetches two
//! blocks at once, and each further read doubles in length, up to a maximum. A read of a block that
//! is not adjacent starts over. So a short scan reads no unused blocks, and a long one at most
//! twice the blocks that it uses. After a read of maximum length the source is advised of the next
//! one.
//!
//! The first read of a walk is as long as recent walks: see [`walk_lengths`](crate::walk_lengths).

use std::{mem, ops::Range, slice};

use bytes::Bytes;

use crate::{
    block_reader::BlockReader,
    error::ReadError,
    walk_lengths::{FIRST_READ_BYTES_MAX, WalkLengths},
};

/// Usual maximum length of one read of a scan, in bytes.
pub const READ_AHEAD_BYTES_MAX: usize = 256 << 10;

/// Upper limit of the maximum length, in bytes. Longer reads showed no gain.
const BYTES_MAX: usize = 64 << 20;

/// Reads of adjacent blocks before read-ahead starts.
const ADJACENT_READS_MIN: u32 = 2;

/// The first read of a walk may exceed the expected length by 1 / `SLACK_SHARE`, because block
/// lengths differ.
const SLACK_SHARE: u64 = 8;

/// Read-ahead buffer of a cursor, and the length of its next read.
#[derive(Debug)]
pub(crate) struct ReadAhead {
    bytes_max: u64,
    /// Length of the last read, in bytes; 0 for one block.
    window: u64,
    /// Consecutive reads of adjacent blocks, up to [`ADJACENT_READS_MIN`].
    adjacent_reads: u32,
    /// `true` if only an index partition lies between the last block and the next.
    is_contiguous: bool,
    /// Bytes of the blocks requested by the current walk.
    walk_bytes: u64,
    /// Expected length of the current walk, in bytes; 0 if unknown.
    walk_bytes_expected: u64,
    /// End of the range that the source may be advised of.
    advised_end: u64,
    /// Range of the last block requested.
    last: Range<u64>,
    /// Range that was read ahead or, in a memory map, advised.
    range: Range<u64>,
    /// Bytes of `range`; empty in a memory map.
    bytes: Bytes,
}

impl ReadAhead {
    /// Returns an empty buffer. One read has at most `bytes_max` bytes, or one block. `reads_all`
    /// starts with reads of maximum length. Advice ends at the file offset `advised_end`.
    pub(crate) fn new(bytes_max: usize, reads_all: bool, advised_end: u64) -> Self {
        let bytes_max = bytes_max.min(BYTES_MAX) as u64;
        Self {
            bytes_max,
            is_contiguous: false,
            walk_bytes: 0,
            walk_bytes_expected: 0,
            advised_end,
            window: if reads_all { bytes_max } else { 0 },
            adjacent_reads: if reads_all { ADJACENT_READS_MIN } else { 0 },
            last: 0..0,
            range: 0..0,
            bytes: Bytes::new(),
        }
    }

    /// Ends the current walk and begins the next one, whose length `lengths` predicts.
    pub(crate) fn begin_walk(&mut self, lengths: &WalkLengths) {
        self.end_walk(lengths);
        self.walk_bytes_expected = lengths.expected().min(self.bytes_max);
    }

    /// Records the length of the walk, if it read from the source.
    pub(crate) fn end_walk(&mut self, lengths: &WalkLengths) {
        let bytes = mem::take(&mut self.walk_bytes);
        if bytes > 0 && self.bytes_max > 0 {
            lengths.note(bytes);
        }
    }

    /// Sets whether the next block is adjacent to the last one except for an index partition.
    pub(crate) fn set_contiguous(&mut self, is_contiguous: bool) {
        self.is_contiguous = is_contiguous;
    }

    /// Returns the length of the read that fetches `block`, in bytes; 0 for the block alone.
    fn next_window(&mut self, block: &Range<u64>) -> u64 {
        let expected = self.walk_bytes_expected;
        if self.walk_bytes == 0 && expected > block.end - block.start {
            self.is_contiguous = false;
            // A long walk is expected to continue, a short one to end with this read.
            let is_long = expected >= u64::from(FIRST_READ_BYTES_MAX);
            (self.adjacent_reads, self.window) =
                if is_long { (ADJACENT_READS_MIN, expected) } else { (0, 0) };
            return first_read_bytes(expected, self.bytes_max);
        }
        let touches = block.start == self.last.end || block.end == self.last.start;
        let is_adjacent = mem::take(&mut self.is_contiguous) || touches;
        let is_first = self.last.is_empty();
        if !is_first && !is_adjacent {
            (self.adjacent_reads, self.window) = (0, 0);
        } else if !is_first && self.adjacent_reads < ADJACENT_READS_MIN {
            self.adjacent_reads += 1;
        }
        debug_assert!(self.window <= self.bytes_max && self.adjacent_reads <= ADJACENT_READS_MIN);
        if self.adjacent_reads < ADJACENT_READS_MIN {
            return 0;
        }
        let least = self.window.max(block.end - block.start);
        self.window = least.saturating_mul(2).min(self.bytes_max);
        self.window
    }

    /// Returns the stored bytes of `block`, from the buffer or from `reader`. `around` maps a
    /// length to the range to read, which includes the block. `counted` charges the buffer as
    /// pinned.
    ///
    /// # Errors
    ///
    /// Those of [`BlockReader::read_bytes`].
    pub(crate) fn read(
        &mut self,
        reader: &BlockReader,
        block: Range<u64>,
        around: impl FnOnce(u64) -> Range<u64>,
        counted: impl FnOnce(Bytes) -> Bytes,
    ) -> Result<Bytes, ReadError> {
        let is_within = |range: &Range<u64>| range.start <= block.start && block.end <= range.end;
        if !is_within(&self.range) {
            let was_full = self.window == self.bytes_max;
            let window = self.next_window(&block);
            let range = if window > 0 { around(window) } else { block.clone() };
            // A damaged index may have any handle. Then only the block is read, and refused.
            let is_valid = is_within(&range) && range.end - range.start <= window;
            self.bytes = Bytes::new();
            self.range = 0..0;
            if is_valid && range != block {
                self.fetch(reader, range, counted);
                if was_full && self.window == self.bytes_max && !self.bytes.is_empty() {
                    self.advise(reader, &block);
                }
            }
        }
        self.walk_bytes += block.end - block.start;
        self.last = block.clone();
        if self.bytes.is_empty() {
            return reader.read_bytes(block);
        }
        debug_assert!(is_within(&self.range));
        debug_assert_eq!(self.bytes.len() as u64, self.range.end - self.range.start);
        let start = (block.start - self.range.start) as usize;
        Ok(self.bytes.slice(start..start + (block.end - block.start) as usize))
    }

    /// Reads `range` or, in a memory map, advises the source of it. Ignores errors: the block alone
    /// may still be readable.
    fn fetch(
        &mut self,
        reader: &BlockReader,
        range: Range<u64>,
        counted: impl FnOnce(Bytes) -> Bytes,
    ) {
        if reader.source().is_mapped() {
            reader.source().advise_read(slice::from_ref(&range));
        } else {
            match reader.read_bytes(range.clone()) {
                Ok(bytes) => self.bytes = counted(bytes),
                Err(_) => return,
            }
        }
        self.range = range;
    }

    /// Advises the source of the range after the last read, in scan order. `block` is at the end of
    /// the last read at which the scan entered it.
    fn advise(&self, reader: &BlockReader, block: &Range<u64>) {
        let Range { start, end } = self.range;
        let next = if block.start == start {
            end..end.saturating_add(self.window).min(self.advised_end)
        } else {
            start.saturating_sub(self.window)..start
        };
        if !next.is_empty() {
            reader.source().advise_read(slice::from_ref(&next));
        }
    }

    /// Returns `true` if `stored` is a slice of the buffer, and so keeps all of it in memory.
    pub(crate) fn holds(&self, stored: &Bytes) -> bool {
        self.bytes.as_ptr_range().contains(&stored.as_ptr())
    }
}

/// Returns the maximum length of the first read of a walk with the expected length `expected`.
pub(crate) fn first_read_bytes(expected: u64, bytes_max: u64) -> u64 {
    let expected = expected.min(bytes_max);
    (expected + expected / SLACK_SHARE).min(bytes_max)
}

#[cfg(test)]
mod tests {
    use std::{io, sync::Arc, sync::Mutex};

    use super::*;
    use crate::source::TableSource;

    /// A source whose bytes encode their offsets. Records reads and advice.
    #[derive(Debug, Default)]
    struct Reads(Mutex<Vec<Range<u64>>>, Mutex<Vec<Range<u64>>>);

    impl TableSource for Reads {
        fn len(&self) -> u64 {
            1 << 20
        }

        fn read_at(&self, offset: u64, bytes: usize) -> io::Result<Bytes> {
            self.0.lock().unwrap().push(offset..offset + bytes as u64);
            Ok((offset..offset + bytes as u64).map(|at| at as u8).collect())
        }

        fn advise_read(&self, places: &[Range<u64>]) {
            self.1.lock().unwrap().extend_from_slice(places);
        }
    }

    /// Lengths after two walks, in blocks.
    fn lengths(walks: [u64; 2]) -> WalkLengths {
        let lengths = WalkLengths::default();
        walks.iter().for_each(|blocks| lengths.note(blocks * BLOCK));
        lengths
    }

    fn beginning(bytes_max: usize, walks: [u64; 2]) -> ReadAhead {
        let mut ahead = ReadAhead::new(bytes_max, false, 0);
        ahead.begin_walk(&lengths(walks));
        ahead
    }

    const BLOCK: u64 = 100;

    /// Reads blocks of 100 bytes by number. Returns the blocks of each read.
    fn reads(ahead: ReadAhead, blocks: impl IntoIterator<Item = u64>) -> Vec<Range<u64>> {
        reads_and_advice(ahead, blocks).0
    }

    /// Does the same as [`reads`], and returns the blocks of each advice.
    fn reads_and_advice(
        mut ahead: ReadAhead,
        blocks: impl IntoIterator<Item = u64>,
    ) -> (Vec<Range<u64>>, Vec<Range<u64>>) {
        let source = Arc::new(Reads::default());
        let place = 0..source.len();
        let reader = BlockReader::new(Arc::clone(&source) as Arc<dyn TableSource>, 7, place);
        let mut before = 0;
        for number in blocks {
            let block = number * BLOCK..(number + 1) * BLOCK;
            let more = |window: u64| window / BLOCK - 1;
            let around = |window| match number < before {
                false => block.start..block.end + more(window) * BLOCK,
                true => block.start.saturating_sub(more(window) * BLOCK)..block.end,
            };
            let bytes = ahead.read(&reader, block.clone(), around, |bytes| bytes).unwrap();
            assert_eq!(bytes, block.map(|at| at as u8).collect::<Vec<_>>());
            before = number;
        }
        let of = |places: &Mutex<Vec<Range<u64>>>| {
            let places = places.lock().unwrap();
            places.iter().map(|place| place.start / BLOCK..place.end / BLOCK).collect()
        };
        (of(&source.0), of(&source.1))
    }

    #[test]
    fn the_first_read_is_as_long_as_recent_walks() {
        let cases = [
            ("one block", [1, 9], vec![50..51, 51..52, 52..54, 54..58]),
            ("three", [3, 4], vec![50..53, 53..54, 54..56, 56..60]),
            ("more than may be read at once", [9, 9], vec![50..58, 58..59]),
            ("not known", [0, 9], vec![50..51, 51..52, 52..54, 54..58]),
        ];
        for (name, walks, want) in cases {
            let end = want.last().map_or(0, |last: &Range<u64>| last.end);
            assert_eq!(reads(beginning(800, walks), 50..end), want, "{name}");
        }
        assert_eq!(reads(beginning(0, [3, 3]), 50..53), [50..51, 51..52, 52..53]);
        let long = u64::from(FIRST_READ_BYTES_MAX).div_ceil(BLOCK);
        let reads = reads(beginning(80_000, [long, long]), 0..1000);
        assert_eq!(reads, [0..368, 368..1023], "reads of a long walk keep growing");
    }

    #[test]
    fn the_length_of_a_walk_counts_requested_blocks() {
        let source = Arc::new(Reads::default());
        let reader = BlockReader::new(Arc::clone(&source) as Arc<dyn TableSource>, 7, 0..1 << 20);
        let lengths = WalkLengths::default();
        for bytes_max in [0, 800] {
            let mut ahead = ReadAhead::new(bytes_max, false, 0);
            for start in [0, 5000, 9000] {
                ahead.begin_walk(&lengths);
                for block in 0..4 {
                    let block = start + block * BLOCK..start + (block + 1) * BLOCK;
                    let around = |_| block.clone();
                    ahead.read(&reader, block.clone(), around, |bytes| bytes).unwrap();
                }
            }
            ahead.end_walk(&lengths);
            ahead.end_walk(&lengths);
            assert_eq!(lengths.expected(), if bytes_max > 0 { 4 * BLOCK } else { 0 });
        }
    }

    #[test]
    fn reads_of_maximum_length_advise_of_the_next() {
        let ahead = |reads_all| ReadAhead::new(800, reads_all, 40 * BLOCK);
        let advised = |ahead, blocks: Vec<u64>| reads_and_advice(ahead, blocks).1;
        // Full reads: 13..21, 21..29, 29..37, the first of which may be the last.
        assert_eq!(advised(ahead(false), (5..36).collect()), [29..37, 37..40]);
        // Down: 84..92, 76..84, 68..76, 60..68.
        assert_eq!(advised(ahead(false), (60..100).rev().collect()), [68..76, 60..68, 52..60]);
        assert_eq!(advised(ahead(true), (5..20).collect()), [13..21, 21..29]);
        assert_eq!(advised(ahead(false), (5..12).collect()), []);
        assert_eq!(advised(ReadAhead::new(0, false, 0), (5..36).collect()), []);
        let mut expecting = ahead(false);
        expecting.begin_walk(&lengths([3, 3]));
        assert_eq!(advised(expecting, vec![5, 6, 7, 8]), []);
    }

    #[test]
    fn reads_grow_with_sequential_use() {
        let doubling = [5..6, 6..7, 7..9, 9..13, 13..21, 21..29, 29..37];
        assert_eq!(reads(ReadAhead::new(800, false, 0), 5..36), doubling);
        let down = [99..100, 98..99, 96..98, 92..96, 84..92, 76..84];
        assert_eq!(reads(ReadAhead::new(800, false, 0), (80..100).rev()), down);
        assert_eq!(reads(ReadAhead::new(0, false, 0), 5..9), [5..6, 6..7, 7..8, 8..9]);
        assert_eq!(reads(ReadAhead::new(800, true, 0), 5..20), [5..13, 13..21]);
    }

    #[test]
    fn a_non_adjacent_read_starts_over() {
        let scattered = [5..6, 6..7, 7..9, 50..51, 51..52, 52..54, 1..2];
        assert_eq!(reads(ReadAhead::new(800, false, 0), [5, 6, 7, 8, 50, 51, 52, 1]), scattered);
    }

    #[test]
    fn a_range_without_the_block_is_not_read() {
        let source = Arc::new(Reads::default());
        let reader = BlockReader::new(Arc::clone(&source) as Arc<dyn TableSource>, 7, 0..1 << 20);
        for damaged in [0..1, 150..250, 100..1 << 40] {
            let mut ahead = ReadAhead::new(800, true, 0);
            let read = ahead.read(&reader, 100..200, |_| damaged, |bytes| bytes);
            assert_eq!(read.unwrap().len(), 100);
        }
        assert_eq!(*source.0.lock().unwrap(), [100..200, 100..200, 100..200]);
    }
}
