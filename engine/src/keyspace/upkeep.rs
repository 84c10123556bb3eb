//! Calls that remove, compact or measure the keys of a keyspace.

use super::Keyspace;

/// Implements these methods of a handle. `field` names its keyspace, if it is none itself.
macro_rules! upkeep_methods {
    ($handle:ty $(, $field:ident)?) => {
        /// Upkeep and size of this keyspace; on a [`Db`](crate::Db), of the default keyspace.
        impl $handle {
            /// Removes every key of this keyspace; on a [`Db`](crate::Db), of the default keyspace.
            /// Atomic, and durable at return. Costs a synced write to the log and one to the
            /// manifest, independent of the number of keys.
            ///
            /// Existing snapshots and iterators still see the keys. Tables are unlinked when no
            /// snapshot or iterator reads them. Other writes to this keyspace wait until the call
            /// returns.
            ///
            /// # Errors
            ///
            /// [`Error::KeyspaceDropped`](crate::Error::KeyspaceDropped); those of a write with
            /// [`Durability::Disk`](crate::Durability::Disk).
            ///
            /// ```
            /// # let dir = tempfile::tempdir().unwrap();
            /// let db = sievedb::Db::open(dir.path())?;
            /// let sessions = db.keyspace("sessions")?;
            /// sessions.insert("anna", "7")?;
            /// db.insert("bert", "3")?;
            /// let before = db.snapshot();
            /// db.clear()?;
            /// assert_eq!(sessions.len()?, 1);
            /// sessions.clear()?;
            /// assert!(sessions.is_empty()?);
            /// assert_eq!(before.keyspace(&sessions)?.len()?, 1);
            /// # Ok::<(), sievedb::Error>(())
            /// ```
            pub fn clear(&self) -> $crate::Result<()> {
                let keyspace = &self$(.$field)?;
                keyspace.open_store().accept()?.clear_keyspace(keyspace.tree())
            }

            /// Flushes this keyspace, on a [`Db`](crate::Db) the default keyspace, and merges its
            /// tables with a key within `bounds` into the last level. Waits until that is done.
            /// Other tables stay as they are.
            ///
            /// A table that crosses an end of the bounds is merged as a whole, with all overlapping
            /// tables of deeper levels. An empty or inverted range merges nothing. Useful after
            /// many removals in a range, to free the space, or before many scans of it.
            ///
            /// # Errors
            ///
            /// As [`compact`](Self::compact).
            ///
            /// ```
            /// # let dir = tempfile::tempdir().unwrap();
            /// let db = sievedb::Db::open(dir.path())?;
            /// let events = db.keyspace("events")?;
            /// events.insert("2025-12-31 start", "")?;
            /// events.insert("2026-01-01 start", "")?;
            /// events.remove_prefix("2025")?;
            /// events.compact_range("2025".."2026")?;
            /// # Ok::<(), sievedb::Error>(())
            /// ```
            pub fn compact_range<K: AsRef<[u8]>>(
                &self,
                bounds: impl std::ops::RangeBounds<K>,
            ) -> $crate::Result<()> {
                let keyspace = &self$(.$field)?;
                let store = keyspace.open_store().accept()?;
                keyspace.tree().check()?;
                let bounds = $crate::iter::bounds::KeyBounds::new(&bounds);
                store.compact_tree(keyspace.tree(), &bounds)?;
                keyspace.tree().check()
            }

            /// Returns an estimate of the number of keys of this keyspace; on a
            /// [`Db`](crate::Db), of the default keyspace. It is the number of values and merge
            /// operands in tables and memtables, less the tombstones. Exact if each key was written
            /// once, or once and then removed by its key.
            ///
            /// Until a compaction drops them, older versions of a key, operands, expired values and
            /// the keys under a range delete count as one each. A tombstone of an absent key
            /// subtracts one. Reads only counters, two for each table and memtable.
            /// [`len`](Self::len) counts the keys.
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
            /// [`Error::KeyspaceDropped`](crate::Error::KeyspaceDropped).
            pub fn approximate_len(&self) -> $crate::Result<u64> {
                let keyspace = &self$(.$field)?;
                keyspace.open_store().accept()?;
                keyspace.tree().check()?;
                Ok(keyspace.tree().view().approximate_len())
            }

            /// Returns an estimate of the bytes of the entries within `range` of this keyspace; on
            /// a [`Db`](crate::Db), of the default keyspace. Counts compressed bytes on disk, with
            /// indexes and filters, and the memory of memtables. Includes old versions and
            /// tombstones. 0 for an empty range.
            ///
            /// A table within the range counts as a whole. The part of a table that crosses an end
            /// is estimated from its index, at the precision of a data block. Memtables are
            /// estimated as if their keys were spread evenly. Reads no data block, and at most two
            /// blocks of the index for each sorted run.
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
            /// let range = 1_000_u32.to_be_bytes()..2_000_u32.to_be_bytes();
            /// let tenth = default.approximate_bytes(range)?;
            /// assert!((8..=12).contains(&(100 * tenth / all)));
            /// # Ok::<(), sievedb::Error>(())
            /// ```
            ///
            /// # Errors
            ///
            /// [`Error::KeyspaceDropped`](crate::Error::KeyspaceDropped);
            /// [`Error::Io`](crate::Error::Io) and [`Error::Corrupt`](crate::Error::Corrupt) of an
            /// index.
            pub fn approximate_bytes<K: AsRef<[u8]>>(
                &self,
                range: impl std::ops::RangeBounds<K>,
            ) -> $crate::Result<u64> {
                let keyspace = &self$(.$field)?;
                keyspace.open_store().accept()?;
                keyspace.tree().check()?;
                let view = keyspace.tree().kept_view();
                view.approximate_bytes(&$crate::iter::bounds::KeyBounds::new(&range))
            }
        }
    };
}

pub(crate) use upkeep_methods;

upkeep_methods!(Keyspace);
