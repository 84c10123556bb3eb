//! Fetches the files of a replica, on several threads.

use std::{
    io,
    panic::{self, AssertUnwindSafe},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{
            AtomicBool,
            Ordering::{Acquire, Release},
        },
    },
    time::Duration,
};

use xxhash_rust::xxh3::Xxh3;

use super::{aside::AsideFs, left::LeftFiles, marker::Marker, queue::Queue, stats::ReplicaStats};
use crate::{
    Error, Result,
    backup::{BackupSet, record::StoredFile, wrong_content},
    clock::{Clock as _, SystemClock},
    error::SYNC,
    file_name::FileName,
    fs::{ArrivingFiles, FileLock, Fs, existing},
    store::checkpoint::target::write_parts,
    sync::{Condvar, Mutex},
};

/// Minimum pause after a failed fetch. Repeated failures double it.
const PAUSE_MIN: Duration = Duration::from_millis(100);
/// Maximum pause after a failed fetch.
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// Fetches files into the directory of a replica.
#[derive(Debug)]
pub(super) struct Fetcher {
    pub(super) set: BackupSet,
    /// File system of logical files.
    pub(super) fs: Arc<dyn Fs>,
    pub(super) aside: Arc<AsideFs>,
    pub(super) folder: PathBuf,
    pub(super) arriving: Arc<ArrivingFiles>,
    pub(super) left: LeftFiles,
    queue: Mutex<Queue>,
    changed: Condvar,
    /// Held while files are renamed at the end of the replica or of a refresh, and while other
    /// files become pending.
    turn: Mutex<()>,
    is_ended: AtomicBool,
    _lock: Option<Arc<dyn FileLock>>,
}

impl Fetcher {
    /// Returns a fetcher of files of `set` into the directory of `aside`. It holds `lock` until it
    /// is dropped. Without `lock` it has nothing to fetch.
    pub(super) fn new(
        set: BackupSet,
        (fs, aside, folder): (Arc<dyn Fs>, Arc<AsideFs>, PathBuf),
        arriving: Arc<ArrivingFiles>,
        lock: Option<Arc<dyn FileLock>>,
    ) -> Self {
        let queue = Queue { is_complete: true, is_promoted: true, ..Queue::default() };
        let (queue, changed, turn) = (Mutex::new(queue), Condvar::new(), Mutex::new(()));
        let (is_ended, left) = (AtomicBool::new(false), LeftFiles::default());
        Self { set, fs, aside, folder, arriving, left, queue, changed, turn, is_ended, _lock: lock }
    }

    /// Begins to fetch the `pending` files of a backup. `state` has two flags: manifest and log
    /// have their final names, and the replica is complete.
    pub(super) fn begin(
        &self,
        marker: Marker,
        pending: Vec<StoredFile>,
        (is_promoted, is_complete): (bool, bool),
    ) {
        // Another thread may be completing the replica, which requires that no file is pending.
        let _turn = self.turn.lock();
        let mut queue = self.queue.lock();
        queue.pending = pending.into();
        let Queue { pending, in_flight, .. } = &mut *queue;
        pending.retain(|file| !in_flight.contains(file));
        // Not those in flight: one may have just arrived.
        self.arriving.add(pending.iter().map(|file| file.arriving(&self.folder)));
        // Damaged files are fetched again.
        queue.damaged.clear();
        queue.error = None;
        queue.needed = marker.names().map(str::to_owned).collect();
        (queue.marker, queue.is_promoted, queue.is_complete) = (marker, is_promoted, is_complete);
        drop(queue);
        self.changed.notify_all();
    }

    /// Returns the marker of the current backup.
    pub(super) fn marker(&self) -> Marker {
        self.queue.lock().marker.clone()
    }

    /// Returns how many of `wanted` threads to start, and counts them.
    pub(super) fn add_threads(&self, wanted: usize) -> usize {
        let mut queue = self.queue.lock();
        if queue.is_complete {
            return 0;
        }
        let added = wanted.saturating_sub(queue.threads);
        queue.threads += added;
        added
    }

    /// Counts a thread that was not started.
    pub(super) fn remove_thread(&self) {
        self.queue.lock().threads -= 1;
    }

