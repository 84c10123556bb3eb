//! Options of blob files.

use super::KeyspaceOptions;

/// Blob files.
impl KeyspaceOptions {
    /// Stores values of at least this many bytes in blob files, outside of tables; default `None`:
    /// only values of at least 1/64 of the memory budget, which a merge could not hold within it.
    /// Compactions then copy a reference of some 15 bytes instead of the value. 4 KiB is a good
    /// start for values that are seldom overwritten or removed.
    ///
    /// Plain puts of at least 1 KiB are written to blob files at once, and the log refers to them.
    /// Other values are moved when they are flushed or compacted, and the log has them whole: those
    /// of conditional writes and transactions, and all values if the store is encrypted, retains
    /// changes, or has a memory budget below 20 MiB. A [durable](crate::Durability::Disk) write of
    /// such a value syncs two files.
    ///
    /// A lookup reads the value by one access to its blob file, behind the block cache. Scans read
    /// the value of each entry that they return; [`keys`](crate::Range::keys) and
    /// [`contains_key`](crate::Keyspace::contains_key) read none.
    /// [`insert_reader`](crate::Keyspace::insert_reader) writes to blob files in any case.
    ///
    /// Values with a time to live stay in tables: scans and merges decide by the expiry, which is
    /// in front of the value. So do merge operands, whose result goes to a blob file.
    ///
    /// A blob file is removed when no table refers to it. Its garbage is bounded by
    /// [`blob_garbage_ratio`](Self::blob_garbage_ratio).
    ///
    /// From 64 bytes to 256 MiB. Affects new writes and new tables only.
    pub fn blob_value_bytes(mut self, bytes: impl Into<Option<u64>>) -> Self {
        self.blob_value_bytes = bytes.into();
        self
    }

    /// Largest share of garbage in the blob files of the keyspace, before compactions rewrite the
    /// values of the files with most of it; default 0.4
    /// ([`DEFAULT_BLOB_GARBAGE_RATIO`](super::DEFAULT_BLOB_GARBAGE_RATIO)).
    ///
    /// Garbage is the values whose entries a compaction has dropped. A smaller share takes less space
    /// and writes more: with uniform overwrites, each value is rewritten 0.5 times at 0.4 and 1.7
    /// times at 0.2 in theory.
    ///
    /// From 0.05 to 1; 1 rewrites nothing.
    pub fn blob_garbage_ratio(mut self, ratio: f64) -> Self {
        self.blob_garbage_ratio = ratio;
        self
    }

    /// Maximum number of blob files that may alternate in the key order of one table. Above it, a
    /// compaction rewrites the values in order. Default `None`: any number.
    ///
    /// After overwrites of single values, neighbouring keys have their values in different files. A
    /// scan then reads by turns from as many files as the depth of the table:
    /// [`KeyspaceStats::blob_depth`](crate::stats::KeyspaceStats::blob_depth). A bound writes more:
    /// with random overwrites, all values that a compaction meets are rewritten once in about as
    /// many compactions. Worth it for scans of values of a few KiB on disks that seek; 10 is the
    /// bound of Pebble.
    ///
    /// From 1 to 1,000. Affects later compactions.
    pub fn blob_depth_max(mut self, files: impl Into<Option<u64>>) -> Self {
        self.blob_depth_max = files.into();
        self
    }
}
