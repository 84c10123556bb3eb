//! Log, state machine and snapshots of [openraft](https://docs.rs/openraft/0.9) in one SieveDB
//! store.
//!
//! Raft (Ongaro and Ousterhout, *In Search of an Understandable Consensus Algorithm*, 2014) keeps a
//! log, a vote and a state machine. `open` returns log and vote as a [`LogStore`], and the state
//! machine as a [`StateMachine`], which calls your [`Application`] for each entry. For openraft
//! 0.10, call `open_0_10` of [`Options`].
//!
//! * **Write order.** Log, vote and state are in one store, so a prefix of all writes survives a
//!   crash. The state machine is never ahead of the log, and no entry is purged that the state
//!   machine has lost.
//! * **Durability.** Entries and votes are synced before openraft is notified. With openraft 0.10,
//!   commits are pipelined: the next entries are written while the last ones are synced. Openraft
//!   0.9 waits for each append. Applied entries are not synced; after a crash openraft applies them
//!   again.
//! * **Snapshots** are checkpoints: hard links to tables with their filters, and a copy of the log.
//!   They are sent file by file, in parts. Every block is verified before a snapshot replaces the
//!   state of a node. openraft begins each transfer at the first byte. [`SnapshotParts`] and
//!   [`SnapshotReceiver`] continue an interrupted one, unless the receiver was restarted. With
//!   openraft 0.9, `send_snapshot` calls them.
//! * **Timeouts.** The transfer of the last part returns when the snapshot is installed: set
//!   `install_snapshot_timeout` of openraft above that time. Its default of 200 ms is too short for
//!   nearly every state: the leader then sends the snapshot again; without `send_snapshot`, from
//!   the first byte.
//! * **Disk space.** A receiver needs space for its own state and twice the snapshot. The bytes of
//!   an aborted transfer stay until the next one, or until the process ends. The current snapshot
//!   keeps tables that compaction has replaced until the next one is built: an idle node may use
//!   twice the space of its state, and that of a copy of its log.
//! * **Errors.** openraft stops a node after any error of the storage, also if only a snapshot
//!   failed, as on a full disk. Fix the cause, then restart the process.
//! * **Release series.** The feature `openraft-0-9`, the default, supports openraft 0.9.
//!   `openraft-0-10` adds `Options::open_0_10` and the module `v0_10` for the pre-release of 0.10.
//!   A store records the series that created it. Opening it with the other one fails.
//! * **Encoding.** Log and snapshots contain entries as encoded by postcard, which limits the types
//!   of requests and their changes: see [`Application::Request`].
//! * **Reads.** [`Reads`] reads the state without openraft, and never a partially installed
//!   snapshot.
//! * **Example.** `raft/cluster` of the repository is a cluster over HTTP, with a check of its
//!   linearizability.
//! * **Threads.** Snapshots are built and installed on separate threads. Other calls block the
//!   calling task, as those of [`sievedb`] do: with openraft 0.9 also for the sync of an append.
//!   Applying entries may wait for background work: run openraft on at least two worker threads.
//!   Opening the log completes an interrupted installation.
//! * **Memory.** Building, checking or installing a snapshot takes 8 MiB and the memory of its log
//!   entries. Writes of applied entries take 4 MiB and an entry. With 0.10, decoded entries take
//!   another 4 MiB and an entry. Openraft 0.9 reads all entries at once that become committed at
//!   once: usually up to 4 MiB and an entry, after an election more. After a restart it reads up to
//!   64 entries at once. The store's budget excludes all of this. A [memory
//!   pool](sievedb::MemoryPool) includes the snapshots.
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
//! impl Application for Puts {
//!     type Request = Put;
//!     type Response = ();
//!
//!     fn keyspaces(&self) -> Vec<Keyspace> {
//!         vec![self.0.clone()]
//!     }
//!
//!     fn apply(
//!         &mut self,
//!         transaction: &mut Transaction,
//!         _index: u64,
//!         put: Put,
//!     ) -> sievedb::Result<()> {
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

mod application;
mod claim;
mod commit_limit;
mod error;
mod log_store;
mod on_thread;
mod options;
mod planted;
mod purge;
mod reads;
mod record;
mod series;
mod snapshot;
mod state_machine;
#[cfg(feature = "openraft-0-9")]
mod turns;
#[cfg(feature = "openraft-0-10")]
pub mod v0_10;
#[cfg(feature = "openraft-0-9")]
mod v0_9;

#[cfg(feature = "openraft-0-9")]
pub use crate::v0_9::{SnapshotNetwork, Types, open, send_snapshot};

pub use crate::{
    application::Application,
    error::{Error, Result},
    log_store::LogStore,
    options::Options,
    reads::Reads,
    snapshot::{
        builder::SnapshotBuilder,
        stream::SnapshotStream,
        transfer::{SnapshotPart, SnapshotParts, SnapshotReceiver},
    },
    state_machine::StateMachine,
};

#[cfg(feature = "planted-bugs")]
#[doc(hidden)]
pub use crate::planted::PlantedBug;
#[cfg(not(feature = "planted-bugs"))]
use crate::planted::PlantedBug;

/// Name of the keyspace of log, vote, and records of the state machine. Applications must not use
/// this keyspace.
pub const KEYSPACE: &str = "sievedb-raft";
