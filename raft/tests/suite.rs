//! openraft's own tests of a storage.

mod support;

use openraft::{
    StorageError, StorageIOError,
    testing::{StoreBuilder, Suite},
};
use sievedb::Db;
use sievedb_raft::{LogStore, StateMachine};
use tempfile::TempDir;

use support::{Map, Types};

struct Builder;

type Stores = (TempDir, LogStore<Types>, StateMachine<Types, Map>);

fn build() -> Result<Stores, Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    let db = Db::open(dir.path().join("store"))?;
    let map = Map(db.keyspace("map")?);
    let (log, state_machine) = sievedb_raft::open(&db, dir.path().join("snapshots"), map)?;
    Ok((dir, log, state_machine))
}

impl StoreBuilder<Types, LogStore<Types>, StateMachine<Types, Map>, TempDir> for Builder {
    async fn build(&self) -> Result<Stores, StorageError<u64>> {
        Ok(build()
            .map_err(|error| StorageIOError::write(&std::io::Error::other(error.to_string())))?)
    }
}

#[test]
fn all_of_it_passes() {
    Suite::test_all(Builder).expect("the storage behaves as openraft expects");
}
