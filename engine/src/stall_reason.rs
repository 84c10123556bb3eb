//! Reasons for the delay of a write.

use std::fmt;

/// The background work that a write would wait for: see
/// [`Error::WouldStall`](crate::Error::WouldStall).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StallReason {
    /// Memtables take most of their memory
    /// ([`Options::memtable_bytes_max`](crate::Options::memtable_bytes_max)) until flushes free it.
    MemtableMemory,
    /// The keyspace has too many memtables to flush.
    Flushes,
    /// Level 0 of the keyspace has too many sorted runs.
    Level0,
    /// Deeper levels of the keyspace have too many bytes to compact.
    Compactions,
    /// The store has more tables than its memory budget allows, and merges make them fewer.
    Tables,
    /// Ingested tables are being added to the keyspace, after a flush: see
    /// [`Keyspace::ingest`](crate::Keyspace::ingest).
    Ingest,
}

impl fmt::Display for StallReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::MemtableMemory => "memtables wait for flushes to free memory",
            Self::Flushes => "the keyspace has too many memtables to flush",
            Self::Level0 => "level 0 of the keyspace has too many sorted runs",
            Self::Compactions => "the keyspace has too many bytes to compact",
            Self::Tables => "the store has too many tables to merge",
            Self::Ingest => "ingested tables are added to the keyspace",
        })
    }
}
