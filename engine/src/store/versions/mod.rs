//! State of a store: durable in the manifest, visible in the versions of keyspaces.
//!
//! | file          | content                                                            |
//! |---------------|--------------------------------------------------------------------|
//! | `mod`         | edits of the manifest, and why the store is read-only              |
//! | [`keyspaces`] | keyspaces by name and id, and changes that only the log has        |
//! | [`change`]    | changes of the tables of a keyspace                                |
//!
//! Locks, in this order: keyspace change, manifest, trees. Between manifest and trees the placement
//! lock of the writer may be taken. The lock of the snapshots is the last.

pub(crate) mod change;
pub(crate) mod keyspaces;

use std::{
    ops::Deref,
    path::PathBuf,
    sync::{Arc, OnceLock},
    time::Duration,
};

use sievedb_format::SequenceNumber;

use self::keyspaces::{KeyspaceChange, KeyspaceTrees, Unrecorded};
use crate::{
    Error, Result,
    clock::Clock,
    commit::{LogHost, PanicGuard},
    file_name::FileName,
    log::Position,
    manifest::{ManifestFile, ManifestState, VersionEdit},
    read::snapshot_list::SnapshotList,
    read::tree::Tree,
    sequence_times::{Sample, SequenceTimes},
    store_clock::StoreClock,
    sync::{
        Mutex, MutexGuard, RwLock,
        atomic::{
            AtomicBool, AtomicU64,
            Ordering::{Relaxed, SeqCst},
        },
    },
    table::{LiveTable, obsolete::ObsoleteFiles, store::TableStore},
};

/// Manifest, keyspaces and snapshots of an open store.
#[derive(Debug)]
pub(crate) struct Versions {
    /// Id of the next keyspace. Held while keyspaces are created or dropped.
    keyspace_change: Mutex<u64>,
    manifest: Mutex<Manifest>,
    trees: RwLock<KeyspaceTrees>,
    snapshots: SnapshotList,
    /// Cause, if the store is read-only.
    read_only: OnceLock<Arc<Error>>,
    clock: StoreClock,
    times: Mutex<SequenceTimes>,
    /// Store clock from which on a write adds to `times`, in milliseconds; [`NEVER`] if no keyspace
    /// has had a history since the opening.
    next_time_ms: AtomicU64,
    /// The manifest lacks changes of keyspaces. Changed while it is locked.
    is_behind: AtomicBool,
}

/// No write adds the time at which it is placed.
const NEVER: u64 = u64::MAX;

/// State under the manifest lock.
#[derive(Debug)]
struct Manifest {
    file: ManifestFile,
    is_closed: bool,
    unrecorded: Unrecorded,
    /// New files of edits that failed on a full disk. The manifest may name them, until a new
    /// manifest takes its place.
    uncertain_files: Vec<PathBuf>,
    /// Tables of such edits. Only their own files are removed then.
    uncertain_tables: Vec<Arc<LiveTable>>,
}

impl Manifest {
    /// Returns whether the file may name files that its state lacks. If an edit failed and this is
    /// `false`, another thread has replaced the file since.
    fn may_name_others(&self) -> bool {
        self.file.needs_new_file() || self.file.is_failed()
    }
}

impl Versions {
    /// Creates the versions of a store opened now, by `clock`; read-only if there is a `cause`.
    /// `stands_still`: the store clock does not advance.
    pub(super) fn new(
        file: ManifestFile,
        trees: KeyspaceTrees,
        clock: Arc<dyn Clock>,
        cause: Option<Error>,
        stands_still: bool,
    ) -> Self {
        let state = file.state();
        let next_keyspace_id = state.next_keyspace_id;
        let times = Mutex::new(state.sequence_times.clone());
        let clock = StoreClock::open(clock, state.store_clock_ms, stands_still);
        let (is_closed, unrecorded, uncertain_files, uncertain_tables) = Default::default();
        let manifest = Manifest { file, is_closed, unrecorded, uncertain_files, uncertain_tables };
        Self {
            keyspace_change: Mutex::new(next_keyspace_id),
            manifest: Mutex::new(manifest),
            trees: RwLock::new(trees),
            snapshots: SnapshotList::default(),
            read_only: cause.map_or_else(OnceLock::new, |cause| Arc::new(cause).into()),
            clock,
            times,
            next_time_ms: AtomicU64::new(NEVER),
            is_behind: AtomicBool::new(false),
        }
    }

