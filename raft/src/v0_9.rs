//! The stable release series, [openraft 0.9](https://docs.rs/openraft/0.9).

mod transfer;

use std::{
    fmt,
    hash::{BuildHasher as _, Hasher as _, RandomState},
    marker::PhantomData,
    ops::RangeBounds,
    path::Path,
    result::Result as StdResult,
};

use openraft::{
    Entry, EntryPayload, LogId, LogState, OptionalSend, RaftLogReader, RaftSnapshotBuilder,
    RaftTypeConfig, Snapshot, SnapshotMeta, StorageError, StorageIOError, StoredMembership, Vote,
    storage::{LogFlushed, RaftLogStorage, RaftStateMachine},
};
use serde::{Serialize, de::DeserializeOwned};
use sievedb::Db;

pub use self::transfer::{SnapshotNetwork, send_snapshot};
use crate::{
    Application, Error, LogStore, Options, Result, SnapshotBuilder, SnapshotStream, StateMachine,
    log_store::READ_BYTES_MAX,
    series::{AppliedOf, Payload, Series},
};

/// Requirements on the types of openraft 0.9: its entries, and requests that implement the traits
/// of serde and that postcard can decode, see [`Application::Request`].
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

/// The release series with the types `C`.
struct Series0_9<C>(PhantomData<C>);

type Id<C> = <C as RaftTypeConfig>::NodeId;
type Meta<C> = SnapshotMeta<Id<C>, <C as RaftTypeConfig>::Node>;
type Membership<C> = StoredMembership<Id<C>, <C as RaftTypeConfig>::Node>;
type Failure<C> = StorageError<Id<C>>;

impl<C: Types> Series for Series0_9<C> {
    const NAME: &'static str = "0.9";

    type LogId = LogId<C::NodeId>;
    type Membership = Membership<C>;
    type Meta = Meta<C>;
    type Entry = Entry<C>;
    type Request = C::D;

    fn index(log_id: &Self::LogId) -> u64 {
        log_id.index
    }

    fn log_id(entry: &Self::Entry) -> &Self::LogId {
        &entry.log_id
    }

    fn payload(entry: Self::Entry) -> Payload<Self> {
        match entry.payload {
            EntryPayload::Blank => Payload::Blank,
            EntryPayload::Normal(request) => Payload::Request(request),
            EntryPayload::Membership(membership) => {
                Payload::Membership(StoredMembership::new(Some(entry.log_id), membership))
            }
        }
    }

    fn meta(applied: AppliedOf<Self>) -> Self::Meta {
        let index = applied.log_id.as_ref().map_or(0, Self::index);
        // Two nodes never choose the same id: a transfer that changes its sender begins again.
        let random = RandomState::new().build_hasher().finish();
        SnapshotMeta {
            last_log_id: applied.log_id,
            last_membership: applied.membership,
            snapshot_id: format!("{index}-{random:016x}"),
        }
    }

    fn last_log_id(meta: &Self::Meta) -> Option<&Self::LogId> {
        meta.last_log_id.as_ref()
    }
}

