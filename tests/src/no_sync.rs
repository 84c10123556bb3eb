//! A file system that skips syncs: a planted bug.

use std::{io, path::Path, sync::Arc};

use sievedb::fs::{AppendFile, Fs};

use crate::layer::{Layer, Layered};

/// A file system whose syncs succeed without effect.
pub type NoSync = Layered<NoSyncs>;

/// The layer of [`NoSync`].
#[derive(Debug)]
pub struct NoSyncs {
    inner: Arc<dyn Fs>,
    /// End of the names of the files that are not synced; empty for all files and directories.
    suffix: &'static str,
}

impl NoSync {
    /// Passes every call except syncs to `inner`.
    #[must_use]
    pub fn new(inner: Arc<dyn Fs>) -> Self {
        Self::of_files(inner, "")
    }

    /// Passes every call to `inner`, except syncs of files whose names end so.
    #[must_use]
    pub fn of_files(inner: Arc<dyn Fs>, suffix: &'static str) -> Self {
        Self(NoSyncs { inner, suffix })
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

impl Layer for NoSyncs {
    fn inner(&self) -> &dyn Fs {
        &*self.inner
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn AppendFile>> {
        let inner = self.inner.create(path)?;
        match path.to_str().is_some_and(|path| path.ends_with(self.suffix)) {
            true => Ok(Arc::new(NoSyncAppend { inner })),
            false => Ok(inner),
        }
    }

    fn open_append(&self, path: &Path) -> io::Result<Arc<dyn AppendFile>> {
        let inner = self.inner.open_append(path)?;
        match path.to_str().is_some_and(|path| path.ends_with(self.suffix)) {
            true => Ok(Arc::new(NoSyncAppend { inner })),
            false => Ok(inner),
        }
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        if self.suffix.is_empty() { Ok(()) } else { self.inner.sync_dir(path) }
    }
}
