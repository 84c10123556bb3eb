//! Where a lookup of one key looks, and what it finds there.

mod text;

/// What a lookup of one key does: the walk from the newest memtable to the oldest table, told by
/// the lookup itself. [`Keyspace::explain`](crate::Keyspace::explain) makes it; as text it is a
/// line a step.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Explanation {
    /// Name of the keyspace.
    pub keyspace: String,
    /// The key that was looked up.
    pub key: Box<[u8]>,
    /// What was written later than this sequence number is not seen.
    pub sequence: u64,
    /// Memtables with something that old, the newest first.
    pub memtables: Vec<MemtableStep>,
    /// Sorted runs of the keyspace.
    pub runs: u64,
    /// The tables whose bounds hold the key, the newest first: at most one of each run.
    pub tables: Vec<TableStep>,
    /// Sequence number of the newest range tombstone over the key that is seen, if there is one.
    pub range_tombstone: Option<u64>,
    /// The answer.
    pub answer: ExplainedAnswer,
    /// What the lookup cost.
    pub cost: LookupCost,
}

/// What a lookup answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ExplainedAnswer {
    /// The key has a value of so many bytes.
    Present {
        /// Length of the value, in bytes.
        value_bytes: u64,
    },
    /// The newest version of the key is a tombstone, or a range tombstone covers it.
    Removed,
    /// No memtable and no table has a version of the key.
    Absent,
    /// A block that decides the answer cannot be read, so a lookup of the key fails.
    /// [`TableStep::failure`] of the last table searched has the error.
    Unknown,
}

/// The newest version of a key that a memtable or a table has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct FoundVersion {
    /// Its sequence number.
    pub sequence: u64,
    /// Whether it removes the key.
    pub is_tombstone: bool,
    /// Length of the value, in bytes; 0 of a tombstone.
    pub value_bytes: u64,
}

/// A memtable on the way of a lookup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemtableStep {
    /// Whether it waits for its flush, and takes no more writes.
    pub is_frozen: bool,
    /// Entries, about.
    pub entries: u64,
    /// What its filter said: whether the key may be in it. `None` if it was not asked, because a
    /// newer memtable had the key.
    pub may_contain: Option<bool>,
    /// What it had.
    pub found: Option<FoundVersion>,
}

/// A table on the way of a lookup.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct TableStep {
    /// Level of its sorted run.
    pub level: u8,
    /// Number of the run; of two runs of level 0 the larger one is newer.
    pub run: u64,
    /// Number of the table, as in the name of its file.
    pub table_id: u64,
    /// Smallest key of the table.
    pub smallest: Box<[u8]>,
    /// Largest key of the table.
    pub largest: Box<[u8]>,
    /// Entries of the table, tombstones and old versions included.
    pub entries: u64,
    /// The point filter of the table.
    pub filter: FilterStep,
    /// Whether a newer memtable or table had the key, so that neither the filter nor the table was
    /// asked.
    pub is_skipped: bool,
    /// The blocks that were asked for, in order. The top index is in memory and is none of them.
    pub blocks: Vec<BlockStep>,
    /// What the table had.
    pub found: Option<FoundVersion>,
    /// Error of reading the last of the blocks, with file and offset. The walk ends there.
    pub failure: Option<String>,
}

/// The filter of a table on the way of a lookup.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct FilterStep {
    /// What the filter said, or why nothing.
    pub verdict: FilterVerdict,
    /// What the filter is, as the glossary names it; `None` if that is not known.
    pub kind: Option<&'static str>,
    /// Bits in memory for each entry of the table; 0 if nothing is in memory.
    pub bits_per_key: f64,
    /// Bits in memory for each entry of the table, if all of the filter were in memory.
    pub bits_per_key_stored: f64,
    /// Columns in memory, of a ribbon.
    pub columns: Option<f64>,
    /// Columns in the file, of a ribbon.
    pub columns_stored: Option<f64>,
    /// Share of absent keys that it does not rule out, as expected of what is in memory, from 0 to
    /// 1; 1 if nothing is.
    pub fpr_expected: f64,
}

/// What the filter of a table said, or why nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum FilterVerdict {
    /// It was not asked: the key was found before.
    NotProbed,
    /// The table certainly does not have the key, and was not searched.
    Absent,
    /// The table may have the key, and was searched.
    MayContain,
    /// Memory has no room for the filter: the table was searched.
    NotResident,
    /// The filter is damaged or of another release: the table was searched.
    Unusable {
        /// Why it cannot be used.
        reason: String,
    },
    /// The table has no filter, and was searched.
    NoFilter,
}

/// A block that a lookup asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct BlockStep {
    /// Where it starts in the file of the table.
    pub offset: u64,
    /// Its length in the file, in bytes.
    pub bytes: u64,
    /// Whether it is an index partition, and not a data block.
    pub is_index: bool,
    /// Whether it was read from the file, and not found in the cache.
    pub is_read: bool,
}

/// What a lookup cost in blocks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LookupCost {
    /// Filters of tables that were asked.
    pub filters_probed: u64,
    /// Tables that were searched.
    pub tables_searched: u64,
    /// Data blocks asked of the cache.
    pub data_block_requests: u64,
    /// Index partitions asked of the cache.
    pub index_block_requests: u64,
    /// Blocks that the cache did not have, so that they were read from the file.
    pub blocks_read: u64,
    /// Length of those blocks in the file, in bytes.
    pub bytes_read: u64,
}
