//! Scan resistance of the block cache: blocks read per 1,000 hits, alternating with scans.
//!
//! ```sh
//! cargo run --release -p sievedb-benches --example cache -- 100000
//! ```
//!
//! One table, with keys of 16 bytes and values of 100. Hits have a Zipf distribution of exponent
//! 0.99; popular keys are `scattered` or adjacent (`clustered`). A long scan reads 1/16 of the
//! data, once per `keys / 8` hits. A short scan reads 50 entries from a random key on, once per 40
//! hits. Meant to compare two versions of the code.

#![expect(clippy::print_stdout, reason = "that is what it is for")]

use std::{env, error::Error, sync::Arc};

use bytes::Bytes;
use sievedb_benches::key;
use sievedb_format::{InternalKey, Kind, SEQUENCE_MAX, Trailer};
use sievedb_sstable::{
    BlockCache, BlockCounts, CacheUse, Table, TableCursor, TableIdentity, TableOptions, TableWriter,
};
use sievedb_workload::{
    random::{Permutation, Random},
    value_of,
    zipf::Zipf,
};

const IDENTITY: TableIdentity = TableIdentity { store_id: 1, file_id: 2, salt: 3, hash_seed: 4 };
/// Cache sizes in percent of the data.
const CACHES: [u64; 4] = [10, 20, 30, 50];
/// The first third warms up.
const ROUNDS: u64 = 48;
const SHORT_SCAN: u64 = 50;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scans {
    None,
    Long,
    Short,
}

/// A table in memory.
struct Stored {
    keys: Vec<[u8; 16]>,
    bytes: Bytes,
}

impl Stored {
    fn new(keys: u64) -> Result<Self> {
        let mut keys: Vec<_> = (0..keys).map(key).collect();
        keys.sort_unstable();
        let mut writer = TableWriter::new(Vec::new(), IDENTITY, TableOptions::new())?;
        for key in &keys {
            writer.add(InternalKey::new(key, Trailer::new(1, Kind::Put)), &value_of(key, 1))?;
        }
        Ok(Self { keys, bytes: writer.finish()?.0.into() })
    }

    fn open(&self, cache: &Arc<BlockCache>) -> Result<Arc<Table>> {
        let source = Arc::new(self.bytes.clone());
        let table = Table::open(source, IDENTITY, self.bytes.len() as u64, Arc::clone(cache))?;
        Ok(Arc::new(table))
    }

    /// Returns the bytes of a cache that holds all blocks.
    fn cached_bytes(&self) -> Result<u64> {
        let cache = Arc::new(BlockCache::new(4 << 30));
        let mut cursor = self.open(&cache)?.cursor(CacheUse::Fill);
        cursor.seek_to_first()?;
        step(&mut cursor, self.keys.len() as u64)?;
        Ok(cache.memory_bytes())
    }

    /// Returns the blocks read per 1,000 hits.
    fn hits(&self, cache: u64, zipf: &Zipf, clustered: bool, scans: Scans) -> Result<f64> {
        let keys = self.keys.len() as u64;
        let table = self.open(&Arc::new(BlockCache::new(cache)))?;
        let (place, mut random) = (Permutation::new(keys, 1), Random::new(2));
        let mut long = Arc::clone(&table).cursor(CacheUse::Fill);
        let (mut counts, mut hits) = (BlockCounts::default(), 0);
        for round in 0..ROUNDS {
            if round == ROUNDS / 3 {
                (counts, hits) = (BlockCounts::default(), 0);
            }
            for number in 0..keys / 8 {
                let rank = zipf.draw(&mut random);
                let at = if clustered { rank } else { place.at(rank) };
                table.get(&self.keys[usize::try_from(at)?], SEQUENCE_MAX, &mut counts)?;
                hits += 1;
                if scans == Scans::Short && number % 40 == 0 {
                    let first = &self.keys[usize::try_from(random.below(keys))?];
                    let mut short = Arc::clone(&table).cursor(CacheUse::Fill);
                    short.seek(InternalKey::seek(first, SEQUENCE_MAX))?;
                    step(&mut short, SHORT_SCAN)?;
                }
            }
            if scans == Scans::Long {
                if !long.is_positioned() {
                    long.seek_to_first()?;
                }
                step(&mut long, keys / 16)?;
            }
        }
        Ok(counts.blocks_read as f64 * 1e3 / f64::from(hits))
    }
}

/// Runs up to `entries` steps.
fn step(cursor: &mut TableCursor, entries: u64) -> Result<()> {
    for _ in 0..entries {
        if cursor.is_positioned() {
            cursor.next()?;
        }
    }
    Ok(())
}

fn main() -> Result<()> {
    let keys: u64 = env::args().nth(1).map_or(Ok(10_000), |number| number.parse())?;
    let (stored, zipf) = (Stored::new(keys)?, Zipf::new(keys, 0.99));
    let all = stored.cached_bytes()?;
    for (name, clustered) in [("scattered", false), ("clustered", true)] {
        for scans in [Scans::None, Scans::Long, Scans::Short] {
            for percent in CACHES {
                let read = stored.hits(all * percent / 100, &zipf, clustered, scans)?;
                println!("{name}, scans {scans:?}, cache {percent} %: {read:.1} blocks");
            }
        }
    }
    Ok(())
}
