//! The directory of a replica: new, interrupted or complete.

use std::{
    collections::BTreeSet,
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{
    Replica,
    aside::AsideFs,
    fetcher::{Fetcher, promote},
    marker::{Marker, missing_files, own_files},
    refresh::Refresher,
};
use crate::{
    Error, Options, ReadMode, Result,
    backup::{BackupSet, RECORD_BYTES_MAX, RestoreOptions, record::StoredFile, restore::Begun},
    encryption::StoredFs,
    error::SYNC,
    file_name::{FileName, REPLICA},
    fs::{ArrivingFiles, FileLock, Fs, Origin, ReadFile, existing},
    open_files::FrugalFs,
    store::{checkpoint::target::Target, folder::lock_folder},
};

/// Name of [`FileName::Lock`].
const LOCK: &str = "LOCK";

/// The directory of a replica during its open.
pub(super) struct ReplicaDirectory<'s> {
    set: &'s BackupSet,
    fs: Arc<dyn Fs>,
    files: StoredFs,
    aside: Arc<AsideFs>,
    folder: PathBuf,
}

impl<'s> ReplicaDirectory<'s> {
    /// Returns the directory `folder` of `aside`, for a replica of `set` with these options.
    pub(super) fn new(
        set: &'s BackupSet,
        options: &Options,
        aside: Arc<AsideFs>,
        folder: PathBuf,
    ) -> Self {
        let files = options.stored_fs(Arc::clone(&aside) as Arc<dyn Fs>);
        Self { set, fs: files.logical(), files, aside, folder }
    }

    /// Returns the lock of a replica, and creates the replica if it does not exist. Returns `None`
    /// if the directory is another store.
    pub(super) fn prepare(&self, from: &RestoreOptions) -> Result<Option<Arc<dyn FileLock>>> {
        if self.exists(&self.folder.join(REPLICA))? {
            let lock = lock_folder(&*self.fs, &self.folder)?;
            let marker = Marker::decode(&self.marker_content()?).ok();
            let marker = marker.filter(|marker| !marker.own.is_empty());
            if let Some(marker) = &marker {
                // A refresh was interrupted.
                promote(&*self.fs, &self.aside, &self.folder, marker)?;
            }
            if self.is_complete()? {
                // The process that renamed `CURRENT` may have ended before this sync.
                self.sync()?;
                if let Some(marker) = marker
                    && self.is_unchanged(&marker)?
                {
                    self.remove_unneeded(&marker);
                    return Ok(Some(lock.into()));
                }
                self.unlink_marker();
                return Ok(None);
            }
            let has_current = self.exists(&FileName::Current.path(&self.folder))?;
            if has_current && !self.marker_content()?.is_empty() {
                marker.iter().for_each(|marker| self.remove_unneeded(marker));
                return Ok(Some(lock.into()));
            }
            self.clear()?;
        } else if self.is_complete()? {
            return Ok(None);
        } else if self.fs.list(&self.folder).is_ok_and(|names| names == [LOCK]) {
            // A creation was interrupted before it wrote `REPLICA`.
            let _lock = lock_folder(&*self.fs, &self.folder)?;
            let path = self.folder.join(LOCK);
            self.fs.unlink(&path).map_err(|error| Error::io("remove", &path, error))?;
        }
        self.create(from).map(|lock| lock.map(Arc::from))
    }

    /// Restores the backup without its tables.
    fn create(&self, from: &RestoreOptions) -> Result<Option<Box<dyn FileLock>>> {
        let from_directory = self.set.objects.directory();
        // First: a wrong directory fails at once, before the log is read.
        let mut target = Target::create(self.files.clone(), from_directory, &self.folder)?;
        let chain = self.set.chain(from)?;
        let marker = self.folder.join(REPLICA);
        let written = write(&self.files, &marker, &[]).and_then(|()| {
            self.sync()?;
            let Begun { backup, state, files } = self.set.begin(chain, from, &target)?;
            target.finish(state)?;
            let own = own_files(&*self.fs, &self.folder, "")?;
            let (sequence, generation) = (backup.sequence, 0);
            let marker = Marker { backup: backup.number, generation, sequence, files, own };
            commit(&self.files, &self.folder, &marker)
        });
        if let Err(error) = written {
            // Removes all files, including those of a finished target.
            let _ = self.clear();
            drop(target);
            let names = self.fs.list(&self.folder).unwrap_or_default();
            // `REPLICA` stays while other files remain.
            if names == [REPLICA] {
                self.unlink_marker();
            }
            return Err(error);
        }
        Ok(target.into_lock())
    }

