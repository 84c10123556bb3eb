//! Values that are written once, to blob files beside the log.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::{path::Path, sync::Arc};

use sievedb::{
    BackupSet, ChangeRetention, Db, Durability, Error, OlderValues, Options, RestoreOptions,
    clock::ManualClock, fs::Fs,
};
use sievedb_doubles::{Call, Fault, FaultFs, Loss, MemoryFs, Times};
use sievedb_tests::settings::STORE_DIR;

use super::{State, blob_files, bytes_of, check, fill, keyspace, open, options, value};

/// Stored bytes of the long values of [`fill`] for 100 keys, and those of their log records.
const VALUES: std::ops::Range<u64> = 160_000..163_000;
const RECORDS_MAX: u64 = 16_000;

/// Returns the length of the log, without room for records.
fn log_bytes(disk: &MemoryFs) -> u64 {
    let contents = disk.contents();
    let logs = contents.iter().filter(|(path, _)| path.ends_with(".log"));
    logs.map(|(_, bytes)| bytes.iter().rposition(|&byte| byte != 0).unwrap_or(0) as u64).sum()
}

fn is_good(db: &Db) -> bool {
    db.verify().unwrap().is_good()
}

#[test]
fn a_value_is_written_once() {
    let disk = Arc::new(MemoryFs::new());
    let (db, mut state) = (open(&disk), State::new());
    fill(&db, 0..100, 0, &mut state);
    let (log, values) = (log_bytes(&disk), bytes_of(&disk, ".blob"));
    assert!(log < RECORDS_MAX && VALUES.contains(&values), "{log} and {values} bytes");
    let files = blob_files(&disk, STORE_DIR);
    db.flush().unwrap();
    assert_eq!(blob_files(&disk, STORE_DIR), files, "no value was copied");
    assert!(bytes_of(&disk, ".blob") - values < 64 * files.len() as u64, "only footers");
    check(&db, &state);
    db.compact().unwrap();
    assert_eq!(blob_files(&disk, STORE_DIR), files);
    assert!(is_good(&db));
}

/// A log with values is rewritten when the store is opened. The files go, also the one of a dropped
/// keyspace, and of values that were removed.
#[test]
fn files_of_the_log_go_when_it_goes() {
    let disk = Arc::new(MemoryFs::new());
    let (db, mut state) = (open(&disk), State::new());
    let other = db.keyspace_with("other", &keyspace()).unwrap();
    other.insert("key", value(1, 1, 5000)).unwrap();
    fill(&db, 0..20, 0, &mut state);
    check(&db, &state);
    assert!(blob_files(&disk, STORE_DIR).len() >= 2 && is_good(&db));
    drop(other);
    drop(db);
    let db = open(&disk);
    assert_eq!(blob_files(&disk, STORE_DIR), Vec::<String>::new());
    check(&db, &state);
    let other = db.keyspace("other").unwrap();
    assert_eq!(other.get("key").unwrap().unwrap(), value(1, 1, 5000));
    other.insert("key", value(1, 2, 5000)).unwrap();
    drop(other);
    db.drop_keyspace("other").unwrap();
    (0..20_u32).for_each(|number| db.remove(number.to_be_bytes()).unwrap());
    fill(&db, 30..100, 0, &mut State::new());
    db.remove_range(0_u32.to_be_bytes()..).unwrap();
    db.compact().unwrap();
    fill(&db, 0..1, 0, &mut State::new());
    db.flush().unwrap();
    drop(db);
    drop(open(&disk));
    assert_eq!(blob_files(&disk, STORE_DIR), Vec::<String>::new());
}

