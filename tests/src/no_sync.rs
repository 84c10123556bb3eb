//! A file system that skips all syncs: a planted bug.

use std::{io, path::Path, sync::Arc};

use sievedb::fs::{AppendFile, Fs};

use crate::layer::{Layer, Layered};

/// A file system whose syncs succeed without effect.
pub type NoSync = Layered<NoSyncs>;

/// The layer of [`NoSync`].
#[derive(Debug)]
pub struct NoSyncs {
    inner: Arc<dyn Fs>,
}

impl NoSync {
    /// Passes every call except syncs to `inner`.
    #[must_use]
    pub fn new(inner: Arc<dyn Fs>) -> Self {
        Self(NoSyncs { inner })
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
        Ok(Arc::new(NoSyncAppend { inner: self.inner.create(path)? }))
    }

    fn open_append(&self, path: &Path) -> io::Result<Arc<dyn AppendFile>> {
        Ok(Arc::new(NoSyncAppend { inner: self.inner.open_append(path)? }))
    }

    fn sync_dir(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }
}
