//! Settings shared by all contestants.

use serde::{Deserialize, Serialize};

use crate::{
    case::Fit,
    keys::{KEY_BYTES, Value},
};

/// The minimum total: SieveDB rejects a smaller `memory_budget`.
const TOTAL_BYTES_MIN: u64 = sievedb::options::MEMORY_BUDGET_MIN;

/// Default total for data in memory, in percent of the data. Includes filters, indexes and write
/// buffers.
const TOTAL_PER_CENT: u64 = 115;

/// Settings shared by all contestants.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq)]
pub(crate) struct Settings {
    /// Keys that `load` stores.
    pub(crate) keys: u64,
    /// Maximum number of lookups and other short operations. `keys` limits overwrites and deletes.
    pub(crate) lookups: u64,
    /// Seconds after which a workload other than a load ends.
    pub(crate) seconds_max: f64,
    /// Seconds after which loads one by one end.
    pub(crate) load_seconds_max: f64,
    /// Total memory of an engine in bytes. Each splits it as its authors advise.
    pub(crate) total_bytes: u64,
    /// Entries written at a time.
    pub(crate) load_batch: usize,
    /// Keys in a batch of `contains`.
    pub(crate) contains_batch: usize,
    /// Entries that a short scan reads.
    pub(crate) short_scan: usize,
    /// Keys that are removed before the scan over tombstones.
    pub(crate) tombstones: u64,
    /// Entries that are written per second while another thread reads.
    pub(crate) writes_per_second: u64,
    /// Interval of the checks for an idle process, in ms.
    pub(crate) settle_window_ms: u64,
    /// Syncs writes before they are acknowledged.
    pub(crate) sync_writes: bool,
    /// Empties the system's page cache before and during the measurement.
    pub(crate) drop_page_cache: bool,
    /// Seed of keys, values and their order.
    pub(crate) seed: u64,
}

impl Settings {
    /// Returns the settings for `fit`.
    pub(crate) fn of_fit(&self, fit: Fit) -> Self {
        let settings = self.clone();
        match fit.data_per_total() {
            None => settings,
            Some(times) => {
                let total_bytes = (data_bytes(self.keys) / times).max(TOTAL_BYTES_MIN);
                Self { total_bytes, drop_page_cache: true, ..settings }
            }
        }
    }
}

/// Returns the default total for data in memory.
pub(crate) fn default_total_bytes(keys: u64) -> u64 {
    (data_bytes(keys) * TOTAL_PER_CENT / 100).max(TOTAL_BYTES_MIN)
}

/// Returns the bytes of `keys` keys and their values.
pub(crate) fn data_bytes(keys: u64) -> u64 {
    keys * (KEY_BYTES + size_of::<Value>()) as u64
}

/// Returns settings for a functional check that takes seconds. Its figures are meaningless.
pub(crate) fn small() -> Settings {
    Settings {
        keys: 20_000,
        lookups: 3_000,
        seconds_max: 0.05,
        load_seconds_max: 0.2,
        total_bytes: 64 << 20,
        load_batch: 1000,
        contains_batch: 1000,
        short_scan: 50,
        tombstones: 10_000,
        writes_per_second: 50_000,
        settle_window_ms: 5,
        sync_writes: false,
        drop_page_cache: false,
        seed: 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_are_parts_of_the_data() {
        let settings = Settings { keys: 5_000_000, ..small() };
        assert_eq!(default_total_bytes(settings.keys), 667_000_000);
        let totals = Fit::ALL.map(|fit| settings.of_fit(fit).total_bytes);
        assert_eq!(totals, [settings.total_bytes, 290_000_000, 145_000_000, 58_000_000]);
        assert_eq!(small().of_fit(Fit::TenTimes).total_bytes, TOTAL_BYTES_MIN);
    }
}
