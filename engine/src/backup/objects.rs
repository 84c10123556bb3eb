//! The objects of a backup set, and their storage.

use std::{
    fmt::Debug,
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::{
    fs::{AppendFile, FileLock, Fs, ReadFile, existing},
    open_files::{FrugalFs, OpenFiles},
    store::folder::create_levels,
};

/// Directory of the contents of files.
pub(super) const OBJECTS: &str = "objects";
/// Directory of the records of backups.
pub(super) const BACKUPS: &str = "backups";
/// Directory of the archived logs.
pub(super) const LOG: &str = "log";

/// Suffix of the names of unfinished objects.
const UNFINISHED: &str = ".tmp";

/// A storage of objects with names of the form `directory/name`.
///
/// Has few operations, so that a remote object store can implement them.
pub(super) trait ObjectStore: Debug + Send + Sync {
    /// Returns the same objects. For files, a call closes some of `open_files` when no descriptor
    /// is left.
    fn frugal(self: Arc<Self>, open_files: &Arc<OpenFiles>) -> Arc<dyn ObjectStore>;

    /// Returns the directory, if the objects are files.
    fn directory(&self) -> Option<&Path>;

    /// Excludes other writers until the lock is dropped. `WouldBlock` if another writer has it.
    fn lock(&self) -> io::Result<Box<dyn FileLock>>;

    /// Removes a lock that a crashed writer left. Returns `true` if there was one.
    #[cfg(feature = "object-store")]
    fn break_lock(&self) -> io::Result<bool> {
        Ok(false)
    }

    /// Removes unfinished objects that crashed writers left. The caller has the lock.
    fn remove_unfinished(&self) -> io::Result<()> {
        Ok(())
    }

    /// Begins the object `name`. The object exists, as a whole, once it is finished.
    fn create(&self, name: &str) -> io::Result<Box<dyn NewObject>>;

    /// Opens an object. `NotFound` if there is none.
    fn open(&self, name: &str) -> io::Result<Arc<dyn ReadFile>>;

    /// As [`open`](Self::open), for reads at random offsets. Each read fetches only its bytes. A
    /// missing object may be reported by the first read instead.
    fn open_ranges(&self, name: &str) -> io::Result<Arc<dyn ReadFile>> {
        self.open(name)
    }

    /// Returns the names of the finished objects in `directory`, ascending, without the directory.
    fn list(&self, directory: &str) -> io::Result<Vec<String>>;

    /// Removes an object.
    fn delete(&self, name: &str) -> io::Result<()>;

    /// Makes all finished and removed objects in `directory` durable.
    fn sync(&self, directory: &str) -> io::Result<()>;
}

/// An unfinished object. A drop discards it.
pub(super) trait NewObject {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Finishes the object. Its content is durable on return, its name after [`ObjectStore::sync`].
    fn finish(self: Box<Self>) -> io::Result<()>;
}

/// Objects as files below a directory. A lock file excludes other writers.
#[derive(Debug)]
pub(super) struct Directory {
    fs: Arc<dyn Fs>,
    path: PathBuf,
}

impl Directory {
    /// Returns the directory `path`, which the first writer creates.
    pub(super) fn new(fs: Arc<dyn Fs>, path: PathBuf) -> Self {
        Self { fs, path }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }
}

impl ObjectStore for Directory {
    fn frugal(self: Arc<Self>, open_files: &Arc<OpenFiles>) -> Arc<dyn ObjectStore> {
        let fs = Arc::new(FrugalFs::new(Arc::clone(&self.fs), Arc::clone(open_files)));
        Arc::new(Self::new(fs, self.path.clone()))
    }

    fn directory(&self) -> Option<&Path> {
        Some(&self.path)
    }

    fn lock(&self) -> io::Result<Box<dyn FileLock>> {
        // Without a backup, an earlier call may have failed before the syncs.
        if self.list(BACKUPS)?.is_empty() {
            create_levels(&*self.fs, &self.fs.absolute(&self.path)?)?;
        }
        for directory in [OBJECTS, BACKUPS, LOG] {
            self.fs.create_dir(&self.file(directory))?;
        }
        self.fs.sync_dir(&self.path)?;
        self.fs.lock(&self.file("LOCK"))
    }

    fn remove_unfinished(&self) -> io::Result<()> {
        for directory in [OBJECTS, BACKUPS, LOG].map(|name| self.file(name)) {
            for name in self.fs.list(&directory)?.iter().filter(|it| it.ends_with(UNFINISHED)) {
                self.fs.unlink(&directory.join(name))?;
            }
        }
        Ok(())
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn NewObject>> {
        let path = self.file(name);
        let unfinished = path.with_added_extension(&UNFINISHED[1..]);
        let created = match self.fs.create(&unfinished) {
            // A killed process left the file.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                self.fs.unlink(&unfinished)?;
                self.fs.create(&unfinished)
            }
            created => created,
        };
        let (fs, is_finished) = (Arc::clone(&self.fs), false);
        Ok(Box::new(NewFile { fs, file: created?, unfinished, path, is_finished }))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn ReadFile>> {
        self.fs.open(&self.file(name))
    }

    fn list(&self, directory: &str) -> io::Result<Vec<String>> {
        let mut names = existing(self.fs.list(&self.file(directory)))?.unwrap_or_default();
        names.retain(|name| !name.ends_with(UNFINISHED));
        Ok(names)
    }

    fn delete(&self, name: &str) -> io::Result<()> {
        self.fs.unlink(&self.file(name))
    }

    fn sync(&self, directory: &str) -> io::Result<()> {
        self.fs.sync_dir(&self.file(directory))
    }
}

struct NewFile {
    fs: Arc<dyn Fs>,
    file: Arc<dyn AppendFile>,
    unfinished: PathBuf,
    path: PathBuf,
    is_finished: bool,
}

impl NewObject for NewFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.append(bytes)
    }

    fn finish(mut self: Box<Self>) -> io::Result<()> {
        self.file.sync_data()?;
        self.fs.rename(&self.unfinished, &self.path)?;
        self.is_finished = true;
        Ok(())
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if !self.is_finished {
            // If this fails, the next backup removes the file.
            let _ = self.fs.unlink(&self.unfinished);
        }
    }
}
