//! What a store allocates stays within its memory budget, whatever is done with it.
//!
//! A binary of its own: the allocator counts all threads, those of the store too. The tests take turns.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]
#![expect(clippy::print_stdout, reason = "a test tells what it measured")]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    thread,
};

use sievedb::{
    Db, Durability, Error, FilterPolicy, FilterPolicyKind, Keyspace, KeyspaceOptions, Options,
    PrefixExtractor, ReadOptions, fs::MemoryFs, stats::MemoryStats,
};
use sievedb_tests::{rng::Rng, settings};

const MIB: usize = 1 << 20;

/// Counts what is allocated, and the most there ever was.
struct Counting;

static LIVE_BYTES: AtomicUsize = AtomicUsize::new(0);
static PEAK_BYTES: AtomicUsize = AtomicUsize::new(0);

fn grow(bytes: usize) {
    let live = LIVE_BYTES.fetch_add(bytes, Relaxed) + bytes;
    PEAK_BYTES.fetch_max(live, Relaxed);
}

// SAFETY: every call is passed on to the system's allocator as it came; `realloc` by default is made of
// the others, so that old and new memory are counted together.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        grow(layout.size());
        // SAFETY: the caller keeps the contract, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        grow(layout.size());
        // SAFETY: the caller keeps the contract, which is the same.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, old: *mut u8, layout: Layout) {
        LIVE_BYTES.fetch_sub(layout.size(), Relaxed);
        // SAFETY: `old` came from here and so from `System`; the caller keeps the rest.
        unsafe { System.dealloc(old, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What is no part of the budget, and does not grow with the data: the log's buffer, counters of
/// threads, the manifest and what is known of tables and files, what threads have freed and the epoch
/// of the memtables has not yet, and what four threads hold while they write and read.
const FIXED_BYTES: usize = 3 * MIB;

const BUDGET: usize = 24 * MIB;

/// What was seen while a store was filled.
struct Filled {
    /// Bytes from the allocator, at the most.
    peak: usize,
    /// Of filters, at the most: chunks of their arena do not come from the allocator.
    filters: usize,
    memory: MemoryStats,
}

/// Fills twenty keyspaces from four threads.
fn fill(options: &Options, keyspace: &KeyspaceOptions) -> Filled {
    const KEYSPACES: u64 = 20;

    let seed = settings::seed("memory budget", 4);
    let long = std::env::var_os("SIEVE_LONG").is_some();
    let writes_of_each = if long { 400_000 } else { 30_000 };
    let folder = tempfile::tempdir().unwrap();
    let before = LIVE_BYTES.load(Relaxed);
    PEAK_BYTES.store(before, Relaxed);
    let db = options.clone().open(folder.path()).unwrap();
    let keyspaces: Vec<Keyspace> = (0..KEYSPACES)
        .map(|number| db.keyspace_with(&format!("{number}"), keyspace).unwrap())
        .collect();
    let done = AtomicBool::new(false);
    let filters = thread::scope(|scope| {
        let sampler = scope.spawn(|| {
            let mut most = 0;
            while !done.load(Relaxed) {
                most = most.max(db.stats().memory.filter_bytes);
                thread::sleep(std::time::Duration::from_millis(5));
            }
            most as usize
        });
        let writers: Vec<_> = (0..4_u64)
            .map(|number| {
                let keyspaces = &keyspaces;
                scope.spawn(move || write_and_read(keyspaces, seed ^ number << 32, writes_of_each))
            })
            .collect();
        for writer in writers {
            writer.join().unwrap();
        }
        done.store(true, Relaxed);
        sampler.join().unwrap()
    });
    let peak = PEAK_BYTES.load(Relaxed) - before;
    let memory = db.stats().memory;
    println!("peak {peak}, filters {filters}, budget {BUDGET}; {memory:?}");
    println!("{:?}", db.stats().background);
    assert!(db.stats().background.compactions > 0, "the test must do something");
    assert!(memory.memtable_bytes <= memory.memtable_bytes_max);
    Filled { peak, filters, memory }
}

fn small_keyspace() -> KeyspaceOptions {
    KeyspaceOptions::new().base_level_bytes(4 << 20).table_bytes(2 << 20)
}

#[test]
fn the_sum_is_never_exceeded() {
    let _turn = turn();
    // What filters do not take must not hide what others take too much.
    let options = Options::new().memory_budget(BUDGET as u64).filter_bytes_max(512 << 10);
    let Filled { peak, filters, .. } = fill(&options, &small_keyspace());
    let sum = peak + filters;
    assert!(sum <= BUDGET + FIXED_BYTES, "{peak} and {filters} bytes at the most");
}

/// Filters of all roles, in the part that the budget gives them, of which they need a good deal.
#[test]
fn all_filters_lie_in_their_part() {
    // As long as filters are few they come from the allocator.
    const HEAP_BYTES: usize = MIB;

    let _turn = turn();
    let keyspace = small_keyspace()
        .filter_policy(FilterPolicy::new(FilterPolicyKind::Ribbon).bits_per_key(40.0))
        .prefix_extractor(PrefixExtractor::FixedLength(8))
        .range_filter_bits_per_key(40.0);
    let options = Options::new().memory_budget(BUDGET as u64);
    let Filled { peak, filters, memory } = fill(&options, &keyspace);
    let part = memory.filter_bytes_max as usize;
    assert_eq!(part, BUDGET / 4);
    assert!((HEAP_BYTES..=part).contains(&filters), "{filters} bytes of filters, {part} allowed");
    let others = BUDGET - part;
    assert!(peak <= others + HEAP_BYTES + FIXED_BYTES, "{peak} bytes beside {part} of filters");
}

/// Writes to all keyspaces, the first ones more than the others, reads back, and scans.
fn write_and_read(keyspaces: &[Keyspace], seed: u64, writes: u64) {
    let mut rng = Rng::new(seed);
    let value = vec![0x5e; 2_000];
    for number in 0..writes {
        let low = rng.below(keyspaces.len()).min(rng.below(keyspaces.len()));
        let keyspace = &keyspaces[low];
        let key = rng.below(1 << 20).to_be_bytes();
        let mut value = value[..20 + rng.below(1_000)].to_vec();
        // Else all of it is compressed away.
        value.chunks_mut(8).for_each(|word| word[0] = rng.below(256) as u8);
        keyspace.insert(key, &value).unwrap();
        match number % 64 {
            0..8 => {
                keyspace.get(rng.below(1 << 20).to_be_bytes()).unwrap();
            }
            63 => {
                for entry in keyspace.range(key..).take(50) {
                    entry.unwrap();
                }
            }
            _ => {}
        }
    }
}

/// A keyspace that nobody writes to takes next to nothing, and one that had one write a little.
#[test]
fn idle_keyspaces_cost_little() {
    const KEYSPACES: usize = 1_000;

    let _turn = turn();
    let options = Options::new().fs(Arc::new(MemoryFs::new())).worker_threads(0);
    let db = options.memory_budget(16 << 20).open("db").unwrap();
    let before = LIVE_BYTES.load(Relaxed);
    let keyspaces: Vec<Keyspace> =
        (0..KEYSPACES).map(|number| db.keyspace(&format!("{number}")).unwrap()).collect();
    // With their records in the log and the manifest of a disk in memory.
    let each = (LIVE_BYTES.load(Relaxed) - before) / KEYSPACES;
    println!("{each} bytes for an idle keyspace");
    assert!(each < 4 << 10, "{each} bytes each");
    for keyspace in &keyspaces {
        keyspace.insert("key", "value").unwrap();
    }
    let memory = db.stats().memory;
    println!("{memory:?}");
    assert!(memory.memtable_bytes < memory.memtable_bytes_max / 2, "{memory:?}");
    assert!(keyspaces.iter().all(|keyspace| keyspace.contains_key("key").unwrap()));
}

/// What callers hold is told apart, and no part of the rest.
#[test]
fn what_callers_hold_is_told() {
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

    // A value that was read from a memtable keeps its batch, after the memtable is gone too.
    db.insert("large", vec![1; 100_000]).unwrap();
    let held = db.get("large").unwrap().unwrap();
    assert!(db.stats().memory.pinned_bytes < 100, "{:?}", db.stats().memory);
    db.flush().unwrap();
    let memory = db.stats().memory;
    assert!((100_000..101_000).contains(&memory.pinned_bytes), "{memory:?}");
    drop(held);
    assert_eq!(db.stats().memory.pinned_bytes, 0);

    // Each 100th key is in a block of its own.
    let held: Vec<_> = (0..20_u32).map(|i| db.get((i * 100).to_be_bytes()).unwrap()).collect();
    let memory = db.stats().memory;
    assert!((20 * 1_000..20 * 8_192).contains(&memory.pinned_bytes), "{memory:?}");
    drop(held);
    assert_eq!(db.stats().memory.pinned_bytes, 0);
}

/// A store in files, for its disk is not to be counted, of so many flushes, most of them runs still.
fn store_of_runs(folder: &std::path::Path, budget: usize, runs: u32) -> Db {
    // Only what is asked for is compacted.
    let options = Options::new().worker_threads(0).background_rewrites(false);
    let options = options.memory_budget(budget as u64).block_cache_bytes(512 << 10);
    let db = options.open(folder).unwrap();
    let mut rng = Rng::new(7);
    for run in 0..runs {
        for key in 0..2_000_u32 {
            let mut value = [0; 200];
            value.chunks_mut(2).for_each(|word| word[0] = rng.below(256) as u8);
            db.insert((key * runs + run).to_be_bytes(), value).unwrap();
        }
        db.flush().unwrap();
    }
    println!("{} runs", db.stats().keyspaces[0].runs);
    assert!(db.stats().keyspaces[0].runs >= 6, "many runs are the point");
    db
}

/// What scans read ahead is told as pinned, to the byte but for what stands around it.
#[test]
fn what_scans_read_ahead_is_pinned() {
    const RUNS: u32 = 8;
    const SCANS: usize = 8;

    let _turn = turn();
    for fill_cache in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        let db = store_of_runs(folder.path(), 8 * MIB, RUNS);
        let reader = db.with_read_options(ReadOptions::new().fill_cache(fill_cache));
        let walk = || {
            let mut scan = reader.iter();
            for _ in 0..5_000 {
                scan.next().unwrap().unwrap();
                scan.next_back().unwrap().unwrap();
            }
            scan
        };
        drop(walk());
        let (live, before) = (LIVE_BYTES.load(Relaxed), db.stats().memory);
        assert_eq!(before.pinned_bytes, 0, "fill_cache {fill_cache}");
        let scans: Vec<_> = (0..SCANS).map(|_| walk()).collect();
        let allocated = LIVE_BYTES.load(Relaxed).saturating_sub(live);
        let memory = db.stats().memory;
        let cached = memory.block_cache_bytes.saturating_sub(before.block_cache_bytes);
        let pinned = memory.pinned_bytes as usize;
        println!(
            "fill_cache {fill_cache}: {allocated} allocated, {pinned} pinned, {cached} cached"
        );
        assert!(pinned > SCANS * MIB / 2, "the scans must read ahead");
        // Cursors, keys, the headers of blocks, and what a shard of the cache has to spare.
        let others = SCANS * 2 * RUNS as usize * (4 << 10) + MIB / 4;
        let told = pinned + cached as usize;
        assert!(allocated <= told + others, "{allocated} allocated, {pinned} + {cached} told");
        drop(scans);
        assert_eq!(db.stats().memory.pinned_bytes, 0, "fill_cache {fill_cache}");
    }
}

/// What a compaction of many runs reads ahead, and what it buffers to write, is within the part for writing.
#[test]
fn a_compaction_stays_within_the_part_for_writing() {
    const RUNS: u32 = 8;

    let _turn = turn();
    let folder = tempfile::tempdir().unwrap();
    let db = store_of_runs(folder.path(), 8 * MIB, RUNS);
    let before = LIVE_BYTES.load(Relaxed);
    PEAK_BYTES.store(before, Relaxed);
    db.compact().unwrap();
    let peak = PEAK_BYTES.load(Relaxed) - before;
    let memory = db.stats().memory;
    println!("{peak} bytes at the most, {} allowed", memory.writing_bytes_max);
    assert_eq!((db.stats().keyspaces[0].runs, memory.writing_bytes), (1, 0));
    // The outputs' filters, indexes and bounds, and the manifest's buffers.
    let others = MIB / 2;
    assert!(peak <= memory.writing_bytes_max as usize + others, "{peak} bytes at the most");
}

/// Blocks in the cache are not pinned, those driven out of it are.
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
    assert!(db.stats().memory.block_cache_bytes_max <= 3 << 20);
    drop(held);
}

