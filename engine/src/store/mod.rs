//! The heart of an open store: what all its handles and workers share, and the work on it.
//!
//! | module           | answers                                                            |
//! |------------------|--------------------------------------------------------------------|
//! | [`open_store`]   | how a store is opened and closed                                   |
//! | [`recovery`]     | how it comes back from manifest and log                            |
//! | [`read_only`]    | how one that is only read does                                     |
//! | [`log_state`]    | what the manifest says, as the log goes on from there             |
//! | [`open_tables`]  | the tables of the manifest are opened, their filters loaded         |
//! | [`orphans`]      | unlinks files that no manifest needs                               |
//! | [`commit`]       | the one way of a write                                             |
//! | [`placed_write`] | a write between placing and publishing, also after a panic         |
//! | [`throttle`]     | how writers are slowed down                                        |
//! | [`memory`]       | how the memory budget is kept                                      |
//! | [`keyspace_set`] | how keyspaces are created and dropped                              |
//! | [`keyspace_trees`] | the keyspaces by name and by id                                  |
//! | [`background`]   | who does flushes and compactions, and when                         |
//! | [`due_trees`]    | which keyspaces may have work                                      |
//! | [`flush`]        | memtables become tables                                            |
//! | [`compact`]      | compactions are chosen and carried out                             |
//! | [`quarantine`]   | quarantines tables that a compaction cannot read                   |
//! | [`skipped`]      | work that scans ask for, because they step over many tombstones    |
//! | [`table_output`] | entries in order become tables                                     |
//! | [`filter_jobs`]  | which of these filters are built next, and which not again         |
//! | [`filter_build`] | a filter is built from the keys of its table                       |
//! | [`filter_rebuild`] | a filter takes the place of another one                          |
//! | [`install`]      | a change of tables becomes durable and then visible                |
//! | [`residency`]    | filters are kept in memory as the plan says                        |
//! | [`verify`], [`verify_table`] | every byte is looked at         |
//! | [`unneeded`]     | lets workers free memory in place of readers                       |
//! | [`stats`]        | what the store holds                                               |
//! | [`stats_file`]   | tells other processes what it holds                                |

pub(crate) mod background;
mod commit;
mod compact;
mod due_trees;
mod filter_build;
mod filter_jobs;
mod filter_rebuild;
mod flush;
pub(crate) mod folder;
mod install;
pub(crate) mod keyspace_set;
pub(crate) mod keyspace_trees;
mod log_state;
mod memory;
pub(crate) mod open_store;
mod open_tables;
mod orphans;
mod placed_write;
mod quarantine;
mod read_only;
mod recovery;
pub(crate) mod residency;
mod rewrite_log;
mod skipped;
mod stats;
mod stats_file;
mod table_output;
mod throttle;
mod unneeded;
pub(crate) mod verify;
pub(crate) mod verify_table;

use std::{
    path::PathBuf,
    sync::{Arc, OnceLock},
    time::Duration,
};

