//! A named collection of keys.

mod options;
mod writes;

use std::{fmt, ops::RangeBounds, sync::Arc};

use bytes::Bytes;
use sievedb_filter::hash::key_hash;
use sievedb_format::SequenceNumber;
use sievedb_sstable::CacheUse;

use crate::{
    Explanation, Range, ReadOptions, Result,
    handles::{Handle, HandleKind},
    iter::bounds::KeyBounds,
    read::answer::Answer,
    read::lookup::Lookup,
    read::many::ManyReader,
    read::tree::Tree,
    read::view::{KeptView, ReadView},
    read::witness::Taker,
    store::open_store::OpenStore,
};

/// A named collection of keys with options of its own. RocksDB calls it a column family.
///
/// Cheap to clone and safe to share between threads. All keyspaces of a store share its log and
/// its manifest, so that a [`Batch`](crate::Batch) over several of them is written as one.
///
/// Keys have 0 bytes to [`KEY_BYTES_MAX`](crate::KEY_BYTES_MAX), values 0 bytes to
/// [`VALUE_BYTES_MAX`](crate::VALUE_BYTES_MAX). Keys are ordered byte by byte.
pub struct Keyspace {
    /// Before the handle: its memtables are gone when the store leaves its memory pool.
    tree: Arc<Tree>,
    open: Handle,
    read_options: ReadOptions,
}

impl Keyspace {
    pub(crate) fn new(open: Handle, tree: Arc<Tree>, read_options: ReadOptions) -> Self {
        Self { open, tree, read_options }
    }

    /// Returns this keyspace as part of a handle of this kind.
    pub(crate) fn of_kind(&self, kind: HandleKind) -> Self {
        let (open, tree) = (self.open.of_kind(kind), Arc::clone(&self.tree));
        Self { open, tree, read_options: self.read_options }
    }

    pub(crate) fn handle(&self) -> &Handle {
        &self.open
    }

    pub(crate) fn open_store(&self) -> &Arc<OpenStore> {
        &self.open
    }

    pub(crate) fn tree(&self) -> &Arc<Tree> {
        &self.tree
    }

    /// The same keyspace, whose reads are done so. Snapshots taken of it, and iterators, read so, too.
    #[must_use]
    pub fn with_read_options(&self, options: ReadOptions) -> Self {
        Self { read_options: options, ..self.clone() }
    }

    pub(crate) fn read_options(&self) -> ReadOptions {
        self.read_options
    }

    pub(crate) fn cache_use(&self) -> CacheUse {
        self.read_options.cache_use()
    }

