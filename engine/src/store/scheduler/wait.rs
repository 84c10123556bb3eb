//! Waits for background work, and requests to compact whole keyspaces.

use std::{collections::BTreeMap, slice, sync::Arc, time::Duration};

use super::Scheduler;
use crate::{Error, Result, read::tree::Tree, store::Store};

/// Interval at which a waiting thread checks for work of another store of the pool, or for memory
/// that a reader has freed.
const INLINE_LOOKS: Duration = Duration::from_millis(10);

/// Requests to compact whole keyspaces, by id.
pub(in crate::store) type WholeRequests = BTreeMap<u64, WholeRequest>;

/// A request to compact a keyspace as a whole. Callers share it while it is in flight.
#[derive(Debug)]
pub(in crate::store) struct WholeRequest {
    /// Unique, so that no caller mistakes a later request for its own.
    number: u64,
    /// Runs of level 0 with smaller numbers existed at the request. Without this limit the work
    /// would not end during writes.
    id_limit: u64,
    waiters: usize,
    /// Error that prevents it.
    failed: Option<Error>,
}

impl WholeRequest {
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Returns the first number of runs of level 0 that are not part of the request.
    pub(super) fn id_limit(&self) -> u64 {
        self.id_limit
    }

    /// Records that the compaction failed.
    pub(super) fn fail(&mut self, error: Error) {
        self.failed = Some(error);
    }

    /// Returns whether the compaction failed.
    pub(super) fn has_failed(&self) -> bool {
        self.failed.is_some()
    }
}

impl Scheduler {
    /// Waits until some work was done, or for 10 ms.
    pub(in crate::store) fn wait_for_progress(&self) {
        self.progress.wait_for(&mut self.state.lock(), INLINE_LOOKS);
    }

    /// Returns the error of a full disk that stops background work.
    pub(in crate::store) fn no_space(&self) -> Option<Error> {
        self.state.lock().no_space.clone()
    }

    /// Requests a compaction of `tree` as a whole, except runs of level 0 with numbers from
    /// `next_file_id` on. Returns the number of the request, which is removed when it is done.
    pub(super) fn request_whole(&self, tree: &Tree, next_file_id: impl FnOnce() -> u64) -> u64 {
        let mut state = self.state.lock();
        // Under the lock: a merge within level 0 that is claimed before merges no newer run.
        let id_limit = next_file_id();
        state.whole_count += 1;
        let new = WholeRequest { number: state.whole_count, id_limit, waiters: 0, failed: None };
        let request = state.whole.entry(tree.id).or_insert(new);
        request.id_limit = id_limit.max(request.id_limit);
        request.waiters += 1;
        debug_assert!(request.waiters > 0 && request.id_limit >= id_limit);
        let number = request.number;
        state.due.compact.add([tree.id]);
        drop(state);
        self.wake();
        number
    }

    /// Fails the request to compact `tree` as a whole, if there is one.
    pub(in crate::store) fn fail_whole(&self, tree: &Tree, error: Error) {
        if let Some(request) = self.state.lock().whole.get_mut(&tree.id) {
            request.fail(error);
        }
        self.progress.notify_all();
    }

    /// Ends the wait of one caller. Removes the request with the last of them, since the others
    /// would mistake its end for success. Returns the error if the compaction failed.
    pub(super) fn withdraw_whole(&self, tree: &Tree, number: u64) -> Option<Error> {
        let mut state = self.state.lock();
        let mut failed = None;
        if let Some(request) = state.whole.get_mut(&tree.id)
            && request.number == number
        {
            request.waiters -= 1;
            failed.clone_from(&request.failed);
            if request.waiters == 0 {
                state.whole.remove(&tree.id);
                state.due.compact.add([tree.id]);
                state.due.crowded.note([tree.id]);
                // `wait_until_idle` waits for this request, and postponed work is due.
                self.bell.ring();
                self.progress.notify_all();
            }
        }
        failed
    }
}

impl Store {
    /// Waits until background work makes `done` return `true`. `done` gets the requests to compact
    /// whole keyspaces.
    ///
    /// # Errors
    ///
    /// `done` cannot become true: the store is read-only or closed, or the disk is full.
    pub(in crate::store) fn wait_for_work(
        &self,
        mut done: impl FnMut(&WholeRequests) -> bool,
    ) -> Result<()> {
        self.run_inline();
        let mut state = self.scheduler.state.lock();
        loop {
            if done(&state.whole) {
                return Ok(());
            }
            self.versions.check_writable()?;
            if state.shut_down {
                return Err(Error::Closed);
            }
            if let Some(error) = &state.no_space {
                return Err(error.clone());
            }
            self.scheduler.progress.wait(&mut state);
        }
    }

    /// Waits until no background work is left.
    ///
    /// # Errors
    ///
    /// As [`wait_for_work`](Self::wait_for_work).
    pub(crate) fn wait_until_idle(&self) -> Result<()> {
        // A lookup may have held a filter for so long that its room was not used.
        self.filters.retry_stuck();
        self.scheduler.retry(&self.filters);
        self.freeze_asked();
        // Waits for a worker that freezes a memtable.
        drop(self.writer.placement());
        self.run_inline();
        if self.options.read_only {
            return Ok(());
        }
        let mut state = self.scheduler.state.lock();
        loop {
            self.versions.check_writable()?;
            if self.is_idle(&mut state) {
                break;
            }
            if state.shut_down {
                return Err(Error::Closed);
            }
            if let Some(error) = state.no_space.clone().or_else(|| self.filters.why_deferred()) {
                return Err(error);
            }
            if self.options.worker_threads == 0 {
                // Another store of the pool may have caused work for this thread.
                self.scheduler.progress.wait_for(&mut state, INLINE_LOOKS);
                drop(state);
                self.run_inline();
                state = self.scheduler.state.lock();
            } else {
                self.scheduler.progress.wait(&mut state);
            }
        }
        drop(state);
        self.scheduler.unneeded.free();
        self.unlink_obsolete();
        // A worker may have taken files from the list before.
        let mut state = self.scheduler.state.lock();
        while state.unlinking > 0 {
            self.scheduler.progress.wait(&mut state);
        }
        drop(state);
        self.versions.check_writable()
    }

    /// Flushes `tree` and merges all its tables into the deepest level. Reads quarantined tables
    /// again.
    ///
    /// # Errors
    ///
    /// The error of the flush or the merge. After [`Error::Corrupt`] or [`Error::Io`] about a table
    /// that cannot be read, the store stays writable.
    pub(crate) fn compact_tree(&self, tree: &Arc<Tree>) -> Result<()> {
        self.flush_trees(slice::from_ref(tree))?;
        self.retry_quarantined(tree);
        let number = self.scheduler.request_whole(tree, || self.tables.next_file_id());
        let is_this = |request: &WholeRequest| request.number() == number && !request.has_failed();
        let done = self
            .wait_for_work(|whole| tree.is_dropped() || !whole.get(&tree.id).is_some_and(is_this));
        // Does nothing for a request that is done.
        let failed = self.scheduler.withdraw_whole(tree, number);
        done.and(failed.map_or(Ok(()), Err))
    }
}
