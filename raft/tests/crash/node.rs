//! A node on a simulated disk.

use std::{collections::BTreeMap, io::Read as _, path::Path, sync::Arc};

use sievedb::{Db, Keyspace, fs::Fs as _};
use sievedb_doubles::MemoryFs;
use sievedb_raft::{KEYSPACE, PlantedBug};
use sievedb_tests::settings::{STORE_DIR, small_keyspace, small_options};

use crate::{
    history::{Kept, State},
    series::*,
    support::Map,
    tests::options,
};

/// The directory of snapshots.
const SNAPSHOTS_DIR: &str = "data/snapshots";

pub(crate) struct Node {
    pub(crate) disk: Arc<MemoryFs>,
    pub(crate) db: Db,
    pub(crate) log: LogStore,
    pub(crate) state_machine: StateMachine,
}

impl Node {
    /// Opens a node whose memtables hold a few entries.
    pub(crate) fn open(disk: &Arc<MemoryFs>, bug: Option<PlantedBug>) -> Result<Self, String> {
        let store = small_options(disk.clone());
        let db = store.clone().open(STORE_DIR).map_err(|error| format!("the store: {error:?}"))?;
        let opened = || {
            let _small: Keyspace = db.keyspace_with(KEYSPACE, &small_keyspace())?;
            let map = Map(db.keyspace_with("map", &small_keyspace())?);
            open(&options(store, bug), &db, Path::new(SNAPSHOTS_DIR), map)
        };
        let (log, state_machine) = opened().map_err(|error| format!("the node: {error:?}"))?;
        Ok(Self { disk: disk.clone(), db, log, state_machine })
    }

    /// Reads everything.
    pub(crate) async fn state(&mut self) -> Result<State, String> {
        let text = |error: Failure| format!("{error:?}");
        let log = self.log.get_log_state().await.map_err(text)?;
        let entries = self.log.try_get_log_entries(..).await.map_err(text)?;
        let indexes: Vec<_> = entries.iter().map(|entry| entry.log_id.index).collect();
        if indexes.windows(2).any(|two| two[0] + 1 != two[1]) {
            return Err(format!("the log has a hole: {indexes:?}"));
        }
        let last = entries.last().map(|entry| entry.log_id).or(log.last_purged_log_id);
        if log.last_log_id != last {
            return Err(format!("the last id is {:?} instead of {last:?}", log.last_log_id));
        }
        let (applied, membership) = self.state_machine.applied_state().await.map_err(text)?;
        Ok(State {
            vote: self.log.read_vote().await.map_err(text)?,
            committed: self.log.read_committed().await.map_err(text)?,
            purged: log.last_purged_log_id,
            log: entries,
            applied,
            membership,
            map: read_map(&self.db)?,
            snapshot: self.snapshot().await?,
        })
    }

    /// Reads the current snapshot, and checks that no other one is left.
    async fn snapshot(&mut self) -> Result<Option<Kept>, String> {
        let current = self.state_machine.get_current_snapshot().await;
        let current = current.map_err(|error| format!("current snapshot: {error:?}"))?;
        let mut stores = Vec::new();
        for slot in 0..3 {
            let dir = format!("{SNAPSHOTS_DIR}/{slot}");
            let files = self.disk.list(Path::new(&dir)).map_err(|error| error.to_string())?;
            stores.extend((!files.is_empty()).then_some(dir));
        }
        let Some(mut current) = current else {
            return if stores.is_empty() { Ok(None) } else { Err(format!("files in {stores:?}")) };
        };
        let mut bytes = Vec::new();
        current.snapshot.read_to_end(&mut bytes).map_err(|error| error.to_string())?;
        let [dir] = &stores[..] else { return Err(format!("files in {stores:?}")) };
        let options = small_options(self.disk.clone()).read_only(true);
        let db = options.open(dir).map_err(|error| format!("the snapshot: {error:?}"))?;
        Ok(Some(Kept { meta: current.meta, map: read_map(&db)? }))
    }
}

fn read_map(db: &Db) -> Result<BTreeMap<String, String>, String> {
    let mut map = BTreeMap::new();
    if !db.keyspace_exists("map").map_err(|error| error.to_string())? {
        return Ok(map);
    }
    let keyspace = db.open_keyspace("map").map_err(|error| error.to_string())?;
    for entry in keyspace.iter() {
        let (key, value) = entry.map_err(|error| error.to_string())?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        map.insert(text(&key), text(&value));
    }
    Ok(map)
}
