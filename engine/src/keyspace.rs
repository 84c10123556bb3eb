//! A named collection of keys.

use std::{fmt, ops::RangeBounds, sync::Arc};

use bytes::Bytes;
use sievedb_filter::hash::key_hash;

use crate::{
    FilterPolicy, Range, Result,
    batch::WriteEncoder,
    commit::{Always, Placed, Validate, Verdict},
    iter::bounds::KeyBounds,
    read::lookup::Lookup,
    read::tree::Tree,
    store::open_store::OpenStore,
};

/// A named collection of keys with options of its own. RocksDB calls it a column family.
///
/// Cheap to clone and safe to share between threads. All keyspaces of a store share its log and
/// its manifest, so that a [`Batch`](crate::Batch) over several of them is written as one.
///
/// Keys have 0 bytes to [`KEY_BYTES_MAX`](crate::KEY_BYTES_MAX), values 0 bytes to
/// [`VALUE_BYTES_MAX`](crate::VALUE_BYTES_MAX). Keys are ordered byte by byte.
#[derive(Clone)]
pub struct Keyspace {
    open: Arc<OpenStore>,
    tree: Arc<Tree>,
}

impl Keyspace {
    pub(crate) fn new(open: Arc<OpenStore>, tree: Arc<Tree>) -> Self {
        Self { open, tree }
    }

    pub(crate) fn open_store(&self) -> &Arc<OpenStore> {
        &self.open
    }

    pub(crate) fn tree(&self) -> &Arc<Tree> {
        &self.tree
    }

