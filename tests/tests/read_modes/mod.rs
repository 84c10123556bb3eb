//! Read modes on the machine's file system and on those of tests.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]
#![expect(clippy::disallowed_methods, reason = "it damages files of stores")]

mod mapped;
mod opening;
mod out_of_files;

use std::{
    fs::{self, OpenOptions},
    io::ErrorKind,
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::Duration,
};

use sievedb::{Compression, Db, Error, KeyspaceOptions, Options, ReadMode, fs::Fs};
use sievedb_doubles::{Call, Fault, FaultFs, MemoryFs, Times};
use sievedb_tests::{
    dir_sync::{LeftOut, NoDirSync},
    settings::report,
};
use tempfile::TempDir;

const MODES: [ReadMode; 3] = [ReadMode::Pread, ReadMode::Map, ReadMode::Direct];
const KEYS: u32 = 5_000;

/// Creates a directory on a disk: temporary files may be in memory.
fn dir() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap()
}

fn options(mode: ReadMode, compression: Compression) -> Options {
    let keyspace = KeyspaceOptions::new().compression(compression).table_bytes(4 << 10);
    Options::new().read_mode(mode).block_cache_bytes(64 << 10).keyspace(keyspace)
}

fn value(key: u32) -> Vec<u8> {
    vec![key as u8; (key % 400) as usize]
}

/// Creates a closed store with several tables.
fn fill(path: &Path, compression: Compression) {
    let db = options(ReadMode::Pread, compression).open(path).unwrap();
    for key in 0..KEYS {
        db.insert(key.to_be_bytes(), value(key)).unwrap();
    }
    db.compact().unwrap();
    assert!(db.stats().total().tables > 4);
}

/// Opens the store, or returns `None` if its file system has no direct reads.
fn open(path: &Path, mode: ReadMode, compression: Compression) -> Option<sievedb::Result<Db>> {
    match options(mode, compression).open(path) {
        Err(Error::Io { source, .. })
            if mode == ReadMode::Direct && source.kind() == ErrorKind::Unsupported =>
        {
            report("read modes: direct reads are skipped, the file system has none");
            None
        }
        opened => Some(opened),
    }
}

fn tables(path: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
    let mut tables: Vec<_> =
        files.filter(|file| file.extension().is_some_and(|end| end == "sst")).collect();
    tables.sort();
    tables
}

#[test]
fn read_modes_return_equal_results() {
    for compression in [Compression::None, Compression::Lz4] {
        let dir = dir();
        fill(dir.path(), compression);
        for mode in MODES {
            let Some(db) = open(dir.path(), mode, compression) else { continue };
            let db = db.unwrap();
            for key in 0..KEYS {
                let found = db.get(key.to_be_bytes()).unwrap();
                assert!(found.as_deref() == Some(&value(key)), "{mode:?}, {compression:?}: {key}");
                assert_eq!(db.get([&key.to_be_bytes()[..], b"-"].concat()).unwrap(), None);
            }
            let forward: Vec<_> = db.iter().map(|entry| entry.unwrap().0).collect();
            let mut backward: Vec<_> = db.iter().rev().map(|entry| entry.unwrap().0).collect();
            backward.reverse();
            assert_eq!(forward.len(), KEYS as usize);
            assert!(forward == backward, "{mode:?}, {compression:?}");
            let stats = db.stats();
            let mapped = if mode == ReadMode::Map { stats.total().bytes } else { 0 };
            assert_eq!(stats.memory.mapped_bytes, mapped, "{mode:?}");
            // New tables are read in the same mode, and old ones are unmapped.
            db.insert(7_u32.to_be_bytes(), "new").unwrap();
            db.compact().unwrap();
            db.wait_for_background().unwrap();
            assert_eq!(db.get(7_u32.to_be_bytes()).unwrap().as_deref(), Some(&b"new"[..]));
            let mapped = if mode == ReadMode::Map { db.stats().total().bytes } else { 0 };
            // A worker may be about to drop its view of the old tables.
            for _ in 0..10_000 {
                if db.stats().memory.mapped_bytes == mapped {
                    break;
                }
                thread::sleep(Duration::from_millis(1));
            }
            assert_eq!(db.stats().memory.mapped_bytes, mapped, "{mode:?}");
            db.insert(7_u32.to_be_bytes(), value(7)).unwrap();
        }
    }
}

