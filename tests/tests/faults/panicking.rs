//! Panicking calls of the file system.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::{
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::Arc,
};

use sievedb::{Db, Durability, Error, fs::Fs};
use sievedb_doubles::{Call, Fault, FaultFs, MemoryFs, Times};
use sievedb_tests::settings::{STORE_DIR, small_options};

/// Checks that the store is read-only because of a panic.
fn check_refused(name: &str, outcome: &Result<(), Error>) {
    let Err(Error::ReadOnly { cause }) = outcome else { panic!("{name}: {outcome:?}") };
    assert!(matches!(**cause, Error::WorkerPanicked), "{name}: {cause:?}");
}

#[test]
fn f2_panic_between_append_and_publish_hangs_nothing() {
    for workers in [0, 2] {
        for call in [Call::Append, Call::SyncData] {
            check_panic(workers, call, ".log", |db| db.insert("b", "1"));
            for file in [".log", "MANIFEST"] {
                check_panic(workers, call, file, |db| db.keyspace("users").map(drop));
            }
        }
    }
}

/// Makes the next `call` of the newest log or manifest panic during `write`.
fn check_panic(workers: usize, call: Call, file: &str, write: fn(&Db) -> Result<(), Error>) {
    let name = format!("{workers} workers, {call:?} {file}");
    let disk = Arc::new(MemoryFs::new());
    let fs = Arc::new(FaultFs::new(disk.clone()));
    let options = small_options(fs.clone()).worker_threads(workers);
    let db = options.durability(Durability::Disk).open(STORE_DIR).unwrap();
    db.insert("a", "1").unwrap();
    let names = disk.list(STORE_DIR.as_ref()).unwrap();
    let name_of_file = names.iter().rfind(|name| name.contains(file)).unwrap();
    fs.inject(Fault::panic(Times::Once).calls(&[call]).suffix(name_of_file));
    let panicked = catch_unwind(AssertUnwindSafe(|| write(&db)));
    assert!(panicked.is_err(), "{name}");
    check_refused(&name, &db.insert("c", "1"));
    check_refused(&name, &db.flush());
    check_refused(&name, &db.keyspace("others").map(drop));
    check_refused(&name, &db.wait_for_background());
    assert_eq!(db.get("a").unwrap().as_deref(), Some(&b"1"[..]), "{name}");
    drop(db);
    let db = small_options(disk).open(STORE_DIR).unwrap();
    assert!(db.contains_key("a").unwrap() && !db.contains_key("c").unwrap(), "{name}");
}

/// A thread that unwinds from its own panic may write to the store and close it.
#[test]
fn f2_panic_elsewhere_keeps_the_store_writable() {
    /// Writes when it is dropped.
    struct Writes<'a>(&'a Db);
    impl Drop for Writes<'_> {
        fn drop(&mut self) {
            self.0.insert("a", "1").unwrap();
            self.0.flush().unwrap();
        }
    }
    let db = small_options(Arc::new(MemoryFs::new())).open(STORE_DIR).unwrap();
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let _writes = Writes(&db);
        resume_unwind(Box::new("the panic that the test expects"));
    }));
    assert!(panicked.is_err());
    db.insert("b", "1").unwrap();
    assert!(db.contains_key("a").unwrap());
}
