//! The next release series, [openraft 0.10](https://docs.rs/openraft/0.10.0-alpha.37): a
//! pre-release.

use std::{
    fmt,
    future::ready,
    io,
    marker::PhantomData,
    ops::{Bound, RangeBounds},
    path::Path,
};

use futures_util::{Stream, StreamExt as _, TryStreamExt as _, stream};
use openraft_0_10::{
    Entry, EntryPayload, LogState, OptionalSend, RaftLogReader, RaftSnapshotBuilder,
    RaftTypeConfig,
    storage::{EntryResponder, IOFlushed, RaftLogStorage, RaftStateMachine},
    type_config::TypeConfigExt as _,
    type_config::alias::{
        CommittedLeaderIdOf, LogIdOf, PayloadOf, SnapshotMetaOf, SnapshotOf, StoredMembershipOf,
        VoteOf,
    },
    vote::RaftVote as _,
};
use serde::{Serialize, de::DeserializeOwned};
use sievedb::Db;

use crate::{
    Application, LogStore, Options, Result, SnapshotBuilder, SnapshotStream, StateMachine,
    log_store::READ_BYTES_MAX,
    series::{AppliedOf, Payload, Series},
};

/// Maximum number of entries applied by one commit, for which the clients of all of them wait.
const ENTRIES_MAX: usize = 1000;

/// Requirements on the types of openraft 0.10: its entries and payloads, and requests that
/// implement the traits of serde and that postcard can decode, see [`Application::Request`].
///
/// Implemented for all types that fit.
pub trait Types:
    RaftTypeConfig<
        Entry = Entry<CommittedLeaderIdOf<Self>, PayloadOf<Self>>,
        Payload = EntryPayload<
            <Self as RaftTypeConfig>::D,
            <Self as RaftTypeConfig>::NodeId,
            <Self as RaftTypeConfig>::Node,
        >,
        D: Serialize + DeserializeOwned,
        R: Default,
        Vote: Serialize + DeserializeOwned,
        LeaderId: openraft_0_10::vote::RaftLeaderId<Committed: Serialize + DeserializeOwned>,
    >
{
}

impl<C> Types for C where
    C: RaftTypeConfig<
            Entry = Entry<CommittedLeaderIdOf<C>, PayloadOf<C>>,
            Payload = EntryPayload<
                <C as RaftTypeConfig>::D,
                <C as RaftTypeConfig>::NodeId,
                <C as RaftTypeConfig>::Node,
            >,
            D: Serialize + DeserializeOwned,
            R: Default,
            Vote: Serialize + DeserializeOwned,
            LeaderId: openraft_0_10::vote::RaftLeaderId<Committed: Serialize + DeserializeOwned>,
        >
{
}

/// The release series with the types `C`.
struct Series0_10<C>(PhantomData<C>);

impl<C: Types> Series for Series0_10<C> {
    const NAME: &'static str = "0.10";

    type LogId = LogIdOf<C>;
    type Membership = StoredMembershipOf<C>;
    type Meta = SnapshotMetaOf<C>;
    type Entry = C::Entry;
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
                Payload::Membership(Self::Membership::new(Some(entry.log_id), membership))
            }
        }
    }

    fn meta(applied: AppliedOf<Self>) -> Self::Meta {
        SnapshotMetaOf::<C> { last_log_id: applied.log_id, last_membership: applied.membership }
    }

    fn last_log_id(meta: &Self::Meta) -> Option<&Self::LogId> {
        meta.last_log_id.as_ref()
    }
}

impl Options {
    /// Returns the log and the state machine in `db` for openraft 0.10, as `open` does for 0.9.
    ///
    /// With openraft 0.10, the network of the application transfers snapshots: see
    /// [`StateMachine::receiver`].
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
    pub fn open_0_10<C: Types, A: Application<Request = C::D, Response = C::R>>(
        &self,
        db: &Db,
        snapshots: impl AsRef<Path>,
        application: A,
    ) -> Result<(LogStore<C>, StateMachine<C, A>)> {
        self.open_series::<Series0_10<C>, C, A>(db, snapshots.as_ref(), application)
    }
}

impl<C: Types> RaftLogReader<C> for LogStore<C> {
    async fn try_get_log_entries<B: RangeBounds<u64> + Clone + fmt::Debug + OptionalSend>(
        &mut self,
        range: B,
    ) -> io::Result<Vec<C::Entry>> {
        Ok(self.entries::<Series0_10<C>>(&range, usize::MAX)?)
    }

    /// Reads the entries by pieces: openraft applies many of them at once after a restart.
    async fn entries_stream<B: RangeBounds<u64> + Clone + fmt::Debug + OptionalSend>(
        &mut self,
        range: B,
    ) -> impl Stream<Item = io::Result<C::Entry>> + OptionalSend {
        let end = range.end_bound().cloned();
        let pieces = stream::try_unfold(range.start_bound().cloned(), move |start| {
            let read = self.entries::<Series0_10<C>>(&(start, end), READ_BYTES_MAX);
            ready(read.map_err(io::Error::from).map(|entries| {
                let last = entries.last()?.log_id.index;
                Some((stream::iter(entries.into_iter().map(Ok)), Bound::Excluded(last)))
            }))
        });
        pieces.try_flatten()
    }

