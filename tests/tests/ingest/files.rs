//! Table files that were written outside of the store.

use std::{path::Path, sync::Arc};

use sievedb::{Compression, Db, Error, KeyspaceOptions, TableWriter, fs::Fs};
use sievedb_doubles::{Call, Fault, FaultFs, MemoryFs, Times};
use sievedb_tests::settings::report;

use super::{Map, key, of, options};

fn writer(disk: &Arc<MemoryFs>, path: &str, options: &KeyspaceOptions) -> TableWriter {
    disk.create_dir(Path::new("data/files")).unwrap();
    TableWriter::with_fs(path, Arc::clone(disk) as Arc<dyn Fs>, options).unwrap()
}

/// Writes a file with these keys, and returns its path.
fn write(disk: &Arc<MemoryFs>, name: &str, keys: impl Iterator<Item = u64>) -> String {
    let path = format!("data/files/{name}");
    let mut writer = writer(disk, &path, &KeyspaceOptions::new().block_bytes(1 << 10));
    keys.for_each(|number| writer.insert(key(number), name.repeat(30)).unwrap());
    let entries = writer.entries();
    let written = writer.finish().unwrap();
    let bytes = disk.contents()[&*path].len() as u64;
    assert_eq!((written.entries, written.bytes), (entries, bytes));
    path
}

fn all(db: &Db) -> Map {
    db.iter().map(of).collect()
}

/// Files in any order, of any length, over older data. They stay as they are.
#[test]
fn files_are_ingested_at_once() {
    for threads in [0, 2] {
        let disk = Arc::new(MemoryFs::new());
        let db = options(&disk).worker_threads(threads).open("data/db").unwrap();
        (0..300).step_by(7).for_each(|number| db.insert(key(number), "old").unwrap());
        let before = db.snapshot();
        let mut map = all(&db);
        let ranges = [("c", 200..300), ("a", 0..3), ("none", 5..5), ("b", 3..200), ("d", 301..302)];
        let paths = ranges.clone().map(|(name, keys)| write(&disk, name, keys));
        let old = map.clone();
        for (name, keys) in ranges {
            map.extend(keys.map(|number| (key(number), name.repeat(30).into_bytes())));
        }
        let contents = disk.contents();
        let ingested = db.ingest_files(&paths).unwrap();
        assert_eq!((ingested.entries, ingested.sequence), (301, db.snapshot().sequence()));
        assert_eq!(all(&db), map);
        assert_eq!(before.iter().map(of).collect::<Map>(), old);
        let is_file = |path: &str| path.starts_with("data/files");
        let now = disk.contents();
        assert!(contents.iter().filter(|(path, _)| is_file(path)).all(|(it, was)| now[it] == *was));
        db.insert(key(4), "newer").unwrap();
        drop((before, db));
        let db = options(&disk).open("data/db").unwrap();
        map.insert(key(4), b"newer".to_vec());
        assert_eq!(all(&db), map);
        assert!(db.verify().unwrap().is_good());
        // Again, into another keyspace.
        db.keyspace("other").unwrap().ingest_files(&paths).unwrap();
        assert_eq!(db.ingest_files::<&str>([]).unwrap().tables, 0);
    }
}

/// A file that cannot be ingested changes nothing.
#[test]
fn other_files_are_refused() {
    let disk = Arc::new(MemoryFs::new());
    let db = options(&disk).open("data/db").unwrap();
    db.insert("a", "1").unwrap();
    let low = write(&disk, "low", 0..10);
    let [high, last] = [write(&disk, "high", 9..20), write(&disk, "last", 30..40)];
    let refused = |paths: &[&str], what: &str| {
        let error = db.ingest_files(paths).unwrap_err();
        let Error::NotIngestible { path, reason } = &error else { panic!("{error:?}") };
        assert!(reason.contains(what), "{path:?}: {reason}");
        assert_eq!(db.len().unwrap(), 1);
    };
    refused(&[&last, &high, &low], "overlap those of data/files/low");
    refused(&[&low, &low], "overlap");
    let missing = db.ingest_files(["data/files/none"]).unwrap_err();
    assert!(matches!(missing, Error::Corrupt { .. }), "{missing:?}");
    // Tables of another store, with values only, or not.
    let other = options(&disk).open("data/other").unwrap();
    (0..20).for_each(|number| other.insert(key(number), "value").unwrap());
    other.flush().unwrap();
    let tables = || {
        let names = disk.list(Path::new("data/other")).unwrap().into_iter();
        let tables = names.filter(|name| name.ends_with(".sst"));
        tables.map(|name| format!("data/other/{name}")).collect::<Vec<_>>()
    };
    assert_eq!(db.ingest_files(tables()).unwrap().entries, 20);
    db.clear().unwrap();
    db.insert("a", "1").unwrap();
    other.remove(key(3)).unwrap();
    other.flush().unwrap();
    let newest = tables().pop().unwrap();
    refused(&[&newest], "tombstones");
}

