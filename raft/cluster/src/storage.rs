//! The store of a node: this one, or another one that is compared with it.

use std::{future::ready, path::Path};

use openraft::{
    Raft, StorageError, StorageIOError,
    error::{Fatal, InstallSnapshotError, RaftError},
    raft::{InstallSnapshotRequest, InstallSnapshotResponse},
    storage::{RaftLogStorage, RaftStateMachine},
};
use serde::{Deserialize, Serialize};
use sievedb::{Db, Durability, Keyspace, Options};
use sievedb_raft::{LogStore, Reads, SnapshotReceiver, StateMachine};

use crate::{
    Result,
    files::TABLES_MAX,
    identity::{REPLACEMENT, Record},
    map::Map,
    network::{MapTypes, Types},
    node::Settings,
};

/// The keyspace with the [`Record`] of the node. It is not replicated.
const IDENTITY: &str = "node";

/// Message of a build without the feature `planted-bugs`.
pub(crate) const NO_BUGS: &str = "power cuts and planted bugs need another build: run `cargo \
                                  build -p sievedb-cluster --features planted-bugs` in raft";

/// The record of a node in its store.
#[derive(Serialize, Deserialize)]
struct Stored {
    #[serde(flatten)]
    record: Record,
    /// Id of the store. `None` in a store of an earlier release. A repaired copy of a store has
    /// another id, and may lack the vote and acknowledged entries.
    store: Option<String>,
}

/// A metric: its name, its description and its value.
pub type Figure = (&'static str, &'static str, u64);

/// The response to a request of a transfer of a snapshot.
pub type Received<T> = std::result::Result<T, RaftError<u64, InstallSnapshotError>>;

/// The store of a node. A clone reads the same state.
pub trait Storage: Clone + Send + Sync + 'static {
    /// Types of openraft.
    type Types: MapTypes;
    /// The log.
    type Log: RaftLogStorage<Self::Types>;
    /// The state machine.
    type StateMachine: RaftStateMachine<Self::Types>;

    /// Name of the store in the directory of a node. `open` creates it first.
    const NAME: &'static str;

    /// Opens or creates the store of a node.
    ///
    /// # Errors
    ///
    /// If the store cannot be opened.
    fn open(settings: &Settings) -> Result<(Self, Self::Log, Self::StateMachine)>;

    /// Returns the record of the node, or `None` in a new store.
    ///
    /// # Errors
    ///
    /// If it cannot be read.
    fn identity(&self) -> Result<Option<Record>>;

    /// Replaces the record of the node. It is durable when this returns.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    fn record_identity(&self, record: &Record) -> Result<()>;

    /// Returns the value of a key in the state machine.
    ///
    /// # Errors
    ///
    /// If it cannot be read.
    fn get(&self, key: &str) -> impl Future<Output = Result<Option<Vec<u8>>>> + Send;

    /// Returns metrics of the store.
    fn figures(&self) -> Vec<Figure>;

    /// Returns the number of bytes received of a snapshot, after which its transfer continues.
    /// Default 0: each transfer begins at the first byte.
    ///
    /// # Errors
    ///
    /// If it cannot be read.
    fn received_bytes(&self, _id: &str) -> impl Future<Output = Received<u64>> + Send {
        ready(Ok(0))
    }

    /// Receives a part of a snapshot.
    ///
    /// # Errors
    ///
    /// Errors of openraft.
    fn install_snapshot(
        &self,
        raft: &Raft<Self::Types>,
        request: InstallSnapshotRequest<Self::Types>,
    ) -> impl Future<Output = Received<InstallSnapshotResponse<u64>>> + Send {
        raft.install_snapshot(request)
    }
}

/// A SieveDB store.
#[derive(Debug, Clone)]
pub struct Sieve {
    db: Db,
    map: Keyspace,
    reads: Reads,
    receiver: SnapshotReceiver,
}

impl Storage for Sieve {
    type Types = Types;
    type Log = LogStore<Types>;
    type StateMachine = StateMachine<Types, Map>;

    const NAME: &'static str = "store";

