//! Requests to compact keyspaces, or ranges of their keys.

use std::{collections::BTreeMap, ops::RangeInclusive, slice, sync::Arc};

use super::Scheduler;
use crate::{
    Error, Result,
    iter::bounds::KeyBounds,
    read::tree::Tree,
    store::{Store, writer::stall::Awaited},
};

/// A request to compact a range of a keyspace. Callers with the same range share it until it
/// begins.
#[derive(Debug, Clone)]
pub(in crate::store) struct RangeRequest {
    /// Unique, so that no caller mistakes a later request for its own.
    pub(super) number: u64,
    pub(super) range: KeyBounds,
    /// Runs of level 0 with smaller numbers existed at the request, or were merged with some that
    /// did. Without this limit the work would not end during writes.
    pub(super) id_limit: u64,
    waiters: usize,
    /// Error that prevents it.
    failed: Option<Error>,
}

/// Requests to compact ranges, by keyspace. The oldest of a keyspace is done first.
#[derive(Debug, Default)]
pub(in crate::store) struct RangeRequests {
    /// By id of the keyspace and number of the request.
    all: BTreeMap<(u64, u64), RangeRequest>,
    /// Number of requests so far.
    count: u64,
}

impl RangeRequests {
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Returns whether the keyspace `id` has a request, failed ones included.
    pub(super) fn has(&self, id: u64) -> bool {
        self.all.range((id, 0)..=(id, u64::MAX)).next().is_some()
    }

    /// Returns the oldest request for the keyspace `id` that has not failed.
    pub(super) fn first(&self, id: u64) -> Option<&RangeRequest> {
        let of_keyspace = self.all.range((id, 0)..=(id, u64::MAX));
        of_keyspace.map(|(_, request)| request).find(|request| request.failed.is_none())
    }

    /// Returns whether this request is neither done nor failed.
    fn is_pending(&self, id: u64, number: u64) -> bool {
        self.all.get(&(id, number)).is_some_and(|request| request.failed.is_none())
    }

    /// Adds a request, or a waiter to one for the same range. Returns its number. A request in
    /// flight keeps its limit: callers would prolong it without end.
    fn add(&mut self, id: u64, range: &KeyBounds, id_limit: u64) -> u64 {
        let in_flight = self.first(id).map(|first| first.number);
        let mut of_keyspace = self.all.range_mut((id, 0)..=(id, u64::MAX));
        let is_same = |request: &RangeRequest| {
            let has_all = request.id_limit >= id_limit || in_flight != Some(request.number);
            has_all && request.failed.is_none() && request.range == *range
        };
        if let Some((_, request)) = of_keyspace.find(|(_, request)| is_same(request)) {
            request.id_limit = id_limit.max(request.id_limit);
            request.waiters += 1;
            return request.number;
        }
        self.count += 1;
        let number = self.count;
        let range = range.clone();
        let request = RangeRequest { number, range, id_limit, waiters: 1, failed: None };
        self.all.insert((id, number), request);
        number
    }

    /// Notes a merge of these runs of level 0 of the keyspace `id` into one with the number of the
    /// newest. A request that includes some of them includes the result. The limit stops rising
    /// when the request is the first, which excludes newer runs.
    pub(super) fn note_merge(&mut self, id: u64, runs: RangeInclusive<u64>) {
        for (_, request) in self.all.range_mut((id, 0)..=(id, u64::MAX)) {
            if *runs.start() < request.id_limit && request.id_limit <= *runs.end() {
                request.id_limit = runs.end() + 1;
            }
        }
    }

    /// Removes a request that is done.
    pub(super) fn finish(&mut self, id: u64, number: u64) {
        self.all.remove(&(id, number));
    }

    /// Records that a request failed.
    pub(super) fn fail(&mut self, id: u64, number: u64, error: Error) {
        if let Some(request) = self.all.get_mut(&(id, number)) {
            request.failed = Some(error);
        }
    }

    /// Fails all pending requests, of one keyspace or of all.
    pub(super) fn fail_all(&mut self, of_keyspace: Option<u64>, error: &Error) {
        for ((id, _), request) in &mut self.all {
            if of_keyspace.is_none_or(|only| only == *id) && request.failed.is_none() {
                request.failed = Some(error.clone());
            }
        }
    }
}

