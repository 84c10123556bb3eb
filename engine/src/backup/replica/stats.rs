//! Statistics of a replica.

use crate::Error;

/// Progress of a [replica](super::Replica). Counters begin at its open.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct ReplicaStats {
    /// Number of the backup; `None` for a store that is not a replica and cannot be refreshed.
    pub backup: Option<u64>,
    /// All files have been fetched: the store does not need the backup set.
    pub is_complete: bool,
    /// Number of files that have not been fetched: tables, filters and blob files.
    pub files_pending: u64,
    /// Length of these, in bytes.
    pub bytes_pending: u64,
    /// Number of these files that are damaged or missing in the set. The next open fetches them
    /// again.
    pub files_damaged: u64,
    /// Number of files that were fetched completely.
    pub files_fetched: u64,
    /// Length of these, in bytes.
    pub bytes_fetched: u64,
    /// Number of ranges read from the set: by the open, and by reads of files that had not been
    /// fetched.
    pub range_reads: u64,
    /// Length of these, in bytes.
    pub range_bytes: u64,
    /// The last error of a fetch, if no fetch has succeeded since or a file is damaged.
    pub error: Option<Error>,
}
