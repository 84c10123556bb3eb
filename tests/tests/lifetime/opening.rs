//! Effects of an open on directory and tables.

use std::sync::Arc;

use sievedb::{Error, KeyspaceOptions, Options, clock::ManualClock, fs::Fs};
use sievedb_doubles::{Call, Fault, FaultFs, Loss, MemoryFs, Times};

use super::small_store::{STORE_DIR, flush, names, open};

fn options(fs: &Arc<MemoryFs>) -> Options {
    Options::new().fs(fs.clone()).clock(Arc::new(ManualClock::new()))
}

/// No file is created if there is no store and none may be created.
#[test]
fn missing_store_is_an_error_without_create_if_missing() {
    let with = |files: &[&str]| {
        let fs = Arc::new(MemoryFs::new());
        if !files.is_empty() {
            fs.create_dir(STORE_DIR.as_ref()).unwrap();
        }
        for file in files.iter().filter(|file| !file.is_empty()) {
            fs.create(format!("{STORE_DIR}/{file}").as_ref()).unwrap();
        }
        fs
    };
    let cases: [(&str, &[&str]); 4] = [
        ("a missing directory", &[]),
        ("an empty directory", &[""]),
        ("files of others", &["letter"]),
        ("a creation that was broken off", &["LOCK"]),
    ];
    for (name, files) in cases {
        let fs = with(files);
        let operations = fs.operations();
        match options(&fs).create_if_missing(false).open(STORE_DIR) {
            Err(Error::NoStore { path }) => assert!(path.ends_with(STORE_DIR), "{name}: {path:?}"),
            other => panic!("{name}: {other:?}"),
        }
        assert_eq!(fs.operations(), operations, "{name}");
    }

    let fs = with(&[]);
    let db = options(&fs).create_if_missing(true).open(STORE_DIR).unwrap();
    flush(&db, 0..10, "value");
    drop(db);
    let db = options(&fs).create_if_missing(false).open(STORE_DIR).unwrap();
    assert_eq!(db.iter().count(), 10);
    drop(db);
    fs.unlink(format!("{STORE_DIR}/CURRENT").as_ref()).unwrap();
    let lost = options(&fs).create_if_missing(false).open(STORE_DIR);
    assert!(matches!(lost, Err(Error::Corrupt { .. })), "there are tables: {lost:?}");
}

/// After a clean close, an open writes and syncs nothing. After a kill, it makes the log durable.
#[test]
fn open_after_a_clean_close_writes_nothing() {
    let fs = Arc::new(MemoryFs::new());
    let open = |fs: &Arc<MemoryFs>| options(fs).worker_threads(0).open(STORE_DIR).unwrap();
    let db = open(&fs);
    flush(&db, 0..10, "value");
    drop(db);
    let manifest = names(&fs, "").into_iter().find(|name| name.starts_with("MANIFEST-")).unwrap();
    assert_eq!(names(&fs, ".log"), [""; 0], "all is in tables");
    for round in 0..3 {
        let before = fs.operations();
        let db = open(&fs);
        assert_eq!(fs.journal()[before..], [], "round {round}");
        assert_eq!(db.iter().count(), 10 + round as usize);
        drop(db);
        assert_eq!(fs.journal()[before..], [], "round {round}: nothing was written to be closed");

        let db = open(&fs);
        flush(&db, 100 + round..101 + round, "more");
        drop(db);
        assert_eq!(names(&fs, &manifest), [&*manifest], "round {round}: it is appended to");
    }

    // The log has an entry, so it is continued.
    let db = open(&fs);
    db.insert("in the log", "only").unwrap();
    drop(db);
    let before = fs.operations();
    drop(open(&fs));
    assert_eq!(fs.journal()[before..], []);

    // Not closed: it is unknown whether the last edit is durable.
    let db = open(&fs);
    db.keyspace("other").unwrap();
    let killed = Arc::new(fs.crash(fs.operations(), &Loss::Nothing));
    drop(open(&killed));
    let manifests = names(&killed, "").into_iter().filter(|name| name.starts_with("MANIFEST-"));
    assert_ne!(manifests.collect::<Vec<_>>(), [manifest]);
}

