//! What a scan asks the filters of tables, to pass over those that have nothing for it.

use std::{
    ops::{Bound, Range},
    sync::Arc,
};

use sievedb_filter::key_hash;
use sievedb_sstable::{CursorOptions, FilterState};

use crate::{
    iter::bounds::{KeyBounds, is_above, is_below},
    prefix_extractor::NamedExtractor,
    read::skipped::SkippedTombstones,
    stats::{LevelCounters, Sampled, ThreadCounters},
    table::{LiveTable, scan_filters::PrefixAnswer},
    version::Run,
};

/// What a scan asks the filters of tables.
///
/// They know nothing of range tombstones, so a table that is ruled out still hides entries of older
/// ones by those it has.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ScanQuestion<'a> {
    prefix: PrefixQuestion,
    /// The bounds, if there are two. Tables are hardly ever ruled out by one.
    range: Option<&'a KeyBounds>,
    /// Whether this scan is in the sample that tells which filters are worth their memory.
    is_sampled: bool,
}

#[derive(Debug, Clone, Copy)]
enum PrefixQuestion {
    /// The keys within the bounds may have several prefixes, or none.
    None,
    /// They all have the prefix with this hash, by an extractor whose hashes have this seed.
    Hash { hash: u64, seed: u64 },
    /// Only a function that is missing could tell.
    Unknown,
}

impl<'a> ScanQuestion<'a> {
    /// For the keys within `bounds`, in a store with this hash seed.
    pub(crate) fn new(
        extractor: &NamedExtractor,
        bounds: &'a KeyBounds,
        hash_seed: u64,
        counters: &ThreadCounters,
    ) -> Self {
        let start = bounds.common_prefix();
        let prefix = match extractor {
            NamedExtractor::None => PrefixQuestion::None,
            NamedExtractor::Missing(_) if start.is_empty() => PrefixQuestion::None,
            NamedExtractor::Missing(_) => PrefixQuestion::Unknown,
            NamedExtractor::Present(extractor) => match extractor.prefix_of_all(start) {
                Some(prefix) => {
                    let seed = extractor.hash_seed(hash_seed);
                    PrefixQuestion::Hash { hash: key_hash(prefix, seed), seed }
                }
                None => PrefixQuestion::None,
            },
        };
        let (lower, upper) = bounds.as_slices();
        let is_bounded = lower != Bound::Unbounded && upper != Bound::Unbounded;
        counters.scans.add(1);
        // As if it were a hash: the gaps of the sample are to differ.
        let number = counters.scans.get().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let is_sampled = counters.scan_sample.is_due(number);
        Self { prefix, range: is_bounded.then_some(bounds), is_sampled }
    }

    /// Those tables of `window`, all tables of `run` that have a place within the bounds, that may
    /// have entries there.
    ///
    /// Asks the first one and the last one: all keys of a table between two others are within the
    /// bounds, so it cannot be ruled out.
    pub(crate) fn narrow(
        self,
        run: &Run,
        mut window: Range<usize>,
        counters: &ThreadCounters,
    ) -> Range<usize> {
        let of_level = &counters.levels[usize::from(run.level)];
        let may_have = |index: usize| {
            let live = &run.tables()[index];
            if self.is_sampled {
                counters.scan_sample.note_all(self.helpful(live));
            }
            self.may_have_entries(live, of_level)
        };
        let tables = window.len();
        if tables > 0 && !may_have(window.start) {
            window.start += 1;
        }
        if tables > 1 && !may_have(window.end - 1) {
            window.end -= 1;
        }
        window
    }

    /// The filters of the table that could rule it out, whether they are in memory or not.
    #[cold]
    fn helpful(self, live: &LiveTable) -> impl Iterator<Item = Sampled> {
        let (id, filters) = (live.meta.id, live.scan_filters());
        let has_prefix = matches!(self.prefix, PrefixQuestion::Hash { .. });
        let prefix = has_prefix && filters.prefix_place.is_some();
        let range = filters.range_place.is_some() && self.reaches_beyond(live);
        let prefix = prefix.then_some(Sampled::PrefixFilter(id));
        prefix.into_iter().chain(range.then_some(Sampled::RangeFilter(id)))
    }

    /// Whether there are two bounds, and the table has none of its own within them: then it may
    /// have nothing there.
    fn reaches_beyond(self, live: &LiveTable) -> bool {
        self.range.is_some_and(|bounds| {
            let (lower, upper) = bounds.as_slices();
            !is_above(&live.meta.bounds.smallest, lower)
                && !is_below(&live.meta.bounds.largest, upper)
        })
    }

    /// Returns `false` only if the table has no entry for the scan.
    fn may_have_entries(self, live: &LiveTable, counters: &LevelCounters) -> bool {
        self.may_have_prefix(live, counters) && self.may_have_range(live, counters)
    }

    fn may_have_range(self, live: &LiveTable, counters: &LevelCounters) -> bool {
        let Some(bounds) = self.range.filter(|_| self.reaches_beyond(live)) else { return true };
        let ((lower, upper), smallest) = (bounds.as_slices(), &live.meta.bounds.smallest);
        match live.scan_filters().range() {
            FilterState::NotResident | FilterState::None => true,
            FilterState::Unusable(_) => {
                counters.range_unusable.add(1);
                true
            }
            filter @ FilterState::Resident(_) => {
                let maybe = filter.may_contain_keys(smallest, lower, upper);
                counters.range_probes.add(1);
                counters.range_negatives.add(u64::from(!maybe));
                maybe
            }
        }
    }

    fn may_have_prefix(self, live: &LiveTable, counters: &LevelCounters) -> bool {
        let (hash, seed) = match self.prefix {
            PrefixQuestion::None => return true,
            PrefixQuestion::Unknown => {
                let is_there = live.scan_filters().prefix_place.is_some();
                counters.prefix_unusable.add(u64::from(is_there));
                return true;
            }
            PrefixQuestion::Hash { hash, seed } => (hash, seed),
        };
        let filters = live.scan_filters();
        let filter = match filters.prefix_of(seed) {
            PrefixAnswer::Ask(filter) => filter,
            PrefixAnswer::Unusable => {
                counters.prefix_unusable.add(1);
                return true;
            }
            PrefixAnswer::None => return true,
        };
        let maybe = filter.may_contain_hash(hash);
        counters.prefix_probes.add(1);
        counters.prefix_negatives.add(u64::from(!maybe));
        maybe
    }
}

/// How a scan reads memtables and tables.
#[derive(Debug, Clone)]
pub(crate) struct ScanOptions {
    /// Cache and read-ahead; the bounds are those of `bounds` where a table crosses them.
    pub(crate) cursor: CursorOptions,
    pub(crate) bounds: Arc<KeyBounds>,
    /// Notified of the tombstones that the scan steps over.
    pub(crate) skipped: Option<Arc<dyn SkippedTombstones>>,
}

impl ScanOptions {
    /// Returns the options of a flush or a compaction, which reads all entries once.
    pub(crate) fn once(cursor: CursorOptions) -> Self {
        Self { cursor, bounds: Arc::new(KeyBounds::ALL), skipped: None }
    }
}
