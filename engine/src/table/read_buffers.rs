//! What background work reads tables through, within a worker's part of the budget.

use std::sync::Arc;

use sievedb_sstable::{CursorOptions, DEFAULT_INDEX_PARTITION_MEMORY_BYTES, READ_AHEAD_BYTES_MAX};

use super::cache_room::{ShareTaken, WorkerShare};

/// Buffers for reading tables from front to back, part of the worker's share as long as this is held.
#[derive(Debug)]
pub(crate) struct ReadBuffers {
    read_ahead_bytes: usize,
    taken: ShareTaken,
}

impl ReadBuffers {
    /// Takes what a worker needs to read sorted runs at once, whose longest blocks have contents of so many
    /// bytes: `blocks_bytes`.
    ///
    /// All of them read ahead `read_ahead_bytes_max` bytes together, at most: with many runs, or a small
    /// budget, less is read at once. On top come the blocks in which the runs stand.
    pub(crate) fn take(
        share: &Arc<WorkerShare>,
        blocks_bytes: &[u64],
        read_ahead_bytes_max: u64,
    ) -> Self {
        let runs = blocks_bytes.len();
        let read_ahead_bytes = read_ahead_bytes(read_ahead_bytes_max, runs);
        let of_run = (read_ahead_bytes + DEFAULT_INDEX_PARTITION_MEMORY_BYTES) as u64;
        // One run at a time has its next block, too, as it is stored and unpacked.
        let next = 2 * blocks_bytes.iter().max().copied().unwrap_or(0);
        let blocks: u64 = blocks_bytes.iter().sum();
        let taken = share.take(runs as u64 * of_run + blocks + next);
        Self { read_ahead_bytes, taken }
    }

    /// How each of the runs is read.
    pub(crate) fn cursor_options(&self) -> CursorOptions {
        let read_ahead_bytes_max = self.read_ahead_bytes;
        CursorOptions { read_ahead_bytes_max, ..CursorOptions::whole_table() }
    }

    /// Bytes taken.
    pub(crate) fn bytes(&self) -> u64 {
        self.taken.bytes()
    }

    /// What they are taken of.
    pub(crate) fn share(&self) -> &Arc<WorkerShare> {
        self.taken.share()
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
