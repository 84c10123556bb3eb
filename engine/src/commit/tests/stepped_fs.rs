//! An in-memory disk whose calls take time: other threads may run before and after their effect.

use std::{
    io,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
};

use crate::{
    fs::{AppendFile, FaultFs, FileLock, Fs, MemoryFs, ReadFile},
    sync::atomic::AtomicU64,
};

/// A [`MemoryFs`] under a [`FaultFs`] in which every change is a step of the schedule.
///
/// [`FaultFs`] makes nothing durable after a failed sync of a file, so a crash of `memory` detects
/// reliance on a retry.
#[derive(Debug)]
pub(super) struct SteppedFs {
    pub(super) memory: Arc<MemoryFs>,
    pub(super) faults: FaultFs,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    steps: AtomicU64,
    /// Bytes of failed appends.
    refused: Mutex<Vec<u8>>,
}

impl Shared {
    /// Yields to other threads.
    fn step(&self) {
        self.steps.fetch_add(1, SeqCst);
    }
}

impl SteppedFs {
    pub(super) fn new() -> Self {
        let memory = Arc::new(MemoryFs::new());
        let faults = FaultFs::new(Arc::clone(&memory) as Arc<dyn Fs>);
        Self { memory, faults, shared: Arc::default() }
    }

    /// Returns the bytes of failed appends.
    pub(super) fn refused(&self) -> Vec<u8> {
        self.shared.refused.lock().unwrap().clone()
    }
}

impl Fs for SteppedFs {
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.faults.create_dir(path)
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        self.faults.list(folder)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.faults.exists(path)
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn AppendFile>> {
        self.shared.step();
        let inner = self.faults.create(path)?;
        let shared = Arc::clone(&self.shared);
        Ok(Arc::new(SteppedAppend { inner, shared, appending: AtomicBool::new(false) }))
    }

    fn open_append(&self, path: &Path) -> io::Result<Arc<dyn AppendFile>> {
        self.shared.step();
        let inner = self.faults.open_append(path)?;
        let shared = Arc::clone(&self.shared);
        Ok(Arc::new(SteppedAppend { inner, shared, appending: AtomicBool::new(false) }))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn ReadFile>> {
        self.faults.open(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.shared.step();
        self.faults.rename(from, to)
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        self.shared.step();
        self.faults.unlink(path)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.faults.link(from, to)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.shared.step();
        self.faults.sync_dir(path)?;
        self.shared.step();
        Ok(())
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        self.faults.lock(path)
    }

    fn lock_shared(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        self.faults.lock_shared(path)
    }

    fn random_u64(&self) -> io::Result<u64> {
        self.faults.random_u64()
    }
}

#[derive(Debug)]
struct SteppedAppend {
    inner: Arc<dyn AppendFile>,
    shared: Arc<Shared>,
    appending: AtomicBool,
}

impl AppendFile for SteppedAppend {
    fn append(&self, bytes: &[u8]) -> io::Result<()> {
        assert!(!self.appending.swap(true, SeqCst), "two appends to one file at a time");
        self.shared.step();
        let appended = self.inner.append(bytes);
        if appended.is_err() {
            self.shared.refused.lock().unwrap().extend_from_slice(bytes);
        }
        self.shared.step();
        self.appending.store(false, SeqCst);
        appended
    }

    fn reserve(&self, file_bytes: u64) -> io::Result<()> {
        assert!(!self.appending.swap(true, SeqCst), "no append beside a reservation");
        self.shared.step();
        let reserved = self.inner.reserve(file_bytes);
        self.shared.step();
        self.appending.store(false, SeqCst);
        reserved
    }

    fn sync_data(&self) -> io::Result<()> {
        self.shared.step();
        // Does not cover appends during the sync.
        let synced = self.inner.sync_data();
        self.shared.step();
        synced
    }
}
