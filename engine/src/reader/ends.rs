//! Read methods for a whole keyspace: its ends, and its number of keys.

/// Implements the methods of a handle that read the ends of a keyspace or all of its keys. They use
/// the iterators of the handle.
macro_rules! end_methods {
    ($handle:ty) => {
        /// The ends of the keyspace, on a [`Db`](crate::Db) of the default keyspace, and its number
        /// of keys.
        impl $handle {
            /// Returns the entry of the keyspace with the smallest key, or `None` if it has no key;
            /// on a [`Db`](crate::Db), of the default keyspace. Costs the first step of
            /// [`iter`](Self::iter), and steps over the tombstones before the entry.
            ///
            /// # Errors
            ///
            /// Errors of [`iter`](Self::iter).
            ///
            /// ```
            /// # let dir = tempfile::tempdir().unwrap();
            /// let db = sievedb::Db::open(dir.path())?;
            /// assert!(db.first()?.is_none());
            /// db.insert("anna", "7")?;
            /// db.insert("bert", "8")?;
            /// assert_eq!(db.first()?, Some(("anna".into(), "7".into())));
            /// assert_eq!(db.last()?, Some(("bert".into(), "8".into())));
            /// # Ok::<(), sievedb::Error>(())
            /// ```
            pub fn first(&self) -> $crate::Result<Option<($crate::Bytes, $crate::Bytes)>> {
                self.iter().read_ahead_bytes_max(0).next().transpose()
            }

            /// Returns the entry of the keyspace with the largest key, or `None` if it has no key.
            /// Otherwise as [`first`](Self::first).
            ///
            /// # Errors
            ///
            /// Errors of [`iter`](Self::iter).
            pub fn last(&self) -> $crate::Result<Option<($crate::Bytes, $crate::Bytes)>> {
                self.iter().read_ahead_bytes_max(0).next_back().transpose()
            }

            /// Returns `true` if the keyspace, on a [`Db`](crate::Db) the default keyspace, has no
            /// key. Costs as much as [`first`](Self::first).
            ///
            /// # Errors
            ///
            /// Errors of [`iter`](Self::iter).
            pub fn is_empty(&self) -> $crate::Result<bool> {
                self.iter().read_ahead_bytes_max(0).is_empty()
            }

            /// Returns the number of keys of the keyspace, on a [`Db`](crate::Db) of the default
            /// keyspace. **Reads all keys**: costs a scan of [`keys`](crate::Range::keys).
            /// [`Keyspace::approximate_len`](crate::Keyspace::approximate_len) returns an estimate
            /// from counters.
            ///
            /// # Errors
            ///
            /// Errors of [`iter`](Self::iter).
            ///
            /// ```
            /// # let dir = tempfile::tempdir().unwrap();
            /// let db = sievedb::Db::open(dir.path())?;
            /// db.insert("anna", "7")?;
            /// db.insert("anna", "8")?;
            /// assert_eq!(db.len()?, 1);
            /// # Ok::<(), sievedb::Error>(())
            /// ```
            pub fn len(&self) -> $crate::Result<u64> {
                let (mut keys, mut count) = (self.iter().keys(), 0);
                while keys.next_ref()?.is_some() {
                    count += 1;
                }
                Ok(count)
            }
        }
    };
}

pub(crate) use end_methods;
