//! The read methods of typed keyspaces and their snapshots.

use std::marker::PhantomData;

/// Marks a handle with the types of its keys, values and codec. Always `Send` and `Sync`.
pub(crate) type Types<K, V, C> = PhantomData<fn() -> (K, V, C)>;

/// Implements reading for a type with fields `name` and `entries`: a keyspace of the engine, or a
/// snapshot of one.
macro_rules! read_methods {
    ($handle:ident) => {
        /// Reading.
        impl<K: $crate::Key, V, C: $crate::Codec<V>> $handle<K, V, C> {
            /// Returns the value of `key`, or `None` if the key has no value.
            ///
            /// # Errors
            ///
            /// [`Error::Engine`](crate::Error::Engine), [`Error::Value`](crate::Error::Value).
            pub fn get(&self, key: impl $crate::EncodeAs<K>) -> $crate::Result<Option<V>> {
                $crate::key::with_bytes(&key, |key| {
                    let Some(value) = self.entries.get(key)? else { return Ok(None) };
                    self.decode_value(key, value).map(Some)
                })
            }

            /// Calls `take` with the encoded value of `key`, without a copy, and returns its
            /// result. `None` if the key has no value. As
            /// [`Keyspace::get_with`](sievedb::Keyspace::get_with).
            ///
            /// # Errors
            ///
            /// [`Error::Engine`](crate::Error::Engine).
            pub fn get_with<T>(
                &self,
                key: impl $crate::EncodeAs<K>,
                take: impl FnOnce(&[u8]) -> T,
            ) -> $crate::Result<Option<T>> {
                Ok($crate::key::with_bytes(&key, |key| self.entries.get_with(key, take))?)
            }

            /// Returns `true` if `key` has a value. Decodes nothing. As
            /// [`Keyspace::contains_key`](sievedb::Keyspace::contains_key).
            ///
            /// # Errors
            ///
            /// [`Error::Engine`](crate::Error::Engine).
            pub fn contains_key(&self, key: impl $crate::EncodeAs<K>) -> $crate::Result<bool> {
                Ok($crate::key::with_bytes(&key, |key| self.entries.contains_key(key))?)
            }

            /// Returns the time to live of the value of `key`, or `None` if the key has no value.
            /// As [`Keyspace::ttl`](sievedb::Keyspace::ttl).
            ///
            /// # Errors
            ///
            /// [`Error::Engine`](crate::Error::Engine).
            pub fn ttl(
                &self,
                key: impl $crate::EncodeAs<K>,
            ) -> $crate::Result<Option<sievedb::TimeToLive>> {
                Ok($crate::key::with_bytes(&key, |key| self.entries.ttl(key))?)
            }

            /// Returns the entry with the smallest key, or `None` if there is none.
            ///
            /// # Errors
            ///
            /// [`Error::Engine`](crate::Error::Engine), [`Error::Key`](crate::Error::Key),
            /// [`Error::Value`](crate::Error::Value).
            pub fn first(&self) -> $crate::Result<Option<(K, V)>> {
                self.iter().next().transpose()
            }

            /// Returns the entry with the largest key, or `None` if there is none.
            ///
            /// # Errors
            ///
            /// As [`first`](Self::first).
            pub fn last(&self) -> $crate::Result<Option<(K, V)>> {
                self.iter().next_back().transpose()
            }

            /// Returns the value of each of `keys`, in their order, all at one point in time. As
            /// [`Keyspace::get_many`](sievedb::Keyspace::get_many).
            ///
            /// # Errors
            ///
            /// The first error, as of [`get`](Self::get).
            pub fn get_many<Q: $crate::EncodeAs<K>>(
                &self,
                keys: impl IntoIterator<Item = Q>,
            ) -> $crate::Result<Vec<Option<V>>> {
                let keys: Vec<_> =
                    keys.into_iter().map(|key| $crate::key::to_bytes(&key)).collect();
                let values = self.entries.get_many(&keys)?.into_iter().zip(&keys);
                values
                    .map(|(value, key)| {
                        value.map(|value| self.decode_value(key, value)).transpose()
                    })
                    .collect()
            }

            /// Returns `true` for each of `keys` that has a value, in their order. Reads no value.
            /// As [`Keyspace::contains_many`](sievedb::Keyspace::contains_many).
            ///
            /// # Errors
            ///
            /// [`Error::Engine`](crate::Error::Engine).
            pub fn contains_many<Q: $crate::EncodeAs<K>>(
                &self,
                keys: impl IntoIterator<Item = Q>,
            ) -> $crate::Result<Vec<bool>> {
                let keys = keys.into_iter().map(|key| $crate::key::to_bytes(&key));
                Ok(self.entries.contains_many(keys)?)
            }

            /// Returns all entries: ascending from the front, descending from the back. The
            /// iterator does not see later writes.
            #[must_use]
            pub fn iter(&self) -> $crate::Entries<K, V, C> {
                $crate::Entries::new(self.entries.iter(), &self.name)
            }

            /// Returns all keys, without reading values.
            #[must_use]
            pub fn keys(&self) -> $crate::Keys<K> {
                self.iter().keys()
            }

            /// Returns the entries whose keys are within `bounds`. As [`iter`](Self::iter).
            #[must_use]
            pub fn range<Q: $crate::EncodeAs<K>>(
                &self,
                bounds: impl std::ops::RangeBounds<Q>,
            ) -> $crate::Entries<K, V, C> {
                self.range_of_bytes($crate::key::key_bounds::<K, _>(&bounds))
            }

            /// Returns the entries whose keys have this prefix: leading elements of a tuple, or the
            /// start of a string. As [`iter`](Self::iter).
            ///
            /// ```
            /// # use sievedb_typed::{Schema, TypedKeyspace, sievedb::Db};
            /// # let dir = tempfile::tempdir().unwrap();
            /// # let db = Db::open(dir.path())?;
            /// let schema = Schema::new("visit", 1);
            /// let visits = TypedKeyspace::<(String, u64), u32>::open(&db, "visits", schema)?;
            /// visits.insert(("anna", 1), 10)?;
            /// visits.insert(("anna", 2), 20)?;
            /// visits.insert(("annabel", 1), 30)?;
            /// assert_eq!(visits.prefix(("anna",)).count(), 2);
            /// # Ok::<(), sievedb_typed::Error>(())
            /// ```
            #[must_use]
            pub fn prefix<P: $crate::PrefixOf<K>>(&self, prefix: P) -> $crate::Entries<K, V, C> {
                let bounds = $crate::key::prefix_bounds::<K, P>(&(&prefix..=&prefix));
                self.range_of_bytes(bounds)
            }

            /// Returns the entries whose keys have a prefix within `bounds`. As
            /// [`iter`](Self::iter).
            ///
            /// With keys `(user, time, number)`, the bounds `(7, t)..(7, u)` select all entries of
            /// user 7 from time `t` until before `u`.
            #[must_use]
            pub fn prefix_range<P: $crate::PrefixOf<K>>(
                &self,
                bounds: impl std::ops::RangeBounds<P>,
            ) -> $crate::Entries<K, V, C> {
                self.range_of_bytes($crate::key::prefix_bounds::<K, _>(&bounds))
            }

            fn range_of_bytes(&self, bounds: $crate::key::KeyBounds) -> $crate::Entries<K, V, C> {
                $crate::Entries::new(self.entries.range::<Vec<u8>>(bounds), &self.name)
            }

            pub(crate) fn decode_value(
                &self,
                key: &[u8],
                value: sievedb::Bytes,
            ) -> $crate::Result<V> {
                C::decode(value).map_err(|source| $crate::Error::value(&self.name, key, source))
            }
        }
    };
}

pub(crate) use read_methods;
