//! A file system with a limit on open files.

use std::{
    io,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
};

use bytes::Bytes;
use sievedb::fs::{AppendFile, DirHandle, Fs, ReadFile};

use crate::layer::{Layer, Layered};

const EMFILE: i32 = 24;

/// Counts open handles like the operating system counts descriptors of a process.
pub type HandleFs = Layered<Handles>;

/// The layer of [`HandleFs`].
#[derive(Debug)]
pub struct Handles {
    inner: Arc<dyn Fs>,
    state: Arc<State>,
}

#[derive(Debug)]
struct State {
    open: AtomicUsize,
    most: AtomicUsize,
    open_max: AtomicUsize,
}

/// An open file.
#[derive(Debug)]
struct Handle(Arc<State>);

impl Drop for Handle {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, SeqCst);
    }
}

impl HandleFs {
    /// Passes every call to `inner`, without a limit.
    #[must_use]
    pub fn new(inner: Arc<dyn Fs>) -> Self {
        let state = State {
            open: AtomicUsize::new(0),
            most: AtomicUsize::new(0),
            open_max: AtomicUsize::new(usize::MAX),
        };
        Self(Handles { inner, state: Arc::new(state) })
    }

    /// Makes calls that would open more than `open_max` files fail with `EMFILE`.
    pub fn limit(&self, open_max: usize) {
        self.0.state.open_max.store(open_max, SeqCst);
    }

    /// Returns the number of open files.
    #[must_use]
    pub fn open_files(&self) -> usize {
        self.0.state.open.load(SeqCst)
    }

    /// Returns the largest number of simultaneously open files.
    #[must_use]
    pub fn most_open_files(&self) -> usize {
        self.0.state.most.load(SeqCst)
    }
}

impl Handles {
    fn take(&self) -> io::Result<Handle> {
        let open = self.state.open.fetch_add(1, SeqCst) + 1;
        let handle = Handle(Arc::clone(&self.state));
        if open > self.state.open_max.load(SeqCst) {
            return Err(io::Error::from_raw_os_error(EMFILE));
        }
        self.state.most.fetch_max(open, SeqCst);
        Ok(handle)
    }
}

impl Layer for Handles {
    fn inner(&self) -> &dyn Fs {
        &*self.inner
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let _handle = self.take()?;
        self.inner.list(dir)
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn AppendFile>> {
        let _handle = self.take()?;
        Ok(Arc::new(Appending { inner: self.inner.create(path)?, _handle }))
    }

    fn open_append(&self, path: &Path) -> io::Result<Arc<dyn AppendFile>> {
        let _handle = self.take()?;
        Ok(Arc::new(Appending { inner: self.inner.open_append(path)?, _handle }))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn ReadFile>> {
        let _handle = self.take()?;
        Ok(Arc::new(Reading { inner: self.inner.open(path)?, _handle }))
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        let _handle = self.take()?;
        self.inner.sync_dir(path)
    }

    fn open_dir(&self, path: &Path) -> io::Result<Option<Box<dyn DirHandle>>> {
        let _handle = self.take()?;
        let inner = Arc::clone(&self.inner);
        Ok(Some(Box::new(OpenDir { inner, path: path.into(), _handle })))
    }
}

#[derive(Debug)]
struct Appending {
    inner: Arc<dyn AppendFile>,
    _handle: Handle,
}

impl AppendFile for Appending {
    fn append(&self, bytes: &[u8]) -> io::Result<()> {
        self.inner.append(bytes)
    }

    fn reserve(&self, file_bytes: u64) -> io::Result<()> {
        self.inner.reserve(file_bytes)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.inner.sync_data()
    }
}

#[derive(Debug)]
struct Reading {
    inner: Arc<dyn ReadFile>,
    _handle: Handle,
}

impl ReadFile for Reading {
    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.inner.read_at(buf, offset)
    }

    fn map(&self) -> io::Result<Bytes> {
        self.inner.map()
    }
}

#[derive(Debug)]
struct OpenDir {
    inner: Arc<dyn Fs>,
    path: Box<Path>,
    _handle: Handle,
}

impl DirHandle for OpenDir {
    fn sync(&self) -> io::Result<()> {
        self.inner.sync_dir(&self.path)
    }
}
