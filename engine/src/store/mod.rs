//! An open store: its parts, and the operations that involve several of them.
//!
//! | part          | owns                                                              |
//! |---------------|-------------------------------------------------------------------|
//! | [`writer`]    | the history: sequence numbers, log, publishing                    |
//! | [`versions`]  | manifest, keyspaces, snapshots, the read-only state               |
//! | [`scheduler`] | background work: due, claimed and awaited                         |
//! | [`filters`](crate::filters) | filters, which see the store as [`filter_host`]     |
//!
//! | operation                              | content                                       |
//! |----------------------------------------|-----------------------------------------------|
//! | [`open_store`], [`threads`]            | opens and closes a store                      |
//! | [`recovery`], [`log_state`], [`replayed_memtables`] | read manifest and log          |
//! | [`take_over`]                          | opens a recovered store, makes it durable     |
//! | [`read_only`]                          | recovers a read-only store                    |
//! | [`follower`]                           | follows a store that another process writes   |
//! | [`open_tables`]                        | opens the tables of a store on several threads |
//! | [`folder`], [`orphans`]                | directory, lock file, files of a crash        |
//! | [`memory`]                             | room for writes in memtables                  |
//! | [`keyspace_set`], [`change_options`]   | create and drop keyspaces, change options     |
//! | [`change_log`]                         | which part of the log the change stream reads |
//! | `reencrypt`                            | rewrites files of old root keys               |
//! | [`retained_logs`]                      | log segments kept for the change stream       |
//! | [`history`]                            | where the history of a keyspace begins        |
//! | [`flush`], [`choose`], [`compact`], [`skipped`] | background work                      |
//! | [`logged_values`], [`logged_file`]     | long values, written once beside the log      |
//! | [`ingest`]                             | bulk load: tables written beside the history  |
//! | [`ingest_threads`]                     | divides threads among bulk loads              |
//! | [`stream_slots`]                       | bound of values that are streamed in          |
//! | [`table_output`], [`install`]          | write tables, make them visible               |
//! | [`checkpoint`]                         | links the files of a store into a new one     |
//! | [`quarantine`]                         | quarantines tables that cannot be read        |
//! | [`verify`], [`verify_blobs`], [`verify_changes`], [`verify_table`] | verify every byte     |
//! | [`stats`], [`stats_file`]              | statistics                                    |
//! | [`store_thread`]                       | a thread for syncs, or for work at intervals  |

mod change_log;
mod change_options;
pub(crate) mod checkpoint;
mod choose;
mod compact;
mod entry_batch;
mod filter_host;
mod flush;
pub(crate) mod folder;
pub(crate) mod follower;
pub(crate) mod history;
pub(crate) mod ingest;
mod ingest_files;
pub(crate) mod ingest_stream;
pub(crate) mod ingest_tables;
mod ingest_threads;
mod install;
mod keyspace_set;
mod keyspaces_lock;
mod log_state;
mod logged_file;
mod logged_values;
mod memory;
mod merge_ranges;
pub(crate) mod open_store;
mod open_tables;
mod orphans;
mod quarantine;
mod read_only;
mod recovery;
#[cfg(feature = "encryption")]
mod reencrypt;
mod replayed_memtables;
mod retained_logs;
pub(crate) mod scheduler;
mod skipped;
mod stats;
mod stats_file;
mod store_thread;
mod stream_slots;
mod table_output;
mod take_over;
mod threads;
pub(crate) mod verify;
mod verify_blobs;
mod verify_changes;
pub(crate) mod verify_table;
pub(crate) mod versions;
pub(crate) mod writer;

use std::sync::{Arc, atomic::AtomicUsize};

use self::{
    follower::Follower, logged_values::ValueFiles, scheduler::Scheduler, stream_slots::StreamSlots,
    versions::Versions, writer::Writer,
};
use crate::{
    Error, Options, Result,
    commit::{LogHost, Placement},
    encryption::StoredFs,
    filters::Filters,
    fs::FileLock,
    gate::{Access, Gate},
    listener::{Event, notify},
    log::{Position, Writer as LogWriter},
    manifest::{ManifestState, VersionEdit},
    memory::MemoryUse,
    memory_budget::MemoryBudget,
    planted::PlantedBug,
    stats::OpeningStats,
    sync::{Mutex, MutexGuard},
    table::store::TableStore,
    wal::segment::NewSegment,
};

/// State shared by all handles and workers of an open store.
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) options: Options,
    pub(crate) hash_seed: u64,
    pub(crate) writer: Writer,
    pub(crate) versions: Versions,
    pub(crate) scheduler: Scheduler,
    pub(crate) filters: Filters,
    pub(crate) tables: TableStore,
    /// File system for copies of the store. A read-only store may create them, too.
    pub(crate) target: StoredFs,
    pub(crate) gate: Gate,
    /// Blob files with values of the log.
    values: ValueFiles,
    /// Bound of values that are streamed in.
    streams: StreamSlots,
    /// Threads of all bulk loads.
    ingest_threads: Arc<AtomicUsize>,
    /// As the store was opened, or the budget was changed since.
    memory_budget: Mutex<MemoryBudget>,
    opening: OpeningStats,
    /// `None` unless the store follows another process, or is a replica.
    pub(crate) follower: Option<Follower>,
    /// `None` once it is released, and in a read-only store whose directory has no lock file.
    lock: Mutex<Option<Box<dyn FileLock>>>,
}

