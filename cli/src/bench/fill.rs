//! Fills the store of a benchmark.
//!
//! The store has the shape of one between two compactions: most keys in one sorted run on the
//! deepest level, and recent flushes on level 0, by default two. Every run measures the same shape.

use std::{ops::Range, path::Path, str::FromStr};

use indicatif::ProgressBar;
use sievedb::{
    Db, Durability, FilterPolicy, FilterPolicyKind, KeyspaceOptions, Options, Result,
    keyspace_options::DEFAULT_BASE_LEVEL_BYTES, options::DEFAULT_LOG_BYTES_MAX,
};
use sievedb_workload::{Keys, VALUE_BYTES, value_of};

use super::{case::Filters, levels::levels, progress};

/// Entries of a batch.
const BATCH_ENTRIES: u64 = 1000;

/// Default number of flushes on level 0.
const FLUSHES: u64 = 2;

/// Each flush has this fraction of the keys, unless they exceed [`FLUSH_BYTES_MAX`].
const FLUSH_SHARE: u64 = 10;

/// Most bytes of keys and values in a flush: well below the memtable, which also has nodes.
const FLUSH_BYTES_MAX: u64 = 8 << 20;

/// Minimum number of keys: one for each run.
pub(crate) const KEYS_MIN: u64 = FLUSHES + 1;

/// Upper bound for the memory of an entry in a memtable besides its key and value.
const NODE_BYTES: u64 = 192;

/// Size of the default memtable in bytes.
const FLUSH_MEMTABLE_BYTES: usize = 32 << 20;

/// Maximum number of runs: more flushes would be compacted.
const RUNS_MAX: usize = 4;

/// Shares of the keys in the sorted runs.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Shares(Vec<f64>);

impl FromStr for Shares {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let shares = text.split(',').map(|share| share.trim().parse::<f64>());
        let shares: Vec<f64> =
            shares.collect::<std::result::Result<_, _>>().map_err(|error| error.to_string())?;
        let is_allowed = (FLUSHES as usize + 1..=RUNS_MAX).contains(&shares.len())
            && shares.iter().all(|share| share.is_finite() && *share > 0.0);
        let allowed = "three or four numbers above 0, the oldest run first";
        is_allowed.then_some(Self(shares)).ok_or_else(|| format!("{text} is not {allowed}"))
    }
}

impl Shares {
    /// Returns the number of keys of each run, at least one in each flush.
    fn of(&self, keys: u64) -> Vec<u64> {
        let sum: f64 = self.0.iter().sum();
        let flushes = self.0[1..].iter().map(|share| ((share / sum * keys as f64) as u64).max(1));
        let flushes: Vec<u64> = flushes.collect();
        let oldest = keys.saturating_sub(flushes.iter().sum());
        [oldest].into_iter().chain(flushes).collect()
    }
}

/// Contents of a store.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Filling<'a> {
    pub(crate) keys: &'a Keys,
    /// Bytes of all keys and values.
    pub(crate) data_bytes: u64,
    /// Seed of the values.
    pub(crate) seed: u64,
    /// Filter bits per key, if the store has filters.
    pub(crate) bits_per_key: f64,
    /// Number of keys of each sorted run, oldest first.
    pub(crate) runs: &'a [u64],
}

/// Returns options without idle compactions, so that the runs stay unchanged.
fn options_without_rewrites() -> Options {
    Options::new().idle_compactions(false)
}

