//! A file system that leaves all syncs out: a planted bug.

use std::{io, path::Path, path::PathBuf, sync::Arc};

use sievedb::fs::{AppendFile, FileLock, Fs, ReadFile};

/// A file system whose syncs succeed and do nothing.
#[derive(Debug)]
pub struct NoSync {
    inner: Arc<dyn Fs>,
}

impl NoSync {
    /// Passes every call but the syncs on to `inner`.
    #[must_use]
    pub fn new(inner: Arc<dyn Fs>) -> Self {
        Self { inner }
    }
}

#[derive(Debug)]
struct NoSyncAppend {
    inner: Arc<dyn AppendFile>,
}

impl AppendFile for NoSyncAppend {
    fn append(&self, bytes: &[u8]) -> io::Result<()> {
        self.inner.append(bytes)
    }

    fn reserve(&self, file_bytes: u64) -> io::Result<()> {
        self.inner.reserve(file_bytes)
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }
}

impl Fs for NoSync {
    fn absolute(&self, path: &Path) -> io::Result<PathBuf> {
        self.inner.absolute(path)
    }

    fn create_folder(&self, path: &Path) -> io::Result<()> {
        self.inner.create_folder(path)
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        self.inner.list(folder)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.inner.exists(path)
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn AppendFile>> {
        Ok(Arc::new(NoSyncAppend { inner: self.inner.create(path)? }))
    }

    fn open_append(&self, path: &Path) -> io::Result<Arc<dyn AppendFile>> {
        Ok(Arc::new(NoSyncAppend { inner: self.inner.open_append(path)? }))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn ReadFile>> {
        self.inner.open(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.inner.rename(from, to)
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        self.inner.unlink(path)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.inner.link(from, to)
    }

    fn sync_folder(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        self.inner.lock(path)
    }

    fn lock_shared(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        self.inner.lock_shared(path)
    }

    fn random_u64(&self) -> io::Result<u64> {
        self.inner.random_u64()
    }
}
