//! Memory pinned by callers is reported separately.

use std::sync::Arc;

use sievedb::{Options, ReadOptions};
use sievedb_doubles::MemoryFs;

use crate::{
    MIB,
    counting::{live_bytes, turn},
    runs::store_of_runs,
};

/// Memory pinned by callers is not part of any other figure.
#[test]
fn pinned_bytes_are_reported() {
    let _turn = turn();
    let options = Options::new().fs(Arc::new(MemoryFs::new())).worker_threads(0);
    let db = options.block_cache_bytes(0).open("db").unwrap();
    let value = [7; 1_000];
    for key in 0..2_000_u32 {
        db.insert(key.to_be_bytes(), value).unwrap();
    }
    assert_eq!(db.stats().memory.pinned_bytes, 0);
    let memtable_bytes = db.stats().memory.memtable_bytes;
    let mut iterator = db.iter();
    iterator.next().unwrap().unwrap();
    db.flush().unwrap();
    let memory = db.stats().memory;
    assert!(memory.pinned_bytes > 2_000_000 && memory.pinned_bytes <= memtable_bytes, "{memory:?}");
    assert!(memory.memtable_bytes < 10_000, "{memory:?}");
    drop(iterator);
    assert_eq!(db.stats().memory.pinned_bytes, 0);

    // A value read from a memtable pins only itself.
    db.insert("large", vec![1; 100_000]).unwrap();
    let held = db.get("large").unwrap().unwrap();
    db.flush().unwrap();
    assert_eq!((db.stats().memory.pinned_bytes, held.len()), (0, 100_000));

    // Every 100th key is in a different block.
    let held: Vec<_> = (0..20_u32).map(|i| db.get((i * 100).to_be_bytes()).unwrap()).collect();
    let memory = db.stats().memory;
    assert!((20 * 1_000..20 * 8_192).contains(&memory.pinned_bytes), "{memory:?}");
    drop(held);
    assert_eq!(db.stats().memory.pinned_bytes, 0);
}

/// Read-ahead buffers of scans are reported as pinned, up to a small overhead.
#[test]
fn read_ahead_bytes_are_pinned() {
    const RUNS: u32 = 8;
    const SCANS: usize = 8;

    let _turn = turn();
    for fill_cache in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let db = store_of_runs(dir.path(), 8 * MIB, RUNS);
        let reader =
            db.default_keyspace().with_read_options(ReadOptions::new().fill_cache(fill_cache));
        let walk = || {
            let mut scan = reader.iter();
            for _ in 0..5_000 {
                scan.next().unwrap().unwrap();
                scan.next_back().unwrap().unwrap();
            }
            scan
        };
        drop(walk());
        let (live, before) = (live_bytes(), db.stats().memory);
        assert_eq!(before.pinned_bytes, 0, "fill_cache {fill_cache}");
        let scans: Vec<_> = (0..SCANS).map(|_| walk()).collect();
        let memory = db.stats().memory;
        let pages = memory.block_page_bytes.saturating_sub(before.block_page_bytes) as usize;
        let allocated = live_bytes().saturating_sub(live) + pages;
        let cached = memory.block_cache_bytes.saturating_sub(before.block_cache_bytes);
        let pinned = memory.pinned_bytes as usize;
        println!(
            "fill_cache {fill_cache}: {allocated} allocated, {pinned} pinned, {cached} cached"
        );
        assert!(pinned > SCANS * MIB / 2, "the scans must read ahead");
        // Cursors, keys, block headers, and the spare memory of a cache shard.
        let others = SCANS * 2 * RUNS as usize * (4 << 10) + MIB / 4;
        let told = pinned + cached as usize;
        assert!(allocated <= told + others, "{allocated} allocated, {pinned} + {cached} reported");
        drop(scans);
        assert_eq!(db.stats().memory.pinned_bytes, 0, "fill_cache {fill_cache}");
    }
}

/// Cached blocks are not pinned; evicted ones are.
#[test]
fn cached_blocks_are_not_pinned() {
    let _turn = turn();
    let options = Options::new().fs(Arc::new(MemoryFs::new())).worker_threads(0);
    let db = options.memory_budget(16 << 20).open("db").unwrap();
    for key in 0..5_000_u32 {
        db.insert(key.to_be_bytes(), [key as u8; 300]).unwrap();
    }
    db.flush().unwrap();
    let held: Vec<_> = (0..50_u32).map(|i| db.get((i * 100).to_be_bytes()).unwrap()).collect();
    assert_eq!(db.stats().memory.pinned_bytes, 0);
    let cached = db.stats().memory.block_cache_bytes;
    assert!(cached > 50 * 300);
    db.set_memory_budget(8 << 20).unwrap();
    assert!(db.stats().memory.block_cache_bytes_max <= 8 << 20);
    drop(held);
}
