//! Reads by an index.

use std::{
    fmt,
    iter::FusedIterator,
    marker::PhantomData,
    ops::{Bound, RangeBounds},
    sync::Arc,
};

use sievedb::{Db, Keyspace, KeyspaceSnapshot, Snapshot};

use crate::{
    codec::{Codec, Postcard},
    entries::{Keys, keys_of},
    error::{Error, Result},
    key::{self, EncodeAs, Key, KeyBounds, prefix_bounds},
    keyspace::TypedKeyspace,
    schema::record::{IndexRecord, Stored as _},
    snapshot::TypedSnapshot,
};

/// An index with keys of type `IK`, over entries with keys `K` and values `V`. See
/// [`Indexed::index`](super::Indexed::index).
///
/// Cheap to clone and safe to share between threads. Each read sees index and data at one point in
/// time.
pub struct Index<IK, K, V, C = Postcard> {
    db: Db,
    entries: Keyspace,
    record: Arc<IndexRecord>,
    data: TypedKeyspace<K, V, C>,
    types: PhantomData<fn() -> IK>,
}

impl<IK: Key, K: Key, V, C: Codec<V>> Index<IK, K, V, C> {
    pub(super) fn new(
        db: Db,
        entries: Keyspace,
        record: IndexRecord,
        data: TypedKeyspace<K, V, C>,
    ) -> Self {
        Self { db, entries, record: record.into(), data, types: PhantomData }
    }

    /// Returns the name of the index and its keyspace.
    #[must_use]
    pub fn name(&self) -> String {
        self.entries.name()
    }

    /// Returns a view of index and data at the time of `snapshot`.
    ///
    /// # Errors
    ///
    /// * [`Error::IncompleteIndex`]: the index did not exist yet, was being built, or had another
    ///   version or another version of the schema.
    /// * [`sievedb::Error::ForeignKeyspace`]: the snapshot is of another store.
    /// * [`sievedb::Error::NotInHistory`]: the snapshot is of the [past](Db::snapshot_at). Indexes
    ///   have no [history](sievedb::KeyspaceOptions::keep_history).
    pub fn at(&self, snapshot: &Snapshot) -> Result<IndexSnapshot<IK, K, V, C>> {
        let view = self.view(snapshot)?;
        match IndexRecord::read_at(snapshot, &self.db, &self.entries)? {
            Some(stored) if stored.is_same_build(&self.record) => Ok(view),
            _ => Err(Error::IncompleteIndex { index: view.name }),
        }
    }

    fn view(&self, snapshot: &Snapshot) -> Result<IndexSnapshot<IK, K, V, C>> {
        let (entries, data) = (snapshot.keyspace(&self.entries)?, self.data.at(snapshot)?);
        let name = self.entries.name().into();
        Ok(IndexSnapshot { entries, data, name, types: PhantomData })
    }

    fn now(&self) -> IndexSnapshot<IK, K, V, C> {
        self.view(&self.db.snapshot()).expect("index and data are of one store")
    }

    /// Returns the entries with this index key, ordered by key. Costs a range over the index, and a
    /// lookup for each entry.
    #[must_use]
    pub fn get(&self, key: impl EncodeAs<IK>) -> IndexMatches<IK, K, V, C> {
        self.now().get(key)
    }

    /// Returns the entries whose index keys are within `bounds`, ordered by index key, then by key.
    #[must_use]
    pub fn range<Q: EncodeAs<IK>>(&self, bounds: impl RangeBounds<Q>) -> IndexEntries<IK, K, V, C> {
        self.now().range(bounds)
    }

    /// Returns all entries that have an index key, ordered by index key, then by key.
    #[must_use]
    pub fn iter(&self) -> IndexEntries<IK, K, V, C> {
        self.now().iter()
    }

    /// Returns all index keys with their keys. Reads only the index.
    #[must_use]
    pub fn keys(&self) -> Keys<(IK, K)> {
        self.now().keys()
    }
}

impl<IK, K, V, C> Clone for Index<IK, K, V, C> {
    fn clone(&self) -> Self {
        let (db, entries, data) = (self.db.clone(), self.entries.clone(), self.data.clone());
        Self { db, entries, record: Arc::clone(&self.record), data, types: PhantomData }
    }
}

impl<IK, K, V, C> fmt::Debug for Index<IK, K, V, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Index").field("name", &self.entries.name()).finish_non_exhaustive()
    }
}

/// A view of an [`Index`] and its data at one point in time.
pub struct IndexSnapshot<IK, K, V, C = Postcard> {
    entries: KeyspaceSnapshot,
    data: TypedSnapshot<K, V, C>,
    name: Arc<str>,
    types: PhantomData<fn() -> IK>,
}

