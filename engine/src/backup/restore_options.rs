//! Options of a restore.

use crate::{Error, PointInTime, Result};

/// Default number of threads that fetch the files of a replica.
const FETCH_THREADS: usize = 4;

/// Maximum number of threads that fetch the files of a replica.
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

    /// Restores the backup `number`. The log archived after it is restored only if a point is set
    /// by [`to`](Self::to). Default: the newest backup that is not after the point. With a point,
    /// only backups of the same store as the newest one are considered.
    #[must_use]
    pub fn backup(mut self, number: u64) -> Self {
        self.backup = Some(number);
        self
    }

    /// Restores all batches up to a sequence number or a time, from the archived log.
    ///
    /// A time is one of the [store clock](crate::Db::store_time), which may differ from Unix time.
    /// Writes may be missing for up to a second before it, or for the interval of the archive.
    ///
    /// An open of the restored store moves its clock forward to the wall clock: values that have
    /// expired by then are absent, and compactions drop them. To read values that had not expired
    /// at the point, open the store with a [clock](crate::Options::clock) that is at the point.
    #[must_use]
    pub fn to(mut self, point: impl Into<PointInTime>) -> Self {
        self.to = Some(point.into());
        self
    }

    /// Restores only the keyspaces that have these names at the restored point. They keep their ids
    /// and options. The new store has an empty default keyspace if "default" is not among them.
    /// Tables of other keyspaces are not read. Until the first flush, the log contains entries of
    /// other keyspaces.
    #[must_use]
    pub fn keyspaces<I>(mut self, names: I) -> Self
    where
        I: IntoIterator,
        I::Item: Into<String>,
    {
        self.keyspaces = Some(names.into_iter().map(Into::into).collect());
        self
    }

    /// Number of threads that fetch the files of a [replica](crate::BackupSet::open_replica). A
    /// restore uses none.
    ///
    /// Each thread fetches one file at a time, and uses up to 17 MiB of memory. More threads help
    /// if requests have a high latency or a limited bandwidth each.
    ///
    /// From 1 to 64; default 4.
    #[must_use]
    pub fn fetch_threads(mut self, threads: usize) -> Self {
        self.fetch_threads = Some(threads);
        self
    }

    /// Returns the validated number of fetch threads.
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