    /// The name it was created with.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.tree.name
    }

    /// Stores `value` under `key`, with the durability of
    /// [`Options::durability`](crate::Options::durability). For another one write a
    /// [`Batch`](crate::Batch) of one entry.
    ///
    /// # Errors
    ///
    /// [`Error::KeyTooLong`] and [`Error::ValueTooLong`], which change nothing; [`Error::Io`] and
    /// [`Error::ReadOnly`], after which the write is not visible, but may come back when the store
    /// is reopened; [`Error::KeyspaceDropped`].
    ///
    /// [`Error::KeyTooLong`]: crate::Error::KeyTooLong
    /// [`Error::ValueTooLong`]: crate::Error::ValueTooLong
    /// [`Error::Io`]: crate::Error::Io
    /// [`Error::ReadOnly`]: crate::Error::ReadOnly
    /// [`Error::KeyspaceDropped`]: crate::Error::KeyspaceDropped
    pub fn insert(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        let store = self.open.store();
        let (key, value) = (key.as_ref(), value.as_ref());
        let write = WriteEncoder::single_put(store.hash_seed, &self.tree, key, value)?;
        store.commit(write, store.options.durability, &mut Always).map(drop)
    }

    /// Stores `value` under `key` unless the key has a value; tells whether it did. Of concurrent
    /// calls for the same key exactly one does.
    ///
    /// A new key costs no read, but for false positives of filters. Other writes go on meanwhile,
    /// but for the look at a key that seems to be new.
    ///
    /// # Errors
    ///
    /// As [`insert`](Self::insert) and [`get`](Self::get).
    pub fn insert_if_absent(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<bool> {
        let store = self.open.store();
        let (key, value) = (key.as_ref(), value.as_ref());
        let write = WriteEncoder::single_put(store.hash_seed, &self.tree, key, value)?;
        if self.contains_key(key)? {
            // The common "no", whose read would otherwise keep all writers waiting.
            return Ok(false);
        }
        let mut absent = KeyIsAbsent { keyspace: self, key };
        Ok(store.commit(write, store.options.durability, &mut absent)?.is_some())
    }

    /// Removes `key`. It need not be there.
    ///
    /// # Errors
    ///
    /// As [`insert`](Self::insert).
    pub fn remove(&self, key: impl AsRef<[u8]>) -> Result<()> {
        let store = self.open.store();
        let write = WriteEncoder::single_remove(store.hash_seed, &self.tree, key.as_ref())?;
        store.commit(write, store.options.durability, &mut Always).map(drop)
    }

    /// The value of `key`, if it has one. No copy: the value keeps its block, or its batch in a
    /// memtable, in memory for as long as it lives.
    ///
    /// # Errors
    ///
    /// [`Error::Io`](crate::Error::Io), [`Error::Corrupt`](crate::Error::Corrupt),
    /// [`Error::KeyspaceDropped`](crate::Error::KeyspaceDropped).
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Bytes>> {
        let store = self.open.store();
        let key = key.as_ref();
        let view = self.tree.view();
        // After the view: a dropped keyspace has an empty one.
        self.tree.check()?;
        // After the view: it then holds every version that a reader at this number may see.
        let sequence = store.publish.visible();
        let hash = key_hash(key, store.hash_seed);
        Lookup { key, hash, sequence }.get(&view, store.tables.counters.local())
    }

    /// Whether `key` has a value. An absent key costs no read, but for false positives of filters.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get).
    pub fn contains_key(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        Ok(self.get(key)?.is_some())
    }

    /// Whether `key` may have a value, as far as memory tells: `false` is certain, `true` is wrong
    /// at the false-positive rate of the filters, and for a removed key whose tombstone is in a
    /// table. Never reads a file and cannot fail.
    #[must_use]
    pub fn may_contain(&self, key: impl AsRef<[u8]>) -> bool {
        let store = self.open.store();
        let key = key.as_ref();
        let view = self.tree.view();
        let sequence = store.publish.visible();
        let hash = key_hash(key, store.hash_seed);
        !self.tree.is_dropped()
            && Lookup { key, hash, sequence }.may_contain(&view, store.tables.counters.local())
    }

    /// All keys with their values, ascending; from the back, descending. As they are now: later
    /// writes are not seen.
    #[must_use]
    pub fn iter(&self) -> Range {
        self.range::<&[u8]>(..)
    }

    /// The keys within `bounds` with their values. As [`iter`](Self::iter).
    ///
    /// A pair of [`Bound`](std::ops::Bound)s needs the type of the key spelled out, as in
    /// [`BTreeMap`](std::collections::BTreeMap::range).
    ///
    /// ```
    /// # use std::ops::Bound;
    /// # let folder = tempfile::tempdir().unwrap();
    /// let db = sievedb::Db::open(folder.path())?;
    /// for name in ["anna", "bert", "carl"] {
    ///     db.insert(name, "")?;
    /// }
    /// let (last, _) = db.range("a".."c").next_back().expect("two names are below c")?;
    /// assert_eq!(&*last, b"bert");
    ///
    /// // The next page: what comes after the last key of this one.
    /// let next_page = db.range::<&[u8]>((Bound::Excluded(&*last), Bound::Unbounded));
    /// assert_eq!(next_page.keys().collect::<Result<Vec<_>, _>>()?, ["carl"]);
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    #[must_use]
    pub fn range<K: AsRef<[u8]>>(&self, bounds: impl RangeBounds<K>) -> Range {
        let view = self.tree.kept_view();
        // After the view, as in `get`.
        let sequence = self.open.store().publish.visible();
        Range::new(self, view, sequence, KeyBounds::new(&bounds))
    }

    /// The keys that begin with `prefix` with their values. As [`iter`](Self::iter).
    #[must_use]
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Range {
        let view = self.tree.kept_view();
        let sequence = self.open.store().publish.visible();
        Range::new(self, view, sequence, KeyBounds::prefix(prefix.as_ref()))
    }

    /// Changes the filters of this keyspace. Durable at return; for the default keyspace
    /// [`Options::keyspace`](crate::Options::keyspace) counts again when the store is opened.
    ///
    /// Filters that are in memory give up at once what `policy` leaves no room for. New tables get filters
    /// after it, and those that differ much from it are rebuilt in the background.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`](crate::Error::InvalidOption) for bits out of range;
    /// [`Error::Io`](crate::Error::Io), [`Error::ReadOnly`](crate::Error::ReadOnly),
    /// [`Error::KeyspaceDropped`](crate::Error::KeyspaceDropped), after which nothing has changed.
    pub fn set_filter_policy(&self, policy: FilterPolicy) -> Result<()> {
        self.tree.check()?;
        self.open.store().set_filter_policy(&self.tree, policy)
    }

    /// Writes the memtables of this keyspace into tables, and waits until that is done.
    ///
    /// # Errors
    ///
    /// As [`Db::flush`](crate::Db::flush); [`Error::KeyspaceDropped`](crate::Error::KeyspaceDropped).
    pub fn flush(&self) -> Result<()> {
        self.tree.check()?;
        self.open.store().flush_trees(std::slice::from_ref(&self.tree))
    }

    /// Merges this keyspace into one sorted run, as [`Db::compact`](crate::Db::compact) does.
    ///
    /// # Errors
    ///
    /// As [`Db::compact`](crate::Db::compact); [`Error::KeyspaceDropped`](crate::Error::KeyspaceDropped).
    pub fn compact(&self) -> Result<()> {
        self.tree.check()?;
        self.open.store().compact_tree(&self.tree)
    }
}

impl fmt::Debug for Keyspace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keyspace").field("name", &self.name()).finish_non_exhaustive()
    }
}

/// Holds if a key has no value, once the writes in flight to it have come to their end.
#[derive(Debug)]
struct KeyIsAbsent<'a> {
    keyspace: &'a Keyspace,
    key: &'a [u8],
}

impl Validate for KeyIsAbsent<'_> {
    fn check(&mut self, placed: &Placed<'_>) -> Result<Verdict> {
        Ok(match placed.newest_in_flight(&self.keyspace.tree, self.key) {
            Some(last) => Verdict::Undecided(last),
            None if self.keyspace.contains_key(self.key)? => Verdict::Fails,
            None => Verdict::Holds,
        })
    }
}
