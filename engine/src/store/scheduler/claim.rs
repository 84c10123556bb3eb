//! Finds and claims the next piece of background work.

use std::{collections::BTreeSet, mem, sync::Arc, time::Duration};

use super::{
    Job, Scheduler, State, Unlinker,
    crowded::MERGE_BYTES_BEFORE_FLUSH,
    idle_compaction::WAIT_MIN,
    precedence::{
        is_of_level0, is_second_of_many_levels, is_short_of_level0, leaves_a_worker, reduces_level0,
    },
};
use crate::{
    compaction::choice::Compaction,
    read::{changed_trees::TreeIds, tree::Tree},
    store::Store,
    store::choose::Chosen,
    store::writer::throttle::{Debt, Pressure, pressure},
};

/// Keyspaces with another compaction due, or none that may begin, that are visited to find one of
/// level 0.
const LOOKS_MAX: usize = 16;

/// Compactions that a search may claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    All,
    /// Those of level 0 that are short, or whose keyspace delays writes.
    UrgentOfLevel0,
    /// Short ones of level 0.
    ShortOfLevel0,
}

impl Scheduler {
    /// Makes workers look for a compaction of the keyspace `id` at `time`, by the clock of the
    /// options.
    pub(crate) fn look_again_at(&self, time: Duration, id: u64) {
        self.state.lock().due.look_again_at(time, id);
    }
}

impl Store {
    /// Returns how long a worker without work may wait; `None`: until the bell rings.
    pub(super) fn wait_max(&self, state: &State) -> Option<Duration> {
        // A read-only store claims nothing, so its pauses would never end.
        let pause_end = state.due.next_time().filter(|_| !self.versions.is_read_only());
        let pause = pause_end.map(|end| end.saturating_sub(self.options.clock.now()).max(WAIT_MIN));
        let idle = state.idle_memtables.wait_max().filter(|_| !self.versions.is_read_only());
        let has_paced = !self.versions.is_read_only() && self.has_paced_unlink();
        let unlink = has_paced.then(|| self.unlink_wait().max(WAIT_MIN));
        let retry = state.full_disk.retry_at().filter(|_| !self.versions.is_read_only());
        let retry = retry.map(|at| at.saturating_sub(self.options.clock.now()).max(WAIT_MIN));
        let others = [self.filters.wait_max(), state.idle_compactions.wait_max(), idle, unlink];
        others.into_iter().chain([pause, retry]).flatten().min()
    }

    /// Returns whether obsolete files are left, which are unlinked at a pace.
    pub(super) fn has_paced_unlink(&self) -> bool {
        self.tables.unlink_pace.is_set() && !self.tables.obsolete_files.is_empty()
    }

    /// Returns whether work may begin that changes files.
    pub(super) fn may_claim(&self, state: &State) -> bool {
        !state.shut_down && !self.versions.is_read_only()
    }

    /// Claims an unlink if one is due and no thread unlinks. After an unlink, a flush that
    /// `may_flush` allows comes first.
    pub(super) fn claim_unlink(&self, state: &mut State, may_flush: bool) -> Option<Job> {
        let is_flush_first =
            mem::take(&mut state.flush_turn) && may_flush && self.has_unclaimed_flush(state);
        let is_due = !is_flush_first
            && state.unlinker == Unlinker::None
            && !self.tables.obsolete_files.is_empty()
            && (state.full_disk.error().is_some() || self.unlink_wait().is_zero());
        if is_due {
            state.unlinker = Unlinker::Worker;
        }
        state.flush_turn = is_due;
        is_due.then_some(Job::Unlink)
    }

    /// Returns how long the next unlink waits.
    fn unlink_wait(&self) -> Duration {
        self.tables.unlink_pace.wait(self.options.clock.now())
    }