impl Options {
    /// Returns the log and the state machine in `db`. Both are empty in a new store.
    ///
    /// Snapshots are kept in the directory `snapshots`, which is created if missing. It must not be
    /// inside the directory of the store, or contain it. On the file system of the store, a
    /// snapshot consists of hard links and a copy of the log, otherwise of copies. An interrupted
    /// installation of a snapshot is completed.
    ///
    /// Without a current snapshot, this creates, opens and removes a checkpoint, so that wrong
    /// options fail here, not at the first snapshot. This creates a link for each file and reads
    /// the log of the store. On another file system it copies the store. A full disk is no error.
    ///
    /// # Errors
    ///
    /// * [`Error::Io`](crate::Error::Io): the directory cannot be used.
    /// * [`Error::Store`](crate::Error::Store): the store failed, the directory overlaps with that
    ///   of the store, or these options lack the keys or merge operators of the store. `NoStore`:
    ///   the directory of snapshots was removed during an installation. Remove the node from the
    ///   cluster, and add a new node.
    /// * [`Error::Snapshot`](crate::Error::Snapshot): the snapshot of an interrupted installation
    ///   is damaged. Remove the node, and add a new one.
    /// * [`Error::Incomplete`](crate::Error::Incomplete): entries are lost.
    /// * [`Error::ReleaseSeries`](crate::Error::ReleaseSeries): another release series of openraft
    ///   has written the store.
    /// * [`Error::DirectoryInUse`](crate::Error::DirectoryInUse): another store uses the directory.
    /// * [`Error::InUse`](crate::Error::InUse): an earlier call for this `db` has returned a log,
    ///   and not all handles are dropped: those of the log and the state machine, each
    ///   [`SnapshotReceiver`](crate::SnapshotReceiver) and each snapshot stream. Wait for the tasks
    ///   of openraft to end.
    pub fn open<C: Types, A: Application<Request = C::D, Response = C::R>>(
        &self,
        db: &Db,
        snapshots: impl AsRef<Path>,
        application: A,
    ) -> Result<(LogStore<C>, StateMachine<C, A>)> {
        self.open_series::<Series0_9<C>, C, A>(db, snapshots.as_ref(), application)
    }
}

/// Opens the log and the state machine in `db`, a store with default options: see
/// [`Options::open`].
///
/// # Errors
///
/// As [`Options::open`].
pub fn open<C: Types, A: Application<Request = C::D, Response = C::R>>(
    db: &Db,
    snapshots: impl AsRef<Path>,
    application: A,
) -> Result<(LogStore<C>, StateMachine<C, A>)> {
    Options::default().open(db, snapshots, application)
}

impl<C: Types> RaftLogReader<C> for LogStore<C> {
    async fn try_get_log_entries<B: RangeBounds<u64> + Clone + fmt::Debug + OptionalSend>(
        &mut self,
        range: B,
    ) -> StdResult<Vec<Entry<C>>, Failure<C>> {
        let entries = self.entries::<Series0_9<C>>(&range, usize::MAX);
        Ok(entries.map_err(|error| StorageIOError::read_logs(&error))?)
    }

    async fn limited_get_log_entries(
        &mut self,
        start: u64,
        end: u64,
    ) -> StdResult<Vec<Entry<C>>, Failure<C>> {
        let entries = self.entries::<Series0_9<C>>(&(start..end), READ_BYTES_MAX);
        Ok(entries.map_err(|error| StorageIOError::read_logs(&error))?)
    }
}

impl<C: Types> RaftLogStorage<C> for LogStore<C> {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> StdResult<LogState<C>, Failure<C>> {
        let ids = self.last_ids::<Series0_9<C>>();
        let [last_purged_log_id, last_log_id] =
            ids.map_err(|error| StorageIOError::read_logs(&error))?;
        Ok(LogState { last_purged_log_id, last_log_id })
    }

    async fn get_log_reader(&mut self) -> Self {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote<C::NodeId>) -> StdResult<(), Failure<C>> {
        let written = self.write_vote(vote).await;
        Ok(written.map_err(|error| StorageIOError::write_vote(&error))?)
    }

    async fn read_vote(&mut self) -> StdResult<Option<Vote<C::NodeId>>, Failure<C>> {
        let vote = self.vote(|vote| Vote { committed: false, ..vote });
        Ok(vote.map_err(|error| StorageIOError::read_vote(&error))?)
    }

    async fn save_committed(
        &mut self,
        committed: Option<LogId<C::NodeId>>,
    ) -> StdResult<(), Failure<C>> {
        let written = self.write_committed(&committed).await;
        Ok(written.map_err(|error| StorageIOError::write(&error))?)
    }

    async fn read_committed(&mut self) -> StdResult<Option<LogId<C::NodeId>>, Failure<C>> {
        Ok(self.committed().map_err(|error| StorageIOError::read(&error))?)
    }

