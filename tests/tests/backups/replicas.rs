//! Replicas: reads before the tables have arrived.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::{sync::Arc, thread, time::Duration};

use sievedb::{
    BackupSet, Db, Error, FilterPolicy, KeyspaceOptions, Options, Replica, RestoreOptions, fs::Fs,
};
use sievedb_doubles::{Call, Fault, FaultFs, Loss, MemoryFs, Times};
use sievedb_tests::{
    cuts::cut_power,
    settings::{STORE_DIR, report, seed},
};

use super::{SET, entries, options, set, set_on};

pub(super) const REPLICA: &str = "data/replica";

pub(super) type Entries = Vec<(Vec<u8>, Vec<u8>)>;

/// Options with tables of many blocks before their ends.
fn large(disk: &Arc<MemoryFs>) -> Options {
    let keyspace = KeyspaceOptions::new()
        .memtable_bytes(64 << 10)
        .table_bytes(64 << 10)
        .block_bytes(1 << 10)
        .filter_policy(FilterPolicy::default().bits_per_key(24.0));
    options(disk).block_cache_bytes(1 << 20).keyspace(keyspace)
}

fn value(number: u32) -> Vec<u8> {
    let mut state = u64::from(number) << 8 | 1;
    let byte = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    };
    (0..200).map(byte).collect()
}

/// Creates a store with tables and a log, and a backup of it. Returns its entries.
fn back_up(disk: &Arc<MemoryFs>, options: &Options, keys: u32) -> Entries {
    let db = options.clone().open(STORE_DIR).unwrap();
    for number in 0..keys {
        db.insert(number.to_be_bytes(), value(number)).unwrap();
    }
    db.flush().unwrap();
    for number in 0..20_u32 {
        db.insert(number.to_be_bytes(), "logged").unwrap();
    }
    set(disk).create(&db).unwrap();
    entries(&db)
}

pub(super) fn open(set: &BackupSet, options: &Options) -> sievedb::Result<Replica> {
    set.open_replica(&RestoreOptions::new(), options, REPLICA)
}

/// Returns all entries, or the first error.
pub(super) fn try_entries(db: &Db) -> sievedb::Result<Entries> {
    db.iter().map(|entry| entry.map(|(key, value)| (key.to_vec(), value.to_vec()))).collect()
}

/// Fetches all files.
pub(super) fn complete(replica: &Replica) {
    while replica.fetch_next().unwrap() {}
    assert!(replica.stats().is_complete);
}

/// As [`check_store`], without the set.
fn check_independent(disk: &Arc<MemoryFs>, options: &Options, wanted: &Entries) {
    for object in disk.list(format!("{SET}/objects").as_ref()).unwrap() {
        disk.unlink(format!("{SET}/objects/{object}").as_ref()).unwrap();
    }
    check_store(options, wanted);
}

/// Checks that the directory is a whole store.
pub(super) fn check_store(options: &Options, wanted: &Entries) {
    let db = options.clone().create_if_missing(false).open(REPLICA).unwrap();
    assert_eq!(entries(&db), *wanted);
    assert!(db.verify().unwrap().is_good());
    db.insert("key", "value").unwrap();
}

#[test]
fn absent_keys_need_no_table_and_present_ones_a_block() {
    let disk = Arc::new(MemoryFs::new());
    let options = large(&disk);
    let wanted = back_up(&disk, &options, 2000);
    let replica = open(&set(&disk), &options).unwrap();
    let (db, opened) = (replica.db(), replica.stats());
    assert!(opened.files_pending >= 4 && opened.files_fetched == 0, "{opened:?}");
    assert!(opened.range_bytes < opened.bytes_pending / 4, "{opened:?}");
    for number in 0..2000_u32 {
        let key = [&number.to_be_bytes()[..], b"absent"].concat();
        assert_eq!(db.get(key).unwrap(), None);
    }
    let absent = replica.stats();
    assert_eq!(absent.range_reads, opened.range_reads, "no request");
    assert_eq!(db.get(500_u32.to_be_bytes()).unwrap().unwrap(), value(500));
    let present = replica.stats();
    assert!((1..=2).contains(&(present.range_reads - absent.range_reads)), "{present:?}");
    assert!(present.range_bytes - absent.range_bytes < 4 << 10, "{present:?}");
    assert_eq!(entries(db), wanted);
    let refused = options.clone().open(REPLICA);
    assert!(matches!(refused, Err(Error::IncompleteReplica { .. })), "{refused:?}");
    let refused = options.clone().read_only(true).open(REPLICA);
    assert!(matches!(refused, Err(Error::IncompleteReplica { .. })), "{refused:?}");
    assert!(matches!(db.insert("key", ""), Err(Error::ReadOnly { .. })));
    let refused = open(&set(&disk), &options);
    assert!(matches!(refused, Err(Error::Locked { .. })), "{refused:?}");

    complete(&replica);
    let fetched = replica.stats();
    assert_eq!(fetched.files_fetched, opened.files_pending);
    assert_eq!((fetched.files_pending, fetched.bytes_fetched), (0, opened.bytes_pending));
    assert_eq!(entries(db), wanted);
    assert_eq!(replica.stats().range_reads, fetched.range_reads, "files are read locally");
    assert!(replica.wait(Duration::ZERO).unwrap());
    drop(replica);
    let again = open(&set(&disk), &options).unwrap();
    assert!(again.stats().is_complete && !again.fetch_next().unwrap());
    assert_eq!(entries(again.db()), wanted);
    drop(again);
    check_independent(&disk, &options, &wanted);
}

