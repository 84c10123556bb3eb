//! Lookups of a transaction.

use std::sync::Arc;

use bytes::Bytes;
use sievedb_filter::hash::key_hash;

use super::{Isolation, Transaction, own_writes::OwnValue};
use crate::{
    Error, Keyspace, Result,
    memory::Charge,
    read::{
        observer::{Expiring, ExpiryObserver, FromValue, NoObserver},
        tree::Tree,
    },
    reader::Reader,
    store::Store,
    validation::read_set::ReadSet,
};

/// The read set, and the memory of the whole transaction.
#[derive(Debug, Default)]
pub(super) struct Tracked {
    pub(super) set: ReadSet,
    /// Memory of the read set and of the writes.
    pub(super) bytes: usize,
}

impl Tracked {
    /// Charges `bytes` before they are allocated.
    ///
    /// # Errors
    ///
    /// [`Error::TransactionTooLarge`].
    pub(super) fn take_bytes(
        &mut self,
        bytes: usize,
        bytes_max: u64,
        charge: &Charge,
    ) -> Result<()> {
        let all = (self.bytes + bytes) as u64;
        if all > bytes_max {
            return Err(Error::TransactionTooLarge { bytes: all, bytes_max });
        }
        self.bytes += bytes;
        charge.grow(bytes);
        Ok(())
    }
}

impl Transaction {
    /// Returns the value of `key` in `keyspace`, or `None` if the key has no value. A
    /// [serializable](Isolation::Serializable) transaction depends on the key from then on.
    ///
    /// # Errors
    ///
    /// As [`Keyspace::get`]; [`Error::ForeignKeyspace`]; [`Error::TransactionTooLarge`] if the read
    /// set has no room for the key.
    pub fn get(
        &self,
        keyspace: impl AsRef<Keyspace>,
        key: impl AsRef<[u8]>,
    ) -> Result<Option<Bytes>> {
        let (keyspace, key) = (keyspace.as_ref(), key.as_ref());
        let store = self.accept(keyspace)?;
        if let Some(own) = self.writes.get(keyspace.tree(), key) {
            keyspace.tree().check()?;
            return Ok(own.map(|own| own.bytes.clone()));
        }
        self.note_read(store, keyspace.tree(), key)?;
        self.reader(keyspace).find(key, &mut NoObserver)
    }

    /// Returns the value of `key` in `keyspace`, and makes the commit depend on it at every
    /// [isolation](Isolation): it fails if the key was written after the transaction began.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get).
    pub fn get_for_update(
        &self,
        keyspace: impl AsRef<Keyspace>,
        key: impl AsRef<[u8]>,
    ) -> Result<Option<Bytes>> {
        let found = self.find_for_update(keyspace.as_ref(), key.as_ref())?;
        Ok(found.map(|(value, _)| value))
    }

    /// As [`get_for_update`](Self::get_for_update), with the expiry of the value.
    pub(super) fn find_for_update(
        &self,
        keyspace: &Keyspace,
        key: &[u8],
    ) -> Result<Option<Expiring<Bytes>>> {
        let store = self.accept(keyspace)?;
        if !self.options.read_only {
            self.add_key(store, keyspace.tree(), key)?;
        }
        if let Some(own) = self.writes.get(keyspace.tree(), key) {
            keyspace.tree().check()?;
            return Ok(own.map(|own| (own.bytes.clone(), own.expiry_ms)));
        }
        self.reader(keyspace).find(key, &mut ExpiryObserver::default())
    }

    /// Returns `true` if `key` has a value in `keyspace`. As [`get`](Self::get), but does not read
    /// the value.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get).
    pub fn contains_key(
        &self,
        keyspace: impl AsRef<Keyspace>,
        key: impl AsRef<[u8]>,
    ) -> Result<bool> {
        let (keyspace, key) = (keyspace.as_ref(), key.as_ref());
        let store = self.accept(keyspace)?;
        if let Some(own) = self.writes.get(keyspace.tree(), key) {
            keyspace.tree().check()?;
            return Ok(own.is_some());
        }
        self.note_read(store, keyspace.tree(), key)?;
        let found: Option<()> = self.reader(keyspace).find(key, &mut NoObserver)?;
        Ok(found.is_some())
    }

