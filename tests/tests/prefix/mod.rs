//! Prefix filters: scans of a prefix return the same and read less.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod changed;
mod equal;
mod panicking;
mod reads;

use std::sync::Arc;

use sievedb::{
    Bytes, Db, KeyspaceOptions, Options, PrefixExtractor, PrefixFunction, Range,
    clock::ManualClock, stats::LevelStats,
};
use sievedb_doubles::MemoryFs;

const STORE_DIR: &str = "db";

/// Extracts two parts with their slashes.
#[derive(Debug)]
struct TwoParts;

impl PrefixFunction for TwoParts {
    fn name(&self) -> &str {
        "two parts"
    }

    fn prefix_length(&self, key: &[u8]) -> Option<usize> {
        let mut slashes = (0..key.len()).filter(|&at| key[at] == b'/');
        slashes.nth(1).map(|at| at + 1)
    }

    fn determines_prefix(&self, start: &[u8]) -> bool {
        self.prefix_length(start).is_some()
    }
}

/// Extracts the first two bytes, or one if the second is a slash: prefixes of different lengths,
/// some of which extend others.
#[derive(Debug)]
struct OneOrTwo;

impl PrefixFunction for OneOrTwo {
    fn name(&self) -> &str {
        "one or two"
    }

    fn prefix_length(&self, key: &[u8]) -> Option<usize> {
        match key {
            [_] | [_, b'/', ..] => Some(1),
            [_, _, ..] => Some(2),
            [] => None,
        }
    }

    fn determines_prefix(&self, start: &[u8]) -> bool {
        start.len() >= 2
    }
}

/// Returns one extractor of each kind.
fn extractors() -> Vec<PrefixExtractor> {
    vec![
        PrefixExtractor::FixedLength(1),
        PrefixExtractor::FixedLength(4),
        PrefixExtractor::Separator(b'/'),
        PrefixExtractor::Custom(Arc::new(TwoParts)),
        PrefixExtractor::Custom(Arc::new(OneOrTwo)),
    ]
}

fn keyspace(extractor: Option<PrefixExtractor>) -> KeyspaceOptions {
    let options = KeyspaceOptions::new()
        .memtable_bytes(32 << 10)
        .table_bytes(8 << 10)
        .base_level_bytes(16 << 10)
        .block_bytes(1 << 10);
    match extractor {
        Some(extractor) => options.prefix_extractor(extractor),
        None => options,
    }
}

fn options(fs: &Arc<MemoryFs>) -> Options {
    let options = Options::new().fs(fs.clone()).clock(Arc::new(ManualClock::new()));
    options.worker_threads(0).block_cache_bytes(0)
}

/// Opens the store on `fs` with this extractor.
fn open(fs: &Arc<MemoryFs>, extractor: Option<PrefixExtractor>) -> Db {
    options(fs).keyspace(keyspace(extractor)).open(STORE_DIR).unwrap()
}

fn collect(range: Range) -> Vec<(Bytes, Bytes)> {
    range.map(Result::unwrap).collect()
}

/// Returns the sum over all levels.
fn sum(db: &Db, of: impl Fn(&LevelStats) -> u64) -> u64 {
    db.stats().levels.iter().map(of).sum()
}
