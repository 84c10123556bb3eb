//! Compactions of an idle store: start and interruption.
//!
//! A store is idle when for [`IDLE`] nothing was written and no worker had work. Then the cheap
//! compactions that the picker finds ([`idle`](crate::compaction)) are done one after the other,
//! until something is written. Those that rewrite more follow after [`LONG_IDLE`]. A flush without
//! a free worker interrupts the compaction in flight. So do other jobs that wait for memory, a
//! request to compact a whole keyspace, and the close of the store.
//!
//! The writes of an interrupted compaction are wasted. A writer that flushes another keyspace
//! whenever one begins would interrupt each of them. So a table of level 0 is an input of at most
//! [`ABORTS_MAX`] aborted ones, and then waits for a compaction that is due. This also bounds the
//! bytes: a deeper table is rewritten with a table of level 0, or alone.
//!
//! Workers do not poll. A keyspace in which nothing was found is visited again when it has changed.
//! Workers wait with a limit only between a change and the end of the idle time that follows.

#[cfg(all(test, not(feature = "shuttle")))]
mod tests;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use sievedb_format::SequenceNumber;

use super::{Job, State};
use crate::{
    Result,
    compaction::choice::Compaction,
    read::tree::Tree,
    store::{Store, compact::Ended},
    table::cache_room::WorkerShare,
};

/// Time without work after which a store is idle. Longer than a writer takes to prepare the next
/// batch, and short enough that readers of a bulk load find it merged.
const IDLE: Duration = Duration::from_millis(300);

/// Idle time required if all tables of level 0 existed at the open. A process that opens a store,
/// reads and closes it soon should not compact earlier writes. Also after an interruption, and for
/// compactions that rewrite much for each byte flushed.
const LONG_IDLE: Duration = Duration::from_secs(10);

/// The shortest wait: a clock that stands still must not make workers spin.
pub(super) const WAIT_MIN: Duration = Duration::from_millis(10);

/// Aborted compactions that may have a table of level 0 as an input.
const ABORTS_MAX: u32 = 2;

/// Idle time of the store, and aborted compactions.
#[derive(Debug, Default)]
pub(super) struct IdleCompactions {
    /// The visible sequence number at the last visit.
    visible: Option<SequenceNumber>,
    /// Time of the last work or noticed write.
    since: Duration,
    was_interrupted: bool,
    /// Aborted compactions, by keyspace and by table of level 0.
    aborts: BTreeMap<u64, BTreeMap<u64, u32>>,
    /// Longest wait of workers until work may be due.
    wait_max: Option<Duration>,
}

impl IdleCompactions {
    /// Returns how long workers may wait; `None`: until something happens.
    pub(super) fn wait_max(&self) -> Option<Duration> {
        self.wait_max
    }

    /// Removes the limit of the wait of workers.
    pub(super) fn clear_wait(&mut self) {
        self.wait_max = None;
    }

    /// Notes that some work was done at `now`.
    pub(super) fn note_work(&mut self, now: Duration) {
        self.since = now;
    }

    /// Returns how long the store has been idle at `now` with this visible sequence number.
    fn idle_for(&mut self, visible: SequenceNumber, now: Duration) -> Duration {
        if self.visible.replace(visible) != Some(visible) {
            self.since = now;
        }
        now.saturating_sub(self.since)
    }

    /// Returns the idle time required for a compaction; `all_are_old` if its tables of level 0 were
    /// there when the store was opened.
    fn required(&self, all_are_old: bool) -> Duration {
        if all_are_old || self.was_interrupted { LONG_IDLE } else { IDLE }
    }

    /// Makes workers look again after `left`.
    fn look_after(&mut self, left: Duration) {
        let left = left.max(WAIT_MIN);
        self.wait_max = Some(self.wait_max.map_or(left, |other| other.min(left)));
    }

    /// Notes that `compaction` was aborted. Forgets tables that `exists` does not know.
    fn note_abort(&mut self, keyspace: u64, compaction: &Compaction, exists: impl Fn(u64) -> bool) {
        let aborts = self.aborts.entry(keyspace).or_default();
        for id in level0(compaction) {
            *aborts.entry(id).or_default() += 1;
        }
        debug_assert!(aborts.values().all(|&times| times <= ABORTS_MAX), "begun once too often");
        aborts.retain(|&id, _| exists(id));
        debug_assert!(compaction.output_level > 0, "an idle compaction empties level 0");
    }

    fn may_begin(&self, keyspace: u64, compaction: &Compaction) -> bool {
        let aborts = self.aborts.get(&keyspace);
        let aborts = |id: u64| aborts.and_then(|aborts| aborts.get(&id)).copied().unwrap_or(0);
        level0(compaction).all(|id| aborts(id) < ABORTS_MAX)
    }
}

