//! Rotation of root keys.

use super::Db;
use crate::{Reencryption, Result};

impl Db {
    /// Rewrites all files that are encrypted by other root keys than the current one of the
    /// [key provider](crate::Options::encryption), and reports the keys that files still use.
    ///
    /// Flushes all memtables. Reads and decrypts each such file, and writes it once; nothing is
    /// compacted. Does nothing if all files use the current key. Runs on the calling thread; other
    /// threads read and write meanwhile. Repeat it after an error or an interruption.
    ///
    /// Checkpoints and backups keep their keys.
    ///
    /// # Errors
    ///
    /// * [`Error::NotEncrypted`](crate::Error::NotEncrypted).
    /// * [`Error::NoKey`](crate::Error::NoKey), [`Error::WrongKey`](crate::Error::WrongKey).
    /// * [`Error::Corrupt`](crate::Error::Corrupt): a file is damaged, and was left as it is.
    /// * [`Error::Io`](crate::Error::Io), [`Error::ReadOnly`](crate::Error::ReadOnly),
    ///   [`Error::Closed`](crate::Error::Closed),
    ///   [`Error::ForkedChild`](crate::Error::ForkedChild).
    pub fn reencrypt(&self) -> Result<Reencryption> {
        self.default.open_store().accept()?.reencrypt()
    }
}