#[test]
fn batches_overwrites_and_snapshots_have_their_values() {
    let disk = Arc::new(MemoryFs::new());
    let (db, mut state) = (open(&disk), State::new());
    let mut batch = db.batch();
    for number in 0..40_u32 {
        let value = value(number, 0, if number.is_multiple_of(3) { 100 } else { 1500 });
        batch.insert(&db, number.to_be_bytes(), &value).unwrap();
        state.insert(number, value);
    }
    // The later one of two in a batch.
    let twice = value(1, 1, 1500);
    batch.insert(&db, 1_u32.to_be_bytes(), &twice).unwrap();
    state.insert(1, twice);
    batch.commit(Durability::Disk).unwrap();
    let old = state.clone();
    let snapshot = db.snapshot();
    for round in 1..4 {
        fill(&db, (0..40).step_by(7), round, &mut state);
    }
    check(&db, &state);
    db.flush().unwrap();
    check(&db, &state);
    assert!(is_good(&db));
    db.compact().unwrap();
    for (number, value) in &old {
        assert_eq!(snapshot.get(number.to_be_bytes()).unwrap().as_deref(), Some(&**value));
    }
    check(&db, &state);
    assert!(is_good(&db));
}

/// An open store may be read, copied and backed up while the log has values.
#[test]
fn copies_of_a_log_have_its_values() {
    let disk = Arc::new(MemoryFs::new());
    let fs = || Arc::clone(&disk) as Arc<dyn Fs>;
    let (db, mut state) = (open(&disk), State::new());
    fill(&db, 0..30, 0, &mut state);
    db.flush().unwrap();
    fill(&db, 20..60, 1, &mut state);
    db.keyspace("other").unwrap().insert("key", "value").unwrap();
    db.checkpoint("data/copy").unwrap();
    let set = BackupSet::with_fs("data/set", fs(), Arc::new(ManualClock::new()));
    set.create(&db).unwrap();
    let copied = state.clone();
    fill(&db, 0..60, 2, &mut state);
    db.compact().unwrap();
    check(&db, &state);
    drop(db);
    set.restore(1, "data/restored").unwrap();
    let wanted = RestoreOptions::new().keyspaces(["default"]);
    set.restore_with(&wanted, "data/part").unwrap();
    assert!(set.verify().unwrap().problems.is_empty());
    // A read-only store writes nothing, and may be copied, too.
    let reader = options(&disk).read_only(true).open("data/copy").unwrap();
    check(&reader, &copied);
    reader.checkpoint("data/copy2").unwrap();
    set.create(&reader).unwrap();
    drop(reader);
    set.restore(2, "data/restored2").unwrap();
    for dir in ["data/copy", "data/restored", "data/part", "data/copy2", "data/restored2"] {
        assert!(options(&disk).verify(dir, |_| ()).unwrap().is_good(), "{dir}");
        let copy = options(&disk).open(dir).unwrap();
        check(&copy, &copied);
        assert!(is_good(&copy), "{dir}");
    }
    let replica =
        set.open_replica(&RestoreOptions::new().backup(1), &options(&disk), "data/replica");
    let replica = replica.unwrap();
    check(replica.db(), &copied);
    while replica.fetch_next().unwrap() {}
    check(replica.db(), &copied);
}

/// Followers in another process read the values of the log, and notice that it was dropped.
#[test]
fn followers_read_values_of_the_log() {
    let disk = Arc::new(MemoryFs::new());
    let (db, mut state) = (open(&disk), State::new());
    fill(&db, 0..20, 0, &mut state);
    let follower = options(&disk).follow(true).open(STORE_DIR).unwrap();
    check(&follower, &state);
    for round in 1..4 {
        fill(&db, 0..40, round, &mut state);
        follower.refresh().unwrap();
        check(&follower, &state);
        db.flush().unwrap();
        follower.refresh().unwrap();
        check(&follower, &state);
    }
}

fn is_in_log(options: &Options, disk: &MemoryFs) -> bool {
    let db = options.clone().open(STORE_DIR).unwrap();
    fill(&db, 0..10, 0, &mut State::new());
    blob_files(disk, STORE_DIR).is_empty()
}

#[cfg(feature = "encryption")]
#[test]
fn values_of_an_encrypted_store_stay_in_the_log() {
    use sievedb::{RootKey, StaticKeys};

    let disk = Arc::new(MemoryFs::new());
    let keys = Arc::new(StaticKeys::new(1, RootKey::new([1; 32])));
    assert!(is_in_log(&options(&disk).encryption(keys), &disk));
}

