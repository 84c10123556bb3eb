//! A process that forks while a store is open.
//!
//! Each scenario runs in a separate process, which forks. A child ends by `_exit`, so that the test
//! harness does not run twice.

#![expect(clippy::disallowed_methods, reason = "a child reports by a file, and waits by real time")]

use std::{
    env, fs,
    panic::{self, AssertUnwindSafe},
    path::Path,
    thread,
    time::{Duration, Instant},
};

use sievedb::{
    Db, Durability, Error, KeyspaceOptions, MemoryPool, Options, PoolStats, TableWriter,
};

use super::{DIR_VARIABLE, other_process};

const SCENARIO_VARIABLE: &str = "SIEVE_FORK";
/// A hanging child is killed after this time.
const CHILD_MAX: Duration = Duration::from_secs(600);
/// A daemon writes this file when it is done.
const DONE: &str = "done";

type Scenario = fn(&Path, usize);

const SCENARIOS: [(&str, Scenario); 8] = [
    ("refusing", refusing),
    ("closing", closing),
    ("reading", reading),
    ("daemonising", daemonising),
    ("preforking", preforking),
    ("pooling", pooling),
    ("following", following),
    ("loading", loading),
];

fn options(workers: usize) -> Options {
    // Small, so that flushes and compactions run during the fork.
    let keyspace = KeyspaceOptions::new().memtable_bytes(64 << 10).table_bytes(64 << 10);
    Options::new().worker_threads(workers).durability(Durability::Disk).keyspace(keyspace)
}

/// Inserts `keys` with a sync for every 20: syncs of each take a minute on a busy disk.
fn insert(db: &Db, keys: std::ops::Range<u32>) {
    let keys: Vec<_> = keys.collect();
    for group in keys.chunks(20) {
        let mut batch = db.batch();
        for key in group {
            batch.insert(db, key.to_be_bytes(), [7; 100]).unwrap();
        }
        batch.commit(Durability::Disk).unwrap();
    }
}

fn check_keys(dir: &Path, keys: u32) {
    let db = options(0).open(dir).unwrap();
    let found: Vec<_> = db.iter().keys().map(|key| key.unwrap().to_vec()).collect();
    let expected: Vec<_> = (0..keys).map(|key| key.to_be_bytes().to_vec()).collect();
    assert!(found == expected, "{} of {keys} keys", found.len());
    assert!(db.verify().unwrap().problems.is_empty());
}

/// Forks a child that runs `run`.
fn fork(run: impl FnOnce()) -> libc::pid_t {
    // SAFETY: the child calls only what this test is about, and ends by `_exit`.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "cannot fork");
    if child == 0 {
        let ended = panic::catch_unwind(AssertUnwindSafe(run));
        // SAFETY: ends this process at once.
        unsafe { libc::_exit(i32::from(ended.is_err())) };
    }
    child
}

/// Waits for `child`, which must succeed.
fn wait(child: libc::pid_t) {
    let start = Instant::now();
    loop {
        let mut status = 0;
        // SAFETY: `status` lives during the call.
        let ended = unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) };
        if ended == child {
            assert_eq!(status, 0, "the child failed");
            return;
        }
        if start.elapsed() > CHILD_MAX {
            // SAFETY: no memory is concerned.
            unsafe { libc::kill(child, libc::SIGKILL) };
            panic!("the child hangs");
        }
        thread::sleep(Duration::from_millis(1));
    }
}

fn assert_forked<T: std::fmt::Debug>(what: &str, outcome: Result<T, Error>) {
    match outcome {
        Err(Error::ForkedChild { .. }) => {}
        other => panic!("{what}: {other:?}"),
    }
}

