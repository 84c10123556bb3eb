//! Tells other processes what the store holds and did: writes the file `STATS` now and then.
//!
//! On a thread of its own: workers may be busy with a compaction for long, and then the figures are
//! wanted most.

use std::{io, sync::Arc, time::Duration};

use super::Store;
use crate::{
    Error, Result,
    file_name::FileName,
    stats::file,
    sync::{
        Condvar, Mutex,
        thread::{self, JoinHandle},
    },
};

/// Writes the file until it is dropped.
#[derive(Debug)]
pub(super) struct StatsWriter {
    end: Arc<End>,
    /// `None` once it has ended.
    thread: Option<JoinHandle<()>>,
}

/// That the thread is to end.
#[derive(Debug, Default)]
struct End {
    has_come: Mutex<bool>,
    comes: Condvar,
}

impl StatsWriter {
    /// Writes the file, and begins to do so again and again, if the options of `store` ask for it.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if there can be no thread.
    pub(super) fn start(store: &Arc<Store>) -> Result<Option<Self>> {
        let Some(interval) = store.options.stats_file_interval else { return Ok(None) };
        store.write_stats_file();
        let end = Arc::<End>::default();
        let (store_there, end_there) = (Arc::clone(store), Arc::clone(&end));
        let thread = thread::Builder::new().name("sievedb-stats".to_owned());
        let thread = thread.spawn(move || write_until(&store_there, &end_there, interval));
        let thread =
            thread.map_err(|error| Error::io("start a thread for", &store.tables.folder, error))?;
        Ok(Some(Self { end, thread: Some(thread) }))
    }

    /// Ends the thread and writes the last figures.
    pub(super) fn finish(self, store: &Store) {
        drop(self);
        store.write_stats_file();
    }
}

impl Drop for StatsWriter {
    fn drop(&mut self) {
        *self.end.has_come.lock() = true;
        self.end.comes.notify_all();
        if let Some(thread) = self.thread.take() {
            // It panicked: there are no figures, and that is all.
            let _ = thread.join();
        }
    }
}

fn write_until(store: &Store, end: &End, interval: Duration) {
    let mut has_come = end.has_come.lock();
    while !*has_come {
        end.comes.wait_for(&mut has_come, interval);
        if !*has_come {
            // Statistics take locks, and whoever closes the store waits for this one.
            drop(has_come);
            store.write_stats_file();
            has_come = end.has_come.lock();
        }
    }
}

impl Store {
    /// Writes the file `STATS` anew. A failure is no harm: the next time comes. A store that became
    /// read-only writes nothing.
    fn write_stats_file(&self) {
        if self.versions.check_writable().is_ok() {
            let _ = self.try_write_stats_file();
        }
    }

    fn try_write_stats_file(&self) -> io::Result<()> {
        let (fs, folder) = (&*self.options.fs, &*self.tables.folder);
        let temporary = FileName::Temporary("STATS").path(folder);
        // Left by an attempt that failed.
        match fs.unlink(&temporary) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let text = file::encode(&self.stats());
        fs.create(&temporary)?.append(text.as_bytes())?;
        fs.rename(&temporary, &FileName::Stats.path(folder))
    }
}
