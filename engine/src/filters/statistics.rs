//! Statistics of filters.

use super::{FilterHost, FilterMemory, Filters};
use crate::{
    stats::Stats,
    sync::atomic::Ordering::Relaxed,
    table::{LiveTable, store::TableStore},
    version::Run,
};

impl Filters {
    /// Adds predictions and rebuilds.
    pub(crate) fn add_to(&self, stats: &mut Stats, host: &impl FilterHost) {
        let mut predicted = self.predicted.lock();
        predicted.retain(|id| host.keyspace(id).is_some());
        stats.false_positives_planned = predicted.false_positives();
        stats.background.filters_rebuilt = self.rebuilt.load(Relaxed);
    }
}

/// Returns the bytes of filters and their bound, at one point in time.
pub(crate) fn bytes_and_max(store: &TableStore) -> (u64, u64) {
    let bytes_max = || store.memory.filter_bytes_max();
    let mut before = bytes_max();
    loop {
        let bytes = FilterMemory::of(store).bytes();
        let after = bytes_max();
        if before == after {
            return (bytes, after);
        }
        before = after;
    }
}

/// Adds the expected false-positive rate of `run` to its level: the mean over tables, weighted by
/// keys. A table without a filter in memory counts as 1.
pub(crate) fn add_run(stats: &mut Stats, run: &Run) {
    let (mut rates, mut entries) = (0.0, 0.0);
    for live in &**run.tables() {
        let of_table = live.meta.entries as f64;
        rates += of_table * live.filters().point.expected_fpr.unwrap_or(1.0);
        entries += of_table;
    }
    stats.levels[usize::from(run.level)].filter_fpr_expected += rates / f64::max(entries, 1.0);
}

/// Adds the filters of a table on `level`.
pub(crate) fn add_table(stats: &mut Stats, level: u8, live: &LiveTable) {
    let (filters, scan_filters) = (live.filters(), live.scan_filters());
    let is_unusable = filters.unusable().is_some() || scan_filters.unusable().is_some();
    let is_whole = filters.is_whole() && scan_filters.is_whole();
    stats.tables_with_unusable_filters += u64::from(is_unusable);
    stats.filters_not_whole += u64::from(!is_whole);
    let level = &mut stats.levels[usize::from(level)];
    level.tables_with_unusable_filters += u64::from(is_unusable);
    level.filters_not_whole += u64::from(!is_whole);
    level.filter_bytes += (filters.memory_bytes() + scan_filters.memory_bytes()) as u64;
    level.filter_bytes_whole += live.filter_bytes_whole();
}
