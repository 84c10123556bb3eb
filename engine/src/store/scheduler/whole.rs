//! Keyspaces that are to be compacted as a whole.

use std::collections::BTreeMap;

use super::Scheduler;
use crate::{Error, read::tree::Tree};

/// Keyspaces that are to be compacted as a whole, by id.
pub(crate) type WholeRequests = BTreeMap<u64, WholeRequest>;

/// A request to compact a keyspace as a whole. Callers share it while it is in flight.
#[derive(Debug)]
pub(crate) struct WholeRequest {
    /// Unique, so that no caller mistakes a later request for its own.
    number: u64,
    /// Runs of level 0 with smaller numbers existed at the request. Without this limit the work
    /// would not end during writes.
    id_limit: u64,
    waiters: usize,
    /// Why it cannot be done.
    failed: Option<Error>,
}

impl WholeRequest {
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Runs of level 0 with numbers from here on are not part of it.
    pub(super) fn id_limit(&self) -> u64 {
        self.id_limit
    }

    /// Records that the compaction failed.
    pub(super) fn fail(&mut self, error: Error) {
        self.failed = Some(error);
    }

    /// Returns whether the compaction failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed.is_some()
    }
}

impl Scheduler {
    /// Requests a compaction of `tree` as a whole, except runs of level 0 with numbers from
    /// `next_file_id` on. Returns the number of the request, which is removed when it is done.
    pub(crate) fn request_whole(&self, tree: &Tree, next_file_id: impl FnOnce() -> u64) -> u64 {
        let mut state = self.state.lock();
        // Under the lock: a merge within level 0 that is claimed before merges no newer run.
        let id_limit = next_file_id();
        state.whole_count += 1;
        let new = WholeRequest { number: state.whole_count, id_limit, waiters: 0, failed: None };
        let request = state.whole.entry(tree.id).or_insert(new);
        request.id_limit = id_limit.max(request.id_limit);
        request.waiters += 1;
        let number = request.number;
        state.due.compact.add([tree.id]);
        drop(state);
        self.wake();
        number
    }

    /// Ends the wait of one caller. Removes the request with the last of them, since the others
    /// would mistake its end for success. Returns the error if the compaction failed.
    pub(crate) fn withdraw_whole(&self, tree: &Tree, number: u64) -> Option<Error> {
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
                // `wait_until_idle` waits for this request, and postponed work is due.
                self.bell.ring();
                self.progress.notify_all();
            }
        }
        failed
    }
}
