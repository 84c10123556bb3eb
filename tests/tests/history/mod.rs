//! Keyspaces that keep old versions, and what can be read of them.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod basics;
mod model;
mod times;

use std::sync::Arc;

use sievedb::{Counter, Db, Error, HistoryLength, KeyspaceOptions, Options, clock::ManualClock};
use sievedb_doubles::MemoryFs;
use sievedb_tests::settings::{STORE_DIR, small_keyspace, small_options};

/// Options whose new keyspaces keep the history of so many sequence numbers.
fn options(fs: &Arc<MemoryFs>, clock: &Arc<ManualClock>, length: HistoryLength) -> Options {
    let keyspace = small_keyspace().keep_history(length);
    small_options(Arc::clone(fs) as _).clock(Arc::clone(clock) as _).keyspace(keyspace)
}

/// Opens a new store whose keyspaces keep so many sequence numbers.
fn open(count: u64) -> Db {
    let (fs, clock) = (Arc::new(MemoryFs::with_seed(1)), Arc::new(ManualClock::new()));
    options(&fs, &clock, HistoryLength::Sequences(count)).open(STORE_DIR).unwrap()
}

fn counters(count: u64) -> KeyspaceOptions {
    let history = HistoryLength::Sequences(count);
    small_keyspace().keep_history(history).merge_operator(Arc::new(Counter))
}

#[track_caller]
fn assert_refused<T>(result: sievedb::Result<T>, want_oldest: Option<u64>) {
    match result {
        Err(Error::NotInHistory { oldest, .. }) => assert_eq!(oldest, want_oldest),
        Err(other) => panic!("{other:?}"),
        Ok(_) => panic!("the point is in the history"),
    }
}