/// A store that is opened for one write at a time does not read an ever longer manifest.
#[test]
fn long_manifest_is_rewritten_at_open() {
    let fs = Arc::new(MemoryFs::new());
    let length = |fs: &MemoryFs| {
        let manifests = fs.contents().into_iter().filter(|(path, _)| path.contains("MANIFEST-"));
        let lengths: Vec<_> = manifests.map(|(_, bytes)| bytes.len()).collect();
        assert_eq!(lengths.len(), 1);
        lengths[0]
    };
    let mut shortened = 0;
    for _ in 0..40 {
        let before = if fs.operations() > 0 { length(&fs) } else { 0 };
        let db = options(&fs).worker_threads(0).open(STORE_DIR).unwrap();
        shortened += usize::from(length(&fs) < before);
        for number in 0..40 {
            let name = format!("{number:0200}");
            db.keyspace(&name).unwrap();
            db.drop_keyspace(&name).unwrap();
        }
        drop(db);
        assert!(length(&fs) < 100 << 10);
    }
    assert!((1..40).contains(&shortened), "{shortened} times");
}

/// Due compactions and filters wait for an open with background rewrites.
#[test]
fn tables_are_unchanged_without_background_rewrites() {
    let fs = Arc::new(MemoryFs::new());
    let quiet = |workers| options(&fs).worker_threads(workers).background_rewrites(false);
    let db = quiet(0).open(STORE_DIR).unwrap();
    for round in 0..8 {
        flush(&db, round * 10..round * 10 + 100, "value");
    }
    db.default_keyspace()
        .set_options(KeyspaceOptions::new().range_filter_bits_per_key(12.0))
        .unwrap();
    drop(db);
    let tables = names(&fs, ".sst");
    assert_eq!(tables.len(), 8);
    for workers in [0, 2] {
        let db = quiet(workers).open(STORE_DIR).unwrap();
        assert_eq!(db.iter().count(), 170);
        db.wait_for_background().unwrap();
        let done = db.stats().background;
        assert_eq!((done.compactions, done.filters_rebuilt), (0, 0), "{workers} workers");
        drop(db);
        assert_eq!((names(&fs, ".sst"), names(&fs, ".filter")), (tables.clone(), vec![]));
    }
    let db = options(&fs).worker_threads(0).open(STORE_DIR).unwrap();
    db.wait_for_background().unwrap();
    assert!(db.stats().background.compactions > 0, "they are due");
    drop(db);

    // Requested work runs.
    let db = quiet(2).open(STORE_DIR).unwrap();
    flush(&db, 500..510, "value");
    db.compact().unwrap();
    assert_eq!(db.stats().keyspaces[0].runs, 1);
    drop(db);
    assert_eq!(open(&fs).iter().count(), 180);
}

/// Writers wait for compactions eventually, which must then run.
#[test]
fn writes_succeed_without_background_rewrites() {
    for workers in [0, 2] {
        let fs = Arc::new(MemoryFs::new());
        let db = options(&fs).worker_threads(workers).background_rewrites(false);
        let db = db.open(STORE_DIR).unwrap();
        for round in 0..40 {
            flush(&db, round..round + 1, "value");
        }
        assert!(db.stats().background.compactions > 0, "{workers} workers");
        assert_eq!(db.iter().count(), 40);
    }
}

/// A store can be below a directory whose file system never changes, or that may not be read.
#[test]
fn only_a_directory_with_a_new_entry_must_support_syncs() {
    const EACCES: i32 = 13;
    const EINVAL: i32 = 22;
    const EROFS: i32 = 30;
    const EIO: i32 = 5;
    for code in [EACCES, EINVAL, EROFS, EIO] {
        let disk = Arc::new(MemoryFs::new());
        disk.create_dir("fixed/mounted".as_ref()).unwrap();
        let faults = Arc::new(FaultFs::new(Arc::clone(&disk) as _));
        faults.inject(Fault::new(code, Times::ForGood).calls(&[Call::SyncDir]).suffix("fixed"));
        let open = |path: &str| options(&disk).fs(Arc::clone(&faults) as _).open(path);
        let opened = open("fixed/mounted/db");
        assert_eq!(opened.is_ok(), code != EIO, "{code}: {opened:?}");
        let error = open("fixed/db").unwrap_err();
        assert!(matches!(error, Error::Io { .. }), "{code}: {error:?}");
    }
}

#[cfg(target_os = "linux")]
#[expect(clippy::disallowed_methods, reason = "the path goes through a descriptor of the test")]
#[test]
fn a_store_is_created_below_a_file_system_without_syncs_of_directories() {
    use std::os::fd::AsRawFd as _;

    let dir = tempfile::tempdir().unwrap();
    let handle = std::fs::File::open(dir.path()).unwrap();
    let path = format!("/proc/self/fd/{}/db", handle.as_raw_fd());
    sievedb::Db::open(path).unwrap().close().unwrap();
    assert!(dir.path().join("db/CURRENT").exists());
}
