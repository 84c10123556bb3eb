//! Repair copies the readable data of a damaged store into a new one.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use bytes::Bytes;
use sievedb::{
    Compression, Db, Durability, Error, KeyspaceOptions, OlderValues, Options, RepairReport,
    Result, fs::Fs as _,
};
use sievedb_doubles::MemoryFs;

use super::sample::{Files, STORE_DIR, disk, files};

const KEYS: u32 = 1_000;
const LOGGED: u32 = 20;
pub(super) const NEW: &str = "new";

pub(super) type State = BTreeMap<u32, Bytes>;

pub(super) fn options(fs: &Arc<MemoryFs>) -> Options {
    Options::new().fs(fs.clone()).worker_threads(0)
}

pub(super) fn users_options() -> KeyspaceOptions {
    KeyspaceOptions::new().block_bytes(1 << 10).compression(Compression::None)
}

/// Creates two tables of the keyspace `users`, one table of the default keyspace, and a log with
/// more keys of `users`, each durable. The newer table of `users` replaces or removes every second
/// key of the older one.
pub(super) fn store() -> Files {
    // The seed makes the false positives of filters reproducible.
    let fs = Arc::new(MemoryFs::with_seed(7));
    let db = options(&fs).open(STORE_DIR).unwrap();
    db.insert("a", "1").unwrap();
    db.flush().unwrap();
    let users = db.keyspace_with("users", &users_options()).unwrap();
    for key in 0..KEYS {
        users.insert(key.to_be_bytes(), [1; 100]).unwrap();
    }
    users.flush().unwrap();
    for key in (0..KEYS).step_by(2) {
        match key % 8 {
            0 => users.remove(key.to_be_bytes()).unwrap(),
            _ => users.insert(key.to_be_bytes(), [2; 100]).unwrap(),
        }
    }
    users.flush().unwrap();
    for key in KEYS..KEYS + LOGGED {
        let mut batch = db.batch();
        batch.insert(&users, key.to_be_bytes(), "logged").unwrap();
        batch.commit(Durability::Disk).unwrap();
    }
    drop((users, db));
    files(&fs)
}

pub(super) fn state(db: &Db) -> State {
    let number = |key: &[u8]| u32::from_be_bytes(key.try_into().unwrap());
    let users = db.keyspace("users").unwrap();
    users.iter().map(Result::unwrap).map(|(key, value)| (number(&key), value)).collect()
}

pub(super) fn tables(files: &Files) -> Vec<String> {
    files.keys().filter(|name| name.ends_with(".sst")).cloned().collect()
}

/// Flips a bit of a file at the offset that `at` computes from its length without reserved bytes.
pub(super) fn change(files: &mut Files, name: &str, at: impl Fn(usize) -> usize) {
    let mut bytes = files[name].to_vec();
    let at = at(bytes.iter().rposition(|&byte| byte != 0).unwrap() + 1);
    bytes[at] ^= 1;
    files.insert(name.to_owned(), bytes.into());
}

/// Truncates a file by `bytes` bytes.
fn cut(files: &mut Files, name: &str, bytes: usize) {
    let file = &files[name];
    let left = file.slice(..file.len() - bytes);
    files.insert(name.to_owned(), left);
}

/// Repairs the store. Returns the result, and checks that the old files are unchanged.
fn repair(files_before: &Files, older: OlderValues) -> (RepairReport, State) {
    let fs = disk(files_before);
    let report = options(&fs).repair(STORE_DIR, NEW, older).unwrap();
    for (name, bytes) in files_before {
        let path = format!("{STORE_DIR}/{name}");
        assert_eq!(fs.contents().get(&*path), Some(bytes), "{name} has changed");
    }
    let db = options(&fs).open(NEW).unwrap();
    assert!(db.verify().unwrap().is_good());
    assert_eq!(db.get("a").unwrap().as_deref(), Some(&b"1"[..]), "{report}");
    assert_eq!(db.keyspace("users").unwrap().options(), users_options());
    (report, state(&db))
}

