//! Input size of a measurement, and its memory.

use std::path::PathBuf;

use sievedb::Db;

/// Bytes of a mebibyte.
pub(crate) const MIB: u64 = 1 << 20;

/// Peak of the resident memory that a budget allows beyond itself.
pub(crate) const RESIDENT_ALLOWANCE_MIB: f64 = 8.0;

/// `bytes` in MiB.
pub(crate) fn mib(bytes: u64) -> f64 {
    bytes as f64 / MIB as f64
}

/// Returns the memory of `db` by the accounting of its budget, in bytes.
pub(crate) fn budgeted_bytes(db: &Db) -> u64 {
    let memory = db.stats().memory;
    let parts = [
        memory.memtable_bytes,
        memory.filter_bytes,
        memory.index_bytes,
        memory.bookkeeping_bytes,
        memory.writing_bytes,
        memory.block_cache_bytes,
    ];
    parts.iter().sum()
}

/// Input size and working directory of a measurement.
#[derive(Debug, Clone)]
pub(crate) struct Scale {
    /// Use small inputs: seconds instead of minutes.
    pub(crate) small: bool,
    /// An empty directory that is removed afterwards.
    pub(crate) directory: PathBuf,
}

impl Scale {
    /// Returns `full`, or `small` for small inputs.
    pub(crate) fn pick(&self, full: u64, small: u64) -> u64 {
        if self.small { small } else { full }
    }
}