#[test]
fn an_interrupted_replica_continues_with_its_backup() {
    let disk = Arc::new(MemoryFs::new());
    let options = large(&disk);
    let wanted = back_up(&disk, &options, 2000);
    let replica = open(&set(&disk), &options).unwrap();
    let first = replica.stats();
    assert!(replica.fetch_next().unwrap());
    drop(replica);
    // A later backup.
    let db = options.clone().open(STORE_DIR).unwrap();
    db.insert("later", "").unwrap();
    set(&disk).create(&db).unwrap();
    let other = RestoreOptions::new().backup(2);
    let refused = set(&disk).open_replica(&other, &options, REPLICA);
    assert!(matches!(refused, Err(Error::DirectoryNotEmpty { .. })), "{refused:?}");
    let replica = open(&set(&disk), &options).unwrap();
    assert_eq!(replica.stats().files_pending, first.files_pending - 1);
    assert_eq!(entries(replica.db()), wanted);
    complete(&replica);
    drop(replica);
    check_independent(&disk, &options, &wanted);
}

#[test]
fn a_replica_is_of_the_selected_point_and_keyspaces() {
    let disk = Arc::new(MemoryFs::new());
    let options = options(&disk).retain_changes(sievedb::ChangeRetention::bytes(1 << 20));
    let db = options.clone().open(STORE_DIR).unwrap();
    let users = db.keyspace("users").unwrap();
    users.insert("user", "value").unwrap();
    db.insert("key", "value").unwrap();
    db.flush().unwrap();
    let mut archive = set(&disk).archive(&db).unwrap();
    archive.update().unwrap();
    users.insert("archived", "").unwrap();
    let point = archive.update().unwrap().sequence;
    users.insert("later", "").unwrap();
    archive.update().unwrap();
    let select = RestoreOptions::new().to(point).keyspaces(["users"]);
    let replica = set(&disk).open_replica(&select, &options, REPLICA).unwrap();
    let check = |db: &Db| {
        let users = db.open_keyspace("users").unwrap();
        assert_eq!(users.iter().count(), 2);
        assert!(users.contains_key("user").unwrap() && users.contains_key("archived").unwrap());
        assert_eq!(db.iter().count(), 0);
    };
    check(replica.db());
    complete(&replica);
    check(replica.db());
    drop(replica);
    check(&options.open(REPLICA).unwrap());
}

