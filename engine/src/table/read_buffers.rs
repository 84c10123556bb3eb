//! Buffers of background reads, within a worker's share of the budget.

use std::sync::Arc;

use sievedb_sstable::{CursorOptions, READ_AHEAD_BYTES_MAX};

use super::{
    LiveTable,
    cache_room::{ShareTaken, WorkerShare},
};

/// Buffers of a sorted run while it is read, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct RunBuffers {
    /// Maximum content of a block.
    block_bytes: u64,
    /// Maximum index partition, in memory.
    partition_bytes: u64,
}

impl RunBuffers {
    /// Returns the buffers of a run with these tables.
    pub(crate) fn of_tables<'a>(tables: impl IntoIterator<Item = &'a LiveTable>) -> Self {
        tables.into_iter().fold(Self::default(), |buffers, live| {
            let table = live.table.properties();
            Self {
                block_bytes: buffers.block_bytes.max(table.content_bytes_max),
                partition_bytes: buffers.partition_bytes.max(table.partition_memory_bytes_max()),
            }
        })
    }

    /// Returns the length of the buffers without read-ahead, in bytes.
    pub(crate) fn bytes(self) -> u64 {
        self.block_bytes + self.partition_bytes
    }
}

/// Buffers for reading tables from front to back, charged to the worker's share until dropped.
#[derive(Debug)]
pub(crate) struct ReadBuffers {
    read_ahead_bytes: usize,
    taken: ShareTaken,
}

impl ReadBuffers {
    /// Charges the buffers for reading these sorted runs concurrently.
    ///
    /// The read-ahead of all runs together is at most `read_ahead_bytes_max` bytes: with many runs,
    /// or a small budget, each read is smaller. The current blocks of the runs are additional.
    pub(crate) fn take(
        share: &Arc<WorkerShare>,
        runs: &[RunBuffers],
        read_ahead_bytes_max: u64,
    ) -> Self {
        let read_ahead_bytes = read_ahead_bytes(read_ahead_bytes_max, runs.len());
        let of_run = |run: &RunBuffers| read_ahead_bytes as u64 + run.bytes();
        // One run at a time also has its next block, stored and uncompressed.
        let next = 2 * runs.iter().map(|run| run.block_bytes).max().unwrap_or(0);
        let taken = share.take(runs.iter().map(of_run).sum::<u64>() + next);
        Self { read_ahead_bytes, taken }
    }

    pub(crate) fn cursor_options(&self) -> CursorOptions {
        let read_ahead_bytes_max = self.read_ahead_bytes;
        CursorOptions { read_ahead_bytes_max, ..CursorOptions::whole_table() }
    }

    pub(crate) fn share(&self) -> &Arc<WorkerShare> {
        self.taken.share()
    }
}

/// Returns the read-ahead of each of `runs`, which have `bytes_max` together. Pure.
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