    /// Claims the next piece of work that can be done.
    pub(super) fn claim(&self) -> Option<Job> {
        let mut state = self.scheduler.state.lock();
        state.idle_compactions.clear_wait();
        state.full_disk.begin_search();
        if !self.may_claim(&state) {
            // Changes no file. Another store of the pool may need the memory.
            let fit = if state.shut_down { None } else { self.filters.claim(self, false) };
            state.filter_jobs += usize::from(fit.is_some());
            return fit.map(Job::Filter);
        }
        let now = self.options.clock.now();
        let is_behind = self.versions.is_behind();
        let may_flush = state.full_disk.may_flush(now);
        self.note_changes(&mut state);
        if let Some(unlink) = self.claim_unlink(&mut state, may_flush && !is_behind) {
            return Some(unlink);
        }
        if is_behind {
            return may_flush.then_some(Job::Record);
        }
        let workers = self.options.worker_threads;
        let has_lent_beyond = state.has_lent_beyond(workers);
        if !has_lent_beyond
            && mem::take(&mut state.merge_turn)
            && let Some(merge) = self.claim_crowded(&mut state, MERGE_BYTES_BEFORE_FLUSH)
        {
            return Some(merge);
        }
        if may_flush && let Some(tree) = self.claim_flush(&mut state) {
            state.merge_turn = true;
            return Some(Job::Flush(tree));
        }
        if has_lent_beyond {
            return self.claim_compaction(&mut state, Wanted::UrgentOfLevel0);
        }
        let mut job = self.claim_compaction(&mut state, Wanted::All);
        while self.awaits_no_longer(&mut state) && job.is_none() {
            job = self.claim_compaction(&mut state, Wanted::All);
        }
        job = job.or_else(|| self.claim_crowded(&mut state, u64::MAX));
        let has_stopped = !may_flush || !state.full_disk.may_compact(now);
        if job.is_none() && !has_stopped && state.flushing.is_empty() && state.running.is_empty() {
            // No work is postponed.
            state.full_disk.end_stops();
        }
        if job.is_none() && state.full_disk.refused().is_some() {
            // A thread that waits for it gets the error.
            self.scheduler.progress.notify_all();
        }
        if job.is_some() || has_stopped {
            return job;
        }
        let has_lent_last = state.has_lent_last(workers);
        let may_rebuild = !has_lent_last && state.full_disk.may_rebuild(now);
        if let Some(job) = self.filters.claim(self, may_rebuild) {
            state.filter_jobs += 1;
            return Some(Job::Filter(job));
        }
        // A writer does no optional work.
        let is_optional = self.options.background_rewrites && workers > 0 && !has_lent_last;
        if is_optional { self.claim_idle_compaction(&mut state) } else { None }
    }

    /// Notes the keyspaces that have changed.
    pub(super) fn note_changes(&self, state: &mut State) {
        let changed = self.versions.trees().changed().take();
        state.due.note(&changed, self.versions.snapshots().oldest());
        state.due.end_pauses(self.options.clock.now());
        self.filters.note_changed(changed, || self.versions.trees().ids().collect());
        if mem::take(&mut state.looks_at_all) {
            state.due.compact.add(self.versions.trees().ids());
        }
    }

    /// Publishes the snapshot that compactions wait for. Returns whether it was dropped meanwhile.
    fn awaits_no_longer(&self, state: &mut State) -> bool {
        self.scheduler.await_snapshot(state.due.awaited_snapshot());
        // Afterwards: a thread that dropped it before did not notify.
        let is_freed = state.due.is_freed(self.versions.snapshots().oldest());
        if is_freed {
            self.note_changes(state);
        }
        is_freed
    }

    pub(super) fn tree_of_id(&self, id: u64) -> Option<Arc<Tree>> {
        self.versions.trees().of_id(id).cloned()
    }

    /// Claims a flush, of the next keyspace in turn.
    pub(super) fn claim_flush(&self, state: &mut State) -> Option<Arc<Tree>> {
        let mut walk = TreeIds::walk_behind(state.due.last_flushed);
        while let Some(id) = walk.next(&state.due.flush) {
            match self.tree_of_id(id).filter(|tree| !tree.view_seldom().frozen.is_empty()) {
                Some(tree) if state.flushing.insert(id) => {
                    debug_assert!(!state.shut_down, "no work begins after the end");
                    debug_assert_eq!(tree.id, id);
                    state.due.last_flushed = id;
                    return Some(tree);
                }
                // The flush in flight may fail.
                Some(_) => {}
                None => state.due.flush.remove(id),
            }
        }
        None
    }

    /// Claims a compaction of level 0 that a write waits for, or else one of the next keyspace in
    /// turn. One of level 0 precedes others if it is found within [`LOOKS_MAX`] keyspaces.
    pub(super) fn claim_compaction(&self, state: &mut State, wanted: Wanted) -> Option<Job> {
        if state.pauses > 0 || !state.full_disk.may_compact(self.options.clock.now()) {
            return None;
        }
        if let Some(stopped) = self.claim_stopped(state, wanted) {
            return Some(stopped);
        }
        let mut walk = TreeIds::walk_behind(state.due.last_compacted);
        let (mut other, mut looks) = (None, 0);
        while looks < LOOKS_MAX
            && let Some(id) = walk.next(&state.due.compact)
        {
            let Some((tree, compaction)) = self.next_compaction(state, id) else { continue };
            if self.precedes(&tree, &compaction, wanted) {
                return Some(self.claim_this(state, tree, compaction));
            }
            looks += 1;
            if wanted == Wanted::All {
                other.get_or_insert((tree, compaction));
            }
        }
        other.map(|(tree, compaction)| self.claim_this(state, tree, compaction))
    }

