//! Transactions: isolation, own writes, savepoints, limits.

mod changes;
mod conflicts;
mod keys;
mod keyspace_changes;
mod limits;
mod model;
mod removed_ranges;
mod threads;

use std::sync::Arc;

use sievedb::Db;
use sievedb_doubles::MemoryFs;
use sievedb_tests::settings::{STORE_DIR, small_options};

fn open() -> Db {
    small_options(Arc::new(MemoryFs::new())).open(STORE_DIR).expect("a new store")
}
