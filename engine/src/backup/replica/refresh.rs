//! Moves a replica to a newer backup.
//!
//! 1. Log and manifest are written under other names, such as `000012.log.next1`.
//! 2. `REPLICA` is replaced. From now on the newer backup is valid, also after a crash.
//! 3. The files are renamed to their final names. The former log and manifest are removed,
//!    `CURRENT` first.
//! 4. The newer manifest and log become visible. Readers of tables keep them.
//! 5. The fetcher fetches the new tables, and completes the replica.
//!
//! A crash before step 2 leaves files that the next open removes. After a later crash, the next
//! open continues with step 3.

use std::{path::Path, sync::Arc};

use super::{
    Replica,
    directory::commit,
    fetcher::Fetcher,
    marker::{Marker, missing_files, own_files},
};
use crate::{
    Error, Options, Result,
    backup::{RestoreOptions, chain::Chain, restore::Begun},
    file_name::staged_end,
    fs::Fs,
    open_files::FrugalFs,
    store::{Store, checkpoint::target::Target},
    sync::{Mutex, MutexGuard},
};

/// The state of the refreshes of a replica.
#[derive(Debug)]
pub(super) struct Refresher {
    options: Options,
    /// Keyspaces of the replica.
    from: RestoreOptions,
    state: Mutex<Progress>,
}

#[derive(Debug)]
struct Progress {
    /// Number of the last attempt. A failed attempt may have replaced `REPLICA`.
    generation: u64,
    /// Readers see the current backup.
    is_shown: bool,
}

impl Refresher {
    /// Returns the state of a replica opened with these options.
    pub(super) fn new(options: &Options, from: &RestoreOptions, generation: u64) -> Self {
        let state = Mutex::new(Progress { generation, is_shown: true });
        Self { options: options.clone(), from: from.clone(), state }
    }

    /// Writes the log and the manifest of `chain` beside the current ones, and replaces `REPLICA`.
    /// Returns the guard of [`Store::lock_log_files`].
    ///
    /// # Errors
    ///
    /// The current backup remains.
    fn stage<'s>(
        &self,
        fetcher: &Fetcher,
        store: &'s Store,
        chain: Chain,
        progress: &mut Progress,
    ) -> Result<Option<MutexGuard<'s, ()>>> {
        progress.generation += 1;
        let (folder, end) = (&*fetcher.folder, staged_end(progress.generation));
        let open_files = store.tables.files.open_files();
        let frugal = |fs: Arc<dyn Fs>| {
            self.options.stored_fs(Arc::new(FrugalFs::new(fs, Arc::clone(open_files))))
        };
        let staged = frugal(Arc::new(fetcher.aside.staged(progress.generation)));
        remove_staged(&*fetcher.fs, folder, &end)?;
        let begin = || {
            let mut target = Target::beside(staged, folder);
            let Begun { backup, state, files } = fetcher.set.begin(chain, &self.from, &target)?;
            target.finish(state)?;
            let own = own_files(&*fetcher.fs, folder, &end)?;
            let generation = progress.generation;
            let sequence = backup.sequence;
            let marker = Marker { backup: backup.number, generation, sequence, files, own };
            // A checkpoint holds the lock for long, and files arrive meanwhile.
            let log_files = store.lock_log_files();
            let pending = missing_files(&*fetcher.fs, folder, &marker.files)?;
            Ok::<_, Error>((marker, pending, log_files))
        };
        let (marker, pending, log_files) = begin().inspect_err(|_| {
            // If this fails, the next open removes the files.
            let _ = remove_staged(&*fetcher.fs, folder, &end);
        })?;
        fetcher.left.add(store);
        let stored = frugal(Arc::clone(&fetcher.aside) as Arc<dyn Fs>);
        // If this fails, either backup may be valid after a crash, so the files stay.
        commit(&stored, folder, &marker)?;
        progress.is_shown = false;
        // Afterwards a fetch thread may rename files.
        store.begin_replacing();
        fetcher.begin(marker, pending, (false, false));
        Ok(log_files)
    }
}

impl Replica {
    /// Moves the replica to the newest backup of its store in the set, with the log archived after
    /// that backup. Returns `false` if the replica is at this point already.
    ///
    /// At return, the store of [`db`](Self::db) shows the newer backup. Existing snapshots and
    /// iterators still read the older backup. So keep the older backup in the set while they may
    /// need tables of it that have not been fetched. Only new tables are fetched. The keyspaces are
    /// those selected at the open by [`RestoreOptions::keyspaces`].
    ///
    /// A crash leaves the older or the newer backup, which the next
    /// [`open_replica`](crate::BackupSet::open_replica) opens. During the call, and until all files
    /// have been fetched, [`Options::open`](crate::Options::open) fails with
    /// [`Error::IncompleteReplica`].
    ///
    /// Without a newer backup, a call costs four requests: two lists, and the record of the newest
    /// backup. With a newer backup, it also fetches the log, and the indexes and filters of new
    /// tables. The next call or the next open removes files that no reader needs. Concurrent calls
    /// run one after another. The call waits for checkpoints and backups of the replica. Uses up to
    /// 17 MiB of memory.
    ///
    /// # Errors
    ///
    /// Readers see the older backup. The next call continues.
    ///
    /// * [`Error::NoBackup`]: the set has neither the backup of the replica nor a newer one of its
    ///   store. It may be another set, begun again.
    /// * [`Error::NoReplica`]: the directory has another store, or one that was opened for writing.
    /// * Those of [`restore_with`](crate::BackupSet::restore_with), and of
    ///   [`Options::open`](crate::Options::open).
    /// * [`Error::Closed`], [`Error::ForkedChild`].
    pub fn refresh(&self) -> Result<bool> {
        let store = self.db.open_store().accept()?;
        let fetcher = &*self.fetcher;
        let Some(refresher) = &self.refresher else {
            return Err(Error::NoReplica { path: fetcher.folder.clone() });
        };
        let mut progress = refresher.state.lock();
        // Fails permanently if the backup was pruned.
        let shown = match progress.is_shown {
            true => Ok(false),
            false => {
                let _log_files = store.lock_log_files();
                self.show(store, &mut progress).map(|()| true)
            }
        };
        let marker = fetcher.marker();
        let point = (marker.backup, marker.sequence);
        let is_newer = match fetcher.set.newer_chain(store.tables.store_id, point)? {
            Some(chain) => {
                let _log_files = refresher.stage(fetcher, store, chain, &mut progress)?;
                self.show(store, &mut progress)?;
                true
            }
            None => shown?,
        };
        fetcher.sweep();
        self.start_threads()?;
        Ok(is_newer)
    }

    /// Makes the current backup visible. The caller holds the guard of [`Store::lock_log_files`].
    fn show(&self, store: &Store, progress: &mut Progress) -> Result<()> {
        self.fetcher.promote()?;
        store.show_replaced()?;
        progress.is_shown = true;
        Ok(())
    }
}

/// Removes files of a failed attempt.
fn remove_staged(fs: &dyn Fs, folder: &Path, end: &str) -> Result<()> {
    let names = fs.list(folder).map_err(|error| Error::io("list", folder, error))?;
    for name in names.iter().filter(|name| name.ends_with(end)) {
        let path = folder.join(name);
        fs.unlink(&path).map_err(|error| Error::io("remove", path, error))?;
    }
    Ok(())
}
