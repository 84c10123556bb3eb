//! Flushes and compactions that become due because reads skip many tombstones or apply many merge
//! operands.

use std::sync::Arc;

use crate::{
    compaction::tombstones::makes_due, read::source::SkippedTombstones, read::tree::Tree,
    read::view::PlacedMemtable, store::Store, store::open_store::OpenStore, table::LiveTable,
};

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
        if makes_due(before, tombstones, live.meta.entries) {
            store.scheduler.look_at_all();
        }
    }

    fn in_memtable(&self, placed: &PlacedMemtable, tombstones: u64) {
        if self.store().is_forked() {
            return;
        }
        if placed.add_skipped(tombstones) {
            self.store().scheduler.freeze_skipped();
        }
    }
}

impl Store {
    /// Freezes the memtables that are due because of skipped tombstones or merge operands.
    pub(crate) fn freeze_skipped(&self) {
        let has_long_merges = self.tables.memory.take_long_merges();
        if has_long_merges {
            self.scheduler.look_at_all();
        }
        if !self.scheduler.take_freezes_skipped() && !has_long_merges {
            return;
        }
        let is_due = |tree: &&Arc<Tree>| tree.view_seldom().active.is_flush_due();
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
