//! Replicas from an object store: requests of reads before the tables have arrived.

use std::{path::PathBuf, sync::Arc, time::Duration};

use object_store::{ObjectStore, ObjectStoreExt as _, path};
use sievedb::{
    BackupSet, Db, Error, FilterPolicy, KeyspaceOptions, Options, Replica, RestoreOptions,
};
use sievedb_tests::settings::report;
use tempfile::TempDir;
use tokio::runtime::Runtime;

use super::{Faulty, begin, set_in};

type Entries = Vec<(Vec<u8>, Vec<u8>)>;

/// Options of tables with 64 KiB and small blocks.
fn options() -> Options {
    let keyspace = KeyspaceOptions::new()
        .memtable_bytes(64 << 10)
        .table_bytes(64 << 10)
        .block_bytes(1 << 10)
        .filter_policy(FilterPolicy::default().bits_per_key(24.0));
    super::options().keyspace(keyspace)
}

fn key(number: u32, end: &str) -> Vec<u8> {
    [&number.to_be_bytes()[..], end.as_bytes()].concat()
}

fn value(number: u32) -> Vec<u8> {
    let mut state = u64::from(number) << 8 | 1;
    let byte = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    };
    (0..200).map(byte).collect()
}

/// A set with one backup.
struct Archived {
    runtime: Runtime,
    dir: TempDir,
    store: Arc<Faulty>,
    entries: Entries,
}

impl Archived {
    fn new(keys: u32) -> Self {
        let (runtime, dir, _) = begin();
        let db = options().open(dir.path().join("source")).unwrap();
        for number in 0..keys {
            db.insert(key(number, ""), value(number)).unwrap();
        }
        db.flush().unwrap();
        for number in 0..20_u32 {
            db.insert(key(number, ""), "logged").unwrap();
        }
        let store = Arc::new(Faulty::new());
        let archived = Self { runtime, dir, store, entries: super::entries(&db) };
        archived.set().create(&db).unwrap();
        archived
    }

    fn set(&self) -> BackupSet {
        set_in(&(Arc::clone(&self.store) as Arc<dyn ObjectStore>), &self.runtime)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn open(&self, name: &str, threads: usize) -> sievedb::Result<Replica> {
        let options = options().worker_threads(threads);
        self.set().open_replica(&RestoreOptions::new(), &options, self.path(name))
    }

    /// Checks that the directory is a whole store.
    fn check_store(&self, name: &str) {
        assert_eq!(super::entries_in(&self.path(name)), self.entries, "{name}");
    }
}

fn try_entries(db: &Db) -> sievedb::Result<Entries> {
    db.iter().map(|entry| entry.map(|(key, value)| (key.to_vec(), value.to_vec()))).collect()
}

#[test]
fn absent_keys_send_no_request() {
    let archived = Archived::new(4000);
    let replica = archived.open("replica", 0).unwrap();
    let (db, opened) = (replica.db(), replica.stats());
    assert!(opened.files_pending >= 8 && opened.files_fetched == 0, "{opened:?}");
    let calls = archived.store.calls();
    for number in 0..4000 {
        assert_eq!(db.get(key(number, "absent")).unwrap(), None);
    }
    // A false positive reads a block. Filters differ from store to store, and so does their number.
    let false_positives: u64 =
        db.stats().levels.iter().map(|level| level.filter_false_positives).sum();
    assert!(false_positives <= 8, "{false_positives} false positives");
    let (sent, read) =
        (archived.store.calls() - calls, replica.stats().range_reads - opened.range_reads);
    assert!(
        sent as u64 <= 2 * false_positives,
        "{sent} requests, {false_positives} false positives"
    );
    assert!(read <= 2 * false_positives, "{read} reads, {false_positives} false positives");
    let (ranges, bytes) = archived.store.ranges();
    assert_eq!(db.get(key(3000, "")).unwrap().unwrap(), value(3000));
    let (more_ranges, more_bytes) = archived.store.ranges();
    assert!((1..=2).contains(&(more_ranges - ranges)), "{ranges} to {more_ranges}");
    assert!(more_bytes - bytes < 4 << 10, "{bytes} to {more_bytes}");
    let before = archived.store.calls();
    assert_eq!(db.get(key(3000, "")).unwrap().unwrap(), value(3000));
    assert_eq!(archived.store.calls(), before, "the block is cached");
    report(&format!(
        "replica of {} tables of {} bytes: opened by {} range reads of {} bytes; 4000 absent keys: \
         {sent} requests, {false_positives} false positives",
        opened.files_pending, opened.bytes_pending, opened.range_reads, opened.range_bytes
    ));
    assert!(opened.range_bytes < opened.bytes_pending / 4, "{opened:?}");
    assert_eq!(try_entries(db).unwrap(), archived.entries);
    while replica.fetch_next().unwrap() {}
    let before = archived.store.calls();
    assert_eq!(try_entries(db).unwrap(), archived.entries);
    assert_eq!(archived.store.calls(), before, "the replica is complete");
    drop(replica);
    archived.check_store("replica");
}

#[test]
fn a_thread_fetches_after_failed_requests() {
    let archived = Archived::new(3000);
    let replica = archived.open("replica", 1).unwrap();
    archived.store.fail(0, 3);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for (key, value) in &archived.entries {
                    // A failed request is an error of the read.
                    if let Ok(found) = replica.db().get(key) {
                        assert_eq!(found.as_deref(), Some(&**value));
                    }
                }
            });
        }
    });
    assert!(replica.wait(Duration::from_secs(60)).unwrap());
    assert!(replica.stats().error.is_none());
    assert_eq!(try_entries(replica.db()).unwrap(), archived.entries);
    drop(replica);
    archived.check_store("replica");
}

