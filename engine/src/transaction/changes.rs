//! Writes of a transaction that depend on the current value of their key.

use bytes::Bytes;

use super::Transaction;
#[cfg(doc)]
use crate::Error;
use crate::{Keyspace, Result, keyspace::conditional::count_of, read::observer::Expiring};

/// Writes that depend on the present value of their key, and the ends of a keyspace.
///
/// A write reads its key by [`get_for_update`](Transaction::get_for_update), so that the commit
/// fails at every isolation if another write changes the key. It costs that read and an
/// [`insert`](Transaction::insert) or a [`remove`](Transaction::remove).
///
/// **A new value keeps the expiry of the value that it replaces.** The value of an absent key has
/// the [default TTL](crate::KeyspaceOptions::default_ttl) of the keyspace.
impl Transaction {
    /// Replaces the value of `key` in `keyspace` by the result of `change`, which takes the present
    /// value. `None` stands for no value, in both places. Returns the **previous** value;
    /// [`update_fetch`](Self::update_fetch) returns the new one.
    ///
    /// # Errors
    ///
    /// As [`get_for_update`](Self::get_for_update) and [`insert`](Self::insert).
    pub fn fetch_update<V: AsRef<[u8]>>(
        &mut self,
        keyspace: impl AsRef<Keyspace>,
        key: impl AsRef<[u8]>,
        change: impl FnOnce(Option<&[u8]>) -> Option<V>,
    ) -> Result<Option<Bytes>> {
        Ok(self.replace_value(keyspace.as_ref(), key.as_ref(), change)?.0)
    }

    /// Replaces the value of `key` as [`fetch_update`](Self::fetch_update) does, and returns the
    /// **new** value.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// let db = sievedb::Db::open(dir.path())?;
    /// db.transaction(|transaction| {
    ///     transaction.update_fetch(&db, "text", |_| Some("to"))?;
    ///     let add = |text: Option<&[u8]>| Some([text.unwrap_or_default(), b"be"].concat());
    ///     let new = transaction.update_fetch(&db, "text", add)?;
    ///     assert_eq!(new.as_deref(), Some(&b"tobe"[..]));
    ///     Ok(())
    /// })?;
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`get_for_update`](Self::get_for_update) and [`insert`](Self::insert).
    pub fn update_fetch<V: AsRef<[u8]>>(
        &mut self,
        keyspace: impl AsRef<Keyspace>,
        key: impl AsRef<[u8]>,
        change: impl FnOnce(Option<&[u8]>) -> Option<V>,
    ) -> Result<Option<V>> {
        Ok(self.replace_value(keyspace.as_ref(), key.as_ref(), change)?.1)
    }

    /// Returns the previous value and the new one.
    fn replace_value<V: AsRef<[u8]>>(
        &mut self,
        keyspace: &Keyspace,
        key: &[u8],
        change: impl FnOnce(Option<&[u8]>) -> Option<V>,
    ) -> Result<(Option<Bytes>, Option<V>)> {
        let found = self.find_for_update(keyspace, key)?;
        let new = change(found.as_ref().map(|(old, _)| &**old));
        match &new {
            Some(new) => self.replace(keyspace, key, found.as_ref(), new.as_ref())?,
            None if found.is_some() => self.remove(keyspace, key)?,
            None => {}
        }
        Ok((found.map(|(old, _)| old), new))
    }

    /// Writes `new`, which keeps the expiry of the `old` value.
    pub(super) fn replace(
        &mut self,
        keyspace: &Keyspace,
        key: &[u8],
        old: Option<&Expiring<Bytes>>,
        new: &[u8],
    ) -> Result<()> {
        let expiry_ms = match old {
            Some((_, expiry_ms)) => *expiry_ms,
            None => self.default_expiry_ms(keyspace),
        };
        self.add_value(keyspace, key, expiry_ms, new)
    }

    /// Adds `delta` to the counter `key` in `keyspace`, and returns the previous count. Counters
    /// are those of [`Keyspace::fetch_add`].
    ///
    /// # Errors
    ///
    /// [`Error::NotACounter`] for a value of another length; as
    /// [`get_for_update`](Self::get_for_update) and [`insert`](Self::insert).
    pub fn fetch_add(
        &mut self,
        keyspace: impl AsRef<Keyspace>,
        key: impl AsRef<[u8]>,
        delta: i64,
    ) -> Result<i64> {
        let (keyspace, key) = (keyspace.as_ref(), key.as_ref());
        let found = self.find_for_update(keyspace, key)?;
        let count = count_of(key, found.as_ref().map(|(value, _)| &**value))?;
        self.replace(keyspace, key, found.as_ref(), &count.wrapping_add(delta).to_be_bytes())?;
        Ok(count)
    }

    /// Removes `key` from `keyspace` and returns its value, or `None` if the key has no value.
    ///
    /// # Errors
    ///
    /// As [`get_for_update`](Self::get_for_update) and [`remove`](Self::remove).
    pub fn take(
        &mut self,
        keyspace: impl AsRef<Keyspace>,
        key: impl AsRef<[u8]>,
    ) -> Result<Option<Bytes>> {
        self.fetch_update(keyspace, key, |_| None::<&[u8]>)
    }

    /// Returns the entry of `keyspace` with the smallest key, or `None` if there is no key. Costs
    /// the first step of [`iter`](Self::iter). A
    /// [serializable](crate::Isolation::Serializable) transaction depends on the keys up to that
    /// entry.
    ///
    /// # Errors
    ///
    /// As [`iter`](Self::iter).
    pub fn first(&self, keyspace: impl AsRef<Keyspace>) -> Result<Option<(Bytes, Bytes)>> {
        self.iter(keyspace).next().transpose()
    }

    /// Returns the entry of `keyspace` with the largest key. Otherwise as [`first`](Self::first).
    ///
    /// # Errors
    ///
    /// As [`iter`](Self::iter).
    pub fn last(&self, keyspace: impl AsRef<Keyspace>) -> Result<Option<(Bytes, Bytes)>> {
        self.iter(keyspace).next_back().transpose()
    }
}
