//! The directory of a replica: new, interrupted or complete.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{Replica, aside::AsideFs, fetcher::Fetcher, marker::Marker};
use crate::{
    Error, Options, ReadMode, Result,
    backup::{
        BackupSet, RECORD_BYTES_MAX, RestoreOptions, objects::OBJECTS, record::StoredFile,
        restore::Begun,
    },
    encryption::StoredFs,
    error::SYNC,
    file_name::{FileName, REPLICA},
    fs::{ArrivingFiles, FileLock, Fs, Origin, ReadFile},
    store::{checkpoint::target::Target, folder::lock_folder},
    sync::thread,
    table::open_files::FrugalFs,
};

/// Name of [`FileName::Lock`].
const LOCK: &str = "LOCK";

/// The directory of a replica while it is opened.
pub(super) struct ReplicaDirectory<'s> {
    set: &'s BackupSet,
    fs: Arc<dyn Fs>,
    files: StoredFs,
    aside: Arc<AsideFs>,
    folder: PathBuf,
}

impl<'s> ReplicaDirectory<'s> {
    /// Returns the directory `folder` of `aside`, of a replica of `set` with these options.
    pub(super) fn new(
        set: &'s BackupSet,
        options: &Options,
        aside: Arc<AsideFs>,
        folder: PathBuf,
    ) -> Self {
        let files = options.stored_fs(Arc::clone(&aside) as Arc<dyn Fs>);
        Self { set, fs: files.logical(), files, aside, folder }
    }

    /// Returns the lock of an incomplete replica, which is created if there is none; `None` if the
    /// directory is a store.
    pub(super) fn prepare(&self, from: &RestoreOptions) -> Result<Option<Arc<dyn FileLock>>> {
        if self.exists(&self.folder.join(REPLICA))? {
            let lock = lock_folder(&*self.fs, &self.folder)?;
            if self.is_complete()? {
                // The process that renamed `CURRENT` may have ended before.
                self.sync()?;
                self.unlink_marker();
                return Ok(None);
            }
            let has_current = self.exists(&FileName::Current.path(&self.folder))?;
            if has_current && !self.marker_content()?.is_empty() {
                return Ok(Some(lock.into()));
            }
            self.clear()?;
        } else if self.is_complete()? {
            return Ok(None);
        } else if self.fs.list(&self.folder).is_ok_and(|names| names == [LOCK]) {
            // Of a creation that was interrupted before `REPLICA`.
            let _lock = lock_folder(&*self.fs, &self.folder)?;
            let path = self.folder.join(LOCK);
            self.fs.unlink(&path).map_err(|error| Error::io("remove", &path, error))?;
        }
        self.create(from).map(|lock| lock.map(Arc::from))
    }

    /// Restores the backup without its tables.
    fn create(&self, from: &RestoreOptions) -> Result<Option<Box<dyn FileLock>>> {
        let chain = self.set.chain(from)?;
        let from_directory = self.set.objects.directory();
        let mut target = Target::create(self.files.clone(), from_directory, &self.folder)?;
        let marker = self.folder.join(REPLICA);
        let written = self.write(&marker, &[]).and_then(|()| {
            self.sync()?;
            let Begun { backup, state, files } = self.set.begin(chain, from, &target)?;
            let content = Marker { backup: backup.number, files }.encode();
            let temporary = FileName::Temporary(REPLICA).path(&self.folder);
            self.write(&temporary, &content)?;
            let renamed = self.fs.rename(&temporary, &marker);
            renamed.map_err(|error| Error::io("rename", &temporary, error))?;
            target.finish(state)
        });
        if let Err(error) = written {
            // Removes the other files.
            drop(target);
            let names = self.fs.list(&self.folder).unwrap_or_default();
            // Marks what could not be removed.
            if names == [REPLICA] {
                self.unlink_marker();
            }
            return Err(error);
        }
        Ok(target.into_lock())
    }