    /// Fetches the next file. The last file completes the replica. Returns `false` if it was
    /// complete.
    ///
    /// # Errors
    ///
    /// As [`Replica::fetch_next`](super::Replica::fetch_next).
    pub(super) fn fetch_next(&self) -> Result<bool> {
        let mut queue = self.queue.lock();
        let next = loop {
            if queue.is_complete {
                return Ok(false);
            }
            if let Some(error) = queue.damage() {
                return Err(error);
            }
            if self.is_ended.load(Acquire) {
                return Err(Error::Closed);
            }
            match queue.pending.pop_front() {
                None if queue.in_flight.is_empty() => break None,
                // Other threads fetch the last files.
                None => self.changed.wait(&mut queue),
                next => break next,
            }
        };
        queue.in_flight.extend(next.clone());
        drop(queue);
        if let Some(file) = next {
            // A panic of an object store must not leave the file in flight.
            let fetched = panic::catch_unwind(AssertUnwindSafe(|| self.fetch(&file)));
            let fetched = fetched.unwrap_or_else(|_| {
                let cause = io::Error::other("the object store or the file system panicked");
                Err(Error::io("fetch", self.folder.join(&file.name), cause))
            });
            self.queue.lock().take(file, &fetched);
            self.note(fetched)?;
        }
        if self.queue.lock().is_drained() {
            let completed = self.complete();
            self.note(completed)?;
        }
        Ok(true)
    }

    /// Stores the last error of a fetch, and notifies waiting threads.
    fn note(&self, result: Result<()>) -> Result<()> {
        let mut queue = self.queue.lock();
        match &result {
            Err(error) => queue.error = Some(error.clone()),
            Ok(()) if queue.damaged.is_empty() => queue.error = None,
            Ok(()) => {}
        }
        drop(queue);
        self.changed.notify_all();
        result
    }

    /// Writes a file of the set under a temporary name, and renames it if its content is valid.
    fn fetch(&self, file: &StoredFile) -> Result<()> {
        let temporary = FileName::Temporary(&file.name).path(&self.folder);
        let unlinked = existing(self.fs.unlink(&temporary));
        unlinked.map_err(|error| Error::io("remove", &temporary, error))?;
        let written = self.write(file, &temporary);
        if written.is_err() {
            // If this fails, the next fetch removes the file.
            let _ = self.fs.unlink(&temporary);
        }
        written?;
        let path = self.folder.join(&file.name);
        let renamed = self.fs.rename(&temporary, &path);
        renamed.map_err(|error| Error::io("rename", &temporary, error))?;
        self.arriving.arrive(&path);
        Ok(())
    }

    fn write(&self, file: &StoredFile, temporary: &Path) -> Result<()> {
        let (object, source) = self.set.open_object(file)?;
        let mut hasher = Xxh3::new();
        write_parts(&*self.fs, temporary, &*object, &source, file.bytes, |part| {
            if self.is_ended.load(Acquire) {
                return Err(Error::Closed);
            }
            hasher.update(part);
            Ok(())
        })?;
        let (expected, found) = (file.digest[0], hasher.digest());
        if found == expected { Ok(()) } else { Err(wrong_content(&source, expected, found)) }
    }

    /// Renames manifest and log of a refresh to their final names, if necessary.
    ///
    /// # Errors
    ///
    /// [`Error::Io`]. The next call continues.
    pub(super) fn promote(&self) -> Result<()> {
        let _turn = self.turn.lock();
        self.promote_in_turn()
    }

    fn promote_in_turn(&self) -> Result<()> {
        let marker = {
            let queue = self.queue.lock();
            if queue.is_promoted {
                return Ok(());
            }
            queue.marker.clone()
        };
        promote(&*self.fs, &self.aside, &self.folder, &marker)?;
        self.queue.lock().is_promoted = true;
        Ok(())
    }

    /// Turns the directory into a store.
    fn complete(&self) -> Result<()> {
        let _turn = self.turn.lock();
        // Another thread may have completed the replica, or a refresh may have begun.
        if !self.queue.lock().is_drained() {
            return Ok(());
        }
        self.promote_in_turn()?;
        let sync = || {
            let synced = self.fs.sync_dir(&self.folder);
            synced.map_err(|error| Error::io(SYNC, &self.folder, error))
        };
        sync()?;
        let renamed = self.aside.complete();
        renamed
            .map_err(|error| Error::io("rename to", FileName::Current.path(&self.folder), error))?;
        sync()?;
        self.queue.lock().is_complete = true;
        Ok(())
    }

