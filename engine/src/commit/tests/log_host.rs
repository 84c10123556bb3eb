//! A minimal store for the log.

use std::{
    path::Path,
    sync::{
        Arc, Mutex as StdMutex, OnceLock,
        atomic::{AtomicU64 as StdAtomicU64, Ordering::Relaxed},
    },
};

use sievedb_format::SequenceNumber;

use super::stepped_fs::SteppedFs;
use crate::{
    Durability, Error, KeyspaceOptions, Result,
    commit::{
        LogHost, PlacedWrite, Placement, PublishQueue, SharedLog, SyncedWaiters, WriteEncoder,
        commit_sole,
    },
    fs::{Fs, Loss},
    log::{Payload, Position, Writer},
    read::tree::Tree,
    sync::{Mutex, MutexGuard},
    version::Version,
    wal::{
        batch::Entry,
        chain::Segments,
        replay::replay,
        segment::{NewSegment, segment_ids},
    },
};

const STORE: u128 = 0x5106_e5db;
const FOLDER: &str = "db";
const HASH_SEED: u64 = 7;

/// Sequence number and key of a write.
pub(super) type Logged = (SequenceNumber, String);

/// A commit pipeline with one tree and without a manifest, flushes and compactions.
#[derive(Debug)]
pub(super) struct Host {
    pub(super) fs: SteppedFs,
    pub(super) log: SharedLog,
    pub(super) publish: PublishQueue,
    placement: Mutex<Placement>,
    tree: Arc<Tree>,
    segment_bytes: StdAtomicU64,
    next_file_id: StdAtomicU64,
    /// The segments that the manifest would name.
    named: StdMutex<Vec<u64>>,
    read_only: OnceLock<Arc<Error>>,
    /// Plants a bug.
    pub(super) counts_unsynced: bool,
}

impl Host {
    pub(super) fn new(segment_bytes: u64) -> Self {
        let fs = SteppedFs::new();
        fs.create_dir(FOLDER.as_ref()).unwrap();
        fs.memory.settle();
        let options = KeyspaceOptions::new().memtable_bytes(4 << 10);
        Self {
            fs,
            log: SharedLog::new(0),
            publish: PublishQueue::new(0),
            placement: Mutex::new(Placement::new(0)),
            tree: Arc::new(Tree::new(
                0,
                "default".to_owned(),
                options,
                Version::default(),
                Arc::default(),
                Arc::default(),
            )),
            segment_bytes: segment_bytes.into(),
            next_file_id: StdAtomicU64::new(1),
            named: StdMutex::default(),
            read_only: OnceLock::new(),
            counts_unsynced: false,
        }
    }

    /// Commits a put of `key` as [`Store::commit`](crate::store::Store::commit) does. Returns
    /// `None` if it was not placed.
    pub(super) fn commit(
        &self,
        key: &str,
        durability: Durability,
    ) -> Option<(SequenceNumber, Result<()>)> {
        self.commit_after(key, durability, || ())
    }

    /// As [`commit`](Self::commit). A sole write calls `admit` before it is placed.
    pub(super) fn commit_after(
        &self,
        key: &str,
        durability: Durability,
        admit: impl FnOnce(),
    ) -> Option<(SequenceNumber, Result<()>)> {
        let mut write =
            WriteEncoder::single_value(HASH_SEED, &self.tree, key.as_bytes(), None, b"").unwrap();
        if durability == Durability::OsBuffer {
            let mut first = None;
            let sole = commit_sole(self, &self.log, &self.publish, &mut write, |placement, _| {
                self.check_writable()?;
                admit();
                first = Some(placement.last_placed() + 1);
                Ok(Some(()))
            });
            match sole {
                Ok(None) => {}
                Ok(Some((numbers, ()))) => return Some((numbers.last, Ok(()))),
                Err(error) => return Some((first?, Err(error))),
            }
        }
        let payload = Payload::new(write.payload.clone());
        let in_flight = {
            let mut placement = self.placement.lock();
            self.check_writable().ok()?;
            let waits = durability > Durability::Memory;
            placement.place(&self.publish, &mut write, payload, waits).unwrap().0
        };
        let none = SyncedWaiters::default;
        let logged = match durability {
            Durability::Memory => Ok(none()),
            Durability::OsBuffer => self.log.write_through(self, &in_flight).map(|()| none()),
            Durability::Disk => self.log.sync_through(self, &in_flight),
        };
        if logged.is_ok() && !in_flight.is_done() {
            in_flight.write.insert(in_flight.first);
        }
        let (synced, logged) = match logged {
            Ok(synced) => (synced, Ok(())),
            Err(error) => (none(), Err(error)),
        };
        let in_flight = PlacedWrite::new(self, &self.publish, in_flight).publish(synced);
        assert!(self.publish.visible() >= in_flight.last, "acknowledged and not visible");
        Some((in_flight.last, logged))
    }

    pub(super) fn set_segment_bytes(&self, bytes: u64) {
        self.segment_bytes.store(bytes, Relaxed);
    }

    /// Makes everything placed so far durable.
    pub(super) fn persist(&self) -> Result<()> {
        let last_placed = self.placement.lock().last_placed();
        self.log.sync_to(self, last_placed)
    }

    /// Returns the contents of the log after a crash, in order. Requires that nothing below `mark`
    /// is damaged.
    pub(super) fn logged(&self, loss: &Loss, mark: Position) -> Vec<Logged> {
        let memory = &self.fs.memory;
        let named = self.named.lock().unwrap().clone();
        let crashed: Arc<dyn Fs> = Arc::new(memory.crash(memory.operations(), loss));
        let folder = Path::new(FOLDER);
        let on_disk = segment_ids(&crashed.list(folder).unwrap());
        let segments = Segments::unnamed(&crashed, folder, STORE, &on_disk);
        let segments = Segments { named: &named, ..segments };
        let mut logged = Vec::new();
        let replayed = replay(&segments, mark, |replayed| {
            for (sequence, entry) in (replayed.sequence..).zip(&replayed.batch) {
                let Ok(Entry::Point { key, .. }) = entry else { panic!("{entry:?}") };
                logged.push((sequence, String::from_utf8(key.to_vec()).unwrap()));
            }
            Ok(())
        });
        replayed.unwrap_or_else(|error| panic!("the log cannot be replayed: {error:?}"));
        logged
    }
}

impl LogHost for Host {
    fn placement(&self) -> MutexGuard<'_, Placement> {
        self.placement.lock()
    }

    fn segment_bytes(&self) -> u64 {
        self.segment_bytes.load(Relaxed)
    }

    fn create_segment(&self, previous: Option<Position>, mark: Position) -> Result<Writer> {
        let id = self.next_file_id.fetch_add(1, Relaxed);
        let manifest = Position { file_id: 1, offset: 500 };
        let segment = NewSegment { store_id: STORE, id, manifest, previous, mark };
        let writer = segment.create(&self.fs, FOLDER.as_ref())?;
        self.named.lock().unwrap().push(id);
        Ok(writer)
    }

    fn check_writable(&self) -> Result<()> {
        match self.read_only.get() {
            Some(cause) => Err(Error::ReadOnly { cause: Arc::clone(cause) }),
            None => Ok(()),
        }
    }

    fn poison(&self, cause: Error) -> Error {
        // As in a store, only the first cause counts.
        let _ = self.read_only.set(Arc::new(cause.clone()));
        cause
    }

    fn counts_unsynced(&self) -> bool {
        self.counts_unsynced
    }
}
