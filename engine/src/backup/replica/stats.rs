//! Statistics of a replica.

use crate::Error;

/// Progress of a [replica](super::Replica). Counters begin with its opening.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct ReplicaStats {
    /// Number of the backup; `None` for another store, which cannot be refreshed.
    pub backup: Option<u64>,
    /// All files have arrived, and the directory is a store without the backup set.
    pub is_complete: bool,
    /// Number of files that have not arrived: tables, filters and blob files.
    pub files_pending: u64,
    /// Length of these, in bytes.
    pub bytes_pending: u64,
    /// Number of files among these that are damaged or missing in the set. The next opening fetches
    /// them again.
    pub files_damaged: u64,
    /// Number of files that were fetched whole.
    pub files_fetched: u64,
    /// Length of these, in bytes.
    pub bytes_fetched: u64,
    /// Number of ranges that were read from the set: by the opening, and by reads of files that had
    /// not arrived.
    pub range_reads: u64,
    /// Length of these, in bytes.
    pub range_bytes: u64,
    /// The last error of a fetch, if no fetch has succeeded since or a file is damaged.
    pub error: Option<Error>,
}
