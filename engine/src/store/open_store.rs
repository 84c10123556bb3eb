//! Opens and closes a store.

use std::{
    mem,
    path::Path,
    sync::{Arc, Weak},
    time::Duration,
};

use crate::{
    Durability, Error, Options, Result,
    clock::{Clock, SystemClock},
    commit::{DurableWait, SharedLog, Validate, Write},
    encryption::StoredFs,
    fs::{ArrivingFs, FileLock, Fs, ReadOnlyFs},
    gate::{Access, Gate},
    handle_counts::HandleCounts,
    manifest::VersionEdit,
    memory::Freer,
    open_files::{FrugalFs, OpenFiles},
    planted::PlantedBug,
    store::Store,
    store::folder::{
        Checked, check_new, check_no_refresh, check_no_repair, check_read_mode, check_store,
        create_dir, lock_to_read, lock_to_write, refused,
    },
    store::follower::{self, Follower, tail::Tail},
    store::logged_values::ValueFiles,
    store::read_only,
    store::recovery,
    store::scheduler::Scheduler,
    store::stream_slots::StreamSlots,
    store::take_over::{Beginning, take_over},
    store::threads::Threads,
    store::versions::Versions,
    store::writer::{Writer, stall::OnStall},
    sync::{
        Condvar, Mutex,
        atomic::{
            AtomicBool,
            Ordering::{Acquire, Release},
        },
    },
};

/// A store and its threads, which all handles share. The drop of the last handle closes it.
#[derive(Debug)]
pub(crate) struct OpenStore {
    store: Arc<Store>,
    handles: HandleCounts,
    /// `None` once the store is closed, or its threads are being ended.
    threads: Mutex<Option<Threads>>,
    /// The thread for syncs was started, or is not needed.
    has_syncer: AtomicBool,
    /// Result of the close; `None` until the store is closed and its lock is released.
    ended: Mutex<Option<Result<()>>>,
    has_ended: Condvar,
}

impl OpenStore {
    /// Opens the store in `folder`, or creates it unless it is read-only.
    ///
    /// # Errors
    ///
    /// As [`Options::open`].
    pub(crate) fn open(folder: &Path, mut options: Options) -> Result<Self> {
        options.read_only |= options.follow;
        let files_max = options.open_files_max;
        let open_files = match &options.memory_pool {
            Some(pool) => OpenFiles::sharing(files_max, pool.sharers()),
            None => Arc::new(OpenFiles::new(files_max)),
        };
        let target = FrugalFs::new(Arc::clone(&options.fs), Arc::clone(&open_files));
        let target = options.stored_fs(Arc::new(target));
        if options.read_only {
            options.fs = Arc::new(ReadOnlyFs::new(options.fs));
        }
        let frugal = Arc::new(FrugalFs::new(Arc::clone(&options.fs), Arc::clone(&open_files)));
        options.fs = options.stored_fs(Arc::clone(&frugal) as Arc<dyn Fs>).logical();
        if let Some(arriving) = &options.arriving {
            let arriving = Arc::new(ArrivingFs::new(options.fs, Arc::clone(arriving)));
            // Files elsewhere may need descriptors, too.
            options.fs = Arc::new(FrugalFs::new(arriving, Arc::clone(&open_files)));
        }
        let absolute = options.fs.absolute(folder);
        let folder = &*absolute.map_err(|error| Error::io("resolve", folder, error))?;
        if options.create_new {
            check_new(&*options.fs, folder)?;
        }
        target.check(folder).map_err(|(path, error)| Error::io("open", path, error))?;
        if (options.create_if_missing || options.create_new) && !options.read_only {
            create_dir(&*options.fs, folder)?;
        } else {
            check_store(&*options.fs, folder)?;
        }
        let lock = match options.read_only {
            true if options.follow => None,
            true => lock_to_read(&*options.fs, folder)?,
            false => Some(lock_to_write(&*options.fs, &*options.clock, folder)?),
        };
        // A repair holds the lock until it ends.
        if !options.is_repair {
            check_no_repair(&*options.fs, folder)?;
        }
        if options.create_new {
            // Another process may have created one before this one got the lock.
            check_new(&*options.fs, folder)?;
        }
        // A replica ignores files that it could not remove.
        if options.arriving.is_none() {
            check_no_refresh(&*options.fs, folder)?;
        }
        if !options.read_only {
            let kept = frugal.keep_folder(folder);
            kept.map_err(|error| refused("open", folder, folder, error))?;
        }
        let is_new = check_read_mode(&options, folder)? == Checked::Partly;
        let start = options.clock.now();
        let begin = || {
            let read = || recovery::read(&options, folder);
            let recovered =
                if options.follow { follower::read_settled(&options, read) } else { read() }?;
            let log = options.clock.now().saturating_sub(start);
            let open_files = Arc::clone(&open_files);
            let tail = options
                .is_refreshed()
                .then(|| Tail::of(&options, folder, &recovered))
                .transpose()?;
            let beginning = match options.read_only {
                true => read_only::take_in(&options, folder, recovered, open_files),
                false => take_over(&options, folder, recovered, open_files),
            };
            Ok((beginning?, tail, log))
        };
        let begun = if options.follow { follower::retry(&options, begin) } else { begin() };
        let (beginning, tail, log) = begun.map_err(Error::of_opening)?;
        if is_new {
            // Now `CURRENT` can be read.
            check_read_mode(&options, folder)?;
        }
        let mut store = new_store(options, beginning, lock, target);
        store.follower = tail.map(Follower::new);
        store.opening.log = log;
        store.opening.total = store.options.clock.now().saturating_sub(start);
        let store = Arc::new(store);
        // Before the workers: if one cannot be started, the drop ends the others.
        let threads = Mutex::new(Some(Threads::default()));
        let (handles, has_syncer, ended, has_ended) = Default::default();
        let open = Self { store, handles, threads, has_syncer, ended, has_ended };
        open.threads.lock().get_or_insert_default().start(&open.store)?;
        if !open.store.options.read_only {
            open.store.flush_excess();
            // The next flush tries again.
            let _ = open.store.drop_old_changes();
        }
        Ok(open)
    }