use crate::{
    Durability, Error, Options, Result, barriers,
    commit::{LogSize, PanicGuard, Placement, PublishQueue, SharedLog},
    file_name::FileName,
    fs::FileLock,
    gate::{Access, Gate},
    listener::{Event, notify},
    manifest::{ManifestFile, ManifestState, VersionEdit},
    memory_budget::MemoryBudget,
    read::snapshot_list::SnapshotList,
    stats::OpeningStats,
    store::background::Background,
    store::keyspace_set::Unrecorded,
    store::keyspace_trees::KeyspaceTrees,
    store::residency::Residency,
    store::unneeded::UnneededMemory,
    sync::{
        Mutex, RwLock,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    table::store::TableStore,
};

/// What all handles and workers of an open store share.
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) options: Options,
    gate: Gate,
    pub(crate) hash_seed: u64,
    /// As it was opened with, or changed to since.
    pub(crate) memory_budget: Mutex<MemoryBudget>,
    pub(crate) placement: Mutex<Placement>,
    pub(crate) publish: PublishQueue,
    pub(crate) log: SharedLog,
    /// What the memtables of a store that is only read come from.
    pub(crate) replayed_log: LogSize,
    pub(crate) manifest: Mutex<ManifestFile>,
    pub(crate) trees: RwLock<KeyspaceTrees>,
    /// Held while a keyspace is created or dropped.
    pub(crate) keyspace_change: Mutex<()>,
    /// Guarded by the manifest's lock, which is taken first.
    pub(crate) unrecorded: Mutex<Unrecorded>,
    pub(crate) next_keyspace_id: AtomicU64,
    pub(crate) snapshots: SnapshotList,
    pub(crate) tables: TableStore,
    /// New files of edits that failed on a full disk. The manifest may hold such an edit all the
    /// same, until a new manifest takes its place.
    pub(crate) uncertain_files: Mutex<Vec<PathBuf>>,
    pub(crate) background: Background,
    unneeded: Arc<UnneededMemory>,
    pub(crate) residency: Residency,
    pub(crate) read_only: OnceLock<Arc<Error>>,
    /// [`Event::BarriersRefused`] was reported, or was true when the store was opened.
    has_reported_refusal: AtomicBool,
    /// Tables with smaller ids were there when the store was opened.
    pub(crate) first_file_id: u64,
    /// By the clock of the options.
    pub(crate) opened_at: Duration,
    /// By the store clock.
    pub(crate) clock_at_open_ms: u64,
    pub(crate) opening: OpeningStats,
    /// `None` once it is released, and if the store is only read and its folder has no lock file.
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

    /// Returns whether this process is a fork of the one that opened the store.
    pub(crate) fn is_forked(&self) -> bool {
        self.gate.is_forked()
    }

    /// Releases the lock of the directory. In a forked child this closes a descriptor, and the lock
    /// stays with the parent.
    fn release_lock(&self) {
        drop(self.lock.lock().take());
    }

    /// Refuses to write once the store is read-only.
    ///
    /// # Errors
    ///
    /// [`Error::ReadOnly`] with the cause.
    pub(crate) fn check_writable(&self) -> Result<()> {
        match self.read_only.get() {
            Some(cause) => Err(Error::ReadOnly { cause: Arc::clone(cause) }),
            None => Ok(()),
        }
    }

    /// Makes the store read-only: `cause` left it unknown what is on the disk. Returns `cause`.
    pub(crate) fn poison(&self, cause: Error) -> Error {
        if let Error::ReadOnly { .. } = cause {
            return cause;
        }
        if self.read_only.set(Arc::new(cause.clone())).is_ok() {
            self.notify(&Event::ReadOnly { cause: cause.clone() });
            self.background.wake();
        }
        cause
    }

    /// Reports, once, that the system forbids barriers that it allowed before.
    fn report_refused_barriers(&self) {
        if barriers::is_refused() && !self.has_reported_refusal.swap(true, Relaxed) {
            self.notify(&Event::BarriersRefused);
        }
    }

    /// Tells the listener, if there is one.
    pub(crate) fn notify(&self, event: &Event) {
        if let Some(listener) = &self.options.listener {
            notify(&**listener, event);
        }
    }

    /// Makes the edit that `change` derives from the present state durable in the manifest, then
    /// calls `install` before anybody else changes the manifest. `change` may decide that nothing
    /// is to be done; `install` is told.
    ///
    /// # Errors
    ///
    /// [`Error::Io`]. If the disk is full the store goes on, else it is read-only from then on and
    /// nothing that the manifest may or may not name is deleted.
    pub(crate) fn edit_manifest<T>(
        &self,
        change: impl FnOnce(&ManifestState) -> Option<VersionEdit>,
        install: impl FnOnce(bool) -> T,
    ) -> Result<T> {
        let mut manifest = self.manifest.lock();
        if self.gate.access() == Access::Closed {
            return Err(Error::Closed);
        }
        // A panic leaves it unknown how much of the edit is in the file.
        let _guard = PanicGuard::new(self);
        self.check_writable()?;
        let Some(mut edit) = change(manifest.state()) else { return Ok(install(false)) };
        edit.next_file_id = Some(self.tables.next_file_id());
        edit.store_clock_ms = Some(self.store_clock_ms());
        let mut unrecorded = self.unrecorded.lock();
        unrecorded.add_to(&mut edit);
        match manifest.append(&edit, || self.tables.new_file_id()) {
            Ok(appended) => {
                if let Some(replaced) = appended.replaced {
                    let path = FileName::Manifest(replaced).path(&self.tables.folder);
                    self.tables.obsolete_files.push(path);
                    for path in self.uncertain_files.lock().drain(..) {
                        self.tables.obsolete_files.push(path);
                    }
                }
                let installed = install(true);
                if unrecorded.record() {
                    self.placement.lock().end_keyspace_changes();
                }
                Ok(installed)
            }
            Err(error) if manifest.is_failed() => Err(self.poison(error)),
            Err(error) => Err(error),
        }
    }

    /// Begins a new manifest if the last edit failed on a full disk. Must be called before writing
    /// files that an edit will name: otherwise each retry leaves files that no manifest names.
    ///
    /// # Errors
    ///
    /// As [`edit_manifest`](Self::edit_manifest).
    pub(crate) fn renew_manifest(&self) -> Result<()> {
        if self.manifest.lock().needs_new_file() {
            self.edit_manifest(|_| Some(VersionEdit::default()), |_| ())?;
        }
        Ok(())
    }

    /// The store clock, in milliseconds: what the manifest had when the store was opened, and the
    /// time that has passed since. It stands still while the store is closed.
    fn store_clock_ms(&self) -> u64 {
        let passed = self.options.clock.now().saturating_sub(self.opened_at);
        let passed_ms = u64::try_from(passed.as_millis()).unwrap_or(u64::MAX);
        self.clock_at_open_ms.saturating_add(passed_ms)
    }

    /// Brings everything acknowledged so far to `durability`.
    ///
    /// # Errors
    ///
    /// [`Error::Io`], [`Error::ReadOnly`].
    pub(crate) fn persist(&self, durability: Durability) -> Result<()> {
        self.check_writable()?;
        match durability {
            Durability::Memory => Ok(()),
            Durability::OsBuffer => self.log.write(self),
            Durability::Disk => {
                let last_placed = self.placement.lock().last_placed();
                self.log.sync_to(self, last_placed)
            }
        }
    }
}
