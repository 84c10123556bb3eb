//! The log and the vote.

use std::{
    fmt,
    future::{Future as _, poll_fn},
    marker::PhantomData,
    ops::RangeBounds,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    task::Poll,
};

use serde::{Serialize, de::DeserializeOwned};
use sievedb::{Batch, CommitFuture, Durability};

#[cfg(feature = "openraft-0-9")]
use crate::turns::Turns;
use crate::{
    PlantedBug, Result,
    claim::Claim,
    commit_limit::CommitLimit,
    purge::PostponedPurge,
    record::{COMMITTED, PURGED, Records, VOTE, encode, encode_entry, entry_key, entry_keys},
    series::Series,
};

/// Length at which a read for replication ends, in bytes of entries.
pub(crate) const READ_BYTES_MAX: usize = 4 << 20;

/// The log and the vote of a node. A clone reads and writes the same log.
///
/// A vote of an earlier opening is read as not committed. Otherwise openraft makes a restarted
/// leader the leader again without an election. Its committed id is not synced, so after a power
/// cut it would answer linearizable reads without the last acknowledged entries. openraft 0.10
/// describes this at `Config::enable_leader_restore`.
pub struct LogStore<C> {
    records: Records,
    /// A vote was written since the store was opened.
    has_voted: Arc<AtomicBool>,
    bug: Option<PlantedBug>,
    claim: Arc<Claim>,
    #[cfg(feature = "openraft-0-9")]
    turns: Turns,
    types: PhantomData<fn() -> C>,
}

impl<C> Clone for LogStore<C> {
    fn clone(&self) -> Self {
        let has_voted = Arc::clone(&self.has_voted);
        Self { has_voted, ..Self::new(self.records.clone(), self.bug, self.claim.clone()) }
    }
}

impl<C> fmt::Debug for LogStore<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogStore").finish_non_exhaustive()
    }
}

impl<C> LogStore<C> {
    pub(crate) fn new(records: Records, bug: Option<PlantedBug>, claim: Arc<Claim>) -> Self {
        Self {
            records,
            has_voted: Arc::default(),
            bug,
            claim,
            #[cfg(feature = "openraft-0-9")]
            turns: Turns::default(),
            types: PhantomData,
        }
    }

    /// Reads the entries in `range`, until they have more than `bytes_max` bytes.
    pub(crate) fn entries<S: Series>(
        &self,
        range: &impl RangeBounds<u64>,
        bytes_max: usize,
    ) -> Result<Vec<S::Entry>> {
        let mut found = Vec::new();
        let mut bytes = 0;
        let hidden = self.records.postponed_purge().as_ref().map(PostponedPurge::last_key);
        let mut entries = self.records.keyspace.range(entry_keys(range));
        while bytes <= bytes_max
            && let Some(entry) = entries.next_ref()?
        {
            if hidden.is_some_and(|last| entry.key() <= &last[..]) {
                continue;
            }
            bytes += entry.value().len();
            found.push(postcard::from_bytes(entry.value())?);
        }
        Ok(found)
    }

    /// Returns the ids of the last purged entry and of the last entry.
    pub(crate) fn last_ids<S: Series>(&self) -> Result<[Option<S::LogId>; 2]> {
        let postponed = self.records.postponed_purge().clone();
        let purged = match &postponed {
            Some(purge) => Some(purge.log_id::<S>()?),
            None => self.records.read::<S::LogId>(PURGED)?,
        };
        let mut entries = self.records.keyspace.range(entry_keys(&..));
        let last = entries.next_back_ref()?;
        let hidden = postponed.as_ref().map(PostponedPurge::last_key);
        let last = match last.filter(|entry| hidden.is_none_or(|last| entry.key() > &last[..])) {
            Some(entry) => {
                Some(S::log_id(&postcard::from_bytes::<S::Entry>(entry.value())?).clone())
            }
            None => purged.clone(),
        };
        Ok([purged, last])
    }

    /// Returns the durability of writes that openraft relies on, unless `bug` is planted.
    fn durability(&self, bug: PlantedBug) -> Durability {
        if self.bug == Some(bug) { Durability::OsBuffer } else { Durability::Disk }
    }

    /// Returns a batch that writes the record `value` to `key`.
    fn record(&self, key: &[u8], value: &impl Serialize) -> Result<Batch> {
        let mut batch = self.records.db.batch();
        batch.insert(&self.records.keyspace, key, encode(value)?)?;
        Ok(batch)
    }

    pub(crate) async fn write_vote(&self, vote: &impl Serialize) -> Result<()> {
        let mut batch = self.record(VOTE, vote)?;
        commit(&mut batch, self.durability(PlantedBug::UnsyncedVote)).await?.await?;
        self.has_voted.store(true, Relaxed);
        Ok(())
    }

    /// Returns the vote; one of an earlier opening after `uncommit`.
    pub(crate) fn vote<T: DeserializeOwned>(
        &self,
        uncommit: impl FnOnce(T) -> T,
    ) -> Result<Option<T>> {
        let vote = self.records.read(VOTE)?;
        let is_kept = self.has_voted.load(Relaxed) || self.bug == Some(PlantedBug::KeepLeadership);
        Ok(if is_kept { vote } else { vote.map(uncommit) })
    }