    /// Locks the keyspaces for reading.
    pub(crate) fn trees(&self) -> impl Deref<Target = KeyspaceTrees> {
        self.trees.read()
    }

    pub(crate) const fn snapshots(&self) -> &SnapshotList {
        &self.snapshots
    }

    pub(crate) const fn clock(&self) -> &StoreClock {
        &self.clock
    }

    /// Calls `read` with the times at which writes were placed.
    pub(crate) fn with_times<T>(&self, read: impl FnOnce(&SequenceTimes) -> T) -> T {
        read(&self.times.lock())
    }

    /// Begins to note when writes are placed. `last` was placed last at `now`, by the clock of the
    /// options; the caller holds the placement lock, or there is no writer yet.
    pub(super) fn begin_times(&self, now: Duration, last: SequenceNumber) {
        self.add_time(self.clock.at_ms(now), last);
    }

    /// Notes that a write is placed behind `last` at the time that `now` returns, if a keyspace has
    /// a history. The caller holds the placement lock.
    #[inline]
    pub(super) fn note_time(&self, now: impl FnOnce() -> Duration, last: SequenceNumber) {
        let next_ms = self.next_time_ms.load(Relaxed);
        if next_ms != NEVER {
            let now_ms = self.clock.at_ms(now());
            if now_ms >= next_ms {
                self.add_time(now_ms, last);
            }
        }
    }

    #[cold]
    fn add_time(&self, now_ms: u64, last: SequenceNumber) {
        let mut times = self.times.lock();
        times.note(now_ms, last);
        self.next_time_ms.store(times.next_ms(), Relaxed);
    }

    /// Returns whether the manifest lacks the time of a write.
    pub(super) fn has_unrecorded_times(&self) -> bool {
        let manifest = self.manifest.lock();
        let recorded = &manifest.file.state().sequence_times;
        !self.times.lock().newer_than(recorded).is_empty()
    }