#[test]
fn failing_requests_and_a_removed_object_are_errors() {
    let archived = Archived::new(600);
    let mut struck = 0;
    for call in 0..40 {
        let name = format!("replica{call}");
        let before = archived.store.failures();
        archived.store.fail(call, if call % 2 == 0 { 1 } else { usize::MAX / 2 });
        let replica = archived.open(&name, 0);
        if let Ok(replica) = &replica {
            for (key, value) in &archived.entries {
                if let Ok(found) = replica.db().get(key) {
                    assert_eq!(found.as_deref(), Some(&**value), "call {call}");
                }
            }
            let _ = (replica.fetch_next(), replica.fetch_next());
        }
        struck += usize::from(archived.store.failures() > before);
        archived.store.heal();
        drop(replica);
        let replica = archived.open(&name, 0).unwrap();
        assert_eq!(try_entries(replica.db()).unwrap(), archived.entries, "call {call}");
        while replica.fetch_next().unwrap() {}
        drop(replica);
        archived.check_store(&name);
    }
    report(&format!("failing requests of replicas: 40 trials, {struck} struck"));
    assert!(struck > 15, "{struck} struck");

    let replica = archived.open("replica", 0).unwrap();
    let objects = path::Path::from("backups/of/objects");
    let listed = archived.runtime.block_on(archived.store.list_with_delimiter(Some(&objects)));
    for object in listed.unwrap().objects {
        archived.runtime.block_on(archived.store.delete(&object.location)).unwrap();
    }
    let read = replica.db().get(key(300, ""));
    assert!(matches!(read, Err(Error::Io { .. })), "{read:?}");
    let fetched = replica.fetch_next();
    assert!(matches!(fetched, Err(Error::Corrupt { .. })), "{fetched:?}");
    assert_eq!(replica.db().get(key(7, "")).unwrap().as_deref(), Some(&b"logged"[..]));
    // Its filter decides without the table. The filter of another key may give a false positive.
    let mut absent = (300..600).map(|number| key(number, "absent"));
    let rejected = absent.find(|key| !replica.db().may_contain(key)).expect("filters are loaded");
    assert_eq!(replica.db().get(rejected).unwrap(), None);
}

#[test]
fn threads_fetch_at_the_same_time() {
    let archived = Archived::new(4000);
    let options = options().worker_threads(1);
    for threads in [0, 65] {
        let select = RestoreOptions::new().fetch_threads(threads);
        let refused = archived.set().open_replica(&select, &options, archived.path("refused"));
        assert!(matches!(refused, Err(Error::InvalidOption { .. })), "{threads}: {refused:?}");
    }
    for threads in [1, 3] {
        let name = format!("replica{threads}");
        archived.store.gate(threads, 32 << 10, false);
        let select = RestoreOptions::new().fetch_threads(threads);
        let path = archived.path(&name);
        let replica = archived.set().open_replica(&select, &options, path).unwrap();
        assert!(replica.wait(Duration::from_secs(60)).unwrap());
        let stats = replica.stats();
        assert!(stats.files_fetched >= 8 && stats.files_pending == 0, "{stats:?}");
        assert_eq!(archived.store.end_gate(), threads);
        assert_eq!(try_entries(replica.db()).unwrap(), archived.entries);
        drop(replica);
        archived.check_store(&name);
    }
}

