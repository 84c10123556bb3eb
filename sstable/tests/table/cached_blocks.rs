//! Blocks in the cache and in index slots: retention and release.

use std::{
    sync::{Arc, Barrier},
    thread,
};

use bytes::Bytes;
use sievedb_format::{InternalKey, SEQUENCE_MAX};
use sievedb_sstable::{BlockCache, BlockCounts, CacheUse, Compression, Table, TableOptions};

use crate::{
    allocations,
    lookup::Mapped,
    support::{Built, Entry, build},
};

const ENTRIES: u64 = 12_000;

/// A table with hundreds of data blocks and dozens of partitions.
fn built() -> (Vec<Entry>, Built) {
    let put = |n: u64| Entry::put(format!("user{n:08}").as_bytes(), n + 1, &[n as u8; 100]);
    let entries: Vec<_> = (0..ENTRIES).map(put).collect();
    // Uncompressed, so that blocks are as long in memory as in the file.
    let options = TableOptions::new().index_partition_bytes(1 << 10).compression(Compression::None);
    let built = build(&entries, options);
    (entries, built)
}

fn open(built: &Built, cache: &Arc<BlockCache>) -> Arc<Table> {
    let source = Arc::new(Bytes::from(built.bytes.clone()));
    let table = Table::open(source, built.identity, built.summary.bytes, Arc::clone(cache));
    Arc::new(table.unwrap())
}

fn get(table: &Table, entry: &Entry, counts: &mut BlockCounts) -> Bytes {
    let (_, value) = table.get(&entry.user_key, SEQUENCE_MAX, counts).unwrap().unwrap();
    assert_eq!(value, entry.value);
    value
}

/// Returns the entries in a scattered order.
fn scattered(entries: &[Entry]) -> impl Iterator<Item = &Entry> + Clone {
    (0..entries.len()).map(|n| &entries[n * 7919 % entries.len()])
}

#[test]
fn evicted_blocks_are_freed() {
    let (entries, built) = built();
    for (name, cache_bytes) in [("no cache", 0), ("small", 128 << 10), ("half", 800 << 10)] {
        let cache = Arc::new(BlockCache::new(cache_bytes));
        let table = open(&built, &cache);
        let mut counts = BlockCounts::default();
        for entry in scattered(&entries) {
            drop(get(&table, entry, &mut counts));
            assert!(cache.memory_bytes() <= cache_bytes, "{name}");
        }
        assert_eq!(cache.pinned_bytes(), 0, "{name}");
        let held = get(&table, &entries[0], &mut counts);
        cache.set_capacity_bytes(0);
        assert_eq!((cache.len(), cache.memory_bytes()), (0, 0), "{name}");
        assert!((100..20_000).contains(&cache.pinned_bytes()), "{name}: the value pins its block");
        assert_eq!(held, entries[0].value);
        drop(held);
        assert_eq!(cache.pinned_bytes(), 0, "{name}: all blocks are freed");
    }
}

#[test]
fn a_dropped_table_leaves_blocks_in_the_cache_only() {
    let (entries, built) = built();
    let cache = Arc::new(BlockCache::new(64 << 20));
    let table = open(&built, &cache);
    let mut counts = BlockCounts::default();
    let held = get(&table, &entries[3000], &mut counts);
    scattered(&entries).for_each(|entry| drop(get(&table, entry, &mut counts)));
    drop(table);
    cache.set_capacity_bytes(0);
    assert!(cache.pinned_bytes() > 0);
    assert_eq!(held, entries[3000].value);
    drop(held);
    assert_eq!(cache.pinned_bytes(), 0);
}