    /// The name it was created with.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.tree.name
    }

    /// The value of `key`, if it has one. No copy: the value keeps its block, or its batch in a
    /// memtable, in memory for as long as it lives.
    ///
    /// # Errors
    ///
    /// [`Error::Io`](crate::Error::Io), [`Error::Corrupt`](crate::Error::Corrupt),
    /// [`Error::KeyspaceDropped`](crate::Error::KeyspaceDropped).
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Bytes>> {
        self.find(key.as_ref())
    }

    /// What `take` makes of the value of `key`, if it has one. The value is lent where it lies: not even
    /// its reference count is written, so that threads that read the same keys do not wait for each
    /// other. As [`get`](Self::get) otherwise.
    ///
    /// `take` should be short: while it runs its block, or memtable, stays in memory.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get).
    ///
    /// ```
    /// # let folder = tempfile::tempdir().unwrap();
    /// let db = sievedb::Db::open(folder.path())?;
    /// db.insert("anna", "7")?;
    /// assert_eq!(db.get_with("anna", |value| value.len())?, Some(1));
    /// assert_eq!(db.get_with("bert", |value| value.len())?, None);
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    pub fn get_with<T>(
        &self,
        key: impl AsRef<[u8]>,
        take: impl FnOnce(&[u8]) -> T,
    ) -> Result<Option<T>> {
        let store = self.open.accept()?;
        let view = self.tree.view();
        self.tree.check()?;
        // After the view, as in `find_hashed`.
        let sequence = store.publish.visible();
        self.find_with(&view, sequence, key.as_ref(), take)
    }

    /// What `take` makes of what `key` has in `view` at `sequence`.
    pub(crate) fn find_with<T>(
        &self,
        view: &ReadView,
        sequence: SequenceNumber,
        key: &[u8],
        take: impl FnOnce(&[u8]) -> T,
    ) -> Result<Option<T>> {
        let store = self.open.store();
        let counters = store.tables.counters.local();
        let lookup = self.lookup(key, key_hash(key, store.hash_seed), sequence);
        lookup.find_before(view, counters, &mut Taker::new(take))
    }

    pub(crate) fn lookup<'k>(
        &self,
        key: &'k [u8],
        hash: u64,
        sequence: SequenceNumber,
    ) -> Lookup<'k> {
        Lookup { key, hash, sequence, cache_use: self.cache_use() }
    }

    /// Whether `key` has a value. An absent key costs no read, but for false positives of filters and for
    /// tables whose filter memory has no room for. Of a present one the value is not looked at; its block
    /// is read, if it is not in the cache.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get).
    pub fn contains_key(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.find::<()>(key.as_ref()).map(|found| found.is_some())
    }

    /// The value of each of `keys`, in their order, all at one moment. They may come in any order and
    /// more than once.
    ///
    /// Cheaper than so many calls of [`get`](Self::get): the filters of all are under way from memory
    /// at once, and a block that holds several of the keys is asked for once. Keys in order save
    /// sorting them. Allocates what it returns, and buffers for some hundred keys.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get), the first one that occurs.
    ///
    /// ```
    /// # let folder = tempfile::tempdir().unwrap();
    /// let db = sievedb::Db::open(folder.path())?;
    /// db.insert("anna", "7")?;
    /// assert_eq!(db.get_many(["bert", "anna"])?, [None, Some("7".into())]);
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    pub fn get_many<K: AsRef<[u8]>>(
        &self,
        keys: impl IntoIterator<Item = K>,
    ) -> Result<Vec<Option<Bytes>>> {
        self.find_many(keys.into_iter(), |found| found)
    }

    /// Whether each of `keys` has a value, in their order, all at one moment. As
    /// [`get_many`](Self::get_many), but of present keys the values are not looked at.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get), the first one that occurs.
    pub fn contains_many<K: AsRef<[u8]>>(
        &self,
        keys: impl IntoIterator<Item = K>,
    ) -> Result<Vec<bool>> {
        self.find_many(keys.into_iter(), |found: Option<()>| found.is_some())
    }

    /// What a lookup of `key` does now: where it looks, what each filter says, which blocks it asks for,
    /// and what it finds. Made by the lookup itself.
    ///
    /// Reads the blocks that [`get`](Self::get) reads, which are in the cache afterwards and count in
    /// [`Stats::table_reads`](crate::Stats::table_reads). It counts in no other figure of the statistics.
    /// Costs a few allocations a step.
    ///
    /// A block that cannot be read ends the walk. The explanation reports it
    /// ([`TableStep::failure`](crate::explain::TableStep::failure)); it is not an error.
    ///
    /// # Errors
    ///
    /// [`Error::KeyspaceDropped`](crate::Error::KeyspaceDropped), and
    /// [`Error::Corrupt`](crate::Error::Corrupt) for an entry of a kind that this release does not
    /// know.
    ///
    /// ```
    /// # let folder = tempfile::tempdir().unwrap();
    /// let db = sievedb::Db::open(folder.path())?;
    /// db.insert("anna", "7")?;
    /// db.insert("carl", "8")?;
    /// db.flush()?;
    /// let explanation = db.explain("bert")?;
    /// assert_eq!(explanation.tables.len(), 1);
    /// print!("{explanation}");
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    pub fn explain(&self, key: impl AsRef<[u8]>) -> Result<Explanation> {
        let store = self.open.accept()?;
        let view = self.tree.view();
        self.tree.check()?;
        // After the view, as in `find_hashed`.
        let sequence = store.publish.visible();
        self.explain_in(&view, sequence, key.as_ref())
    }

    /// What a lookup of `key` in `view` does at `sequence`.
    pub(crate) fn explain_in(
        &self,
        view: &ReadView,
        sequence: SequenceNumber,
        key: &[u8],
    ) -> Result<Explanation> {
        let hash = key_hash(key, self.open.store().hash_seed);
        self.lookup(key, hash, sequence).explain(self.name(), view)
    }

    fn find<A: Answer>(&self, key: &[u8]) -> Result<Option<A>> {
        let store = self.open.accept()?;
        self.find_hashed(&self.tree.view(), key, key_hash(key, store.hash_seed))
    }

    /// What `key`, which has this hash, has in `view`, the present one.
    fn find_hashed<A: Answer>(&self, view: &ReadView, key: &[u8], hash: u64) -> Result<Option<A>> {
        let store = self.open.store();
        // After the view: a dropped keyspace has an empty one.
        self.tree.check()?;
        // After the view: it then holds every version that a reader at this number may see.
        let sequence = store.publish.visible();
        self.lookup(key, hash, sequence).find(view, store.tables.counters.local())
    }

    fn find_many<K: AsRef<[u8]>, A: Answer, T>(
        &self,
        keys: impl Iterator<Item = K>,
        result: impl Fn(Option<A>) -> T,
    ) -> Result<Vec<T>> {
        let store = self.open.accept()?;
        let view = self.tree.kept_view();
        self.tree.check()?;
        // After the view, as in `find_hashed`.
        let sequence = store.publish.visible();
        self.find_many_in(&view, sequence, keys, result)
    }

    /// What each of `keys` has in `view` at `sequence`.
    pub(crate) fn find_many_in<K: AsRef<[u8]>, A: Answer, T>(
        &self,
        view: &KeptView,
        sequence: SequenceNumber,
        keys: impl Iterator<Item = K>,
        result: impl Fn(Option<A>) -> T,
    ) -> Result<Vec<T>> {
        let store = self.open.store();
        let (hash_seed, counters) = (store.hash_seed, store.tables.counters.local());
        let reader = ManyReader {
            tree: &self.tree,
            view,
            sequence,
            cache_use: self.cache_use(),
            hash_seed,
            counters,
        };
        let mut results = Vec::with_capacity(keys.size_hint().0);
        reader.find_each(keys, |found| results.push(result(found)))?;
        Ok(results)
    }

    /// Whether `key` may have a value, as far as memory tells: `false` is certain, `true` is wrong
    /// at the false-positive rate of the filters, and for a removed key whose tombstone is in a
    /// table. Never reads a file and cannot fail: `true` where [`get`](Self::get) is refused.
    #[must_use]
    pub fn may_contain(&self, key: impl AsRef<[u8]>) -> bool {
        let Ok(store) = self.open.accept() else { return true };
        let key = key.as_ref();
        let view = self.tree.view();
        let sequence = store.publish.visible();
        let hash = key_hash(key, store.hash_seed);
        !self.tree.is_dropped()
            && self.lookup(key, hash, sequence).may_contain(&view, store.tables.counters.local())
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
        self.range_within(KeyBounds::new(&bounds))
    }

    /// The keys that begin with `prefix` with their values. As [`iter`](Self::iter).
    ///
    /// If `prefix` is as long as that of a [`PrefixExtractor`](crate::PrefixExtractor) of this keyspace,
    /// tables whose filter says that they have no such key are not read. The same holds for a
    /// [`range`](Self::range) within such a prefix.
    #[must_use]
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Range {
        self.range_within(KeyBounds::prefix(prefix.as_ref()))
    }

    fn range_within(&self, bounds: KeyBounds) -> Range {
        let store = match self.open.accept() {
            Ok(store) => store,
            Err(error) => return Range::refused(error),
        };
        let view = self.tree.kept_view();
        // After the view, as in `find_hashed`.
        let sequence = store.publish.visible();
        Range::new(self, view, sequence, bounds)
    }

    /// Writes the memtables of this keyspace into tables, and waits until that is done.
    ///
    /// # Errors
    ///
    /// As [`Db::flush`](crate::Db::flush); [`Error::KeyspaceDropped`](crate::Error::KeyspaceDropped).
    pub fn flush(&self) -> Result<()> {
        let store = self.open.accept()?;
        self.tree.check()?;
        store.flush_trees(std::slice::from_ref(&self.tree))
    }

    /// Merges this keyspace into one sorted run, as [`Db::compact`](crate::Db::compact) does.
    ///
    /// # Errors
    ///
    /// As [`Db::compact`](crate::Db::compact); [`Error::KeyspaceDropped`](crate::Error::KeyspaceDropped).
    pub fn compact(&self) -> Result<()> {
        let store = self.open.accept()?;
        self.tree.check()?;
        store.compact_tree(&self.tree)
    }
}

impl Clone for Keyspace {
    fn clone(&self) -> Self {
        self.of_kind(HandleKind::Keyspace)
    }
}

impl fmt::Debug for Keyspace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keyspace").field("name", &self.name()).finish_non_exhaustive()
    }
}