    /// Claims a compaction of level 0 that a write waits for.
    fn claim_stopped(&self, state: &mut State, wanted: Wanted) -> Option<Job> {
        let mut walk = TreeIds::walk_behind(state.due.last_compacted);
        let mut looks = 0;
        while looks < LOOKS_MAX
            && let Some(id) = walk.next(&state.due.stopped)
        {
            let is_stopped = |tree: Arc<Tree>| pressure(self.debt(&tree)) == Pressure::Stop;
            if !self.tree_of_id(id).is_some_and(is_stopped) {
                state.due.stopped.remove(id);
            } else if state.due.compact.contains(id) {
                looks += 1;
                if let Some((tree, compaction)) = self.next_compaction(state, id)
                    && self.precedes(&tree, &compaction, wanted)
                {
                    return Some(self.claim_this(state, tree, compaction));
                }
            }
        }
        None
    }

    /// Returns whether this compaction of `tree` precedes others, and is `wanted`.
    fn precedes(&self, tree: &Tree, compaction: &Compaction, wanted: Wanted) -> bool {
        let is_short = is_short_of_level0(compaction);
        match wanted {
            Wanted::All => is_of_level0(compaction),
            Wanted::UrgentOfLevel0 => is_short || self.is_urgent(tree, compaction),
            Wanted::ShortOfLevel0 => is_short,
        }
    }

    /// Claims this compaction of the keyspace whose turn it was.
    fn claim_this(&self, state: &mut State, tree: Arc<Tree>, compaction: Compaction) -> Job {
        state.due.last_compacted = tree.id;
        self.claim_merge(state, tree, compaction)
    }

    /// Claims this compaction.
    pub(super) fn claim_merge(
        &self,
        state: &mut State,
        tree: Arc<Tree>,
        compaction: Compaction,
    ) -> Job {
        if compaction.output_level == 0 && state.requests.has(tree.id) {
            let view = tree.view_seldom();
            let inputs: BTreeSet<u64> = compaction.tables().collect();
            let tables = view.version.tables().filter(|it| inputs.contains(&it.2.meta.id));
            let oldest_run = tables.map(|(_, _, live)| live.meta.run).min();
            if let Some(oldest) = oldest_run {
                state.requests.note_merge(tree.id, oldest..=compaction.output_run);
            }
        }
        state.claim(&tree, &compaction);
        self.note_busy(&tree, &state.running_in(&tree));
        Job::Compact(tree, compaction)
    }

    /// Returns the next compaction of the keyspace `id` that may begin.
    fn next_compaction(&self, state: &mut State, id: u64) -> Option<(Arc<Tree>, Compaction)> {
        let Some(tree) = self.tree_of_id(id) else {
            state.due.compact_later(id, None);
            return None;
        };
        if state.ingesting.contains(&id) {
            return None;
        }
        let requested = self.choose_requested(state, &tree);
        let others = || self.choose_compaction(&tree, &state.running_in(&tree), None);
        match requested.unwrap_or_else(others) {
            // It stays due.
            Chosen::Compaction(compaction)
                if self.keeps_workers(state, &tree, &compaction)
                    || self.waits_for_many_levels(state, &tree, &compaction)
                    || self.has_no_space(state, &tree, &compaction) =>
            {
                None
            }
            Chosen::Compaction(compaction) => Some((tree, compaction)),
            // The end of a running compaction is a change, too.
            Chosen::Nothing { awaited_snapshot, awaited_time } => {
                state.due.compact_later(id, awaited_snapshot);
                state.due.await_time(id, awaited_time);
                None
            }
            // Only for a request.
            Chosen::RangeIsDone | Chosen::RangeFails(_) => None,
        }
    }

