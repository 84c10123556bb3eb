//! Probes of prefix and range filters by a scan, which skips the tables without an entry for it.

use std::ops::{Bound, Range};

use sievedb_filter::key_hash;
use sievedb_sstable::FilterState;

use crate::{
    iter::bounds::{KeyBounds, is_above},
    prefix_extractor::NamedExtractor,
    stats::{LevelCounters, Sampled, ThreadCounters},
    table::{LiveTable, scan_filters::PrefixAnswer},
    version::Run,
};

/// A probe of the prefix and range filters of tables.
///
/// Range tombstones are not in the filters: those of a skipped table still hide older entries.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ScanProbe<'a> {
    prefix: PrefixProbe,
    /// The bounds, if there are two. A single bound hardly ever excludes a table.
    range: Option<&'a KeyBounds>,
    /// This scan is in the sample by which memory is divided among filters.
    is_sampled: bool,
}

#[derive(Debug, Clone, Copy)]
enum PrefixProbe {
    /// Keys within the bounds may have several prefixes, or none.
    None,
    /// All keys have the prefix with this hash, from an extractor whose hashes have this seed.
    Hash { hash: u64, seed: u64 },
    /// The function of the extractor is missing.
    Unknown,
}

impl<'a> ScanProbe<'a> {
    /// Creates a probe for the keys within `bounds`, in a store with this hash seed.
    pub(crate) fn new(
        extractor: &NamedExtractor,
        bounds: &'a KeyBounds,
        hash_seed: u64,
        counters: &ThreadCounters,
    ) -> Self {
        let start = bounds.common_prefix();
        let prefix = match extractor {
            NamedExtractor::None => PrefixProbe::None,
            NamedExtractor::Missing(_) if start.is_empty() => PrefixProbe::None,
            NamedExtractor::Missing(_) => PrefixProbe::Unknown,
            NamedExtractor::Present(extractor) => match extractor.prefix_of_all(start) {
                Some(prefix) => {
                    let seed = extractor.hash_seed(hash_seed);
                    PrefixProbe::Hash { hash: key_hash(prefix, seed), seed }
                }
                None => PrefixProbe::None,
            },
        };
        let (lower, upper) = bounds.as_slices();
        let is_bounded = lower != Bound::Unbounded && upper != Bound::Unbounded;
        counters.scans.add(1);
        // Mixed like a hash, so that the gaps of the sample differ.
        let number = counters.scans.get().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let is_sampled = counters.scan_sample.is_due(number);
        Self { prefix, range: is_bounded.then_some(bounds), is_sampled }
    }

    /// Returns the tables of `window` that may have entries within the bounds. `window` has all
    /// tables of `run` that overlap the bounds.
    ///
    /// Probes only the first and the last table: all keys of the tables in between are within the
    /// bounds.
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
        debug_assert!(window.end <= run.tables().len(), "{window:?}");
        if tables > 0 && !may_have(window.start) {
            window.start += 1;
        }
        if tables > 1 && !may_have(window.end - 1) {
            window.end -= 1;
        }
        debug_assert!(window.len() + 2 >= tables, "only the ends are probed");
        window
    }

    /// Returns the filters that could exclude the table, resident or not.
    #[cold]
    fn helpful(self, live: &LiveTable) -> impl Iterator<Item = Sampled> {
        let (id, filters) = (live.meta.id, live.scan_filters());
        let has_prefix = matches!(self.prefix, PrefixProbe::Hash { .. });
        let prefix = has_prefix && filters.prefix_place.is_some();
        let range = filters.range_place.is_some() && self.reaches_beyond(live);
        let prefix = prefix.then_some(Sampled::PrefixFilter(id));
        prefix.into_iter().chain(range.then_some(Sampled::RangeFilter(id)))
    }

    /// Returns `true` if there are two bounds, and neither end of the table is within them, so that
    /// the table may have no entry there.
    fn reaches_beyond(self, live: &LiveTable) -> bool {
        self.range.is_some_and(|bounds| {
            let (lower, upper) = bounds.as_slices();
            !is_above(&live.meta.bounds.smallest, lower) && !live.meta.bounds.stays_below(upper)
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
            PrefixProbe::None => return true,
            PrefixProbe::Unknown => {
                let exists = live.scan_filters().prefix_place.is_some();
                counters.prefix_unusable.add(u64::from(exists));
                return true;
            }
            PrefixProbe::Hash { hash, seed } => (hash, seed),
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