#[test]
fn a_write_that_never_fits_is_refused() {
    let _turn = turn();
    let options = Options::new().fs(Arc::new(MemoryFs::new())).worker_threads(0);
    let db = options.memory_budget(8 << 20).open("db").unwrap();
    let before = db.stats().last_sequence;
    let large = vec![1; 2 * MIB];
    match db.insert("key", &large) {
        Err(Error::WriteTooLarge { bytes, bytes_max }) => {
            assert!(bytes > large.len() as u64);
            assert_eq!(bytes_max, 3 << 19, "three quarters of 2 MiB");
        }
        other => panic!("{other:?}"),
    }
    let mut batch = db.batch();
    for key in 0..20_u8 {
        batch.insert(&db, [key], vec![key; 100_000]).unwrap();
    }
    assert!(matches!(batch.commit(Durability::OsBuffer), Err(Error::WriteTooLarge { .. })));
    assert_eq!(db.stats().last_sequence, before);
    assert!(db.iter().next().is_none());
    // One that fits when all else is flushed waits for that.
    for key in 0..10_u8 {
        db.insert([key], vec![key; 100_000]).unwrap();
    }
    db.insert("key", &large[..MIB]).unwrap();
    assert!(db.stats().background.flushes > 0);
    // With a larger budget it fits.
    db.set_memory_budget(64 << 20).unwrap();
    db.insert("key", &large).unwrap();
    assert_eq!(db.get("key").unwrap().unwrap(), large);
}

