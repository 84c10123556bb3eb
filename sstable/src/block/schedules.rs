//! What [`residence`](super::residence) promises, under every schedule of a few threads.
//!
//! Run them with `cargo test -p sievedb-sstable --features shuttle --lib schedules`. A failure
//! prints the schedule.
//!
//! Each of these changes to `residence` and `cache`, made by hand, lets at least one of the tests
//! fail: a block is placed although it was evicted; stored in the slot before or behind the lock;
//! not taken out of the slot before; not taken out of its slot when it is evicted, or whatever is
//! in there is; marked as evicted after it was taken out; the slot keeps its index alive; a block
//! that the cache gave up, replaced or did not take is not evicted.

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

use super::{Block, BlockBuilder, BlockRole};
use crate::{
    BlockCache, BlockCounts, CacheUse, Table, TableIdentity, TableOptions, TableWriter,
    handle::BlockHandle,
};

/// Fewer would say that the threads do not take turns.
const SCHEDULES_MIN: usize = 20;

fn run(scheduler: impl Scheduler + 'static, test: impl Fn() + Send + Sync + 'static) -> usize {
    let mut config = Config::new();
    config.stack_size = 256 << 10; // A panic's message takes much.
    config.silence_warnings = true; // Of what `crate::sync` says.
    Runner::new(scheduler, config).run(test)
}

/// Runs `test` under all schedules.
fn every_schedule(test: impl Fn() + Send + Sync + 'static) {
    let schedules = run(DfsScheduler::new(None, false), test);
    eprintln!("{schedules} schedules");
    assert!(schedules >= SCHEDULES_MIN, "{schedules} schedules");
}

/// Runs all `parts` at once, to their ends.
fn at_once<const N: usize>(parts: [Box<dyn FnOnce() + Send>; N]) {
    let threads = parts.map(thread::spawn);
    threads.into_iter().for_each(|thread| thread.join().expect("it does not panic"));
}

fn part(run: impl FnOnce() + Send + 'static) -> Box<dyn FnOnce() + Send> {
    Box::new(run)
}

fn block(role: BlockRole, entries: u8, value: &[u8]) -> Block {
    let mut builder = BlockBuilder::new();
    for key in 0..entries {
        builder.add(InternalKey::new(&[key], Trailer::new(1, Kind::Put)), value);
    }
    let content = Bytes::copy_from_slice(builder.finish());
    Block::decode(content, role, BlockHandle { offset: 64, bytes: 9 }).unwrap()
}

fn data() -> Block {
    block(BlockRole::Data, 1, b"value")
}

/// With two slots.
fn index() -> Block {
    let mut handle = Vec::new();
    BlockHandle { offset: 64, bytes: 9 }.encode(&mut handle);
    block(BlockRole::Index, 2, &handle)
}

/// How many have the block, the caller included.
fn holders(block: &Block) -> usize {
    Arc::strong_count(block.shared())
}

fn is_in(block: &Block, index: &Block, at: usize) -> bool {
    index.below(at).is_some_and(|found| Arc::ptr_eq(found.shared(), block.shared()))
}

fn place(block: &Block, index: &Block, at: usize) -> Box<dyn FnOnce() + Send> {
    let (block, index) = (block.clone(), index.clone());
    part(move || block.place_in(index.shared(), at))
}

fn evict(block: &Block) -> Box<dyn FnOnce() + Send> {
    let block = block.clone();
    part(move || block.evict())
}

/// Looks at what is in the slot for longer than it is there.
fn read(index: &Block, at: usize) -> Box<dyn FnOnce() + Send> {
    let index = index.clone();
    part(move || {
        let found = index.below(at);
        thread::yield_now();
        if let Some(found) = found {
            assert_eq!(found.content().bytes().last_chunk(), Some(b"value"));
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
        assert_eq!(holders(&block), 1, "never again");
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

/// Two readers read the same block, and each places its own copy.
#[test]
fn only_the_evicted_copy_leaves_the_slot() {
    every_schedule(|| {
        let (index, first, second) = (index(), data(), data());
        first.place_in(index.shared(), 0);
        at_once([place(&second, &index, 0), evict(&first), read(&index, 0)]);
        assert!(is_in(&second, &index, 0), "nobody has given it up");
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

/// The last to have an index, or the last table that had it, goes: with all that was in its slots.
#[test]
fn an_index_that_is_gone_holds_nothing() {
    every_schedule(|| {
        let (index, block) = (index(), data());
        block.place_in(index.shared(), 0);
        let (upper, lower) = (block.clone(), index.clone());
        // One reader takes the block to the same place again, as all others let go of the index.
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
        // Each in a block of its own.
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

/// The cache gives up the block of this key.
fn removing(table: &Arc<Table>, key: usize) -> Box<dyn FnOnce() + Send> {
    let handle = table.top_index().handle_at(key);
    let table = Arc::clone(table);
    part(move || drop(table.remove_cached(handle)))
}

/// What slots have is what the cache has.
fn check(table: &Table, cache: &BlockCache) {
    for at in 0..table.top_index().entries() {
        let handle = table.top_index().handle_at(at);
        let cached = table.cached(handle, BlockRole::Data, CacheUse::Bypass);
        if let Some(found) = table.top_index().below(at) {
            let cached = cached.expect("a slot has what the cache gave up");
            assert!(Arc::ptr_eq(found.shared(), cached.shared()), "it is another copy");
        }
    }
    assert_eq!(cache.pinned_bytes(), 0);
}

const AMPLE: u64 = 1 << 20;

/// The real cache, of which each call is one step.
#[test]
fn slots_of_a_table_have_what_the_cache_has() {
    type Parts = fn(&Arc<Table>) -> [Box<dyn FnOnce() + Send>; 2];
    let cases: [(&str, u64, bool, Parts); 5] = [
        ("two read the same block", AMPLE, false, |table| [getting(table, 1), getting(table, 1)]),
        ("read, given up", AMPLE, false, |table| [getting(table, 1), removing(table, 1)]),
        ("found, given up", AMPLE, true, |table| [getting(table, 1), removing(table, 1)]),
        ("nothing is kept", 0, false, |table| [getting(table, 1), getting(table, 1)]),
        ("compacted away", AMPLE, true, |table| {
            let compacted = Arc::clone(table);
            [getting(table, 1), part(move || compacted.give_up_cached(|_| ()))]
        }),
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
            assert_eq!(cache.pinned_bytes(), 0, "nobody has a block");
        });
    }
}

/// Too many schedules to run all of them.
#[test]
fn many_threads_leave_slots_and_cache_alike() {
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
        assert_eq!(get(&table, 1).blocks_read, 0, "it was read just now");
        check(&table, &cache);
    });
}
