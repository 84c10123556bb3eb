//! Fills the store of a benchmark.
//!
//! Its shape is that of a store between two compactions: most keys in one sorted run on the deepest
//! level, and two recent flushes on level 0. The fill brings it about, so that every run measures
//! the same shape, and a lookup always has three runs to ask.

use std::{ops::Range, path::Path};

use indicatif::ProgressBar;
use sievedb::{Db, Durability, FilterPolicy, FilterPolicyKind, KeyspaceOptions, Options, Result};
use sievedb_workload::{Keys, VALUE_BYTES, value_of};

use super::{case::Filters, levels::levels, progress};

/// Entries written at a time.
const BATCH_ENTRIES: u64 = 1000;

/// Flushes left on level 0.
const FLUSHES: u64 = 2;

/// Share of the keys in each of them, if they are not too many for one memtable.
const FLUSH_SHARE: u64 = 10;

/// Keys and values of a flush: well below the memtable, which also holds a node for each.
const FLUSH_BYTES_MAX: u64 = 8 << 20;

/// Fewest keys that give every run one.
pub(crate) const KEYS_MIN: u64 = FLUSHES + 1;

/// What a store is filled with.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Filling<'a> {
    pub(crate) keys: &'a Keys,
    /// Bytes of all keys and values.
    pub(crate) data_bytes: u64,
    /// Of the values.
    pub(crate) seed: u64,
    /// For a store with filters.
    pub(crate) bits_per_key: f64,
}

impl Filling<'_> {
    /// How a store with these filters is opened.
    pub(crate) fn options(&self, filters: Filters) -> Options {
        let kind = match filters {
            Filters::Off => FilterPolicyKind::None,
            Filters::Bloom => FilterPolicyKind::Bloom,
            Filters::Auto => FilterPolicyKind::Auto,
        };
        let policy = FilterPolicy::new(kind).bits_per_key(self.bits_per_key);
        Options::new().keyspace(KeyspaceOptions::new().filter_policy(policy))
    }

    /// Makes a store in the folder `path`, closed when this returns. Returns the bytes of its
    /// tables.
    pub(crate) fn fill(&self, path: &Path, filters: Filters) -> Result<u64> {
        let db = self.options(filters).open(path)?;
        let title = format!("fill, {}", filters.name());
        let progress = progress::bar(self.keys.len(), "keys", &title);
        let flush_keys = self.flush_keys();
        let mut end = self.keys.len() - FLUSHES * flush_keys;
        self.insert(&db, 0..end, &progress)?;
        db.compact()?;
        for _ in 0..FLUSHES {
            self.insert(&db, end..end + flush_keys, &progress)?;
            db.flush()?;
            end += flush_keys;
        }
        progress.finish_and_clear();
        Ok(levels(&db.stats()).iter().map(|level| level.table_bytes).sum())
    }

    fn flush_keys(&self) -> u64 {
        let entry_bytes = self.data_bytes.div_ceil(self.keys.len());
        (self.keys.len() / FLUSH_SHARE).min(FLUSH_BYTES_MAX / entry_bytes).max(1)
    }

    fn insert(&self, db: &Db, range: Range<u64>, progress: &ProgressBar) -> Result<()> {
        let mut key = Vec::new();
        let mut next = range.start;
        while next < range.end {
            let end = range.end.min(next + BATCH_ENTRIES);
            let mut batch = db.batch();
            for index in next..end {
                key.clear();
                self.keys.append(index, &mut key);
                batch.insert(db, &key, value_of(&key, self.seed))?;
            }
            batch.commit(Durability::OsBuffer)?;
            progress.inc(end - next);
            next = end;
        }
        Ok(())
    }
}

/// Bytes of all `keys` and their values.
pub(crate) fn data_bytes(keys: &Keys) -> u64 {
    let mut key = Vec::new();
    let bytes = (0..keys.len()).map(|index| {
        key.clear();
        keys.append(index, &mut key);
        (key.len() + VALUE_BYTES) as u64
    });
    bytes.sum()
}
