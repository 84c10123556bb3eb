//! Typed keyspaces, in stores on the disk.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

mod keyspace;

use sievedb_typed::sievedb::Db;

/// Opens a store in a directory that is removed with the test.
fn store() -> (tempfile::TempDir, Db) {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path()).unwrap();
    (dir, db)
}
