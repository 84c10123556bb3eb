//! Scheduler work that scans ask for, because they step over many tombstones.

use std::sync::Arc;

use crate::{
    compaction::tombstones::{is_paid, rewrites_paid},
    read::source::SkippedTombstones,
    read::tree::Tree,
    read::view::PlacedMemtable,
    store::Store,
    store::open_store::OpenStore,
    table::LiveTable,
};

/// Least tombstones that cause a flush of a memtable. A flush takes milliseconds for syncs, and
/// stepping over so many tombstones takes 8 ms.
const MEMTABLE_SKIPPED_MIN: u64 = 1 << 17;

impl SkippedTombstones for OpenStore {
    fn in_table(&self, live: &LiveTable, tombstones: u64) {
        let store = self.store();
        if store.is_forked() {
            return;
        }
        let levels = &store.tables.counters.local().levels;
        if let Some(level) = levels.get(usize::from(live.meta.level)) {
            level.tombstones_skipped.add(tombstones);
        }
        let before = live.add_skipped(tombstones);
        // The picker looks whenever scans have paid for another rewrite of this table.
        let paid = |skipped: u64| rewrites_paid(skipped, live.meta.entries);
        if paid(before) < paid(before.saturating_add(tombstones)) {
            store.scheduler.look_at_all();
        }
    }

    fn in_memtable(&self, placed: &PlacedMemtable, tombstones: u64) {
        if self.store().is_forked() {
            return;
        }
        let before = placed.add_skipped(tombstones);
        if !is_flush_due(placed, before) && is_flush_due(placed, before + tombstones) {
            self.store().scheduler.freeze_skipped();
        }
    }
}

/// Returns whether a memtable should be flushed because scans stepped over so many tombstones: a
/// compaction can remove them.
fn is_flush_due(placed: &PlacedMemtable, skipped: u64) -> bool {
    skipped >= MEMTABLE_SKIPPED_MIN && is_paid(skipped, placed.memtable.entries() as u64)
}

impl Store {
    /// Freezes the memtables that are due because of skipped tombstones.
    pub(crate) fn freeze_skipped(&self) {
        if !self.scheduler.take_freezes_skipped() {
            return;
        }
        let is_due = |tree: &&Arc<Tree>| {
            let view = tree.view();
            is_flush_due(&view.active, view.active.skipped())
        };
        let due: Vec<_> = self.versions.trees().values().filter(is_due).cloned().collect();
        if due.is_empty() || self.versions.check_writable().is_err() {
            return;
        }
        let _placement = self.writer.placement();
        for tree in due {
            tree.freeze();
        }
    }
}
