//! Types and calls of openraft 0.10 that differ from the other release series.

use std::{collections::BTreeMap, io, path::Path};

use futures_util::stream;
use openraft_0_10::{
    BasicNode,
    type_config::alias::{CommittedLeaderIdOf, EntryOf, LogIdOf, SnapshotMetaOf, VoteOf},
    vote::RaftLeaderId as _,
};
pub(crate) use openraft_0_10::{
    EntryPayload, RaftLogReader as _, RaftSnapshotBuilder as _,
    storage::{RaftLogStorage as _, RaftLogStorageExt as _, RaftStateMachine as _},
};
use sievedb::Db;
use sievedb_raft::{Options, SnapshotStream};

use crate::support::{Map, Types};

pub(crate) type LogId = LogIdOf<Types>;
pub(crate) type Vote = VoteOf<Types>;
pub(crate) type Entry = EntryOf<Types>;
pub(crate) type Meta = SnapshotMetaOf<Types>;
pub(crate) type StoredMembership =
    openraft_0_10::StoredMembership<CommittedLeaderIdOf<Types>, u64, BasicNode>;
pub(crate) type LogStore = sievedb_raft::LogStore<Types>;
pub(crate) type StateMachine = sievedb_raft::StateMachine<Types, Map>;
pub(crate) type Failure = io::Error;

/// The log is purged when a snapshot is installed.
pub(crate) const PURGES_BEFORE_INSTALLATION: bool = false;

pub(crate) fn open(
    options: &Options,
    db: &Db,
    dir: &Path,
    map: Map,
) -> sievedb_raft::Result<(LogStore, StateMachine)> {
    options.open_0_10(db, dir, map)
}

pub(crate) fn log_id(term: u64, index: u64) -> LogId {
    LogId::new(CommittedLeaderIdOf::<Types>::new(term, 0), index)
}

/// An entry that makes `node` the only member.
pub(crate) fn membership(log_id: LogId, node: u64) -> Entry {
    let nodes = BTreeMap::from([(node, BasicNode::default())]);
    let membership = openraft_0_10::Membership::new(vec![[node].into()], nodes);
    Entry { log_id, payload: EntryPayload::Membership(membership.expect("one member")) }
}

pub(crate) async fn apply(machine: &mut StateMachine, entries: Vec<Entry>) -> Result<(), Failure> {
    machine.apply(stream::iter(entries.into_iter().map(|entry| Ok((entry, None))))).await
}

/// Removes the entries from `_from` on. `before` is the id of the entry before it.
pub(crate) async fn truncate(
    log: &mut LogStore,
    _from: LogId,
    before: Option<LogId>,
) -> Result<(), Failure> {
    log.truncate_after(before).await
}

pub(crate) async fn incoming(machine: &mut StateMachine) -> Result<SnapshotStream, Failure> {
    Ok(machine.receiver().begin()?)
}

pub(crate) async fn install(
    machine: &mut StateMachine,
    meta: &Meta,
    received: SnapshotStream,
) -> Result<(), Failure> {
    machine.install_snapshot(meta, received).await
}
