//! `insert_if_absent`: one winner per key, and no read for a new key.

use std::{
    sync::{
        Arc, Barrier,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
};

use sievedb::{Compression, KeyspaceOptions, Options, fs::Fs};
use sievedb_doubles::MemoryFs;
use sievedb_tests::settings::{STORE_DIR, small_keyspace, small_options};

const THREADS: usize = 8;
const KEYS: usize = 3000;

#[test]
fn insert_if_absent_has_one_winner_beside_flushes() {
    let dir = tempfile::tempdir().unwrap();
    let keyspace = KeyspaceOptions::new()
        .memtable_bytes(64 << 10)
        .table_bytes(32 << 10)
        .base_level_bytes(64 << 10)
        .block_bytes(1 << 10)
        .compression(Compression::Lz4);
    let options = Options::new().worker_threads(2).block_cache_bytes(64 << 10).keyspace(keyspace);
    let db = options.open(dir.path()).unwrap();
    let (start, done) = (Barrier::new(THREADS), AtomicBool::new(false));
    let won: Vec<Vec<usize>> = thread::scope(|scope| {
        let chores = scope.spawn(|| {
            while !done.load(Relaxed) {
                db.flush().unwrap();
                db.compact().unwrap();
            }
        });
        let try_all = |thread: usize| {
            start.wait();
            // Each thread has its own order, so that some inserts race and some come late.
            let order = (0..KEYS).map(|n| (n * (2 * thread + 1) + thread * 37) % KEYS);
            let tries = order.filter(|n| {
                let value = format!("thread {thread} {}", "v".repeat(40));
                db.insert_if_absent(format!("key{n:05}"), value).unwrap()
            });
            tries.collect()
        };
        let threads: Vec<_> =
            (0..THREADS).map(|thread| scope.spawn(move || try_all(thread))).collect();
        let won = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        done.store(true, Relaxed);
        chores.join().unwrap();
        won
    });
    for n in 0..KEYS {
        let winners: Vec<_> = (0..THREADS).filter(|thread| won[*thread].contains(&n)).collect();
        let [winner] = winners[..] else { panic!("key {n} was won by {winners:?}") };
        let value = db.get(format!("key{n:05}")).unwrap().unwrap();
        assert!(value.starts_with(format!("thread {winner} ").as_bytes()), "key {n}");
    }
    assert_eq!(db.iter().count(), KEYS);
}

#[test]
fn insert_if_absent_reads_only_on_false_positives() {
    let keyspace = small_keyspace().memtable_bytes(1 << 20).table_bytes(1 << 20);
    let options = small_options(Arc::new(MemoryFs::new()) as Arc<dyn Fs>).block_cache_bytes(0);
    let options = options.log_segment_bytes(1 << 20).log_bytes_max(8 << 20);
    let db = options.keyspace(keyspace).open(STORE_DIR).unwrap();
    for n in 0..4000 {
        db.insert(format!("key{n:05}"), "v").unwrap();
    }
    db.compact().unwrap();
    let counts = || {
        let stats = db.stats();
        let levels = stats.levels.iter().map(|level| (level.candidates, level.false_positives));
        let (asked, in_vain) = levels.fold((0, 0), |sum, level| (sum.0 + level.0, sum.1 + level.1));
        (asked, in_vain, stats.table_reads.calls)
    };
    let before = counts();
    for n in 0..2000 {
        assert!(db.insert_if_absent(format!("key{n:05}x"), "v").unwrap());
    }
    let after = counts();
    let (asked, in_vain, reads) = (after.0 - before.0, after.1 - before.1, after.2 - before.2);
    // Once before the lock. Under the lock only memtables are probed, because no table was added.
    assert_eq!(asked, 2000, "candidate tables");
    assert!(in_vain < 40, "{in_vain} false positives of 2,000 new keys");
    assert!(reads <= 2 * in_vain, "{reads} reads for {in_vain} false positives");
    for n in 0..100 {
        assert!(!db.insert_if_absent(format!("key{n:05}"), "v").unwrap(), "a present key");
        assert!(!db.insert_if_absent(format!("key{n:05}x"), "v").unwrap(), "of the memtable");
    }
    db.remove("key00007").unwrap();
    assert!(db.insert_if_absent("key00007", "new").unwrap(), "a removed key");
    assert_eq!(db.get("key00007").unwrap().as_deref(), Some(&b"new"[..]));
}
