//! A file system that rejects all writes.
//!
//! A read-only store has no other access to its files, so no call site can write by mistake.

use std::{io, path::Path, sync::Arc};

use super::{AppendFile, FileLock, Fs, forward_fs};

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
    forward_fs! {
        absolute, resolve, list, exists, open, open_direct, lock_shared, read_system_file,
        random_u64
    }

    fn create_dir(&self, _: &Path) -> io::Result<()> {
        refused()
    }

    fn create(&self, _: &Path) -> io::Result<Arc<dyn AppendFile>> {
        refused()
    }

    /// The store always opens its manifest for appending; the handle rejects each call.
    fn open_append(&self, _: &Path) -> io::Result<Arc<dyn AppendFile>> {
        Ok(Arc::new(RefusingFile))
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
