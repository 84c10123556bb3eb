//! The sources of a range: the memtables and tables of a view.

use std::{path::Path, sync::Arc};

use sievedb_sstable::CursorOptions;

use crate::{
    ReadOptions, Result,
    fold::OperatorCell,
    handle::Handle,
    handle_counts::HandleKind,
    iter::{
        bounds::KeyBounds, merge::MergeCursor, range::CursorSource,
        range_tombstone_sources::RangeTombstoneSources,
    },
    read::scan_probe::ScanProbe,
    read::source::{ScanOptions, SkippedTombstones, Source},
    read::tree::Tree,
    read::view::KeptView,
    resolve::ReadPoint,
    store::open_store::OpenStore,
};

/// The view that a range reads, and its store.
pub(crate) struct ViewSource {
    pub(crate) view: KeptView,
    pub(crate) tree: Arc<Tree>,
    pub(crate) folder: Arc<Path>,
    pub(crate) at: ReadPoint,
    /// A refresh keeps the read point.
    pub(crate) is_of_snapshot: bool,
    pub(crate) read_options: ReadOptions,
    pub(crate) read_ahead_bytes_max: usize,
    /// Dropped after the view: tables that become obsolete while the view is held are removed
    /// before the store is closed.
    pub(crate) open: Handle,
}

impl ViewSource {
    /// Returns a source for the current view of the same keyspace.
    pub(super) fn present(&self) -> Result<Self> {
        let view = self.tree.view().kept().clone();
        // The check and the read point come after the view, as in lookups.
        self.tree.check()?;
        let store = self.open.store();
        let at = ReadPoint::new(store.writer.visible());
        let at = view.fix_clock(at, store.versions.clock());
        let (tree, folder) = (Arc::clone(&self.tree), Arc::clone(&self.folder));
        Ok(Self { view, tree, folder, at, open: self.open.of_kind(HandleKind::Iterator), ..*self })
    }
}

impl CursorSource for ViewSource {
    type Cursor = MergeCursor<Source>;

    fn cursor(&self, bounds: &Arc<KeyBounds>) -> Self::Cursor {
        let scan = ScanOptions {
            cursor: CursorOptions {
                cache_use: self.read_options.cache_use(),
                read_ahead_bytes_max: self.read_ahead_bytes_max,
                skip_damaged: self.read_options.skips_damaged(),
                ..CursorOptions::default()
            },
            bounds: Arc::clone(bounds),
            skipped: Some(Arc::<OpenStore>::clone(&self.open) as Arc<dyn SkippedTombstones>),
        };
        let memtables = self.view.placed_memtables().enumerate();
        let memtables = memtables.filter(|(_, placed)| placed.is_seen_at(self.at.sequence));
        let memtables =
            memtables.map(|(rank, placed)| Source::memtable(placed, rank, &self.folder, &scan));
        let store = self.open.store();
        let options = self.tree.options();
        let counters = store.tables.counters.local();
        let probe = ScanProbe::new(&options.prefix_extractor, bounds, store.hash_seed, counters);
        let runs = (self.view.first_run_rank()..).zip(self.view.version.runs());
        let runs = runs.filter_map(|(rank, run)| Source::run(run, rank, &scan, probe, counters));
        MergeCursor::new(memtables.chain(runs).collect(), bounds.common_prefix().len())
    }

    fn operator(&self) -> OperatorCell {
        self.view.operator.clone()
    }

    fn range_tombstones(&self) -> RangeTombstoneSources {
        if !self.view.has_range_tombstones() {
            return RangeTombstoneSources::default();
        }
        let lists = self.view.memtables().enumerate().flat_map(|(rank, memtable)| {
            memtable.range_tombstones().lists().into_iter().map(move |list| (rank, list))
        });
        let version = (self.view.first_run_rank(), Arc::clone(&self.view.version));
        RangeTombstoneSources::new(lists, Some(version))
    }
}
