//! Replicas: a backup that serves reads before its tables have arrived.
//!
//! | file        | content                                                     |
//! |-------------|-------------------------------------------------------------|
//! | `mod`       | the API                                                     |
//! | [`directory`] | opens a replica, new, interrupted or complete             |
//! | [`fetcher`] | fetches the files, and completes the replica                |
//! | [`marker`]  | bytes of the file `REPLICA`, the list of the files          |
//! | [`aside`]   | another name for `CURRENT` until the replica is complete    |
//! | [`stats`]   | progress                                                    |
//!
//! 1. The file `REPLICA` is created, empty. The log is restored, and `REPLICA` gets its content.
//! 2. Manifest and `CURRENT` are written, the latter as `CURRENT.replica`.
//! 3. The store is opened read-only. It reads missing files from the set, by ranges.
//! 4. Each file is fetched, compared with its checksum, synced, and renamed.
//! 5. The directory is synced, `CURRENT` gets its name, and `REPLICA` is removed.
//!
//! After a crash before the end of step 2, the next open starts from step 1. Later it continues.

mod aside;
mod directory;
mod fetcher;
mod marker;
mod stats;

use std::{fmt, mem, path::Path, sync::Arc, time::Duration};

pub use self::stats::ReplicaStats;
use self::{aside::AsideFs, directory::ReplicaDirectory, fetcher::Fetcher};
use super::{BackupSet, RestoreOptions};
#[cfg(doc)]
use crate::ReadMode;
use crate::{Db, Error, Options, Result, fs::Fs, sync::thread::JoinHandle};

/// A read-only store whose files arrive from a [backup set](BackupSet): see
/// [`BackupSet::open_replica`].
///
/// Drop ends the thread that fetches, after its request in flight. The [store](Self::db) then reads
/// missing files from the set, as long as a handle is left.
pub struct Replica {
    db: Db,
    fetcher: Arc<Fetcher>,
    thread: Option<JoinHandle<()>>,
}

impl fmt::Debug for Replica {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replica").field("path", &self.fetcher.folder).finish_non_exhaustive()
    }
}

impl Replica {
    /// Returns the store, which is read-only.
    #[must_use]
    pub fn db(&self) -> &Db {
        &self.db
    }

    /// Returns the progress. In a forked child only [`ReplicaStats::error`] is set, to
    /// [`Error::ForkedChild`].
    #[must_use]
    pub fn stats(&self) -> ReplicaStats {
        match self.check_not_forked() {
            Ok(()) => self.fetcher.stats(),
            Err(error) => ReplicaStats { error: Some(error), ..ReplicaStats::default() },
        }
    }

    /// Refuses a forked child: another process fetches the files, and a thread of it may have held
    /// the locks.
    fn check_not_forked(&self) -> Result<()> {
        let store = self.db.open_store().store();
        if store.is_forked() { store.check_open() } else { Ok(()) }
    }

    /// Waits until all files have arrived, for at most `timeout`. Returns `false` at the timeout,
    /// also while requests fail: see [`ReplicaStats::error`]. Without a thread, it only waits for
    /// [`fetch_next`](Self::fetch_next) in other threads.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] if files are damaged or missing in the set, and all others have arrived.
    /// [`Error::ForkedChild`].
    pub fn wait(&self, timeout: Duration) -> Result<bool> {
        self.check_not_forked()?;
        self.fetcher.wait(timeout)
    }

    /// Fetches the next file on this thread. Returns `false` if the replica was complete.
    ///
    /// # Errors
    ///
    /// The next call fetches another file. [`Error::Io`]: the file is fetched again after the
    /// others. [`Error::Corrupt`]: it is damaged or missing in the set. [`Error::ForkedChild`].
    pub fn fetch_next(&self) -> Result<bool> {
        self.check_not_forked()?;
        self.fetcher.fetch_next()
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        if self.db.open_store().store().is_forked() {
            // The thread and the holders of locks exist only in the parent.
            mem::forget(self.thread.take());
            return;
        }
        self.fetcher.end();
        if let Some(thread) = self.thread.take() {
            // A panic ends the fetching alone.
            let _ = thread.join();
        }
    }
}

impl BackupSet {
    /// Opens what `from` selects in the directory `path`, read-only, before its tables have
    /// arrived. A thread fetches them. Then the directory is a store as
    /// [`restore_with`](Self::restore_with) writes it, and no longer needs the set.
    ///
    /// The call fetches the log and, of each table, index, filters and properties. So reads of
    /// absent keys need no request, as far as filters reject them and fit the memory budget. Other
    /// reads fetch the blocks that they need, which the block cache holds, until the table has
    /// arrived. Like all calls of a set in an object store, they block their thread.
    ///
    /// After a crash the same call continues with the recorded backup; `from` then counts only if
    /// the directory is missing or empty. Until all files have arrived, [`Options::open`] fails with
    /// [`Error::IncompleteReplica`]. A complete replica, or another store, is opened read-only
    /// without the set. To follow a later backup, open it in another directory.
    ///
    /// Keep the backup until the replica is complete. The directory is locked as long as the
    /// replica or a handle of its store exists. Of `options` it uses those of a read-only store;
    /// [`ReadMode::Map`] becomes the default. Encrypted sets set the keys. With
    /// [`worker_threads`](Options::worker_threads)`(0)` no thread is started: call
    /// [`fetch_next`](Replica::fetch_next). Fetching uses up to 17 MiB of memory.
    ///
    /// # Errors
    ///
    /// * Those of [`restore_with`](Self::restore_with), for a new replica.
    /// * [`Error::DirectoryNotEmpty`]: the directory has a replica of another backup than
    ///   [`RestoreOptions::backup`], or other files.
    /// * [`Error::Corrupt`]: the end of a table is damaged, or a file is missing.
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
            None => directory.start(options, Vec::new(), None),
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
