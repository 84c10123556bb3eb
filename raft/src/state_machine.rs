//! The state machine: applies entries, builds and installs snapshots.

use std::fmt;

use openraft::{
    Entry, EntryPayload, LogId, OptionalSend, Snapshot, StorageError, StorageIOError,
    StoredMembership, storage::RaftStateMachine,
};
use sievedb::{Durability, Transaction};

use crate::{
    Application, PlantedBug, Reads, Result, SnapshotBuilder, SnapshotStream, Types,
    record::{APPLIED, Applied, INSTALLING, Kept, Meta, Records, encode},
    snapshot::{Snapshots, install::install},
};

/// Bytes of a transaction after which it is committed, and the next one begins.
const TRANSACTION_BYTES: u64 = 4 << 20;

/// The replicated state of a node.
pub struct StateMachine<C: Types, A> {
    records: Records,
    snapshots: Snapshots,
    application: A,
    applied: Applied<C::NodeId, C::Node>,
    reads: Reads,
}

impl<C: Types, A> fmt::Debug for StateMachine<C, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StateMachine").field("applied", &self.applied).finish_non_exhaustive()
    }
}

impl<C: Types, A: Application<C>> StateMachine<C, A> {
    /// Opens the state machine. Ends an installation that was interrupted.
    pub(crate) fn open(records: Records, snapshots: Snapshots, application: A) -> Result<Self> {
        if let Some(kept) = records.read::<Kept<C>>(INSTALLING)? {
            install::<C>(&records, &snapshots, &application.keyspaces(), &kept)?;
        }
        let applied = records.read(APPLIED)?.unwrap_or_default();
        Ok(Self { records, snapshots, application, applied, reads: Reads::new() })
    }

    /// Returns a handle that reads the state beside openraft.
    pub fn reads(&self) -> Reads {
        self.reads.clone()
    }

    fn apply_all(&mut self, entries: impl IntoIterator<Item = Entry<C>>) -> Result<Vec<C::R>> {
        let mut responses = Vec::new();
        let mut transaction = self.records.db.begin();
        for entry in entries {
            self.applied.log_id = Some(entry.log_id.clone());
            responses.push(match entry.payload {
                EntryPayload::Blank => C::R::default(),
                EntryPayload::Normal(request) => {
                    self.application.apply(&mut transaction, request)?
                }
                EntryPayload::Membership(membership) => {
                    self.applied.membership = StoredMembership::new(Some(entry.log_id), membership);
                    C::R::default()
                }
            });
            if transaction.bytes() > TRANSACTION_BYTES {
                self.commit(transaction)?;
                transaction = self.records.db.begin();
            }
        }
        self.commit(transaction)?;
        Ok(responses)
    }

    /// Commits a transaction with the id of the last entry that it contains.
    fn commit(&self, mut transaction: Transaction) -> Result<()> {
        if self.snapshots.options().has_bug(PlantedBug::ApplyWithoutId) {
            transaction.commit(Durability::OsBuffer)?;
            transaction = self.records.db.begin();
        }
        transaction.insert(&self.records.keyspace, APPLIED, encode(&self.applied)?)?;
        transaction.commit(Durability::OsBuffer)?;
        Ok(())
    }

    fn install(&mut self, meta: &Meta<C>, stream: SnapshotStream) -> Result<()> {
        let turn = self.snapshots.turn();
        let kept = self.snapshots.receive::<C>(&self.records, meta, stream)?;
        let mut whole = self.reads.exclude();
        *whole = false;
        install::<C>(&self.records, &self.snapshots, &self.application.keyspaces(), &kept)?;
        self.applied = self.records.read(APPLIED)?.unwrap_or_default();
        *whole = true;
        drop((whole, turn));
        Ok(())
    }
}

impl<C: Types, A: Application<C>> RaftStateMachine<C> for StateMachine<C, A> {
    type SnapshotBuilder = SnapshotBuilder<C>;

    async fn applied_state(
        &mut self,
    ) -> std::result::Result<
        (Option<LogId<C::NodeId>>, StoredMembership<C::NodeId, C::Node>),
        StorageError<C::NodeId>,
    > {
        Ok((self.applied.log_id.clone(), self.applied.membership.clone()))
    }

    /// Not synced: entries that a crash loses are in the log, and applied again.
    async fn apply<I>(
        &mut self,
        entries: I,
    ) -> std::result::Result<Vec<C::R>, StorageError<C::NodeId>>
    where
        I: IntoIterator<Item = Entry<C>> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let applied = self.apply_all(entries);
        Ok(applied.map_err(|error| StorageIOError::write_state_machine(&error))?)
    }

    async fn get_snapshot_builder(&mut self) -> SnapshotBuilder<C> {
        SnapshotBuilder::new(self.records.clone(), self.snapshots.clone())
    }

    async fn begin_receiving_snapshot(
        &mut self,
    ) -> std::result::Result<Box<SnapshotStream>, StorageError<C::NodeId>> {
        let stream = self.snapshots.incoming();
        Ok(Box::new(stream.map_err(|error| StorageIOError::write_snapshot(None, &error))?))
    }

    async fn install_snapshot(
        &mut self,
        meta: &Meta<C>,
        snapshot: Box<SnapshotStream>,
    ) -> std::result::Result<(), StorageError<C::NodeId>> {
        let installed = self.install(meta, *snapshot);
        let signature = Some(meta.signature());
        Ok(installed.map_err(|error| StorageIOError::write_snapshot(signature, &error))?)
    }

    async fn get_current_snapshot(
        &mut self,
    ) -> std::result::Result<Option<Snapshot<C>>, StorageError<C::NodeId>> {
        let current = self.snapshots.current::<C>(&self.records);
        Ok(current.map_err(|error| StorageIOError::read_snapshot(None, &error))?)
    }
}
