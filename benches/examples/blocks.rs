//! Cost of the data block size: space, memory, lookups and scans of one table.
//!
//! ```sh
//! cargo run --release -p sievedb-benches --example blocks -- 1000000
//! ```
//!
//! Keys have 16 bytes, and values 100 bytes of which half compresses. Times are the thread's CPU
//! time, medians of interleaved rounds. `cold` reads, checks and decompresses a block per lookup. A
//! second argument selects a single measurement, run without a clock for a profiler.
//!
//! On two cores of an AMD EPYC, family 26, in ns, or in bytes per key with filter and index:
//!
//! | block KiB | file | cached | read for a cold hit | hit | absent | seek | scan | backward | cold |
//! |---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|
//! | 2 | 77.4 | 148.2 | 1279 | 720 | 593 | 1337 | 67 | 73 | 2472 |
//! | 4 | 76.3 | 133.2 | 2600 | 652 | 562 | 1154 | 49 | 54 | 2864 |
//! | 8 | 75.6 | 126.3 | 5166 | 641 | 504 | 1086 | 37 | 38 | 4017 |
//! | 16 | 75.6 | 123.1 | 10343 | 695 | 499 | 1093 | 30 | 30 | 6749 |
//! | 32 | 75.5 | 121.8 | 20680 | 770 | 660 | 1172 | 21 | 22 | 11215 |
//!
//! The default is 4 KiB, one page. For mostly scans, use 16 KiB.

#![expect(clippy::print_stdout, reason = "that is what it is for")]

use std::{env, error::Error, hint::black_box, sync::Arc};

use bytes::Bytes;
use sievedb_benches::{KEY_BYTES, key};
use sievedb_format::{InternalKey, Kind, SEQUENCE_MAX, Trailer};
use sievedb_sstable::{
    BlockCache, BlockCounts, CacheUse, Table, TableIdentity, TableOptions, TableWriter,
};
use sievedb_workload::{clock::thread_cpu_time, random::Random, value_of};

const BLOCK_KIB: [usize; 5] = [2, 4, 8, 16, 32];
const ROUNDS: usize = 9;
const LOOKUPS: u64 = 20_000;
const IDENTITY: TableIdentity = TableIdentity { store_id: 1, file_id: 2, salt: 3, hash_seed: 4 };

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// A table in memory, opened twice: with a cache for all blocks, and without a cache.
struct Contestant {
    block_kib: usize,
    file_bytes: u64,
    cache: Arc<BlockCache>,
    cached: Arc<Table>,
    cold: Arc<Table>,
}

type Work = fn(&Contestant, u64) -> Result<u64>;

/// Operations by name. Each returns their number.
const WORKS: [(&str, Work); 6] = [
    ("hit", |it, keys| lookups(&it.cached, 0, keys).map(|_| LOOKUPS)),
    ("absent", |it, keys| lookups(&it.cached, keys, keys).map(|_| LOOKUPS)),
    ("seek", |it, keys| seeks(&it.cached, keys)),
    ("forward", |it, _| scan(&it.cached, true)),
    ("backward", |it, _| scan(&it.cached, false)),
    ("cold", |it, keys| lookups(&it.cold, 0, keys).map(|_| LOOKUPS)),
];

fn open(block_kib: usize, sorted: &[(u64, [u8; KEY_BYTES])]) -> Result<Contestant> {
    // One resident index level, so that only data blocks are measured.
    let options = TableOptions::new().block_bytes(block_kib << 10).index_partition_bytes(1 << 20);
    let mut writer = TableWriter::new(Vec::new(), IDENTITY, options)?;
    for (index, key) in sorted {
        let trailer = Trailer::new(index + 1, Kind::Put);
        writer.add(InternalKey::new(key, trailer), &value_of(key, 1))?;
    }
    let (bytes, summary) = writer.finish()?;
    let bytes = Bytes::from(bytes);
    let cache = Arc::new(BlockCache::new(4 << 30));
    let table = |cache| Table::open(Arc::new(bytes.clone()), IDENTITY, summary.bytes, cache);
    let cached = Arc::new(table(Arc::clone(&cache))?);
    let cold = Arc::new(table(Arc::new(BlockCache::new(0)))?);
    Ok(Contestant { block_kib, file_bytes: summary.bytes, cache, cached, cold })
}

