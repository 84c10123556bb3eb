//! The read methods of all handles.
//!
//! A handle builds a [`Reader`] for each call. [`read_methods`] generates the public methods, with
//! [`ends`] for those of a whole keyspace.

mod ends;
mod streams;

use std::sync::Arc;

use sievedb_filter::hash::key_hash;
use sievedb_sstable::READ_AHEAD_BYTES_MAX;

use crate::{
    Explanation, ReadOptions, Result, TimeToLive,
    handle::Handle,
    handle_counts::HandleKind,
    iter::bounds::KeyBounds,
    range::{Range, ViewSource},
    read::{
        lookup::Lookup,
        many::ManyReader,
        observer::{ExpiryObserver, FromValue, Observer},
        tree::Tree,
        view::{KeptView, ReadView},
        written::ReadMark,
    },
    resolve::ReadPoint,
    store::Store,
};

/// Keyspace and options of reads by a handle. Its methods take the current view and a read point.
///
/// It stays in registers, with the view and the read point, and no result is returned together with
/// an error. A struct of all three in memory made a miss 23 ns slower.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reader<'h> {
    pub(crate) open: &'h Handle,
    pub(crate) tree: &'h Arc<Tree>,
    pub(crate) options: ReadOptions,
    /// Read point of the snapshot; `None` to read the entries visible at the time of the call.
    pub(crate) snapshot: Option<ReadPoint>,
}

impl<'h> Reader<'h> {
    /// Returns the point at which to read. Must be called after the view was taken.
    ///
    /// # Errors
    ///
    /// [`Error::KeyspaceDropped`](crate::Error::KeyspaceDropped).
    #[inline(always)]
    fn at(self, store: &Store) -> Result<ReadPoint> {
        // Checked after the view: a dropped keyspace has an empty view.
        self.tree.check()?;
        // Loaded after the view: entries that became visible meanwhile in a later memtable are not
        // read. The read is then one at the time when the view was taken.
        Ok(self.snapshot.unwrap_or_else(|| ReadPoint::new(store.writer.visible())))
    }

    /// Returns the view that the snapshot sees, if it is not the `present` one because of a clear
    /// or a compaction filter.
    #[inline(always)]
    fn older_view(self, store: &Store, present: &KeptView) -> Option<KeptView> {
        let at = self.snapshot?.sequence;
        if !self.may_need_older_view(present) {
            return None;
        }
        store.versions.snapshots().older_view(self.tree.id, at)
    }

    fn older_read_view(self, store: &Store, present: &KeptView) -> Option<ReadView> {
        self.older_view(store, present).map(|older| ReadView::new(self.tree.id, older))
    }

    #[inline(always)]
    fn may_need_older_view(self, present: &KeptView) -> bool {
        self.snapshot.is_some_and(|at| at.sequence < present.snapshots_from)
    }

