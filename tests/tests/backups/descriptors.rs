//! Backups and replicas of more files than a process may have open.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::{
    env,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use sievedb::{BackupSet, Db, KeyspaceOptions, Options, RestoreOptions};

use crate::blobs::value;

const DIR_VARIABLE: &str = "SIEVE_FEW_DESCRIPTORS_DIR";
const TABLES: u32 = 300;

fn options(workers: usize) -> Options {
    let keyspace = KeyspaceOptions::new().table_bytes(4 << 10);
    Options::new().open_files_max(1000).worker_threads(workers).keyspace(keyspace)
}

/// A value that fills a table.
fn long_value(number: u32) -> Vec<u8> {
    value(number, 1, 5000)
}

/// Creates a store of small tables.
fn fill(dir: &Path) -> Db {
    let db = options(0).open(dir.join("db")).unwrap();
    db.ingest((0..TABLES).map(|number| (number.to_be_bytes(), long_value(number)))).unwrap();
    assert_eq!(db.stats().total().tables, u64::from(TABLES));
    db
}

/// Reads all tables, which keeps as many open as the process may.
fn check(db: &Db) {
    for number in 0..TABLES {
        assert_eq!(db.get(number.to_be_bytes()).unwrap().unwrap(), long_value(number));
    }
}

/// Runs a test in a process with few descriptors, with this directory.
fn run_limited(test: &str, dir: &Path) {
    let mut shell = Command::new("sh");
    shell.args(["-c", "ulimit -n 128 && exec \"$0\" \"$@\""]).arg(env::current_exe().unwrap());
    shell.args([&*format!("backups::descriptors::{test}"), "--exact", "--nocapture"]);
    shell.env(DIR_VARIABLE, dir).stdin(Stdio::null()).stdout(Stdio::null());
    assert!(shell.status().unwrap().success());
}

fn limited_dir() -> Option<PathBuf> {
    env::var_os(DIR_VARIABLE).map(PathBuf::from)
}

#[test]
fn limited_backup() {
    let Some(dir) = limited_dir() else { return };
    let db = options(0).open(dir.join("db")).unwrap();
    check(&db);
    let backup = BackupSet::new(dir.join("set")).create(&db).unwrap();
    assert!(backup.files > u64::from(TABLES), "{backup:?}");
    check(&db);
    db.insert("key", "value").unwrap();
    db.flush().unwrap();
}

#[test]
fn limited_replica() {
    let Some(dir) = limited_dir() else { return };
    let open = |workers, path: &str| {
        let set = BackupSet::new(dir.join("set"));
        set.open_replica(&RestoreOptions::new(), &options(workers), dir.join(path)).unwrap()
    };
    // Reads by ranges, and then beside the fetches.
    let replica = open(0, "replica");
    check(replica.db());
    assert!(replica.fetch_next().unwrap());
    while replica.fetch_next().unwrap() {
        replica.db().get(0_u32.to_be_bytes()).unwrap();
    }
    check(replica.db());
    drop(replica);
    let replica = open(1, "other");
    while !replica.wait(Duration::ZERO).unwrap() {
        check(replica.db());
    }
    assert!(replica.stats().error.is_none());
    check(replica.db());
}

#[test]
fn a_backup_needs_few_descriptors() {
    let dir = tempfile::tempdir().unwrap();
    drop(fill(dir.path()));
    run_limited("limited_backup", dir.path());
}

#[test]
fn a_replica_needs_few_descriptors() {
    let dir = tempfile::tempdir().unwrap();
    let db = fill(dir.path());
    BackupSet::new(dir.path().join("set")).create(&db).unwrap();
    drop(db);
    run_limited("limited_replica", dir.path());
}
