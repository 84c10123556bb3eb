//! Fetches the files of a replica, one after another.

use std::{
    collections::VecDeque,
    io,
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

use super::{aside::AsideFs, stats::ReplicaStats};
use crate::{
    Error, Result,
    backup::{BackupSet, record::StoredFile, wrong_content},
    clock::{Clock as _, SystemClock},
    error::SYNC,
    file_name::{FileName, REPLICA},
    fs::{ArrivingFiles, FileLock, Fs},
    store::checkpoint::target::write_parts,
    sync::{Condvar, Mutex},
};

/// Pause after the first of several failed fetches.
const PAUSE_MIN: Duration = Duration::from_millis(100);
/// Longest pause after a failed fetch.
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// Fetches files into the directory of a replica.
#[derive(Debug)]
pub(super) struct Fetcher {
    set: BackupSet,
    /// File system of logical files.
    fs: Arc<dyn Fs>,
    aside: Arc<AsideFs>,
    pub(super) folder: PathBuf,
    arriving: Arc<ArrivingFiles>,
    queue: Mutex<Queue>,
    changed: Condvar,
    /// Held by the thread that fetches.
    turn: Mutex<()>,
    is_ended: AtomicBool,
    _lock: Option<Arc<dyn FileLock>>,
}

/// Files left to fetch.
#[derive(Debug, Default)]
struct Queue {
    pending: VecDeque<StoredFile>,
    /// Not fetched again.
    damaged: Vec<StoredFile>,
    is_complete: bool,
    files_fetched: u64,
    bytes_fetched: u64,
    error: Option<Error>,
}

impl Queue {
    /// Returns the error if no files are left but damaged ones.
    fn damage(&self) -> Option<Error> {
        self.error.clone().filter(|_| self.pending.is_empty() && !self.damaged.is_empty())
    }

    /// Returns `true` if all files have arrived, but the replica is not complete.
    fn is_drained(&self) -> bool {
        self.pending.is_empty() && self.damaged.is_empty() && !self.is_complete
    }

    /// Takes the next file off the queue: it was fetched with this result.
    fn take(&mut self, fetched: &Result<()>) {
        let Some(file) = self.pending.pop_front() else { return };
        match fetched {
            Ok(()) => {
                self.files_fetched += 1;
                self.bytes_fetched += file.bytes;
            }
            Err(Error::Corrupt { .. }) => self.damaged.push(file),
            Err(_) => self.pending.push_back(file),
        }
    }
}

impl Fetcher {
    /// A fetcher of files of `set` into the directory of `aside`; without `lock`, which is held as
    /// long as the fetcher exists, the replica is complete.
    pub(super) fn new(
        set: BackupSet,
        (fs, aside, folder): (Arc<dyn Fs>, Arc<AsideFs>, PathBuf),
        arriving: Arc<ArrivingFiles>,
        pending: Vec<StoredFile>,
        lock: Option<Arc<dyn FileLock>>,
    ) -> Self {
        let is_complete = lock.is_none();
        let queue = Queue { pending: pending.into(), is_complete, ..Queue::default() };
        let (queue, changed, turn) = (Mutex::new(queue), Condvar::new(), Mutex::new(()));
        let is_ended = AtomicBool::new(false);
        Self { set, fs, aside, folder, arriving, queue, changed, turn, is_ended, _lock: lock }
    }

    /// Fetches the next file; the last one completes the replica. Returns `false` if it was
    /// complete.
    ///
    /// # Errors
    ///
    /// As [`Replica::fetch_next`](super::Replica::fetch_next).
    pub(super) fn fetch_next(&self) -> Result<bool> {
        let _turn = self.turn.lock();
        let next = {
            let queue = self.queue.lock();
            if queue.is_complete {
                return Ok(false);
            }
            if let Some(error) = queue.damage() {
                return Err(error);
            }
            queue.pending.front().cloned()
        };
        if let Some(file) = next {
            let fetched = self.fetch(&file);
            self.queue.lock().take(&fetched);
            self.note(fetched)?;
        }
        if self.queue.lock().is_drained() {
            let completed = self.complete();
            self.queue.lock().is_complete = completed.is_ok();
            self.note(completed)?;
        }
        Ok(true)
    }

    /// Keeps the last error of a fetch, and notifies the threads that wait.
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

    /// Writes a file of the set under a temporary name, and renames it if its content is right.
    fn fetch(&self, file: &StoredFile) -> Result<()> {
        let temporary = FileName::Temporary(&file.name).path(&self.folder);
        let unlinked = self.unlink(&temporary);
        unlinked.map_err(|error| Error::io("remove", &temporary, error))?;
        let written = self.write(file, &temporary);
        if written.is_err() {
            // What is left is removed by the next fetch.
            let _ = self.unlink(&temporary);
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

    fn unlink(&self, path: &Path) -> io::Result<()> {
        match self.fs.unlink(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            unlinked => unlinked,
        }
    }

    /// Makes the directory a store.
    fn complete(&self) -> Result<()> {
        let sync = || {
            let synced = self.fs.sync_dir(&self.folder);
            synced.map_err(|error| Error::io(SYNC, &self.folder, error))
        };
        sync()?;
        let renamed = self.aside.complete();
        renamed
            .map_err(|error| Error::io("rename to", FileName::Current.path(&self.folder), error))?;
        sync()?;
        let marker = self.folder.join(REPLICA);
        self.unlink(&marker).map_err(|error| Error::io("remove", &marker, error))
    }

    /// Fetches all files, again after errors other than damage.
    pub(super) fn run(&self) {
        let mut pause = PAUSE_MIN;
        loop {
            match self.fetch_next() {
                Ok(true) => pause = PAUSE_MIN,
                Ok(false) => return,
                Err(_) => {
                    let mut queue = self.queue.lock();
                    if queue.damage().is_some() || self.is_ended.load(Acquire) {
                        return;
                    }
                    self.changed.wait_for(&mut queue, pause);
                    pause = (2 * pause).min(PAUSE_MAX);
                }
            }
            if self.is_ended.load(Acquire) {
                return;
            }
        }
    }

    /// Ends [`run`](Self::run) and fetches in flight.
    pub(super) fn end(&self) {
        self.is_ended.store(true, Release);
        // A thread between its check and its wait has the lock.
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

    pub(super) fn stats(&self) -> ReplicaStats {
        let queue = self.queue.lock();
        let left = || queue.pending.iter().chain(&queue.damaged);
        ReplicaStats {
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