/// Looks up random keys numbered from `first` on. Returns the bytes read.
fn lookups(table: &Table, first: u64, keys: u64) -> Result<u64> {
    let mut counts = BlockCounts::default();
    let mut random = Random::new(7);
    for _ in 0..LOOKUPS {
        let key = key(first + random.below(keys));
        let found = table.get(&key, SEQUENCE_MAX, &mut counts)?;
        assert_eq!(found.is_some(), first == 0);
        black_box(found);
    }
    Ok(counts.bytes_read)
}

fn seeks(table: &Arc<Table>, keys: u64) -> Result<u64> {
    let mut random = Random::new(7);
    let mut cursor = Arc::clone(table).cursor(CacheUse::Fill);
    for _ in 0..LOOKUPS {
        cursor.seek(InternalKey::seek(&key(random.below(keys)), SEQUENCE_MAX))?;
        assert!(black_box(cursor.key()).is_some());
    }
    Ok(LOOKUPS)
}

fn scan(table: &Arc<Table>, is_forward: bool) -> Result<u64> {
    let mut cursor = Arc::clone(table).cursor(CacheUse::Fill);
    let mut entries = 0;
    if is_forward {
        cursor.seek_to_first()?;
    } else {
        cursor.seek_to_last()?;
    }
    while let Some(key) = cursor.key() {
        black_box(key);
        entries += 1;
        if is_forward {
            cursor.next()?;
        } else {
            cursor.prev()?;
        }
    }
    Ok(entries)
}

fn main() -> Result<()> {
    let mut arguments = env::args().skip(1);
    let keys = arguments.next().map_or(Ok(20_000), |count| count.parse())?;
    let only = arguments.next();
    let mut sorted: Vec<_> = (0..keys).map(|index| (index, key(index))).collect();
    sorted.sort_unstable_by_key(|&(_, key)| key);
    if let Some(only) = only {
        let it = open(4, &sorted)?;
        scan(&it.cached, true)?;
        let work = WORKS.into_iter().find(|(name, _)| *name == only).ok_or("no such work")?;
        println!("{} operations", work.1(&it, keys)?);
        return Ok(());
    }
    let contestants = BLOCK_KIB.map(|block_kib| open(block_kib, &sorted));
    let contestants: Vec<_> = contestants.into_iter().collect::<Result<_>>()?;
    let mut times = vec![[const { Vec::new() }; WORKS.len()]; contestants.len()];
    for _ in 0..ROUNDS {
        for (it, times) in contestants.iter().zip(&mut times) {
            for ((_, work), times) in WORKS.into_iter().zip(times) {
                let from = thread_cpu_time();
                let operations = work(it, keys)?;
                let ns = (thread_cpu_time() - from).as_nanos();
                times.push(ns as f64 / operations as f64);
            }
        }
    }
    let names = WORKS.map(|(name, _)| format!("{name} ns")).join(" | ");
    println!("| block KiB | file bytes a key | cached bytes a key | bytes a cold hit | {names} |");
    println!("|---:|---:|---:|---:|{}", "---:|".repeat(WORKS.len()));
    for (it, times) in contestants.iter().zip(&mut times) {
        let of_keys = |bytes: u64| bytes as f64 / keys as f64;
        let (file, cached) = (of_keys(it.file_bytes), of_keys(it.cache.memory_bytes()));
        let read = lookups(&it.cold, 0, keys)? / LOOKUPS;
        let medians = times.each_mut().map(|times| {
            times.sort_by(f64::total_cmp);
            format!("{:.0}", times[ROUNDS / 2])
        });
        let medians = medians.join(" | ");
        println!("| {} | {file:.1} | {cached:.1} | {read} | {medians} |", it.block_kib);
    }
    Ok(())
}
