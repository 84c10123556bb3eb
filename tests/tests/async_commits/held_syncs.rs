//! A file system whose syncs of the log can be held.

use std::{
    io,
    path::Path,
    sync::{Arc, Condvar, Mutex},
};

use sievedb::fs::{AppendFile, Fs};
use sievedb_doubles::MemoryFs;
use sievedb_tests::layer::{Layer, Layered};

/// A disk in memory whose syncs of the log wait while a [`Hold`] exists.
pub(super) type HeldSyncs = Layered<Held>;

#[derive(Debug)]
pub(super) struct Held {
    pub(super) disk: Arc<MemoryFs>,
    gate: Arc<Gate>,
}

#[derive(Debug, Default)]
struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    is_held: bool,
    waiting: usize,
    syncs: usize,
}

/// Holds all syncs of the log until it is dropped.
#[derive(Debug)]
pub(super) struct Hold(Arc<Gate>);

impl Hold {
    /// Waits until a sync is held.
    pub(super) fn wait_for_sync(&self) {
        let mut state = self.0.state.lock().unwrap();
        while state.waiting == 0 {
            state = self.0.changed.wait(state).unwrap();
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.0.state.lock().unwrap().is_held = false;
        self.0.changed.notify_all();
    }
}

pub(super) fn held_syncs() -> Arc<HeldSyncs> {
    Arc::new(Layered(Held { disk: Arc::default(), gate: Arc::default() }))
}

impl Held {
    pub(super) fn hold(&self) -> Hold {
        self.gate.state.lock().unwrap().is_held = true;
        Hold(Arc::clone(&self.gate))
    }

    /// Returns the number of syncs of the log so far.
    pub(super) fn syncs(&self) -> usize {
        self.gate.state.lock().unwrap().syncs
    }

    fn wrap(&self, path: &Path, inner: Arc<dyn AppendFile>) -> Arc<dyn AppendFile> {
        if path.extension().is_none_or(|extension| extension != "log") {
            return inner;
        }
        Arc::new(HeldFile { inner, gate: Arc::clone(&self.gate) })
    }
}

impl Layer for Held {
    fn inner(&self) -> &dyn Fs {
        &*self.disk
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn AppendFile>> {
        Ok(self.wrap(path, self.disk.create(path)?))
    }

    fn open_append(&self, path: &Path) -> io::Result<Arc<dyn AppendFile>> {
        Ok(self.wrap(path, self.disk.open_append(path)?))
    }
}

#[derive(Debug)]
struct HeldFile {
    inner: Arc<dyn AppendFile>,
    gate: Arc<Gate>,
}

impl AppendFile for HeldFile {
    fn append(&self, bytes: &[u8]) -> io::Result<()> {
        self.inner.append(bytes)
    }

    fn reserve(&self, file_bytes: u64) -> io::Result<()> {
        self.inner.reserve(file_bytes)
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut state = self.gate.state.lock().unwrap();
        state.waiting += 1;
        self.gate.changed.notify_all();
        while state.is_held {
            state = self.gate.changed.wait(state).unwrap();
        }
        state.waiting -= 1;
        state.syncs += 1;
        drop(state);
        self.inner.sync_data()
    }
}