    /// Ends the requests for `tree` that are done or have failed. Returns the choice for the next
    /// one. Files that a request replaced may still be unlinked: that may take long.
    pub(super) fn choose_requested(&self, state: &mut State, tree: &Tree) -> Option<Chosen> {
        loop {
            let request = state.requests.first(tree.id)?.clone();
            let running = state.running_in(tree);
            let requested = Some((&request.range, request.id_limit));
            match self.choose_compaction(tree, &running, requested) {
                // Later runs may be due, and no change would notify a worker.
                Chosen::RangeIsDone => {
                    state.requests.finish(tree.id, request.number);
                    state.due.crowded.note([tree.id]);
                }
                Chosen::RangeFails(error) => state.requests.fail(tree.id, request.number, error),
                nothing @ Chosen::Nothing { .. } => {
                    let newer = self.choose_newer(tree, &running, request.id_limit);
                    return Some(newer.map_or(nothing, Chosen::Compaction));
                }
                Chosen::Compaction(next) => {
                    let waits = self.waits_for_many_levels(state, tree, &next);
                    let newer = waits.then(|| self.choose_newer(tree, &running, request.id_limit));
                    return Some(Chosen::Compaction(newer.flatten().unwrap_or(next)));
                }
            }
            self.scheduler.progress.notify_all();
        }
    }

    /// Returns whether `next` of `tree` waits, so that a worker remains for short compactions.
    pub(super) fn keeps_workers(&self, state: &State, tree: &Tree, next: &Compaction) -> bool {
        let workers = self.options.worker_threads.saturating_sub(state.lent);
        !leaves_a_worker(state.running(), next, workers) && !self.is_urgent(tree, next)
    }

    /// Returns whether `next` of `tree` waits for another compaction of more than two levels. It
    /// does not while its runs delay writes.
    fn waits_for_many_levels(&self, state: &State, tree: &Tree, next: &Compaction) -> bool {
        is_second_of_many_levels(state.running(), next)
            && pressure(self.debt(tree)) == Pressure::Delay(Duration::ZERO)
    }

    /// Returns whether `compaction` of `tree` makes runs of level 0 fewer, which delay writes.
    fn is_urgent(&self, tree: &Tree, compaction: &Compaction) -> bool {
        let debt = Debt { frozen_memtables: 0, compaction_bases: 0.0, ..self.debt(tree) };
        reduces_level0(compaction) && pressure(debt) != Pressure::Delay(Duration::ZERO)
    }

    /// Returns whether `next` of `tree` waits for space on the disk.
    pub(super) fn has_no_space(&self, state: &mut State, tree: &Tree, next: &Compaction) -> bool {
        let point = self.point_of_space();
        state.full_disk.refuses(tree.id, next, point)
    }

    /// Returns the time, and the bytes that tables occupy, from an arbitrary start.
    pub(super) fn point_of_space(&self) -> (Duration, i64) {
        (self.options.clock.now(), self.tables.obsolete_files.occupied_bytes())
    }

    /// Returns whether no work is due or in flight.
    pub(super) fn is_idle(&self, state: &mut State) -> bool {
        self.note_changes(state);
        state.flushing.is_empty()
            && state.running.is_empty()
            && state.requests.is_empty()
            && !self.versions.is_behind()
            && !self.has_flush_or_compaction(state)
            && !(self.awaits_no_longer(state) && self.has_flush_or_compaction(state))
            && !self.has_crowded(state)
            && self.filters.is_idle(self)
    }

    /// Returns whether a keyspace has a flush that no worker has claimed.
    pub(super) fn has_unclaimed_flush(&self, state: &State) -> bool {
        let mut from = 0;
        while let Some(id) = state.due.flush.first_from(from) {
            let is_due = |tree: Arc<Tree>| !tree.view_seldom().frozen.is_empty();
            if !state.flushing.contains(&id) && self.tree_of_id(id).is_some_and(is_due) {
                return true;
            }
            from = id + 1;
        }
        false
    }

    /// Returns whether a keyspace has a flush or a compaction due, while none is in flight.
    fn has_flush_or_compaction(&self, state: &mut State) -> bool {
        if self.has_unclaimed_flush(state) {
            return true;
        }
        if state.pauses > 0 {
            return false;
        }
        let mut from = 0;
        while let Some(id) = state.due.compact.first_from(from) {
            let tree = self.tree_of_id(id);
            match tree.map(|tree| self.choose_compaction(&tree, &[], None)) {
                Some(Chosen::Compaction(_) | Chosen::RangeIsDone | Chosen::RangeFails(_)) => {
                    return true;
                }
                Some(Chosen::Nothing { awaited_snapshot, awaited_time }) => {
                    state.due.compact_later(id, awaited_snapshot);
                    state.due.await_time(id, awaited_time);
                }
                None => state.due.compact_later(id, None),
            }
            from = id + 1;
        }
        false
    }
}
