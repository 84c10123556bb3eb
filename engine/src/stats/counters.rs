//! Counting without a shared cache line: each thread writes counters of its own.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use sievedb_sstable::BlockCounts;
use thread_local::ThreadLocal;

use super::{IoStats, LevelStats, LookupStats};
use crate::version::LEVELS;

/// A counter with one writer and any number of readers.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// Adds `n`. Only the owning thread calls this, so a load and a store lose nothing, and cost
    /// less than a locked addition.
    pub(crate) fn add(&self, n: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(n), Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// What lookups did on one level.
#[derive(Debug, Default)]
pub(crate) struct LevelCounters {
    pub(crate) filter_negatives: Counter,
    pub(crate) true_positives: Counter,
    pub(crate) false_positives: Counter,
    pub(crate) filter_unusable: Counter,
    pub(crate) prefix_probes: Counter,
    pub(crate) prefix_negatives: Counter,
    pub(crate) prefix_unusable: Counter,
    pub(crate) range_probes: Counter,
    pub(crate) range_negatives: Counter,
    pub(crate) range_unusable: Counter,
    pub(crate) data_block_requests: Counter,
    pub(crate) index_block_requests: Counter,
    pub(crate) blocks_read: Counter,
    pub(crate) bytes_read: Counter,
}

impl LevelCounters {
    pub(crate) fn add_blocks(&self, counts: BlockCounts) {
        self.data_block_requests.add(counts.data_block_requests);
        self.index_block_requests.add(counts.index_block_requests);
        self.blocks_read.add(counts.blocks_read);
        self.bytes_read.add(counts.bytes_read);
    }

    fn add_to(&self, sum: &mut LevelStats) {
        let negatives = self.filter_negatives.get();
        let (found, in_vain) = (self.true_positives.get(), self.false_positives.get());
        sum.candidates += negatives + found + in_vain;
        sum.filter_negatives += negatives;
        sum.true_positives += found;
        sum.false_positives += in_vain;
        sum.filter_unusable += self.filter_unusable.get();
        sum.prefix_probes += self.prefix_probes.get();
        sum.prefix_negatives += self.prefix_negatives.get();
        sum.prefix_unusable += self.prefix_unusable.get();
        sum.range_probes += self.range_probes.get();
        sum.range_negatives += self.range_negatives.get();
        sum.range_unusable += self.range_unusable.get();
        sum.data_block_requests += self.data_block_requests.get();
        sum.index_block_requests += self.index_block_requests.get();
        sum.blocks_read += self.blocks_read.get();
        sum.bytes_read += self.bytes_read.get();
    }
}

/// The counters of one thread. Larger than a cache line, and allocated for one thread alone.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct ThreadCounters {
    pub(crate) lookups: Counter,
    pub(crate) found_in_memtables: Counter,
    pub(crate) memtable_positives: Counter,
    pub(crate) memtable_negatives: Counter,
    pub(crate) levels: [LevelCounters; LEVELS],
    pub(crate) read_calls: Counter,
    pub(crate) read_bytes: Counter,
}

/// The counters of all threads that ever used a store.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    threads: ThreadLocal<ThreadCounters>,
}

impl Counters {
    /// The calling thread's counters.
    pub(crate) fn local(&self) -> &ThreadCounters {
        self.threads.get_or_default()
    }

    /// The sum over all threads of what lookups did.
    pub(crate) fn lookups(&self) -> LookupStats {
        let mut sum = LookupStats::default();
        for thread in &self.threads {
            sum.lookups += thread.lookups.get();
            sum.found_in_memtables += thread.found_in_memtables.get();
            let negatives = thread.memtable_negatives.get();
            sum.memtable_probes += negatives + thread.memtable_positives.get();
            sum.memtable_negatives += negatives;
        }
        sum
    }

    /// The sum over all threads of what lookups did on `level`.
    pub(crate) fn level(&self, level: usize) -> LevelStats {
        let mut sum = LevelStats::default();
        for thread in &self.threads {
            thread.levels[level].add_to(&mut sum);
        }
        sum
    }

    /// The sum over all threads of what was read from table files.
    pub(crate) fn table_reads(&self) -> IoStats {
        let mut sum = IoStats::default();
        for thread in &self.threads {
            sum.calls += thread.read_calls.get();
            sum.bytes += thread.read_bytes.get();
        }
        sum
    }
}
