//! Cached content in pages, and the memory charged to the cache.

use std::{io, sync::Arc};

use bytes::Bytes;
use sievedb_format::SEQUENCE_MAX;
use sievedb_sstable::{
    BlockCache, BlockCounts, CacheUse, Compression, CursorOptions, Table, TableOptions, TableSource,
};

use crate::{
    allocations,
    support::{Built, Entry, build},
};

const PAGE_BYTES: u64 = 4096;

fn entries(count: u64, value_bytes: usize) -> Vec<Entry> {
    let mut state = 7_u64;
    let mut byte = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    let mut put = |n: u64| {
        let value: Vec<u8> = (0..value_bytes).map(|_| byte()).collect();
        Entry::put(format!("user{n:08}").as_bytes(), n + 1, &value)
    };
    (0..count).map(&mut put).collect()
}

/// A source that copies.
#[derive(Debug)]
struct File(Vec<u8>);

impl TableSource for File {
    fn len(&self) -> u64 {
        self.0.len() as u64
    }

    fn read_at(&self, offset: u64, bytes: usize) -> io::Result<Bytes> {
        Ok(Bytes::copy_from_slice(&self.0[offset as usize..][..bytes]))
    }
}

fn open_source(built: &Built, source: Arc<dyn TableSource>, cache: &Arc<BlockCache>) -> Arc<Table> {
    let table = Table::open(source, built.identity, built.summary.bytes, Arc::clone(cache));
    Arc::new(table.unwrap())
}

fn open(built: &Built, cache: &Arc<BlockCache>) -> Arc<Table> {
    open_source(built, Arc::new(Bytes::from(built.bytes.clone())), cache)
}

fn get(table: &Table, entry: &Entry) -> Bytes {
    let found = table.get(&entry.user_key, SEQUENCE_MAX, &mut BlockCounts::default());
    let (_, value) = found.unwrap().unwrap();
    assert_eq!(value, entry.value);
    value
}

fn scan(table: &Arc<Table>, options: impl Into<CursorOptions>) {
    let mut cursor = Arc::clone(table).cursor(options);
    cursor.seek_to_first().unwrap();
    while cursor.key().is_some() {
        cursor.next().unwrap();
    }
}

/// The content of a cached block is in pages, however it was read.
#[test]
fn n8_cached_blocks_lie_in_pages() {
    let entries = entries(3_000, 100);
    for compression in [Compression::None, Compression::Lz4] {
        let built = build(&entries, TableOptions::new().compression(compression));
        let blocks = |table: &Table| table.properties().data_blocks * PAGE_BYTES;
        let cache = Arc::new(BlockCache::new(64 << 20));
        let table = open(&built, &cache);
        entries.iter().for_each(|entry| drop(get(&table, entry)));
        // The last block may be short.
        let pages = cache.page_bytes();
        assert!((blocks(&table) - PAGE_BYTES..=blocks(&table)).contains(&pages), "{pages}");

        let cache = Arc::new(BlockCache::new(64 << 20));
        let table = open(&built, &cache);
        let options = CursorOptions { read_ahead_bytes_max: 64 << 10, ..CacheUse::Fill.into() };
        scan(&table, options);
        let pages = cache.page_bytes();
        assert!((blocks(&table) - PAGE_BYTES..=blocks(&table)).contains(&pages), "{pages}");
        cache.set_capacity_bytes(0);
        assert_eq!(cache.page_bytes(), 0);
        scan(&table, CacheUse::Bypass);
        assert_eq!(cache.page_bytes(), 0);
    }
}

/// Partitions are in pages even if data blocks of their length are not.
#[test]
fn n1_index_partitions_lie_in_pages() {
    const PARTITION_BYTES: usize = 5 << 10;
    let entries = entries(30_000, 100);
    // Data blocks of 1 KiB are on the heap: they would waste most of a page.
    let options = TableOptions::new().compression(Compression::None).block_bytes(1 << 10);
    let built = build(&entries, options.index_partition_bytes(PARTITION_BYTES));
    let cache = Arc::new(BlockCache::new(64 << 20));
    let table = open(&built, &cache);
    entries.iter().for_each(|entry| drop(get(&table, entry)));
    let partitions = table.properties().index_partitions;
    assert!(partitions > 4, "{partitions} partitions");
    let pages = cache.page_bytes() / PAGE_BYTES;
    // The last one may be short.
    assert!((2 * partitions - 2..=2 * partitions).contains(&pages), "{pages} of {partitions}");
}

