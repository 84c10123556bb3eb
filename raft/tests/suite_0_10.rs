//! The tests of a storage of openraft 0.10.

#[path = "support/next.rs"]
mod support;

use std::error::Error;

use openraft_0_10::{
    StorageError,
    testing::log::{StoreBuilder, Suite},
    type_config::TypeConfigExt as _,
};
use sievedb::Db;
use sievedb_raft::{LogStore, Options, StateMachine};
use tempfile::TempDir;

use support::{Map, Types};

struct Builder;

type Stores = (TempDir, LogStore<Types>, StateMachine<Types, Map>);

fn build() -> Result<Stores, Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let db = Db::open(dir.path().join("store"))?;
    let map = Map(db.keyspace("map")?);
    let (log, state_machine) =
        Options::default().open_0_10(&db, dir.path().join("snapshots"), map)?;
    Ok((dir, log, state_machine))
}

impl StoreBuilder<Types, LogStore<Types>, StateMachine<Types, Map>, TempDir> for Builder {
    async fn build(&self) -> Result<Stores, StorageError<Types>> {
        build().map_err(|error| StorageError::write(Types::err_from_string(error)))
    }
}

#[tokio::test]
async fn all_of_it_passes() {
    Suite::test_all(Builder).await.expect("the storage behaves as openraft expects");
}
