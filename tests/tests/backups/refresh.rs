//! Refreshes of replicas.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{
            AtomicBool,
            Ordering::{Acquire, Release},
        },
    },
    thread,
    time::Duration,
};

use sievedb::{Db, Error, RestoreOptions, fs::Fs};
use sievedb_doubles::{Fault, FaultFs, Loss, MemoryFs, Times};
use sievedb_tests::{
    cuts::cut_power,
    settings::{STORE_DIR, report, seed},
};

use super::{
    entries, options,
    replicas::{Entries, REPLICA, check_store, complete, open, try_entries},
    set, set_on,
};

/// Writes round `round`, with a compaction in odd ones, and adds a backup. Returns the entries.
pub(super) fn next_backup(disk: &Arc<MemoryFs>, db: &Db, round: u32) -> Entries {
    for number in (0..120_u32).filter(|number| number % 3 == round % 3) {
        db.insert(number.to_be_bytes(), vec![round as u8; 100]).unwrap();
    }
    db.flush().unwrap();
    if round % 2 == 1 {
        db.compact().unwrap();
    }
    db.remove((round % 3).to_be_bytes()).unwrap();
    set(disk).create(db).unwrap();
    entries(db)
}

/// Returns the names of tables, logs and manifests.
fn files(disk: &MemoryFs, path: &str) -> BTreeSet<String> {
    let is_file = |name: &String| name.starts_with("MANIFEST") || name.contains('.');
    disk.list(path.as_ref()).unwrap().into_iter().filter(is_file).collect()
}

#[test]
fn a_refresh_shows_the_newest_backup_and_leaves_snapshots() {
    let disk = Arc::new(MemoryFs::new());
    let db = options(&disk).open(STORE_DIR).unwrap();
    let mut wanted = next_backup(&disk, &db, 0);
    let replica = open(&set(&disk), &options(&disk)).unwrap();
    assert!(!replica.refresh().unwrap(), "there is no newer one");
    for round in 1..7 {
        if round > 2 {
            complete(&replica);
            assert!(!replica.refresh().unwrap());
        }
        let (snapshot, before) = (replica.db().snapshot(), files(&disk, REPLICA));
        let older = wanted;
        wanted = next_backup(&disk, &db, round);
        assert!(replica.refresh().unwrap());
        assert_eq!(entries(replica.db()), wanted, "round {round}");
        assert!(!replica.refresh().unwrap());
        let found = snapshot.iter().map(|entry| entry.unwrap());
        let found: Entries = found.map(|(key, value)| (key.to_vec(), value.to_vec())).collect();
        assert_eq!(found, older, "round {round}");
        if round > 3 && round % 2 == 1 {
            let is_table = |name: &&String| name.ends_with(".sst");
            let (old, now): (BTreeSet<_>, _) =
                (before.iter().filter(is_table).cloned().collect(), files(&disk, REPLICA));
            assert!(!old.is_empty() && old.is_subset(&now), "{old:?} have a reader: {now:?}");
            drop(snapshot);
            replica.db().get("key").unwrap();
            assert!(!replica.refresh().unwrap());
            let now = files(&disk, REPLICA);
            assert!(old.is_disjoint(&now), "{old:?} have no reader: {now:?}");
        }
    }
    let refused = options(&disk).open(REPLICA);
    assert!(matches!(refused, Err(Error::IncompleteReplica { .. })), "{refused:?}");
    complete(&replica);
    let refused = options(&disk).open(REPLICA);
    assert!(matches!(refused, Err(Error::Locked { .. })), "{refused:?}");
    assert_eq!(entries(replica.db()), wanted);
    drop(replica);
    // It continues after it was closed.
    let replica = open(&set(&disk), &options(&disk)).unwrap();
    assert!(replica.stats().is_complete && !replica.refresh().unwrap());
    wanted = next_backup(&disk, &db, 7);
    assert!(replica.refresh().unwrap());
    assert_eq!(entries(replica.db()), wanted);
    complete(&replica);
    drop(replica);
    drop(open(&set(&disk), &options(&disk)).unwrap());
    let restored = "data/restored";
    set(&disk).restore_with(&RestoreOptions::new(), restored).unwrap();
    assert_eq!(files(&disk, REPLICA), files(&disk, restored));
    check_store(&options(&disk), &wanted);
}