    /// Begins to create, drop or clear keyspaces, or to install ingested tables. The guard holds
    /// the id of the next one.
    pub(in crate::store) fn lock_keyspaces(&self) -> MutexGuard<'_, u64> {
        self.keyspace_change.lock()
    }

    /// Makes a `change` visible that is durable in the log; `None` if it failed. Calls `then`
    /// before any thread edits the manifest.
    pub(super) fn change_keyspaces(&self, change: Option<KeyspaceChange>, then: impl FnOnce()) {
        let mut manifest = self.manifest.lock();
        debug_assert!(!manifest.is_closed, "a close waits for writes");
        if let Some(change) = change {
            // Before another thread sees that the keyspace is dropped.
            self.is_behind.store(true, SeqCst);
            manifest.unrecorded.note(change, &mut self.trees.write());
        }
        then();
    }

    /// Clears `tree` at `sequence`, which is durable in the log, after every write before is
    /// visible. `publish` makes the record visible; no snapshot is taken meanwhile. Calls `then`
    /// before any thread edits the manifest.
    pub(super) fn clear_keyspace(
        &self,
        tree: &Tree,
        sequence: SequenceNumber,
        publish: impl FnOnce(),
        then: impl FnOnce(),
    ) {
        let mut manifest = self.manifest.lock();
        debug_assert!(!manifest.is_closed, "a close waits for writes");
        self.is_behind.store(true, SeqCst);
        let before = self.snapshots.keep_before_clear(tree.id, sequence, || {
            let before = tree.clear();
            // Before waiting writes see the clear.
            tree.end_clear();
            publish();
            before
        });
        debug_assert!(!tree.is_dropped(), "no keyspace is dropped during the change");
        manifest.unrecorded.note_cleared(tree.id, sequence, before.version);
        then();
    }

    /// Replaces the manifest by `file`, as another process has written it since. `keeps_times`:
    /// keeps own later times of writes that it lacks.
    pub(super) fn follow_manifest(&self, file: ManifestFile, keeps_times: bool) {
        let state = file.state();
        // First: histories begin by then.
        self.clock.raise(state.store_clock_ms);
        let mut times = state.sequence_times.clone();
        let mut own = self.times.lock();
        if keeps_times {
            for &(ms, sequence) in own.newer_than(&state.sequence_times) {
                times.note_shown(ms, sequence, state.last_sequence);
            }
        }
        *own = times;
        drop(own);
        self.manifest.lock().file = file;
    }

    /// Notes that a follower shows writes above `shown` from now on. Their times are unknown until
    /// the manifest has them.
    pub(super) fn note_shown(&self, shown: SequenceNumber) {
        let flushed = self.read_manifest(|manifest| manifest.state().last_sequence);
        let now_ms = self.clock.now_ms();
        self.times.lock().note_shown(now_ms, shown, flushed);
    }

    /// Replaces the keyspaces by `trees`, as another process has changed them since.
    pub(super) fn follow_trees(&self, trees: &[Arc<Tree>]) {
        self.trees.write().replace(trees);
    }

    /// Calls `read` while no thread edits the manifest.
    pub(super) fn read_manifest<T>(&self, read: impl FnOnce(&ManifestFile) -> T) -> T {
        read(&self.manifest.lock().file)
    }

    /// Lets the next edit create a new manifest.
    #[cfg(feature = "encryption")]
    pub(super) fn leave_manifest(&self) {
        self.manifest.lock().file.leave();
    }

    /// As [`read_manifest`](Self::read_manifest); returns `None` if a thread edits the manifest.
    pub(super) fn try_read_manifest<T>(&self, read: impl FnOnce(&ManifestFile) -> T) -> Option<T> {
        self.manifest.try_lock().map(|manifest| read(&manifest.file))
    }

    /// Returns the position in the manifest that a new log segment vouches for.
    ///
    /// # Errors
    ///
    /// [`Error::ReadOnly`]: the last edit may not be durable.
    pub(super) fn durable_position(&self) -> Result<Position> {
        let manifest = self.manifest.lock();
        self.check_writable()?;
        Ok(manifest.file.position())
    }

    /// Notes new files of an edit that failed. They are obsolete once no manifest names them.
    pub(crate) fn add_uncertain(
        &self,
        obsolete: &ObsoleteFiles,
        files: impl IntoIterator<Item = PathBuf>,
    ) {
        let mut manifest = self.manifest.lock();
        match manifest.may_name_others() {
            true => manifest.uncertain_files.extend(files),
            false => obsolete.extend(files),
        }
    }

    /// As [`add_uncertain`](Self::add_uncertain), for tables with their files.
    pub(super) fn add_uncertain_tables(&self, tables: &[Arc<LiveTable>]) {
        let mut manifest = self.manifest.lock();
        match manifest.may_name_others() {
            true => manifest.uncertain_tables.extend_from_slice(tables),
            false => tables.iter().for_each(|live| live.mark_obsolete()),
        }
    }

    /// Makes the edit durable that `change` derives from the present state. Then calls `install`
    /// before any thread edits the manifest, with `false` if `change` returned `None`.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`]; [`Error::Io`]. After a full disk the store continues. After any other
    /// error it is read-only, and no file is deleted that the manifest may name.
    pub(super) fn edit<T>(
        &self,
        host: &impl LogHost,
        tables: &TableStore,
        now: Duration,
        change: impl FnOnce(&ManifestState) -> Option<VersionEdit>,
        install: impl FnOnce(bool) -> T,
    ) -> Result<T> {
        let manifest = &mut *self.manifest.lock();
        if manifest.is_closed {
            return Err(Error::Closed);
        }
        // A panic leaves it unknown how much of the edit is in the file.
        let _guard = PanicGuard::new(host);
        self.check_writable()?;
        let Some(mut edit) = change(manifest.file.state()) else { return Ok(install(false)) };
        edit.next_file_id = Some(tables.next_file_id());
        // A repair gives the new store the clock of the damaged one.
        edit.store_clock_ms = edit.store_clock_ms.max(Some(self.clock.at_ms(now)));
        manifest.unrecorded.add_to(&mut edit);
        let last = manifest.file.state().last_sequence.max(edit.last_sequence.unwrap_or(0));
        edit.sequence_times = self.times_up_to(last, manifest.file.state());
        match manifest.file.append(&edit, || tables.new_file_id()) {
            Ok(appended) => {
                if let Some(replaced) = appended.replaced {
                    tables.obsolete_files.push(FileName::Manifest(replaced).path(&tables.folder));
                    for path in manifest.uncertain_files.drain(..) {
                        tables.obsolete_files.push(path);
                    }
                    for live in manifest.uncertain_tables.drain(..) {
                        live.mark_obsolete();
                    }
                }
                let installed = install(true);
                if manifest.unrecorded.record() {
                    self.is_behind.store(false, SeqCst);
                    host.placement().end_keyspace_changes();
                }
                debug_assert!(!manifest.file.needs_new_file(), "a durable edit ends the file");
                debug_assert!(
                    manifest.file.state().next_file_id <= tables.next_file_id(),
                    "the manifest reserves ids that may be given out again"
                );
                Ok(installed)
            }
            Err(error) if manifest.file.is_failed() => Err(host.poison(error)),
            Err(error) => Err(error),
        }
    }

    /// Returns the times that `state` lacks, up to the sequence number `last`. No crash may take it
    /// back: a later one may be given to another write.
    pub(super) fn times_up_to(&self, last: SequenceNumber, state: &ManifestState) -> Vec<Sample> {
        let times = self.times.lock();
        let newer = times.newer_than(&state.sequence_times).iter().copied();
        newer.take_while(|&(_, sequence)| sequence <= last).collect()
    }

    /// Returns `true` if only the log has a change of keyspaces. Until an edit succeeds, a dropped
    /// keyspace keeps its memtables and files.
    pub(super) fn is_behind(&self) -> bool {
        self.is_behind.load(SeqCst)
    }

    /// Refuses further edits. If `is_durable`, notes that all of the manifest is on the disk.
    pub(super) fn close(&self, is_durable: bool) {
        let mut manifest = self.manifest.lock();
        if is_durable {
            manifest.file.close();
        }
        manifest.is_closed = true;
    }

    /// Refuses to write to a read-only store.
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

    pub(super) fn is_read_only(&self) -> bool {
        self.read_only.get().is_some()
    }

    /// Returns why the store became read-only after it was opened.
    pub(super) fn why_read_only(&self) -> Option<String> {
        let became = |cause: &&Arc<Error>| !matches!(***cause, Error::OpenedReadOnly { .. });
        self.read_only.get().filter(became).map(|cause| cause.to_string())
    }

    /// Makes the store read-only. Returns `false` if it was.
    pub(super) fn make_read_only(&self, cause: &Error) -> bool {
        debug_assert!(!matches!(cause, Error::ReadOnly { .. }), "a consequence is no cause");
        let is_first = self.read_only.set(Arc::new(cause.clone())).is_ok();
        debug_assert!(self.is_read_only());
        is_first
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use crate::{
        Options,
        fs::{Fs, MemoryFs},
    };

    use super::*;

    #[test]
    fn files_that_a_newer_manifest_lacks_are_obsolete_at_once() {
        let fs = Arc::new(MemoryFs::new());
        let options = Options::new().fs(Arc::clone(&fs) as _).worker_threads(0);
        let db = options.open("db").expect("a new store");
        let store = db.store();
        let path = FileName::Table(store.tables.new_file_id()).path(&store.tables.folder);
        drop(fs.create(&path).expect("a new file"));
        // The edit failed, and another thread has replaced the manifest since.
        store.versions.add_uncertain(&store.tables.obsolete_files, [path.clone()]);
        store.unlink_last();
        assert!(fs.open(&path).is_err(), "no manifest names it");
    }
}
