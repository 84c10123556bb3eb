//! What background work reads tables through, within a worker's part of the budget.

use sievedb_sstable::{CursorOptions, DEFAULT_INDEX_PARTITION_BYTES, READ_AHEAD_BYTES_MAX};

use super::store::TableStore;
use crate::memory::{Charge, MemoryUse};

/// Buffers for reading tables from front to back, charged to
/// [`MemoryUse::Writing`] as long as this is held.
#[derive(Debug)]
pub(crate) struct ReadBuffers {
    read_ahead_bytes: usize,
    charge: Charge,
}

impl TableStore {
    /// Charges what one worker takes to read so many sorted runs at once, of blocks of `block_bytes`.
    ///
    /// All of them read ahead `read_ahead_bytes_max` bytes together, at most: with many runs, or a small
    /// budget, less is read at once. On top come the blocks in which the runs stand.
    pub(crate) fn read_buffers(
        &self,
        runs: usize,
        block_bytes: usize,
        read_ahead_bytes_max: u64,
    ) -> ReadBuffers {
        let read_ahead_bytes = read_ahead_bytes(read_ahead_bytes_max, runs);
        // A block as it is stored and unpacked, and the index partition above it.
        let of_run = read_ahead_bytes + 2 * block_bytes + DEFAULT_INDEX_PARTITION_BYTES;
        let charge = self.memory.charge(MemoryUse::Writing, runs * of_run);
        ReadBuffers { read_ahead_bytes, charge }
    }
}

impl ReadBuffers {
    /// How each of the runs is read.
    pub(crate) fn cursor_options(&self) -> CursorOptions {
        let read_ahead_bytes_max = self.read_ahead_bytes;
        CursorOptions { read_ahead_bytes_max, ..CursorOptions::whole_table() }
    }

    /// Bytes charged.
    pub(crate) fn bytes(&self) -> u64 {
        self.charge.bytes()
    }
}

/// Read-ahead of each of so many runs, which have `bytes_max` together. Pure.
fn read_ahead_bytes(bytes_max: u64, runs: usize) -> usize {
    let of_run = bytes_max / runs.max(1) as u64;
    usize::try_from(of_run).map_or(READ_AHEAD_BYTES_MAX, |bytes| bytes.min(READ_AHEAD_BYTES_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn read_ahead_is_divided_over_the_runs() {
        let cases = [
            ("room for all", 2 << 20, 8, 256 << 10),
            ("many runs", 2 << 20, 32, 64 << 10),
            ("a small budget", 64 << 10, 4, 16 << 10),
            ("nothing left", 0, 1, 0),
            ("no limit", u64::MAX, 1, 256 << 10),
            ("nothing to read", 2 << 20, 0, 256 << 10),
        ];
        for (name, bytes_max, runs, want) in cases {
            assert_eq!(read_ahead_bytes(bytes_max, runs), want, "{name}");
        }
    }
}
