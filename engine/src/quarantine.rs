//! Quarantined tables, as reported to callers.

#[cfg(feature = "serde")]
use std::path::Path;
use std::{fmt, path::PathBuf};

#[cfg(doc)]
use crate::Error;
use crate::text::bytes;

/// A table that a compaction could not read, in whole or in part.
///
/// Compactions do not read it until [`Db::verify`](crate::Db::verify) finds no damage except to its
/// filters, a caller calls [`Db::compact`](crate::Db::compact), or the store is reopened. After
/// read errors they also retry on their own: first after 10 s, then after twice as long each time,
/// up to 85 minutes.
///
/// Lookups and scans are not affected. Those that need a block that cannot be read fail with
/// [`Error::Corrupt`] or [`Error::Io`]; others succeed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct QuarantinedTable {
    /// Keyspace of the table.
    pub keyspace: String,
    /// Number of the table, as in its file name.
    pub table_id: u64,
    /// File of the table.
    #[cfg_attr(feature = "serde", serde(serialize_with = "displayed"))]
    pub path: PathBuf,
    /// Level of the table, from 0 to 6.
    pub level: u8,
    /// Length of the file, in bytes.
    pub bytes: u64,
    /// Error of the compaction, with its cause.
    pub reason: String,
}

/// Serializes a path as text. A path that is not UTF-8 would be an error.
#[cfg(feature = "serde")]
fn displayed<S: serde::Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&path.display())
}

impl fmt::Display for QuarantinedTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { keyspace, path, level, reason, .. } = self;
        let (size, path) = (bytes(self.bytes), path.display());
        write!(f, "quarantined: {path} ({size}, level {level}, keyspace {keyspace:?}): {reason}")
    }
}
