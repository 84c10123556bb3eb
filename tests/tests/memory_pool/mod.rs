//! Several stores share a memory pool.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

mod stores;

use std::{
    panic::{self, AssertUnwindSafe},
    sync::Arc,
    thread,
    time::Duration,
};

use sievedb::{
    Db, Durability, Error, FilterPolicy, KeyspaceOptions, MemoryPool, Options, PoolStats,
    clock::ManualClock, stats::BudgetSource,
};
use sievedb_doubles::{Call, Fault, FaultFs, MemoryFs, Times};

const MIB: u64 = 1 << 20;

/// Memory that all stores may use above the pool between two adjustments.
const STEP: u64 = MIB;

fn options(pool: &MemoryPool, workers: usize) -> Options {
    Options::new().fs(Arc::new(MemoryFs::new())).worker_threads(workers).memory_pool(pool)
}

fn open(pool: &MemoryPool, workers: usize) -> Db {
    options(pool, workers).open("db").unwrap()
}

/// Writes about `bytes` incompressible bytes, from the key `first` on.
fn write(db: &Db, first: u64, bytes: u64) {
    for number in first..first + bytes / 1_000 {
        db.insert(number.to_be_bytes(), value(number)).unwrap();
    }
}

fn value(number: u64) -> Vec<u8> {
    let mut state = number;
    let next = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695);
        (state >> 56) as u8
    };
    (0..1_000).map(next).collect()
}

fn read(db: &Db, bytes: u64) {
    for _ in 0..2 {
        for number in 0..bytes / 1_000 {
            assert_eq!(db.get(number.to_be_bytes()).unwrap().unwrap(), value(number)[..]);
        }
    }
}

fn used(stats: &PoolStats) -> u64 {
    stats.memtable_bytes
        + stats.filter_bytes
        + stats.index_bytes
        + stats.bookkeeping_bytes
        + stats.writing_bytes
        + stats.block_cache_bytes
}

/// Checks the sum of all uses. Background work may move memory between two parts while they are
/// read: one of several sums must be within the limit.
fn check_sum(pool: &MemoryPool) {
    let mut stats = pool.stats();
    for _ in 0..10 {
        if used(&stats) <= stats.budget_bytes + STEP {
            return;
        }
        thread::sleep(Duration::from_millis(1));
        stats = pool.stats();
    }
    panic!("{stats:?}");
}

#[test]
fn pool_sum_of_all_uses_stays_within_its_size() {
    let pool = MemoryPool::new(24 * MIB);
    let (a, b) = (open(&pool, 0), open(&pool, 1));
    for round in 0..12 {
        write(&a, round * 1_000, MIB);
        check_sum(&pool);
    }
    write(&b, 0, 4 * MIB);
    b.flush().unwrap();
    read(&b, 4 * MIB);
    check_sum(&pool);
    read(&a, 12_000_000);
    check_sum(&pool);
    for round in 0..12 {
        write(&b, round * 1_000, MIB);
        write(&a, round * 1_000, MIB);
        check_sum(&pool);
    }
    // A compaction that ends between the statistics gives its memory to the cache.
    a.wait_for_background().unwrap();
    b.wait_for_background().unwrap();
    let (of_a, of_b, all) = (a.stats().memory, b.stats().memory, pool.stats());
    assert_eq!((of_a.budget_bytes, of_a.budget_source), (24 * MIB, Some(BudgetSource::Pool)));
    assert_eq!(all.stores, 2);
    assert_eq!(all.index_bytes, of_a.index_bytes + of_b.index_bytes);
    // One cache.
    assert_eq!(of_a.block_cache_bytes_max, of_b.block_cache_bytes_max);
}

#[test]
fn pool_cache_gets_memory_of_flushed_idle_memtables() {
    let clock = Arc::<ManualClock>::default();
    let pool = MemoryPool::new(32 * MIB);
    let writer = options(&pool, 1).clock(Arc::clone(&clock) as _).open("db").unwrap();
    let reader = open(&pool, 0);
    write(&reader, 0, 28 * MIB);
    reader.flush().unwrap();
    write(&writer, 0, 2 * MIB);
    let held = writer.stats().memory.memtable_bytes;
    assert!(held > 2 * MIB, "{held}");
    read(&reader, 28 * MIB);
    let before = pool.stats().block_cache_bytes_max;
    // The worker checks again when it is notified or after some time, and then finds the store
    // idle.
    for _ in 0..20 {
        if writer.stats().memory.memtable_bytes < MIB {
            break;
        }
        clock.advance(Duration::from_secs(3));
        read(&reader, 28 * MIB);
        writer.wait_for_background().unwrap();
    }
    assert!(writer.stats().memory.memtable_bytes < MIB, "{:?}", writer.stats().memory);
    read(&reader, MIB);
    let after = pool.stats().block_cache_bytes_max;
    assert!(after >= before + MIB, "{before} {after}");
}

