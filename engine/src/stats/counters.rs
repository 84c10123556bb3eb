//! Counters of each thread: counting writes no shared cache line.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use sievedb_sstable::BlockCounts;
use thread_local::ThreadLocal;

use super::{
    IoStats, LevelStats, LookupStats, MemoryMoves, WriteStats,
    lookup_sample::{LookupSample, Sampled},
};
use crate::level_count::LEVELS;

#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// Adds `n`. Only the owning thread calls this, so a load and a store suffice, and cost less
    /// than a locked addition.
    pub(crate) fn add(&self, n: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(n), Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

#[derive(Debug, Default)]
pub(crate) struct Sum(AtomicU64);

impl Sum {
    pub(crate) fn add(&self, x: f64) {
        self.0.store((self.get() + x).to_bits(), Relaxed);
    }

    fn get(&self) -> f64 {
        f64::from_bits(self.0.load(Relaxed))
    }
}

macro_rules! level_counters {
    ($($field:ident)+) => {
        #[derive(Debug, Default)]
        pub(crate) struct LevelCounters {
            /// Sum of expected rates over the probes for keys that the table did not have.
            pub(crate) false_positives_expected: Sum,
            $(pub(crate) $field: Counter,)+
        }

        impl LevelCounters {
            fn add_to(&self, sum: &mut LevelStats) {
                let searches = self.true_positives.get() + self.false_positives.get();
                sum.candidates += self.filter_negatives.get() + searches;
                sum.false_positives_expected += self.false_positives_expected.get();
                $(sum.$field += self.$field.get();)+
            }
        }
    };
}

level_counters! {
    filter_negatives filter_true_positives filter_false_positives true_positives false_positives
    filter_unusable filter_not_resident prefix_probes prefix_negatives prefix_unusable range_probes
    range_negatives range_unusable tombstones_skipped data_block_requests index_block_requests
    blocks_read bytes_read
}

impl LevelCounters {
    /// Counts negative probes of a filter with this expected rate.
    #[inline]
    pub(crate) fn add_negatives(&self, count: u64, expected_fpr: f64) {
        self.filter_negatives.add(count);
        self.false_positives_expected.add(count as f64 * expected_fpr);
    }

    /// Counts searches of a table that found the key, and searches that did not. `expected_fpr` is
    /// that of the filter that passed them; `None` without a filter.
    pub(crate) fn add_searches(&self, found: u64, in_vain: u64, expected_fpr: Option<f64>) {
        self.true_positives.add(found);
        self.false_positives.add(in_vain);
        if let Some(rate) = expected_fpr {
            self.filter_true_positives.add(found);
            self.filter_false_positives.add(in_vain);
            self.false_positives_expected.add(in_vain as f64 * rate);
        }
    }

    pub(crate) fn add_blocks(&self, counts: BlockCounts) {
        self.data_block_requests.add(counts.data_block_requests);
        self.index_block_requests.add(counts.index_block_requests);
        self.blocks_read.add(counts.blocks_read);
        self.bytes_read.add(counts.bytes_read);
    }
}

#[derive(Debug, Default)]
pub(crate) struct WriteCounters {
    pub(crate) batches: Counter,
    pub(crate) entries: Counter,
    pub(crate) bytes: Counter,
    pub(crate) stalls: Counter,
    pub(crate) stalled_us: Counter,
}

#[derive(Debug, Default)]
pub(crate) struct MemtableCounters {
    pub(crate) idle_flushed: Counter,
    pub(crate) idle_bytes_flushed: Counter,
    pub(crate) frozen_at_limit: Counter,
    pub(crate) room_waits: Counter,
}

/// Aligned so that no two threads share a cache line.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct ThreadCounters {
    pub(crate) sample: LookupSample,
    /// Sample of the filters that scans probe.
    pub(crate) scan_sample: LookupSample,
    pub(crate) scans: Counter,
    pub(crate) lookups: Counter,
    pub(crate) found_in_memtables: Counter,
    pub(crate) memtable_positives: Counter,
    pub(crate) memtable_negatives: Counter,
    pub(crate) levels: [LevelCounters; LEVELS],
    pub(crate) read_calls: Counter,
    pub(crate) read_bytes: Counter,
    pub(crate) writes: WriteCounters,
    pub(crate) memtables: MemtableCounters,
}

impl ThreadCounters {
    /// Returns counters that belong to no store.
    pub(crate) fn aside() -> Self {
        Self::default()
    }

    fn new(epoch: &Arc<AtomicU64>) -> Self {
        let sample = || LookupSample::new(epoch);
        Self { sample: sample(), scan_sample: sample(), ..Self::default() }
    }
}

/// Counters of all threads that ever used a store.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    threads: ThreadLocal<ThreadCounters>,
    /// Current epoch of the samples.
    epoch: Arc<AtomicU64>,
}

impl Counters {
    /// Returns the counters of the calling thread.
    #[inline(always)]
    pub(crate) fn local(&self) -> &ThreadCounters {
        self.threads.get().unwrap_or_else(|| self.of_new_thread())
    }

    #[cold]
    fn of_new_thread(&self) -> &ThreadCounters {
        self.threads.get_or(|| ThreadCounters::new(&self.epoch))
    }

    /// Returns the samples of all threads since the last call.
    pub(crate) fn take_sample(&self) -> BTreeMap<Sampled, u64> {
        let mut sum = BTreeMap::new();
        let epoch = self.epoch.fetch_add(1, Relaxed);
        let threads = self.threads.iter();
        let samples = threads.flat_map(|thread| [&thread.sample, &thread.scan_sample]);
        for (sampled, count) in samples.flat_map(|sample| sample.counts(epoch)) {
            *sum.entry(sampled).or_default() += count;
        }
        sum
    }

    /// Returns the number of lookups and scans so far.
    pub(crate) fn probes(&self) -> u64 {
        self.threads.iter().map(|thread| thread.lookups.get() + thread.scans.get()).sum()
    }

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

    pub(crate) fn level(&self, level: usize) -> LevelStats {
        let mut sum = LevelStats::default();
        for thread in &self.threads {
            thread.levels[level].add_to(&mut sum);
        }
        sum
    }

    /// Returns the counts of writes, without syncs of the log, which the log counts.
    pub(crate) fn writes(&self) -> WriteStats {
        let mut sum = WriteStats::default();
        for WriteCounters { batches, entries, bytes, stalls, stalled_us } in
            self.threads.iter().map(|thread| &thread.writes)
        {
            sum.batches += batches.get();
            sum.entries += entries.get();
            sum.bytes += bytes.get();
            sum.stalls += stalls.get();
            sum.stalled_us += stalled_us.get();
        }
        sum
    }

    pub(crate) fn add_memtables_to(&self, moves: &mut MemoryMoves) {
        for MemtableCounters { idle_flushed, idle_bytes_flushed, frozen_at_limit, room_waits } in
            self.threads.iter().map(|thread| &thread.memtables)
        {
            moves.idle_memtables_flushed += idle_flushed.get();
            moves.idle_memtable_bytes_flushed += idle_bytes_flushed.get();
            moves.memtables_frozen_at_limit += frozen_at_limit.get();
            moves.memtable_room_waits += room_waits.get();
        }
    }

    pub(crate) fn table_reads(&self) -> IoStats {
        let mut sum = IoStats::default();
        for thread in &self.threads {
            sum.calls += thread.read_calls.get();
            sum.bytes += thread.read_bytes.get();
        }
        sum
    }
}