#[test]
fn damaged_and_missing_files_are_errors() {
    let disk = Arc::new(MemoryFs::new());
    let options = large(&disk);
    let wanted = back_up(&disk, &options, 1000);
    let objects = disk.list(format!("{SET}/objects").as_ref()).unwrap();
    let (mut refused, mut damaged, mut errors) = (0, 0, 0);
    for object in &objects {
        let path = format!("{SET}/objects/{object}");
        let bytes = disk.read(&path).unwrap();
        let places = (0..17).map(|part| (bytes.len() - 1) * part / 16).map(Some);
        for place in places.chain([None]) {
            match place {
                Some(place) => {
                    let mut bytes = bytes.to_vec();
                    bytes[place] ^= 4;
                    disk.replace(&path, bytes).unwrap();
                }
                None => disk.unlink(path.as_ref()).unwrap(),
            }
            match open(&set(&disk), &options) {
                Err(Error::Corrupt { .. }) => refused += 1,
                Err(other) => panic!("{path} at {place:?}: {other:?}"),
                Ok(replica) => {
                    for (key, value) in &wanted {
                        match replica.db().get(key) {
                            Ok(found) => assert_eq!(found.unwrap(), *value, "{path} at {place:?}"),
                            Err(_) => errors += 1,
                        }
                    }
                    let failed = (0..objects.len()).filter(|_| replica.fetch_next().is_err());
                    assert!(failed.count() > 0, "{path} at {place:?}");
                    let stats = replica.stats();
                    assert_eq!((stats.files_damaged, stats.files_pending), (1, 1), "{stats:?}");
                    let error = replica.wait(Duration::from_secs(60));
                    assert!(matches!(error, Err(Error::Corrupt { .. })), "{error:?}");
                    damaged += 1;
                }
            }
            if place.is_none() {
                disk.create(path.as_ref()).unwrap();
            }
            disk.replace(&path, bytes.clone()).unwrap();
            // The next opening continues, now that the file is whole.
            let replica = open(&set(&disk), &options).unwrap();
            assert_eq!(try_entries(replica.db()).unwrap(), wanted, "{path} at {place:?}");
            complete(&replica);
            drop(replica);
            for name in disk.list(REPLICA.as_ref()).unwrap() {
                disk.unlink(format!("{REPLICA}/{name}").as_ref()).unwrap();
            }
        }
    }
    report(&format!(
        "damage of replicas: {refused} openings refused, {damaged} not completed, {errors} reads \
         failed"
    ));
    assert!(refused > 10 && damaged > 10 && errors > 10);
}

/// Fails call `call` of a replica, and `count - 1` calls after it. Returns whether one failed.
fn fail(call: usize, count: Times, is_local: bool) -> bool {
    let disk = Arc::new(MemoryFs::new());
    let plain = large(&disk);
    let wanted = back_up(&disk, &plain, 700);
    let faults = Arc::new(FaultFs::new(Arc::clone(&disk) as Arc<dyn Fs>));
    let failing = Arc::clone(&faults) as Arc<dyn Fs>;
    let (set_of, local) = match is_local {
        true => (set(&disk), plain.clone().fs(failing)),
        false => (set_on(failing), plain.clone()),
    };
    faults.inject(Fault::new(5, count).after(call));
    let replica = open(&set_of, &local);
    if let Ok(replica) = &replica {
        for (key, value) in &wanted {
            if let Ok(found) = replica.db().get(key) {
                assert_eq!(found.as_ref(), Some(&value.clone().into()), "call {call}");
            }
        }
        for _ in 0..10 {
            let _ = replica.fetch_next();
        }
        if let Ok(found) = try_entries(replica.db()) {
            assert_eq!(found, wanted, "call {call}");
        }
    }
    let struck = faults.failures() > 0;
    faults.heal();
    let replica = match replica {
        Ok(replica) => replica,
        Err(_) => open(&set_of, &local).unwrap_or_else(|error| panic!("call {call}: {error:?}")),
    };
    assert_eq!(try_entries(replica.db()).unwrap(), wanted, "call {call}");
    complete(&replica);
    assert_eq!(try_entries(replica.db()).unwrap(), wanted, "call {call}");
    drop(replica);
    check_independent(&disk, &plain, &wanted);
    struck
}

#[test]
fn failed_calls_delay_a_replica() {
    let mut struck = [0; 2];
    for (number, is_local) in [(0, false), (1, true)] {
        for times in [Times::Once, Times::ForGood] {
            let failed = (0..90).filter(|&call| fail(call, times, is_local));
            struck[number] += failed.count();
        }
    }
    report(&format!("failing calls of replicas: {struck:?} of the set and of the directory"));
    assert!(struck[0] > 60 && struck[1] > 60, "{struck:?}");
}