/// Blocks in the cache would keep the map, and so the space of a deleted file.
#[test]
fn a_dropped_table_leaves_no_block_of_its_map() {
    let (entries, built) = built();
    // In a small cache, blocks outlive the partition above them.
    for cache_bytes in [64 << 20, 400 << 10, 100 << 10] {
        let cache = Arc::new(BlockCache::new(cache_bytes));
        let file = Bytes::from(built.bytes.clone());
        let source = Arc::new(Mapped(file.clone()));
        let bytes = built.summary.bytes;
        let table = Table::open(source, built.identity, bytes, Arc::clone(&cache)).unwrap();
        let other = open(&built, &cache);
        get(&other, &entries[0], &mut BlockCounts::default());
        let mut counts = BlockCounts::default();
        let held = get(&table, &entries[3000], &mut counts);
        scattered(&entries).for_each(|entry| drop(get(&table, entry, &mut counts)));
        table.evict_when_dropped();
        let table = Arc::new(table);
        let mut cursor = Arc::clone(&table).cursor(CacheUse::Fill);
        cursor.seek_to_first().unwrap();
        while cursor.is_positioned() {
            cursor.next().unwrap();
        }
        get(&other, &entries[0], &mut BlockCounts::default());
        drop((cursor, table));
        assert!(!file.is_unique(), "a value keeps the map");
        assert_eq!(held, entries[3000].value);
        drop(held);
        assert!(file.is_unique(), "{cache_bytes}: {} blocks are left", cache.len());
        let mut counts = BlockCounts::default();
        get(&other, &entries[0], &mut counts);
        assert!(cache_bytes < 1 << 20 || counts.blocks_read == 0, "blocks of another table stay");
    }
}

#[test]
fn a_hit_allocates_nothing_and_requests_the_same_blocks_as_a_miss() {
    let (entries, built) = built();
    let cache = Arc::new(BlockCache::new(64 << 20));
    let table = open(&built, &cache);
    let (mut first, mut second) = (BlockCounts::default(), BlockCounts::default());
    scattered(&entries).for_each(|entry| drop(get(&table, entry, &mut first)));
    let hits = || scattered(&entries).for_each(|entry| drop(get(&table, entry, &mut second)));
    let ((), allocations) = allocations::count_in(hits);
    assert_eq!(allocations, 0);
    assert_eq!((second.blocks_read, second.bytes_read), (0, 0));
    assert_eq!(second.data_block_requests, first.data_block_requests);
    assert_eq!(second.index_block_requests, first.index_block_requests);
}

/// Reads that bypass the cache return correct values and do not change it.
#[test]
fn bypassing_reads_cache_nothing() {
    let (entries, built) = built();
    let cache = Arc::new(BlockCache::new(64 << 20));
    let table = open(&built, &cache);
    let read = |entry: &Entry| {
        let mut counts = BlockCounts::default();
        let target = InternalKey::seek(&entry.user_key, SEQUENCE_MAX);
        let value = table.get_with(target, CacheUse::Bypass, &mut counts, |_, value| {
            assert_eq!(value.as_slice(), entry.value);
        });
        assert_eq!(value.unwrap(), Some(()));
        counts.blocks_read
    };
    assert!(scattered(&entries).step_by(50).all(|entry| read(entry) == 2));
    assert!(cache.is_empty());
    assert_eq!(cache.pinned_bytes(), 0);
    scattered(&entries).for_each(|entry| drop(get(&table, entry, &mut BlockCounts::default())));
    assert!(
        scattered(&entries).step_by(50).all(|entry| read(entry) == 0),
        "cached blocks are used"
    );
}

/// Readers find correct values during evictions, and slots hold no evicted block at the end.
#[test]
fn threads_share_slots() {
    const THREADS: usize = 4;
    let (entries, built) = built();
    let cache = Arc::new(BlockCache::new(256 << 10));
    let table = open(&built, &cache);
    let start = Barrier::new(THREADS + 1);
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (entries, table, start) = (&entries, &table, &start);
            scope.spawn(move || {
                let mut counts = BlockCounts::default();
                start.wait();
                for (n, entry) in
                    scattered(entries).cycle().skip(thread * 501).take(30_000).enumerate()
                {
                    // A few shared keys, so that threads read the same block concurrently.
                    let entry = if n % 4 == 0 { &entries[n % 640] } else { entry };
                    drop(get(table, entry, &mut counts));
                }
            });
        }
        start.wait();
        for n in 0..200 {
            cache.set_capacity_bytes(if n % 2 == 0 { 64 << 10 } else { 256 << 10 });
            thread::yield_now();
        }
    });
    assert_eq!(cache.pinned_bytes(), 0);
    cache.set_capacity_bytes(0);
    assert_eq!(cache.pinned_bytes(), 0, "no slot holds an evicted block");
}
