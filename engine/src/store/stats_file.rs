//! Writes the file `STATS` at intervals, which shows statistics to other processes.
//!
//! On a thread of its own: workers may be busy with a long compaction.

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

/// Thread that writes the file until it is dropped.
#[derive(Debug)]
pub(super) struct StatsWriter {
    end: Arc<End>,
    /// `None` once the thread has ended.
    thread: Option<JoinHandle<()>>,
}

/// Signal that ends the thread.
#[derive(Debug, Default)]
struct End {
    has_come: Mutex<bool>,
    comes: Condvar,
}

impl StatsWriter {
    /// Writes the file, and starts the thread, if the options of `store` have an interval.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if the thread cannot be started.
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
            // After a panic only statistics are missing.
            let _ = thread.join();
        }
    }
}

fn write_until(store: &Store, end: &End, interval: Duration) {
    let mut has_come = end.has_come.lock();
    while !*has_come {
        end.comes.wait_for(&mut has_come, interval);
        if !*has_come {
            // Statistics take locks, and a close waits for this one.
            drop(has_come);
            store.write_stats_file();
            has_come = end.has_come.lock();
        }
    }
}

impl Store {
    /// Replaces the file `STATS`. A failure is harmless: the next interval retries. A read-only
    /// store writes nothing.
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