#[test]
fn some_values_stay_in_the_log() {
    let new = || {
        let disk = Arc::new(MemoryFs::new());
        (options(&disk), disk)
    };
    let (plain, disk) = new();
    assert!(!is_in_log(&plain, &disk));
    let (plain, disk) = new();
    let retaining = plain.retain_changes(ChangeRetention::bytes(1 << 20));
    assert!(is_in_log(&retaining, &disk), "of a store that retains changes");
    let (plain, disk) = new();
    assert!(is_in_log(&plain.memory_budget(8 << 20), &disk), "without memory for a buffer");
    let (plain, disk) = new();
    let db = plain.open(STORE_DIR).unwrap();
    let long = value(1, 1, 5000);
    assert!(db.insert_if_absent("new", &long).unwrap());
    db.transaction(|tx| tx.insert(&db, "transaction", &long)).unwrap();
    db.insert_with_ttl("ttl", &long, std::time::Duration::from_secs(1000)).unwrap();
    assert_eq!(blob_files(&disk, STORE_DIR), Vec::<String>::new());
}

/// Returns a closed store whose log has values in one file, and the path of that file.
fn closed() -> (Arc<MemoryFs>, State, String) {
    let disk = Arc::new(MemoryFs::new());
    let (db, mut state) = (open(&disk), State::new());
    fill(&db, 0..10, 0, &mut state);
    drop(db);
    disk.settle();
    let files = blob_files(&disk, STORE_DIR);
    assert_eq!(files.len(), 1);
    (disk, state, format!("{STORE_DIR}/{}", files[0]))
}

/// A clean close vouches for the values: damage refuses the store, and a repair loses only the
/// damaged value.
#[test]
fn damaged_values_of_a_closed_store_are_found() {
    let (disk, mut state, path) = closed();
    let good = disk.read(&path).unwrap();
    assert!(options(&disk).verify(STORE_DIR, |_| ()).unwrap().is_good());
    let cuts = [0, 64, good.len() / 2, good.len() - 1].map(|bytes| good[..bytes].to_vec());
    let flips = (64..good.len()).step_by(501).map(|at| {
        let mut bytes = good.to_vec();
        bytes[at] ^= 1 << (at % 8);
        bytes
    });
    for bytes in cuts.into_iter().chain(flips) {
        disk.replace(&path, bytes).unwrap();
        assert!(!options(&disk).verify(STORE_DIR, |_| ()).unwrap().is_good());
        for read_only in [false, true] {
            match options(&disk).read_only(read_only).open(STORE_DIR) {
                Err(Error::Corrupt { path, .. }) => {
                    assert!(path.to_str().unwrap().ends_with(".log"), "{path:?}");
                }
                other => panic!("{other:?}"),
            }
        }
    }
    // The third value, of key 3: the first key has a short one.
    let mut bytes = good.to_vec();
    bytes[64 + 2 * 2005 + 100] ^= 1;
    disk.replace(&path, bytes).unwrap();
    let report = options(&disk).repair(STORE_DIR, "data/new", OlderValues::LeaveOut).unwrap();
    let [lost] = &report.lost[..] else { panic!("{report}") };
    assert_eq!(lost.path, Path::new(&path));
    assert_eq!(lost.keyspace.as_deref(), Some("default"));
    assert_eq!(report.older, 1, "{report}");
    state.remove(&3);
    check(&options(&disk).open("data/new").unwrap(), &state);
    disk.replace(&path, good).unwrap();
    assert_eq!(open(&disk).iter().count(), 10);
}

#[test]
fn a_lost_file_of_the_log_refuses_a_closed_store() {
    let (disk, state, path) = closed();
    let good = disk.read(&path).unwrap();
    disk.unlink(Path::new(&path)).unwrap();
    assert!(matches!(options(&disk).open(STORE_DIR), Err(Error::Corrupt { .. })));
    disk.replace(&path, good).unwrap();
    disk.unlink(&Path::new(STORE_DIR).join("CURRENT")).unwrap();
    options(&disk).repair(STORE_DIR, "data/new", OlderValues::LeaveOut).unwrap();
    check(&options(&disk).open("data/new").unwrap(), &state);
}

