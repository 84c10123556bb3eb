//! Removals of ranges.

use std::ops::RangeBounds;

use super::TypedKeyspace;
use crate::{
    codec::Codec,
    error::Result,
    key::{EncodeAs, Key, KeyBounds, PrefixOf, key_bounds, prefix_bounds},
    transaction::Writes,
};

/// Range deletes, each at the cost of one write. Bounds are those of [`range`](Self::range),
/// [`prefix`](Self::prefix) and [`prefix_range`](Self::prefix_range).
impl<K: Key, V, C: Codec<V>> TypedKeyspace<K, V, C> {
    /// Removes every key within `bounds`. As
    /// [`Keyspace::remove_range`](sievedb::Keyspace::remove_range).
    ///
    /// ```
    /// # use sievedb_typed::{Schema, TypedKeyspace, sievedb::Db};
    /// # let dir = tempfile::tempdir().unwrap();
    /// let db = Db::open(dir.path())?;
    /// let schema = Schema::new("event", 1);
    /// let events = TypedKeyspace::<(u32, u64), String>::open(&db, "events", schema)?;
    /// for (device, time) in [(1, 10), (1, 20), (2, 10)] {
    ///     events.insert((device, time), "on".to_owned())?;
    /// }
    /// events.remove_range((1, 0)..(1, 15))?;
    /// assert_eq!(events.keys().collect::<Result<Vec<_>, _>>()?, [(1, 20), (2, 10)]);
    /// events.remove_prefix((1,))?;
    /// assert_eq!(events.keys().collect::<Result<Vec<_>, _>>()?, [(2, 10)]);
    /// # Ok::<(), sievedb_typed::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Engine`](crate::Error::Engine).
    pub fn remove_range<Q: EncodeAs<K>>(&self, bounds: impl RangeBounds<Q>) -> Result<()> {
        self.remove_bounds(key_bounds::<K, _>(&bounds))
    }

    /// Removes every key with this prefix.
    ///
    /// # Errors
    ///
    /// As [`remove_range`](Self::remove_range).
    pub fn remove_prefix<P: PrefixOf<K>>(&self, prefix: P) -> Result<()> {
        self.remove_bounds(prefix_bounds::<K, P>(&(&prefix..=&prefix)))
    }

    /// Removes every key whose prefix is within `bounds`.
    ///
    /// # Errors
    ///
    /// As [`remove_range`](Self::remove_range).
    pub fn remove_prefix_range<P: PrefixOf<K>>(&self, bounds: impl RangeBounds<P>) -> Result<()> {
        self.remove_bounds(prefix_bounds::<K, _>(&bounds))
    }

    /// Adds a removal of every key within `bounds` to `writes`, a [`Batch`](sievedb::Batch) or a
    /// [`Transaction`](sievedb::Transaction). As
    /// [`Batch::remove_range`](sievedb::Batch::remove_range) and
    /// [`Transaction::remove_range`](sievedb::Transaction::remove_range).
    ///
    /// # Errors
    ///
    /// As [`remove_in`](Self::remove_in).
    pub fn remove_range_in<Q: EncodeAs<K>>(
        &self,
        writes: &mut impl Writes,
        bounds: impl RangeBounds<Q>,
    ) -> Result<()> {
        Ok(writes.delete_range(&self.entries, key_bounds::<K, _>(&bounds))?)
    }

    /// Adds a removal of every key with this prefix to `writes`.
    ///
    /// # Errors
    ///
    /// As [`remove_in`](Self::remove_in).
    pub fn remove_prefix_in<P: PrefixOf<K>>(
        &self,
        writes: &mut impl Writes,
        prefix: P,
    ) -> Result<()> {
        let bounds = prefix_bounds::<K, P>(&(&prefix..=&prefix));
        Ok(writes.delete_range(&self.entries, bounds)?)
    }

    /// Adds a removal of every key whose prefix is within `bounds` to `writes`.
    ///
    /// # Errors
    ///
    /// As [`remove_in`](Self::remove_in).
    pub fn remove_prefix_range_in<P: PrefixOf<K>>(
        &self,
        writes: &mut impl Writes,
        bounds: impl RangeBounds<P>,
    ) -> Result<()> {
        Ok(writes.delete_range(&self.entries, prefix_bounds::<K, _>(&bounds))?)
    }

    fn remove_bounds(&self, bounds: KeyBounds) -> Result<()> {
        Ok(self.entries.remove_range(bounds)?)
    }
}
