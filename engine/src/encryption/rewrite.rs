//! Rewrites a file with the current root key.

use std::{io, path::Path};

use super::{envelope::Head, fs::EncryptedFs};
use crate::{
    file_name::FileName,
    fs::{Fs, ReadFile},
    sync::MutexGuard,
};

/// Logical bytes copied at once.
const PART_BYTES: u64 = 256 << 10;

/// The result of [`Db::reencrypt`](crate::Db::reencrypt).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reencryption {
    /// Number of tables, filters and log segments that were rewritten.
    pub files_rewritten: u64,
    /// Logical length of these files, in bytes.
    pub bytes_rewritten: u64,
    /// Ids of the root keys that files of the store still use, ascending: usually only the current
    /// one. Other keys can be destroyed, unless backups or checkpoints need them.
    pub key_ids: Vec<u64>,
}

impl EncryptedFs {
    /// Excludes other rewrites until the guard is dropped.
    pub(crate) fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock()
    }

    /// Returns the id of the root key of new files.
    ///
    /// # Errors
    ///
    /// [`NoKey`](super::EncryptionError::NoKey).
    pub(crate) fn current_key_id(&self) -> io::Result<u64> {
        let no_key = |source| super::EncryptionError::NoKey { id: 0, source };
        Ok(self.keys.current_key_id().map_err(no_key)?)
    }

    /// Returns the id of the root key of the file `path`; `None` if its head is damaged.
    ///
    /// # Errors
    ///
    /// Errors of the file system and of the head.
    pub(crate) fn key_id(&self, path: &Path) -> io::Result<Option<u64>> {
        Ok(Head::read(&*self.inner.open(path)?)?.map(|head| head.key_id))
    }

    /// Replaces the stored file `path`, which gets no more appends, by one encrypted with the
    /// current root key. The new file is durable, its name after a sync of the directory. Returns
    /// the logical length. `is_cancelled` is called before each part is copied.
    ///
    /// # Errors
    ///
    /// The failed operation, and errors of the file system and of the file. The old file then
    /// stays.
    pub(crate) fn rewrite(
        &self,
        path: &Path,
        is_cancelled: &dyn Fn() -> bool,
    ) -> Result<u64, (&'static str, io::Error)> {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let new = FileName::Temporary(name).path(path.parent().unwrap_or(Path::new("")));
        let read = |error| ("read", error);
        let file = self.open_undamaged(path).map_err(read)?;
        let bytes = self.bytes_of(path, &*file).map_err(read)?;
        match self.unlink(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(("remove a temporary file of", error));
            }
            _ => {}
        }
        let written = self.write_again(&*file, &new, bytes, is_cancelled);
        let renamed =
            written.and_then(|()| self.rename(&new, path).map_err(|error| ("rename to", error)));
        if renamed.is_err() {
            let _ = self.unlink(&new);
        }
        renamed.map(|()| bytes)
    }

    fn write_again(
        &self,
        file: &dyn ReadFile,
        new: &Path,
        bytes: u64,
        is_cancelled: &dyn Fn() -> bool,
    ) -> Result<(), (&'static str, io::Error)> {
        let copy = self.create(new).map_err(|error| ("create a copy of", error))?;
        let mut part = vec![0; bytes.min(PART_BYTES) as usize];
        let mut offset = 0;
        while offset < bytes {
            if is_cancelled() {
                return Err(("copy", io::ErrorKind::Interrupted.into()));
            }
            let part = &mut part[..(bytes - offset).min(PART_BYTES) as usize];
            file.read_at(part, offset).map_err(|error| ("read", error))?;
            copy.append(part).map_err(|error| ("append to a copy of", error))?;
            offset += part.len() as u64;
        }
        copy.sync_data().map_err(|error| ("sync a copy of", error))
    }
}
