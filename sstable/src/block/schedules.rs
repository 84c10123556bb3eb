//! Model checking of [`residence`](super::residence): every schedule of a few threads.
//!
//! Run them with `cargo test -p sievedb-sstable --features shuttle --lib schedules`. A failure
//! prints the schedule.
//!
//! Each of these mutations of `residence` and `cache` fails at least one test:
//!
//! * an evicted block is placed;
//! * the slot is stored outside of the lock;
//! * the former slot is not cleared;
//! * an eviction does not clear the slot, or clears it of another block;
//! * the block is marked as evicted after the slot was cleared;
//! * the slot keeps its index alive;
//! * a block that the cache evicted, replaced or refused is not evicted from its slot.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::{
    env,
    sync::{Arc, LazyLock},
};

use bytes::Bytes;
use shuttle::{
    Config, Runner,
    scheduler::{DfsScheduler, RandomScheduler, Scheduler},
    thread,
};
use sievedb_format::{InternalKey, Kind, SEQUENCE_MAX, Trailer};

use super::{Block, BlockBuilder, BlockHandle, BlockRole};
use crate::{BlockCache, BlockCounts, CacheUse, Table, TableIdentity, TableOptions, TableWriter};

/// Fewer schedules would mean that the threads do not interleave.
const SCHEDULES_MIN: usize = 20;

fn run(scheduler: impl Scheduler + 'static, test: impl Fn() + Send + Sync + 'static) -> usize {
    let mut config = Config::new();
    config.stack_size = 256 << 10; // A panic message needs it.
    config.silence_warnings = true; // About sequential consistency: see `crate::sync`.
    Runner::new(scheduler, config).run(test)
}

/// Runs `test` under all schedules.
fn every_schedule(test: impl Fn() + Send + Sync + 'static) {
    let schedules = run(DfsScheduler::new(None, false), test);
    eprintln!("{schedules} schedules");
    assert!(schedules >= SCHEDULES_MIN, "{schedules} schedules");
}

/// Runs all `parts` concurrently.
fn at_once<const N: usize>(parts: [Box<dyn FnOnce() + Send>; N]) {
    let threads = parts.map(thread::spawn);
    threads.into_iter().for_each(|thread| thread.join().expect("it does not panic"));
}

fn part(run: impl FnOnce() + Send + 'static) -> Box<dyn FnOnce() + Send> {
    Box::new(run)
}

fn block(role: BlockRole, values: &[&[u8]]) -> Block {
    let mut builder = BlockBuilder::default();
    for (key, value) in (0..).zip(values) {
        builder.add(InternalKey::new(&[key], Trailer::new(1, Kind::Put)), value);
    }
    let content = Bytes::copy_from_slice(builder.finish());
    Block::decode(content, role, BlockHandle { offset: 64, bytes: 9 }).unwrap()
}

fn data() -> Block {
    block(BlockRole::Data, &[b"value"])
}

/// An index with two slots.
fn index() -> Block {
    let [first, second] = [64, 128].map(|offset| {
        let mut handle = Vec::new();
        BlockHandle { offset, bytes: 9 }.encode(&mut handle);
        handle
    });
    block(BlockRole::Index, &[&first, &second])
}

/// Returns the strong count of the block, the caller included.
fn holders(block: &Block) -> usize {
    Arc::strong_count(block.shared())
}

fn is_in(block: &Block, index: &Block, at: usize) -> bool {
    index.child(at).is_some_and(|found| Arc::ptr_eq(found.shared(), block.shared()))
}

fn place(block: &Block, index: &Block, at: usize) -> Box<dyn FnOnce() + Send> {
    let (block, index) = (block.clone(), index.clone());
    part(move || block.place_in(index.shared(), at))
}

fn evict(block: &Block) -> Box<dyn FnOnce() + Send> {
    let block = block.clone();
    part(move || block.evict())
}