impl<IK: Key, K: Key, V, C: Codec<V>> IndexSnapshot<IK, K, V, C> {
    /// Returns the entries with this index key, as [`Index::get`] does.
    #[must_use]
    pub fn get(&self, key: impl EncodeAs<IK>) -> IndexMatches<IK, K, V, C> {
        let key = (Bound::Included(&key), Bound::Included(&key));
        IndexMatches(self.range::<&_>(key))
    }

    /// Returns the entries whose index keys are within `bounds`, as [`Index::range`] does.
    #[must_use]
    pub fn range<Q: EncodeAs<IK>>(&self, bounds: impl RangeBounds<Q>) -> IndexEntries<IK, K, V, C> {
        let bounds = (bounds.start_bound().map(|key| (key,)), bounds.end_bound().map(|key| (key,)));
        let bounds = prefix_bounds::<(IK, K), (&Q,)>(&bounds);
        self.entries_of(self.keys_within(bounds))
    }

    /// Returns all entries that have an index key, as [`Index::iter`] does.
    #[must_use]
    pub fn iter(&self) -> IndexEntries<IK, K, V, C> {
        self.entries_of(self.keys())
    }

    /// Returns all index keys with their keys, as [`Index::keys`] does.
    #[must_use]
    pub fn keys(&self) -> Keys<(IK, K)> {
        self.keys_within((Bound::Unbounded, Bound::Unbounded))
    }

    fn entries_of(&self, keys: Keys<(IK, K)>) -> IndexEntries<IK, K, V, C> {
        IndexEntries { keys, data: self.data.clone(), index: Arc::clone(&self.name) }
    }

    fn keys_within(&self, bounds: KeyBounds) -> Keys<(IK, K)> {
        keys_of(self.entries.range::<Vec<u8>>(bounds), &self.name)
    }
}

impl<IK, K, V, C> fmt::Debug for IndexSnapshot<IK, K, V, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IndexSnapshot").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Iterator over index keys, keys and values, in the order of the index.
///
/// Yields an error for an entry that cannot be decoded, or an index entry without data, and
/// continues after it. See [`Entries`](crate::Entries).
pub struct IndexEntries<IK, K, V, C = Postcard> {
    keys: Keys<(IK, K)>,
    data: TypedSnapshot<K, V, C>,
    index: Arc<str>,
}

impl<IK: Key, K: Key, V, C: Codec<V>> IndexEntries<IK, K, V, C> {
    /// Reads the value of an index entry.
    fn entry(&self, found: Result<(IK, K)>) -> Result<(IK, K, V)> {
        let (index_key, key) = found?;
        match self.data.get(&key)? {
            Some(value) => Ok((index_key, key, value)),
            None => {
                let key = key::to_bytes::<K>(&key).into();
                Err(Error::StaleIndex { index: Arc::clone(&self.index), key })
            }
        }
    }
}

impl<IK: Key, K: Key, V, C: Codec<V>> Iterator for IndexEntries<IK, K, V, C> {
    type Item = Result<(IK, K, V)>;

    fn next(&mut self) -> Option<Self::Item> {
        let found = self.keys.next()?;
        Some(self.entry(found))
    }
}

impl<IK: Key, K: Key, V, C: Codec<V>> DoubleEndedIterator for IndexEntries<IK, K, V, C> {
    fn next_back(&mut self) -> Option<Self::Item> {
        let found = self.keys.next_back()?;
        Some(self.entry(found))
    }
}

impl<IK: Key, K: Key, V, C: Codec<V>> FusedIterator for IndexEntries<IK, K, V, C> {}

impl<IK, K, V, C> fmt::Debug for IndexEntries<IK, K, V, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IndexEntries").field("index", &self.index).finish_non_exhaustive()
    }
}

/// Iterator over the keys and values with one index key, ordered by key.
pub struct IndexMatches<IK, K, V, C = Postcard>(IndexEntries<IK, K, V, C>);

impl<IK: Key, K: Key, V, C: Codec<V>> Iterator for IndexMatches<IK, K, V, C> {
    type Item = Result<(K, V)>;

    fn next(&mut self) -> Option<Self::Item> {
        Some(self.0.next()?.map(|(_, key, value)| (key, value)))
    }
}

impl<IK: Key, K: Key, V, C: Codec<V>> DoubleEndedIterator for IndexMatches<IK, K, V, C> {
    fn next_back(&mut self) -> Option<Self::Item> {
        Some(self.0.next_back()?.map(|(_, key, value)| (key, value)))
    }
}

impl<IK: Key, K: Key, V, C: Codec<V>> FusedIterator for IndexMatches<IK, K, V, C> {}

impl<IK, K, V, C> fmt::Debug for IndexMatches<IK, K, V, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("IndexMatches").field(&self.0).finish()
    }
}
