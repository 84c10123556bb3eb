//! A file system that calls a function before it creates a file.

use std::{fmt, io, path::Path, sync::Arc};

use sievedb::fs::{AppendFile, FileLock, Fs, MemoryFs, ReadFile};

/// Passes every call on to a disk in memory, and calls a function before each
/// [`create`](Fs::create). The function may use the store: the engine holds no lock while it
/// creates a table.
pub struct HookFs<F> {
    disk: MemoryFs,
    before_create: F,
}

impl<F: Fn(&Path) + Send + Sync> HookFs<F> {
    /// Calls `before_create` with the path of each new file.
    #[must_use]
    pub fn new(before_create: F) -> Self {
        Self { disk: MemoryFs::new(), before_create }
    }
}

impl<F> fmt::Debug for HookFs<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HookFs").finish_non_exhaustive()
    }
}

impl<F: Fn(&Path) + Send + Sync> Fs for HookFs<F> {
    fn create_folder(&self, path: &Path) -> io::Result<()> {
        self.disk.create_folder(path)
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        self.disk.list(folder)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.disk.exists(path)
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn AppendFile>> {
        (self.before_create)(path);
        self.disk.create(path)
    }

    fn open_append(&self, path: &Path) -> io::Result<Arc<dyn AppendFile>> {
        self.disk.open_append(path)
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn ReadFile>> {
        self.disk.open(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        self.disk.unlink(path)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk.link(from, to)
    }

    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        self.disk.sync_folder(path)
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        self.disk.lock(path)
    }

    fn lock_shared(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        self.disk.lock_shared(path)
    }

    fn random_u64(&self) -> io::Result<u64> {
        self.disk.random_u64()
    }
}