impl Store {
    /// Refuses calls once the store is closed, and in a forked child. There a call must not take a
    /// lock: a thread of the parent may have held it.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`], [`Error::ForkedChild`].
    #[inline]
    pub(crate) fn check_open(&self) -> Result<()> {
        if self.gate.is_open() { Ok(()) } else { self.refuse() }
    }

    #[cold]
    fn refuse(&self) -> Result<()> {
        match self.gate.access() {
            Access::Open => Ok(()),
            Access::Closing | Access::Closed => Err(Error::Closed),
            Access::Forked => {
                self.release_lock();
                Err(Error::ForkedChild { path: self.tables.folder.clone() })
            }
        }
    }

    /// Refuses calls that need files which another process may delete.
    ///
    /// # Errors
    ///
    /// [`Error::Following`].
    fn check_own_files(&self) -> Result<()> {
        match self.options.follow {
            true => Err(Error::Following { path: self.tables.folder.clone() }),
            false => Ok(()),
        }
    }

    /// Returns whether this process is a fork of the one that opened the store.
    pub(crate) fn is_forked(&self) -> bool {
        self.gate.is_forked()
    }

    /// Releases the lock of the directory. In a forked child this closes a descriptor, and the lock
    /// stays with the parent.
    fn release_lock(&self) {
        if self.is_forked() {
            // A thread of the parent may have held it. Then the descriptor stays open.
            drop(self.lock.try_lock().and_then(|mut lock| lock.take()));
            return;
        }
        drop(self.lock.lock().take());
    }

    /// Notifies the listener, if there is one.
    pub(crate) fn notify(&self, event: &Event) {
        if let Some(listener) = &self.options.listener {
            notify(&**listener, event);
        }
    }

    /// Makes the store read-only: `cause` left it unknown what is on the disk. Returns `cause`.
    pub(crate) fn poison(&self, cause: Error) -> Error {
        if !matches!(cause, Error::ReadOnly { .. }) && self.versions.make_read_only(&cause) {
            if !self.scheduler.defers_read_only_event() {
                self.report_read_only();
            }
            self.scheduler.wake();
        }
        cause
    }

    /// Notifies the listener that the store became read-only.
    pub(in crate::store) fn report_read_only(&self) {
        if let Err(Error::ReadOnly { cause }) = self.versions.check_writable() {
            self.notify(&Event::ReadOnly { cause: (*cause).clone() });
        }
    }

    /// Makes an edit of the manifest durable: see [`Versions::edit`].
    pub(crate) fn edit_manifest<T>(
        &self,
        change: impl FnOnce(&ManifestState) -> Option<VersionEdit>,
        install: impl FnOnce(bool) -> T,
    ) -> Result<T> {
        self.versions.edit(self, &self.tables, self.options.clock.now(), change, install)
    }

    /// Begins a new manifest if the last edit failed on a full disk. Must be called before writing
    /// files that an edit will name: otherwise each retry leaves files that no manifest names.
    ///
    /// # Errors
    ///
    /// As [`edit_manifest`](Self::edit_manifest).
    pub(crate) fn renew_manifest(&self) -> Result<()> {
        if self.versions.read_manifest(|manifest| manifest.needs_new_file()) {
            self.edit_manifest(|_| Some(VersionEdit::default()), |_| ())?;
        }
        Ok(())
    }
}

impl LogHost for Store {
    fn placement(&self) -> MutexGuard<'_, Placement> {
        self.writer.placement()
    }

    fn segment_bytes(&self) -> u64 {
        self.options.log.segment_bytes(self.tables.memory.limit(MemoryUse::Memtables))
    }

    fn create_segment(&self, previous: Option<Position>, mark: Position) -> Result<LogWriter> {
        let tables = &self.tables;
        self.renew_manifest()?;
        let manifest = self.versions.durable_position()?;
        let (store_id, id) = (tables.store_id, tables.new_file_id());
        debug_assert!(previous.is_none_or(|previous| previous.file_id < id), "segments ascend");
        debug_assert!(previous.is_none_or(|previous| mark <= previous), "a mark beyond the end");
        let segment = NewSegment { store_id, id, manifest, previous, mark };
        let writer = segment.create(&*tables.fs, &tables.folder)?;
        let edit =
            VersionEdit { logs_created: vec![(id, writer.secret())], ..VersionEdit::default() };
        let named = self.edit_manifest(|_| Some(edit), |_| ());
        if named.is_err() {
            let obsolete = &tables.obsolete_files;
            self.versions.add_uncertain(obsolete, [writer.path().clone()]);
        }
        named?;
        // The log may have become too long.
        self.scheduler.wake();
        Ok(writer)
    }

    fn check_writable(&self) -> Result<()> {
        self.versions.check_writable()
    }

    fn poison(&self, cause: Error) -> Error {
        Self::poison(self, cause)
    }

    fn report_after<T>(&self, write: impl FnOnce() -> T) -> T {
        self.report_later(write)
    }

    fn syncs_values(&self) -> bool {
        !self.options.has_bug(PlantedBug::SyncLogWithoutValues)
    }

    fn counts_unsynced(&self) -> bool {
        self.options.has_bug(PlantedBug::CountUnsyncedWrites)
    }
}
