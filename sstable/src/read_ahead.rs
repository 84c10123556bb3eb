//! How far a scan reads ahead of where it is.
//!
//! Two reads of neighbouring blocks, in either direction, are taken for a scan: the next read
//! fetches two blocks at once, and each further one twice as much, up to a bound. A read elsewhere
//! begins anew. So a short scan reads nothing in vain, and a long one at most as much again as it
//! uses. Behind reads of full length, what comes next is announced to the source, which fetches it
//! meanwhile.
//!
//! The first read of a walk is as long as the walks before make it: see
//! [`walk_lengths`](crate::walk_lengths).

use std::{mem, ops::Range};

use bytes::Bytes;

use crate::{
    block_reader::BlockReader,
    error::ReadError,
    walk_lengths::{FIRST_READ_BYTES_MAX, WalkLengths},
};

/// Most bytes that a scan reads at once, unless it is told otherwise.
pub const READ_AHEAD_BYTES_MAX: usize = 256 << 10;

/// Read-ahead beyond this gains nothing.
const BYTES_MAX: usize = 64 << 20;

/// Reads of neighbours before anything is read ahead.
const NEIGHBOURS_MIN: u32 = 2;

/// Blocks differ in length: the first read of a walk may be longer than expected by a part in so
/// many, so that as many blocks fit it.
const SLACK_SHARE: u64 = 8;

/// What was read ahead, and how far to read the next time.
#[derive(Debug)]
pub(crate) struct ReadAhead {
    bytes_max: u64,
    /// Bytes of the next read; 0 for one block.
    window: u64,
    /// Reads that began where the one before ended, or ended where it began.
    neighbours: u32,
    /// Whether the next block follows the last one, though an index partition lies between the two.
    goes_on: bool,
    /// Bytes of the blocks that the present walk asked for.
    walk_bytes: u64,
    /// Bytes that the present walk will ask for, probably; 0 if that is not known.
    walk_bytes_expected: u64,
    /// Nothing at or behind this place is announced.
    announced_end: u64,
    /// The block that was asked for last.
    last: Range<u64>,
    /// What was read ahead or, of a map, announced.
    place: Range<u64>,
    /// The bytes at `place`; none of a map.
    bytes: Bytes,
}