/// The memtables of an idle store are flushed for one that writes, which waits only for its own.
#[test]
fn pool_writer_gets_memtable_memory_of_idle_stores() {
    let pool = MemoryPool::new(64 * MIB);
    let idle = open(&pool, 1);
    let limit = |db: &Db| db.stats().memory.memtable_bytes_max;
    assert_eq!(limit(&idle), 16 * MIB);
    // Half of the limit: no memtable is frozen.
    write(&idle, 0, 7 * MIB);
    let held = idle.stats().memory.memtable_bytes;
    assert!(held > 7 * MIB, "{held}");
    let writer = open(&pool, 0);
    assert!(limit(&writer) >= 4 * MIB, "a quarter is always its own");
    assert!(limit(&writer) < 10 * MIB, "{}", limit(&writer));
    write(&writer, 0, 5 * MIB);
    idle.wait_for_background().unwrap();
    assert!(idle.stats().memory.memtable_bytes < 2 * MIB, "{:?}", idle.stats().memory);
    assert!(limit(&writer) > 11 * MIB, "{}", limit(&writer));
}

#[test]
fn pool_write_above_the_limit_of_its_store_succeeds() {
    let pool = MemoryPool::new(64 * MIB);
    // Without workers it flushes only when called.
    let holder = open(&pool, 0);
    write(&holder, 0, 7 * MIB);
    let writer = open(&pool, 0);
    write(&writer, 0, 2 * MIB);
    let limit = writer.stats().memory.memtable_bytes_max;
    assert!(limit < 10 * MIB, "{limit}");
    writer.insert("large", vec![7; 10 << 20]).unwrap();
    let refused = writer.insert("larger", vec![7; 13 << 20]).unwrap_err();
    assert!(matches!(refused, Error::WriteTooLarge { .. }), "{refused:?}");
    assert_eq!(writer.get("large").unwrap().unwrap().len(), 10 << 20);
}

#[test]
fn pool_closed_store_releases_all_memory() {
    let pool = MemoryPool::new(32 * MIB);
    let alone = open(&pool, 0).stats().memory;
    let (a, b) = (open(&pool, 0), open(&pool, 0));
    write(&a, 0, 3 * MIB);
    a.flush().unwrap();
    read(&a, 3 * MIB);
    write(&a, 0, 2 * MIB);
    assert!(pool.stats().block_cache_bytes > 2 * MIB);
    assert!(b.stats().memory.block_cache_bytes_max < alone.block_cache_bytes_max - 2 * MIB);
    a.close().unwrap();
    let of_b = b.stats().memory;
    assert_eq!(of_b.block_cache_bytes, 0, "the blocks of a closed store go");
    assert_eq!(of_b.block_cache_bytes_max, alone.block_cache_bytes_max);
    assert_eq!(of_b.memtable_bytes_max, alone.memtable_bytes_max);
    assert_eq!(of_b.filter_bytes_max, alone.filter_bytes_max);
    assert_eq!(of_b.writing_bytes_max, alone.writing_bytes_max);
    assert_eq!(pool.stats().stores, 1);
}

#[test]
fn pool_set_bytes_shrinks_all_parts() {
    let pool = MemoryPool::new(64 * MIB);
    let (a, b) = (open(&pool, 1), open(&pool, 0));
    write(&b, 0, 24 * MIB);
    b.flush().unwrap();
    read(&b, 24 * MIB);
    write(&a, 0, 4 * MIB);
    assert!(a.stats().memory.memtable_bytes > 4 * MIB, "nothing is frozen");
    assert!(used(&pool.stats()) > 24 * MIB);
    pool.set_bytes(16 * MIB).unwrap();
    let shrunk = pool.stats();
    assert!(shrunk.block_cache_bytes + shrunk.memtable_bytes <= 17 * MIB, "{shrunk:?}");
    a.wait_for_background().unwrap();
    check_sum(&pool);
    assert!(a.stats().memory.memtable_bytes < 2 * MIB, "{:?}", a.stats().memory);
    let refused = pool.set_bytes(15 * MIB).unwrap_err();
    assert!(matches!(refused, Error::BudgetTooSmall { bytes_min, .. } if bytes_min == 16 * MIB));
    assert_eq!(pool.stats().budget_bytes, 16 * MIB);
    pool.set_bytes(64 * MIB).unwrap();
    assert!(pool.stats().block_cache_bytes_max > 40 * MIB);
    assert!(b.stats().memory.filter_bytes_max >= 8 * MIB, "{:?}", b.stats().memory);
}