/// The file of unsynced values may be lost with them.
#[test]
fn lost_values_at_the_end_are_a_torn_tail() {
    let disk = Arc::new(MemoryFs::new());
    let (db, mut state) = (open(&disk), State::new());
    fill(&db, 0..5, 0, &mut state);
    db.persist(Durability::Disk).unwrap();
    let log = disk.contents();
    fill(&db, 5..10, 0, &mut State::new());
    let crashed = Arc::new(disk.crash(disk.operations(), &Loss::Nothing));
    let path = format!("{STORE_DIR}/{}", blob_files(&disk, STORE_DIR)[0]);
    let synced = log.get(&*path).unwrap().clone();
    crashed.replace(&path, synced).unwrap();
    let reopened = open(&crashed);
    // Key 5 has a short value.
    state.insert(5, value(5, 0, 100));
    check(&reopened, &state);
}

/// A full disk, or a file that cannot be ended, costs a copy and no value.
#[test]
fn faults_of_blob_files_lose_nothing() {
    let all = [Call::Create, Call::Append];
    for (calls, times, skipped) in
        [(&all[..], Times::ForGood, 0), (&all[1..], Times::Once, 3), (&all[1..], Times::Once, 8)]
    {
        let disk = Arc::new(MemoryFs::new());
        let fs = Arc::new(FaultFs::new(Arc::clone(&disk) as Arc<dyn Fs>));
        let with_faults = options(&disk).fs(Arc::clone(&fs) as Arc<dyn Fs>);
        let (db, mut state) = (with_faults.open(STORE_DIR).unwrap(), State::new());
        fill(&db, 0..skipped, 0, &mut state);
        fs.inject(Fault::new(28, times).calls(calls).suffix(".blob"));
        fill(&db, skipped..20, 0, &mut state);
        check(&db, &state);
        if times == Times::Once {
            db.flush().unwrap();
            check(&db, &state);
            assert!(is_good(&db));
        }
        drop(db);
        let db = open(&disk);
        check(&db, &state);
        assert!(is_good(&db));
    }
}

/// A repair without a manifest replays obsolete segments too, and ends at a lost value. So it must
/// not find a segment whose values are gone: the live segments follow.
#[test]
fn values_go_after_the_log_that_refers_to_them() {
    let disk = Arc::new(MemoryFs::new());
    let db = options(&disk).log_segment_bytes(4 << 10).open(STORE_DIR).unwrap();
    let other = db.keyspace_with("other", &keyspace()).unwrap();
    other.insert("key", value(1, 1, 5000)).unwrap();
    let unneeded = blob_files(&disk, STORE_DIR);
    // Fills the segment.
    let full = db.keyspace_with("full", &keyspace()).unwrap();
    (0..8_u8).for_each(|key| full.insert([key], value(key.into(), 1, 600)).unwrap());
    db.insert("live", "value").unwrap();
    db.persist(Durability::Disk).unwrap();
    drop(other);
    let start = disk.operations();
    db.drop_keyspace("other").unwrap();
    full.flush().unwrap();
    assert!(!blob_files(&disk, STORE_DIR).contains(&unneeded[0]), "the log needs it");
    for at in start..=disk.operations() {
        let alone = (0..disk.unsynced(at)).map(Loss::Alone);
        for loss in [Loss::Nothing, Loss::Everything].into_iter().chain(alone) {
            let crashed = Arc::new(disk.crash(at, &loss));
            for lost in ["CURRENT", "MANIFEST-000001"] {
                crashed.unlink(&Path::new(STORE_DIR).join(lost)).unwrap();
            }
            options(&crashed).repair(STORE_DIR, "data/new", OlderValues::LeaveOut).unwrap();
            let repaired = options(&crashed).open("data/new").unwrap();
            let live = repaired.get("live").unwrap();
            assert!(live.is_some_and(|live| live == "value"), "{}", disk.trace(at, &loss));
        }
    }
}
