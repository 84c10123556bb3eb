//! Many keyspaces.

#![expect(clippy::disallowed_methods, reason = "it copies the files of a store that is open")]

use std::{fs, sync::Arc};

use sievedb::{Db, Durability, Keyspace, Options};
use sievedb_doubles::MemoryFs;

use crate::{
    MIB,
    counting::{forget_peak, live_bytes, peak_bytes, turn},
};

/// A keyspace without writes uses almost no memory, and one with a single write a little.
#[test]
fn idle_keyspaces_use_little_memory() {
    const KEYSPACES: usize = 1_000;

    let _turn = turn();
    let options = Options::new().fs(Arc::new(MemoryFs::new())).worker_threads(0);
    let db = options.memory_budget(16 << 20).open("db").unwrap();
    let before = live_bytes();
    let keyspaces: Vec<Keyspace> =
        (0..KEYSPACES).map(|number| db.keyspace(&format!("{number}")).unwrap()).collect();
    // Includes their records in the log and manifest of an in-memory disk.
    let each = (live_bytes() - before) / KEYSPACES;
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

/// A small live table uses little memory besides its filter and blocks, and less than is charged.
#[test]
fn n3_small_live_table_uses_little_memory() {
    const KEYSPACES: usize = 500;
    const TABLE_BYTES_MAX: usize = 2_300;

    let _turn = turn();
    let dir = tempfile::tempdir().unwrap();
    let options = Options::new().memory_budget(64 << 20).worker_threads(0);
    let db = options.open(dir.path()).unwrap();
    let keyspaces: Vec<Keyspace> =
        (0..KEYSPACES).map(|number| db.keyspace(&format!("{number}")).unwrap()).collect();
    let charged = || {
        let memory = db.stats().memory;
        (memory.index_bytes + memory.bookkeeping_bytes) as usize
    };
    // The second table of each keyspace counts: the first flush leaves other allocations.
    let flush_all = || {
        for keyspace in &keyspaces {
            for number in 0..100_u64 {
                keyspace.insert(number.to_be_bytes(), [7; 50]).unwrap();
            }
            keyspace.flush().unwrap();
        }
        (live_bytes(), charged())
    };
    let (first, second) = (flush_all(), flush_all());
    assert_eq!(db.stats().levels[0].tables as usize, 2 * KEYSPACES);
    let allocated = (second.0 - first.0) / KEYSPACES;
    let charged = (second.1 - first.1) / KEYSPACES;
    println!("{allocated} bytes for a live table, {charged} charged");
    assert!(allocated <= TABLE_BYTES_MAX, "{allocated} bytes for a live table");
    assert!(charged >= allocated, "{charged} bytes charged, {allocated} allocated");
}

/// Writes a small table into each keyspace, `rounds` times. Returns the bytes written by
/// compactions per byte flushed.
fn flush_in_turn(db: &Db, keyspaces: &[Keyspace], rounds: std::ops::Range<u64>) -> f64 {
    for round in rounds {
        for keyspace in keyspaces {
            for number in 0..20_u64 {
                let key = (round + number * 1_000).to_be_bytes();
                keyspace.insert(key, round.to_be_bytes()).unwrap();
            }
            keyspace.flush().unwrap();
        }
    }
    let done = db.stats().background;
    done.compaction_bytes_written as f64 / done.flush_bytes_written as f64
}

fn open_keyspaces(budget: usize, count: usize) -> (Db, Vec<Keyspace>) {
    let options = Options::new().fs(Arc::new(MemoryFs::new())).worker_threads(0);
    let db = options.memory_budget(budget as u64).open("db").unwrap();
    let keyspaces = (0..count).map(|number| db.keyspace(&format!("{number}")).unwrap()).collect();
    (db, keyspaces)
}

fn tables(db: &Db) -> usize {
    db.stats().levels.iter().map(|level| level.tables as usize).sum()
}

/// 8 MiB suffice for 256 tables. Small tables of more keyspaces are merged at low write
/// amplification.
#[test]
fn n3_small_tables_above_the_memory_limit_are_merged() {
    const KEYSPACES: usize = 200;
    const ROUNDS: u64 = 12;

    let _turn = turn();
    let (db, keyspaces) = open_keyspaces(8 * MIB, KEYSPACES);
    let (mut most, mut rewritten) = (0, 0.0);
    for round in 0..ROUNDS {
        rewritten = flush_in_turn(&db, &keyspaces, round..round + 1);
        most = most.max(tables(&db));
    }
    println!("{most} tables, {rewritten:.2} bytes rewritten for each flushed");
    assert!(most <= 2 * 256, "{most} tables");
    assert!(rewritten < 4.0, "{rewritten} bytes rewritten for each flushed");
    for keyspace in &keyspaces {
        assert_eq!(keyspace.iter().count() as u64, 20 * ROUNDS);
    }
}

/// A store whose number of keyspaces alone exceeds the limit has nothing left to merge. It becomes
/// idle and delays no write.
#[test]
fn n3_store_above_the_table_limit_becomes_idle() {
    const KEYSPACES: usize = 900;

    let _turn = turn();
    let (db, keyspaces) = open_keyspaces(8 * MIB, KEYSPACES);
    let rewritten = flush_in_turn(&db, &keyspaces, 0..3);
    println!("{} tables, {rewritten:.2} bytes rewritten for each flushed", tables(&db));
    assert!((KEYSPACES..KEYSPACES * 5 / 4).contains(&tables(&db)), "{} tables", tables(&db));
    db.wait_for_background().unwrap();
    let before = db.stats();
    assert_eq!(before.write_delay_us, 0);
    keyspaces[0].insert("key", "value").unwrap();
    db.wait_for_background().unwrap();
    let after = db.stats();
    assert_eq!(after.background.compactions, before.background.compactions);
    assert_eq!(after.writes.stalls, before.writes.stalls);
}

/// A store with memory for its tables merges none early.
#[test]
fn n3_store_below_the_table_limit_merges_nothing_early() {
    let _turn = turn();
    let (db, keyspaces) = open_keyspaces(64 * MIB, 200);
    flush_in_turn(&db, &keyspaces, 0..3);
    assert_eq!((tables(&db), db.stats().background.compactions), (600, 0));
}

/// Small writes to many keyspaces fit in memtables: almost no keyspace is flushed.
#[test]
fn n13_small_writes_to_many_keyspaces_need_few_flushes() {
    const KEYSPACES: u64 = 2_000;
    const WRITES: u64 = 100_000;

    let _turn = turn();
    let options = Options::new().fs(Arc::new(MemoryFs::new())).worker_threads(0);
    let db = options.memory_budget(64 << 20).open("db").unwrap();
    let keyspaces: Vec<Keyspace> =
        (0..KEYSPACES).map(|number| db.keyspace(&format!("{number}")).unwrap()).collect();
    let charged = || db.stats().memory.memtable_bytes;
    assert_eq!(charged(), 0, "no flush frees empty memtables");
    for keyspace in &keyspaces {
        keyspace.insert("key", "value").unwrap();
    }
    let begun = charged() / KEYSPACES;
    println!("{begun} bytes for one entry");
    assert!(begun < 1_000, "{begun} bytes");
    for number in 0..WRITES {
        let at = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let keyspace = &keyspaces[(at % KEYSPACES) as usize];
        keyspace.insert(number.to_be_bytes(), [7; 50]).unwrap();
    }
    let flushes = db.stats().background.flushes;
    println!("{flushes} flushes, {} bytes charged", charged());
    assert!(flushes < 250, "{flushes} flushes");
}

/// A keyspace with a small share of each batch does not pin the values of others, neither after
/// their flushes nor after a replay of the log.
#[test]
fn small_keyspace_does_not_pin_the_log_of_others() {
    const BUDGET: usize = 8 * MIB;
    /// The test's own batch, and counters of threads.
    const FIXED_BYTES: usize = 128 << 10;

    let _turn = turn();
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    // No file is created or deleted during the copy.
    let options = Options::new().memory_budget(BUDGET as u64).worker_threads(0);
    let before = forget_peak();
    let db = options.clone().open(dirs[0].path()).unwrap();
    let [data, counts] = ["data", "counts"].map(|name| db.keyspace(name).unwrap());
    let mut batch = db.batch();
    for number in 0..3_000_u64 {
        for entry in 0..50 {
            batch.insert(&data, (50 * number + entry).to_be_bytes(), [7; 100]).unwrap();
        }
        batch.insert(&counts, "count", number.to_be_bytes()).unwrap();
        batch.commit(Durability::OsBuffer).unwrap();
    }
    db.wait_for_background().unwrap();
    let (peak, memory) = (peak_bytes() - before, db.stats().memory);
    println!("written: {peak} bytes, {memory:?}");
    assert!(peak <= BUDGET + FIXED_BYTES, "{peak} bytes while they are written");
    assert!(memory.pinned_bytes < 64 << 10, "{memory:?}");

    for entry in fs::read_dir(dirs[0].path()).unwrap() {
        let entry = entry.unwrap();
        if entry.file_name() != "LOCK" {
            fs::copy(entry.path(), dirs[1].path().join(entry.file_name())).unwrap();
        }
    }
    drop((batch, data, counts, db));
    let before = forget_peak();
    let db = options.open(dirs[1].path()).unwrap();
    let peak = peak_bytes() - before;
    println!("read back: {peak} bytes");
    assert!(peak <= BUDGET + FIXED_BYTES, "{peak} bytes while they are read back");
    let count = db.keyspace("counts").unwrap().get("count").unwrap().unwrap();
    assert_eq!(*count, 2_999_u64.to_be_bytes());
    assert_eq!(db.keyspace("data").unwrap().iter().count(), 150_000);
}
