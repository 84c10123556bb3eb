//! Estimates of the size of a keyspace.

use std::ops::RangeBounds;

use super::Keyspace;
#[cfg(doc)]
use crate::Error;
use crate::{Result, iter::bounds::KeyBounds};

impl Keyspace {
    /// Returns an estimate of the number of keys: the values and merge operands in tables and
    /// memtables, less the tombstones. Exact if each key was written once, or once and then removed
    /// by its key.
    ///
    /// Until a compaction drops them, older versions of a key, operands, expired values and the
    /// keys under a range delete count as one each. A tombstone of an absent key subtracts one.
    /// Reads only counters, two for each table and memtable. [`len`](Self::len) counts the keys.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// let db = sievedb::Db::open(dir.path())?;
    /// for key in ["anna", "bert", "carl"] {
    ///     db.insert(key, "")?;
    /// }
    /// db.remove("bert")?;
    /// assert_eq!(db.approximate_len()?, 2);
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::KeyspaceDropped`].
    pub fn approximate_len(&self) -> Result<u64> {
        self.open.accept()?;
        self.tree.check()?;
        Ok(self.tree.view().approximate_len())
    }

    /// Returns an estimate of the bytes that the entries within `range` take: compressed on disk,
    /// with indexes and filters, plus the memory of memtables. Includes old versions and
    /// tombstones. 0 for an empty range.
    ///
    /// A table within the range counts as a whole. The part of a table that crosses an end is
    /// estimated from its index, at the precision of a data block. Memtables are estimated as if
    /// their keys were spread evenly. Reads no data block, and at most two blocks of the index for
    /// each sorted run.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// let db = sievedb::Db::open(dir.path())?;
    /// for number in 0..10_000_u32 {
    ///     db.insert(number.to_be_bytes(), number.to_be_bytes().repeat(25))?;
    /// }
    /// db.flush()?;
    /// let default = db.default_keyspace();
    /// let all = default.approximate_bytes::<&[u8]>(..)?;
    /// let tenth = default.approximate_bytes(1_000_u32.to_be_bytes()..2_000_u32.to_be_bytes())?;
    /// assert!((8..=12).contains(&(100 * tenth / all)));
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::KeyspaceDropped`]; [`Error::Io`] and [`Error::Corrupt`] of an index.
    pub fn approximate_bytes<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<u64> {
        self.open.accept()?;
        self.tree.check()?;
        self.tree.kept_view().approximate_bytes(&KeyBounds::new(&range))
    }
}