    /// Writes the committed id without a sync: with an older id, openraft only applies fewer
    /// entries before a leader contacts the node, or it is elected.
    pub(crate) async fn write_committed(&self, committed: &Option<impl Serialize>) -> Result<()> {
        commit_inline(&mut self.record(COMMITTED, committed)?, Durability::OsBuffer).await
    }

    pub(crate) fn committed<T: DeserializeOwned>(&self) -> Result<Option<T>> {
        Ok(self.records.read::<Option<T>>(COMMITTED)?.flatten())
    }

    /// Appends entries. They are in the log when the call returns, and synced when the future
    /// resolves.
    #[cfg(feature = "openraft-0-10")]
    pub(crate) async fn append_entries<S: Series>(
        &self,
        entries: impl IntoIterator<Item = S::Entry>,
    ) -> Result<CommitFuture> {
        let mut batch = self.last_entries::<S>(entries).await?;
        commit(&mut batch, self.durability(PlantedBug::UnsyncedEntries)).await
    }

    /// Appends entries, and syncs them on the calling thread. A caller that waits for each append
    /// saves two switches of threads for it.
    #[cfg(feature = "openraft-0-9")]
    pub(crate) async fn append_synced<S: Series>(
        &mut self,
        entries: impl IntoIterator<Item = S::Entry>,
    ) -> Result<()> {
        let mut batch = self.last_entries::<S>(entries).await?;
        let durability = self.durability(PlantedBug::UnsyncedEntries);
        commit_inline(&mut batch, durability).await?;
        // Not before the commit, which another call would then precede.
        self.turns.after_call().await;
        Ok(())
    }

    /// Appends all entries but the last ones, and returns the batch of those.
    ///
    /// Many bytes are appended by several commits, of which only the last one is synced: it syncs
    /// those before it. A crash may leave the first entries.
    async fn last_entries<S: Series>(
        &self,
        entries: impl IntoIterator<Item = S::Entry>,
    ) -> Result<Batch> {
        let limit = CommitLimit::default();
        let mut batch = self.records.db.batch();
        for entry in entries {
            let index = S::index(S::log_id(&entry));
            let (key, value) = (entry_key(index), encode_entry(index, &entry)?);
            if limit.is_exceeded_by(batch.bytes() + value.len() as u64, &self.records.db) {
                drop(commit(&mut batch, Durability::Memory).await?);
            }
            batch.insert(&self.records.keyspace, key, value)?;
        }
        Ok(batch)
    }

    /// Removes the entries from the index `from` on.
    pub(crate) async fn remove_from(&self, from: u64) -> Result<()> {
        let mut batch = self.records.db.batch();
        batch.remove_range(&self.records.keyspace, entry_keys(&(from..)))?;
        commit(&mut batch, Durability::Disk).await?.await?;
        Ok(())
    }

    pub(crate) fn purge_to<S: Series>(&self, log_id: &S::LogId) -> Result<()> {
        self.records.purge_to::<S>(log_id)
    }
}

/// Reaction to background work that delays a write.
enum OnStall {
    Refuse,
    Wait,
}

/// Commits `batch`, and returns the wait for its durability. Stalls as [`poll_commit`].
async fn commit(batch: &mut Batch, durability: Durability) -> Result<CommitFuture> {
    let commit = |batch: &mut Batch, on_stall| match on_stall {
        OnStall::Refuse => batch.try_commit_async(durability),
        OnStall::Wait => batch.commit_async(durability),
    };
    poll_commit(batch, commit).await
}

/// Commits `batch`, and makes it durable on the calling thread. Stalls as [`poll_commit`].
async fn commit_inline(batch: &mut Batch, durability: Durability) -> Result<()> {
    let commit = |batch: &mut Batch, on_stall| match on_stall {
        OnStall::Refuse => batch.try_commit(durability),
        OnStall::Wait => batch.commit(durability),
    };
    poll_commit(batch, commit).await.map(drop)
}

/// Calls `commit` for `batch`. Waits as a task until background work lets writes pass, so other
/// tasks of the thread continue. Delays of writes that may pass, up to 2 ms, block the thread.
async fn poll_commit<T>(
    batch: &mut Batch,
    mut commit: impl FnMut(&mut Batch, OnStall) -> sievedb::Result<T>,
) -> Result<T> {
    // Kept between the polls: it notifies the task after each piece of background work.
    let mut room = None;
    let committed = poll_fn(|context| match commit(batch, OnStall::Refuse) {
        Err(sievedb::Error::WouldStall { delay: None, .. }) => {
            match pin!(room.insert(batch.room())).poll(context) {
                Poll::Ready(Ok(())) => {
                    context.waker().wake_by_ref();
                    Poll::Pending
                }
                Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
                Poll::Pending => Poll::Pending,
            }
        }
        Err(sievedb::Error::WouldStall { .. }) => Poll::Ready(commit(batch, OnStall::Wait)),
        committed => Poll::Ready(committed),
    });
    Ok(committed.await?)
}