/// Returns the inputs in level 0.
fn level0(compaction: &Compaction) -> impl Iterator<Item = u64> {
    let of_level0 = compaction.inputs.iter().filter(|input| input.level == 0);
    of_level0.flat_map(|input| input.tables.iter().copied())
}

impl Store {
    /// Claims a compaction of an idle store, if the store is idle and there is one.
    pub(super) fn claim_idle_compaction(&self, state: &mut State) -> Option<Job> {
        let is_busy = !state.flushing.is_empty()
            || !state.running.is_empty()
            || !state.requests.is_empty()
            || !state.ingesting.is_empty()
            || self.filters.is_rebuilding();
        let is_paused = state.pauses > 0;
        if is_busy
            || is_paused
            || !self.options.idle_compactions
            || !self.options.background_rewrites
        {
            return None;
        }
        let mut from = state.due.idle.first_from(0)?;
        let (visible, now) = (self.writer.visible(), self.options.clock.now());
        let idle_for = state.idle_compactions.idle_for(visible, now);
        if let Some(left) = IDLE.checked_sub(idle_for).filter(|left| !left.is_zero()) {
            state.idle_compactions.look_after(left);
            return None;
        }
        while let Some(id) = state.due.idle.first_from(from) {
            from = id + 1;
            let Some(tree) = self.tree_of_id(id) else {
                state.due.idle.remove(id);
                state.idle_compactions.aborts.remove(&id);
                continue;
            };
            let for_long = LONG_IDLE <= idle_for;
            let chosen = self.choose_idle(&tree, for_long);
            let chosen = chosen.filter(|chosen| {
                state.idle_compactions.may_begin(id, chosen)
                    && !self.has_no_space(state, &tree, chosen)
            });
            let Some(compaction) = chosen else {
                let later = || !for_long && self.choose_idle(&tree, true).is_some();
                if later() {
                    state.idle_compactions.look_after(LONG_IDLE - idle_for);
                } else {
                    state.due.idle.remove(id);
                }
                continue;
            };
            let is_old = level0(&compaction).all(|id| id < self.scheduler.first_file_id);
            let left = state.idle_compactions.required(is_old).saturating_sub(idle_for);
            if left.is_zero() {
                state.claim(&tree, &compaction);
                self.note_busy(&tree, &state.running_in(&tree));
                return Some(Job::CompactIdle(tree, compaction));
            }
            state.idle_compactions.look_after(left);
        }
        None
    }

    /// Executes a claimed compaction of an idle store. No thread waits for it, so a full disk
    /// aborts it, and an abort is no error.
    pub(super) fn run_idle_compaction(
        &self,
        tree: &Arc<Tree>,
        compaction: &Compaction,
        share: &Arc<WorkerShare>,
    ) -> Result<Ended> {
        let interrupts = || {
            self.scheduler.room_waits.wake_after(self.scheduler.bell.rings());
            self.unlink_meanwhile();
            self.is_worker_needed()
        };
        let ended = match self.run_compaction(tree, compaction, share, &interrupts) {
            Err(error) if error.is_retryable() => {
                self.note_failed(compaction, &error);
                Ended::Aborted
            }
            ended => ended?,
        };
        let mut state = self.scheduler.state.lock();
        state.idle_compactions.was_interrupted = ended == Ended::Interrupted;
        if ended == Ended::Aborted {
            // Not tried again before the keyspace changes.
            state.due.idle.remove(tree.id);
        }
        if ended != Ended::Done {
            let version = tree.kept_view().version;
            let exists = |id| version.tables().any(|(_, _, live)| live.meta.id == id);
            state.idle_compactions.note_abort(tree.id, compaction, exists);
        }
        Ok(ended)
    }

    /// Unlinks obsolete files if no worker is free.
    fn unlink_meanwhile(&self) {
        let unlink = {
            let mut state = self.scheduler.state.lock();
            let may_claim = self.may_claim(&state) && !self.has_free_worker(&state);
            if may_claim { self.claim_unlink(&mut state, false) } else { None }
        };
        if let Some(unlink) = unlink {
            self.carry_out(&unlink);
        }
    }

    /// Returns whether other work needs the worker or the memory of a compaction of an idle store.
    fn is_worker_needed(&self) -> bool {
        let mut state = self.scheduler.state.lock();
        let is_paused = state.pauses > 0;
        if is_paused || !state.requests.is_empty() || !self.may_claim(&state) {
            return true;
        }
        // This compaction may exceed its share of the memory.
        if self.tables.cache_room.is_awaited() {
            return true;
        }
        !self.has_free_worker(&state) && {
            self.note_changes(&mut state);
            self.has_unclaimed_flush(&state)
        }
    }
}
