//! Rotation of root keys.

use super::Db;
use crate::{Reencryption, Result};

impl Db {
    /// Rewrites all files of the store that do not use the current root key of the [key
    /// provider](crate::Options::encryption). Reports the keys that files still use.
    ///
    /// Flushes all memtables. Reads each such file and writes it once, without compaction. Does
    /// nothing if all files use the current key. Runs on the calling thread; other threads can read
    /// and write. Repeat the call after an error or an interruption.
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
