//! Options of a restore.

use crate::{Error, PointInTime, Result};

/// Default number of threads that fetch the files of a replica.
const FETCH_THREADS: usize = 4;

/// Maximum number of them.
const FETCH_THREADS_MAX: usize = 64;

/// Options of [`BackupSet::restore_with`](crate::BackupSet::restore_with). By default it restores
/// the newest backup with all of its [archived](crate::BackupSet::archive) log.
///
/// ```
/// use sievedb::RestoreOptions;
///
/// let options = RestoreOptions::new().to(4711).keyspaces(["users"]);
/// # let _ = options;
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RestoreOptions {
    pub(super) backup: Option<u64>,
    pub(super) to: Option<PointInTime>,
    pub(super) keyspaces: Option<Vec<String>>,
    fetch_threads: Option<usize>,
}

impl RestoreOptions {
    /// Returns the defaults.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Restores the backup `number`, and the log that was archived behind it only [to](Self::to) a
    /// point. Default: the newest backup that is not after the point. With a point, only backups of
    /// the same store as the newest one are considered.
    #[must_use]
    pub fn backup(mut self, number: u64) -> Self {
        self.backup = Some(number);
        self
    }

    /// Restores the last batch at or before a sequence number or a time, by the archived log.
    ///
    /// A time is that of the store clock, as of [`PointInTime::Time`]. Writes of up to a second, or
    /// of the interval of the archive, before it may be missing.
    #[must_use]
    pub fn to(mut self, point: impl Into<PointInTime>) -> Self {
        self.to = Some(point.into());
        self
    }

    /// Restores only the keyspaces with these names, as of the restored point. They keep their ids
    /// and options. The new store has an empty default keyspace if "default" is not among them.
    /// Tables of other keyspaces are not read. Files of the log are copied whole, with entries of
    /// other keyspaces, until the first flush.
    #[must_use]
    pub fn keyspaces<I>(mut self, names: I) -> Self
    where
        I: IntoIterator,
        I::Item: Into<String>,
    {
        self.keyspaces = Some(names.into_iter().map(Into::into).collect());
        self
    }

    /// Number of threads that fetch the files of a [replica](crate::BackupSet::open_replica), from
    /// 1 to 64; default 4. A restore uses none.
    ///
    /// Each thread fetches one file at a time, and uses up to 17 MiB of memory. More threads help
    /// where each request takes long or has a limited bandwidth.
    #[must_use]
    pub fn fetch_threads(mut self, threads: usize) -> Self {
        self.fetch_threads = Some(threads);
        self
    }

    /// Returns the number of threads that fetch.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`] if it is out of range.
    pub(super) fn checked_fetch_threads(&self) -> Result<usize> {
        match self.fetch_threads.unwrap_or(FETCH_THREADS) {
            threads @ 1..=FETCH_THREADS_MAX => Ok(threads),
            _ => Err(Error::InvalidOption { name: "fetch_threads", allowed: "from 1 to 64" }),
        }
    }
}
