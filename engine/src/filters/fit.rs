//! Adapts filters to a changed budget, changed policies, and changed use of tables.

use std::time::Duration;

use super::{
    FilterHost, Filters, LOAD_BYTES_MAX,
    change::{Changes, POLL_INTERVAL, Patience},
    memory::{self, FilterMemory},
    tables::FilterTables,
};
use crate::{
    memory::MemoryUse,
    sync::{
        atomic::Ordering::{Relaxed, SeqCst},
        thread,
    },
    table::store::TableStore,
};

/// Maximum number of plans of a cut.
const CUT_PLANS_MAX: u32 = 2_000;
/// Wait between two plans of a cut.
const CUT_INTERVAL: Duration = POLL_INTERVAL.saturating_mul(20);

impl Filters {
    /// Applies the plan to filters, as far as there is room. The background job.
    pub(super) fn fit(&self, host: &impl FilterHost) {
        let store = host.tables();
        let mut held = self.hold();
        self.is_due.store(false, SeqCst);
        store.memory.begin_filter_plan();
        let tables = FilterTables::of(host);
        let goal = self.goal(store);
        memory::bound(store, goal);
        let targets = self.plan(host, &mut held.0, &tables, goal);
        let mut changes = Changes::new(&tables, store, goal, Patience::Short);
        changes.shrink(&targets);
        let is_all = changes.load(&targets, LOAD_BYTES_MAX);
        debug_assert!(is_all || changes.bytes_loaded >= LOAD_BYTES_MAX, "only bytes end a load");
        // Stuck filters wait for a retry.
        if !is_all && !changes.is_stuck {
            self.is_due.store(true, SeqCst);
        }
        self.note_stuck(changes.is_stuck);
        drop(held);
        self.report_unreadable(host, &tables, changes.unreadable);
    }

    /// Applies the plan to filters on this thread, if it is due, until nothing is left to do.
    pub(crate) fn fit_due(&self, host: &impl FilterHost) {
        if self.is_due(host) {
            self.fit(host);
        }
        while self.is_due.load(SeqCst) || host.tables().memory.filters_are_due() {
            self.fit(host);
        }
    }

    /// Returns the budget of plans in bytes. Loaded filters never exceed it.
    pub(super) fn goal(&self, store: &TableStore) -> u64 {
        self.bytes_max.load(SeqCst).min(store.memory.filter_bytes_max())
    }

    /// Sets the bound of the filters of all keyspaces together. On return they are within it, with
    /// the exception of [`cut`](Self::cut).
    pub(crate) fn set_bytes_max(&self, host: &impl FilterHost, bytes_max: u64) {
        let store = host.tables();
        self.bytes_max.store(bytes_max, SeqCst);
        if bytes_max < store.memory.limit(MemoryUse::Filters) {
            self.cut(host);
        } else {
            let _held = self.hold();
            // Another thread may have lowered it.
            let bytes_max = self.bytes_max.load(SeqCst);
            store.memory.set_limit(MemoryUse::Filters, bytes_max);
            memory::bound(store, store.memory.filter_bytes_max());
            debug_assert!(store.memory.filter_bytes_max() <= bytes_max, "a pool may allow less");
        }
        self.is_due.store(true, SeqCst);
        // Filters that were too large to build may fit now.
        self.jobs.lock().retry_aborted();
    }

    /// Schedules the background job.
    pub(crate) fn make_due(&self) {
        self.is_due.store(true, SeqCst);
    }

    /// Applies policies that have changed, in memory at once and to files in the background.
    pub(crate) fn apply_policies(&self, host: &impl FilterHost) {
        self.cut(host);
        self.is_due.store(true, SeqCst);
    }

    /// Drops the filters that exceed the current budget and policies. On return the filters are
    /// within them, except for those that a lookup holds for more than some seconds. An unbounded
    /// wait could wait for the lookup of the caller, or for a listener that keeps a table.
    fn cut(&self, host: &impl FilterHost) {
        let store = host.tables();
        let account = &store.memory;
        for _ in 0..CUT_PLANS_MAX {
            let mut measured = self.change.lock();
            let tables = FilterTables::of(host);
            let bytes_max = self.bytes_max.load(SeqCst);
            let goal = bytes_max.min(account.filter_bytes_allowed());
            memory::bound(store, goal);
            let targets = self.plan(host, &mut measured, &tables, goal);
            // Until the filters fit, the previous limit bounds the copies.
            let before = account.limit(MemoryUse::Filters);
            let mut changes = Changes::new(&tables, store, before, Patience::Long)
                .aborting_for(&self.change_waiters);
            changes.shrink(&targets);
            changes.drop_beyond(&targets, goal);
            if FilterMemory::of(store).bytes() <= goal {
                account.set_limit(MemoryUse::Filters, bytes_max);
                let mut changes = Changes::new(&tables, store, goal, Patience::Short);
                changes.load(&targets, LOAD_BYTES_MAX);
                self.note_stuck(changes.is_stuck);
                drop(measured);
                self.report_unreadable(host, &tables, changes.unreadable);
                return;
            }
            drop(measured);
            // The rest belongs to tables about to enter a version, or to readers.
            thread::sleep(CUT_INTERVAL);
        }
        // The rest is freed when its readers end, and nothing is loaded before that.
        let _held = self.hold();
        account.set_limit(MemoryUse::Filters, self.bytes_max.load(SeqCst));
    }

    /// Records whether a plan left something undone because lookups held its room.
    fn note_stuck(&self, is_stuck: bool) {
        let plans = self.stuck_plans.load(Relaxed);
        self.stuck_plans.store(if is_stuck { plans.saturating_add(1) } else { 0 }, Relaxed);
    }
}
