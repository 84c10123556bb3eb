//! Calls of the default keyspace besides reads and writes.

use std::ops::RangeBounds;

use super::Db;
#[cfg(doc)]
use crate::Keyspace;
use crate::Result;

/// Calls of the default keyspace.
impl Db {
    /// Removes every key of the default keyspace: [`Keyspace::clear`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// let db = sievedb::Db::open(dir.path())?;
    /// let other = db.keyspace("other")?;
    /// db.insert("a", "")?;
    /// other.insert("b", "")?;
    /// assert_eq!(db.approximate_len()?, 1);
    /// db.clear()?;
    /// assert_eq!(db.approximate_len()?, 0);
    /// assert_eq!(other.approximate_len()?, 1);
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Keyspace::clear`].
    pub fn clear(&self) -> Result<()> {
        self.default.clear()
    }

    /// Compacts a range of keys of the default keyspace: [`Keyspace::compact_range`].
    ///
    /// # Errors
    ///
    /// As [`Keyspace::compact_range`].
    pub fn compact_range<K: AsRef<[u8]>>(&self, bounds: impl RangeBounds<K>) -> Result<()> {
        self.default.compact_range(bounds)
    }

    /// Returns an estimate of the number of keys of the default keyspace:
    /// [`Keyspace::approximate_len`].
    ///
    /// # Errors
    ///
    /// As [`Keyspace::approximate_len`].
    pub fn approximate_len(&self) -> Result<u64> {
        self.default.approximate_len()
    }

    /// Returns an estimate of the bytes that the entries of the default keyspace within `range`
    /// take: [`Keyspace::approximate_bytes`].
    ///
    /// # Errors
    ///
    /// As [`Keyspace::approximate_bytes`].
    pub fn approximate_bytes<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<u64> {
        self.default.approximate_bytes(range)
    }
}
