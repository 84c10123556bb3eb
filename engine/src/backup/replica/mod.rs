//! Replicas: stores that serve reads of a backup before its tables have been fetched.
//!
//! | file        | content                                                     |
//! |-------------|-------------------------------------------------------------|
//! | `mod`       | the API                                                     |
//! | [`directory`] | opens a replica, new, interrupted or complete             |
//! | [`fetcher`] | fetches the files, and completes the replica                |
//! | [`queue`]   | the files that are left to fetch                            |
//! | [`refresh`] | moves the replica to a newer backup                         |
//! | [`left`]    | files of earlier backups that readers still use             |
//! | [`marker`]  | bytes of the file `REPLICA`, the list of the files          |
//! | [`aside`]   | another name for `CURRENT` until the replica is complete    |
//! | [`stats`]   | progress                                                    |
//!
//! 1. The file `REPLICA` is created, empty. The log is restored.
//! 2. Manifest and `CURRENT` are written, the latter as `CURRENT.replica`. `REPLICA` gets its
//!    content.
//! 3. The store is opened read-only. It reads missing files from the set, by ranges.
//! 4. Each file is fetched, compared with its checksum, synced, and renamed.
//! 5. The directory is synced, and `CURRENT` gets its name. `REPLICA` stays for refreshes.
//!
//! After a crash before the end of step 2, the next open starts from step 1. Later it continues.

mod aside;
mod directory;
mod fetcher;
mod left;
mod marker;
mod queue;
mod refresh;
mod stats;

use std::{fmt, mem, path::Path, sync::Arc, time::Duration};

pub use self::stats::ReplicaStats;
use self::{aside::AsideFs, directory::ReplicaDirectory, fetcher::Fetcher, refresh::Refresher};
use super::{BackupSet, RestoreOptions};
#[cfg(doc)]
use crate::ReadMode;
use crate::{
    Db, Error, Options, Result,
    fs::Fs,
    sync::{
        Mutex,
        thread::{self, JoinHandle},
    },
};

/// A read-only store whose files are fetched from a [backup set](BackupSet): see
/// [`BackupSet::open_replica`].
///
/// Drop stops the fetch threads, after their requests in flight. If handles of the
/// [store](Self::db) remain, their reads still fetch from the set.
pub struct Replica {
    db: Db,
    fetcher: Arc<Fetcher>,
    /// State of refreshes; `None` for another store.
    refresher: Option<Refresher>,
    /// Number of threads that fetch files.
    fetch_threads: usize,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl fmt::Debug for Replica {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replica").field("path", &self.fetcher.folder).finish_non_exhaustive()
    }
}

impl Replica {
    fn new(db: Db, fetcher: Fetcher, refresher: Option<Refresher>, fetch_threads: usize) -> Self {
        let (fetcher, threads) = (Arc::new(fetcher), Mutex::default());
        Self { db, fetcher, refresher, fetch_threads, threads }
    }

    /// Starts missing fetch threads if files are missing.
    fn start_threads(&self) -> Result<()> {
        let mut threads = self.threads.lock();
        let added = self.fetcher.add_threads(self.fetch_threads);
        if added == self.fetch_threads {
            // All threads of an earlier backup have ended.
            threads.drain(..).for_each(|thread| drop(thread.join()));
        }
        for started in 0..added {
            let fetcher = Arc::clone(&self.fetcher);
            let thread = thread::Builder::new().name("sieve-replica".to_owned());
            match thread.spawn(move || fetcher.run()) {
                Ok(thread) => threads.push(thread),
                Err(error) => {
                    (started..added).for_each(|_| self.fetcher.remove_thread());
                    return Err(Error::io("start a thread for", &self.fetcher.folder, error));
                }
            }
        }
        Ok(())
    }

    /// Returns the store, which is read-only.
    #[must_use]
    pub fn db(&self) -> &Db {
        &self.db
    }

    /// Returns the progress of the fetches. In a forked child only [`ReplicaStats::error`] is set,
    /// to [`Error::ForkedChild`].
    #[must_use]
    pub fn stats(&self) -> ReplicaStats {
        match self.check_not_forked() {
            Ok(()) => self.fetcher.stats(),
            Err(error) => ReplicaStats { error: Some(error), ..ReplicaStats::default() },
        }
    }

    /// Refuses a forked child. The parent fetches the files, and one of its threads may have held
    /// the locks at the fork.
    fn check_not_forked(&self) -> Result<()> {
        let store = self.db.open_store().store();
        if store.is_forked() { store.check_open() } else { Ok(()) }
    }

    /// Waits until all files have been fetched, for at most `timeout`. Returns `false` at the
    /// timeout, even if requests fail: see [`ReplicaStats::error`]. Without fetch threads, it only
    /// waits for [`fetch_next`](Self::fetch_next) calls of other threads.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] if files are damaged or missing in the set, after all others have been
    /// fetched. [`Error::NotEncrypted`] and [`Error::WrongKey`] likewise. [`Error::ForkedChild`].
    pub fn wait(&self, timeout: Duration) -> Result<bool> {
        self.check_not_forked()?;
        self.fetcher.wait(timeout)
    }

