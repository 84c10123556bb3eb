//! Read-only stores: the directory is unchanged, and contents equal those of a writable open.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

mod budget;
mod crashes;
mod damage;
mod locks;
mod refusals;
mod unchanged;

use std::sync::Arc;

use sievedb::{Db, Error, Options, fs::Fs};
use sievedb_doubles::{Call, Fault, FaultFs, MemoryFs, Times};
use sievedb_tests::settings::{STORE_DIR, small_options};

const ENOSPC: i32 = 28;
const EROFS: i32 = 30;

/// Every call that changes something.
const CHANGING: [Call; 11] = [
    Call::CreateDir,
    Call::Create,
    Call::OpenAppend,
    Call::Rename,
    Call::Unlink,
    Call::Link,
    Call::SyncDir,
    Call::Lock,
    Call::Append,
    Call::Reserve,
    Call::SyncData,
];

/// Entries of the default keyspace of [`killed`].
const ENTRIES: u32 = 300;

/// Creates a store whose process was killed: tables, and a log with entries of two keyspaces, one
/// of them only in the log.
fn killed() -> MemoryFs {
    let disk = Arc::new(MemoryFs::new());
    let db = small_options(disk.clone()).open(STORE_DIR).unwrap();
    for number in 0..ENTRIES {
        db.insert(number.to_be_bytes(), number.to_string()).unwrap();
    }
    db.flush().unwrap();
    let gone = db.keyspace("gone").unwrap();
    gone.insert("a", "1").unwrap();
    db.remove(7_u32.to_be_bytes()).unwrap();
    db.insert(8_u32.to_be_bytes(), "newer").unwrap();
    db.keyspace("users").unwrap().insert("anna", "7").unwrap();
    db.drop_keyspace("gone").unwrap();
    disk.copy()
}

/// Returns the disk with calls that fail with `errno`.
fn failing(disk: &Arc<MemoryFs>, errno: i32, calls: &[Call]) -> Arc<FaultFs> {
    let fs = Arc::new(FaultFs::new(Arc::clone(disk) as Arc<dyn Fs>));
    fs.inject(Fault::new(errno, Times::ForGood).calls(calls));
    fs
}

/// Returns options that open a store on `fs` read-only.
fn reading(fs: Arc<dyn Fs>) -> Options {
    small_options(fs).read_only(true)
}

/// Checks the entries of [`killed`].
fn check_entries(db: &Db) {
    assert_eq!(db.keyspaces().unwrap(), ["default", "users"]);
    assert_eq!(db.iter().count(), ENTRIES as usize - 1);
    assert_eq!(db.iter().rev().count(), ENTRIES as usize - 1);
    assert_eq!(db.get(7_u32.to_be_bytes()).unwrap(), None);
    assert_eq!(db.get(8_u32.to_be_bytes()).unwrap().as_deref(), Some(&b"newer"[..]));
    assert_eq!(db.get(9_u32.to_be_bytes()).unwrap().as_deref(), Some(&b"9"[..]));
    let users = db.keyspace("users").unwrap();
    assert_eq!(users.get("anna").unwrap().as_deref(), Some(&b"7"[..]));
    assert!(!users.contains_key("bert").unwrap() && !users.may_contain("bert"));
}

/// Returns whether a write was refused because the store is read-only.
fn is_refused<T>(outcome: &Result<T, Error>) -> bool {
    let Err(Error::ReadOnly { cause }) = outcome else { return false };
    matches!(&**cause, Error::OpenedReadOnly { path } if path.ends_with(STORE_DIR))
}