#[test]
fn pool_refuses_stores_that_do_not_fit() {
    let pool = MemoryPool::new(24 * MIB);
    let refused = |options: Options| match options.open("db").unwrap_err() {
        Error::InvalidOption { name, .. } => name,
        Error::BudgetTooSmall { what, .. } => what,
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(options(&pool, 0).memory_budget(8 * MIB)), "memory_budget");
    assert_eq!(refused(options(&pool, 0).block_cache_bytes(MIB)), "block_cache_bytes");
    assert_eq!(refused(options(&pool, 7)), "a memory_pool");
    assert_eq!(pool.stats().stores, 0);
    let stores = [open(&pool, 0), open(&pool, 2), open(&pool, 2)];
    assert_eq!(refused(options(&pool, 0)), "a memory_pool");
    let budget = stores[0].set_memory_budget(64 * MIB).unwrap_err();
    assert!(matches!(budget, Error::InvalidOption { name: "memory_budget", .. }), "{budget:?}");
    let default = stores[0].set_memory_budget(None).unwrap_err();
    assert!(matches!(default, Error::InvalidOption { name: "memory_budget", .. }), "{default:?}");
    assert_eq!(pool.stats().stores, 3);
}

#[test]
fn pool_explicit_part_limits_apply_to_a_store() {
    let pool = MemoryPool::new(64 * MIB);
    let db = options(&pool, 0).memtable_bytes_max(2 * MIB).filter_bytes_max(MIB).open("db");
    let db = db.unwrap();
    let memory = db.stats().memory;
    assert_eq!((memory.memtable_bytes_max, memory.filter_bytes_max), (2 * MIB, MIB));
    db.set_filter_bytes_max(3 * MIB).unwrap();
    assert_eq!(db.stats().memory.filter_bytes_max, 3 * MIB);
    db.set_filter_bytes_max(None).unwrap();
    assert_eq!(db.stats().memory.filter_bytes_max, 16 * MIB);
    let other = open(&pool, 0);
    // The other 2 MiB are the minimum of the small store.
    assert_eq!(other.stats().memory.memtable_bytes_max, 14 * MIB);
}

#[test]
fn pool_has_no_store_after_a_failed_open() {
    let pool = MemoryPool::new(16 * MIB);
    let fs = Arc::new(FaultFs::new(Arc::new(MemoryFs::new())));
    let open = || options(&pool, 1).fs(Arc::clone(&fs) as _).open("db");
    drop(open().unwrap());
    for call in [Call::List, Call::Lock, Call::ReadAt] {
        fs.inject(Fault::new(5, Times::Once).calls(&[call]));
        assert!(open().is_err(), "{call:?}");
        assert_eq!(pool.stats().stores, 0, "{call:?}");
        fs.inject(Fault::panic(Times::Once).calls(&[call]));
        assert!(panic::catch_unwind(AssertUnwindSafe(open)).is_err(), "{call:?}");
        assert_eq!(pool.stats().stores, 0, "{call:?}");
    }
    let db = open().unwrap();
    assert_eq!(db.stats().memory.memtable_bytes_max, 4 * MIB);
}

#[test]
fn pool_serves_read_only_stores() {
    let fs = Arc::new(MemoryFs::new());
    let written = Options::new().fs(Arc::clone(&fs) as _).worker_threads(0).open("db").unwrap();
    write(&written, 0, 4 * MIB);
    written.flush().unwrap();
    write(&written, 0, MIB);
    written.close().unwrap();
    let pool = MemoryPool::new(24 * MIB);
    let open = || options(&pool, 0).fs(Arc::clone(&fs) as _).read_only(true).open("db").unwrap();
    let (reader, other, writer) = (open(), open(), self::open(&pool, 0));
    read(&reader, 4 * MIB);
    write(&writer, 0, 4 * MIB);
    read(&other, 4 * MIB);
    check_sum(&pool);
    let stats = pool.stats();
    let memtables = [&reader, &other, &writer].map(|db| db.stats().memory.memtable_bytes);
    assert_eq!(stats.memtable_bytes, memtables.iter().sum::<u64>());
}