#[test]
fn damage_is_an_error_in_every_mode() {
    for mode in MODES {
        let dir = dir();
        fill(dir.path(), Compression::None);
        let table = tables(dir.path()).pop().unwrap();
        let good = fs::read(&table).unwrap();

        let mut flipped = good.clone();
        flipped[1000] ^= 1;
        fs::write(&table, &flipped).unwrap();
        let Some(db) = open(dir.path(), mode, Compression::None) else { continue };
        let db = db.unwrap();
        let read: Result<Vec<_>, _> = db.iter().collect();
        assert!(matches!(read, Err(Error::Corrupt { .. })), "{mode:?}: {read:?}");
        assert!(!db.verify().unwrap().problems.is_empty(), "{mode:?}");
        drop(db);

        fs::write(&table, &good).unwrap();
        let file = OpenOptions::new().write(true).open(&table).unwrap();
        file.set_len(good.len() as u64 - 1).unwrap();
        let opened = open(dir.path(), mode, Compression::None).unwrap();
        assert!(matches!(opened, Err(Error::Corrupt { .. })), "{mode:?}: a cut table is opened");
        fs::write(&table, &good).unwrap();
        let db = open(dir.path(), mode, Compression::None).unwrap().unwrap();
        assert_eq!(db.iter().count(), KEYS as usize);
    }
}

#[test]
fn direct_reads_are_refused_before_anything_is_written() {
    // This file system does not support direct reads.
    let disk = Arc::new(MemoryFs::new());
    let without = Arc::new(NoDirSync::new(Arc::clone(&disk), LeftOut::AfterDir));
    let open = |mode| {
        let fs = Arc::clone(&without) as Arc<dyn Fs>;
        Options::new().fs(fs).worker_threads(0).read_mode(mode).open("db")
    };
    let refused = |opened: sievedb::Result<Db>| match opened {
        Err(Error::Io { source, .. }) => assert_eq!(source.kind(), ErrorKind::Unsupported),
        other => panic!("{other:?}"),
    };
    refused(open(ReadMode::Direct));
    assert!(!disk.exists(Path::new("db/CURRENT")).unwrap());
    let db = open(ReadMode::Pread).unwrap();
    db.insert("key", "value").unwrap();
    drop(db);
    let before = disk.operations();
    refused(open(ReadMode::Direct));
    assert_eq!(disk.operations(), before, "something was written");
    assert!(open(ReadMode::Pread).unwrap().contains_key("key").unwrap());
}

#[test]
fn unsupported_direct_reads_are_refused_at_the_first_read() {
    const EINVAL: i32 = 22;

    let disk = Arc::new(MemoryFs::new());
    let faults = Arc::new(FaultFs::new(Arc::clone(&disk) as Arc<dyn Fs>));
    let open = |mode| {
        let fs = Arc::clone(&faults) as Arc<dyn Fs>;
        Options::new().fs(fs).worker_threads(0).read_mode(mode).open("db")
    };
    let no_reads = || Fault::new(EINVAL, Times::ForGood).calls(&[Call::ReadAt]).suffix("CURRENT");
    let refused = |opened: sievedb::Result<Db>| match opened {
        Err(Error::Io { op, .. }) => assert_eq!(op, "read directly"),
        other => panic!("{other:?}"),
    };
    faults.inject(no_reads());
    refused(open(ReadMode::Direct));
    faults.heal();
    let db = open(ReadMode::Pread).unwrap();
    assert_eq!(db.iter().count(), 0, "what stays behind is an empty store");
    db.insert("key", "value").unwrap();
    drop(db);
    faults.inject(no_reads());
    let before = disk.operations();
    refused(open(ReadMode::Direct));
    assert_eq!(disk.operations(), before, "something was written");
    faults.heal();
    assert!(open(ReadMode::Direct).unwrap().contains_key("key").unwrap());
}

#[test]
fn unsupported_maps_are_refused_before_anything_is_written() {
    const ENODEV: i32 = 19;

    let disk = Arc::new(MemoryFs::new());
    let faults = Arc::new(FaultFs::new(Arc::clone(&disk) as Arc<dyn Fs>));
    let open = |mode| {
        let fs = Arc::clone(&faults) as Arc<dyn Fs>;
        Options::new().fs(fs).worker_threads(0).read_mode(mode).open("db")
    };
    let refused = |opened: sievedb::Result<Db>| match opened {
        Err(Error::Io { op, .. }) => assert_eq!(op, "map"),
        other => panic!("{other:?}"),
    };
    let no_maps = || Fault::new(ENODEV, Times::ForGood).calls(&[Call::Map]);
    faults.inject(no_maps());
    refused(open(ReadMode::Map));
    assert!(!disk.exists(Path::new("db/CURRENT")).unwrap());
    faults.heal();
    // A file system may map an empty file, here the one of the lock, and no other.
    faults.inject(no_maps().suffix("CURRENT"));
    refused(open(ReadMode::Map));
    faults.heal();
    let db = open(ReadMode::Pread).unwrap();
    assert_eq!(db.iter().count(), 0, "what stays behind is an empty store");
    db.insert("key", "value").unwrap();
    drop(db);
    faults.inject(no_maps());
    let before = disk.operations();
    refused(open(ReadMode::Map));
    assert_eq!(disk.operations(), before, "something was written");
    faults.heal();
    assert!(open(ReadMode::Map).unwrap().contains_key("key").unwrap());
}
