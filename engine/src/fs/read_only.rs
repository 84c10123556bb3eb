//! A file system that rejects all writes.
//!
//! A read-only store has no other access to its files, so no call site can write by mistake.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{AppendFile, FileLock, Fs, ReadFile};

/// Forwards reads. Writes fail with `ReadOnlyFilesystem` and do not reach the inner file system.
#[derive(Debug)]
pub(crate) struct ReadOnlyFs {
    inner: Arc<dyn Fs>,
}

impl ReadOnlyFs {
    pub(crate) fn new(inner: Arc<dyn Fs>) -> Self {
        Self { inner }
    }
}

fn refused<T>() -> io::Result<T> {
    Err(io::ErrorKind::ReadOnlyFilesystem.into())
}

impl Fs for ReadOnlyFs {
    fn absolute(&self, path: &Path) -> io::Result<PathBuf> {
        self.inner.absolute(path)
    }

    fn resolve(&self, path: &Path) -> io::Result<PathBuf> {
        self.inner.resolve(path)
    }

    fn create_dir(&self, _: &Path) -> io::Result<()> {
        refused()
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.inner.list(dir)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.inner.exists(path)
    }

    fn create(&self, _: &Path) -> io::Result<Arc<dyn AppendFile>> {
        refused()
    }

    /// The store always opens its manifest for appending; the handle rejects each call.
    fn open_append(&self, _: &Path) -> io::Result<Arc<dyn AppendFile>> {
        Ok(Arc::new(RefusingFile))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn ReadFile>> {
        self.inner.open(path)
    }

    fn open_direct(&self, path: &Path) -> io::Result<Arc<dyn ReadFile>> {
        self.inner.open_direct(path)
    }

    fn rename(&self, _: &Path, _: &Path) -> io::Result<()> {
        refused()
    }

    fn unlink(&self, _: &Path) -> io::Result<()> {
        refused()
    }

    fn link(&self, _: &Path, _: &Path) -> io::Result<()> {
        refused()
    }

    fn sync_dir(&self, _: &Path) -> io::Result<()> {
        refused()
    }

    /// A lock would create the file.
    fn lock(&self, _: &Path) -> io::Result<Box<dyn FileLock>> {
        refused()
    }

    fn lock_shared(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        self.inner.lock_shared(path)
    }

    fn read_system_file(&self, path: &Path) -> io::Result<String> {
        self.inner.read_system_file(path)
    }

    fn random_u64(&self) -> io::Result<u64> {
        self.inner.random_u64()
    }
}

#[derive(Debug)]
struct RefusingFile;

impl AppendFile for RefusingFile {
    fn append(&self, _: &[u8]) -> io::Result<()> {
        refused()
    }

    fn reserve(&self, _: u64) -> io::Result<()> {
        refused()
    }

    fn sync_data(&self) -> io::Result<()> {
        refused()
    }
}
