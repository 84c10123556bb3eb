//! Log and state machine in the manner of openraft's RocksDB example.
//!
//! The crate `openraft-rocksstore` 0.9.21 needs RocksDB 8 and the first storage API, and does not
//! sync the log before it acknowledges entries. This follows the example of the second API,
//! `stores/rocksstore-v2` of its repository, which was not published:
//!
//! | column family | key                             | value                                |
//! |---------------|---------------------------------|--------------------------------------|
//! | `logs`        | index, 8 bytes, big-endian      | an entry as JSON                     |
//! | `meta`        | `vote`, `last_purged_log_id`    | the record as JSON                   |
//! | `sm_meta`     | `snapshot`                      | metadata and content as JSON         |
//!
//! All options of RocksDB are the defaults. Each entry is a write of its own. One sync of the log
//! follows the entries of a call, before openraft is notified. So are votes and truncations synced.
//! The state machine is in memory, and persistent only by its snapshots, so an applied entry costs
//! RocksDB nothing. Unlike the example, it has the requests of the map.

use std::{
    collections::BTreeMap,
    error::Error,
    fmt,
    io::Cursor,
    ops::{Bound, RangeBounds},
    sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
};

use openraft::{
    Entry, EntryPayload, LogId, LogState, OptionalSend, RaftLogReader, RaftSnapshotBuilder,
    Snapshot, SnapshotMeta, StorageError, StorageIOError, StoredMembership, Vote,
    storage::{LogFlushed, RaftLogStorage, RaftStateMachine},
};
use rocksdb::{ColumnFamily, ColumnFamilyDescriptor, DB, Direction, IteratorMode, Options};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use sievedb_cluster::{
    identity::{Member, Record},
    map::{Request, Response},
    node::Settings,
    storage::{Figure, Storage},
};

openraft::declare_raft_types!(
    /// Types of openraft.
    pub(crate) Types:
        D = Request,
        R = Response,
        NodeId = u64,
        Node = Member,
        SnapshotData = Cursor<Vec<u8>>,
);

const LOGS: &str = "logs";
const META: &str = "meta";
const SM_META: &str = "sm_meta";

type Meta = SnapshotMeta<u64, Member>;
type Failure = StorageError<u64>;

/// The content of the state machine.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct State {
    applied: Option<LogId<u64>>,
    membership: StoredMembership<u64, Member>,
    map: BTreeMap<String, String>,
}

impl State {
    fn apply(&mut self, request: Request) -> Response {
        let (key, expected, value) = match request {
            Request::Put { key, value } => (key, None, value),
            Request::CompareAndSet { key, expected, value } => (key, Some(expected), value),
        };
        let before = self.map.get(&key).cloned();
        let stored = expected.is_none_or(|expected| expected == before);
        if stored {
            self.map.insert(key, value);
        }
        Response { before, stored }
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    meta: Meta,
    data: Vec<u8>,
}

/// A RocksDB store: its log, and its state machine.
#[derive(Clone)]
pub(crate) struct Rocks {
    db: Arc<DB>,
    state: Arc<RwLock<State>>,
}

impl fmt::Debug for Rocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rocks").finish_non_exhaustive()
    }
}

impl Storage for Rocks {
    type Types = Types;
    type Log = Self;
    type StateMachine = Self;

    const NAME: &'static str = "rocksdb";

    fn open(settings: &Settings) -> sievedb_cluster::Result<(Self, Self, Self)> {
        if settings.planted_bug.is_some() {
            return Err("the RocksDB example has no planted bugs".into());
        }
        let mut options = Options::default();
        options.create_if_missing(true);
        options.create_missing_column_families(true);
        let families =
            [LOGS, META, SM_META].map(|name| ColumnFamilyDescriptor::new(name, Options::default()));
        let path = settings.dir.join(Self::NAME);
        let db = Arc::new(DB::open_cf_descriptors(&options, path, families)?);
        let rocks = Self { db, state: Arc::default() };
        if let Some(kept) = rocks.record::<Kept>(SM_META, "snapshot")? {
            *rocks.state_mut() = serde_json::from_slice(&kept.data)?;
        }
        Ok((rocks.clone(), rocks.clone(), rocks))
    }

    fn identity(&self) -> sievedb_cluster::Result<Option<Record>> {
        self.record(META, "identity")
    }

