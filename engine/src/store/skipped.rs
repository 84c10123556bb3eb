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
        if live.add_skipped(tombstones, makes_due) {
            // A worker searches: this thread reads.
            live.memory().note_long_merges();
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
    /// Makes workers search for compactions of the keyspaces that may have one due because of
    /// skipped tombstones or merge operands.
    fn look_at_skipped(&self) {
        let may_be_due = |tree: &&Arc<Tree>| {
            let view = tree.view_seldom();
            // All of them: each reports it once.
            view.version.tables().filter(|(_, _, live)| live.take_may_be_due()).count() > 0
        };
        let due: Vec<u64> =
            self.versions.trees().values().filter(may_be_due).map(|tree| tree.id).collect();
        self.scheduler.look_at(&due);
    }

    /// Freezes the memtables that are due because of skipped tombstones or merge operands.
    pub(crate) fn freeze_skipped(&self) {
        let has_long_merges = self.tables.memory.take_long_merges();
        if has_long_merges {
            self.look_at_skipped();
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
