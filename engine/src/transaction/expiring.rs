//! Values that expire, in a transaction.
//!
//! The clock of a transaction is fixed at its start. A TTL counts from this time, and a value that
//! has expired by then is written as a removal.

use std::time::{Duration, SystemTime};

use super::Transaction;
use crate::{
    Keyspace, Result, TimeToLive,
    commit::check_entry,
    time_to_live::{expiry_after, expiry_at},
};

/// Values that expire: see [`Keyspace::insert_with_ttl`]. The clock of a transaction is fixed at
/// its start. The expiry of a value is not a write: it causes no conflict.
impl Transaction {
    /// Sets the expiry of `key` to the time when `ttl` has passed, counted from the start of the
    /// transaction. Returns `false` if the key has no value. Reads the value by
    /// [`get_for_update`](Self::get_for_update), and writes it again.
    ///
    /// # Errors
    ///
    /// As [`insert`](Self::insert) and [`get_for_update`](Self::get_for_update).
    pub fn expire_after(
        &mut self,
        keyspace: impl AsRef<Keyspace>,
        key: impl AsRef<[u8]>,
        ttl: Duration,
    ) -> Result<bool> {
        let expiry_ms = expiry_after(self.clock_ms(), ttl);
        self.set_expiry(keyspace.as_ref(), key.as_ref(), expiry_ms)
    }

    /// Sets the expiry of `key` to `time` of the [store clock](crate::Db::store_time). Otherwise as
    /// [`expire_after`](Self::expire_after).
    ///
    /// # Errors
    ///
    /// As [`insert`](Self::insert) and [`get_for_update`](Self::get_for_update).
    pub fn expire_at(
        &mut self,
        keyspace: impl AsRef<Keyspace>,
        key: impl AsRef<[u8]>,
        time: SystemTime,
    ) -> Result<bool> {
        self.set_expiry(keyspace.as_ref(), key.as_ref(), expiry_at(time))
    }

    fn set_expiry(&mut self, keyspace: &Keyspace, key: &[u8], expiry_ms: u64) -> Result<bool> {
        let Some(value) = self.get_for_update(keyspace, key)? else { return Ok(false) };
        self.add_value(keyspace, key, Some(expiry_ms), &value)?;
        Ok(true)
    }

    /// Removes the expiry of `key`, and keeps its value. Returns `false` if the key has no value.
    /// Reads the value by [`get_for_update`](Self::get_for_update), and writes it again if it has
    /// an expiry.
    ///
    /// # Errors
    ///
    /// As [`insert`](Self::insert) and [`get_for_update`](Self::get_for_update).
    pub fn persist_key(
        &mut self,
        keyspace: impl AsRef<Keyspace>,
        key: impl AsRef<[u8]>,
    ) -> Result<bool> {
        let (keyspace, key) = (keyspace.as_ref(), key.as_ref());
        let Some(value) = self.get_for_update(keyspace, key)? else { return Ok(false) };
        if self.time_to_live(keyspace, key)? != Some(TimeToLive::Unlimited) {
            self.add_value(keyspace, key, None, &value)?;
        }
        Ok(true)
    }

    /// Returns the time to live of the value of `key` in `keyspace`, counted from the start of the
    /// transaction; `None` if the key has no value. The commit depends on the key as by
    /// [`get`](Self::get).
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get).
    pub fn ttl(
        &self,
        keyspace: impl AsRef<Keyspace>,
        key: impl AsRef<[u8]>,
    ) -> Result<Option<TimeToLive>> {
        let (keyspace, key) = (keyspace.as_ref(), key.as_ref());
        let store = self.accept(keyspace)?;
        if self.writes.get(keyspace.tree(), key).is_none() {
            self.note_read(store, keyspace.tree(), key)?;
        }
        self.time_to_live(keyspace, key)
    }

    fn time_to_live(&self, keyspace: &Keyspace, key: &[u8]) -> Result<Option<TimeToLive>> {
        if let Some(own) = self.writes.get(keyspace.tree(), key) {
            keyspace.tree().check()?;
            return Ok(own.map(|own| TimeToLive::at(self.clock_ms(), own.expiry_ms)));
        }
        self.reader(keyspace).time_to_live(key)
    }

    fn clock_ms(&self) -> u64 {
        self.held.read_point().clock_ms()
    }

    /// Returns the time from which a TTL counts, for any keyspace.
    pub(super) fn ttl_start_ms(&self, _: &Keyspace) -> Result<u64> {
        Ok(self.clock_ms())
    }

    /// Returns the expiry of a value that is written without a TTL.
    pub(super) fn default_expiry_ms(&self, keyspace: &Keyspace) -> Option<u64> {
        keyspace.tree().default_expiry_ms(|| self.clock_ms())
    }

    /// Adds a write of a value that expires at `expiry_ms` of the store clock; never with `None`.
    pub(super) fn add_value(
        &mut self,
        keyspace: &Keyspace,
        key: &[u8],
        expiry_ms: Option<u64>,
        value: &[u8],
    ) -> Result<()> {
        check_entry(key, value)?;
        let has_expired = expiry_ms.is_some_and(|expiry_ms| expiry_ms <= self.clock_ms());
        let value = (value, expiry_ms);
        self.write(keyspace, key, (!has_expired).then_some(value))
    }
}