#[test]
fn a_refresh_follows_the_archived_log_and_keyspaces() {
    let disk = Arc::new(MemoryFs::new());
    let options = options(&disk).retain_changes(sievedb::ChangeRetention::bytes(1 << 20));
    let db = options.clone().open(STORE_DIR).unwrap();
    db.insert("key", "value").unwrap();
    let mut archive = set(&disk).archive(&db).unwrap();
    archive.update().unwrap();
    let replica = open(&set(&disk), &options).unwrap();
    let users = db.keyspace("users").unwrap();
    users.insert("user", "value").unwrap();
    archive.update().unwrap();
    assert!(replica.refresh().unwrap());
    let copy = replica.db().open_keyspace("users").unwrap();
    assert_eq!(copy.iter().count(), 1);
    db.insert("later", "value").unwrap();
    archive.update().unwrap();
    assert!(replica.refresh().unwrap() && replica.db().contains_key("later").unwrap());
    assert!(!replica.refresh().unwrap());
    // Another store in the set, and a newer backup.
    let other = options.clone().open("data/other").unwrap();
    other.insert("other", "").unwrap();
    set(&disk).create(&other).unwrap();
    assert!(!replica.refresh().unwrap(), "it is of another store");
    db.drop_keyspace("users").unwrap();
    db.compact().unwrap();
    set(&disk).create(&db).unwrap();
    set(&disk).create(&other).unwrap();
    assert!(replica.refresh().unwrap());
    assert!(copy.get("user").is_err(), "it was dropped");
    assert_eq!(entries(replica.db()), entries(&db));
    complete(&replica);
    drop((copy, replica));
    let replica = open(&set(&disk), &options).unwrap();
    assert_eq!(entries(replica.db()), entries(&db));
    drop(replica);
    check_store(&options, &entries(&db));
}

#[test]
fn a_store_that_was_written_is_not_refreshed() {
    let disk = Arc::new(MemoryFs::new());
    let db = options(&disk).open(STORE_DIR).unwrap();
    let wanted = next_backup(&disk, &db, 0);
    let replica = open(&set(&disk), &options(&disk)).unwrap();
    complete(&replica);
    drop(replica);
    check_store(&options(&disk), &wanted);
    next_backup(&disk, &db, 1);
    let replica = open(&set(&disk), &options(&disk)).unwrap();
    let refused = replica.refresh();
    assert!(matches!(refused, Err(Error::NoReplica { .. })), "{refused:?}");
    assert!(replica.db().contains_key("key").unwrap(), "it is as it was");
    assert_eq!(entries(replica.db()).len(), wanted.len() + 1);
}

/// Opens the replica as a store and writes to it, unless that is refused. Checks that the next
/// opening of the replica leaves the write, after one of `before`.
fn check_written(left: &MemoryFs, before: [&Entries; 2]) -> Result<(), String> {
    let left = Arc::new(left.crash(left.operations(), &Loss::Nothing));
    let text = |error: Error| format!("{error:?}");
    match options(&left).open(REPLICA) {
        Err(Error::IncompleteReplica { .. }) => return Ok(()),
        db => db.and_then(|db| db.insert("written", "value")).map_err(text)?,
    }
    let replica = open(&set(&left), &options(&left)).map_err(text)?;
    let mut found = try_entries(replica.db()).map_err(text)?;
    let is_kept = found.pop().is_some_and(|(key, _)| key == b"written");
    if is_kept && before.contains(&&found) { Ok(()) } else { Err("a lost write".to_owned()) }
}

#[test]
fn a_refresh_survives_a_power_cut() {
    let disk = Arc::new(MemoryFs::new());
    let db = options(&disk).open(STORE_DIR).unwrap();
    let old = next_backup(&disk, &db, 0);
    let replica = open(&set(&disk), &options(&disk)).unwrap();
    complete(&replica);
    let new = next_backup(&disk, &db, 1);
    disk.settle();
    let began = disk.operations();
    assert!(replica.refresh().unwrap());
    let shown = disk.operations();
    complete(&replica);
    drop((replica, db));
    let states = cut_power(&disk, began, seed("cuts of refreshes", 1), |left, at| {
        let text = |error: Error| format!("{error:?}");
        check_written(left, [&old, &new])?;
        let replica = open(&set(left), &options(left)).map_err(text)?;
        let found = try_entries(replica.db()).map_err(text)?;
        if found != new && (found != old || at >= shown) {
            return Err(format!("{} entries", found.len()));
        }
        let is_newer = replica.refresh().map_err(text)?;
        if is_newer != (found == old) {
            return Err(format!("refreshed: {is_newer}"));
        }
        while replica.fetch_next().map_err(text)? {}
        if try_entries(replica.db()).map_err(text)? != new {
            return Err("wrong entries after a refresh".to_owned());
        }
        drop(replica);
        let db = options(left).open(REPLICA).map_err(text)?;
        let found = try_entries(&db).map_err(text)?;
        if found == new { Ok(1) } else { Err("wrong entries of the store".to_owned()) }
    });
    let states = states.unwrap_or_else(|violation| panic!("{violation}"));
    report(&format!("cuts of refreshes: {states} states, 0 violations"));
    assert!(states > 150, "only {states} states");
}

