//! Iterators over typed entries as a transaction sees them.

use std::{fmt, iter::FusedIterator, marker::PhantomData, sync::Arc};

use sievedb::TransactionRange;

use crate::{
    codec::{Codec, Postcard},
    entries::{decode_entry, decode_key},
    error::{Error, Result},
    key::Key,
    reads::Types,
};

/// Iterator over typed entries as a [`Transaction`](sievedb::Transaction) sees them, ascending from
/// the front and descending from the back.
///
/// Borrows the transaction: drop the iterator before the next write. Yields an error for an entry
/// that cannot be decoded, and continues after it. Ends after an error of the engine. The
/// transaction depends on the part that was read, as by a
/// [`TransactionRange`](sievedb::TransactionRange).
pub struct TransactionEntries<'t, K, V, C = Postcard> {
    range: TransactionRange<'t>,
    keyspace: Arc<str>,
    types: Types<K, V, C>,
}

impl<'t, K: Key, V, C: Codec<V>> TransactionEntries<'t, K, V, C> {
    pub(crate) fn new(range: TransactionRange<'t>, keyspace: &Arc<str>) -> Self {
        Self { range, keyspace: Arc::clone(keyspace), types: PhantomData }
    }

    /// Returns an iterator over the keys, which reads no values.
    #[must_use]
    pub fn keys(self) -> TransactionKeys<'t, K> {
        TransactionKeys { keys: self.range.keys(), keyspace: self.keyspace, types: PhantomData }
    }

    /// Returns `true` if there is no entry. Reads no value and decodes nothing.
    ///
    /// # Errors
    ///
    /// [`Error::Engine`].
    pub fn is_empty(self) -> Result<bool> {
        Ok(self.range.is_empty()?)
    }
}

impl<K: Key, V, C: Codec<V>> Iterator for TransactionEntries<'_, K, V, C> {
    type Item = Result<(K, V)>;

    fn next(&mut self) -> Option<Self::Item> {
        let entry = self.range.next()?;
        Some(decode_entry::<K, V, C>(&self.keyspace, entry))
    }
}

impl<K: Key, V, C: Codec<V>> DoubleEndedIterator for TransactionEntries<'_, K, V, C> {
    fn next_back(&mut self) -> Option<Self::Item> {
        let entry = self.range.next_back()?;
        Some(decode_entry::<K, V, C>(&self.keyspace, entry))
    }
}

impl<K: Key, V, C: Codec<V>> FusedIterator for TransactionEntries<'_, K, V, C> {}

impl<K, V, C> fmt::Debug for TransactionEntries<'_, K, V, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TransactionEntries")
            .field("keyspace", &self.keyspace)
            .finish_non_exhaustive()
    }
}

/// Iterator over the keys of [`TransactionEntries`].
pub struct TransactionKeys<'t, K> {
    keys: sievedb::TransactionKeys<'t>,
    keyspace: Arc<str>,
    types: PhantomData<fn() -> K>,
}

impl<K: Key> Iterator for TransactionKeys<'_, K> {
    type Item = Result<K>;

    fn next(&mut self) -> Option<Self::Item> {
        let key = self.keys.next()?;
        Some(key.map_err(Error::from).and_then(|key| decode_key(&self.keyspace, key)))
    }
}

impl<K: Key> DoubleEndedIterator for TransactionKeys<'_, K> {
    fn next_back(&mut self) -> Option<Self::Item> {
        let key = self.keys.next_back()?;
        Some(key.map_err(Error::from).and_then(|key| decode_key(&self.keyspace, key)))
    }
}

impl<K: Key> FusedIterator for TransactionKeys<'_, K> {}

impl<K> fmt::Debug for TransactionKeys<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TransactionKeys").field("keyspace", &self.keyspace).finish_non_exhaustive()
    }
}