/// Reads the block in the slot, possibly after its eviction.
fn read(index: &Block, at: usize) -> Box<dyn FnOnce() + Send> {
    let index = index.clone();
    part(move || {
        let found = index.child(at);
        thread::yield_now();
        if let Some(found) = found {
            assert_eq!(found.bytes.last_chunk(), Some(b"value"));
            drop(found.into_block());
        }
    })
}

#[test]
fn an_evicted_block_is_in_no_slot() {
    every_schedule(|| {
        let (index, block) = (index(), data());
        at_once([place(&block, &index, 0), evict(&block), read(&index, 0)]);
        assert_eq!(holders(&block), 1);
        block.place_in(index.shared(), 1);
        assert_eq!(holders(&block), 1, "an evicted block is not placed");
    });
}

#[test]
fn a_block_is_in_one_slot() {
    every_schedule(|| {
        let (old, new, block) = (index(), index(), data());
        at_once([place(&block, &old, 0), place(&block, &new, 0), place(&block, &new, 1)]);
        assert_eq!(holders(&block), 2);
        block.evict();
        assert_eq!(holders(&block), 1);
    });
    every_schedule(|| {
        let (old, new, block) = (index(), index(), data());
        block.place_in(old.shared(), 0);
        at_once([place(&block, &new, 0), evict(&block), read(&old, 0)]);
        assert_eq!(holders(&block), 1);
    });
}

/// Two readers place their own copies of the same block.
#[test]
fn only_the_evicted_copy_leaves_the_slot() {
    every_schedule(|| {
        let (index, first, second) = (index(), data(), data());
        first.place_in(index.shared(), 0);
        at_once([place(&second, &index, 0), evict(&first), read(&index, 0)]);
        assert!(is_in(&second, &index, 0), "the second copy was not evicted");
        assert_eq!((holders(&first), holders(&second)), (1, 2));
    });
    every_schedule(|| {
        let (index, first, second) = (index(), data(), data());
        at_once([place(&first, &index, 0), place(&second, &index, 0), evict(&first)]);
        assert_eq!(holders(&first), 1);
        assert_eq!(holders(&second), 1 + usize::from(is_in(&second, &index, 0)));
        second.evict();
        assert_eq!(holders(&second), 1);
    });
}

/// Dropping the last reference to an index drops the blocks in its slots.
#[test]
fn a_dropped_index_releases_its_blocks() {
    every_schedule(|| {
        let (index, block) = (index(), data());
        block.place_in(index.shared(), 0);
        let (upper, lower) = (block.clone(), index.clone());
        // One reader places the block again while all others drop the index.
        at_once([part(move || upper.place_in(lower.shared(), 0)), evict(&block)]);
        drop(index);
        assert_eq!(holders(&block), 1);
    });
    every_schedule(|| {
        let (old, new, block) = (index(), index(), data());
        block.place_in(old.shared(), 0);
        at_once([part(move || drop(old)), place(&block, &new, 0)]);
        assert_eq!(holders(&block), 2);
        drop(new);
        assert_eq!(holders(&block), 1);
    });
    every_schedule(|| {
        let (index, block) = (index(), data());
        block.place_in(index.shared(), 0);
        at_once([part(move || drop(index)), evict(&block)]);
        assert_eq!(holders(&block), 1);
    });
}

/// A table with a few data blocks below one index.
struct Built {
    bytes: Bytes,
    identity: TableIdentity,
    keys: Vec<Vec<u8>>,
}

static BUILT: LazyLock<Built> = LazyLock::new(|| {
    let identity = TableIdentity { store_id: 1, file_id: 2, salt: 3, hash_seed: 4 };
    let options = TableOptions::new().block_bytes(1 << 10);
    let mut writer = TableWriter::new(Vec::new(), identity, options).unwrap();
    let keys: Vec<_> = (0..4_u8).map(|key| vec![key; 8]).collect();
    for key in &keys {
        // One block per key.
        writer.add(InternalKey::new(key, Trailer::new(5, Kind::Put)), &key.repeat(100)).unwrap();
    }
    let (bytes, _) = writer.finish().unwrap();
    Built { bytes: bytes.into(), identity, keys }
});