    /// Commits `write`, which is visible at return. Returns the wait for its `durability`; `None`
    /// if `condition` does not hold.
    ///
    /// # Errors
    ///
    /// As [`Store::commit_or`], and [`Error::Io`] if the thread for syncs cannot be started.
    pub(crate) fn commit_async(
        &self,
        on_stall: OnStall,
        write: &mut Write,
        durability: Durability,
        condition: &mut impl Validate,
    ) -> Result<Option<Arc<DurableWait>>> {
        let store = self.accept()?;
        if durability > Durability::Memory {
            self.start_syncer()?;
        }
        let committed = store.commit_or(on_stall, write, Durability::Memory, condition)?;
        Ok(committed.map(|last| store.writer.await_durable(last, durability)))
    }

    /// Starts the thread for syncs, unless it runs or the store has no threads.
    fn start_syncer(&self) -> Result<()> {
        if !self.has_syncer.load(Acquire) {
            let mut threads = self.threads.lock();
            threads.as_mut().ok_or(Error::Closed)?.start_syncer(&self.store)?;
            self.has_syncer.store(true, Release);
        }
        Ok(())
    }

    pub(crate) fn handles(&self) -> &HandleCounts {
        &self.handles
    }

    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    /// As [`accept`](Self::accept), for a change stream, which does not keep the store open.
    pub(crate) fn accept_shared(&self) -> Result<&Arc<Store>> {
        self.store.check_open().map(|()| &self.store)
    }

    /// Returns the store for a future, which keeps neither the store open nor its memory.
    pub(crate) fn downgrade(&self) -> Weak<Store> {
        Arc::downgrade(&self.store)
    }

    /// Returns the store for a call on a handle.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`], [`Error::ForkedChild`].
    #[inline]
    pub(crate) fn accept(&self) -> Result<&Store> {
        self.store.check_open().map(|()| &*self.store)
    }
}

impl OpenStore {
    /// Refuses all calls, waits for work in flight for at most `timeout`, and closes the store.
    ///
    /// # Errors
    ///
    /// As [`Db::shutdown`](crate::Db::shutdown).
    pub(crate) fn shutdown(&self, timeout: Duration) -> Result<()> {
        let store = &self.store;
        let clock = SystemClock::new();
        let left = || timeout.saturating_sub(clock.now());
        let still_busy = || Error::StillBusy { path: store.tables.folder.clone() };
        match store.gate.access() {
            // Another thread may be about to release the lock.
            Access::Closed => {
                return self.wait_for_end(left()).map_or_else(|| Err(still_busy()), |_| Ok(()));
            }
            Access::Forked => store.check_open()?,
            Access::Open | Access::Closing => {}
        }
        store.gate.begin_close();
        store.shut_down();
        // After the gate: no write is placed any more.
        let last_placed = store.writer.placement().last_placed();
        let is_idle = store.writer.publish().wait_visible_for(last_placed, left())
            && store.scheduler.wait_for_claimed(left())
            && store.tables.file_calls.wait(left());
        if !is_idle {
            return Err(still_busy());
        }
        self.end()?;
        // Another thread may be closing the store.
        self.wait_for_end(left()).unwrap_or_else(|| Err(still_busy()))
    }

