//! What all contestants get alike.

use serde::{Deserialize, Serialize};

use crate::keys::{KEY_BYTES, Value};

/// What all contestants get alike.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq)]
pub(crate) struct Settings {
    /// Keys that `load` stores.
    pub(crate) keys: u64,
    /// Lookups that are measured, if there is time.
    pub(crate) lookups: u64,
    /// Seconds after which a workload other than `load` ends.
    pub(crate) seconds_max: f64,
    /// Memory for blocks or pages, in bytes.
    pub(crate) cache_bytes: u64,
    /// Size of a memtable, in bytes.
    pub(crate) write_buffer_bytes: u64,
    /// Entries written at a time.
    pub(crate) load_batch: usize,
    /// Keys in a batch of `contains`.
    pub(crate) contains_batch: usize,
    /// Entries that are written per second during `miss-while-writing`.
    pub(crate) writes_per_second: u64,
    /// Of keys, values and their order.
    pub(crate) seed: u64,
}

/// Bytes of `keys` keys and their values.
pub(crate) fn data_bytes(keys: u64) -> u64 {
    keys * (KEY_BYTES + size_of::<Value>()) as u64
}

/// Settings of a run that takes seconds and says nothing of speed: whether everything works.
pub(crate) fn small() -> Settings {
    Settings {
        keys: 30_000,
        lookups: 10_000,
        seconds_max: 0.2,
        cache_bytes: 64 << 20,
        write_buffer_bytes: 1 << 20,
        load_batch: 1000,
        contains_batch: 1000,
        writes_per_second: 50_000,
        seed: 1,
    }
}
