//! Steps of a lookup.

mod text;

/// The steps of a lookup of one key, from the newest memtable to the oldest table.
/// [`Keyspace::explain`](crate::Keyspace::explain) returns it. `{}` formats one line per step.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Explanation {
    /// Name of the keyspace.
    pub keyspace: String,
    /// The key that was looked up.
    pub key: Box<[u8]>,
    /// Newer writes than this sequence number are not visible.
    pub sequence: u64,
    /// Store clock of the lookup, in milliseconds.
    pub clock_ms: u64,
    /// Memtables with visible entries, newest first.
    pub memtables: Vec<MemtableStep>,
    /// Number of sorted runs of the keyspace.
    pub runs: u64,
    /// Tables whose bounds contain the key, newest first: at most one of each run.
    pub tables: Vec<TableStep>,
    /// Sequence number of the newest visible range tombstone that covers the key.
    pub range_tombstone: Option<u64>,
    /// Merge operands that make the value, newest first; empty without any.
    pub operands: Vec<OperandStep>,
    /// Error of reading the versions below a merge operand, with file and offset.
    pub older_failure: Option<String>,
    /// Result of the lookup.
    pub answer: ExplainedAnswer,
    /// Cost of the lookup.
    pub cost: LookupCost,
}

/// Result of a lookup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ExplainedAnswer {
    /// The key has a value.
    Present {
        /// Length of the value, in bytes.
        value_bytes: u64,
    },
    /// The newest version of the key is a tombstone, or a range tombstone covers it.
    Removed,
    /// The newest version of the key has expired.
    Expired,
    /// No memtable and no table has a version of the key.
    Absent,
    /// A block that decides the answer cannot be read, so a lookup of the key fails.
    /// [`TableStep::failure`] of the last table searched has the error, or, below a merge operand,
    /// [`Explanation::older_failure`].
    Unknown,
}

/// The newest version of a key in a memtable or table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct FoundVersion {
    /// Its sequence number.
    pub sequence: u64,
    /// `true` if the version removes the key.
    pub is_tombstone: bool,
    /// `true` if it is a merge operand: older versions decide too.
    pub is_operand: bool,
    /// Length of the value or operand, in bytes; 0 for a tombstone.
    pub value_bytes: u64,
    /// Time at which it expires, in milliseconds of the store clock; `None` if never.
    pub expiry_ms: Option<u64>,
}

/// A merge operand of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct OperandStep {
    /// Its sequence number.
    pub sequence: u64,
    /// Its length, in bytes.
    pub operand_bytes: u64,
}

/// A memtable that a lookup may search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemtableStep {
    /// `true` if it awaits its flush and accepts no writes.
    pub is_frozen: bool,
    /// Number of entries, approximately.
    pub entries: u64,
    /// Result of its filter; `None` if a newer memtable had the key.
    pub may_contain: Option<bool>,
    /// Version found.
    pub found: Option<FoundVersion>,
}

/// A table that a lookup may search.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct TableStep {
    /// Level of its sorted run.
    pub level: u8,
    /// Number of the run; the larger of two runs on level 0 is newer.
    pub run: u64,
    /// Number of the table, as in its file name.
    pub table_id: u64,
    /// Smallest key of the table.
    pub smallest: Box<[u8]>,
    /// Largest key of the table.
    pub largest: Box<[u8]>,
    /// Entries of the table, tombstones and old versions included.
    pub entries: u64,
    /// The point filter of the table.
    pub filter: FilterStep,
    /// `true` if a newer memtable or table had the key: neither filter nor table was read.
    pub is_skipped: bool,
    /// `true` if a range tombstone covers the key and is newer than the table: it was not searched.
    pub is_covered: bool,
    /// Blocks requested, in order, without the top index, which is in memory.
    pub blocks: Vec<BlockStep>,
    /// Version found.
    pub found: Option<FoundVersion>,
    /// Error of the last block, with file and offset. The lookup ends there.
    pub failure: Option<String>,
}

/// The point filter of a table.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct FilterStep {
    /// Result of the probe, or the reason for none.
    pub verdict: FilterVerdict,
    /// Kind of the filter, as in the glossary; `None` if unknown.
    pub kind: Option<&'static str>,
    /// Bits in memory per entry of the table.
    pub bits_per_key: f64,
    /// Bits per entry of the whole filter.
    pub bits_per_key_stored: f64,
    /// Columns in memory, of a ribbon filter.
    pub columns: Option<f64>,
    /// Columns in the file, of a ribbon filter.
    pub columns_stored: Option<f64>,
    /// Expected false-positive rate of the part in memory, from 0 to 1; 1 if nothing is in memory.
    pub fpr_expected: f64,
}

/// Result of a filter, or the reason for none.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum FilterVerdict {
    /// Not probed: the key was found before.
    NotProbed,
    /// The table does not have the key, and was not searched.
    Absent,
    /// The table may have the key, and was searched unless
    /// [covered](TableStep::is_covered).
    MayContain,
    /// Memory has no room for the filter; the table was searched.
    NotResident,
    /// The filter is damaged or of another release; the table was searched.
    Unusable {
        /// Reason why it cannot be used.
        reason: String,
    },
    /// The table has no filter, and was searched.
    NoFilter,
}

/// A block that a lookup requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct BlockStep {
    /// Offset in the file of the table, in bytes.
    pub offset: u64,
    /// Length in the file, in bytes.
    pub bytes: u64,
    /// `true` for an index partition, `false` for a data block.
    pub is_index: bool,
    /// `true` if it was read from the file, `false` if it was in the cache.
    pub is_read: bool,
}

/// Cost of a lookup.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LookupCost {
    /// Filters of tables probed.
    pub filters_probed: u64,
    /// Tables searched.
    pub tables_searched: u64,
    /// Data blocks requested.
    pub data_block_requests: u64,
    /// Index partitions requested.
    pub index_block_requests: u64,
    /// Blocks read from the file because the cache did not have them.
    pub blocks_read: u64,
    /// Length of these blocks in the file, in bytes.
    pub bytes_read: u64,
}