impl ReadAhead {
    /// Reads at most `bytes_max` bytes at once, if that is more than a block.
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self {
            bytes_max: bytes_max.min(BYTES_MAX) as u64,
            goes_on: false,
            walk_bytes: 0,
            walk_bytes_expected: 0,
            announced_end: 0,
            window: 0,
            neighbours: 0,
            last: 0..0,
            place: 0..0,
            bytes: Bytes::new(),
        }
    }

    /// Reads as much as it may from the first block on: for whoever reads a whole table.
    pub(crate) fn at_once(mut self) -> Self {
        self.neighbours = NEIGHBOURS_MIN;
        self.window = self.bytes_max;
        self
    }

    /// Announces what lies before `end`, the end of what scans read, behind reads of full length.
    pub(crate) fn announcing_up_to(mut self, end: u64) -> Self {
        self.announced_end = end;
        self
    }

    /// A search: a walk ends, and the next one begins, probably as long as `lengths` tells.
    pub(crate) fn begin_walk(&mut self, lengths: &WalkLengths) {
        self.end_walk(lengths);
        self.walk_bytes_expected = lengths.expected().min(self.bytes_max);
    }

    /// Tells `lengths` how much the walk took, if anything.
    pub(crate) fn end_walk(&mut self, lengths: &WalkLengths) {
        let bytes = mem::take(&mut self.walk_bytes);
        if bytes > 0 && self.bytes_max > 0 {
            lengths.note(bytes);
        }
    }

    /// Tells whether the scan goes on, over an index partition, with the block that follows in its
    /// direction, or begins somewhere else.
    pub(crate) fn set_goes_on(&mut self, goes_on: bool) {
        self.goes_on = goes_on;
    }

    /// Bytes to read together with the block at `block`, it included, which is not in the buffer.
    fn next_window(&mut self, block: &Range<u64>) -> u64 {
        let expected = self.walk_bytes_expected;
        if self.walk_bytes == 0 && expected > block.end - block.start {
            self.goes_on = false;
            // Long walks are expected to go on from here, others to end about where this read does.
            let is_long = expected >= u64::from(FIRST_READ_BYTES_MAX);
            (self.neighbours, self.window) =
                if is_long { (NEIGHBOURS_MIN, expected) } else { (0, 0) };
            return first_read_bytes(expected, self.bytes_max);
        }
        let touches = block.start == self.last.end || block.end == self.last.start;
        let is_neighbour = mem::take(&mut self.goes_on) || touches;
        if self.last.is_empty() {
            // The first one: as the window is.
        } else if !is_neighbour {
            (self.neighbours, self.window) = (0, 0);
        } else if self.neighbours < NEIGHBOURS_MIN {
            self.neighbours += 1;
        }
        if self.neighbours < NEIGHBOURS_MIN {
            return 0;
        }
        let least = self.window.max(block.end - block.start);
        self.window = least.saturating_mul(2).min(self.bytes_max);
        self.window
    }

    /// The stored bytes of the block at `block`, from the buffer or from `reader`. `around` tells
    /// of a number of bytes which blocks, this one among them, are to be read with it. `counted`
    /// counts what is read ahead for as long as anybody has it.
    ///
    /// # Errors
    ///
    /// What reading fails with.
    pub(crate) fn read(
        &mut self,
        reader: &BlockReader,
        block: Range<u64>,
        around: impl FnOnce(u64) -> Range<u64>,
        counted: impl FnOnce(Bytes) -> Bytes,
    ) -> Result<Bytes, ReadError> {
        let is_within = |place: &Range<u64>| place.start <= block.start && block.end <= place.end;
        if !is_within(&self.place) {
            let was_full = self.window == self.bytes_max;
            let window = self.next_window(&block);
            let place = if window > 0 { around(window) } else { block.clone() };
            // A damaged index may lead anywhere: then the block alone is tried, and refused.
            let is_fit = is_within(&place) && place.end - place.start <= window;
            self.bytes = Bytes::new();
            self.place = 0..0;
            if is_fit && place != block {
                self.fetch(reader, place, counted);
                if was_full && self.window == self.bytes_max && !self.bytes.is_empty() {
                    self.announce(reader, &block);
                }
            }
        }
        self.walk_bytes += block.end - block.start;
        self.last = block.clone();
        if self.bytes.is_empty() {
            return reader.read_bytes(block);
        }
        let start = (block.start - self.place.start) as usize;
        Ok(self.bytes.slice(start..start + (block.end - block.start) as usize))
    }

    /// Reads or, of a map, announces what lies at `place`. If that fails the block that is needed
    /// may be well all the same: it is read alone then.
    fn fetch(
        &mut self,
        reader: &BlockReader,
        place: Range<u64>,
        counted: impl FnOnce(Bytes) -> Bytes,
    ) {
        if reader.source().is_mapped() {
            reader.advise_read(std::slice::from_ref(&place));
        } else {
            match reader.read_bytes(place.clone()) {
                Ok(bytes) => self.bytes = counted(bytes),
                Err(_) => return,
            }
        }
        self.place = place;
    }

    /// Announces what lies beyond what was just read, on the way on which `block` came first.
    fn announce(&self, reader: &BlockReader, block: &Range<u64>) {
        let Range { start, end } = self.place;
        let next = if block.start == start {
            end..end.saturating_add(self.window).min(self.announced_end)
        } else {
            start.saturating_sub(self.window)..start
        };
        if !next.is_empty() {
            reader.advise_read(std::slice::from_ref(&next));
        }
    }

    /// Whether `stored` is a part of what was read ahead, and would keep all of it in memory.
    pub(crate) fn holds(&self, stored: &Bytes) -> bool {
        self.bytes.as_ptr_range().contains(&stored.as_ptr())
    }
}

/// Most bytes that a walk begins with, of which so many are expected; it may read `bytes_max` at
/// once.
pub(crate) fn first_read_bytes(expected: u64, bytes_max: u64) -> u64 {
    let expected = expected.min(bytes_max);
    (expected + expected / SLACK_SHARE).min(bytes_max)
}

#[cfg(test)]
mod tests {
    use std::{io, sync::Arc, sync::Mutex};