    #[inline(always)]
    fn lookup<'a>(self, key: &'a [u8], hash: u64, at: ReadPoint) -> Lookup<'a>
    where
        'h: 'a,
    {
        let clock = self.open.store().versions.clock();
        Lookup { key, hash, at, clock, cache_use: self.options.cache_use() }
    }

    /// Returns the result of `observer` for the value of `key`, if it has one.
    #[inline(always)]
    pub(crate) fn find<V>(self, key: &[u8], observer: &mut impl Observer<V>) -> Result<Option<V>> {
        let store = self.open.accept()?;
        let view = self.tree.view();
        let hash = key_hash(key, store.hash_seed);
        let lookup = self.lookup(key, hash, self.at(store)?);
        if self.may_need_older_view(&view) {
            return self.find_in_older_view(store, &view, lookup, observer);
        }
        lookup.find(&view, store.tables.counters.local(), observer)
    }

    /// Not inlined: the lookup is then inlined into the caller once.
    #[cold]
    #[inline(never)]
    fn find_in_older_view<V>(
        self,
        store: &Store,
        present: &ReadView,
        lookup: Lookup<'_>,
        observer: &mut impl Observer<V>,
    ) -> Result<Option<V>> {
        let older = self.older_read_view(store, present);
        let view = older.as_ref().unwrap_or(present);
        lookup.find(view, store.tables.counters.local(), observer)
    }

    /// Returns the result of `observer` for the value of `key`, and the mark of its read, for a
    /// write on the condition that the key was not written since.
    pub(crate) fn find_marked<V>(
        self,
        key: &[u8],
        hash: u64,
        observer: &mut impl Observer<V>,
    ) -> Result<(Option<V>, ReadMark)> {
        let store = self.open.accept()?;
        // Loaded before the view, which then holds every write up to this number.
        let sequence = store.writer.visible();
        let view = self.tree.view();
        let at = self.at(store)?;
        let mark = ReadMark { sequence, version: view.version.number() };
        let lookup = self.lookup(key, hash, at);
        let found = lookup.find(&view, store.tables.counters.local(), observer)?;
        Ok((found, mark))
    }

    /// Returns the time to live of the value of `key`, if it has one.
    pub(crate) fn time_to_live(self, key: &[u8]) -> Result<Option<TimeToLive>> {
        let store = self.open.accept()?;
        let view = self.tree.view();
        let at = self.at(store)?.with_clock(|| store.versions.clock().now_ms());
        let lookup = self.lookup(key, key_hash(key, store.hash_seed), at);
        let (mut observer, counters) = (ExpiryObserver::default(), store.tables.counters.local());
        let older = self.older_read_view(store, &view);
        let found = lookup.find(older.as_ref().unwrap_or(&view), counters, &mut observer)?;
        Ok(found.map(|((), expiry_ms)| TimeToLive::at(at.clock_ms(), expiry_ms)))
    }

    /// Returns `true` unless memory shows that `key` has no value.
    pub(crate) fn may_contain(self, key: &[u8]) -> bool {
        let Ok(store) = self.open.accept() else { return true };
        let view = self.tree.view();
        let Ok(at) = self.at(store) else { return false };
        let lookup = self.lookup(key, key_hash(key, store.hash_seed), at);
        let older = self.older_read_view(store, &view);
        lookup.may_contain(older.as_ref().unwrap_or(&view), store.tables.counters.local())
    }

    pub(crate) fn explain(self, key: &[u8]) -> Result<Explanation> {
        let store = self.open.accept()?;
        let view = self.tree.view();
        let hash = key_hash(key, store.hash_seed);
        let lookup = self.lookup(key, hash, self.at(store)?);
        let older = self.older_read_view(store, &view);
        lookup.explain(&self.tree.name(), older.as_ref().unwrap_or(&view))
    }

    /// Returns `result` of the lookup of each of `keys`.
    pub(crate) fn find_many<K: AsRef<[u8]>, V: FromValue, T>(
        self,
        keys: impl Iterator<Item = K>,
        result: impl Fn(Option<V>) -> T,
    ) -> Result<Vec<T>> {
        let store = self.open.accept()?;
        let view = self.tree.view().kept().clone();
        let at = self.at(store)?;
        let view = self.older_view(store, &view).unwrap_or(view);
        let clock = store.versions.clock();
        let reader = ManyReader {
            tree: self.tree,
            view: &view,
            at: view.fix_clock(at, clock),
            clock,
            cache_use: self.options.cache_use(),
            hash_seed: store.hash_seed,
            counters: store.tables.counters.local(),
        };
        let mut results = Vec::with_capacity(keys.size_hint().0);
        reader.find_each(keys, |found| results.push(result(found)))?;
        Ok(results)
    }

    pub(crate) fn range(self, bounds: KeyBounds) -> Range {
        let opened = self.open.accept().and_then(|store| {
            let view = self.tree.view().kept().clone();
            let at = self.at(store)?;
            let view = self.older_view(store, &view).unwrap_or(view);
            let at = view.fix_clock(at, store.versions.clock());
            Ok((store, view, at))
        });
        let (store, view, at) = match opened {
            Ok(opened) => opened,
            Err(error) => return Range::refused(error),
        };
        let source = ViewSource {
            view,
            tree: Arc::clone(self.tree),
            folder: store.tables.folder.as_path().into(),
            at,
            is_of_snapshot: self.snapshot.is_some(),
            read_options: self.options,
            read_ahead_bytes_max: READ_AHEAD_BYTES_MAX,
            open: self.open.of_kind(HandleKind::Iterator),
        };
        Range::new(source, bounds)
    }
}

