//! The log and the vote.

use std::{fmt, io, marker::PhantomData, ops::RangeBounds};

use openraft::{
    AsyncRuntime, Entry, LogId, LogState, OptionalSend, RaftLogReader, StorageError,
    StorageIOError, Vote,
    storage::{LogFlushed, RaftLogStorage},
};
use sievedb::Durability;

use crate::{
    Error, Options, PlantedBug, Result, Types,
    record::{COMMITTED, PURGED, Records, VOTE, encode, entry_key, entry_keys},
};

/// Bytes of entries after which a read for replication ends.
const READ_BYTES_MAX: usize = 4 << 20;

/// The log of a node, with its vote. A clone reads and writes the same log.
pub struct LogStore<C> {
    records: Records,
    options: Options,
    types: PhantomData<fn() -> C>,
}

impl<C> Clone for LogStore<C> {
    fn clone(&self) -> Self {
        let (records, options) = (self.records.clone(), self.options.clone());
        Self { records, options, types: PhantomData }
    }
}

impl<C> fmt::Debug for LogStore<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogStore").finish_non_exhaustive()
    }
}

impl<C: Types> LogStore<C> {
    pub(crate) fn new(records: Records, options: Options) -> Self {
        Self { records, options, types: PhantomData }
    }

    /// Reads the entries in `range`, until they have more than `bytes_max` bytes.
    fn read(&self, range: &impl RangeBounds<u64>, bytes_max: usize) -> Result<Vec<Entry<C>>> {
        let mut found = Vec::new();
        let mut bytes = 0;
        let mut entries = self.records.keyspace.range(entry_keys(range));
        while bytes <= bytes_max
            && let Some(entry) = entries.next_ref()?
        {
            bytes += entry.value().len();
            found.push(postcard::from_bytes(entry.value())?);
        }
        Ok(found)
    }

    fn state(&self) -> Result<LogState<C>> {
        let last_purged_log_id = self.records.read(PURGED)?;
        let mut entries = self.records.keyspace.range(entry_keys(&..));
        let last = match entries.next_back_ref()? {
            Some(entry) => Some(postcard::from_bytes::<Entry<C>>(entry.value())?.log_id),
            None => None,
        };
        Ok(LogState {
            last_log_id: last.or_else(|| last_purged_log_id.clone()),
            last_purged_log_id,
        })
    }

    /// Returns the durability of writes that openraft relies on, unless `bug` is planted.
    fn durability(&self, bug: PlantedBug) -> Durability {
        if self.options.has_bug(bug) { Durability::OsBuffer } else { Durability::Disk }
    }

    /// Writes the record `value` to `key`.
    async fn write(
        &self,
        key: &[u8],
        value: &impl serde::Serialize,
        durability: Durability,
    ) -> Result<()> {
        let mut batch = self.records.db.batch();
        batch.insert(&self.records.keyspace, key, encode(value)?)?;
        batch.commit_async(durability)?.await?;
        Ok(())
    }
}

impl<C: Types> RaftLogReader<C> for LogStore<C> {
    async fn try_get_log_entries<B: RangeBounds<u64> + Clone + fmt::Debug + OptionalSend>(
        &mut self,
        range: B,
    ) -> std::result::Result<Vec<Entry<C>>, StorageError<C::NodeId>> {
        let entries = self.read(&range, usize::MAX);
        Ok(entries.map_err(|error| StorageIOError::read_logs(&error))?)
    }

    async fn limited_get_log_entries(
        &mut self,
        start: u64,
        end: u64,
    ) -> std::result::Result<Vec<Entry<C>>, StorageError<C::NodeId>> {
        let entries = self.read(&(start..end), READ_BYTES_MAX);
        Ok(entries.map_err(|error| StorageIOError::read_logs(&error))?)
    }
}

impl<C: Types> RaftLogStorage<C> for LogStore<C> {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> std::result::Result<LogState<C>, StorageError<C::NodeId>> {
        Ok(self.state().map_err(|error| StorageIOError::read_logs(&error))?)
    }

    async fn get_log_reader(&mut self) -> Self {
        self.clone()
    }

    async fn save_vote(
        &mut self,
        vote: &Vote<C::NodeId>,
    ) -> std::result::Result<(), StorageError<C::NodeId>> {
        let written = self.write(VOTE, vote, self.durability(PlantedBug::UnsyncedVote)).await;
        Ok(written.map_err(|error| StorageIOError::write_vote(&error))?)
    }

    async fn read_vote(
        &mut self,
    ) -> std::result::Result<Option<Vote<C::NodeId>>, StorageError<C::NodeId>> {
        Ok(self.records.read(VOTE).map_err(|error| StorageIOError::read_vote(&error))?)
    }

    /// Not synced: an older id only lets openraft apply less before it hears from a leader.
    async fn save_committed(
        &mut self,
        committed: Option<LogId<C::NodeId>>,
    ) -> std::result::Result<(), StorageError<C::NodeId>> {
        let written = self.write(COMMITTED, &committed, Durability::OsBuffer).await;
        Ok(written.map_err(|error| StorageIOError::write(&error))?)
    }

    async fn read_committed(
        &mut self,
    ) -> std::result::Result<Option<LogId<C::NodeId>>, StorageError<C::NodeId>> {
        let committed = self.records.read::<Option<_>>(COMMITTED);
        Ok(committed.map_err(|error| StorageIOError::read(&error))?.flatten())
    }

    /// Returns when the entries are in the log, before they are synced.
    async fn append<I>(
        &mut self,
        entries: I,
        callback: LogFlushed<C>,
    ) -> std::result::Result<(), StorageError<C::NodeId>>
    where
        I: IntoIterator<Item = Entry<C>> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let mut batch = self.records.db.batch();
        let begin = || -> Result<_> {
            for entry in entries {
                batch.insert(
                    &self.records.keyspace,
                    entry_key(entry.log_id.index),
                    encode(&entry)?,
                )?;
            }
            Ok(batch.commit_async(self.durability(PlantedBug::UnsyncedEntries))?)
        };
        let commit = begin().map_err(|error| StorageIOError::write_logs(&error))?;
        drop(C::AsyncRuntime::spawn(async move {
            callback.log_io_completed(commit.await.map(drop).map_err(io::Error::other));
        }));
        Ok(())
    }

    async fn truncate(
        &mut self,
        log_id: LogId<C::NodeId>,
    ) -> std::result::Result<(), StorageError<C::NodeId>> {
        let mut batch = self.records.db.batch();
        let truncated = async {
            batch.remove_range(&self.records.keyspace, entry_keys(&(log_id.index..)))?;
            batch.commit_async(Durability::Disk)?.await?;
            Ok::<_, Error>(())
        };
        Ok(truncated.await.map_err(|error| StorageIOError::write_logs(&error))?)
    }

    /// Not synced: what is lost of it is purged again.
    async fn purge(
        &mut self,
        log_id: LogId<C::NodeId>,
    ) -> std::result::Result<(), StorageError<C::NodeId>> {
        let mut batch = self.records.db.batch();
        let mut purged = || -> Result<()> {
            batch.remove_range(&self.records.keyspace, entry_keys(&(..=log_id.index)))?;
            batch.insert(&self.records.keyspace, PURGED, encode(&log_id)?)?;
            Ok(batch.commit(Durability::OsBuffer)?)
        };
        Ok(purged().map_err(|error| StorageIOError::write_logs(&error))?)
    }
}
