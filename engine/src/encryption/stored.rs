//! Files in their stored form: encrypted, if the store is.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use super::Keys;
use crate::fs::{Fs, ReadFile};

/// A file system with the files of a store, in logical and stored form.
#[derive(Debug, Clone)]
pub(crate) struct StoredFs {
    /// Files in stored form.
    fs: Arc<dyn Fs>,
    #[cfg(feature = "encryption")]
    encrypted: Option<Arc<super::EncryptedFs>>,
}

impl StoredFs {
    /// `repeats_nonces` is a planted bug.
    #[cfg(feature = "encryption")]
    pub(crate) fn new(fs: Arc<dyn Fs>, keys: Option<&Keys>, repeats_nonces: bool) -> Self {
        let encrypted = keys.map(|keys| {
            Arc::new(super::EncryptedFs::new(Arc::clone(&fs), Arc::clone(keys), repeats_nonces))
        });
        Self { fs, encrypted }
    }

    /// `repeats_nonces` is a planted bug.
    #[cfg(not(feature = "encryption"))]
    pub(crate) fn new(fs: Arc<dyn Fs>, _: Option<&Keys>, _: bool) -> Self {
        Self { fs }
    }

    /// Returns the file system of logical files.
    pub(crate) fn logical(&self) -> Arc<dyn Fs> {
        #[cfg(feature = "encryption")]
        if let Some(encrypted) = &self.encrypted {
            return Arc::clone(encrypted) as Arc<dyn Fs>;
        }
        Arc::clone(&self.fs)
    }

    /// Returns the file system that encrypts, if the store is encrypted.
    #[cfg(feature = "encryption")]
    pub(crate) fn encrypted(&self) -> Option<&super::EncryptedFs> {
        self.encrypted.as_deref()
    }

    /// Returns the file system of stored files.
    pub(crate) fn stored(&self) -> &Arc<dyn Fs> {
        &self.fs
    }

    /// Opens the stored file `path`. Also returns the stored length of its first `bytes` logical
    /// bytes, or of the whole file. An encrypted file may have more bytes after the captured ones.
    ///
    /// # Errors
    ///
    /// Errors of the file system, and of the keys.
    pub(crate) fn open(
        &self,
        path: &Path,
        bytes: Option<u64>,
    ) -> io::Result<(Arc<dyn ReadFile>, u64)> {
        let file = self.fs.open(path)?;
        #[cfg(feature = "encryption")]
        if let (Some(encrypted), Some(bytes)) = (&self.encrypted, bytes) {
            // Uses the open file, because a new file may have replaced the path.
            let stored = encrypted.stored_bytes(Arc::clone(&file), bytes)?;
            return Ok((file, stored));
        }
        let stored = bytes.map_or_else(|| file.len(), Ok)?;
        Ok((file, stored))
    }

    /// Returns `true` if stored files are encrypted.
    pub(crate) const fn is_encrypted(&self) -> bool {
        #[cfg(feature = "encryption")]
        {
            self.encrypted.is_some()
        }
        #[cfg(not(feature = "encryption"))]
        {
            false
        }
    }

    /// Checks the keys for the store in `folder`. Writes nothing.
    ///
    /// # Errors
    ///
    /// The file, and the reason.
    pub(crate) fn check(&self, folder: &Path) -> Result<(), (PathBuf, io::Error)> {
        #[cfg(feature = "encryption")]
        if let Some(encrypted) = &self.encrypted {
            return encrypted.check(folder);
        }
        let _ = folder;
        Ok(())
    }
}