    fn open(settings: &Settings) -> Result<(Self, Self::Log, Self::StateMachine)> {
        let store = settings.dir.join(Self::NAME);
        let options = if settings.power_cuts { on_disk(&store)? } else { Options::new() };
        let db = options.clone().open_files_max(TABLES_MAX).open(&store)?;
        let is_new = db.keyspaces()? == ["default"] && db.is_empty()?;
        if !is_new && !db.keyspace_exists(IDENTITY)? {
            let store = store.display();
            return Err(format!("{store} is not the store of a node; check --dir").into());
        }
        // The first keyspace marks a store of a node.
        db.keyspace(IDENTITY)?;
        let map = db.keyspace("map")?;
        let options = with_bug(options, settings.planted_bug.as_deref())?;
        let (log, state_machine) =
            options.open(&db, settings.dir.join("snapshots"), Map(map.clone()))?;
        let (reads, receiver) = (state_machine.reads(), state_machine.receiver());
        Ok((Self { db, map, reads, receiver }, log, state_machine))
    }

    fn identity(&self) -> Result<Option<Record>> {
        let Some(stored) = self.db.keyspace(IDENTITY)?.get("record")? else { return Ok(None) };
        let Stored { record, store } = serde_json::from_slice(&stored)?;
        if store.is_some_and(|store| store != self.store_id()) {
            return Err(format!(
                "the store is a repaired one, which may lack acknowledged entries; {REPLACEMENT}"
            )
            .into());
        }
        Ok(Some(record))
    }

    fn record_identity(&self, record: &Record) -> Result<()> {
        let identity = self.db.keyspace(IDENTITY)?;
        let mut batch = self.db.batch();
        let stored = Stored { record: record.clone(), store: Some(self.store_id()) };
        batch.insert(&identity, "record", serde_json::to_vec(&stored)?)?;
        batch.commit(Durability::Disk)?;
        Ok(())
    }

    async fn get(&self, key: &str) -> Result<Option<Vec<u8>>> {
        let value = self.reads.read(|| self.map.get(key)).await??;
        Ok(value.map(|value| value.to_vec()))
    }

    fn figures(&self) -> Vec<Figure> {
        let memory = self.db.stats().memory;
        vec![("sieve_memtable_bytes", "Bytes of memtables", memory.memtable_bytes)]
    }

    async fn received_bytes(&self, id: &str) -> Received<u64> {
        let unreadable = |error| StorageError::from(StorageIOError::read_snapshot(None, &error));
        let received = self.receiver.received_bytes(id);
        received.map_err(|error| RaftError::Fatal(Fatal::StorageError(unreadable(error))))
    }

    async fn install_snapshot(
        &self,
        raft: &Raft<Types>,
        request: InstallSnapshotRequest<Types>,
    ) -> Received<InstallSnapshotResponse<u64>> {
        self.receiver.install_snapshot(raft, request).await
    }
}

impl Sieve {
    fn store_id(&self) -> String {
        format!("{:032x}", self.map.id().store)
    }
}

/// Returns options of a store whose files are on a disk that loses what is not synced if the process
/// is killed. The disk is a file in `dir`, so a directory with a store exists as without power cuts.
#[cfg(feature = "planted-bugs")]
fn on_disk(dir: &Path) -> Result<Options> {
    crate::directories::create(dir)?;
    let disk = sievedb_doubles::MemoryFs::kept_in(&dir.join("disk"))?;
    Ok(Options::new().fs(std::sync::Arc::new(disk)))
}

#[cfg(feature = "planted-bugs")]
fn with_bug(store: Options, bug: Option<&str>) -> Result<sievedb_raft::Options> {
    use sievedb_raft::PlantedBug;
    let options = sievedb_raft::Options::new(store);
    let bug = match bug {
        Some("lost-vote") => PlantedBug::ForgetVote,
        Some("lost-entry") => PlantedBug::OmitEntryOfSnapshot,
        Some("unsynced-log") => PlantedBug::UnsyncedEntries,
        Some("kept-leadership") => PlantedBug::KeepLeadership,
        None | Some("stale-read" | "stopped-node") => return Ok(options),
        Some(other) => return Err(format!("unknown bug: {other}").into()),
    };
    Ok(options.planted_bug(bug))
}

#[cfg(not(feature = "planted-bugs"))]
fn on_disk(_: &Path) -> Result<Options> {
    Err(NO_BUGS.into())
}

#[cfg(not(feature = "planted-bugs"))]
fn with_bug(store: Options, bug: Option<&str>) -> Result<sievedb_raft::Options> {
    match bug {
        None => Ok(sievedb_raft::Options::new(store)),
        Some(_) => Err(NO_BUGS.into()),
    }
}
