//! Writes of batches and transactions.

/// Implements the methods that add a write to `$writes`, by these private methods of it:
///
/// * `default_expiry_ms`: the expiry of a value that is written without a TTL;
/// * `ttl_start_ms`: the time from which a TTL counts;
/// * `add_value`, `add_removal`, `add_range`: add a write of this kind.
macro_rules! keyed_writes {
    ($writes:ty) => {
        /// Writing. An error leaves the batch or transaction unchanged.
        impl $writes {
            /// Adds a write of `value` under `key` in `keyspace`. A [`Db`](crate::Db) stands for
            /// its default keyspace.
            ///
            /// A [default TTL](crate::KeyspaceOptions::default_ttl) counts from this call; in a
            /// transaction, from its start. Copies key and value into memory, and writes nothing to
            /// disk before the commit. Later reads of the same transaction see the value.
            ///
            /// # Errors
            ///
            /// [`Error::KeyTooLong`], [`Error::ValueTooLong`], [`Error::ForeignKeyspace`]. A
            /// transaction adds [`Error::TransactionTooLarge`] and [`Error::ReadOnlyTransaction`].
            ///
            /// [`Error::KeyTooLong`]: crate::Error::KeyTooLong
            /// [`Error::ValueTooLong`]: crate::Error::ValueTooLong
            /// [`Error::ForeignKeyspace`]: crate::Error::ForeignKeyspace
            /// [`Error::TransactionTooLarge`]: crate::Error::TransactionTooLarge
            /// [`Error::ReadOnlyTransaction`]: crate::Error::ReadOnlyTransaction
            pub fn insert(
                &mut self,
                keyspace: impl AsRef<$crate::Keyspace>,
                key: impl AsRef<[u8]>,
                value: impl AsRef<[u8]>,
            ) -> $crate::Result<()> {
                let keyspace = keyspace.as_ref();
                let expiry_ms = self.default_expiry_ms(keyspace);
                self.add_value(keyspace, key.as_ref(), expiry_ms, value.as_ref())
            }

            /// Adds a write of `value` under `key` in `keyspace` that does not expire: see
            /// [`Keyspace::insert_without_ttl`](crate::Keyspace::insert_without_ttl).
            ///
            /// # Errors
            ///
            /// As [`insert`](Self::insert).
            pub fn insert_without_ttl(
                &mut self,
                keyspace: impl AsRef<$crate::Keyspace>,
                key: impl AsRef<[u8]>,
                value: impl AsRef<[u8]>,
            ) -> $crate::Result<()> {
                self.add_value(keyspace.as_ref(), key.as_ref(), None, value.as_ref())
            }

            /// Adds a write of `value` under `key` in `keyspace` that expires after `ttl`, rounded
            /// up to whole milliseconds: see
            /// [`Keyspace::insert_with_ttl`](crate::Keyspace::insert_with_ttl). The TTL counts from
            /// this call; in a transaction, from its start, at which its clock is fixed. An expiry
            /// causes no conflict.
            ///
            /// ```
            /// use std::time::Duration;
            /// use sievedb::TimeToLive;
            ///
            /// # let dir = tempfile::tempdir().unwrap();
            /// let db = sievedb::Db::open(dir.path())?;
            /// db.transaction(|transaction| {
            ///     let hour = Duration::from_secs(3600);
            ///     transaction.insert_with_ttl(&db, "session", "anna", hour)?;
            ///     assert_eq!(transaction.ttl(&db, "session")?, Some(TimeToLive::Remaining(hour)));
            ///     Ok(())
            /// })?;
            /// assert_eq!(db.get("session")?.as_deref(), Some(&b"anna"[..]));
            /// # Ok::<(), sievedb::Error>(())
            /// ```
            ///
            /// # Errors
            ///
            /// As [`insert`](Self::insert), [`Error::Closed`](crate::Error::Closed) and
            /// [`Error::ForkedChild`](crate::Error::ForkedChild).
            pub fn insert_with_ttl(
                &mut self,
                keyspace: impl AsRef<$crate::Keyspace>,
                key: impl AsRef<[u8]>,
                value: impl AsRef<[u8]>,
                ttl: std::time::Duration,
            ) -> $crate::Result<()> {
                let keyspace = keyspace.as_ref();
                let start_ms = self.ttl_start_ms(keyspace)?;
                let expiry_ms = $crate::time_to_live::expiry_after(start_ms, ttl);
                self.add_value(keyspace, key.as_ref(), Some(expiry_ms), value.as_ref())
            }

            /// Adds a write of `value` under `key` in `keyspace` that expires at `time`: see
            /// [`Keyspace::insert_expiring_at`](crate::Keyspace::insert_expiring_at).
            ///
            /// # Errors
            ///
            /// As [`insert`](Self::insert).
            pub fn insert_expiring_at(
                &mut self,
                keyspace: impl AsRef<$crate::Keyspace>,
                key: impl AsRef<[u8]>,
                value: impl AsRef<[u8]>,
                time: std::time::SystemTime,
            ) -> $crate::Result<()> {
                let expiry_ms = $crate::time_to_live::expiry_at(time);
                self.add_value(keyspace.as_ref(), key.as_ref(), Some(expiry_ms), value.as_ref())
            }

            /// Adds a removal of `key` from `keyspace`. The key need not exist.
            ///
            /// # Errors
            ///
            /// As [`insert`](Self::insert).
            pub fn remove(
                &mut self,
                keyspace: impl AsRef<$crate::Keyspace>,
                key: impl AsRef<[u8]>,
            ) -> $crate::Result<()> {
                self.add_removal(keyspace.as_ref(), key.as_ref())
            }

            /// Adds a removal of every key in `range` from `keyspace`, at the cost of one write.
            /// Removes earlier writes of the same batch or transaction too, but not later ones. An
            /// empty or inverted range adds nothing. See
            /// [`Keyspace::remove_range`](crate::Keyspace::remove_range).
            ///
            /// The commit of a transaction also removes keys that other writers have added to the
            /// range since it began. With [`Isolation::Snapshot`](crate::Isolation::Snapshot) the
            /// commit fails instead.
            ///
            /// ```
            /// # let dir = tempfile::tempdir().unwrap();
            /// let db = sievedb::Db::open(dir.path())?;
            /// db.insert("log/1", "old")?;
            /// let mut transaction = db.begin();
            /// transaction.remove_range(&db, "log/".."log0")?;
            /// transaction.insert(&db, "log/2", "new")?;
            /// assert_eq!(transaction.get(&db, "log/1")?, None);
            /// assert_eq!(transaction.iter(&db).count(), 1);
            /// transaction.commit(None)?;
            /// # Ok::<(), sievedb::Error>(())
            /// ```
            ///
            /// # Errors
            ///
            /// As [`insert`](Self::insert); [`Error::KeyTooLong`](crate::Error::KeyTooLong) for a
            /// bound.
            pub fn remove_range<K: AsRef<[u8]>>(
                &mut self,
                keyspace: impl AsRef<$crate::Keyspace>,
                range: impl std::ops::RangeBounds<K>,
            ) -> $crate::Result<()> {
                let bounds = $crate::iter::bounds::KeyBounds::new(&range);
                self.add_range(keyspace.as_ref(), &bounds)
            }

            /// Adds a removal of every key with this prefix from `keyspace`. Otherwise as
            /// [`remove_range`](Self::remove_range); an empty prefix removes all keys.
            ///
            /// # Errors
            ///
            /// As [`remove_range`](Self::remove_range).
            pub fn remove_prefix(
                &mut self,
                keyspace: impl AsRef<$crate::Keyspace>,
                prefix: impl AsRef<[u8]>,
            ) -> $crate::Result<()> {
                let bounds = $crate::iter::bounds::KeyBounds::prefix(prefix.as_ref());
                self.add_range(keyspace.as_ref(), &bounds)
            }
        }
    };
}

pub(crate) use keyed_writes;
