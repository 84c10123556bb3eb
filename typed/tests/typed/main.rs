//! Typed keyspaces, in stores on the disk.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]
#![expect(clippy::print_stdout, reason = "a test prints its seed")]

mod crash;
mod index;
mod index_builds;
mod index_writes;
mod keyspace;
mod operands;
mod rename;
mod threads;
mod writes;

use sievedb_typed::sievedb::Db;

/// Opens a store in a directory that is removed with the test.
fn store() -> (tempfile::TempDir, Db) {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path()).unwrap();
    (dir, db)
}

/// Returns the seed of a random test: `SIEVE_SEED`, or 1. Prints it.
fn seed() -> u64 {
    let seed = std::env::var("SIEVE_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    println!("SIEVE_SEED={seed}");
    seed
}
