//! Types and calls of openraft 0.9 that differ from the other release series.

use std::{collections::BTreeMap, path::Path};

use openraft::{BasicNode, CommittedLeaderId, StorageError};
pub(crate) use openraft::{
    EntryPayload, RaftLogReader as _, RaftSnapshotBuilder as _,
    storage::{RaftLogStorage as _, RaftLogStorageExt as _, RaftStateMachine as _},
};
use sievedb::Db;
use sievedb_raft::{Options, SnapshotStream};

use crate::support::{Map, Types};

pub(crate) type LogId = openraft::LogId<u64>;
pub(crate) type Vote = openraft::Vote<u64>;
pub(crate) type Entry = openraft::Entry<Types>;
pub(crate) type Meta = openraft::SnapshotMeta<u64, BasicNode>;
pub(crate) type StoredMembership = openraft::StoredMembership<u64, BasicNode>;
pub(crate) type LogStore = sievedb_raft::LogStore<Types>;
pub(crate) type StateMachine = sievedb_raft::StateMachine<Types, Map>;
pub(crate) type Failure = StorageError<u64>;

/// The log is purged before a snapshot is installed.
pub(crate) const PURGES_BEFORE_INSTALLATION: bool = true;

pub(crate) fn open(
    options: &Options,
    db: &Db,
    dir: &Path,
    map: Map,
) -> sievedb_raft::Result<(LogStore, StateMachine)> {
    options.open(db, dir, map)
}

pub(crate) fn log_id(term: u64, index: u64) -> LogId {
    LogId::new(CommittedLeaderId::new(term, 0), index)
}

/// An entry that makes `node` the only member.
pub(crate) fn membership(log_id: LogId, node: u64) -> Entry {
    let nodes = BTreeMap::from([(node, BasicNode::default())]);
    let membership = openraft::Membership::new(vec![[node].into()], nodes);
    Entry { log_id, payload: EntryPayload::Membership(membership) }
}

pub(crate) async fn apply(machine: &mut StateMachine, entries: Vec<Entry>) -> Result<(), Failure> {
    machine.apply(entries).await.map(drop)
}

/// Removes the entries from `from` on. `before` is the id of the entry before it.
pub(crate) async fn truncate(
    log: &mut LogStore,
    from: LogId,
    _before: Option<LogId>,
) -> Result<(), Failure> {
    log.truncate(from).await
}

pub(crate) async fn incoming(machine: &mut StateMachine) -> Result<SnapshotStream, Failure> {
    Ok(*machine.begin_receiving_snapshot().await?)
}

pub(crate) async fn install(
    machine: &mut StateMachine,
    meta: &Meta,
    received: SnapshotStream,
) -> Result<(), Failure> {
    machine.install_snapshot(meta, Box::new(received)).await
}
