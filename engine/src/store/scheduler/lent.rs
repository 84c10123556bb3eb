//! Workers lent to a compaction that merges several ranges of keys.
//!
//! A compaction starts a thread for each range except its first. Such a thread counts as an idle
//! worker: together with the claimed jobs, there are at most as many as
//! [`worker_threads`](crate::Options::worker_threads). The idle worker itself remains for what must
//! not wait for the compaction: flushes, unlinks, and merges of level 0 that are short or delay
//! writes. One worker more also begins other jobs, except optional ones, so that neither another
//! keyspace nor a filter waits for the compaction.

use super::{Scheduler, State};
use crate::store::Store;

impl State {
    /// Returns whether all of `workers` work, of which at least one is lent.
    pub(super) fn has_lent_last(&self, workers: usize) -> bool {
        self.lent > 0 && self.claims() >= workers
    }

    /// Returns whether one more than all of `workers` work, of which at least one is lent.
    pub(super) fn has_lent_beyond(&self, workers: usize) -> bool {
        self.lent > 0 && self.claims() > workers
    }
}

impl Scheduler {
    /// Takes back `count` workers.
    pub(in crate::store) fn take_back(&self, count: usize) {
        if count > 0 {
            self.state.lock().lent -= count;
            // They may have work that waited.
            self.bell.ring();
        }
    }
}

impl Store {
    /// Lends up to `max` idle workers to the compaction of this thread, until it returns them by
    /// [`take_back`](Scheduler::take_back). Returns their number.
    pub(in crate::store) fn lend_workers(&self, max: usize) -> usize {
        let mut state = self.scheduler.state.lock();
        let count = self.options.worker_threads.saturating_sub(state.claims()).min(max);
        state.lent += count;
        count
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use std::sync::Arc;

    use crate::{Options, fs::MemoryFs};

    #[test]
    fn only_idle_workers_are_lent() {
        let options = Options::new().fs(Arc::new(MemoryFs::new())).worker_threads(4);
        let db = options.idle_compactions(false).open("db").expect("a new store");
        db.wait_for_background().expect("nothing is due");
        let store = db.store();
        let lend = |max| store.lend_workers(max);
        assert_eq!([lend(3), lend(9), lend(9)], [3, 1, 0]);
        let has_lent_last = || store.scheduler.state.lock().has_lent_last(4);
        assert!(has_lent_last());
        let has_lent_beyond = || store.scheduler.state.lock().has_lent_beyond(4);
        assert!(!has_lent_beyond());
        store.scheduler.state.lock().filter_jobs += 1;
        assert!(has_lent_beyond() && has_lent_last());
        store.scheduler.state.lock().filter_jobs -= 1;
        store.scheduler.take_back(2);
        assert!(!has_lent_last());
        assert_eq!(lend(9), 2);
        store.scheduler.take_back(4);
        assert_eq!(lend(9), 4);
        store.scheduler.take_back(4);
        db.insert("a", "1").expect("there is room");
        db.compact().expect("there is room");
    }
}
