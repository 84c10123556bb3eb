//! Restores a backup.

use std::{path::Path, sync::Arc};

use super::{Backup, BackupSet, wrong_content};
#[cfg(doc)]
use crate::Error;
use crate::{Result, store::checkpoint::target::Target};

impl BackupSet {
    /// Writes the backup `number` into a new store in the directory `to`, which must be missing or
    /// empty. Every file is compared with its checksum. The store is durable at return.
    ///
    /// # Errors
    ///
    /// The directory has no store then, and files of the failed call are removed.
    ///
    /// * [`Error::NoBackup`].
    /// * [`Error::Corrupt`]: a file of the backup is damaged or missing.
    /// * [`Error::NewerRelease`].
    /// * [`Error::DirectoryNotEmpty`], [`Error::NotADirectory`], [`Error::Locked`].
    /// * [`Error::DirectoriesOverlap`]: one directory is or contains the other.
    /// * [`Error::Io`].
    pub fn restore(&self, number: u64, to: impl AsRef<Path>) -> Result<Backup> {
        let record = self.record(number)?;
        let mut target = Target::create(Arc::clone(&self.fs), &self.path, to.as_ref())?;
        for file in &record.files {
            let (object, path) = self.open_object(file)?;
            let found = target.write(&file.name, &*object, &path, file.bytes)?;
            if found != file.digest[0] {
                return Err(wrong_content(&path, file.digest[0], found));
            }
        }
        let backup = record.backup(number);
        target.finish(record.state).map(|()| backup)
    }
}