    fn record_identity(&self, record: &Record) -> sievedb_cluster::Result<()> {
        self.write(META, "identity", record)?;
        Ok(self.db.flush_wal(true)?)
    }

    async fn get(&self, key: &str) -> sievedb_cluster::Result<Option<Vec<u8>>> {
        Ok(self.state().map.get(key).map(|value| value.as_bytes().to_vec()))
    }

    fn figures(&self) -> Vec<Figure> {
        Vec::new()
    }
}

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

impl Rocks {
    fn state(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn state_mut(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn family(&self, name: &str) -> Result<&ColumnFamily> {
        Ok(self.db.cf_handle(name).ok_or("a column family is missing")?)
    }

    fn record<T: DeserializeOwned>(&self, family: &str, key: &str) -> Result<Option<T>> {
        let bytes = self.db.get_cf(self.family(family)?, key)?;
        Ok(bytes.map(|bytes| serde_json::from_slice(&bytes)).transpose()?)
    }

    fn write(&self, family: &str, key: &str, record: &impl Serialize) -> Result<()> {
        Ok(self.db.put_cf(self.family(family)?, key, serde_json::to_vec(record)?)?)
    }

    fn write_entries(&self, entries: impl IntoIterator<Item = Entry<Types>>) -> Result<()> {
        let logs = self.family(LOGS)?;
        for entry in entries {
            let key = entry.log_id.index.to_be_bytes();
            self.db.put_cf(logs, key, serde_json::to_vec(&entry)?)?;
        }
        Ok(self.db.flush_wal(true)?)
    }

    fn read_entries(&self, range: &impl RangeBounds<u64>) -> Result<Vec<Entry<Types>>> {
        let start = match range.start_bound() {
            Bound::Included(index) => *index,
            Bound::Excluded(index) => index.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let start = start.to_be_bytes();
        let mut found = Vec::new();
        let from = IteratorMode::From(&start, Direction::Forward);
        for item in self.db.iterator_cf(self.family(LOGS)?, from) {
            let (key, value) = item?;
            if !range.contains(&u64::from_be_bytes((*key).try_into()?)) {
                break;
            }
            found.push(serde_json::from_slice(&value)?);
        }
        Ok(found)
    }

    fn log_state(&self) -> Result<LogState<Types>> {
        let last_purged_log_id = self.record(META, "last_purged_log_id")?;
        let last = self.db.iterator_cf(self.family(LOGS)?, IteratorMode::End).next().transpose()?;
        let last_log_id = match last {
            Some((_, entry)) => Some(serde_json::from_slice::<Entry<Types>>(&entry)?.log_id),
            None => last_purged_log_id,
        };
        Ok(LogState { last_purged_log_id, last_log_id })
    }

    fn remove(&self, from: u64, to: u64) -> Result<()> {
        let (from, to) = (from.to_be_bytes(), to.to_be_bytes());
        Ok(self.db.delete_range_cf(self.family(LOGS)?, from, to)?)
    }

    fn build(&self) -> Result<Snapshot<Types>> {
        let state = self.state().clone();
        let data = serde_json::to_vec(&state)?;
        let snapshot_id = state.applied.map_or_else(|| "none".to_owned(), |last| last.to_string());
        let meta =
            Meta { last_log_id: state.applied, last_membership: state.membership, snapshot_id };
        let kept = Kept { meta, data };
        self.write(SM_META, "snapshot", &kept)?;
        Ok(snapshot(kept))
    }

    fn install(&self, meta: &Meta, data: Vec<u8>) -> Result<()> {
        let state = serde_json::from_slice(&data)?;
        *self.state_mut() = state;
        self.write(SM_META, "snapshot", &Kept { meta: meta.clone(), data })?;
        Ok(self.db.flush_wal(true)?)
    }
}

fn snapshot(kept: Kept) -> Snapshot<Types> {
    Snapshot { meta: kept.meta, snapshot: Box::new(Cursor::new(kept.data)) }
}

/// Returns a function that makes openraft's error of one of this module.
fn failed(
    wrap: impl FnOnce(&Text) -> StorageIOError<u64>,
) -> impl FnOnce(Box<dyn Error + Send + Sync>) -> Failure {
    |error| wrap(&Text(error.to_string())).into()
}

/// The message of an error.
#[derive(Debug)]
struct Text(String);

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for Text {}

impl RaftLogReader<Types> for Rocks {
    async fn try_get_log_entries<B: RangeBounds<u64> + Clone + fmt::Debug + OptionalSend>(
        &mut self,
        range: B,
    ) -> std::result::Result<Vec<Entry<Types>>, Failure> {
        self.read_entries(&range).map_err(failed(|error| StorageIOError::read_logs(error)))
    }
}

impl RaftLogStorage<Types> for Rocks {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> std::result::Result<LogState<Types>, Failure> {
        self.log_state().map_err(failed(|error| StorageIOError::read_logs(error)))
    }

    async fn get_log_reader(&mut self) -> Self {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote<u64>) -> std::result::Result<(), Failure> {
        let written = self.write(META, "vote", vote).and_then(|()| Ok(self.db.flush_wal(true)?));
        written.map_err(failed(|error| StorageIOError::write_vote(error)))
    }

    async fn read_vote(&mut self) -> std::result::Result<Option<Vote<u64>>, Failure> {
        self.record(META, "vote").map_err(failed(|error| StorageIOError::read_vote(error)))
    }

    async fn append<I>(
        &mut self,
        entries: I,
        callback: LogFlushed<Types>,
    ) -> std::result::Result<(), Failure>
    where
        I: IntoIterator<Item = Entry<Types>> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let written = self.write_entries(entries);
        written.map_err(failed(|error| StorageIOError::write_logs(error)))?;
        callback.log_io_completed(Ok(()));
        Ok(())
    }

    async fn truncate(&mut self, log_id: LogId<u64>) -> std::result::Result<(), Failure> {
        let removed = self.remove(log_id.index, u64::MAX);
        let synced = removed.and_then(|()| Ok(self.db.flush_wal(true)?));
        synced.map_err(failed(|error| StorageIOError::write_logs(error)))
    }

    async fn purge(&mut self, log_id: LogId<u64>) -> std::result::Result<(), Failure> {
        let recorded = self.write(META, "last_purged_log_id", &log_id);
        let removed = recorded.and_then(|()| self.remove(0, log_id.index.saturating_add(1)));
        removed.map_err(failed(|error| StorageIOError::write_logs(error)))
    }
}

impl RaftSnapshotBuilder<Types> for Rocks {
    async fn build_snapshot(&mut self) -> std::result::Result<Snapshot<Types>, Failure> {
        self.build().map_err(failed(|error| StorageIOError::write_snapshot(None, error)))
    }
}

impl RaftStateMachine<Types> for Rocks {
    type SnapshotBuilder = Self;

    async fn applied_state(
        &mut self,
    ) -> std::result::Result<(Option<LogId<u64>>, StoredMembership<u64, Member>), Failure> {
        let state = self.state();
        Ok((state.applied, state.membership.clone()))
    }

    async fn apply<I>(&mut self, entries: I) -> std::result::Result<Vec<Response>, Failure>
    where
        I: IntoIterator<Item = Entry<Types>> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let mut state = self.state_mut();
        let responses = entries.into_iter().map(|entry| {
            state.applied = Some(entry.log_id);
            match entry.payload {
                EntryPayload::Blank => Response::default(),
                EntryPayload::Normal(request) => state.apply(request),
                EntryPayload::Membership(membership) => {
                    state.membership = StoredMembership::new(Some(entry.log_id), membership);
                    Response::default()
                }
            }
        });
        Ok(responses.collect())
    }

    async fn get_snapshot_builder(&mut self) -> Self {
        self.clone()
    }

    async fn begin_receiving_snapshot(
        &mut self,
    ) -> std::result::Result<Box<Cursor<Vec<u8>>>, Failure> {
        Ok(Box::default())
    }

    async fn install_snapshot(
        &mut self,
        meta: &Meta,
        snapshot: Box<Cursor<Vec<u8>>>,
    ) -> std::result::Result<(), Failure> {
        let installed = self.install(meta, snapshot.into_inner());
        installed.map_err(failed(|error| StorageIOError::write_snapshot(None, error)))
    }

    async fn get_current_snapshot(
        &mut self,
    ) -> std::result::Result<Option<Snapshot<Types>>, Failure> {
        let kept = self.record::<Kept>(SM_META, "snapshot");
        let kept = kept.map_err(failed(|error| StorageIOError::read_snapshot(None, error)))?;
        Ok(kept.map(snapshot))
    }
}