    /// Returns when the entries are synced, as openraft 0.9 waits for each append.
    async fn append<I>(&mut self, entries: I, callback: LogFlushed<C>) -> StdResult<(), Failure<C>>
    where
        I: IntoIterator<Item = Entry<C>> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let appended = self.append_synced::<Series0_9<C>>(entries).await;
        appended.map_err(|error| StorageIOError::write_logs(&error))?;
        callback.log_io_completed(Ok(()));
        Ok(())
    }

    async fn truncate(&mut self, log_id: LogId<C::NodeId>) -> StdResult<(), Failure<C>> {
        let removed = self.remove_from(log_id.index).await;
        Ok(removed.map_err(|error| StorageIOError::write_logs(&error))?)
    }

    async fn purge(&mut self, log_id: LogId<C::NodeId>) -> StdResult<(), Failure<C>> {
        let purged = self.purge_to::<Series0_9<C>>(&log_id);
        Ok(purged.map_err(|error| StorageIOError::write_logs(&error))?)
    }
}

impl<C: Types> RaftSnapshotBuilder<C> for SnapshotBuilder<C> {
    async fn build_snapshot(&mut self) -> StdResult<Snapshot<C>, Failure<C>> {
        let built = self.build::<Series0_9<C>>().await;
        let built = built.map_err(|error| StorageIOError::write_snapshot(None, &error))?;
        Ok(snapshot(built))
    }
}

fn snapshot<C: Types>((meta, stream): (Meta<C>, SnapshotStream)) -> Snapshot<C> {
    Snapshot { meta, snapshot: Box::new(stream) }
}

impl<C, A> RaftStateMachine<C> for StateMachine<C, A>
where
    C: Types,
    A: Application<Request = C::D, Response = C::R>,
{
    type SnapshotBuilder = SnapshotBuilder<C>;

    async fn applied_state(
        &mut self,
    ) -> StdResult<(Option<LogId<C::NodeId>>, Membership<C>), Failure<C>> {
        let applied = self.applied::<Series0_9<C>>();
        let applied = applied.map_err(|error| StorageIOError::read_state_machine(&error))?;
        Ok((applied.log_id, applied.membership))
    }

    async fn apply<I>(&mut self, entries: I) -> StdResult<Vec<C::R>, Failure<C>>
    where
        I: IntoIterator<Item = Entry<C>> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let apply_all = || {
            let mut applier = self.applier::<Series0_9<C>>()?;
            let mut responses = Vec::new();
            for entry in entries {
                responses.push(applier.apply(entry)?);
                if applier.is_full() {
                    applier.commit()?;
                }
            }
            applier.commit()?;
            Ok::<_, Error>(responses)
        };
        Ok(apply_all().map_err(|error| StorageIOError::write_state_machine(&error))?)
    }

    async fn get_snapshot_builder(&mut self) -> SnapshotBuilder<C> {
        self.builder()
    }

    async fn begin_receiving_snapshot(&mut self) -> StdResult<Box<SnapshotStream>, Failure<C>> {
        let stream = self.snapshots().incoming();
        Ok(Box::new(stream.map_err(|error| StorageIOError::write_snapshot(None, &error))?))
    }

    async fn install_snapshot(
        &mut self,
        meta: &Meta<C>,
        snapshot: Box<SnapshotStream>,
    ) -> StdResult<(), Failure<C>> {
        let installed = self.install::<Series0_9<C>>(meta.clone(), *snapshot).await;
        let signature = Some(meta.signature());
        Ok(installed.map_err(|error| StorageIOError::write_snapshot(signature, &error))?)
    }

    async fn get_current_snapshot(&mut self) -> StdResult<Option<Snapshot<C>>, Failure<C>> {
        let current = self.current::<Series0_9<C>>();
        let current = current.map_err(|error| StorageIOError::read_snapshot(None, &error))?;
        Ok(current.map(snapshot))
    }
}
