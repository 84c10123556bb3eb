//! A store as it was at one moment.

use std::{
    fmt,
    ops::{Deref, RangeBounds},
    sync::Arc,
};

use bytes::Bytes;
use sievedb_filter::hash::key_hash;
use sievedb_format::SequenceNumber;

use crate::{
    Error, Explanation, Keyspace, Range, ReadOptions, Result, handles::HandleKind,
    iter::bounds::KeyBounds, read::answer::Answer, store::open_store::OpenStore,
};

/// A store as it was at one moment, all keyspaces alike.
///
/// Has no lifetime. While it lives, the versions it sees are kept. Reading methods are those of
/// [`KeyspaceSnapshot`], here for the default keyspace; [`keyspace`](Self::keyspace) reads others.
#[derive(Debug, Clone)]
pub struct Snapshot {
    default: KeyspaceSnapshot,
}

/// A keyspace as it was at one moment.
#[derive(Debug)]
pub struct KeyspaceSnapshot {
    keyspace: Keyspace,
    held: Arc<HeldSequence>,
}

/// Keeps a sequence number listed.
struct HeldSequence {
    open: Arc<OpenStore>,
    sequence: SequenceNumber,
}

impl fmt::Debug for HeldSequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HeldSequence").field(&self.sequence).finish()
    }
}

impl Drop for HeldSequence {
    fn drop(&mut self) {
        let store = self.open.store();
        if store.is_forked() {
            return;
        }
        store.background.snapshot_is_gone(store.snapshots.remove(self.sequence));
    }
}

impl Clone for KeyspaceSnapshot {
    fn clone(&self) -> Self {
        let keyspace = self.keyspace.of_kind(HandleKind::Snapshot);
        Self { keyspace, held: Arc::clone(&self.held) }
    }
}

impl Snapshot {
    pub(crate) fn new(default: &Keyspace) -> Self {
        let open = Arc::clone(default.open_store());
        let store = open.store();
        let list = || {
            let now = store.options.clock.now();
            store.snapshots.add(now, || store.publish.visible())
        };
        // In a forked child its reads are refused, and nothing is listed.
        let sequence = store.check_open().map_or(0, |()| list());
        let held = Arc::new(HeldSequence { open, sequence });
        let keyspace = default.of_kind(HandleKind::Snapshot);
        Self { default: KeyspaceSnapshot { keyspace, held } }
    }

    /// `keyspace` at the moment of this snapshot. One that was created later is empty.
    ///
    /// # Errors
    ///
    /// [`Error::ForeignKeyspace`] if it belongs to another store.
    pub fn keyspace(&self, keyspace: &Keyspace) -> Result<KeyspaceSnapshot> {
        if !Arc::ptr_eq(keyspace.open_store(), &self.default.held.open) {
            return Err(Error::ForeignKeyspace { name: keyspace.name().to_owned() });
        }
        let held = Arc::clone(&self.default.held);
        Ok(KeyspaceSnapshot { keyspace: keyspace.of_kind(HandleKind::Snapshot), held })
    }
}

impl Deref for Snapshot {
    type Target = KeyspaceSnapshot;

    fn deref(&self) -> &KeyspaceSnapshot {
        &self.default
    }
}

impl KeyspaceSnapshot {
    /// The same moment, whose reads are done so. As [`Keyspace::with_read_options`].
    #[must_use]
    pub fn with_read_options(&self, options: ReadOptions) -> Self {
        let keyspace = self.keyspace.with_read_options(options).of_kind(HandleKind::Snapshot);
        Self { keyspace, held: Arc::clone(&self.held) }
    }

    /// The value that `key` had.
    ///
    /// # Errors
    ///
    /// As [`Keyspace::get`].
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Bytes>> {
        self.find(key.as_ref())
    }

    /// What `take` makes of the value that `key` had. As [`Keyspace::get_with`].
    ///
    /// # Errors
    ///
    /// As [`Keyspace::get`].
    pub fn get_with<T>(
        &self,
        key: impl AsRef<[u8]>,
        take: impl FnOnce(&[u8]) -> T,
    ) -> Result<Option<T>> {
        self.held.open.accept()?;
        let view = self.keyspace.tree().view();
        self.keyspace.tree().check()?;
        self.keyspace.find_with(&view, self.held.sequence, key.as_ref(), take)
    }

    /// Whether `key` had a value.
    ///
    /// # Errors
    ///
    /// As [`Keyspace::get`].
    pub fn contains_key(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.find::<()>(key.as_ref()).map(|found| found.is_some())
    }

    /// The value that each of `keys` had. As [`Keyspace::get_many`].
    ///
    /// # Errors
    ///
    /// As [`Keyspace::get`], the first one that occurs.
    pub fn get_many<K: AsRef<[u8]>>(
        &self,
        keys: impl IntoIterator<Item = K>,
    ) -> Result<Vec<Option<Bytes>>> {
        self.find_many(keys.into_iter(), |found| found)
    }

    /// Whether each of `keys` had a value. As [`Keyspace::contains_many`].
    ///
    /// # Errors
    ///
    /// As [`Keyspace::get`], the first one that occurs.
    pub fn contains_many<K: AsRef<[u8]>>(
        &self,
        keys: impl IntoIterator<Item = K>,
    ) -> Result<Vec<bool>> {
        self.find_many(keys.into_iter(), |found: Option<()>| found.is_some())
    }

    /// What a lookup of `key` does at this moment. As [`Keyspace::explain`].
    ///
    /// # Errors
    ///
    /// As [`Keyspace::get`].
    pub fn explain(&self, key: impl AsRef<[u8]>) -> Result<Explanation> {
        self.held.open.accept()?;
        let view = self.keyspace.tree().view();
        self.keyspace.tree().check()?;
        self.keyspace.explain_in(&view, self.held.sequence, key.as_ref())
    }

    fn find<A: Answer>(&self, key: &[u8]) -> Result<Option<A>> {
        let store = self.held.open.accept()?;
        let hash = key_hash(key, store.hash_seed);
        let view = self.keyspace.tree().view();
        // After the view: a dropped keyspace has an empty one.
        self.keyspace.tree().check()?;
        self.keyspace
            .lookup(key, hash, self.held.sequence)
            .find(&view, store.tables.counters.local())
    }

    fn find_many<K: AsRef<[u8]>, A: Answer, T>(
        &self,
        keys: impl Iterator<Item = K>,
        result: impl Fn(Option<A>) -> T,
    ) -> Result<Vec<T>> {
        self.held.open.accept()?;
        let view = self.keyspace.tree().kept_view();
        self.keyspace.tree().check()?;
        self.keyspace.find_many_in(&view, self.held.sequence, keys, result)
    }

    /// All keys with the values they had. As [`Keyspace::iter`].
    #[must_use]
    pub fn iter(&self) -> Range {
        self.range::<&[u8]>(..)
    }

    /// The keys within `bounds` with the values they had. As [`Keyspace::range`].
    #[must_use]
    pub fn range<K: AsRef<[u8]>>(&self, bounds: impl RangeBounds<K>) -> Range {
        self.range_within(KeyBounds::new(&bounds))
    }

    /// The keys that begin with `prefix` with the values they had. As [`Keyspace::prefix`].
    #[must_use]
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Range {
        self.range_within(KeyBounds::prefix(prefix.as_ref()))
    }

    fn range_within(&self, bounds: KeyBounds) -> Range {
        if let Err(error) = self.held.open.accept() {
            return Range::refused(error);
        }
        let view = self.keyspace.tree().kept_view();
        Range::new(&self.keyspace, view, self.held.sequence, bounds)
    }
}
