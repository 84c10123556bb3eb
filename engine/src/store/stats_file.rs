//! Writes the file `STATS`, which shows statistics to other processes.

use std::io;

use super::Store;
use crate::{file_name::FileName, fs::existing, stats::file};

impl Store {
    /// Replaces the file `STATS`. A failure is harmless: the next interval retries. Also of a store
    /// that became read-only, so that the file reports it.
    pub(super) fn write_stats_file(&self) {
        let _ = self.try_write_stats_file();
    }

    fn try_write_stats_file(&self) -> io::Result<()> {
        let (fs, folder) = (&*self.options.fs, &*self.tables.folder);
        let temporary = FileName::Temporary("STATS").path(folder);
        // Left by an attempt that failed.
        existing(fs.unlink(&temporary))?;
        let text = file::encode(&self.stats());
        fs.create(&temporary)?.append(text.as_bytes())?;
        fs.rename(&temporary, &FileName::Stats.path(folder))
    }
}