/// Implements the reading methods of a handle. The handle, or the field that is named, has a method
/// `reader` that returns its [`Reader`].
macro_rules! read_methods {
    ($handle:ty $(, $field:ident)?) => {
        $crate::reader::end_methods!($handle);
        $crate::reader::stream_methods!($handle $(, $field)?);

        /// Reading. A [`Db`](crate::Db) reads the default keyspace.
        impl $handle {
            /// Returns the value of `key`, or `None` if the key has no value.
            ///
            /// A value in a table is not copied: it keeps its block in memory until it is dropped.
            ///
            /// # Errors
            ///
            /// * [`Error::Io`], [`Error::Corrupt`]: a file cannot be read, or is damaged.
            /// * [`Error::MergeFailed`]: the merge operator cannot apply the operands of the key.
            /// * [`Error::FilesGone`] in a [follower](crate::Options::follow).
            /// * [`Error::NoKey`] in an encrypted store, if the key provider fails.
            /// * [`Error::KeyspaceDropped`], [`Error::Closed`], [`Error::ForkedChild`].
            ///
            /// [`Error::Io`]: crate::Error::Io
            /// [`Error::Corrupt`]: crate::Error::Corrupt
            /// [`Error::MergeFailed`]: crate::Error::MergeFailed
            /// [`Error::FilesGone`]: crate::Error::FilesGone
            /// [`Error::NoKey`]: crate::Error::NoKey
            /// [`Error::KeyspaceDropped`]: crate::Error::KeyspaceDropped
            /// [`Error::Closed`]: crate::Error::Closed
            /// [`Error::ForkedChild`]: crate::Error::ForkedChild
            pub fn get(
                &self,
                key: impl AsRef<[u8]>,
            ) -> $crate::Result<Option<$crate::Bytes>> {
                let reader = self$(.$field)?.reader();
                reader.find(key.as_ref(), &mut $crate::read::observer::NoObserver)
            }

            /// Calls `take` with the value of `key`, and returns what `take` returns. Returns
            /// `None` if the key has no value.
            ///
            /// The value is borrowed from its block or memtable, without a change of a reference
            /// count. So threads that read the same keys do not contend.
            ///
            /// `take` should be short: its block, or its memtable, stays in memory while it runs.
            ///
            /// # Errors
            ///
            /// As [`get`](Self::get).
            ///
            /// ```
            /// # let dir = tempfile::tempdir().unwrap();
            /// let db = sievedb::Db::open(dir.path())?;
            /// db.insert("anna", "7")?;
            /// assert_eq!(db.get_with("anna", |value| value.len())?, Some(1));
            /// assert_eq!(db.get_with("bert", |value| value.len())?, None);
            /// # Ok::<(), sievedb::Error>(())
            /// ```
            pub fn get_with<T>(
                &self,
                key: impl AsRef<[u8]>,
                take: impl FnOnce(&[u8]) -> T,
            ) -> $crate::Result<Option<T>> {
                let reader = self$(.$field)?.reader();
                reader.find(key.as_ref(), &mut $crate::read::observer::WithValue::new(take))
            }

            /// Returns `true` if `key` has a value.
            ///
            /// An absent key costs no read, except for false positives of filters, and for tables
            /// whose filter is not in memory. For a present key the data block is read, unless it
            /// is in the block cache, but not a value in a blob file.
            ///
            /// # Errors
            ///
            /// As [`get`](Self::get).
            pub fn contains_key(
                &self,
                key: impl AsRef<[u8]>,
            ) -> $crate::Result<bool> {
                let reader = self$(.$field)?.reader();
                let found = reader.find(key.as_ref(), &mut $crate::read::observer::NoObserver);
                found.map(|found: Option<()>| found.is_some())
            }

            /// Returns the time to live of the value of `key`, or `None` if the key has no value.
            ///
            /// For a key with merge operands, returns the time to live of the value that they apply
            /// to. After its expiry the operands remain, and apply to an absent value.
            ///
            /// Costs as much as [`contains_key`](Self::contains_key). For a key with merge operands
            /// all operands are read.
            ///
            /// # Errors
            ///
            /// As [`get`](Self::get).
            ///
            /// ```
            /// # use std::time::Duration;
            /// use sievedb::TimeToLive;
            /// # let dir = tempfile::tempdir().unwrap();
            /// let db = sievedb::Db::open(dir.path())?;
            /// db.insert("anna", "7")?;
            /// db.insert_with_ttl("session", "anna", Duration::from_secs(60))?;
            /// assert_eq!(db.ttl("anna")?, Some(TimeToLive::Unlimited));
            /// let Some(TimeToLive::Remaining(ttl)) = db.ttl("session")? else { panic!() };
            /// assert!(ttl <= Duration::from_secs(60));
            /// assert_eq!(db.ttl("bert")?, None);
            /// # Ok::<(), sievedb::Error>(())
            /// ```
            pub fn ttl(
                &self,
                key: impl AsRef<[u8]>,
            ) -> $crate::Result<Option<$crate::TimeToLive>> {
                self$(.$field)?.reader().time_to_live(key.as_ref())
            }

            /// Returns `true` if `key` may have a value. Uses only memory.
            ///
            /// `false` is certain. False positives occur at the rate of the filters. `true` is also
            /// returned for every key within the bounds of a table whose filter is not in memory,
            /// and for a key whose tombstone or expired value is in a table.
            ///
            /// Never reads a file and never fails. Returns `true` if the store is closed, and
            /// `false` if the keyspace was dropped.
            #[must_use]
            pub fn may_contain(&self, key: impl AsRef<[u8]>) -> bool {
                self$(.$field)?.reader().may_contain(key.as_ref())
            }

            /// Returns the value of each of `keys`, in their order, all at one point in time. Keys
            /// may come in any order and more than once.
            ///
            /// Is faster than one [`get`](Self::get) for each key: it loads the filter lines of
            /// many keys at once, and requests a block once for all its keys. Sorted keys save a
            /// sort. Allocates the result, and buffers for some hundred keys.
            ///
            /// # Errors
            ///
            /// As [`get`](Self::get): the first error.
            ///
            /// ```
            /// # let dir = tempfile::tempdir().unwrap();
            /// let db = sievedb::Db::open(dir.path())?;
            /// db.insert("anna", "7")?;
            /// assert_eq!(db.get_many(["bert", "anna"])?, [None, Some("7".into())]);
            /// # Ok::<(), sievedb::Error>(())
            /// ```
            pub fn get_many<K: AsRef<[u8]>>(
                &self,
                keys: impl IntoIterator<Item = K>,
            ) -> $crate::Result<Vec<Option<$crate::Bytes>>> {
                let reader = self$(.$field)?.reader();
                reader.find_many(keys.into_iter(), |found| found)
            }

            /// Returns for each of `keys` whether it has a value, in their order, all at one point
            /// in time. As [`get_many`](Self::get_many), but values are not read.
            ///
            /// # Errors
            ///
            /// As [`get`](Self::get): the first error.
            pub fn contains_many<K: AsRef<[u8]>>(
                &self,
                keys: impl IntoIterator<Item = K>,
            ) -> $crate::Result<Vec<bool>> {
                let reader = self$(.$field)?.reader();
                reader.find_many(keys.into_iter(), |found: Option<()>| found.is_some())
            }

            /// Returns all entries of the keyspace, on a [`Db`](crate::Db) of the default keyspace:
            /// ascending from the front, descending from the back.
            ///
            /// The iterator does not see later writes.
            ///
            /// # Errors
            ///
            /// Each item may be an error of [`get`](Self::get). The range is then at its end.
            #[must_use]
            pub fn iter(&self) -> $crate::Range {
                self.range::<&[u8]>(..)
            }

            /// Returns the entries whose keys are within `bounds`. As [`iter`](Self::iter).
            ///
            /// A pair of [`Bound`](std::ops::Bound)s requires an explicit type of the key, as in
            /// [`BTreeMap`](std::collections::BTreeMap::range).
            ///
            /// ```
            /// # use std::ops::Bound;
            /// # let dir = tempfile::tempdir().unwrap();
            /// let db = sievedb::Db::open(dir.path())?;
            /// for name in ["anna", "bert", "carl"] {
            ///     db.insert(name, "")?;
            /// }
            /// let (last, _) = db.range("a".."c").next_back().expect("two names are below c")?;
            /// assert_eq!(&*last, b"bert");
            ///
            /// // The next page begins after the last key of this one.
            /// let next_page = db.range::<&[u8]>((Bound::Excluded(&*last), Bound::Unbounded));
            /// assert_eq!(next_page.keys().collect::<Result<Vec<_>, _>>()?, ["carl"]);
            /// # Ok::<(), sievedb::Error>(())
            /// ```
            #[must_use]
            pub fn range<K: AsRef<[u8]>>(
                &self,
                bounds: impl std::ops::RangeBounds<K>,
            ) -> $crate::Range {
                self$(.$field)?.reader().range($crate::iter::bounds::KeyBounds::new(&bounds))
            }

            /// Returns the entries whose keys have this prefix. As [`iter`](Self::iter).
            ///
            /// Skips tables by their prefix filters, if `prefix` is as long as that of the
            /// [`PrefixExtractor`](crate::PrefixExtractor) of the keyspace. The same holds for a
            /// [`range`](Self::range) within such a prefix.
            #[must_use]
            pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> $crate::Range {
                let bounds = $crate::iter::bounds::KeyBounds::prefix(prefix.as_ref());
                self$(.$field)?.reader().range(bounds)
            }

            /// Returns the steps of a lookup of `key`: memtables and tables searched, results of
            /// filters, blocks requested, and the answer. Records them during a lookup.
            ///
            /// Reads the blocks that [`get`](Self::get) reads. They are in the block cache
            /// afterwards and count in [`Stats::table_reads`](crate::Stats::table_reads). Counts in
            /// no other statistic. Allocates memory for each step. Does not read a value in a blob
            /// file, which may be damaged.
            ///
            /// The steps end at a block that cannot be read. This is not an error: the explanation
            /// reports it in [`TableStep::failure`](crate::explain::TableStep::failure), or in
            /// [`Explanation::older_failure`](crate::Explanation::older_failure) below a merge
            /// operand.
            ///
            /// # Errors
            ///
            /// [`Error::KeyspaceDropped`](crate::Error::KeyspaceDropped), and
            /// [`Error::Corrupt`](crate::Error::Corrupt) for an entry of an unknown kind.
            ///
            /// ```
            /// # let dir = tempfile::tempdir().unwrap();
            /// let db = sievedb::Db::open(dir.path())?;
            /// db.insert("anna", "7")?;
            /// db.insert("carl", "8")?;
            /// db.flush()?;
            /// let explanation = db.explain("bert")?;
            /// assert_eq!(explanation.tables.len(), 1);
            /// print!("{explanation}");
            /// # Ok::<(), sievedb::Error>(())
            /// ```
            pub fn explain(
                &self,
                key: impl AsRef<[u8]>,
            ) -> $crate::Result<$crate::Explanation> {
                self$(.$field)?.reader().explain(key.as_ref())
            }
        }
    };
}

pub(crate) use ends::end_methods;
pub(crate) use read_methods;
pub(crate) use streams::stream_methods;
