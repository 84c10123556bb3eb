//! A file system that nobody can change anything through.
//!
//! A store that is opened read-only has no other way to its files: that it writes nothing does not
//! hang on each place that might.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{AppendFile, FileLock, Fs, ReadFile};

/// Another file system without the calls that change something: they fail with `ReadOnlyFilesystem`
/// and do not reach it.
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

    fn create_folder(&self, _: &Path) -> io::Result<()> {
        refused()
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        self.inner.list(folder)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.inner.exists(path)
    }

    fn create(&self, _: &Path) -> io::Result<Arc<dyn AppendFile>> {
        refused()
    }

    /// A handle that refuses each call: the store has its manifest open as ever, and appends
    /// nothing.
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

    fn sync_folder(&self, _: &Path) -> io::Result<()> {
        refused()
    }

    /// It would create the file.
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

/// A file that nothing can be appended to.
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
