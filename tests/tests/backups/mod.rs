//! Backup sets.

mod archive;
mod archive_crash;
mod archive_faults;
mod basics;
mod copied_replicas;
mod crash;
mod descriptors;
mod faults;
mod keyspaces;
mod meanwhile;
mod refresh;
mod refresh_pruned;
mod refresh_turns;
mod replica_streams;
mod replicas;

use std::sync::Arc;

use sievedb::{BackupSet, Db, Options, clock::ManualClock, fs::Fs};
use sievedb_doubles::MemoryFs;
use sievedb_tests::settings::small_options;

const SET: &str = "data/set";

fn options(disk: &Arc<MemoryFs>) -> Options {
    small_options(Arc::clone(disk) as Arc<dyn Fs>)
}

fn set_on(fs: Arc<dyn Fs>) -> BackupSet {
    BackupSet::with_fs(SET, fs, Arc::new(ManualClock::new()))
}

fn set(disk: &Arc<MemoryFs>) -> BackupSet {
    set_on(Arc::clone(disk) as Arc<dyn Fs>)
}

/// Returns all entries of the default keyspace.
fn entries(db: &Db) -> Vec<(Vec<u8>, Vec<u8>)> {
    let entry = |entry: sievedb::Result<(sievedb::Bytes, sievedb::Bytes)>| {
        let (key, value) = entry.expect("it can be read");
        (key.to_vec(), value.to_vec())
    };
    db.iter().map(entry).collect()
}
