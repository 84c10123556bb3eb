//! Keyspaces that are to be compacted as a whole.

use std::collections::BTreeMap;

use super::Background;
use crate::{Error, read::tree::Tree};

/// Keyspaces that are to be compacted as a whole, by id.
pub(crate) type WholeRequests = BTreeMap<u64, WholeRequest>;

/// That a keyspace is to be compacted as a whole. Those who ask while it is under way share it.
#[derive(Debug)]
pub(crate) struct WholeRequest {
    /// Unlike that of every other request, so that nobody takes a later one for his.
    number: u64,
    /// Runs of level 0 with a smaller number were there when somebody asked. Without it the work would not end
    /// while others write.
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

    /// Notes that it cannot be done.
    pub(super) fn fail(&mut self, error: Error) {
        self.failed = Some(error);
    }

    /// Returns whether it cannot be done.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed.is_some()
    }
}

impl Background {
    /// Asks for `tree` to be compacted as a whole, but for runs of level 0 with numbers from `id_limit` on.
    /// Returns the number of the request: it is done when it is gone.
    pub(crate) fn request_whole(&self, tree: &Tree, id_limit: u64) -> u64 {
        let mut state = self.state.lock();
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

    /// One who asked waits no longer. The request goes with the last of them: the others would take
    /// its end for success. Returns why it cannot be done, if it cannot.
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
                // Who waits until nothing is to be done waited for this, and what was put off for it is due.
                self.bell.ring();
                self.progress.notify_all();
            }
        }
        failed
    }
}