/// A damaged file is refused, or its damage is of no entry.
#[test]
fn damage_is_found_before_anything_is_visible() {
    let disk = Arc::new(MemoryFs::new());
    let path = write(&disk, "file", 0..60);
    let good = disk.contents()[&*path].clone();
    let (mut refused, mut taken) = (0, 0);
    let flipped = |at: usize| {
        let mut bytes = good.to_vec();
        bytes[at] ^= 0x10;
        bytes
    };
    let cut = (0..good.len()).step_by(50).map(|at| (at, good[..at].to_vec()));
    let cases = (0..good.len()).step_by(3).map(|at| (at, flipped(at))).chain(cut);
    for (at, bytes) in cases {
        let damaged = disk.copy();
        damaged.unlink(Path::new(&path)).unwrap();
        damaged.create(Path::new(&path)).unwrap().append(&bytes).unwrap();
        let db = options(&Arc::new(damaged)).open("data/copy").unwrap();
        match db.ingest_files([&path]) {
            Ok(_) => {
                assert_eq!(db.len().unwrap(), 60, "byte {at}");
                assert!(db.iter().all(|entry| of(entry).1 == b"file".repeat(30)), "byte {at}");
                taken += 1;
            }
            Err(error) => {
                assert!(matches!(error, Error::Corrupt { .. }), "byte {at}: {error:?}");
                assert!(db.is_empty().unwrap(), "byte {at}");
                refused += 1;
            }
        }
    }
    report(&format!("damaged files to ingest: {refused} refused, {taken} without an effect"));
    assert!(refused > 10 * taken, "{refused} refused, {taken} taken");
}

/// Errors of a writer leave no file, and change nothing.
#[test]
fn a_table_that_is_not_finished_is_removed() {
    let disk = Arc::new(MemoryFs::new());
    let path = "data/files/table";
    let files = || disk.list(Path::new("data/files")).unwrap().len();
    let mut dropped = writer(&disk, path, &KeyspaceOptions::new());
    dropped.insert("b", "1").unwrap();
    for key in ["a", "b"] {
        let error = dropped.insert(key, "2").unwrap_err();
        assert!(matches!(error, Error::KeysNotAscending { .. }), "{error:?}");
    }
    let fs = Arc::clone(&disk) as Arc<dyn Fs>;
    assert!(TableWriter::with_fs(path, fs, &KeyspaceOptions::new()).is_err(), "the file exists");
    assert_eq!(files(), 1);
    drop(dropped);
    assert_eq!(files(), 0);
    let invalid =
        KeyspaceOptions::new().compression(Compression::Zstd { level: 99, dictionary_bytes: 0 });
    let fs = Arc::clone(&disk) as Arc<dyn Fs>;
    let error = TableWriter::with_fs(path, fs, &invalid).unwrap_err();
    assert!(matches!(error, Error::InvalidOption { .. }), "{error:?}");
    let faults = Arc::new(FaultFs::new(disk.clone()));
    let failing = Fault::new(28, Times::Once).calls(&[Call::Append, Call::SyncData]);
    faults.inject(failing);
    let mut failed = TableWriter::with_fs(path, faults, &KeyspaceOptions::new()).unwrap();
    failed.insert("a", "1").unwrap();
    assert!(failed.finish().is_err());
    assert_eq!(files(), 0);
}
