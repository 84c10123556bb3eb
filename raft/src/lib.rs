//! Log, state machine and snapshots of [openraft](https://docs.rs/openraft/0.9) in one SieveDB
//! store.
//!
//! Raft (Ongaro and Ousterhout, *In Search of an Understandable Consensus Algorithm*, 2014) keeps a
//! log, a vote and a state machine. [`open`] returns the first two as a [`LogStore`], the last one
//! as a [`StateMachine`], which calls an [`Application`] of yours for each entry.
//!
//! * **One order.** All of it is in one store, so what survives a crash is a prefix of what was
//!   written: the state machine is never ahead of the log, and no entry is purged that the state
//!   machine has lost.
//! * **Durability.** Entries and votes are on disk before openraft hears so. Commits overlap: the
//!   next entries are written while the last ones are synced. Applied entries are not synced; after
//!   a crash openraft applies them again.
//! * **Snapshots** are checkpoints: hard links to tables, with their filters. They are sent file by
//!   file, in chunks; every block is checked before one replaces the state of a node. A receiver
//!   needs room for the snapshot twice, beside its own state.
//! * Calls into the store block the calling task, as those of [`sievedb`] do.
//!
//! ```
//! use openraft::BasicNode;
//! use serde::{Deserialize, Serialize};
//! use sievedb::{Db, Keyspace, Transaction};
//! use sievedb_raft::{Application, SnapshotStream};
//!
//! #[derive(Debug, Clone, Serialize, Deserialize)]
//! pub struct Put {
//!     key: String,
//!     value: String,
//! }
//!
//! openraft::declare_raft_types!(
//!     pub Types: D = Put, R = (), NodeId = u64, Node = BasicNode, SnapshotData = SnapshotStream
//! );
//!
//! struct Puts(Keyspace);
//!
//! impl Application<Types> for Puts {
//!     fn keyspaces(&self) -> Vec<Keyspace> {
//!         vec![self.0.clone()]
//!     }
//!
//!     fn apply(&mut self, transaction: &mut Transaction, put: Put) -> sievedb::Result<()> {
//!         transaction.insert(&self.0, put.key, put.value)
//!     }
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! let db = Db::open(dir.path().join("store"))?;
//! let puts = Puts(db.keyspace("state")?);
//! let (log, state_machine) = sievedb_raft::open(&db, dir.path().join("snapshots"), puts)?;
//! // `openraft::Raft::new` takes both.
//! # let _: (sievedb_raft::LogStore<Types>, sievedb_raft::StateMachine<Types, Puts>) =
//! #     (log, state_machine);
//! # Ok(())
//! # }
//! ```

#![expect(clippy::disallowed_methods, reason = "snapshots lie beside the store")]

mod application;
mod error;
mod log_store;
mod record;
mod snapshot;
mod state_machine;

pub use crate::{
    application::Application,
    error::{Error, Result},
    log_store::LogStore,
    snapshot::{builder::SnapshotBuilder, stream::SnapshotStream},
    state_machine::StateMachine,
};

use std::path::Path;

use openraft::{Entry, RaftTypeConfig};
use serde::{Serialize, de::DeserializeOwned};
use sievedb::Db;

use crate::{record::Records, snapshot::Snapshots};

/// The keyspace of log, vote, and what is known of the state machine. An application leaves it
/// alone.
pub const KEYSPACE: &str = "sievedb-raft";

/// What this crate asks of openraft's types: entries of openraft, and requests that serde knows.
///
/// Implemented for all types that fit.
pub trait Types:
    RaftTypeConfig<
        Entry = Entry<Self>,
        D: Serialize + DeserializeOwned,
        R: Default,
        SnapshotData = SnapshotStream,
    >
{
}

impl<C> Types for C where
    C: RaftTypeConfig<
            Entry = Entry<C>,
            D: Serialize + DeserializeOwned,
            R: Default,
            SnapshotData = SnapshotStream,
        >
{
}

/// Returns the log and the state machine in `db`. Both are empty in a new store.
///
/// Snapshots are kept in the directory `snapshots`, which is created. If it is on the file system
/// of the store, a snapshot takes hard links, otherwise a copy. A snapshot whose installation was
/// interrupted is installed now.
///
/// # Errors
///
/// [`Error::Io`] if the directory cannot be used, [`Error::Store`] if the store fails, and
/// [`Error::Snapshot`] if the interrupted snapshot is damaged.
pub fn open<C: Types, A: Application<C>>(
    db: &Db,
    snapshots: impl AsRef<Path>,
    application: A,
) -> Result<(LogStore<C>, StateMachine<C, A>)> {
    let records = Records::open(db)?;
    let snapshots = Snapshots::open::<C>(snapshots.as_ref(), &records)?;
    let log = LogStore::new(records.clone());
    Ok((log, StateMachine::open(records, snapshots, application)?))
}
