//! The file system of an incomplete replica, which stores `CURRENT` under another name.
//!
//! So the directory does not open as a store before it is complete. Opens through this file system
//! share the exclusive lock of the replica.
//!
//! During a refresh, a second instance stores all files of the next log and manifest under other
//! names.

use std::{
    borrow::Cow,
    io,
    path::{Path, PathBuf},
    sync::{Arc, Weak},
};

use crate::{
    file_name::{FileName, staged_end},
    fs::{AppendFile, FileLock, Fs, ReadFile, existing, forward_fs},
    sync::Mutex,
};

/// Name of `CURRENT` until the replica is complete.
const ASIDE: &str = "CURRENT.replica";

/// Forwards all calls. Redirects those on `CURRENT` to another file while that file exists.
#[derive(Debug)]
pub(super) struct AsideFs {
    inner: Arc<dyn Fs>,
    current: PathBuf,
    aside: PathBuf,
    /// Suffix of the names of other files during a refresh.
    end: Option<String>,
    lock_path: PathBuf,
    lock: Mutex<Weak<dyn FileLock>>,
}

/// A share in the lock of the replica.
#[derive(Debug)]
struct SharedLock {
    _lock: Arc<dyn FileLock>,
}

impl FileLock for SharedLock {}

/// Initial lock, before the replica is locked.
#[derive(Debug)]
struct NoLock;

impl FileLock for NoLock {}

impl AsideFs {
    pub(super) fn new(inner: Arc<dyn Fs>, folder: &Path) -> Self {
        let (current, lock_path) = (FileName::Current.path(folder), FileName::Lock.path(folder));
        let lock = Mutex::new(Weak::<NoLock>::new() as Weak<dyn FileLock>);
        Self { inner, current, aside: folder.join(ASIDE), end: None, lock_path, lock }
    }

    /// Returns the file system of the files of refresh `generation`.
    pub(super) fn staged(&self, generation: u64) -> Self {
        let (inner, current) = (Arc::clone(&self.inner), self.current.clone());
        let end = staged_end(generation);
        let aside = self.current.with_added_extension(&end[1..]);
        let lock = Mutex::new(Weak::<NoLock>::new() as Weak<dyn FileLock>);
        Self { inner, current, aside, end: Some(end), lock_path: self.lock_path.clone(), lock }
    }

    /// Returns `true` if some files of refresh `generation` do not have their final names.
    pub(super) fn is_staged(&self, generation: u64) -> io::Result<bool> {
        self.inner.exists(&self.staged(generation).aside)
    }

    /// Renames the files of refresh `generation` to their final names, `CURRENT` last. `names` are
    /// those of the other files, without `CLOSED`. Replaces former files of the same names, and
    /// removes `unneeded` ones.
    pub(super) fn promote(
        &self,
        folder: &Path,
        generation: u64,
        names: &[&str],
        unneeded: &[&str],
    ) -> io::Result<()> {
        let end = staged_end(generation);
        for path in [&self.current, &self.aside, &FileName::Closed.path(folder)] {
            existing(self.inner.unlink(path))?;
        }
        for name in unneeded {
            existing(self.inner.unlink(&folder.join(name)))?;
        }
        let closed = FileName::Closed.to_string();
        for name in names.iter().copied().chain([&*closed]) {
            let path = folder.join(name);
            // Missing if an earlier call renamed the file. `CLOSED` may be missing.
            existing(self.inner.rename(&path.with_added_extension(&end[1..]), &path))?;
        }
        self.inner.sync_dir(folder)?;
        let staged = self.staged(generation).aside;
        match self.inner.rename(&staged, &self.aside) {
            // An earlier call reported an error after the rename.
            Err(error)
                if error.kind() == io::ErrorKind::NotFound && self.inner.exists(&self.aside)? => {}
            renamed => renamed?,
        }
        self.inner.sync_dir(folder)
    }

    /// Shares this lock with later opens while the caller holds it.
    pub(super) fn share(&self, lock: &Arc<dyn FileLock>) {
        *self.lock.lock() = Arc::downgrade(lock);
    }

    /// Returns `true` if the directory opens as a store.
    pub(super) fn is_complete(&self) -> io::Result<bool> {
        self.inner.exists(&self.current)
    }

    /// Renames `CURRENT` to its final name. Durable after a sync of the directory.
    pub(super) fn complete(&self) -> io::Result<()> {
        match self.inner.rename(&self.aside, &self.current) {
            // An earlier call reported an error after the rename.
            Err(error) if error.kind() == io::ErrorKind::NotFound && self.is_complete()? => Ok(()),
            renamed => renamed,
        }
    }

    /// Returns the path of a file until the replica is complete.
    fn at<'p>(&'p self, path: &'p Path) -> Cow<'p, Path> {
        if path == self.current {
            return Cow::Borrowed(&self.aside);
        }
        match (&self.end, FileName::of_path(path)) {
            (_, None | Some(FileName::Lock | FileName::Temporary(_))) | (None, _) => {
                Cow::Borrowed(path)
            }
            (Some(end), _) => Cow::Owned(path.with_added_extension(&end[1..])),
        }
    }

    /// Reads the file `path` by `read`.
    fn read<T>(&self, path: &Path, read: impl Fn(&Path) -> io::Result<T>) -> io::Result<T> {
        let falls_back = path == self.current && self.end.is_none();
        match read(&self.at(path)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && falls_back => read(path),
            done => done,
        }
    }
}

impl Fs for AsideFs {
    forward_fs! {
        absolute, resolve, create_dir, list, link, sync_dir, open_dir, lock,
        read_system_file, random_u64
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        Ok(self.inner.exists(&self.at(path))? || self.end.is_none() && self.inner.exists(path)?)
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn AppendFile>> {
        self.inner.create(&self.at(path))
    }

    fn open_append(&self, path: &Path) -> io::Result<Arc<dyn AppendFile>> {
        self.inner.open_append(&self.at(path))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn ReadFile>> {
        self.read(path, |path| self.inner.open(path))
    }

    fn open_direct(&self, path: &Path) -> io::Result<Arc<dyn ReadFile>> {
        self.read(path, |path| self.inner.open_direct(path))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.inner.rename(from, &self.at(to))
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        self.inner.unlink(&self.at(path))
    }

    fn lock_shared(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        let held = self.lock.lock().upgrade().filter(|_| path == self.lock_path);
        match held {
            Some(lock) => Ok(Box::new(SharedLock { _lock: lock })),
            None => self.inner.lock_shared(path),
        }
    }
}