    /// Waits until the store is closed and its lock is released, for at most `timeout`. Returns the
    /// result of the close; `None` if it is not done.
    fn wait_for_end(&self, timeout: Duration) -> Option<Result<()>> {
        let clock = SystemClock::new();
        let mut ended = self.ended.lock();
        while ended.is_none() {
            let left = timeout.checked_sub(clock.now()).filter(|left| !left.is_zero())?;
            self.has_ended.wait_for(&mut ended, left);
        }
        ended.clone()
    }

    /// Leaks everything, in a forked child. Freeing it would take locks of threads that the child
    /// does not have.
    fn abandon(&mut self) {
        mem::forget(Arc::clone(&self.store));
        mem::forget(mem::replace(&mut self.threads, Mutex::new(None)));
    }

    /// Ends the threads and makes all writes durable, once. Does nothing if another thread does so.
    ///
    /// # Errors
    ///
    /// As [`Db::close`](crate::Db::close). The store is closed in any case.
    pub(crate) fn end(&self) -> Result<()> {
        // Not under the lock: a listener on a worker may call this.
        let threads = self.threads.lock().take();
        let Some(threads) = threads else { return Ok(()) };
        let store = &self.store;
        store.gate.begin_close();
        store.shut_down();
        let stats_writer = threads.end();
        store.scheduler.wait_for_inline_work();
        let closed = if store.options.read_only {
            Ok(())
        } else {
            store.versions.check_writable().and_then(|()| store.write_end())
        };
        if let Some(writer) = stats_writer {
            drop(writer);
            store.write_stats_file();
        }
        store.writer.end_waits(&closed);
        store.versions.close(closed.is_ok() && !store.options.read_only);
        store.gate.close();
        store.scheduler.unneeded().end();
        store.leave_pool();
        store.release_lock();
        *self.ended.lock() = Some(closed.clone());
        self.has_ended.notify_all();
        closed
    }
}

impl Drop for OpenStore {
    fn drop(&mut self) {
        if self.store.is_forked() {
            self.store.release_lock();
            self.abandon();
            return;
        }
        // No caller gets the error, and each write is as durable as it was acknowledged.
        let _ = self.end();
    }
}

impl Store {
    /// Ends background work: compactions and flushes in flight are cancelled.
    fn shut_down(&self) {
        // First: a worker would claim a cancelled job again.
        self.scheduler.shut_down();
        self.tables.close();
        self.tables.cache_room.shut_down();
        self.values.stop();
        // After the gate: change streams end, and waits for room.
        self.writer.publish().notify();
        self.scheduler.room_waits().wake();
    }

    /// Releases the memory of a closed store to its pool. The last handle frees the memtables.
    fn leave_pool(&self) {
        if self.options.memory_pool.is_some() {
            // A cache of its own is dropped with the store.
            let trees: Vec<_> = self.versions.trees().values().cloned().collect();
            let versions: Vec<_> =
                trees.iter().map(|tree| Arc::clone(&tree.kept_view().version)).collect();
            let tables = versions.iter().flat_map(|version| version.tables());
            self.tables.cache.remove_blocks_of(tables.map(|(_, _, live)| &*live.table));
        }
        self.tables.cache_room.leave();
    }

    /// Writes the end of the log and the last statistics, and unlinks obsolete files.
    fn write_end(&self) -> Result<()> {
        let closed = self.close().and_then(|()| self.versions.check_writable());
        self.values.close();
        self.unlink_last();
        closed
    }

    /// Makes all writes durable. Notes the end of the log in the manifest: if it is missing at the
    /// next opening, that is damage, not a crash. Drops a log that no memtable needs.
    fn close(&self) -> Result<()> {
        let log_mark = if self.drop_whole_log()? {
            None
        } else {
            let is_ended = self.writer.log().is_ended();
            let bugs = [PlantedBug::AdoptSegmentBelowFloor, PlantedBug::LeaveEndedLogUnvouched];
            let leaves = is_ended && bugs.into_iter().any(|bug| self.options.has_bug(bug));
            // The manifest already vouches for a continued log without new records.
            let known = self.versions.read_manifest(|manifest| manifest.state().log_mark);
            self.writer.log().close(self)?.filter(|&mark| !leaves && mark > known)
        };
        // `CLOSED` is valid only for a manifest without a truncated edit.
        let has_times = self.versions.has_unrecorded_times();
        if log_mark.is_some() || has_times || self.is_clock_ahead() {
            // All that was placed is durable.
            let last_sequence = has_times.then(|| self.writer.placement().last_placed());
            let edit = VersionEdit { log_mark, last_sequence, ..VersionEdit::default() };
            self.edit_manifest(|_| Some(edit), |_| ())?;
        }
        self.renew_manifest()
    }