    /// Returns `true` if no process has written to the store since its completion.
    fn is_unchanged(&self, marker: &Marker) -> Result<bool> {
        let own = own_files(&*self.fs, &self.folder, "")?;
        // Blob files do not count: those of the directory may belong to the log or to tables.
        let is_counted =
            |file: &&StoredFile| !matches!(FileName::parse(&file.name), Some(FileName::Blobs(_)));
        let lengths = |files: &[StoredFile]| -> BTreeSet<_> {
            files.iter().filter(is_counted).map(|file| (file.name.clone(), file.bytes)).collect()
        };
        Ok(lengths(&own) == lengths(&marker.own))
    }

    /// Removes files of earlier backups and of interrupted refreshes. A failure is harmless: the
    /// next open retries.
    fn remove_unneeded(&self, marker: &Marker) {
        let needed: BTreeSet<_> = marker.names().collect();
        for name in self.fs.list(&self.folder).unwrap_or_default() {
            let is_unneeded = match FileName::parse(&name) {
                Some(FileName::Temporary(_)) => true,
                Some(parsed) => parsed.id().is_some() && !needed.contains(&*name),
                None => FileName::parse_staged(&name).is_some(),
            };
            if is_unneeded {
                let _ = self.fs.unlink(&self.folder.join(name));
            }
        }
    }

    /// Opens a replica.
    pub(super) fn open(
        self,
        mut options: Options,
        from: &RestoreOptions,
        lock: Arc<dyn FileLock>,
    ) -> Result<Replica> {
        let path = self.folder.join(REPLICA);
        let marker = Marker::decode(&self.marker_content()?);
        let marker = marker.map_err(|source| Error::corrupt(path, 0, source).of_opening())?;
        let is_complete = self.is_complete()?;
        if !is_complete && from.backup.is_some_and(|number| number != marker.backup) {
            let name = REPLICA.to_owned();
            return Err(Error::DirectoryNotEmpty { path: self.folder, name });
        }
        let pending = match is_complete {
            true => Vec::new(),
            false => missing_files(&*self.fs, &self.folder, &marker.files)?,
        };
        self.aside.share(&lock);
        if options.read_mode == ReadMode::Map {
            options.read_mode = ReadMode::default();
        }
        let refreshes = !marker.own.is_empty();
        let refresher = refreshes.then(|| Refresher::new(&options, from, marker.generation));
        let threads = if options.worker_threads > 0 { from.checked_fetch_threads()? } else { 0 };
        self.start(options, Some((marker, pending, is_complete)), (Some(lock), refresher), threads)
    }

    /// Opens another store.
    pub(super) fn open_other(self, options: Options) -> Result<Replica> {
        self.start(options, None, (None, None), 0)
    }

