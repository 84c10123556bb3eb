//! The steps of writes to an indexed keyspace, on encoded keys.

use sievedb::{Keyspace, Transaction};

use super::{Indexed, indexed::Before};
use crate::{
    codec::Codec,
    error::Result,
    key::Key,
    transaction::{Expiry, sealed::Writes as _},
};

impl<K: Key, V, C: Codec<V>> Indexed<K, V, C> {
    pub(super) fn replace(
        &self,
        transaction: &mut Transaction,
        key: &[u8],
        value: &V,
        expiry: Expiry,
    ) -> Result<()> {
        let (_, before) = self.before(transaction, key)?;
        self.put(transaction, key, &before, value, expiry)
    }

    /// Stores a value and its index entries.
    pub(super) fn put(
        &self,
        transaction: &mut Transaction,
        key: &[u8],
        before: &Before,
        value: &V,
        expiry: Expiry,
    ) -> Result<()> {
        let bytes = self.keyspace().encode_value(value)?;
        transaction.put(self.keyspace().untyped(), key, &bytes, expiry)?;
        self.follow(transaction, key, before, Some(value))
    }

    /// Stores a value that keeps the expiry of the old one, or removes the old one.
    pub(super) fn set(
        &self,
        transaction: &mut Transaction,
        key: &[u8],
        before: &Before,
        new: Option<&V>,
    ) -> Result<()> {
        match (new, before.ttl) {
            (Some(new), None) => self.put(transaction, key, before, new, Expiry::Default),
            (Some(new), ttl) => self.put(transaction, key, before, new, Expiry::of(ttl)),
            (None, Some(_)) => {
                transaction.remove(self.keyspace(), key)?;
                self.follow(transaction, key, before, None)
            }
            (None, None) => Ok(()),
        }
    }

    /// Removes the value if it meets `condition`, and returns it.
    pub(super) fn delete_if(
        &self,
        transaction: &mut Transaction,
        key: &[u8],
        condition: impl FnOnce(&V) -> bool,
    ) -> Result<Option<V>> {
        let (old, before) = self.before(transaction, key)?;
        let Some(old) = old.filter(condition) else { return Ok(None) };
        transaction.remove(self.keyspace(), key)?;
        self.follow(transaction, key, &before, None)?;
        Ok(Some(old))
    }

    /// Replaces the value by the first result of `change`. Returns both results.
    pub(super) fn change<T>(
        &self,
        transaction: &mut Transaction,
        key: &[u8],
        change: impl FnOnce(Option<V>) -> (Option<V>, T),
    ) -> Result<(Option<V>, T)> {
        let (old, before) = self.before(transaction, key)?;
        let (new, result) = change(old);
        self.set(transaction, key, &before, new.as_ref())?;
        Ok((new, result))
    }

    /// Adds a merge operand.
    pub(super) fn fold(
        &self,
        transaction: &mut Transaction,
        key: &[u8],
        operand: &V,
    ) -> Result<()> {
        let (_, before) = self.before(transaction, key)?;
        let operand = self.keyspace().encode_value(operand)?;
        transaction.merge(self.keyspace(), key, operand)?;
        let new = self.keyspace().read_for_update(transaction, key)?;
        self.follow(transaction, key, &before, new.as_ref())
    }

    /// Sets or removes the expiry of the value by `set`. Returns `false` without a value.
    pub(super) fn set_expiry(
        &self,
        transaction: &mut Transaction,
        key: &[u8],
        set: impl FnOnce(&mut Transaction, &Keyspace) -> sievedb::Result<bool>,
    ) -> Result<bool> {
        let (value, before) = self.before(transaction, key)?;
        let was_present = set(transaction, self.keyspace().untyped())?;
        debug_assert_eq!(was_present, value.is_some(), "reads of one transaction differ");
        if was_present {
            self.follow(transaction, key, &before, value.as_ref())?;
        }
        Ok(was_present)
    }
}