/// Every call of a child is refused, and its drops change nothing.
fn refusing(dir: &Path, workers: usize) {
    let db = options(workers).open(dir).unwrap();
    insert(&db, 0..1_000);
    let users = db.keyspace("users").unwrap();
    let (snapshot, mut range, mut batch) = (db.snapshot(), db.iter(), db.batch());
    range.next().unwrap().unwrap();
    batch.insert(&users, "key", "value").unwrap();
    let (mut open, mut writing) = (db.begin(), db.begin());
    open.insert(&db, "key", "value").unwrap();
    open.get(&db, 0_u32.to_be_bytes()).unwrap().unwrap();
    writing.remove_range(&users, "a".."z").unwrap();
    let inherited = (db.clone(), users.clone(), snapshot.clone());
    let child = fork(|| {
        let (db, users, snapshot) = inherited;
        assert_forked("insert", db.insert("key", "value"));
        assert_forked("insert if absent", users.insert_if_absent("key", "value"));
        assert_forked("remove", db.remove("key"));
        assert_forked("commit", batch.commit(Durability::Disk));
        assert_forked("keyspace", db.keyspace("new"));
        assert_forked("drop a keyspace", db.drop_keyspace("users"));
        assert_forked("options", users.set_options(KeyspaceOptions::new()));
        assert_forked("flush", db.flush());
        assert_forked("compact", users.compact());
        assert_forked("persist", db.persist(Durability::Disk));
        assert_forked("wait", db.wait_for_background());
        assert_forked("verify", db.verify());
        assert_forked("budget", db.set_memory_budget(1 << 30));
        assert_forked("get", db.get(0_u32.to_be_bytes()));
        assert_forked("get with", db.get_with(0_u32.to_be_bytes(), <[u8]>::len));
        assert_forked("contains", users.contains_key("key"));
        assert_forked("get many", db.get_many(["key"]));
        assert_forked("snapshot get", snapshot.get(0_u32.to_be_bytes()));
        assert_forked("new snapshot", db.snapshot().get(0_u32.to_be_bytes()));
        assert_forked("scan", db.iter().next().unwrap());
        assert_forked("an inherited scan", range.next().unwrap());
        assert!(range.next().is_none(), "an iterator ends after an error");
        assert_forked("get in a transaction", open.get(&db, 1_u32.to_be_bytes()));
        assert_forked("scan in a transaction", open.iter(&db).next().unwrap());
        assert_forked("insert in a transaction", open.insert(&db, "other", "value"));
        assert_forked("remove a range in one", writing.remove_range(&users, "x"..));
        assert_forked("commit a transaction", writing.commit(Durability::Disk));
        assert_forked("begin", db.begin().get(&db, "key"));
        assert_forked("run a transaction", db.transaction(|tx| tx.insert(&db, "key", "value")));
        assert_forked("fetch_update", db.fetch_update("key", |_| Some("value")));
        assert_forked("merge", users.merge("key", "value"));
        assert_forked("remove a range", users.remove_range("a".."z"));
        assert_forked("pop", users.pop_first());
        assert_forked("clear", users.clear());
        assert_forked("rename", db.rename_keyspace("users", "new"));
        assert_forked("sizes", users.approximate_len());
        drop(open);
        assert_forked("names of keyspaces", db.keyspaces());
        assert_forked("name of a keyspace", db.keyspace_exists("default"));
        assert!(db.may_contain("key") && db.path() == dir);
        assert_eq!(db.stats().keyspaces.len(), 0);
        assert!(matches!(options(0).open(dir), Err(Error::Locked { .. })), "the parent lives");
        drop((batch, range, snapshot, users));
        drop(db);
    });
    wait(child);
    // The lock and the log are unchanged.
    assert!(matches!(options(0).open(dir), Err(Error::Locked { .. })), "the lock is gone");
    insert(&db, 1_000..3_000);
    drop((users, snapshot));
    db.close().unwrap();
    check_keys(dir, 3_000);
}

/// `close` is refused too.
fn closing(dir: &Path, workers: usize) {
    let db = options(workers).open(dir).unwrap();
    insert(&db, 0..1_000);
    let inherited = db.clone();
    let child = fork(|| assert_forked("close", inherited.close().map_err(Error::from)));
    wait(child);
    insert(&db, 1_000..3_000);
    db.close().unwrap();
    check_keys(dir, 3_000);
}