    /// Returns whether values that have expired would be visible again, if the wall clock was set
    /// back before the next opening.
    fn is_clock_ahead(&self) -> bool {
        let stored_ms = self.versions.read_manifest(|manifest| manifest.state().store_clock_ms);
        self.versions.clock().now_ms() > stored_ms
            && self.versions.trees().values().any(|tree| tree.kept_view().has_expiry())
    }
}

fn new_store(
    options: Options,
    beginning: Beginning,
    lock: Option<Box<dyn FileLock>>,
    target: StoredFs,
) -> Store {
    let Beginning { manifest, tables, trees, last_sequence, .. } = beginning;
    let Beginning { continued, value_files, filters, opening, .. } = beginning;
    let opened_read_only = || Error::OpenedReadOnly { path: tables.folder.clone() };
    let cause = options.read_only.then(opened_read_only);
    let log = SharedLog::continued(last_sequence, &tables.folder, &continued, &value_files);
    let has_workers = options.worker_threads > 0 && !options.read_only;
    let scheduler = Scheduler::new(has_workers, tables.next_file_id());
    let has_history = trees.values().any(|tree| tree.history_length().is_some());
    let stands_still = options.read_only && !options.is_refreshed();
    let versions = Versions::new(manifest, trees, Arc::clone(&options.clock), cause, stands_still);
    if options.follow {
        versions.note_shown(0);
    } else if has_history {
        versions.begin_times(options.clock.now(), last_sequence);
    }
    let is_retaining = versions.read_manifest(|manifest| manifest.state().retained.is_some());
    let values = ValueFiles::new(is_retaining || options.read_only || target.is_encrypted());
    tables.memory.set_freer(Arc::clone(scheduler.unneeded()) as Arc<dyn Freer>);
    Store {
        writer: Writer::new(last_sequence, log),
        versions,
        scheduler,
        filters,
        gate: Gate::new(),
        hash_seed: tables.hash_seed,
        values,
        streams: StreamSlots::default(),
        ingest_threads: Arc::default(),
        memory_budget: Mutex::new(options.memory),
        options,
        tables,
        target,
        opening,
        follower: None,
        lock: Mutex::new(lock),
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;
    use crate::fs::MemoryFs;

    #[test]
    #[cfg(all(target_os = "linux", not(miri)))]
    fn a_forked_child_does_not_wait_for_a_lock_that_was_held_at_the_fork() {
        let options = Options::new().fs(Arc::new(MemoryFs::new())).worker_threads(0);
        let db = options.open("db").expect("a new store");
        let store = db.open_store().store();
        let lock = store.lock.lock();
        store.gate.set_forked(true);
        assert!(matches!(db.get("key"), Err(Error::ForkedChild { .. })));
        store.gate.set_forked(false);
        assert!(lock.is_some(), "it was not released");
        drop(lock);
        db.get("key").expect("the store is open");
    }

    /// The thread that would resolve it exists only in the parent.
    #[test]
    #[cfg(all(target_os = "linux", not(miri)))]
    fn an_asynchronous_commit_fails_in_a_forked_child() {
        let options = Options::new().fs(Arc::new(MemoryFs::new())).worker_threads(0);
        let db = options.open("db").expect("a new store");
        let mut batch = db.batch();
        batch.insert(&db, "key", "value").expect("it is short");
        let commit = batch.commit_async(Durability::Disk).expect("nothing fails");
        let store = db.open_store().store();
        store.gate.set_forked(true);
        let failed = commit.wait();
        store.gate.set_forked(false);
        assert!(matches!(failed, Err(Error::ForkedChild { .. })), "{failed:?}");
    }

    #[test]
    fn a_snapshot_of_a_closed_store_is_not_listed() {
        let options = Options::new().fs(Arc::new(MemoryFs::new())).worker_threads(0);
        let db = options.open("db").expect("a new store");
        let listed = db.snapshot();
        db.shutdown(Duration::from_secs(60)).expect("nothing is in flight");
        let late = db.snapshot();
        assert!(matches!(late.get("key"), Err(Error::Closed)));
        drop((late, listed));
    }

    #[test]
    fn a_shutdown_waits_for_the_close_by_another_thread() {
        let options = Options::new().fs(Arc::new(MemoryFs::new())).worker_threads(0);
        let db = options.open("db").expect("a new store");
        let open = db.open_store();
        // As a thread within `end`.
        let threads = open.threads.lock().take();
        let refused = open.shutdown(Duration::from_millis(20));
        assert!(matches!(refused, Err(Error::StillBusy { .. })), "{refused:?}");
        *open.threads.lock() = threads;
        open.shutdown(Duration::from_secs(60)).expect("no thread closes it");
        open.shutdown(Duration::ZERO).expect("it is closed");
    }
}