    /// Returns the value of each of `keys` in `keyspace`, in their order. Faster than one
    /// [`get`](Self::get) for each key, as [`Keyspace::get_many`].
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get): the first error.
    pub fn get_many<K: AsRef<[u8]>>(
        &self,
        keyspace: impl AsRef<Keyspace>,
        keys: impl IntoIterator<Item = K>,
    ) -> Result<Vec<Option<Bytes>>> {
        let keys: Vec<K> = keys.into_iter().collect();
        self.look_up_many(keyspace.as_ref(), &keys, |found| found, |own| own)
    }

    /// Returns `true` for each of `keys` that has a value in `keyspace`, in their order. As
    /// [`get_many`](Self::get_many), but does not read values.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get): the first error.
    pub fn contains_many<K: AsRef<[u8]>>(
        &self,
        keyspace: impl AsRef<Keyspace>,
        keys: impl IntoIterator<Item = K>,
    ) -> Result<Vec<bool>> {
        let keys: Vec<K> = keys.into_iter().collect();
        let is_found = |found: Option<()>| found.is_some();
        self.look_up_many(keyspace.as_ref(), &keys, is_found, |own| own.is_some())
    }

    /// Returns a result for each key: that of `own` for the transaction's own write, if there is
    /// one, or that of `found` for the value in the snapshot.
    fn look_up_many<K: AsRef<[u8]>, V: FromValue, T>(
        &self,
        keyspace: &Keyspace,
        keys: &[K],
        found: impl Fn(Option<V>) -> T,
        own: impl Fn(Option<Bytes>) -> T,
    ) -> Result<Vec<T>> {
        let store = self.accept(keyspace)?;
        let tree = keyspace.tree();
        let own_writes: Vec<_> = match self.writes.has_none(tree) {
            true => Vec::new(),
            false => keys.iter().map(|key| self.writes.get(tree, key.as_ref())).collect(),
        };
        let is_own = |at: usize| own_writes.get(at).is_some_and(Option::is_some);
        // Reading the stored value of an overwritten key may fail, so it is skipped.
        let others = || keys.iter().enumerate().filter(|(at, _)| !is_own(*at)).map(|(_, key)| key);
        for key in others() {
            self.note_read(store, tree, key.as_ref())?;
        }
        let results = self.reader(keyspace).find_many(others(), found)?;
        if own_writes.is_empty() {
            return Ok(results);
        }
        let mut results = results.into_iter();
        let of_key = |written: Option<Option<&OwnValue>>| match written {
            Some(written) => own(written.map(|written| written.bytes.clone())),
            None => results.next().expect("each other key has a result"),
        };
        Ok(own_writes.into_iter().map(of_key).collect())
    }

    /// Returns a reader of the snapshot.
    pub(super) fn reader<'k>(&self, keyspace: &'k Keyspace) -> Reader<'k> {
        Reader { snapshot: Some(self.held.read_point()), ..keyspace.reader() }
    }

    /// Returns `true` if the commit depends on all reads.
    pub(super) fn tracks_reads(&self) -> bool {
        self.options.isolation == Isolation::Serializable && !self.options.read_only
    }

    pub(super) fn note_read(&self, store: &Store, tree: &Arc<Tree>, key: &[u8]) -> Result<()> {
        if self.tracks_reads() { self.add_key(store, tree, key) } else { Ok(()) }
    }

    fn add_key(&self, store: &Store, tree: &Arc<Tree>, key: &[u8]) -> Result<()> {
        let mut tracked = self.tracked.lock();
        if tracked.set.has_key(tree, key) {
            return Ok(());
        }
        tracked.take_bytes(ReadSet::key_bytes(key), self.bytes_max, &self.charge)?;
        tracked.set.add_key(tree, Bytes::copy_from_slice(key), key_hash(key, store.hash_seed));
        Ok(())
    }
}