impl Filling<'_> {
    /// Returns the options of a store with these filters.
    pub(crate) fn options(&self, filters: Filters) -> Options {
        options_without_rewrites().keyspace(self.keyspace(filters))
    }

    /// Returns options with a base level so large that no compaction of level 0 is due.
    fn keyspace(&self, filters: Filters) -> KeyspaceOptions {
        let flushed: u64 = self.runs[1..].iter().sum();
        let level0_bytes = flushed * self.entry_bytes();
        let keyspace = KeyspaceOptions::new().filter_policy(self.policy(filters));
        if level0_bytes < DEFAULT_BASE_LEVEL_BYTES / 2 {
            return keyspace;
        }
        keyspace.base_level_bytes(4 * level0_bytes)
    }

    fn policy(&self, filters: Filters) -> FilterPolicy {
        let kind = match filters {
            Filters::Off => FilterPolicyKind::None,
            Filters::Bloom => FilterPolicyKind::Bloom,
            Filters::Ribbon => FilterPolicyKind::Ribbon,
            Filters::Auto => FilterPolicyKind::Auto,
        };
        FilterPolicy::new(kind).bits_per_key(self.bits_per_key)
    }

    /// Creates and fills a store in the directory `path`, and closes it. Returns the bytes of its
    /// tables.
    pub(crate) fn fill(&self, path: &Path, filters: Filters) -> Result<u64> {
        let db = self.fill_options(filters).open(path)?;
        let title = format!("filling, {}", filters.name());
        let progress = progress::bar(self.keys.len(), "keys", &title);
        let mut start = 0;
        for (index, keys) in self.runs.iter().enumerate() {
            self.insert(&db, start..start + keys, &progress)?;
            if index == 0 {
                db.compact()?;
            } else {
                db.flush()?;
            }
            start += keys;
        }
        progress.finish_and_clear();
        Ok(levels(&db.stats()).iter().map(|level| level.table_bytes).sum())
    }

    /// Returns options with a memtable that holds a whole run.
    fn fill_options(&self, filters: Filters) -> Options {
        let largest = self.runs[1..].iter().max().expect("runs of level 0");
        let bytes = largest * (self.entry_bytes() + NODE_BYTES);
        let keyspace = self.keyspace(filters);
        match usize::try_from(bytes) {
            Ok(bytes) if bytes > FLUSH_MEMTABLE_BYTES => {
                // A memtable is frozen early at half the limit of all memtables, or at the limit of
                // the log.
                let bytes_max = 3 * bytes as u64;
                options_without_rewrites()
                    .memtable_bytes_max(bytes_max)
                    .log_bytes_max(bytes_max.max(DEFAULT_LOG_BYTES_MAX))
                    .keyspace(keyspace.memtable_bytes(bytes))
            }
            _ => options_without_rewrites().keyspace(keyspace),
        }
    }

    fn entry_bytes(&self) -> u64 {
        self.data_bytes.div_ceil(self.keys.len())
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

/// Returns the number of keys of each sorted run, oldest first: by `shares`, or two small flushes.
pub(crate) fn runs(keys: u64, data_bytes: u64, shares: Option<&Shares>) -> Vec<u64> {
    if let Some(shares) = shares {
        return shares.of(keys);
    }
    let entry_bytes = data_bytes.div_ceil(keys);
    let flush = (keys / FLUSH_SHARE).min(FLUSH_BYTES_MAX / entry_bytes).max(1);
    [keys - FLUSHES * flush].into_iter().chain((0..FLUSHES).map(|_| flush)).collect()
}

/// Returns the lower bound for data-block requests per lookup of an absent key.
///
/// It is `2^-(bits_per_key - H)`, where `H` is the entropy of the runs' shares of the keys in bits.
pub(crate) fn ideal(runs: &[u64], bits_per_key: f64) -> f64 {
    let all = runs.iter().sum::<u64>() as f64;
    let shares = runs.iter().map(|&keys| keys as f64 / all);
    let entropy: f64 = shares.map(|share| -share * share.log2()).sum();
    (entropy - bits_per_key).exp2().min(runs.len() as f64)
}

/// Returns the bytes of all `keys` and their values.
pub(crate) fn data_bytes(keys: &Keys) -> u64 {
    let mut key = Vec::new();
    let bytes = (0..keys.len()).map(|index| {
        key.clear();
        keys.append(index, &mut key);
        (key.len() + VALUE_BYTES) as u64
    });
    bytes.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_divided_by_shares() {
        let cases: [(&str, u64, Option<&[u64]>); 6] = [
            ("90,9,1", 1000, Some(&[900, 90, 10])),
            ("1, 1, 1", 10, Some(&[4, 3, 3])),
            ("97,1,1,1", 3, Some(&[0, 1, 1, 1])),
            ("9,1", 1000, None),
            ("5,1,0", 1000, None),
            ("a", 1000, None),
        ];
        for (text, keys, want) in cases {
            let found = text.parse::<Shares>().ok().map(|shares| shares.of(keys));
            assert_eq!(found.as_deref(), want, "{text}");
        }
        assert_eq!(runs(1000, 112_000, None), [800, 100, 100]);
    }

    #[test]
    fn ideal_is_the_entropy_bound() {
        let cases: [(&[u64], f64, f64); 4] = [
            (&[90, 9, 1], 10.0, 0.0014),
            (&[1, 1, 1], 10.0, 0.0029),
            (&[1, 1, 1], 0.0, 3.0),
            (&[7], 10.0, 0.000_98),
        ];
        for (runs, bits, want) in cases {
            let found = ideal(runs, bits);
            assert!((found / want - 1.0).abs() < 0.02, "{runs:?}, {bits}: {found}");
        }
    }
}
