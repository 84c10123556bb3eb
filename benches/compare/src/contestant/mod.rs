//! The engines, and what a workload asks of each.
//!
//! Each is configured as its makers advise for point reads; [docs/benchmarks.md] says where they do.
//! Writes reach the operating system before they are acknowledged, not the disk.
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
}

impl Contestant {
    /// All that were compiled.
    pub(crate) const ALL: &[Self] = &[
        Self::Sievedb,
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
    ];

    /// What it is called in a report.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Sievedb => "SieveDB",
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
    /// The advice of its makers for point reads.
    Advised,
    /// No options but the path.
    #[cfg(any(feature = "rocksdb", feature = "fjall"))]
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

    /// Writes `entries` at once.
    fn write(&self, entries: &[Entry]) -> Result<()>;

    /// Puts what was written into its final files, and on the disk.
    fn flush(&self) -> Result<()>;

    fn reader(&self) -> Result<Self::Reader<'_>>;

    /// Reads everything in order, through the cache. Returns the number of entries.
    fn scan(&self) -> Result<u64>;

    /// What the store looks like, as far as the engine tells.
    fn shape(&self) -> Result<String>;
}

/// Reads of one thread, which keeps what its engine advises to keep between lookups.
pub(crate) trait Reader {
    /// Copies the value of `key` to `value`, and tells whether there is one.
    fn get(&mut self, key: &Key, value: &mut Value) -> Result<bool>;

    /// Puts into `answers`, for each of `keys`, whether it has a value.
    fn contains_many(&mut self, keys: &[Key], answers: &mut Vec<bool>) -> Result<()>;

    /// Sees what was written before this call, from now on.
    fn refresh(&mut self) -> Result<()>;
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