/// Of a budget that is changed every part follows, and what is too much is given up.
#[test]
fn the_budget_changes_while_the_store_is_open() {
    let _turn = turn();
    let options = Options::new().fs(Arc::new(MemoryFs::new())).worker_threads(0);
    let db: Db = options.memory_budget(64 << 20).open("db").unwrap();
    let other = db.keyspace("other").unwrap();
    for key in 0..6_000_u32 {
        db.insert(key.to_be_bytes(), [3; 500]).unwrap();
        other.insert(key.to_be_bytes(), [4; 200]).unwrap();
    }
    let limits = |db: &Db| {
        let memory = db.stats().memory;
        let parts = [memory.memtable_bytes_max, memory.filter_bytes_max, memory.writing_bytes_max];
        parts.map(|bytes| bytes >> 20)
    };
    assert_eq!(limits(&db), [16, 16, 8]);
    assert!(db.stats().memory.memtable_bytes > 4 << 20);
    let too_small = db.set_memory_budget(1 << 20);
    assert!(matches!(too_small, Err(Error::BudgetTooSmall { bytes, .. }) if bytes == 1 << 20));
    assert_eq!(limits(&db), [16, 16, 8]);
    db.set_memory_budget(8 << 20).unwrap();
    assert_eq!(limits(&db), [2, 2, 1]);
    assert!(db.stats().memory.memtable_bytes <= 2 << 20, "{:?}", db.stats().memory);
    for key in 0..6_000_u32 {
        assert_eq!(db.get(key.to_be_bytes()).unwrap().unwrap(), [3; 500][..]);
        assert_eq!(other.get(key.to_be_bytes()).unwrap().unwrap(), [4; 200][..]);
    }
    let memory = db.stats().memory;
    assert!(memory.block_cache_bytes <= memory.block_cache_bytes_max, "{memory:?}");
    assert!(memory.block_cache_bytes_max + memory.index_bytes <= 3 << 20, "{memory:?}");
}

