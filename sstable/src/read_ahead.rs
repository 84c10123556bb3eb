//! How far a scan reads ahead of where it is.
//!
//! Two reads of neighbouring blocks, in either direction, are taken for a scan: the next read fetches two
//! blocks at once, and each further one twice as much, up to a bound. A read elsewhere begins anew. So a
//! short scan reads nothing in vain, and a long one at most as much again as it uses.

use std::{mem, ops::Range};

use bytes::Bytes;

use crate::{block_reader::BlockReader, error::ReadError};

/// Most bytes that a scan reads at once, unless it is told otherwise.
pub const READ_AHEAD_BYTES_MAX: usize = 256 << 10;

/// Read-ahead beyond this gains nothing.
const BYTES_MAX: usize = 64 << 20;

/// Reads of neighbours before anything is read ahead.
const NEIGHBOURS_MIN: u32 = 2;

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

    /// Tells whether the scan goes on, over an index partition, with the block that follows in its direction,
    /// or begins somewhere else.
    pub(crate) fn set_goes_on(&mut self, goes_on: bool) {
        self.goes_on = goes_on;
    }

    /// Bytes to read together with the block at `block`, it included, which is not in the buffer.
    fn next_window(&mut self, block: &Range<u64>) -> u64 {
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

    /// The stored bytes of the block at `block`, from the buffer or from `reader`. `around` tells of a
    /// number of bytes which blocks, this one among them, are to be read with it. `counted` counts what
    /// is read ahead for as long as anybody has it.
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
            let window = self.next_window(&block);
            let place = if window > 0 { around(window) } else { block.clone() };
            // A damaged index may lead anywhere: then the block alone is tried, and refused.
            let is_fit = is_within(&place) && place.end - place.start <= window;
            self.bytes = Bytes::new();
            self.place = 0..0;
            if is_fit && place != block {
                self.fetch(reader, place, counted);
            }
        }
        self.last = block.clone();
        if self.bytes.is_empty() {
            return reader.read_bytes(block);
        }
        let start = (block.start - self.place.start) as usize;
        Ok(self.bytes.slice(start..start + (block.end - block.start) as usize))
    }

    /// Reads or, of a map, announces what lies at `place`. If that fails the block that is needed may be
    /// well all the same: it is read alone then.
    fn fetch(
        &mut self,
        reader: &BlockReader,
        place: Range<u64>,
        counted: impl FnOnce(Bytes) -> Bytes,
    ) {
        if reader.source().is_mapped() {
            reader.will_read(std::slice::from_ref(&place));
        } else {
            match reader.read_bytes(place.clone()) {
                Ok(bytes) => self.bytes = counted(bytes),
                Err(_) => return,
            }
        }
        self.place = place;
    }

    /// Whether `content` is a part of what was read ahead, and would keep all of it in memory.
    pub(crate) fn holds(&self, content: &Bytes) -> bool {
        self.bytes.as_ptr_range().contains(&content.as_ptr())
    }
}

#[cfg(test)]
mod tests {
    use std::{io, sync::Arc, sync::Mutex};

    use super::*;
    use crate::source::TableSource;

    /// Bytes that tell their place, and the reads that were made.
    #[derive(Debug, Default)]
    struct Reads(Mutex<Vec<Range<u64>>>);

    impl TableSource for Reads {
        fn len(&self) -> u64 {
            1 << 20
        }

        fn read_at(&self, offset: u64, bytes: usize) -> io::Result<Bytes> {
            self.0.lock().unwrap().push(offset..offset + bytes as u64);
            Ok((offset..offset + bytes as u64).map(|at| at as u8).collect())
        }
    }

    const BLOCK: u64 = 100;

    /// Reads blocks of 100 bytes by their number, and returns the blocks of each read.
    fn reads(mut ahead: ReadAhead, blocks: impl IntoIterator<Item = u64>) -> Vec<Range<u64>> {
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
        let reads = source.0.lock().unwrap();
        reads.iter().map(|place| place.start / BLOCK..place.end / BLOCK).collect()
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