    use super::*;
    use crate::source::TableSource;

    /// Bytes that tell their place, the reads that were made, and those that were announced.
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

    /// What a walk expects where two walks before took so many blocks each.
    fn lengths(walks: [u64; 2]) -> WalkLengths {
        let lengths = WalkLengths::default();
        walks.iter().for_each(|blocks| lengths.note(blocks * BLOCK));
        lengths
    }

    fn beginning(bytes_max: usize, walks: [u64; 2]) -> ReadAhead {
        let mut ahead = ReadAhead::new(bytes_max);
        ahead.begin_walk(&lengths(walks));
        ahead
    }

    const BLOCK: u64 = 100;

    /// Reads blocks of 100 bytes by their number, and returns the blocks of each read.
    fn reads(ahead: ReadAhead, blocks: impl IntoIterator<Item = u64>) -> Vec<Range<u64>> {
        reads_and_announcements(ahead, blocks).0
    }

    /// The same, and the blocks of each announcement.
    fn reads_and_announcements(
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
    fn a_walk_begins_with_what_the_walks_before_had_in_common() {
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
        assert_eq!(reads, [0..368, 368..1023], "a long walk goes on growing");
    }

    #[test]
    fn a_walk_is_as_long_as_what_it_asked_for() {
        let source = Arc::new(Reads::default());
        let reader = BlockReader::new(Arc::clone(&source) as Arc<dyn TableSource>, 7, 0..1 << 20);
        let lengths = WalkLengths::default();
        for bytes_max in [0, 800] {
            let mut ahead = ReadAhead::new(bytes_max);
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
    fn what_follows_reads_of_full_length_is_announced() {
        let ahead = || ReadAhead::new(800).announcing_up_to(40 * BLOCK);
        let announced = |ahead, blocks: Vec<u64>| reads_and_announcements(ahead, blocks).1;
        // Full reads: 13..21, 21..29, 29..37, of which the first one is not known to be followed.
        assert_eq!(announced(ahead(), (5..36).collect()), [29..37, 37..40]);
        // Down: 84..92, 76..84, 68..76, 60..68.
        assert_eq!(announced(ahead(), (60..100).rev().collect()), [68..76, 60..68, 52..60]);
        assert_eq!(announced(ahead().at_once(), (5..20).collect()), [13..21, 21..29]);
        assert_eq!(announced(ahead(), (5..12).collect()), []);
        assert_eq!(announced(ReadAhead::new(0), (5..36).collect()), []);
        assert_eq!(announced(beginning(800, [3, 3]).announcing_up_to(4000), vec![5, 6, 7, 8]), []);
    }

    #[test]
    fn reads_grow_with_sequential_use() {
        let doubling = [5..6, 6..7, 7..9, 9..13, 13..21, 21..29, 29..37];
        assert_eq!(reads(ReadAhead::new(800), 5..36), doubling);
        let down = [99..100, 98..99, 96..98, 92..96, 84..92, 76..84];
        assert_eq!(reads(ReadAhead::new(800), (80..100).rev()), down);
        assert_eq!(reads(ReadAhead::new(0), 5..9), [5..6, 6..7, 7..8, 8..9]);
        assert_eq!(reads(ReadAhead::new(800).at_once(), 5..20), [5..13, 13..21]);
    }

    #[test]
    fn a_read_elsewhere_begins_anew() {
        let scattered = [5..6, 6..7, 7..9, 50..51, 51..52, 52..54, 1..2];
        assert_eq!(reads(ReadAhead::new(800), [5, 6, 7, 8, 50, 51, 52, 1]), scattered);
    }

    #[test]
    fn places_that_are_not_around_the_block_are_not_read() {
        let source = Arc::new(Reads::default());
        let reader = BlockReader::new(Arc::clone(&source) as Arc<dyn TableSource>, 7, 0..1 << 20);
        for damaged in [0..1, 150..250, 100..1 << 40] {
            let mut ahead = ReadAhead::new(800).at_once();
            let read = ahead.read(&reader, 100..200, |_| damaged, |bytes| bytes);
            assert_eq!(read.unwrap().len(), 100);
        }
        assert_eq!(*source.0.lock().unwrap(), [100..200, 100..200, 100..200]);
    }
}
