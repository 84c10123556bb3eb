//! The engines, and the operations that workloads require of each.
//!
//! Each engine is configured as its authors advise for point reads; [docs/benchmarks.md] cites the
//! advice. Acknowledged writes have reached the operating system. They are not synced unless a call
//! says so.
//!
//! [docs/benchmarks.md]: ../../../../docs/benchmarks.md

#[cfg(feature = "canopydb")]
pub(crate) mod canopydb;
#[cfg(feature = "fjall")]
pub(crate) mod fjall;
#[cfg(feature = "lmdb")]
pub(crate) mod lmdb;
#[cfg(feature = "mace")]
pub(crate) mod mace;
#[cfg(feature = "redb")]
pub(crate) mod redb;
#[cfg(feature = "rocksdb")]
pub(crate) mod rocksdb;
pub(crate) mod sievedb;
#[cfg(feature = "sled")]
pub(crate) mod sled;
#[cfg(feature = "surrealkv")]
pub(crate) mod surrealkv;

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
    #[cfg(feature = "surrealkv")]
    Surrealkv,
    #[cfg(feature = "mace")]
    Mace,
    #[cfg(feature = "canopydb")]
    Canopydb,
}

impl Contestant {
    /// All compiled engines.
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
        #[cfg(feature = "surrealkv")]
        Self::Surrealkv,
        #[cfg(feature = "mace")]
        Self::Mace,
        #[cfg(feature = "canopydb")]
        Self::Canopydb,
    ];

    /// Returns the name in a report.
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
            #[cfg(feature = "surrealkv")]
            Self::Surrealkv => "SurrealKV",
            #[cfg(feature = "mace")]
            Self::Mace => "mace",
            #[cfg(feature = "canopydb")]
            Self::Canopydb => "Canopydb",
        }
    }

    /// Returns the name of its directory and on the command line.
    pub(crate) fn name(self) -> String {
        self.to_possible_value().expect("no contestant is hidden").get_name().to_owned()
    }
}

/// Source of an engine's options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tuning {
    /// The authors' advice for point reads, and the total of the settings.
    Advised,
    /// No options but the path.
    Defaults,
}

/// An open store of an engine.
pub(crate) trait Engine: Sized + Sync {
    /// Read handle of one thread.
    type Reader<'a>: Reader
    where
        Self: 'a;

    /// Opens the store in the existing directory `path`. Creates the store if it does not exist.
    fn open(path: &Path, tuning: Tuning, settings: &Settings) -> Result<Self>;

    /// Writes `entries` in one batch, or a single entry by the engine's single write.
    fn write(&self, entries: &[Entry]) -> Result<()>;

    /// Writes and syncs `entry`. Requires a store opened with
    /// [`sync_writes`](Settings::sync_writes).
    fn write_synced(&self, entry: &Entry) -> Result<()>;

    /// Removes `keys` in one batch, or a single key by the engine's single removal.
    fn remove(&self, keys: &[Key]) -> Result<()>;

    /// Flushes all writes to their final files, and syncs these.
    fn flush(&self) -> Result<()>;

    fn reader(&self) -> Result<Self::Reader<'_>>;

    /// Passes every entry to `visit` in `order`, through the cache.
    fn scan(&self, order: Order, visit: impl FnMut(&[u8], &[u8])) -> Result<()>;

    /// Returns the shape of the store, as far as the engine reports it.
    fn shape(&self) -> Result<String>;

    /// Returns the data blocks that lookups requested from the cache since the store was opened, if
    /// the engine reports them.
    fn data_block_requests(&self) -> Option<u64> {
        None
    }

    /// Returns the number of tombstones in tables, if the engine reports it.
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

/// Read handle of one thread. Keeps state between lookups as its engine advises.
pub(crate) trait Reader {
    /// Copies the value of `key` to `value`. Returns `true` if the key is present.
    fn get(&mut self, key: &Key, value: &mut Value) -> Result<bool>;

    /// Sets `answers` to the presence of each of `keys`.
    fn contains_many(&mut self, keys: &[Key], answers: &mut Vec<bool>) -> Result<()>;

    /// Passes up to `entries` entries from `key` on to `visit`.
    fn scan_from(
        &mut self,
        key: &Key,
        entries: usize,
        visit: impl FnMut(&[u8], &[u8]),
    ) -> Result<()>;

    /// Drops the kept state. The next read sees all writes before it.
    fn let_go(&mut self);
}

/// Copies `found` to `value`. A value of another length becomes zeros, which no check accepts.
fn copy_value(found: &[u8], value: &mut Value) {
    match found.try_into() {
        Ok(found) => *value = found,
        Err(_) => *value = [0; _],
    }
}

/// Returns `count` and `name`, with an `s` for the plural.
fn counted(count: u64, name: &str) -> String {
    format!("{count} {name}{}", if count == 1 { "" } else { "s" })
}