#[test]
fn repair_copies_exactly_the_readable_data() {
    let good = store();
    let [_, older, newer] = &tables(&good)[..] else { panic!("{:?}", good.keys()) };
    let log = good.keys().rfind(|name| name.ends_with(".log")).unwrap();
    let whole = state(&options(&disk(&good)).open(STORE_DIR).unwrap());
    let is_new = |key: &u32| *key < KEYS && key.is_multiple_of(2);
    type Damage<'a> = &'a dyn Fn(&mut Files);
    let cases: [(&str, Damage<'_>, bool, &[&str]); 8] = [
        ("nothing", &|_| (), true, &[]),
        ("the older footer", &|files| change(files, older, |end| end - 1), false, &[]),
        ("the newer footer", &|files| change(files, newer, |end| end - 1), false, &[]),
        ("the newer header", &|files| change(files, newer, |_| 20), false, &[]),
        ("the newer end", &|files| cut(files, newer, 100), false, &[]),
        (
            "the newer end and a block",
            &|files| {
                change(files, newer, |end| end / 2);
                cut(files, newer, 100);
            },
            false,
            &[newer],
        ),
        ("a block of the newer", &|files| change(files, newer, |end| end / 2), true, &[newer]),
        ("the log", &|files| change(files, log, |end| end - 600), false, &[log]),
    ];
    for (name, damage, opens, lost) in cases {
        let mut files = good.clone();
        damage(&mut files);
        assert_eq!(options(&disk(&files)).open(STORE_DIR).is_ok(), opens, "{name}");
        let (report, found) = repair(&files, OlderValues::LeaveOut);
        assert_eq!(report.lost.len(), lost.len(), "{name}: {report}");
        for (lost, file) in report.lost.iter().zip(lost) {
            assert_eq!(lost.path, Path::new(STORE_DIR).join(file), "{name}: {report}");
            let is_table = file.ends_with(".sst");
            assert_eq!(lost.keyspace.as_deref(), is_table.then_some("users"), "{name}: {report}");
            assert_eq!(lost.keys.is_some(), is_table, "{name}: {report}");
        }
        for (key, value) in &found {
            assert_eq!(whole.get(key), Some(value), "{name}: nothing that was not there: {key}");
        }
        let missing: Vec<u32> =
            whole.keys().filter(|key| !found.contains_key(key)).copied().collect();
        // Keys of the older table are left out where the filter of the newer one has a false
        // positive, among 500 keys.
        let others = missing.iter().filter(|&key| !is_new(key)).count();
        let (kept_older, keys) = repair(&files, OlderValues::Keep);
        match name {
            "nothing" => assert!(missing.is_empty() && report.older == 0, "{missing:?}"),
            "the older footer" | "the newer footer" | "the newer header" | "the newer end" => {
                assert!(missing.is_empty() && report.older == 0, "{name}: {missing:?}");
                assert_eq!(report.tables_rescanned, 1, "{name}: {report}");
            }
            "a block of the newer" | "the newer end and a block" => {
                let bytes: u64 = report.lost.iter().map(|lost| lost.bytes).sum();
                assert!((500..2_500).contains(&bytes), "{name}: {report}");
                assert!((4..20).contains(&(missing.len() - others)) && others <= 2, "{missing:?}");
                assert_eq!(kept_older.older, report.older);
                assert!(report.older >= missing.len() as u64, "those removed, too: {report}");
                // Without the index it is unknown whether newer versions of the first key ended the
                // previous block.
                let certain = missing.len() - usize::from(name.starts_with("the newer end"));
                let older = missing[..certain].iter().all(|key| keys[key] == [1; 100][..]);
                assert!(older, "{name}: {missing:?}");
            }
            _ => {
                let from = *missing.first().unwrap();
                assert!((KEYS + 1..KEYS + LOGGED).contains(&from), "{missing:?}");
                assert!(missing.iter().copied().eq(from..KEYS + LOGGED), "{missing:?}");
            }
        }
    }
}

/// The manifest is intact, and only its pointer is lost or damaged.
#[test]
fn n15_repair_without_current_loses_nothing() {
    let good = store();
    let whole = state(&options(&disk(&good)).open(STORE_DIR).unwrap());
    let cases: [fn(&mut Files); 3] = [
        |files| drop(files.remove("CURRENT")),
        |files| change(files, "CURRENT", |end| end / 2),
        |files| {
            drop(files.remove("CURRENT"));
            drop(files.remove("CLOSED"));
            files.insert("notes.txt".to_owned(), Bytes::from_static(b"of somebody else"));
        },
    ];
    for damage in cases {
        let mut files = good.clone();
        damage(&mut files);
        assert!(options(&disk(&files)).open(STORE_DIR).is_err());
        let (report, found) = repair(&files, OlderValues::LeaveOut);
        assert_eq!(found, whole, "{report}");
        assert_eq!((report.lost.len(), report.replaced.len()), (0, 1), "{report}");
        assert_eq!(report.replaced[0].path, Path::new(STORE_DIR).join("CURRENT"), "{report}");
        assert!(report.to_string().starts_with("rebuilt: "), "{report}");
    }
}

/// An older manifest names tables with older values, so it never replaces a newer one.
#[test]
fn n15_repair_ignores_an_older_manifest() {
    let fs = Arc::new(MemoryFs::with_seed(7));
    let db = options(&fs).open(STORE_DIR).unwrap();
    db.insert("a", "1").unwrap();
    db.flush().unwrap();
    drop(db);
    let before = files(&fs);
    let mut after = before.clone();
    after.remove("CLOSED");
    let fs = disk(&after);
    let db = options(&fs).open(STORE_DIR).unwrap();
    db.remove("a").unwrap();
    db.insert("b", "2").unwrap();
    db.flush().unwrap();
    drop(db);
    let mut good = files(&fs);
    let manifest = |files: &Files| files.keys().rfind(|it| it.starts_with("MANIFEST")).cloned();
    let (old, new) = (manifest(&before).unwrap(), manifest(&good).unwrap());
    assert_ne!(old, new, "a new manifest was begun");
    // Restores the old manifest, as if its unlink was lost.
    good.insert(old.clone(), before[&old].clone());
    for (without_current, without_newest) in [(true, false), (false, true), (true, true)] {
        let mut files = good.clone();
        // `CLOSED` names the last manifest.
        files.remove("CLOSED");
        if without_current {
            files.remove("CURRENT");
        }
        if without_newest {
            change(&mut files, &new, |_| 80);
        }
        let fs = disk(&files);
        let report = options(&fs).repair(STORE_DIR, NEW, OlderValues::LeaveOut).unwrap();
        assert_eq!(report.is_rebuilt, without_newest, "{report}");
        assert_eq!(report.lost.len(), 1, "the report does not name the manifest used: {report}");
        let db = options(&fs).open(NEW).unwrap();
        assert_eq!(db.get("a").unwrap(), None, "{report}");
        assert_eq!(db.get("b").unwrap().as_deref(), Some(&b"2"[..]), "{report}");
    }
}

#[test]
fn n15_repair_of_a_table_without_footer_loses_nothing() {
    let fs = Arc::new(MemoryFs::with_seed(7));
    let db = options(&fs).open(STORE_DIR).unwrap();
    for key in 0..50_000_u32 {
        db.insert(key.to_be_bytes(), key.to_le_bytes()).unwrap();
    }
    db.flush().unwrap();
    let whole: Vec<_> = db.iter().map(Result::unwrap).collect();
    drop(db);
    let mut files = files(&fs);
    let [table] = &tables(&files)[..] else { panic!("{:?}", files.keys()) };
    cut(&mut files, table, 100);
    let fs = disk(&files);
    assert!(options(&fs).open(STORE_DIR).is_err());
    let report = options(&fs).repair(STORE_DIR, NEW, OlderValues::LeaveOut).unwrap();
    assert!(report.lost.is_empty() && report.tables_rescanned == 1, "{report}");
    let found = options(&fs).open(NEW).unwrap();
    assert!(found.iter().map(Result::unwrap).eq(whole));
}

#[test]
fn missing_table_does_not_end_a_repair() {
    let mut files = store();
    let table = tables(&files).pop().unwrap();
    files.remove(&table);
    let error = options(&disk(&files)).open(STORE_DIR).unwrap_err();
    assert!(matches!(&error, Error::Corrupt { path, .. } if path.ends_with(&table)), "{error:?}");
    let (report, found) = repair(&files, OlderValues::LeaveOut);
    assert_eq!(report.lost.len(), 1, "{report}");
    // Its filter is lost too, so all keys that it may have had are left out.
    assert_eq!(found.len() as u32, LOGGED + 1, "a key behind its last one: {report}");
    let (_, found) = repair(&files, OlderValues::Keep);
    assert_eq!(found.len() as u32, KEYS + LOGGED);
}

#[test]
fn harmful_repair_is_refused() {
    let good = store();
    let repair = |files: &Files, to: &str| {
        options(&disk(files)).repair(STORE_DIR, to, OlderValues::LeaveOut).unwrap_err()
    };
    let notes = disk(&good);
    notes.create_dir(Path::new(NEW)).unwrap();
    notes.create(&Path::new(NEW).join("notes")).unwrap();
    let error = options(&notes).repair(STORE_DIR, NEW, OlderValues::LeaveOut).unwrap_err();
    assert!(matches!(error, Error::DirectoryNotEmpty { .. }), "{error:?}");
    let mut files = good.clone();
    files.retain(|name, _| {
        !name.starts_with("MANIFEST") && !name.ends_with(".sst") && !name.ends_with(".log")
    });
    assert!(matches!(repair(&files, NEW), Error::Corrupt { .. }));
    let fs = disk(&good);
    let open = options(&fs).open(STORE_DIR).unwrap();
    let error = options(&fs).repair(STORE_DIR, NEW, OlderValues::LeaveOut).unwrap_err();
    assert!(matches!(error, Error::Locked { .. }), "{error:?}");
    drop(open);
    assert!(!fs.exists(Path::new(NEW)).unwrap(), "nothing is made");
}

/// A block ends with a newer version of a key, and the next one starts with its tombstone.
#[test]
fn damaged_tombstone_does_not_expose_an_older_value() {
    let fs = Arc::new(MemoryFs::with_seed(7));
    let options = |fs: &Arc<MemoryFs>| options(fs).keyspace(users_options());
    let db = options(&fs).open(STORE_DIR).unwrap();
    db.insert("k", "oldest").unwrap();
    db.flush().unwrap();
    db.remove("k").unwrap();
    let snapshot = db.snapshot();
    db.insert("k", [2; 3_000]).unwrap();
    for number in 0..50 {
        db.insert(format!("l{number}"), [1; 100]).unwrap();
    }
    db.flush().unwrap();
    drop((snapshot, db));
    let mut files = files(&fs);
    let newer = tables(&files).pop().unwrap();
    change(&mut files, &newer, |_| 1_000);
    for older in [OlderValues::LeaveOut, OlderValues::Keep] {
        let fs = disk(&files);
        let report = options(&fs).repair(STORE_DIR, NEW, older).unwrap();
        assert_eq!((report.lost.len(), report.older), (1, 1), "{older:?}: {report}");
        let db = options(&fs).open(NEW).unwrap();
        assert_eq!(db.get("k").unwrap(), None, "{older:?}");
        assert_eq!(db.iter().count(), 50, "{older:?}");
    }
}

/// A log of three segments loses the start of one.
#[test]
fn segments_before_a_damaged_one_are_recovered() {
    let fs = Arc::new(MemoryFs::with_seed(7));
    let db = options(&fs).log_segment_bytes(4 << 10).open(STORE_DIR).unwrap();
    let logs = |files: &Files| -> Vec<String> {
        files.keys().filter(|name| name.ends_with(".log")).cloned().collect()
    };
    // Number of writes when the log had one segment, and when it had two.
    let (mut writes, mut before) = (0_u32, [0; 2]);
    while logs(&files(&fs)).len() < 3 || writes < before[1] + 5 {
        let mut batch = db.batch();
        batch.insert(&db, writes.to_be_bytes(), [1; 100]).unwrap();
        batch.commit(Durability::Disk).unwrap();
        writes += 1;
        let segments = logs(&files(&fs)).len();
        before.iter_mut().skip(segments - 1).for_each(|count| *count = writes);
    }
    let good = files(&fs);
    drop(db);
    let [_, second, third] = &logs(&good)[..] else { panic!("{:?}", good.keys()) };
    type Damage<'a> = &'a dyn Fn(&mut Files);
    let cases: [(&str, Damage<'_>, u32, &str); 5] = [
        ("the header of the third", &|files| change(files, third, |_| 20), before[1], third),
        ("the start record of the third", &|files| change(files, third, |_| 70), before[1], third),
        ("the header of the second", &|files| change(files, second, |_| 20), before[0], second),
        ("the second", &|files| drop(files.remove(second)), before[0], second),
        ("a record of the second", &|files| change(files, second, |end| end - 300), 0, second),
    ];
    for (name, damage, least, lost) in cases {
        let mut files = good.clone();
        damage(&mut files);
        assert!(options(&disk(&files)).open(STORE_DIR).is_err(), "{name}");
        let fs = disk(&files);
        let report = options(&fs).repair(STORE_DIR, NEW, OlderValues::LeaveOut).unwrap();
        assert_eq!(report.lost.len(), 1, "{name}: {report}");
        assert_eq!(report.lost[0].path, Path::new(STORE_DIR).join(lost), "{name}: {report}");
        let db = options(&fs).open(NEW).unwrap();
        let keys: Vec<_> = db.iter().keys().map(|key| key.unwrap().to_vec()).collect();
        let prefix = (0..keys.len() as u32).map(|key| key.to_be_bytes().to_vec());
        assert!(keys.iter().cloned().eq(prefix), "{name}: {}", keys.len());
        assert!(report.log_batches >= keys.len() as u64, "{name}: {report}");
        let least = if least == 0 { before[0] } else { least };
        // The write that starts a segment is in that one or in the previous one.
        assert!((least - 1..writes).contains(&(keys.len() as u32)), "{name}: {}", keys.len());
    }
}

#[test]
fn repair_copies_an_entry_larger_than_the_budget() {
    let fs = Arc::new(MemoryFs::with_seed(7));
    let db = options(&fs).open(STORE_DIR).unwrap();
    let large = |byte| vec![byte; 3 << 20];
    db.insert("in a table", large(1)).unwrap();
    db.flush().unwrap();
    db.insert("in the log", large(2)).unwrap();
    drop(db);
    for parts in [options(&fs), options(&fs).memtable_bytes_max(1 << 20)] {
        let fs = disk(&files(&fs));
        let small = parts.fs(fs.clone()).memory_budget(8 << 20);
        let report = small.repair(STORE_DIR, NEW, OlderValues::LeaveOut).unwrap();
        assert!(report.lost.is_empty(), "{report}");
        let db = small.open(NEW).unwrap();
        for (key, byte) in [("in a table", 1), ("in the log", 2)] {
            assert!(db.get(key).unwrap().is_some_and(|value| value == large(byte)), "{key}");
        }
    }
}
