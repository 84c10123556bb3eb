//! The engines, and what a workload asks of each.
//!
//! Each is configured as its makers advise for point reads; [docs/benchmarks.md] says where they
//! do. Writes reach the operating system before they are acknowledged, not the disk, unless a call
//! says so.
//!
//! [docs/benchmarks.md]: ../../../../docs/benchmarks.md

#[cfg(feature = "fjall")]
pub(crate) mod fjall;
#[cfg(feature = "lmdb")]
pub(crate) mod lmdb;
#[cfg(feature = "redb")]
pub(crate) mod redb;
#[cfg(feature = "rocksdb")]
pub(crate) mod rocksdb;
pub(crate) mod sievedb;
#[cfg(feature = "sled")]
pub(crate) mod sled;

use std::path::Path;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::{
    failure::Result,
    keys::{Entry, Key, Value},
    settings::Settings,
};

/// An engine with its options.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Contestant {
    Sievedb,
    SievedbDefaults,
    #[cfg(feature = "rocksdb")]
    Rocksdb,
    #[cfg(feature = "rocksdb")]
    RocksdbDefaults,
    #[cfg(feature = "fjall")]
    Fjall,
    #[cfg(feature = "fjall")]
    FjallDefaults,
    #[cfg(feature = "redb")]
    Redb,
    #[cfg(feature = "lmdb")]
    Lmdb,
    #[cfg(feature = "sled")]
    Sled,
}

impl Contestant {
    /// All that were compiled.
    pub(crate) const ALL: &[Self] = &[
        Self::Sievedb,
        Self::SievedbDefaults,
        #[cfg(feature = "rocksdb")]
        Self::Rocksdb,
        #[cfg(feature = "rocksdb")]
        Self::RocksdbDefaults,
        #[cfg(feature = "fjall")]
        Self::Fjall,
        #[cfg(feature = "fjall")]
        Self::FjallDefaults,
        #[cfg(feature = "redb")]
        Self::Redb,
        #[cfg(feature = "lmdb")]
        Self::Lmdb,
        #[cfg(feature = "sled")]
        Self::Sled,
    ];

    /// What it is called in a report.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Sievedb => "SieveDB",
            Self::SievedbDefaults => "SieveDB, defaults",
            #[cfg(feature = "rocksdb")]
            Self::Rocksdb => "RocksDB",
            #[cfg(feature = "rocksdb")]
            Self::RocksdbDefaults => "RocksDB, defaults",
            #[cfg(feature = "fjall")]
            Self::Fjall => "fjall",
            #[cfg(feature = "fjall")]
            Self::FjallDefaults => "fjall, defaults",
            #[cfg(feature = "redb")]
            Self::Redb => "redb",
            #[cfg(feature = "lmdb")]
            Self::Lmdb => "LMDB",
            #[cfg(feature = "sled")]
            Self::Sled => "sled",
        }
    }

    /// Name of its folder, and on the command line.
    pub(crate) fn name(self) -> String {
        self.to_possible_value().expect("no contestant is hidden").get_name().to_owned()
    }
}

/// Where an engine's options come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tuning {
    /// The advice of its makers for point reads, and the total of the settings.
    Advised,
    /// No options but the path.
    Defaults,
}

/// An open store of some engine.
pub(crate) trait Engine: Sized + Sync {
    /// What one thread reads with.
    type Reader<'a>: Reader
    where
        Self: 'a;

    /// Opens the store in the folder `path`, which exists; makes it if there is none.
    fn open(path: &Path, tuning: Tuning, settings: &Settings) -> Result<Self>;

    /// Writes `entries` at once; a single one as the engine writes single ones.
    fn write(&self, entries: &[Entry]) -> Result<()>;

    /// Writes `entry`, which is on the disk afterwards. The store was opened with
    /// [`sync_writes`](Settings::sync_writes).
    fn write_synced(&self, entry: &Entry) -> Result<()>;

    /// Removes `keys` at once; a single one as the engine removes single ones.
    fn remove(&self, keys: &[Key]) -> Result<()>;

    /// Puts what was written into its final files, and on the disk.
    fn flush(&self) -> Result<()>;

    fn reader(&self) -> Result<Self::Reader<'_>>;

    /// Shows every entry to `visit`, in this order, through the cache.
    fn scan(&self, order: Order, visit: impl FnMut(&[u8], &[u8])) -> Result<()>;

    /// What the store looks like, as far as the engine tells.
    fn shape(&self) -> Result<String>;

    /// Data blocks that lookups have asked the cache for since the store was opened, if the engine
    /// tells.
    fn data_block_requests(&self) -> Option<u64> {
        None
    }

    /// Tombstones that tables hold, if the engine tells.
    fn tombstones(&self) -> Option<u64> {
        None
    }
}

/// The order of a scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    Ascending,
    Descending,
}

/// Reads of one thread, which keeps what its engine advises to keep between lookups.
pub(crate) trait Reader {
    /// Copies the value of `key` to `value`, and tells whether there is one.
    fn get(&mut self, key: &Key, value: &mut Value) -> Result<bool>;

    /// Puts into `answers`, for each of `keys`, whether it has a value.
    fn contains_many(&mut self, keys: &[Key], answers: &mut Vec<bool>) -> Result<()>;

    /// Shows the first `entries` entries from `key` on to `visit`; fewer if the store ends before.
    fn scan_from(
        &mut self,
        key: &Key,
        entries: usize,
        visit: impl FnMut(&[u8], &[u8]),
    ) -> Result<()>;

    /// Holds nothing until the next read, which sees all that was written before it.
    fn let_go(&mut self);
}

/// Copies `found` to `value`; one of another length becomes zeros, which are no right value.
fn copy_value(found: &[u8], value: &mut Value) {
    match found.try_into() {
        Ok(found) => *value = found,
        Err(_) => *value = [0; _],
    }
}

/// `count` things with a name that takes an `s`.
fn counted(count: u64, name: &str) -> String {
    format!("{count} {name}{}", if count == 1 { "" } else { "s" })
}