    async fn read_vote(&mut self) -> io::Result<Option<VoteOf<C>>> {
        let uncommit =
            |vote: VoteOf<C>| VoteOf::<C>::from_leader_id(vote.leader_id().clone(), false);
        Ok(self.vote(uncommit)?)
    }

    async fn limited_get_log_entries(&mut self, start: u64, end: u64) -> io::Result<Vec<C::Entry>> {
        Ok(self.entries::<Series0_10<C>>(&(start..end), READ_BYTES_MAX)?)
    }
}

impl<C: Types> RaftLogStorage<C> for LogStore<C> {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> io::Result<LogState<C>> {
        let [last_purged_log_id, last_log_id] = self.last_ids::<Series0_10<C>>()?;
        Ok(LogState { last_purged_log_id, last_log_id })
    }

    async fn get_log_reader(&mut self) -> Self {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &VoteOf<C>) -> io::Result<()> {
        Ok(self.write_vote(vote).await?)
    }

    async fn save_committed(&mut self, committed: Option<LogIdOf<C>>) -> io::Result<()> {
        Ok(self.write_committed(&committed).await?)
    }

    async fn read_committed(&mut self) -> io::Result<Option<LogIdOf<C>>> {
        Ok(self.committed()?)
    }

    /// Returns when the entries are in the log, before they are synced.
    async fn append<I>(&mut self, entries: I, callback: IOFlushed<C>) -> io::Result<()>
    where
        I: IntoIterator<Item = C::Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let synced = self.append_entries::<Series0_10<C>>(entries).await?;
        drop(C::spawn(async move {
            callback.io_completed(synced.await.map(drop).map_err(io::Error::other));
        }));
        Ok(())
    }

    async fn truncate_after(&mut self, last_log_id: Option<LogIdOf<C>>) -> io::Result<()> {
        Ok(self.remove_from(last_log_id.map_or(0, |last| last.index + 1)).await?)
    }

    async fn purge(&mut self, log_id: LogIdOf<C>) -> io::Result<()> {
        Ok(self.purge_to::<Series0_10<C>>(&log_id)?)
    }
}

impl<C: Types> RaftSnapshotBuilder<C> for SnapshotBuilder<C> {
    type SnapshotData = SnapshotStream;

    async fn build_snapshot(&mut self) -> io::Result<SnapshotOf<C, SnapshotStream>> {
        Ok(snapshot::<C>(self.build::<Series0_10<C>>().await?))
    }
}

fn snapshot<C: Types>(
    (meta, snapshot): (SnapshotMetaOf<C>, SnapshotStream),
) -> SnapshotOf<C, SnapshotStream> {
    SnapshotOf::<C, SnapshotStream> { meta, snapshot }
}

impl<C, A> RaftStateMachine<C> for StateMachine<C, A>
where
    C: Types,
    A: Application<Request = C::D, Response = C::R>,
{
    type SnapshotData = SnapshotStream;
    type SnapshotBuilder = SnapshotBuilder<C>;

    async fn applied_state(&mut self) -> io::Result<(Option<LogIdOf<C>>, StoredMembershipOf<C>)> {
        let applied = self.applied::<Series0_10<C>>()?;
        Ok((applied.log_id, applied.membership))
    }

    /// Clients get responses after the commit that contains their entries.
    async fn apply<S>(&mut self, mut entries: S) -> io::Result<()>
    where
        S: Stream<Item = io::Result<EntryResponder<C>>> + Unpin + OptionalSend,
    {
        let mut applier = self.applier::<Series0_10<C>>()?;
        let mut applied = Vec::new();
        loop {
            let next = entries.next().await.transpose()?;
            let end = next.is_none();
            if let Some((entry, responder)) = next {
                applied.push((responder, applier.apply(entry)?));
            }
            if end || applied.len() >= ENTRIES_MAX || applier.is_full() {
                applier.commit()?;
                for (responder, response) in applied.drain(..) {
                    if let Some(responder) = responder {
                        responder.send(response);
                    }
                }
            }
            if end {
                return Ok(());
            }
        }
    }

    async fn get_snapshot_builder(&mut self) -> SnapshotBuilder<C> {
        self.builder()
    }

    async fn install_snapshot(
        &mut self,
        meta: &SnapshotMetaOf<C>,
        snapshot: SnapshotStream,
    ) -> io::Result<()> {
        Ok(self.install::<Series0_10<C>>(meta.clone(), snapshot).await?)
    }

    async fn get_current_snapshot(&mut self) -> io::Result<Option<SnapshotOf<C, SnapshotStream>>> {
        Ok(self.current::<Series0_10<C>>()?.map(snapshot::<C>))
    }
}
