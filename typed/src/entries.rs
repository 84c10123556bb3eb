//! Iterators over typed entries.

use std::{fmt, iter::FusedIterator, marker::PhantomData, sync::Arc};

use sievedb::{Bytes, Range};

use crate::{
    codec::{Codec, Postcard},
    error::{Error, Result},
    key::{self, EncodeAs, Key},
    reads::Types,
};

/// Iterator over typed entries, ascending from the front and descending from the back
/// ([`next_back`](DoubleEndedIterator::next_back), [`rev`](Iterator::rev)).
///
/// Reads the keyspace at the time of the iterator's creation. Yields an error for an entry that
/// cannot be decoded, and continues after it. Ends after an error of the engine.
pub struct Entries<K, V, C = Postcard> {
    range: Range,
    keyspace: Arc<str>,
    types: Types<K, V, C>,
}

impl<K: Key, V, C: Codec<V>> Entries<K, V, C> {
    pub(crate) fn new(range: Range, keyspace: &Arc<str>) -> Self {
        Self { range, keyspace: Arc::clone(keyspace), types: PhantomData }
    }

    /// Returns an iterator over the keys, which reads no values.
    #[must_use]
    pub fn keys(self) -> Keys<K> {
        keys_of(self.range, &self.keyspace)
    }

    /// Returns `true` if there is no entry. Reads no value and decodes nothing.
    ///
    /// # Errors
    ///
    /// [`Error::Engine`].
    pub fn is_empty(self) -> Result<bool> {
        Ok(self.range.is_empty()?)
    }

    /// Repositions the front at `key`, or at the first key after it, as
    /// [`Range::seek`](sievedb::Range::seek) does.
    pub fn seek(&mut self, key: impl EncodeAs<K>) {
        key::with_bytes(&key, |key| self.range.seek(key));
    }

    /// Repositions the back at `key`, or at the last key before it.
    pub fn seek_back(&mut self, key: impl EncodeAs<K>) {
        key::with_bytes(&key, |key| self.range.seek_back(key));
    }
}

/// Decodes a stored entry of `keyspace`.
pub(crate) fn decode_entry<K: Key, V, C: Codec<V>>(
    keyspace: &Arc<str>,
    entry: sievedb::Result<(Bytes, Bytes)>,
) -> Result<(K, V)> {
    let (key, value) = entry?;
    let decoded = C::decode(value).map_err(|source| Error::value(keyspace, &key, source))?;
    Ok((decode_key(keyspace, key)?, decoded))
}

/// Returns the decoded keys of `range`, of `keyspace`.
pub(crate) fn keys_of<K>(range: Range, keyspace: &Arc<str>) -> Keys<K> {
    Keys { keys: range.keys(), keyspace: Arc::clone(keyspace), types: PhantomData }
}

/// Decodes a stored key of `keyspace`.
pub(crate) fn decode_key<K: Key>(keyspace: &Arc<str>, key: Bytes) -> Result<K> {
    key::from_bytes(&key).map_err(|source| {
        let keyspace = Arc::clone(keyspace);
        Error::Key { keyspace, key, source }
    })
}

impl<K: Key, V, C: Codec<V>> Iterator for Entries<K, V, C> {
    type Item = Result<(K, V)>;

    fn next(&mut self) -> Option<Self::Item> {
        let entry = self.range.next()?;
        Some(decode_entry::<K, V, C>(&self.keyspace, entry))
    }
}

impl<K: Key, V, C: Codec<V>> DoubleEndedIterator for Entries<K, V, C> {
    fn next_back(&mut self) -> Option<Self::Item> {
        let entry = self.range.next_back()?;
        Some(decode_entry::<K, V, C>(&self.keyspace, entry))
    }
}

impl<K: Key, V, C: Codec<V>> FusedIterator for Entries<K, V, C> {}

impl<K, V, C> fmt::Debug for Entries<K, V, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entries").field("keyspace", &self.keyspace).finish_non_exhaustive()
    }
}

/// Iterator over the keys of [`Entries`].
pub struct Keys<K> {
    keys: sievedb::Keys,
    keyspace: Arc<str>,
    types: PhantomData<fn() -> K>,
}

impl<K: Key> Iterator for Keys<K> {
    type Item = Result<K>;

    fn next(&mut self) -> Option<Self::Item> {
        let key = self.keys.next()?;
        Some(key.map_err(Error::from).and_then(|key| decode_key(&self.keyspace, key)))
    }
}

impl<K: Key> DoubleEndedIterator for Keys<K> {
    fn next_back(&mut self) -> Option<Self::Item> {
        let key = self.keys.next_back()?;
        Some(key.map_err(Error::from).and_then(|key| decode_key(&self.keyspace, key)))
    }
}

impl<K: Key> FusedIterator for Keys<K> {}

impl<K> fmt::Debug for Keys<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keys").field("keyspace", &self.keyspace).finish_non_exhaustive()
    }
}
