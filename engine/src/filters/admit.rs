//! Filters of tables that enter a version.

use std::{collections::BTreeSet, sync::Arc};

use super::{
    FilterHost, Filters,
    change::{Changes, Patience},
    tables::{FilterTables, KeyspaceTables, Target},
};
use crate::{
    read::tree::Tree,
    sync::atomic::Ordering::{Relaxed, SeqCst},
    table::LiveTable,
    version::Version,
};

impl Filters {
    /// Loads the filters of `opened`, the new tables of `version` of `tree`. Other filters shrink
    /// as planned. Filters of tables about to be removed stay until the tables are removed.
    ///
    /// Returns `true` if there was room for all. Pass it to
    /// [`note_installed`](Self::note_installed).
    pub(crate) fn admit(
        &self,
        host: &impl FilterHost,
        tree: &Arc<Tree>,
        version: &Version,
        opened: &[Arc<LiveTable>],
    ) -> bool {
        let store = host.tables();
        let mut held = self.hold();
        if host.keyspace(tree.id).is_none() {
            return true;
        }
        let goal = self.goal(store);
        let of_tree = KeyspaceTables::of_tree(tree, version);
        let bytes = opened.iter().map(|live| live.filter_bytes_whole()).sum::<u64>();
        // Twice: a plan reserves the size of the largest filter for its replacement.
        let (tables, targets) = if self.take_spare(bytes.saturating_mul(2)) {
            let tables = FilterTables { keyspaces: vec![of_tree] };
            let targets = self.plan_alone(&held.0, &tables);
            (tables, targets)
        } else {
            let mut tables = FilterTables::of(host);
            if !tables.put(of_tree) {
                // The keyspace was dropped meanwhile.
                return true;
            }
            let targets = self.plan(host, &mut held.0, &tables, goal);
            (tables, targets)
        };
        let new: BTreeSet<u64> = opened.iter().map(|live| live.meta.id).collect();
        let is_new = |target: &&Target| new.contains(&target.live.meta.id);
        debug_assert_eq!(new.len(), opened.len(), "each table is opened once");
        debug_assert_eq!(targets.iter().filter(is_new).count(), new.len(), "the version has them");
        let mut changes = Changes::new(&tables, store, goal, Patience::Short);
        changes.shrink(&targets);
        changes.load(targets.iter().filter(is_new), u64::MAX);
        let fits = !changes.is_stuck;
        // A listener may close the store, which waits for workers.
        drop(held);
        self.report_unreadable(host, &tables, changes.unreadable);
        fits
    }

    /// Finishes an installation. `fits` is `true` if all new filters had room; `has_removed` is
    /// `true` if tables were removed.
    pub(crate) fn note_installed(&self, host: &impl FilterHost, fits: bool, has_removed: bool) {
        if !fits {
            self.fit(host);
        }
        // Also runs after a fit: lookups may have kept the filters until then.
        if has_removed {
            self.retry_stuck();
        }
    }

    /// Schedules the background job if the last plan left something undone: there may be room now.
    pub(crate) fn retry_stuck(&self) {
        if self.wait_max().is_some() {
            self.is_due.store(true, SeqCst);
        }
    }

    /// Takes `bytes` of the spare bytes, if available.
    fn take_spare(&self, bytes: u64) -> bool {
        let taken = |spare: u64| spare.checked_sub(bytes);
        self.spare_bytes.fetch_update(Relaxed, Relaxed, taken).is_ok()
    }
}
