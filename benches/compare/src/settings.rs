//! What all contestants get alike.

use serde::{Deserialize, Serialize};

use crate::keys::{KEY_BYTES, Value};

/// Of data that are 10 times the memory, the cache holds one of so many bytes: the other half of the memory
/// is for filters, indexes and write buffers.
const TEN_TIMES_CACHE_SHARE: u64 = 20;

/// The write buffer has one of so many bytes then, and at least [`WRITE_BUFFER_BYTES_MIN`].
const TEN_TIMES_WRITE_BUFFER_SHARE: u64 = 80;

/// Smaller ones are refused.
const WRITE_BUFFER_BYTES_MIN: u64 = 1 << 20;

/// Smaller caches are refused, or hold nothing for their many parts.
const CACHE_BYTES_MIN: u64 = 1 << 20;

/// What all contestants get alike.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq)]
pub(crate) struct Settings {
    /// Keys that `load` stores.
    pub(crate) keys: u64,
    /// Lookups and other short operations that are measured, if there is time.
    pub(crate) lookups: u64,
    /// Seconds after which a workload ends that loads no store.
    pub(crate) seconds_max: f64,
    /// Seconds after which loads one by one end.
    pub(crate) load_seconds_max: f64,
    /// Memory for blocks or pages, in bytes.
    pub(crate) cache_bytes: u64,
    /// Size of a memtable, in bytes.
    pub(crate) write_buffer_bytes: u64,
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
    /// Between two looks at whether the process rests, in ms.
    pub(crate) settle_window_ms: u64,
    /// Whether writes are on the disk before they are acknowledged.
    pub(crate) sync_writes: bool,
    /// Whether the system's page cache is emptied before and during the measurement.
    pub(crate) drop_page_cache: bool,
    /// Of keys, values and their order.
    pub(crate) seed: u64,
}

impl Settings {
    /// The same for data that are 10 times the memory.
    pub(crate) fn ten_times(&self) -> Self {
        let data_bytes = data_bytes(self.keys);
        let write_buffer_bytes = data_bytes / TEN_TIMES_WRITE_BUFFER_SHARE;
        Self {
            cache_bytes: (data_bytes / TEN_TIMES_CACHE_SHARE).max(CACHE_BYTES_MIN),
            write_buffer_bytes: write_buffer_bytes
                .max(WRITE_BUFFER_BYTES_MIN)
                .min(self.write_buffer_bytes),
            drop_page_cache: true,
            ..self.clone()
        }
    }
}

/// Bytes of `keys` keys and their values.
pub(crate) fn data_bytes(keys: u64) -> u64 {
    keys * (KEY_BYTES + size_of::<Value>()) as u64
}

/// Settings of a run that takes seconds and says nothing of speed: whether everything works.
pub(crate) fn small() -> Settings {
    Settings {
        keys: 20_000,
        lookups: 3_000,
        seconds_max: 0.05,
        load_seconds_max: 0.2,
        cache_bytes: 64 << 20,
        write_buffer_bytes: 1 << 20,
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
    fn data_of_ten_times_the_memory_leave_half_of_it_to_the_cache() {
        let settings = Settings { keys: 5_000_000, ..small() };
        let settings = Settings { write_buffer_bytes: 64 << 20, ..settings }.ten_times();
        assert_eq!(settings.cache_bytes, 29_000_000);
        assert_eq!(settings.write_buffer_bytes, 7_250_000);
    }
}