/// A child of a read-only process does not admit a writer.
fn reading(dir: &Path, workers: usize) {
    let db = options(workers).open(dir).unwrap();
    insert(&db, 0..1_000);
    db.close().unwrap();
    let db = options(workers).read_only(true).open(dir).unwrap();
    let inherited = db.clone();
    wait(fork(|| {
        assert_forked("get", inherited.get("key"));
        drop(inherited);
    }));
    let writer = options(workers).open(dir);
    assert!(matches!(writer, Err(Error::Locked { .. })), "a writer beside a reader: {writer:?}");
    assert_eq!(db.iter().count(), 1_000);
    db.close().unwrap();
    check_keys(dir, 1_000);
}

/// The parent ends, and its child reopens the store.
fn daemonising(dir: &Path, workers: usize) {
    let db = options(workers).open(dir).unwrap();
    insert(&db, 0..1_000);
    // SAFETY: no memory is concerned.
    let parent = unsafe { libc::getpid() };
    fork(|| {
        // SAFETY: as above.
        while unsafe { libc::getppid() } == parent {
            thread::sleep(Duration::from_millis(1));
        }
        assert_forked("get", db.get("key"));
        drop(db);
        let db = options(workers).open(dir).unwrap();
        assert_eq!(db.iter().count(), 1_000);
        insert(&db, 1_000..3_000);
        db.close().unwrap();
        fs::write(dir.with_extension(DONE), "").unwrap();
    });
    // SAFETY: ends this process at once, as a daemon's parent does.
    unsafe { libc::_exit(0) };
}

/// Several children drop the store while the parent writes.
fn preforking(dir: &Path, workers: usize) {
    let db = options(workers).open(dir).unwrap();
    insert(&db, 0..1_000);
    let mut children = Vec::new();
    for round in 1..=4_u32 {
        let inherited = db.clone();
        let child = fork(|| {
            // Not the last handle: the frame above keeps one, as in a server that never drops it.
            drop(inherited);
            let db = &db;
            assert_forked("insert", db.insert("key", "value"));
        });
        children.push(child);
        insert(&db, round * 1_000..(round + 1) * 1_000);
    }
    children.into_iter().for_each(wait);
    db.close().unwrap();
    check_keys(dir, 5_000);
}

/// Calls of a child on an inherited pool are refused, while stores of the parent use it.
fn pooling(dir: &Path, workers: usize) {
    let pool = MemoryPool::new(32 << 20);
    let join = |pool: &MemoryPool, name: &str| {
        options(workers).memory_pool(pool).open(dir.with_file_name(name))
    };
    let db = join(&pool, "first").unwrap();
    let mut children = Vec::new();
    for round in 0..8_u32 {
        thread::scope(|scope| {
            let keys = round * 1_000..(round + 1) * 1_000;
            let writing = scope.spawn(|| insert(&db, keys));
            let inherited = (db.clone(), pool.clone());
            let child = fork(|| {
                let (db, pool) = inherited;
                assert_forked("insert", db.insert("key", "value"));
                assert_eq!(pool.stats(), PoolStats::default());
                assert!(matches!(pool.set_bytes(64 << 20), Err(Error::InvalidOption { .. })));
                let joined = join(&pool, "second");
                assert!(matches!(joined, Err(Error::InvalidOption { .. })), "{joined:?}");
                drop((db, pool));
            });
            children.push(child);
            writing.join().unwrap();
        });
    }
    children.into_iter().for_each(wait);
    assert_eq!(pool.stats().stores, 1);
    db.close().unwrap();
    check_keys(&dir.with_file_name("first"), 8_000);
}

/// Forks while a thread of the follower may hold its locks. The child follows the store with a new
/// handle.
fn following(dir: &Path, workers: usize) {
    let writer = options(workers).open(dir).unwrap();
    insert(&writer, 0..1_000);
    let follow = || options(workers).follow(true).follow_interval(Duration::from_millis(1));
    let follower = follow().open(dir).unwrap();
    let mut children = Vec::new();
    for round in 1..=8_u32 {
        let inherited = follower.clone();
        children.push(fork(|| {
            assert_forked("get", inherited.get(0_u32.to_be_bytes()));
            assert_forked("refresh", inherited.refresh());
            drop(inherited);
            let own = follow().open(dir).unwrap();
            own.refresh().unwrap();
            assert!(own.get((round * 1_000 - 1).to_be_bytes()).unwrap().is_some());
            own.close().unwrap();
        }));
        insert(&writer, round * 1_000..(round + 1) * 1_000);
        follower.refresh().unwrap();
        assert_eq!(follower.len().unwrap(), u64::from(round + 1) * 1_000);
    }
    children.into_iter().for_each(wait);
    follower.close().unwrap();
    writer.close().unwrap();
    check_keys(dir, 9_000);
}