    /// Opens an incomplete replica.
    pub(super) fn open(
        self,
        mut options: Options,
        from: &RestoreOptions,
        lock: Arc<dyn FileLock>,
    ) -> Result<Replica> {
        let path = self.folder.join(REPLICA);
        let marker = Marker::decode(&self.marker_content()?);
        let marker = marker.map_err(|source| Error::corrupt(path, 0, source).of_opening())?;
        if from.backup.is_some_and(|number| number != marker.backup) {
            let name = REPLICA.to_owned();
            return Err(Error::DirectoryNotEmpty { path: self.folder, name });
        }
        let names = self.fs.list(&self.folder);
        let names = names.map_err(|error| Error::io("list", &self.folder, error))?;
        let present: BTreeSet<_> = names.into_iter().collect();
        let mut pending = Vec::new();
        for file in marker.files {
            if !present.contains(&file.name) || !self.has_length(&file)? {
                pending.push(file);
            }
        }
        // Filters are short, and needed by every read.
        pending
            .sort_by_key(|file| !matches!(FileName::parse(&file.name), Some(FileName::Filter(_))));
        self.aside.share(&lock);
        if options.read_mode == ReadMode::Map {
            options.read_mode = ReadMode::default();
        }
        self.start(options, pending, Some(lock))
    }

    /// Returns `false` if the file of the directory has another length, or is too damaged to have
    /// one: it is fetched again.
    fn has_length(&self, file: &StoredFile) -> Result<bool> {
        let path = self.folder.join(&file.name);
        let found = self.fs.open(&path).and_then(|opened| opened.len());
        match found.map_err(|error| Error::io("open", path, error)) {
            Err(Error::Corrupt { .. }) => Ok(false),
            found => found.map(|bytes| bytes == file.bytes),
        }
    }

    /// Opens the store. Without `lock` it is complete.
    pub(super) fn start(
        self,
        mut options: Options,
        pending: Vec<StoredFile>,
        lock: Option<Arc<dyn FileLock>>,
    ) -> Result<Replica> {
        let objects = pending
            .iter()
            .map(|file| (self.folder.join(&file.name), format!("{OBJECTS}/{}", file.object())));
        let origin = SetOrigin { set: self.set.clone(), objects: objects.collect() };
        let files = pending.iter().map(|file| (self.folder.join(&file.name), file.bytes));
        let arriving = Arc::new(ArrivingFiles::new(Arc::new(origin), files));
        options.arriving = Some(Arc::clone(&arriving));
        let has_thread = options.worker_threads > 0 && lock.is_some();
        let db = options.open(&self.folder)?;
        let store = db.open_store().store();
        let fs = Arc::new(FrugalFs::new(self.fs, Arc::clone(store.tables.files.open_files())));
        let (set, place) =
            (self.set.frugal_for(store), (fs as Arc<dyn Fs>, self.aside, self.folder));
        let fetcher = Fetcher::new(set, place, arriving, pending, lock);
        let mut replica = Replica { db, fetcher: Arc::new(fetcher), thread: None };
        if has_thread {
            let fetcher = Arc::clone(&replica.fetcher);
            let thread = thread::Builder::new().name("sieve-replica".to_owned());
            let started = thread.spawn(move || fetcher.run());
            let folder = &replica.fetcher.folder;
            let started = started.map_err(|error| Error::io("start a thread for", folder, error));
            replica.thread = Some(started?);
        }
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

    /// Creates a file, whose content is durable at return. It is not encrypted: the names of
    /// objects show as much.
    fn write(&self, path: &Path, content: &[u8]) -> Result<()> {
        let created = self.files.stored().create(path);
        let file = created.map_err(|error| Error::io("create", path, error))?;
        file.append(content).map_err(|error| Error::io("append to", path, error))?;
        file.sync_data().map_err(|error| Error::io(SYNC, path, error))
    }

    fn sync(&self) -> Result<()> {
        let synced = self.fs.sync_dir(&self.folder);
        synced.map_err(|error| Error::io(SYNC, &self.folder, error))
    }

    fn unlink_marker(&self) {
        // One that is left is removed by the next opening.
        let _ = self.fs.unlink(&self.folder.join(REPLICA));
    }

    /// Removes the files of an interrupted creation, whose lock the caller holds.
    fn clear(&self) -> Result<()> {
        let names = self.fs.list(&self.folder);
        let names = names.map_err(|error| Error::io("list", &self.folder, error))?;
        // Last, the marker: without it the others are no replica.
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

/// Opens missing files in the set.
#[derive(Debug)]
struct SetOrigin {
    set: BackupSet,
    /// Names of objects, by the paths of their files.
    objects: BTreeMap<PathBuf, String>,
}

impl Origin for SetOrigin {
    fn open(&self, path: &Path) -> io::Result<Arc<dyn ReadFile>> {
        let object = self.objects.get(path).ok_or(io::ErrorKind::NotFound)?;
        self.set.objects.open_ranges(object)
    }
}