/// No part that is raised while the store is open takes the block cache away.
#[test]
fn raising_the_filters_leaves_a_block_cache() {
    let _turn = turn();
    let limits = |db: &Db| {
        let memory = db.stats().memory;
        [memory.filter_bytes_max >> 20, memory.block_cache_bytes_max >> 20]
    };
    let open = |options: Options| {
        options.fs(Arc::new(MemoryFs::new())).worker_threads(0).open("db").unwrap()
    };
    // Some hundred bytes of the cache's part are for indexes.
    let without = open(Options::new());
    assert_eq!(limits(&without), [64, 96]);
    without.set_filter_bytes_max(300 << 20).unwrap();
    assert_eq!(limits(&without), [300, 96]);
    without.set_filter_bytes_max(None).unwrap();
    assert_eq!(limits(&without), [64, 96]);

    let with = open(Options::new().memory_budget(256 << 20));
    let refused = with.set_filter_bytes_max(150 << 20);
    assert!(matches!(refused, Err(Error::BudgetTooSmall { .. })), "{refused:?}");
    assert_eq!(limits(&with), [64, 96]);
    with.set_filter_bytes_max(144 << 20).unwrap();
    assert_eq!(limits(&with), [144, 16]);
    // A smaller budget would have no room for that.
    let refused = with.set_memory_budget(128 << 20);
    assert!(matches!(refused, Err(Error::BudgetTooSmall { .. })), "{refused:?}");
    assert_eq!(limits(&with), [144, 16]);
}
