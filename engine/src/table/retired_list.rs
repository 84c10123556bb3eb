//! A table without entries that lists the obsolete tables.
//!
//! Only a repair without a manifest reads it, see [`Completed`]. After a crash, any subset of the
//! unlinks of several tables may be durable. The remaining tables may hold values whose tombstones
//! were removed, or a part of the output of a failed compaction. So a durable file lists them
//! first. Usually that is the last table that a flush or compaction installs. The table without
//! entries replaces it for a compaction without output, a dropped keyspace, and tables that were
//! not installed. It is unlinked when the unlinks are durable.

use std::{io, path::PathBuf, time::Duration};

use sievedb_sstable::{Completed, TableIdentity, TableOptions, TableOrigin, TableWriter};

use super::store::TableStore;
use crate::{Result, file_name::FileName, fs::AppendFile};

impl TableStore {
    /// Unlinks at most `max` obsolete files, on one thread at a time. A failure to unlink one is
    /// harmless: the next flush retries.
    ///
    /// # Errors
    ///
    /// [`Error::Io`](crate::Error::Io) if the directory cannot be synced.
    pub(crate) fn unlink_obsolete(&self, max: usize) -> Result<()> {
        self.unlink_taken(self.obsolete_files.take(max))
    }

    /// Unlinks one obsolete file at the pace of [`UnlinkPace`](super::unlink_pace::UnlinkPace), at
    /// `now` by the clock of the options.
    ///
    /// # Errors
    ///
    /// As [`unlink_obsolete`](Self::unlink_obsolete).
    pub(crate) fn unlink_first_obsolete(&self, now: Duration) -> Result<()> {
        let Some(path) = self.obsolete_files.take_first() else { return Ok(()) };
        // Unknown if the file is missing or damaged.
        let bytes = self.fs.open(&path).and_then(|file| file.len()).unwrap_or(0);
        self.unlink_pace.note(bytes, now);
        self.unlink_taken(vec![path])
    }

    fn unlink_taken(&self, paths: Vec<PathBuf>) -> Result<()> {
        let is_listed = self.obsolete_files.needs_list(&paths) && self.list_retired()?;
        let is_blobs = |path: &PathBuf| matches!(FileName::of_path(path), Some(FileName::Blobs(_)));
        let (blobs, others): (Vec<_>, Vec<_>) = paths.into_iter().partition(is_blobs);
        self.obsolete_files.unlink(&*self.fs, others);
        if !blobs.is_empty() && self.obsolete_files.has_unlinked_logs() {
            // A repair without a manifest ends at a log segment whose values are missing.
            self.sync_dir()?;
        }
        self.obsolete_files.unlink(&*self.fs, blobs);
        if is_listed {
            self.sync_dir()?;
        }
        if let Some(list) = self.obsolete_files.take_unneeded_list() {
            let _ = self.fs.unlink(&list);
        }
        Ok(())
    }

    /// Makes a list of all retired tables durable before some are unlinked. Returns `false` if the
    /// list cannot be written: a full disk must not prevent the unlinks.
    fn list_retired(&self) -> Result<bool> {
        let retired = self.obsolete_files.retired();
        let id = self.new_file_id();
        let path = FileName::Table(id).path(&self.folder);
        // Not this file if it cannot be created.
        let Ok(file) = self.fs.create(&path) else { return Ok(false) };
        if self.write_list(id, &*file, retired.clone()).is_err() {
            let _ = self.fs.unlink(&path);
            return Ok(false);
        }
        self.sync_dir()?;
        if let Some(before) = self.obsolete_files.set_list(path, &retired) {
            let _ = self.fs.unlink(&before);
        }
        Ok(true)
    }

    fn write_list(&self, id: u64, file: &dyn AppendFile, replaced: Vec<u64>) -> io::Result<()> {
        let (store_id, hash_seed, salt) = (self.store_id, self.hash_seed, self.fs.random_u64()?);
        let identity = TableIdentity { store_id, file_id: id, salt, hash_seed };
        let mut writer = TableWriter::new(Vec::new(), identity, TableOptions::new())?;
        let completed = Some(Completed { flushed: 0, replaced });
        writer.set_origin(TableOrigin { completed, ..TableOrigin::default() });
        let (bytes, _) = writer.finish()?;
        file.append(&bytes)?;
        file.sync_data()
    }
}