#[test]
fn a_replica_continues_after_a_power_cut() {
    let disk = Arc::new(MemoryFs::new());
    let options = options(&disk);
    let wanted = back_up(&disk, &options, 150);
    disk.settle();
    let began = disk.operations();
    let replica = open(&set(&disk), &options).unwrap();
    complete(&replica);
    drop(replica);
    let states = cut_power(&disk, began, seed("cuts of replicas", 1), |left, _| {
        let replica = open(&set(left), &super::options(left)).map_err(|it| format!("{it:?}"))?;
        let check = |found: sievedb::Result<Entries>| match found {
            Ok(found) if found == wanted => Ok(()),
            other => Err(format!("{:?}", other.map(|it| it.len()))),
        };
        check(try_entries(replica.db()))?;
        while replica.fetch_next().map_err(|error| format!("{error:?}"))? {}
        check(try_entries(replica.db()))?;
        drop(replica);
        let db = super::options(left).open(REPLICA).map_err(|error| format!("{error:?}"))?;
        check(try_entries(&db)).map(|()| 1)
    });
    let states = states.unwrap_or_else(|violation| panic!("{violation}"));
    report(&format!("cuts of replicas: {states} states, 0 violations"));
    assert!(states > 200, "only {states} states");
}

#[test]
fn a_file_of_another_length_has_not_arrived() {
    let disk = Arc::new(MemoryFs::new());
    let options = large(&disk);
    let wanted = back_up(&disk, &options, 1000);
    let replica = open(&set(&disk), &options).unwrap();
    let first = replica.stats();
    assert!(replica.fetch_next().unwrap());
    drop(replica);
    let names = disk.list(REPLICA.as_ref()).unwrap();
    let name = names.iter().find(|name| name.ends_with(".sst")).unwrap();
    let path = format!("{REPLICA}/{name}");
    let bytes = disk.read(&path).unwrap();
    let longer = [&bytes[..], &[0]].concat();
    for other in [&bytes[..0], &bytes[..bytes.len() / 2], &longer] {
        disk.replace(&path, other.to_vec()).unwrap();
        let replica = open(&set(&disk), &options).unwrap();
        assert_eq!(replica.stats().files_pending, first.files_pending, "{} bytes", other.len());
        assert_eq!(try_entries(replica.db()).unwrap(), wanted);
    }
    let replica = open(&set(&disk), &options).unwrap();
    complete(&replica);
    assert_eq!(entries(replica.db()), wanted);
    drop(replica);
    check_independent(&disk, &options, &wanted);
}

/// A process ended after it renamed `CURRENT`, and the next one removed the list of files.
#[test]
fn the_list_of_files_outlives_a_name_that_is_not_durable() {
    let disk = Arc::new(MemoryFs::new());
    let plain = options(&disk);
    let wanted = back_up(&disk, &plain, 150);
    let faults = Arc::new(FaultFs::new(Arc::clone(&disk) as Arc<dyn Fs>));
    let replica = open(&set(&disk), &plain.clone().fs(Arc::clone(&faults) as Arc<dyn Fs>)).unwrap();
    for _ in 1..replica.stats().files_pending {
        assert!(replica.fetch_next().unwrap());
    }
    // The sync after the rename.
    faults.inject(Fault::new(5, Times::ForGood).calls(&[Call::SyncDir]).after(1));
    replica.fetch_next().unwrap_err();
    drop(replica);
    let began = disk.operations();
    drop(open(&set(&disk), &plain).unwrap());
    for at in began..=disk.operations() {
        let random = (0..32).map(|seed| Loss::Random { seed, torn: false });
        for loss in [Loss::Nothing, Loss::Everything].into_iter().chain(random) {
            let left = Arc::new(disk.crash(at, &loss));
            let replica = open(&set(&left), &options(&left));
            let replica = replica.unwrap_or_else(|error| panic!("cut at {at}, {loss:?}: {error}"));
            assert_eq!(try_entries(replica.db()).unwrap(), wanted);
        }
    }
}

#[test]
fn threads_read_while_tables_arrive() {
    let disk = Arc::new(MemoryFs::new());
    let options = large(&disk);
    let wanted = back_up(&disk, &options, 3000);
    let replica = open(&set(&disk), &options.clone().worker_threads(1)).unwrap();
    thread::scope(|scope| {
        for reader in 0..3 {
            let (db, wanted) = (replica.db(), &wanted);
            scope.spawn(move || {
                for (key, value) in wanted.iter().skip(reader).step_by(3) {
                    assert_eq!(db.get(key).unwrap().as_deref(), Some(&**value));
                }
                assert_eq!(entries(db), *wanted);
            });
        }
    });
    assert!(replica.wait(Duration::from_secs(60)).unwrap());
    assert_eq!(entries(replica.db()), wanted);
    drop(replica);
    check_independent(&disk, &options, &wanted);
}
