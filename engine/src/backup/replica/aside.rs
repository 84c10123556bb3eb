//! The file system of an incomplete replica, whose `CURRENT` has another name.
//!
//! So the directory does not open as a store before it is complete. Openings by this file system
//! share the exclusive lock of the replica.

use std::{
    io,
    path::{Path, PathBuf},
    sync::{Arc, Weak},
};

use crate::{
    file_name::FileName,
    fs::{AppendFile, DirHandle, FileLock, Fs, ReadFile},
    sync::Mutex,
};

/// Name of `CURRENT` until the replica is complete.
const ASIDE: &str = "CURRENT.replica";

/// Forwards all calls, those on `CURRENT` to another file while that exists.
#[derive(Debug)]
pub(super) struct AsideFs {
    inner: Arc<dyn Fs>,
    current: PathBuf,
    aside: PathBuf,
    lock_path: PathBuf,
    lock: Mutex<Weak<dyn FileLock>>,
}

/// A share in the lock of the replica.
#[derive(Debug)]
struct SharedLock {
    _lock: Arc<dyn FileLock>,
}

impl FileLock for SharedLock {}

/// Initial value of the lock.
#[derive(Debug)]
struct NoLock;

impl FileLock for NoLock {}

impl AsideFs {
    pub(super) fn new(inner: Arc<dyn Fs>, folder: &Path) -> Self {
        let (current, lock_path) = (FileName::Current.path(folder), FileName::Lock.path(folder));
        let lock = Mutex::new(Weak::<NoLock>::new() as Weak<dyn FileLock>);
        Self { inner, current, aside: folder.join(ASIDE), lock_path, lock }
    }

    /// Openings share this lock while the caller holds it.
    pub(super) fn share(&self, lock: &Arc<dyn FileLock>) {
        *self.lock.lock() = Arc::downgrade(lock);
    }

    /// Returns `true` if the directory opens as a store.
    pub(super) fn is_complete(&self) -> io::Result<bool> {
        self.inner.exists(&self.current)
    }

    /// Gives `CURRENT` its name. Durable after a sync of the directory.
    pub(super) fn complete(&self) -> io::Result<()> {
        match self.inner.rename(&self.aside, &self.current) {
            // An earlier call failed after it was carried out.
            Err(error) if error.kind() == io::ErrorKind::NotFound && self.is_complete()? => Ok(()),
            renamed => renamed,
        }
    }

    /// Returns the path of a file until the replica is complete.
    fn at<'p>(&'p self, path: &'p Path) -> &'p Path {
        if path == self.current { &self.aside } else { path }
    }

    /// Reads by `read` the file `path`.
    fn read<T>(&self, path: &Path, read: impl Fn(&Path) -> io::Result<T>) -> io::Result<T> {
        match read(self.at(path)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && path == self.current => {
                read(path)
            }
            done => done,
        }
    }
}

impl Fs for AsideFs {
    fn absolute(&self, path: &Path) -> io::Result<PathBuf> {
        self.inner.absolute(path)
    }

    fn resolve(&self, path: &Path) -> io::Result<PathBuf> {
        self.inner.resolve(path)
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.inner.create_dir(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.inner.list(dir)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        Ok(self.inner.exists(self.at(path))? || self.inner.exists(path)?)
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn AppendFile>> {
        self.inner.create(self.at(path))
    }

    fn open_append(&self, path: &Path) -> io::Result<Arc<dyn AppendFile>> {
        self.inner.open_append(self.at(path))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn ReadFile>> {
        self.read(path, |path| self.inner.open(path))
    }

    fn open_direct(&self, path: &Path) -> io::Result<Arc<dyn ReadFile>> {
        self.read(path, |path| self.inner.open_direct(path))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.inner.rename(from, self.at(to))
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        self.inner.unlink(self.at(path))
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.inner.link(from, to)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.inner.sync_dir(path)
    }

    fn open_dir(&self, path: &Path) -> io::Result<Option<Box<dyn DirHandle>>> {
        self.inner.open_dir(path)
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        self.inner.lock(path)
    }

    fn lock_shared(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        let held = self.lock.lock().upgrade().filter(|_| path == self.lock_path);
        match held {
            Some(lock) => Ok(Box::new(SharedLock { _lock: lock })),
            None => self.inner.lock_shared(path),
        }
    }

    fn read_system_file(&self, path: &Path) -> io::Result<String> {
        self.inner.read_system_file(path)
    }

    fn random_u64(&self) -> io::Result<u64> {
        self.inner.random_u64()
    }
}