fn open(cache_bytes: u64) -> (Arc<Table>, Arc<BlockCache>) {
    let cache = Arc::new(BlockCache::new(cache_bytes));
    let source = Arc::new(BUILT.bytes.clone());
    let bytes = BUILT.bytes.len() as u64;
    let table = Table::open(source, BUILT.identity, bytes, Arc::clone(&cache)).unwrap();
    assert_eq!(table.top_index().entries(), BUILT.keys.len());
    (Arc::new(table), cache)
}

fn get(table: &Table, key: usize) -> BlockCounts {
    let mut counts = BlockCounts::default();
    let user_key = &BUILT.keys[key];
    let found = table.get(user_key, SEQUENCE_MAX, &mut counts).unwrap();
    let (_, value) = found.expect("the table has the key");
    assert_eq!(value, user_key.repeat(100));
    counts
}

fn getting(table: &Arc<Table>, key: usize) -> Box<dyn FnOnce() + Send> {
    let table = Arc::clone(table);
    part(move || {
        get(&table, key);
    })
}

/// Evicts the block of this key.
fn removing(table: &Arc<Table>, key: usize) -> Box<dyn FnOnce() + Send> {
    let handle = table.top_index().handle_at(key);
    let table = Arc::clone(table);
    part(move || drop(table.remove_cached(handle)))
}

/// Checks that slots hold only cached blocks.
fn check(table: &Table, cache: &BlockCache) {
    for at in 0..table.top_index().entries() {
        let handle = table.top_index().handle_at(at);
        let cached = table.cached(handle, BlockRole::Data, CacheUse::Bypass);
        if let Some(found) = table.top_index().child(at) {
            let cached = cached.expect("the slot holds an evicted block");
            assert!(Arc::ptr_eq(found.shared(), cached.shared()), "the slot holds another copy");
        }
    }
    assert_eq!(cache.pinned_bytes(), 0);
}

const AMPLE: u64 = 1 << 20;

/// Uses the real cache, where each call is one step.
#[test]
fn slots_hold_only_cached_blocks() {
    type Parts = fn(&Arc<Table>) -> [Box<dyn FnOnce() + Send>; 2];
    let cases: [(&str, u64, bool, Parts); 4] = [
        ("two read the same block", AMPLE, false, |table| [getting(table, 1), getting(table, 1)]),
        ("read and evicted", AMPLE, false, |table| [getting(table, 1), removing(table, 1)]),
        ("found and evicted", AMPLE, true, |table| [getting(table, 1), removing(table, 1)]),
        ("cache of no capacity", 0, false, |table| [getting(table, 1), getting(table, 1)]),
    ];
    for (name, cache_bytes, is_warm, parts) in cases {
        eprintln!("{name}");
        every_schedule(move || {
            let (table, cache) = open(cache_bytes);
            if is_warm {
                get(&table, 1);
            }
            at_once(parts(&table));
            check(&table, &cache);
            drop(table);
            cache.set_capacity_bytes(0);
            assert_eq!(cache.pinned_bytes(), 0, "all blocks are freed");
        });
    }
}

/// Random schedules, because there are too many to run all.
#[test]
fn many_threads_keep_slots_and_cache_consistent() {
    let seed = env::var("SIEVE_SEED").map_or(0, |seed| seed.parse().expect("a number"));
    eprintln!("SIEVE_SEED={seed}");
    run(RandomScheduler::new_from_seed(seed, 3_000), || {
        let (table, cache) = open(AMPLE);
        get(&table, 2);
        at_once([
            getting(&table, 1),
            getting(&table, 1),
            removing(&table, 1),
            getting(&table, 2),
            removing(&table, 2),
            removing(&table, 1),
        ]);
        check(&table, &cache);
        assert!(get(&table, 1).blocks_read <= 1);
        assert_eq!(get(&table, 1).blocks_read, 0, "the block is cached");
        check(&table, &cache);
    });
}