    /// Fetches all files. Retries after errors other than damage.
    pub(super) fn run(&self) {
        let mut pause = PAUSE_MIN;
        loop {
            let fetched = self.fetch_next();
            let mut queue = self.queue.lock();
            let is_done = |queue: &Queue| {
                queue.is_complete || queue.damage().is_some() || self.is_ended.load(Acquire)
            };
            if fetched.is_ok() {
                pause = PAUSE_MIN;
            } else {
                // Each notification of another thread ends the wait.
                let clock = SystemClock::new();
                while !is_done(&queue) {
                    let left = pause.saturating_sub(clock.now());
                    if left.is_zero() {
                        break;
                    }
                    self.changed.wait_for(&mut queue, left);
                }
                pause = (2 * pause).min(PAUSE_MAX);
            }
            if is_done(&queue) {
                queue.threads -= 1;
                return;
            }
        }
    }

    /// Ends [`run`](Self::run) and aborts fetches in flight.
    pub(super) fn end(&self) {
        self.is_ended.store(true, Release);
        // A thread between its check and its wait holds the lock.
        drop(self.queue.lock());
        self.changed.notify_all();
    }

    /// Waits until the replica is complete, for at most `timeout`.
    ///
    /// # Errors
    ///
    /// As [`Replica::wait`](super::Replica::wait).
    pub(super) fn wait(&self, timeout: Duration) -> Result<bool> {
        let clock = SystemClock::new();
        let mut queue = self.queue.lock();
        loop {
            if queue.is_complete {
                return Ok(true);
            }
            if let Some(error) = queue.damage() {
                return Err(error);
            }
            let left = timeout.saturating_sub(clock.now());
            if left.is_zero() {
                return Ok(false);
            }
            self.changed.wait_for(&mut queue, left);
        }
    }

    /// Removes files that neither the replica nor a reader uses. A failure is harmless: the next
    /// call retries.
    pub(super) fn sweep(&self) {
        let _turn = self.turn.lock();
        let (needed, in_flight) = {
            let queue = self.queue.lock();
            let in_flight: Vec<_> = queue.in_flight.iter().map(|it| it.name.clone()).collect();
            (queue.needed.clone(), in_flight)
        };
        self.left.drop_unread();
        for name in self.fs.list(&self.folder).unwrap_or_default() {
            let is_file = matches!(
                FileName::parse(&name),
                Some(FileName::Table(_) | FileName::Filter(_) | FileName::Blobs(_))
            );
            let path = self.folder.join(&name);
            let is_used =
                needed.contains(&name) || in_flight.contains(&name) || self.left.is_read(&path);
            if is_file && !is_used && self.fs.unlink(&path).is_ok() {
                self.arriving.forget(&path);
            }
        }
    }

    pub(super) fn stats(&self) -> ReplicaStats {
        let queue = self.queue.lock();
        let left = || queue.left();
        ReplicaStats {
            backup: (queue.marker.backup > 0).then_some(queue.marker.backup),
            is_complete: queue.is_complete,
            files_pending: left().count() as u64,
            bytes_pending: left().map(|file| file.bytes).sum(),
            files_damaged: queue.damaged.len() as u64,
            files_fetched: queue.files_fetched,
            bytes_fetched: queue.bytes_fetched,
            range_reads: self.arriving.reads(),
            range_bytes: self.arriving.bytes_read(),
            error: queue.error.clone(),
        }
    }
}

/// Renames manifest and log of a refresh to their final names, if necessary. Removes their
/// predecessors and those of earlier attempts.
///
/// # Errors
///
/// [`Error::Io`]. The next call continues.
pub(super) fn promote(fs: &dyn Fs, aside: &AsideFs, folder: &Path, marker: &Marker) -> Result<()> {
    let rename_error = |error| Error::io("rename files in", folder, error);
    if !aside.is_staged(marker.generation).map_err(rename_error)? {
        return Ok(());
    }
    let names = fs.list(folder).map_err(|error| Error::io("list", folder, error))?;
    let own: Vec<_> = marker.own.iter().map(|file| &*file.name).collect();
    let unneeded: Vec<_> = names
        .iter()
        .map(String::as_str)
        .filter(|name| {
            let parsed = FileName::parse(name);
            let is_former = matches!(parsed, Some(FileName::Log(_) | FileName::Manifest(_)));
            // Files of a failed attempt: with them, the directory does not open as a store.
            let staged = FileName::parse_staged(name);
            let is_older = staged.is_some_and(|(_, generation)| generation < marker.generation);
            is_former && !own.contains(name) || is_older
        })
        .collect();
    aside.promote(folder, marker.generation, &own, &unneeded).map_err(rename_error)
}