/// A store that joins gets a share of the filter limit, which another one had alone.
#[test]
fn pool_filters_of_all_stores_stay_within_their_limit() {
    const CEILING: u64 = 1 << 19;
    const EDGES: u64 = 64 << 10;
    let pool = MemoryPool::new(24 * MIB);
    let fill = || {
        let policy = FilterPolicy::default().bits_per_key(24.0);
        let keyspace = KeyspaceOptions::new().filter_policy(policy);
        let options = options(&pool, 1).keyspace(keyspace).filter_bytes_max(CEILING);
        let db = options.open("db").unwrap();
        for group in 0..200_u64 {
            let mut batch = db.batch();
            for key in group * 1_000..(group + 1) * 1_000 {
                batch.insert(&db, key.to_be_bytes(), []).unwrap();
            }
            batch.commit(Durability::Memory).unwrap();
        }
        db.flush().unwrap();
        db.wait_for_background().unwrap();
        db
    };
    let first = fill();
    let filters = |db: &Db| db.stats().memory.filter_bytes;
    assert!(filters(&first) > CEILING / 8 * 7, "{}", filters(&first));
    let second = fill();
    let (mut of_first, mut of_second) = (u64::MAX / 2, 0);
    for _ in 0..100 {
        // Memory that one drops can be used by the other.
        first.wait_for_background().unwrap();
        second.wait_for_background().unwrap();
        (of_first, of_second) = (filters(&first), filters(&second));
        if of_first + of_second <= CEILING + EDGES && of_second > CEILING / 8 {
            break;
        }
        thread::sleep(Duration::from_millis(10));
    }
    assert!(of_first + of_second <= CEILING + EDGES, "{of_first} {of_second}");
    assert!(of_second > CEILING / 8, "{of_second}");
    first.close().unwrap();
    second.wait_for_background().unwrap();
    assert!(filters(&second) > CEILING / 8 * 7, "{}", filters(&second));
}

/// A failed sync makes a store read-only. Its filters still give way to those of another store.
#[test]
fn pool_store_after_a_failed_sync_drops_filters() {
    const CEILING: u64 = 1 << 19;
    const EDGES: u64 = 64 << 10;
    let pool = MemoryPool::new(24 * MIB);
    for workers in [0, 1] {
        let faults = Arc::new(FaultFs::new(Arc::new(MemoryFs::new())));
        let policy = FilterPolicy::default().bits_per_key(24.0);
        let options = options(&pool, workers)
            .keyspace(KeyspaceOptions::new().filter_policy(policy))
            .filter_bytes_max(CEILING);
        let open = |options: Options| {
            let db = options.open("db").unwrap();
            for key in 0..200_000_u64 {
                db.insert(key.to_be_bytes(), []).unwrap();
            }
            db.flush().unwrap();
            db.wait_for_background().unwrap();
            db
        };
        let filters = |db: &Db| db.stats().memory.filter_bytes;
        let failed = open(options.clone().fs(faults.clone()));
        assert!(filters(&failed) > CEILING / 8 * 7, "{}", filters(&failed));
        faults.inject(Fault::new(5, Times::ForGood).calls(&Call::SYNCS));
        failed.insert("unsynced", "").unwrap();
        failed.persist(Durability::Disk).unwrap_err();
        assert!(failed.stats().read_only.is_some());
        let second = open(options);
        let is_divided = || {
            let _ = failed.wait_for_background();
            second.wait_for_background().unwrap();
            filters(&failed) <= CEILING / 8 * 5 && filters(&second) > CEILING / 8 * 3
        };
        for _ in 0..500 {
            if is_divided() {
                break;
            }
            thread::sleep(Duration::from_millis(10));
        }
        assert!(is_divided(), "{} {}", filters(&failed), filters(&second));
        assert!(filters(&failed) + filters(&second) <= CEILING + EDGES);
        assert!(failed.contains_key(7_u64.to_be_bytes()).unwrap());
    }
}