#[test]
fn the_next_part_of_a_long_file_is_requested_ahead() {
    let (runtime, dir, _) = begin();
    let keyspace = KeyspaceOptions::new().memtable_bytes(64 << 20).table_bytes(64 << 20);
    let large = super::options().memory_budget(512 << 20).keyspace(keyspace);
    let db = large.open(dir.path().join("large")).unwrap();
    for number in 0..100_000_u32 {
        db.insert(key(number, ""), value(number)).unwrap();
    }
    db.flush().unwrap();
    let store = Arc::new(Faulty::new());
    let set = set_in(&(Arc::clone(&store) as Arc<dyn ObjectStore>), &runtime);
    let backup = set.create(&db).unwrap();
    let (before, _) = store.ranges();
    store.gate(2, 1 << 20, true);
    set.restore(backup.number, dir.path().join("restored")).unwrap();
    assert_eq!(store.end_gate(), 2, "one part ahead");
    let (ranges, _) = store.ranges();
    report(&format!("restore of {} bytes: {} range reads", backup.bytes, ranges - before));
    assert!((3..10).contains(&(ranges - before)), "{} of {} bytes", ranges - before, backup.bytes);
    assert_eq!(super::entries_in(&dir.path().join("restored")).len(), 100_000);
}

#[test]
fn a_refresh_requests_what_is_new() {
    let archived = Archived::new(4000);
    let replica = archived.open("replica", 0).unwrap();
    while replica.fetch_next().unwrap() {}
    let calls = archived.store.calls();
    assert!(!replica.refresh().unwrap());
    assert_eq!(archived.store.calls() - calls, 4, "two lists and a record");
    let db = options().open(archived.path("source")).unwrap();
    for number in 0..50_u32 {
        db.insert(key(number, "later"), "later").unwrap();
    }
    db.flush().unwrap();
    archived.set().create(&db).unwrap();
    let (calls, before) = (archived.store.calls(), replica.stats());
    assert!(replica.refresh().unwrap());
    let refreshed = replica.stats();
    assert!((1..=4).contains(&refreshed.files_pending), "{refreshed:?}");
    let sent = archived.store.calls() - calls;
    report(&format!(
        "refresh by a small table: {sent} requests, {} bytes in {} files pending",
        refreshed.bytes_pending, refreshed.files_pending
    ));
    assert!(sent < 40, "{sent} requests");
    assert_eq!(replica.db().get(key(7, "later")).unwrap().as_deref(), Some(&b"later"[..]));
    while replica.fetch_next().unwrap() {}
    let fetched = replica.stats();
    assert_eq!(fetched.files_fetched - before.files_fetched, refreshed.files_pending);
    assert_eq!(try_entries(replica.db()).unwrap(), super::entries(&db));
    drop(replica);
    assert_eq!(super::entries_in(&archived.path("replica")), super::entries(&db));
}

#[test]
fn failing_requests_delay_a_refresh() {
    let archived = Archived::new(600);
    let db = options().open(archived.path("source")).unwrap();
    let (mut struck, mut old) = (0, archived.entries.clone());
    let replica = archived.open("replica", 0).unwrap();
    for call in 0..30 {
        while replica.fetch_next().unwrap() {}
        db.insert(key(call, "later"), value(call)).unwrap();
        db.flush().unwrap();
        archived.set().create(&db).unwrap();
        let before = archived.store.failures();
        archived.store.fail(call as usize, if call % 2 == 0 { 1 } else { usize::MAX / 2 });
        let refreshed = replica.refresh();
        if let Ok(found) = try_entries(replica.db()) {
            assert!(found == old || found == super::entries(&db), "call {call}");
        }
        struck += usize::from(archived.store.failures() > before);
        archived.store.heal();
        assert_eq!(replica.refresh().unwrap(), refreshed.is_err(), "call {call}: {refreshed:?}");
        old = super::entries(&db);
        assert_eq!(try_entries(replica.db()).unwrap(), old, "call {call}");
    }
    report(&format!("failing requests of refreshes: 30 trials, {struck} struck"));
    assert!(struck > 8, "{struck} struck");
}
