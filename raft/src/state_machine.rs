//! The state machine: applies entries, builds and installs snapshots.

use std::{fmt, marker::PhantomData, sync::atomic::Ordering};

use sievedb::{Durability, Isolation, Transaction, TransactionOptions};

use crate::{
    Application, Error, PlantedBug, Reads, Result, SnapshotBuilder, SnapshotStream,
    commit_limit::CommitLimit,
    on_thread::on_thread,
    record::{APPLIED, INSTALLING, Kept, Records, encode},
    series::{AppliedOf, Payload, Series},
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
    /// Opens the state machine. Completes an interrupted installation.
    pub(crate) fn open<S: Series>(
        records: Records,
        snapshots: Snapshots,
        application: A,
    ) -> Result<Self> {
        if let Some(kept) = records.read::<Kept<S::Meta>>(INSTALLING)? {
            install::<S>(&records, &snapshots, &application.keyspaces(), &kept)?;
        }
        records.check_purged::<S>()?;
        Ok(Self { records, snapshots, application, reads: Reads::new(), types: PhantomData })
    }

    pub(crate) fn applied<S: Series>(&self) -> Result<AppliedOf<S>> {
        Ok(self.records.read(APPLIED)?.unwrap_or_default())
    }

    /// Returns a call that applies entries.
    pub(crate) fn applier<S: Series>(&mut self) -> Result<Applier<'_, S, C, A>> {
        let applied = self.applied::<S>()?;
        Ok(Applier { machine: self, applied, transaction: None, limit: CommitLimit::default() })
    }

    /// Begins a transaction. Only a commit limits its bytes: an entry that fails on one node fails
    /// at each start. Reads are not tracked, as there is no other writer.
    fn begin(&self) -> Transaction {
        let options = TransactionOptions::new().isolation(Isolation::Snapshot).bytes_max(u64::MAX);
        self.records.db.begin_with(options)
    }

    pub(crate) fn builder(&self) -> SnapshotBuilder<C> {
        SnapshotBuilder::new(self.records.clone(), self.snapshots.clone())
    }

    pub(crate) fn snapshots(&self) -> &Snapshots {
        &self.snapshots
    }

    pub(crate) fn current<S: Series>(&self) -> Result<Option<(S::Meta, SnapshotStream)>> {
        self.snapshots.current::<S>(&self.records)
    }

    pub(crate) async fn install<S: Series>(
        &self,
        meta: S::Meta,
        stream: SnapshotStream,
    ) -> Result<()> {
        let (records, snapshots) = (self.records.clone(), self.snapshots.clone());
        let (keyspaces, reads) = (self.application.keyspaces(), self.reads.clone());
        let install_all = move || {
            let _turn = snapshots.turn();
            // Held until the end: `received_bytes` checks it.
            let installed = stream.installed();
            let kept = snapshots.receive::<S>(&records, &meta, stream)?;
            let mut complete = reads.exclude();
            *complete = false;
            install::<S>(&records, &snapshots, &keyspaces, &kept)?;
            *complete = true;
            if let Some(installed) = installed {
                installed.store(true, Ordering::Release);
            }
            Ok(())
        };
        on_thread("raft-install", install_all).await
    }
}

/// A call that applies entries. Many bytes take several commits.
pub(crate) struct Applier<'a, S: Series, C, A> {
    machine: &'a mut StateMachine<C, A>,
    applied: AppliedOf<S>,
    /// `None` if all entries are committed.
    transaction: Option<Transaction>,
    limit: CommitLimit,
}

impl<S: Series<Request = A::Request>, C, A: Application> Applier<'_, S, C, A> {
    /// Applies an entry, and returns the response to it.
    ///
    /// # Errors
    ///
    /// [`Error::AlreadyApplied`] for an entry that an earlier call has applied.
    pub(crate) fn apply(&mut self, entry: S::Entry) -> Result<A::Response> {
        let index = S::index(S::log_id(&entry));
        if let Some(applied) = self.applied.log_id.as_ref().map(S::index)
            && index <= applied
        {
            return Err(Error::AlreadyApplied { index, applied });
        }
        self.applied.log_id = Some(S::log_id(&entry).clone());
        let transaction = self.transaction.get_or_insert_with(|| self.machine.begin());
        Ok(match S::payload(entry) {
            Payload::Blank => A::Response::default(),
            Payload::Request(request) => {
                self.machine.application.apply(transaction, index, request)?
            }
            Payload::Membership(membership) => {
                self.applied.membership = membership;
                A::Response::default()
            }
        })
    }

    /// Returns `true` if the entries that are not committed have many bytes.
    pub(crate) fn is_full(&self) -> bool {
        let bytes = self.transaction.as_ref().map_or(0, Transaction::bytes);
        self.limit.is_exceeded_by(bytes, &self.machine.records.db)
    }

    /// Commits the entries, and the id of the last one with them. Not synced: entries that a crash
    /// loses are in the log, and applied again.
    pub(crate) fn commit(&mut self) -> Result<()> {
        let Some(mut transaction) = self.transaction.take() else { return Ok(()) };
        if self.machine.snapshots.options().has_bug(PlantedBug::ApplyWithoutId) {
            transaction.commit(Durability::OsBuffer)?;
            transaction = self.machine.begin();
        }
        let applied = encode(&self.applied)?;
        transaction.insert(&self.machine.records.keyspace, APPLIED, applied)?;
        transaction.commit(Durability::OsBuffer)?;
        Ok(())
    }
}
