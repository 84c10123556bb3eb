//! Writes the file `STATS` at intervals, which shows statistics to other processes.
//!
//! On a thread of its own: workers may be busy with a long compaction.

use std::{io, sync::Arc};

use super::Store;
use crate::{Result, file_name::FileName, stats::file, store::interval_thread::IntervalThread};

/// Thread that writes the file until it is dropped.
#[derive(Debug)]
pub(super) struct StatsWriter(IntervalThread);

impl StatsWriter {
    /// Writes the file, and starts the thread, if the options of `store` have an interval.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if the thread cannot be started.
    pub(super) fn start(store: &Arc<Store>) -> Result<Option<Self>> {
        let Some(interval) = store.options.stats_file_interval else { return Ok(None) };
        store.write_stats_file();
        let thread =
            IntervalThread::start("sievedb-stats", store, interval, Store::write_stats_file)?;
        Ok(Some(Self(thread)))
    }

    /// Ends the thread and writes the last figures.
    pub(super) fn finish(self, store: &Store) {
        drop(self.0);
        store.write_stats_file();
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
