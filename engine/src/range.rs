//! Entries in key order, from both ends, as a user holds them.

use std::{fmt, iter::FusedIterator, path::Path, sync::Arc};

use bytes::Bytes;
use sievedb_format::{RangeTombstoneSource, SequenceNumber};
use sievedb_sstable::CacheUse;

use crate::{
    Error, Keyspace, Result,
    iter::{
        bounds::KeyBounds,
        merge::MergeCursor,
        range::{self, CursorSource},
        visible::RangeTombstoneSources,
    },
    read::scan_question::ScanQuestion,
    read::source::Source,
    read::tree::Tree,
    read::view::KeptView,
    store::open_store::OpenStore,
};

/// Memtables and tables, and the store that they belong to.
struct ViewSource {
    view: KeptView,
    tree: Arc<Tree>,
    cache_use: CacheUse,
    folder: Arc<Path>,
    /// After the view: tables that become obsolete while it is held are unlinked before the store
    /// is closed.
    open: Arc<OpenStore>,
}

impl CursorSource for ViewSource {
    type Cursor = MergeCursor<Source>;

    fn cursor(&self, bounds: &KeyBounds) -> Self::Cursor {
        let memtables =
            self.view.placed_memtables().map(|placed| Source::memtable(placed, &self.folder));
        let store = self.open.store();
        let extractor = self.tree.prefix_extractor();
        let counters = store.tables.counters.local();
        let question = ScanQuestion::new(&extractor, bounds, store.hash_seed, counters);
        let runs = self.view.version.runs().iter();
        let runs =
            runs.filter_map(|run| Source::run(run, bounds, question, self.cache_use, counters));
        MergeCursor::new(memtables.chain(runs).collect())
    }

    fn range_tombstones(&self) -> RangeTombstoneSources {
        if !self.view.has_range_tombstones() {
            return RangeTombstoneSources::default();
        }
        let memtables = self
            .view
            .placed_memtables()
            .map(|placed| Arc::clone(placed) as Arc<dyn RangeTombstoneSource>);
        let tables = self.view.version.tables().map(|(_, _, live)| Arc::clone(live) as _);
        RangeTombstoneSources::new(memtables.chain(tables))
    }
}

/// Keys with their values, ascending; with [`next_back`](DoubleEndedIterator::next_back) or
/// [`rev`](Iterator::rev), descending.
///
/// Shows the keyspace as it was when the range was made, and keeps what it shows in memory and on
/// disk for as long as it lives. The two ends may be used in turn and never yield a key twice.
/// After an error the range is at its end.
pub struct Range(State);

enum State {
    /// The keyspace was dropped before.
    Dropped(Option<Error>),
    Open(Box<range::Range<ViewSource>>),
}

impl Range {
    pub(crate) fn new(
        keyspace: &Keyspace,
        view: KeptView,
        sequence: SequenceNumber,
        bounds: KeyBounds,
    ) -> Self {
        if let Err(error) = keyspace.tree().check() {
            return Self(State::Dropped(Some(error)));
        }
        let open = Arc::clone(keyspace.open_store());
        let folder = open.store().tables.folder.as_path().into();
        let (tree, cache_use) = (Arc::clone(keyspace.tree()), keyspace.cache_use());
        let source = ViewSource { view, tree, cache_use, folder, open };
        Self(State::Open(Box::new(range::Range::new(source, sequence, bounds))))
    }

    /// Whether there is no key. Reads no value, and no table whose filters rule it out: see
    /// [`range_filter_bits_per_key`](crate::KeyspaceOptions::range_filter_bits_per_key) and
    /// [`prefix_extractor`](crate::KeyspaceOptions::prefix_extractor).
    ///
    /// ```
    /// # let folder = tempfile::tempdir().unwrap();
    /// let db = sievedb::Db::open(folder.path())?;
    /// db.insert("2026-11-21", "rain")?;
    /// assert!(!db.range("2026-11-01".."2026-12-01").is_empty()?);
    /// assert!(db.range("2027-01-01"..).is_empty()?);
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As the range itself would yield them.
    pub fn is_empty(self) -> Result<bool> {
        Ok(self.keys().next().transpose()?.is_none())
    }

    /// The keys alone.
    #[must_use]
    pub fn keys(self) -> Keys {
        Keys(match self.0 {
            State::Dropped(error) => KeysState::Dropped(error),
            State::Open(range) => KeysState::Open(Box::new(range.keys())),
        })
    }
}

impl Iterator for Range {
    type Item = Result<(Bytes, Bytes)>;

    fn next(&mut self) -> Option<Self::Item> {
        match &mut self.0 {
            State::Dropped(error) => error.take().map(Err),
            State::Open(range) => range.next(),
        }
    }
}

impl DoubleEndedIterator for Range {
    fn next_back(&mut self) -> Option<Self::Item> {
        match &mut self.0 {
            State::Dropped(error) => error.take().map(Err),
            State::Open(range) => range.next_back(),
        }
    }
}

impl FusedIterator for Range {}

impl fmt::Debug for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Range").finish_non_exhaustive()
    }
}

/// The keys of a [`Range`], without their values.
pub struct Keys(KeysState);

enum KeysState {
    Dropped(Option<Error>),
    Open(Box<range::Keys<ViewSource>>),
}

impl Iterator for Keys {
    type Item = Result<Bytes>;

    fn next(&mut self) -> Option<Self::Item> {
        match &mut self.0 {
            KeysState::Dropped(error) => error.take().map(Err),
            KeysState::Open(keys) => keys.next(),
        }
    }
}

impl DoubleEndedIterator for Keys {
    fn next_back(&mut self) -> Option<Self::Item> {
        match &mut self.0 {
            KeysState::Dropped(error) => error.take().map(Err),
            KeysState::Open(keys) => keys.next_back(),
        }
    }
}

impl FusedIterator for Keys {}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keys").finish_non_exhaustive()
    }
}
