//! Options of blob files.

use super::KeyspaceOptions;

/// Blob files.
impl KeyspaceOptions {
    /// Stores values of at least this many bytes in blob files, outside of tables; default `None`:
    /// only values of at least 1/64 of the memory budget, which a merge could not hold within it.
    /// A shared memory pool is divided among the worker threads of its stores.
    /// Compactions then copy a reference of about 15 bytes instead of the value. For values that
    /// are seldom overwritten or removed, start with 4 KiB.
    ///
    /// With this option, a plain put of such a value of at least 1 KiB writes it directly to a blob
    /// file. The log refers to the file. A [durable](crate::Durability::Disk) write then syncs two
    /// files. All other values are written to the log, and moved to blob files by a flush or
    /// compaction. These are values of conditional writes and transactions. They are all values if
    /// the store is encrypted or retains changes.
    ///
    /// At most 16 keyspaces at a time write values directly: one for each 4.5 MiB of the present
    /// [limit of memtables](crate::stats::MemoryStats::memtable_bytes_max). Values of other
    /// keyspaces are written to the log.
    ///
    /// A lookup reads the value from its blob file, without the block cache. Scans read the value
    /// of each entry that they return; [`keys`](crate::Range::keys) and
    /// [`contains_key`](crate::Keyspace::contains_key) read none.
    /// [`insert_reader`](crate::Keyspace::insert_reader) writes to blob files even without this
    /// option.
    ///
    /// Values with a time to live stay in tables, because scans and compactions need their expiry.
    /// Merge operands also stay in tables; their result is moved to a blob file.
    ///
    /// A blob file is removed when no table refers to it. Its garbage is bounded by
    /// [`blob_garbage_ratio`](Self::blob_garbage_ratio).
    ///
    /// From 64 bytes to 256 MiB. Affects new writes and new tables only.
    pub fn blob_value_bytes(mut self, bytes: impl Into<Option<u64>>) -> Self {
        self.blob_value_bytes = bytes.into();
        self
    }

    /// Maximum share of garbage in the blob files of the keyspace. Above it, compactions rewrite
    /// the values of the files with the largest share. Default 0.4
    /// ([`DEFAULT_BLOB_GARBAGE_RATIO`](super::DEFAULT_BLOB_GARBAGE_RATIO)).
    ///
    /// Garbage is the stored values whose entries a compaction has dropped. A smaller share takes
    /// less space and writes more. In theory, with uniform overwrites, each value is rewritten 0.5
    /// times at 0.4 and 1.7 times at 0.2.
    ///
    /// From 0.05 to 1; with 1, no values are rewritten.
    pub fn blob_garbage_ratio(mut self, ratio: f64) -> Self {
        self.blob_garbage_ratio = ratio;
        self
    }

    /// Maximum number of blob files that may alternate in the key order of one table. Above it, a
    /// compaction rewrites the values in order. Default `None`: any number.
    ///
    /// After overwrites of single values, neighbouring keys have their values in different files. A
    /// scan then alternates between as many files as the depth of the table:
    /// [`KeyspaceStats::blob_depth`](crate::stats::KeyspaceStats::blob_depth). A limit of `n` costs
    /// writes: with random overwrites, about one in `n` compactions rewrites all values of its
    /// inputs. Useful for scans of values of a few KiB on disks with seeks; Pebble uses 10.
    ///
    /// From 1 to 1,000. Affects later compactions. No effect without
    /// [`blob_value_bytes`](Self::blob_value_bytes).
    pub fn blob_depth_max(mut self, files: impl Into<Option<u64>>) -> Self {
        self.blob_depth_max = files.into();
        self
    }
}
