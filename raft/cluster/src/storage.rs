//! The store of a node: this one, or another one that is compared with it.

use openraft::storage::{RaftLogStorage, RaftStateMachine};
use sievedb::{Db, Durability, Keyspace};
use sievedb_raft::{LogStore, Reads, StateMachine};

use crate::{
    Result,
    map::Map,
    network::{MapTypes, Types},
    node::Settings,
};

/// The keyspace with the id of the node.
const IDENTITY: &str = "node";

/// A metric: its name, its description and its value.
pub type Figure = (&'static str, &'static str, u64);

/// The store of a node. A clone reads the same state.
pub trait Storage: Clone + Send + Sync + 'static {
    /// Types of openraft.
    type Types: MapTypes;
    /// The log.
    type Log: RaftLogStorage<Self::Types>;
    /// The state machine.
    type StateMachine: RaftStateMachine<Self::Types>;

    /// Opens or creates the store of a node.
    ///
    /// # Errors
    ///
    /// If the store cannot be opened, or belongs to another node.
    fn open(settings: &Settings) -> Result<(Self, Self::Log, Self::StateMachine)>;

    /// Returns the value of a key in the state machine.
    ///
    /// # Errors
    ///
    /// If it cannot be read.
    fn get(&self, key: &str) -> impl Future<Output = Result<Option<Vec<u8>>>> + Send;

    /// Returns metrics of the store.
    fn figures(&self) -> Vec<Figure>;
}

/// A SieveDB store.
#[derive(Debug, Clone)]
pub struct Sieve {
    db: Db,
    map: Keyspace,
    reads: Reads,
}

impl Storage for Sieve {
    type Types = Types;
    type Log = LogStore<Types>;
    type StateMachine = StateMachine<Types, Map>;

    fn open(settings: &Settings) -> Result<(Self, Self::Log, Self::StateMachine)> {
        let db = Db::open(settings.dir.join("store"))?;
        check_identity(&db, settings.id)?;
        let map = db.keyspace("map")?;
        let options = options(settings.planted_bug.as_deref())?;
        let (log, state_machine) =
            options.open(&db, settings.dir.join("snapshots"), Map(map.clone()))?;
        let reads = state_machine.reads();
        Ok((Self { db, map, reads }, log, state_machine))
    }

    async fn get(&self, key: &str) -> Result<Option<Vec<u8>>> {
        let value = self.reads.read(|| self.map.get(key)).await??;
        Ok(value.map(|value| value.to_vec()))
    }

    fn figures(&self) -> Vec<Figure> {
        let memory = self.db.stats().memory;
        vec![("sieve_memtable_bytes", "Bytes of memtables", memory.memtable_bytes)]
    }
}

/// Records the id of the node in a new store.
///
/// A node that answers under the id of another one has two votes in an election.
///
/// # Errors
///
/// If the store has the state of another node.
fn check_identity(db: &Db, id: u64) -> Result<()> {
    let identity = db.keyspace(IDENTITY)?;
    match identity.get("id")? {
        None => {
            let mut batch = db.batch();
            batch.insert(&identity, "id", id.to_be_bytes())?;
            Ok(batch.commit(Durability::Disk)?)
        }
        Some(stored) if stored[..] == id.to_be_bytes() => Ok(()),
        Some(stored) => {
            let stored = <[u8; 8]>::try_from(&stored[..]).map(u64::from_be_bytes)?;
            Err(format!(
                "the directory is that of node {stored}, not of node {id}; pass --id {stored}, or \
                 another directory"
            )
            .into())
        }
    }
}

#[cfg(feature = "planted-bugs")]
fn options(bug: Option<&str>) -> Result<sievedb_raft::Options> {
    let options = sievedb_raft::Options::default();
    match bug {
        Some("lost-vote") => Ok(options.planted_bug(sievedb_raft::PlantedBug::ForgetVote)),
        Some("lost-entry") => {
            Ok(options.planted_bug(sievedb_raft::PlantedBug::OmitEntryOfSnapshot))
        }
        None | Some("stale-read" | "stopped-node") => Ok(options),
        Some(other) => Err(format!("unknown bug: {other}").into()),
    }
}

#[cfg(not(feature = "planted-bugs"))]
fn options(bug: Option<&str>) -> Result<sievedb_raft::Options> {
    match bug {
        None => Ok(sievedb_raft::Options::default()),
        Some(_) => Err("bugs need the feature planted-bugs".into()),
    }
}