/// Fails call `call` of a refresh, and maybe all after it. Returns whether one failed.
fn fail(call: usize, times: Times, is_local: bool) -> bool {
    let disk = Arc::new(MemoryFs::new());
    let db = options(&disk).open(STORE_DIR).unwrap();
    let old = next_backup(&disk, &db, 0);
    let faults = Arc::new(FaultFs::new(Arc::clone(&disk) as Arc<dyn Fs>));
    let failing = Arc::clone(&faults) as Arc<dyn Fs>;
    let (set_of, local) = match is_local {
        true => (set(&disk), options(&disk).fs(failing)),
        false => (set_on(failing), options(&disk)),
    };
    let replica = open(&set_of, &local).unwrap();
    complete(&replica);
    let snapshot = replica.db().snapshot();
    let new = next_backup(&disk, &db, 1);
    faults.inject(Fault::new(5, times).after(call));
    let refreshed = replica.refresh();
    for _ in 0..5 {
        let _ = replica.fetch_next();
    }
    if let Ok(found) = try_entries(replica.db()) {
        assert!(found == new || found == old, "call {call}");
        assert!(refreshed.is_err() || found == new, "call {call}");
    }
    let struck = faults.failures() > 0;
    let crashed = Arc::new(disk.crash(disk.operations(), &Loss::Everything));
    faults.heal();
    let is_newer = replica.refresh().unwrap_or_else(|error| panic!("call {call}: {error:?}"));
    assert_eq!(is_newer, refreshed.is_err(), "call {call}");
    assert_eq!(entries(replica.db()), new, "call {call}");
    let found = snapshot.iter().map(|entry| entry.unwrap());
    let found: Entries = found.map(|(key, value)| (key.to_vec(), value.to_vec())).collect();
    assert_eq!(found, old, "call {call}");
    complete(&replica);
    drop((snapshot, replica));
    check_store(&options(&disk), &new);
    // A crash instead.
    let replica = open(&set(&crashed), &options(&crashed)).unwrap();
    let found = entries(replica.db());
    assert!(found == new || found == old, "call {call}");
    replica.refresh().unwrap();
    complete(&replica);
    drop(replica);
    check_store(&options(&crashed), &new);
    struck
}

#[test]
fn failed_calls_delay_a_refresh() {
    let mut struck = [0; 2];
    for (number, is_local) in [(0, false), (1, true)] {
        for times in [Times::Once, Times::ForGood] {
            struck[number] += (0..60).filter(|&call| fail(call, times, is_local)).count();
        }
    }
    report(&format!("failing calls of refreshes: {struck:?} of the set and of the directory"));
    assert!(struck[0] > 15 && struck[1] > 60, "{struck:?}");
}

struct Done<'b>(&'b AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Release);
    }
}

#[test]
fn threads_read_while_a_replica_is_refreshed() {
    let disk = Arc::new(MemoryFs::new());
    let db = options(&disk).open(STORE_DIR).unwrap();
    next_backup(&disk, &db, 0);
    let replica = open(&set(&disk), &options(&disk).worker_threads(1)).unwrap();
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        // Also after a panic.
        let done = Done(&is_done);
        for _ in 0..2 {
            scope.spawn(|| {
                while !is_done.load(Acquire) {
                    let snapshot = replica.db().snapshot();
                    let count = |_: u32| {
                        let values = snapshot.iter().map(|entry| entry.unwrap().1);
                        values.map(|value| u64::from(value[0]) + 1).sum::<u64>()
                    };
                    assert_eq!(count(0), count(1), "a snapshot stays");
                }
            });
        }
        for round in 1..12 {
            let wanted = next_backup(&disk, &db, round);
            assert!(replica.refresh().unwrap());
            assert_eq!(entries(replica.db()), wanted);
            assert!(round % 3 > 0 || replica.wait(Duration::from_secs(60)).unwrap());
        }
        drop(done);
    });
    assert!(replica.wait(Duration::from_secs(60)).unwrap());
    drop(replica);
    check_store(&options(&disk), &entries(&db));
}