/// Simulates a thousand keyspaces with a few entries each.
#[test]
fn n1_blocks_of_tiny_tables_take_no_page() {
    let entries = entries(10, 50);
    let built = build(&entries, TableOptions::new());
    let cache = Arc::new(BlockCache::new(64 << 20));
    let tables: Vec<_> = (0..1_000).map(|_| open(&built, &cache)).collect();
    tables.iter().for_each(|table| drop(get(table, &entries[5])));
    assert_eq!((cache.len(), cache.page_bytes()), (1_000, 0));
    assert!(cache.memory_bytes() < 2 << 20, "{} bytes", cache.memory_bytes());
}

/// Blocks that are not cached are not copied.
#[test]
fn n7_a_cache_without_capacity_takes_no_page() {
    let entries = entries(1_000, 100);
    let built = build(&entries, TableOptions::new());
    let cache = Arc::new(BlockCache::new(0));
    let table = open(&built, &cache);
    let held: Vec<_> = entries.iter().step_by(100).map(|entry| get(&table, entry)).collect();
    assert_eq!(cache.page_bytes(), 0);
    cache.set_capacity_bytes(1 << 20);
    let _kept = get(&table, &entries[0]);
    assert_eq!(cache.page_bytes(), PAGE_BYTES);
    cache.set_capacity_bytes(0);
    let _other = get(&table, &entries[500]);
    assert_eq!(cache.page_bytes(), PAGE_BYTES, "the page of the pinned value");
    drop(held);
}

/// Blocks are copied from the read-ahead buffer to pages, without another copy.
#[test]
fn n7_blocks_read_ahead_are_copied_once() {
    let entries = entries(20_000, 100);
    let built = build(&entries, TableOptions::new().compression(Compression::None));
    let cache = Arc::new(BlockCache::new(64 << 20));
    let table = open(&built, &cache);
    let options = CursorOptions { read_ahead_bytes_max: 64 << 10, ..CursorOptions::default() };
    let ((), bytes) = allocations::bytes_in(|| scan(&table, options));
    let blocks = table.properties().data_blocks;
    assert!(cache.len() as u64 >= blocks, "the scan fills the cache");
    // Tags and heads, the block, its slot, and the entry of the cache. The source is in memory, so
    // read-ahead allocates nothing.
    let allowed = blocks * 1_500;
    assert!((bytes as u64) < allowed, "{bytes} bytes for {blocks} blocks");
}

/// Compares allocations, with the overhead of the allocator, and pages with the charged memory.
/// Free pages kept for reuse are not charged: 1/64 of the others, at most 1 MiB.
#[test]
fn n4_the_cache_is_charged_with_all_its_memory() {
    // Tolerance for arrays of the cache that have just grown.
    const FIXED_BYTES: u64 = 6 << 10;
    for block_bytes in [1 << 10, 4_096, 5_000, 16 << 10] {
        let entries = entries(15_000, 100);
        let built = build(&entries, TableOptions::new().block_bytes(block_bytes));
        for cache_bytes in [128 << 10, 768 << 10, 64 << 20] {
            let cache = Arc::new(BlockCache::new(cache_bytes));
            let file = Arc::new(File(built.bytes.clone()));
            let table = open_source(&built, file, &cache);
            let before = allocations::live_bytes() as u64;
            for _ in 0..2 {
                for n in 0..entries.len() {
                    drop(get(&table, &entries[n * 7919 % entries.len()]));
                }
                let held = allocations::live_bytes() as u64 - before + cache.page_bytes();
                let charged = cache.memory_bytes();
                let allowed = charged + (charged / 64).min(1 << 20) + FIXED_BYTES;
                assert!(held <= allowed, "{block_bytes}: {held} bytes held, {allowed} allowed");
            }
        }
    }
}
