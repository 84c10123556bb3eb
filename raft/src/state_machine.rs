//! The state machine: applies entries, builds and installs snapshots.

use std::{fmt, marker::PhantomData, sync::atomic::Ordering};

use sievedb::{Durability, Isolation, Transaction, TransactionOptions};

use crate::{
    Application, Error, PlantedBug, Reads, Result, SnapshotBuilder, SnapshotStream,
    commit_limit::CommitLimit,
    line::{AppliedOf, Line, Payload},
    on_thread::on_thread,
    record::{APPLIED, INSTALLING, Kept, Records, encode},
    snapshot::{Snapshots, install::install, transfer::SnapshotReceiver},
};

/// The replicated state of a node.
pub struct StateMachine<C, A> {
    records: Records,
    snapshots: Snapshots,
    application: A,
    reads: Reads,
    types: PhantomData<fn() -> C>,
}

impl<C, A> fmt::Debug for StateMachine<C, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StateMachine").finish_non_exhaustive()
    }
}

impl<C, A> StateMachine<C, A> {
    /// Returns a handle that reads the state without openraft.
    pub fn reads(&self) -> Reads {
        self.reads.clone()
    }

    /// Returns a handle that receives snapshots of other nodes.
    pub fn receiver(&self) -> SnapshotReceiver {
        SnapshotReceiver::new(self.snapshots.clone())
    }
}

impl<C, A: Application> StateMachine<C, A> {
    /// Opens the state machine. Ends an installation that was interrupted.
    pub(crate) fn open<L: Line>(
        records: Records,
        snapshots: Snapshots,
        application: A,
    ) -> Result<Self> {
        if let Some(kept) = records.read::<Kept<L::Meta>>(INSTALLING)? {
            install::<L>(&records, &snapshots, &application.keyspaces(), &kept)?;
        }
        records.check_purged::<L>()?;
        Ok(Self { records, snapshots, application, reads: Reads::new(), types: PhantomData })
    }

    pub(crate) fn applied<L: Line>(&self) -> Result<AppliedOf<L>> {
        Ok(self.records.read(APPLIED)?.unwrap_or_default())
    }

    /// Applies entries, and returns the response to each. Many bytes take several commits.
    ///
    /// # Errors
    ///
    /// [`Error::AlreadyApplied`] for an entry that an earlier call has applied.
    pub(crate) fn apply_all<L: Line<Request = A::Request>>(
        &mut self,
        entries: impl IntoIterator<Item = L::Entry>,
    ) -> Result<Vec<A::Response>> {
        let mut responses = Vec::new();
        let mut applied = self.applied::<L>()?;
        let limit = CommitLimit::default();
        let mut transaction = self.begin();
        for entry in entries {
            let index = L::index(L::log_id(&entry));
            if let Some(applied) = applied.log_id.as_ref().map(L::index)
                && index <= applied
            {
                return Err(Error::AlreadyApplied { index, applied });
            }
            applied.log_id = Some(L::log_id(&entry).clone());
            responses.push(match L::payload(entry) {
                Payload::Blank => A::Response::default(),
                Payload::Request(request) => {
                    self.application.apply(&mut transaction, index, request)?
                }
                Payload::Membership(membership) => {
                    applied.membership = membership;
                    A::Response::default()
                }
            });
            if limit.is_exceeded_by(transaction.bytes(), &self.records.db) {
                self.commit::<L>(transaction, &applied)?;
                transaction = self.begin();
            }
        }
        self.commit::<L>(transaction, &applied)?;
        Ok(responses)
    }

    /// Begins a transaction. Only a commit limits its bytes: an entry that fails on one node fails
    /// at each start. Reads are not tracked, as there is no other writer.
    fn begin(&self) -> Transaction {
        let options = TransactionOptions::new().isolation(Isolation::Snapshot).bytes_max(u64::MAX);
        self.records.db.begin_with(options)
    }

    /// Commits a transaction with the id of the last entry that it contains. Not synced: entries
    /// that a crash loses are in the log, and applied again.
    fn commit<L: Line>(&self, mut transaction: Transaction, applied: &AppliedOf<L>) -> Result<()> {
        if self.snapshots.options().has_bug(PlantedBug::ApplyWithoutId) {
            transaction.commit(Durability::OsBuffer)?;
            transaction = self.begin();
        }
        transaction.insert(&self.records.keyspace, APPLIED, encode(applied)?)?;
        transaction.commit(Durability::OsBuffer)?;
        Ok(())
    }

    pub(crate) fn builder(&self) -> SnapshotBuilder<C> {
        SnapshotBuilder::new(self.records.clone(), self.snapshots.clone())
    }

    pub(crate) fn snapshots(&self) -> &Snapshots {
        &self.snapshots
    }

    pub(crate) fn current<L: Line>(&self) -> Result<Option<(L::Meta, SnapshotStream)>> {
        self.snapshots.current::<L>(&self.records)
    }

    pub(crate) async fn install<L: Line>(
        &self,
        meta: L::Meta,
        stream: SnapshotStream,
    ) -> Result<()> {
        let (records, snapshots) = (self.records.clone(), self.snapshots.clone());
        let (keyspaces, reads) = (self.application.keyspaces(), self.reads.clone());
        let install_all = move || {
            let _turn = snapshots.turn();
            // Held until the end: the sender asks whether the snapshot is being installed.
            let installed = stream.installed();
            let kept = snapshots.receive::<L>(&records, &meta, stream)?;
            let mut whole = reads.exclude();
            *whole = false;
            install::<L>(&records, &snapshots, &keyspaces, &kept)?;
            *whole = true;
            if let Some(installed) = installed {
                installed.store(true, Ordering::Release);
            }
            Ok(())
        };
        on_thread("raft-install", install_all).await
    }
}
