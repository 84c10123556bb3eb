//! Blocks in the cache and in the slots of their index: which are kept, and that others are let go
//! of.

use std::{
    sync::{Arc, Barrier},
    thread,
};

use bytes::Bytes;
use sievedb_format::{InternalKey, SEQUENCE_MAX};
use sievedb_sstable::{BlockCache, BlockCounts, CacheUse, Compression, Table, TableOptions};

use crate::{
    allocations,
    support::{Built, Entry, build},
};

const ENTRIES: u64 = 12_000;

/// Some hundred data blocks below some dozen partitions.
fn built() -> (Vec<Entry>, Built) {
    let put = |n: u64| Entry::put(format!("user{n:08}").as_bytes(), n + 1, &[n as u8; 100]);
    let entries: Vec<_> = (0..ENTRIES).map(put).collect();
    // Then what is in memory is as long as what is in the file.
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

/// The entries in an order that jumps.
fn jumping(entries: &[Entry]) -> impl Iterator<Item = &Entry> + Clone {
    (0..entries.len()).map(|n| &entries[n * 7919 % entries.len()])
}

#[test]
fn evicted_blocks_are_let_go_of() {
    let (entries, built) = built();
    for (name, cache_bytes) in [("no cache", 0), ("small", 128 << 10), ("half", 800 << 10)] {
        let cache = Arc::new(BlockCache::new(cache_bytes));
        let table = open(&built, &cache);
        let mut counts = BlockCounts::default();
        for entry in jumping(&entries) {
            drop(get(&table, entry, &mut counts));
            assert!(cache.memory_bytes() <= cache_bytes, "{name}");
        }
        assert_eq!(cache.pinned_bytes(), 0, "{name}");
        let held = get(&table, &entries[0], &mut counts);
        cache.set_capacity_bytes(0);
        assert_eq!((cache.len(), cache.memory_bytes()), (0, 0), "{name}");
        assert!((100..20_000).contains(&cache.pinned_bytes()), "{name}: the value has its block");
        assert_eq!(held, entries[0].value);
        drop(held);
        assert_eq!(cache.pinned_bytes(), 0, "{name}: nobody has a block");
    }
}

#[test]
fn a_table_that_is_gone_leaves_no_block_behind_but_in_the_cache() {
    let (entries, built) = built();
    let cache = Arc::new(BlockCache::new(64 << 20));
    let table = open(&built, &cache);
    let mut counts = BlockCounts::default();
    let held = get(&table, &entries[3000], &mut counts);
    jumping(&entries).for_each(|entry| drop(get(&table, entry, &mut counts)));
    drop(table);
    cache.set_capacity_bytes(0);
    assert!(cache.pinned_bytes() > 0);
    assert_eq!(held, entries[3000].value);
    drop(held);
    assert_eq!(cache.pinned_bytes(), 0);
}

#[test]
fn a_hit_allocates_nothing_and_asks_for_the_same_blocks_as_a_miss() {
    let (entries, built) = built();
    let cache = Arc::new(BlockCache::new(64 << 20));
    let table = open(&built, &cache);
    let (mut first, mut second) = (BlockCounts::default(), BlockCounts::default());
    jumping(&entries).for_each(|entry| drop(get(&table, entry, &mut first)));
    let hits = || jumping(&entries).for_each(|entry| drop(get(&table, entry, &mut second)));
    let ((), allocations) = allocations::count_in(hits);
    assert_eq!(allocations, 0);
    assert_eq!((second.blocks_read, second.bytes_read), (0, 0));
    assert_eq!(second.data_block_requests, first.data_block_requests);
    assert_eq!(second.index_block_requests, first.index_block_requests);
}

/// What is read without filling the cache is right, and changes nothing there.
#[test]
fn reads_past_the_cache_keep_nothing() {
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
    assert!(jumping(&entries).step_by(50).all(|entry| read(entry) == 2));
    assert!(cache.is_empty());
    assert_eq!(cache.pinned_bytes(), 0);
    jumping(&entries).for_each(|entry| drop(get(&table, entry, &mut BlockCounts::default())));
    assert!(jumping(&entries).step_by(50).all(|entry| read(entry) == 0), "what is there is used");
}

/// Readers find the right values while blocks, and the partitions above them, come and go; and
/// at the end none is kept that the cache does not know.
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
                    jumping(entries).cycle().skip(thread * 501).take(30_000).enumerate()
                {
                    // A few keys that all ask for, too: the same block is read by several at once.
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
    assert_eq!(cache.pinned_bytes(), 0, "no slot has a block that the cache gave up");
}
