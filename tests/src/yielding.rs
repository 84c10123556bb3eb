//! A file system that lets other threads run during writes, so that more of them are in flight.

use std::{io, path::Path, sync::Arc, thread};

use sievedb::fs::{AppendFile, Fs};

use crate::layer::{Layer, Layered};

/// A file system that yields in each append and sync.
pub type Yielding = Layered<Yields>;

/// The layer of [`Yielding`].
#[derive(Debug)]
pub struct Yields {
    inner: Arc<dyn Fs>,
}

impl Yielding {
    /// Passes every call to `inner`.
    #[must_use]
    pub fn new(inner: Arc<dyn Fs>) -> Self {
        Self(Yields { inner })
    }
}

#[derive(Debug)]
struct YieldingAppend {
    inner: Arc<dyn AppendFile>,
}

impl AppendFile for YieldingAppend {
    fn append(&self, bytes: &[u8]) -> io::Result<()> {
        thread::yield_now();
        self.inner.append(bytes)
    }

    fn reserve(&self, file_bytes: u64) -> io::Result<()> {
        self.inner.reserve(file_bytes)
    }

    fn sync_data(&self) -> io::Result<()> {
        thread::yield_now();
        self.inner.sync_data()
    }
}

impl Layer for Yields {
    fn inner(&self) -> &dyn Fs {
        &*self.inner
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn AppendFile>> {
        Ok(Arc::new(YieldingAppend { inner: self.inner.create(path)? }))
    }

    fn open_append(&self, path: &Path) -> io::Result<Arc<dyn AppendFile>> {
        Ok(Arc::new(YieldingAppend { inner: self.inner.open_append(path)? }))
    }
}