/// A child that drops a bulk load leaves its files to the parent.
fn loading(dir: &Path, workers: usize) {
    let db = options(workers).open(dir).unwrap();
    let (table, runs) = (dir.with_extension("new.sst"), dir.with_extension("runs"));
    let mut writer = Some(TableWriter::create(&table, &KeyspaceOptions::new()).unwrap());
    let mut unsorted = Some(db.unsorted_ingestion(&runs, 64 << 10).unwrap());
    let users = db.keyspace("users").unwrap();
    let mut sorted = Some(users.ingestion().unwrap());
    for key in 0_u32..2_000 {
        unsorted.as_mut().unwrap().insert(key.to_be_bytes(), [7; 100]).unwrap();
        sorted.as_mut().unwrap().insert(key.to_be_bytes(), [7; 100]).unwrap();
    }
    for key in 2_000_u32..3_000 {
        writer.as_mut().unwrap().insert(key.to_be_bytes(), [7; 100]).unwrap();
    }
    assert!(unsorted.as_ref().unwrap().run_bytes() > 0);
    let child = fork(|| drop((writer.take(), unsorted.take(), sorted.take())));
    wait(child);
    unsorted.unwrap().finish().unwrap();
    sorted.unwrap().finish().unwrap();
    writer.unwrap().finish().unwrap();
    db.ingest_files([&table]).unwrap();
    assert_eq!(users.len().unwrap(), 2_000);
    drop(users);
    db.close().unwrap();
    check_keys(dir, 3_000);
}

/// Runs in a separate process.
#[test]
fn scenario() {
    let Some(dir) = env::var_os(DIR_VARIABLE) else { return };
    let Ok(scenario) = env::var(SCENARIO_VARIABLE) else { return };
    let (name, workers) = scenario.split_once(' ').unwrap();
    let (_, run) = SCENARIOS.into_iter().find(|(known, _)| *known == name).unwrap();
    run(&Path::new(&dir).join("db"), workers.parse().unwrap());
}

fn run(name: &str) {
    for workers in [0, 2] {
        let dir = tempfile::tempdir().unwrap();
        let mut process = other_process("processes::forked::scenario");
        process.env(DIR_VARIABLE, dir.path());
        process.env(SCENARIO_VARIABLE, format!("{name} {workers}"));
        assert!(process.status().unwrap().success(), "{name} with {workers} workers");
        if name != "daemonising" {
            continue;
        }
        let start = Instant::now();
        while !dir.path().join("db").with_extension(DONE).exists() {
            assert!(start.elapsed() < CHILD_MAX, "{workers} workers: the daemon is not done");
            thread::sleep(Duration::from_millis(5));
        }
        check_keys(&dir.path().join("db"), 3_000);
    }
}

#[test]
fn f1_forked_child_is_refused_and_changes_nothing() {
    run("refusing");
}

#[test]
fn f1_forked_child_cannot_close_the_store() {
    run("closing");
}

#[test]
fn f1_forked_child_of_a_reader_keeps_writers_out() {
    run("reading");
}

#[test]
fn f1_daemon_reopens_the_store() {
    run("daemonising");
}

#[test]
fn f1_forked_children_do_not_disturb_a_server() {
    run("preforking");
}

#[test]
fn pool_is_refused_in_a_forked_child() {
    run("pooling");
}

#[test]
fn follower_is_refused_in_a_forked_child() {
    run("following");
}

#[test]
fn forked_child_leaves_the_files_of_a_bulk_load() {
    run("loading");
}