impl Scheduler {
    /// Requests a compaction of a range of `tree`, except runs of level 0 with numbers from
    /// `next_file_id` on. Returns the number of the request, which is removed when it is done.
    ///
    /// # Errors
    ///
    /// [`Error::CompactionsPaused`].
    pub(super) fn request_range(
        &self,
        tree: &Tree,
        range: &KeyBounds,
        next_file_id: impl FnOnce() -> u64,
    ) -> Result<u64> {
        let mut state = self.state.lock();
        if state.pauses > 0 {
            return Err(Error::CompactionsPaused);
        }
        // Under the lock: a merge within level 0 that is claimed before merges no newer run.
        let number = state.requests.add(tree.id, range, next_file_id());
        // The caller waits for the next attempt.
        state.full_disk.end_stops();
        state.retries += 1;
        state.due.compact.add([tree.id]);
        drop(state);
        self.wake();
        Ok(number)
    }

    /// Fails the requests to compact `tree`.
    pub(in crate::store) fn fail_requests(&self, tree: &Tree, error: &Error) {
        self.state.lock().requests.fail_all(Some(tree.id), error);
        self.progress.notify_all();
    }

    /// Ends the wait of one caller. Removes the request with its last waiter. Others would take its
    /// absence for success. Returns the error if the compaction failed.
    pub(super) fn withdraw_range(&self, tree: &Tree, number: u64) -> Option<Error> {
        let mut state = self.state.lock();
        let request = state.requests.all.get_mut(&(tree.id, number))?;
        request.waiters -= 1;
        let failed = request.failed.clone();
        if request.waiters == 0 {
            state.requests.finish(tree.id, number);
            state.due.compact.add([tree.id]);
            state.due.crowded.note([tree.id]);
            // `wait_until_idle` waits for this request, and postponed work is due.
            self.bell.ring();
            self.progress.notify_all();
        }
        failed
    }
}

impl Store {
    /// Flushes `tree`, and merges its tables with a key in `range` into the deepest level. Reads
    /// quarantined tables again.
    ///
    /// # Errors
    ///
    /// The error of the flush or the merge; [`Error::CompactionsPaused`]. After
    /// [`Error::Corrupt`] or [`Error::Io`] about a table that cannot be read, the store stays
    /// writable.
    pub(crate) fn compact_tree(&self, tree: &Arc<Tree>, range: &KeyBounds) -> Result<()> {
        self.flush_trees(slice::from_ref(tree))?;
        self.retry_quarantined(tree);
        let next_file_id = || self.tables.next_file_id();
        let number = self.scheduler.request_range(tree, range, next_file_id)?;
        let done = self.wait_for(Awaited::Any { compactions_of: None }, |requests| {
            tree.is_dropped() || !requests.is_pending(tree.id, number)
        });
        // Does nothing for a request that is done.
        let failed = self.scheduler.withdraw_range(tree, number);
        done.and(failed.map_or(Ok(()), Err))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_callers_do_not_prolong_a_request_in_flight() {
        let mut requests = RangeRequests::default();
        let limits = |requests: &RangeRequests| {
            requests.all.values().map(|it| (it.id_limit, it.waiters)).collect::<Vec<_>>()
        };
        let first = requests.add(1, &KeyBounds::ALL, 10);
        assert_eq!(requests.add(1, &KeyBounds::ALL, 10), first, "no table is newer");
        let second = requests.add(1, &KeyBounds::ALL, 20);
        assert_ne!(second, first);
        // It has not begun.
        assert_eq!(requests.add(1, &KeyBounds::ALL, 30), second);
        assert_eq!(limits(&requests), [(10, 2), (30, 2)]);
        assert_ne!(requests.add(2, &KeyBounds::ALL, 30), second, "another keyspace");
        requests.finish(1, first);
        let third = requests.add(1, &KeyBounds::ALL, 40);
        assert_ne!(third, second, "the second is in flight");
        requests.fail(1, second, Error::Closed);
        requests.fail(1, third, Error::Closed);
        let fourth = requests.add(1, &KeyBounds::ALL, 40);
        assert_ne!(fourth, third, "it has failed");
    }
}