    /// Fetches the next file on the calling thread. Returns `false` if the replica was complete. If
    /// other threads are fetching the last files, it waits for one of them.
    ///
    /// # Errors
    ///
    /// The next call fetches another file. [`Error::Io`], [`Error::NoKey`]: the file is fetched
    /// again after the others. [`Error::Corrupt`]: the file is damaged or missing in the set.
    /// [`Error::NotEncrypted`], [`Error::WrongKey`], [`Error::ForkedChild`].
    pub fn fetch_next(&self) -> Result<bool> {
        self.check_not_forked()?;
        self.fetcher.fetch_next()
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        if self.db.open_store().store().is_forked() {
            // The threads and the holders of locks exist only in the parent.
            mem::forget(mem::take(&mut self.threads));
            return;
        }
        self.fetcher.end();
        for thread in self.threads.lock().drain(..) {
            // A panic ends only the fetching.
            let _ = thread.join();
        }
    }
}

impl BackupSet {
    /// Opens the backup that `from` selects as a read-only store in the directory `path`, before
    /// its tables have been fetched. [Threads](RestoreOptions::fetch_threads) fetch the tables. A
    /// complete replica is a store as [`restore_with`](Self::restore_with) writes it, and does not
    /// need the set.
    ///
    /// The call fetches the log and, of each table, index, filters and properties. So lookups that
    /// filters in memory reject need no request. Other reads fetch single blocks into the block
    /// cache, until the table has been fetched. Such reads block their thread, like all calls of a
    /// set in an object store.
    ///
    /// After a crash, the same call continues with the recorded backup: `from` has an effect only
    /// if the directory is missing or empty. Until all files have been fetched, [`Options::open`]
    /// fails with [`Error::IncompleteReplica`]. The call opens a complete replica, or any other
    /// store, read-only without a request. [`Replica::refresh`] moves a replica to a newer backup,
    /// unless its directory was opened for writing as a store.
    ///
    /// Keep the backup until the replica is complete. The directory is locked as long as the
    /// replica or a handle of its store exists. Values with a time to live expire as in the store.
    /// Options that only apply to writing have no effect, and [`ReadMode::Map`] is replaced by the
    /// default read mode. For an encrypted set, the keys of the set are the default. With
    /// [`worker_threads`](Options::worker_threads)`(0)` no fetch thread is started: call
    /// [`fetch_next`](Replica::fetch_next). Each thread uses up to 17 MiB of memory.
    ///
    /// # Errors
    ///
    /// * Those of [`restore_with`](Self::restore_with), for a new replica.
    /// * [`Error::DirectoryNotEmpty`]: the directory has an incomplete replica of another backup
    ///   than [`RestoreOptions::backup`], or other files. A complete replica is opened in any case.
    /// * [`Error::Corrupt`]: the index, filters or footer of a table are damaged, or a file is
    ///   missing.
    /// * [`Error::InvalidOption`]: the number of threads is out of range.
    /// * [`Error::Locked`]; those of [`Options::open`].
    pub fn open_replica(
        &self,
        from: &RestoreOptions,
        options: &Options,
        path: impl AsRef<Path>,
    ) -> Result<Replica> {
        let path = path.as_ref();
        let absolute = options.fs.absolute(path);
        let folder = absolute.map_err(|error| Error::io("resolve", path, error))?;
        let aside = Arc::new(AsideFs::new(Arc::clone(&options.fs), &folder));
        let mut options = options.clone();
        options.fs = Arc::clone(&aside) as Arc<dyn Fs>;
        options.keys = options.keys.or_else(|| self.keys.clone());
        (options.read_only, options.create_new) = (true, false);
        (options.follow, options.follow_interval) = (false, None);
        let directory = ReplicaDirectory::new(self, &options, aside, folder);
        match directory.prepare(from)? {
            Some(lock) => directory.open(options, from, lock),
            None => directory.open_other(options),
        }
    }
}

#[cfg(all(test, target_os = "linux", not(any(miri, feature = "shuttle"))))]
mod tests {
    use super::*;
    use crate::{clock::ManualClock, fs::MemoryFs};

    #[test]
    fn a_forked_child_does_not_fetch() {
        let fs = Arc::new(MemoryFs::new()) as Arc<dyn Fs>;
        let options = Options::new().fs(Arc::clone(&fs)).worker_threads(0);
        let set = BackupSet::with_fs("set", fs, Arc::new(ManualClock::new()));
        let db = options.clone().open("db").expect("a new store");
        db.insert("key", "value").expect("there is room");
        db.flush().expect("there is room");
        set.create(&db).expect("there is room");
        let replica = set.open_replica(&RestoreOptions::new(), &options, "replica");
        let replica = replica.expect("the set is whole");
        let pending = replica.stats().files_pending;
        let gate = &replica.db().store().gate;
        gate.set_forked(true);
        let fetched = replica.fetch_next();
        let waited = replica.wait(Duration::ZERO);
        let stats = replica.stats();
        gate.set_forked(false);
        assert!(matches!(fetched, Err(Error::ForkedChild { .. })), "{fetched:?}");
        assert!(matches!(waited, Err(Error::ForkedChild { .. })), "{waited:?}");
        assert!(matches!(stats.error, Some(Error::ForkedChild { .. })), "{stats:?}");
        assert_eq!(replica.stats().files_pending, pending, "the parent fetches them");
        assert!(replica.fetch_next().expect("the set is whole"));
    }
}