    fn start(
        self,
        mut options: Options,
        from: Option<(Marker, Vec<StoredFile>, bool)>,
        (lock, refresher): (Option<Arc<dyn FileLock>>, Option<Refresher>),
        threads: usize,
    ) -> Result<Replica> {
        let origin = SetOrigin { set: self.set.clone() };
        let arriving = Arc::new(ArrivingFiles::new(Arc::new(origin)));
        if let Some((_, pending, _)) = &from {
            arriving.add(pending.iter().map(|file| file.arriving(&self.folder)));
            options.arriving = Some(Arc::clone(&arriving));
        }
        let db = options.open(&self.folder)?;
        let store = db.open_store().store();
        let fs = Arc::new(FrugalFs::new(self.fs, Arc::clone(store.tables.files.open_files())));
        let (set, place) =
            (self.set.frugal_for(store), (fs as Arc<dyn Fs>, self.aside, self.folder));
        let fetcher = Fetcher::new(set, place, arriving, lock);
        if let Some((marker, pending, is_complete)) = from {
            fetcher.begin(marker, pending, (true, is_complete));
        }
        let replica = Replica::new(db, fetcher, refresher, threads);
        replica.start_threads()?;
        Ok(replica)
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        match self.fs.exists(path) {
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
                Err(Error::NotADirectory { path: self.folder.clone() })
            }
            exists => exists.map_err(|error| Error::io("look for", path, error)),
        }
    }

    fn is_complete(&self) -> Result<bool> {
        let path = FileName::Current.path(&self.folder);
        self.aside.is_complete().map_err(|error| Error::io("look for", path, error))
    }

    fn marker_content(&self) -> Result<Vec<u8>> {
        let path = self.folder.join(REPLICA);
        let read = self.files.stored().open(&path).and_then(|file| {
            let bytes = usize::try_from(file.len()?.min(RECORD_BYTES_MAX));
            let mut content = vec![0; bytes.unwrap_or(usize::MAX)];
            file.read_at(&mut content, 0).map(|()| content)
        });
        read.map_err(|error| Error::io("read", path, error))
    }

    fn sync(&self) -> Result<()> {
        let synced = self.fs.sync_dir(&self.folder);
        synced.map_err(|error| Error::io(SYNC, &self.folder, error))
    }

    fn unlink_marker(&self) {
        // If this fails, the next open removes the file.
        let _ = self.fs.unlink(&self.folder.join(REPLICA));
    }

    /// Removes the files of an interrupted creation, whose lock the caller holds.
    fn clear(&self) -> Result<()> {
        let names = self.fs.list(&self.folder);
        let names = names.map_err(|error| Error::io("list", &self.folder, error))?;
        // Removes the marker last: without it the other files are not a replica.
        let files = names.iter().map(String::as_str);
        let files = files.filter(|name| FileName::parse(name).is_some());
        let current = FileName::Current.to_string();
        let has_current = self.exists(&FileName::Current.path(&self.folder))?;
        let files = files.chain(has_current.then_some(&*current)).chain([REPLICA]);
        for name in files {
            let path = self.folder.join(name);
            self.fs.unlink(&path).map_err(|error| Error::io("remove", &path, error))?;
        }
        self.sync()
    }
}

/// Replaces the marker of the directory by `marker`, durably. After an error either marker may be
/// present.
pub(super) fn commit(files: &StoredFs, folder: &Path, marker: &Marker) -> Result<()> {
    let fs = &**files.stored();
    let temporary = FileName::Temporary(REPLICA).path(folder);
    existing(fs.unlink(&temporary)).map_err(|error| Error::io("remove", &temporary, error))?;
    write(files, &temporary, &marker.encode())?;
    let renamed = fs.rename(&temporary, &folder.join(REPLICA));
    renamed.map_err(|error| Error::io("rename", &temporary, error))?;
    fs.sync_dir(folder).map_err(|error| Error::io(SYNC, folder, error))
}

/// Creates a file, durable on return. The file is not encrypted: the names of objects reveal as
/// much.
fn write(files: &StoredFs, path: &Path, content: &[u8]) -> Result<()> {
    let created = files.stored().create(path);
    let file = created.map_err(|error| Error::io("create", path, error))?;
    file.append(content).map_err(|error| Error::io("append to", path, error))?;
    file.sync_data().map_err(|error| Error::io(SYNC, path, error))
}

/// Opens missing files from the set.
#[derive(Debug)]
struct SetOrigin {
    set: BackupSet,
}

impl Origin for SetOrigin {
    fn open(&self, object: &str) -> io::Result<Arc<dyn ReadFile>> {
        self.set.objects.open_ranges(object)
    }
}
