//! What happens to filters when the budget or the use of tables changes.

use std::time::Duration;

use super::{Changes, LOAD_BYTES_MAX, Patience, change::LOOK_INTERVAL};
use crate::{
    memory::MemoryUse,
    store::Store,
    sync::{atomic::Ordering::SeqCst, thread},
};

/// How often is looked at most whether filters are within a budget that was cut...
const CUT_LOOKS: u32 = 2_000;
/// ...and how long to wait in between.
const CUT_INTERVAL: Duration = LOOK_INTERVAL.saturating_mul(20);

impl Store {
    /// The background job: brings filters to what the plan says, as far as there is room.
    pub(crate) fn fit_filters(&self) {
        let mut measured = self.residency.lock_change();
        self.residency.is_due.store(false, SeqCst);
        self.tables.memory.begin_filter_plan();
        let tables = self.filter_tables();
        let goal = self.filter_bytes_goal();
        self.tables.bound_filters(goal);
        let targets = self.plan_filters(&mut measured, &tables, goal);
        let mut changes = Changes::new(&tables, &self.tables, goal, Patience::Short);
        changes.give_up(&targets);
        let is_all = changes.load(&targets, LOAD_BYTES_MAX);
        // What is stuck waits a little.
        if !is_all && !changes.is_stuck {
            self.residency.is_due.store(true, SeqCst);
        }
        self.residency.note_stuck(changes.is_stuck);
        self.tell_unreadable(&tables, changes.unreadable);
    }

    /// The same on this thread, until there is nothing left to do.
    pub(crate) fn fit_due_filters(&self) {
        while self.residency.is_due.load(SeqCst) || self.tables.memory.filters_are_due() {
            self.fit_filters();
        }
    }

    /// Takes from memory what the present budget and policies leave no room for. At return the
    /// filters are within them, but for what a lookup holds that lasts longer than some seconds: no
    /// wait is without end, since that lookup may be the caller's, or a listener may keep a table
    /// from its version.
    pub(super) fn cut_filters(&self) {
        let memory = &self.tables.memory;
        for _ in 0..CUT_LOOKS {
            let mut measured = self.residency.change.lock();
            let tables = self.filter_tables();
            let bytes_max = self.residency.bytes_max.load(SeqCst);
            let goal = bytes_max.min(memory.filter_bytes_allowed());
            self.tables.bound_filters(goal);
            let targets = self.plan_filters(&mut measured, &tables, goal);
            // Until they fit, what was allowed before bounds the copies.
            let before = memory.limit(MemoryUse::Filters);
            let mut changes = Changes::new(&tables, &self.tables, before, Patience::Long)
                .aborting_for(&self.residency.change_waiters);
            changes.give_up(&targets);
            changes.drop_beyond(&targets, goal);
            if self.tables.filter_memory().bytes() <= goal {
                memory.set_limit(MemoryUse::Filters, bytes_max);
                let mut changes = Changes::new(&tables, &self.tables, goal, Patience::Short);
                changes.load(&targets, LOAD_BYTES_MAX);
                self.residency.note_stuck(changes.is_stuck);
                self.tell_unreadable(&tables, changes.unreadable);
                return;
            }
            drop(measured);
            // The rest is that of tables which are about to enter a version, or which a reader has
            // not let go of yet.
            thread::sleep(CUT_INTERVAL);
        }
        // All that there is fits: what is held goes when it is let go of, and nothing comes before
        // that.
        let _change = self.residency.lock_change();
        memory.set_limit(MemoryUse::Filters, self.residency.bytes_max.load(SeqCst));
    }

    /// Bounds the filters of all keyspaces together. At return they are within the bound, but for
    /// what [`cut_filters`](Self::cut_filters) could not wait for.
    pub(in crate::store) fn set_filter_bytes_max(&self, bytes_max: u64) {
        let memory = &self.tables.memory;
        self.residency.bytes_max.store(bytes_max, SeqCst);
        if bytes_max < memory.limit(MemoryUse::Filters) {
            self.cut_filters();
        } else {
            let _change = self.residency.lock_change();
            // Not `bytes_max`: another thread may have cut it since.
            let bytes_max = self.residency.bytes_max.load(SeqCst);
            memory.set_limit(MemoryUse::Filters, bytes_max);
            self.tables.bound_filters(memory.filter_bytes_max());
        }
        self.look_at_filters();
    }

    /// Has the background job look at the filters.
    pub(super) fn look_at_filters(&self) {
        self.residency.is_due.store(true, SeqCst);
        self.scheduler.wake();
        self.run_inline();
    }
}
