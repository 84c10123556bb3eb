//! What is compacted only while the store rests, and when it does.
//!
//! The store rests when for some time nothing was written and no worker had anything to do. Then
//! one compaction after the other is done that the picker finds cheap enough
//! ([`quiet`](crate::compaction)). One in flight gives way to a flush that no worker is left for,
//! to work that waits for memory beyond its share, to whoever waits for a keyspace to be compacted
//! as a whole, and to the end of the store.
//!
//! One that is given up is not tried again for ever: see [`in_vain`](super::in_vain).
//!
//! Nobody looks again and again: when nothing was found a keyspace is looked at when it has
//! changed, and workers wait with a limit only between a change and the rest that follows.

#[cfg(all(test, not(feature = "shuttle")))]
mod tests;

use std::time::Duration;

use sievedb_format::SequenceNumber;

use super::{
    Job, Scheduler, State,
    in_vain::{InVain, level0},
};
use crate::{
    compaction::choice::Compaction,
    read::tree::Tree,
    store::{Store, compact::Ended},
};

/// How long nothing must have been done. Long enough that a writer who prepares the next batch is
/// not resting, short enough that whoever reads what was just loaded finds it merged.
pub(super) const REST: Duration = Duration::from_millis(300);

/// The same for a level 0 that was there when the store was opened: whoever opens it, reads and
/// closes it soon is not to pay for what others wrote. And after a compaction that gave way: what
/// it wrote was for nothing.
pub(super) const LONG_REST: Duration = Duration::from_secs(10);

/// The shortest wait: a clock that stands still must not make workers spin.
pub(super) const WAIT_MIN: Duration = Duration::from_millis(10);

/// For how long nothing was done.
#[derive(Debug, Default)]
pub(super) struct Rest {
    /// The visible sequence number when somebody last looked.
    visible: Option<SequenceNumber>,
    /// When the last work, or the last write, was noticed.
    since: Duration,
    /// The last compaction of this kind gave way.
    gave_way: bool,
    pub(super) in_vain: InVain,
    /// How long workers may wait until something may be due.
    wait_max: Option<Duration>,
}

impl Rest {
    /// How long workers may wait for something to do here; `None` for as long as nothing happens.
    pub(super) fn wait_max(&self) -> Option<Duration> {
        self.wait_max
    }

    /// Workers need not look again for this, unless somebody says so anew.
    pub(super) fn look_no_more(&mut self) {
        self.wait_max = None;
    }

    /// Some work was done at `now`.
    pub(super) fn note_work(&mut self, now: Duration) {
        self.since = now;
    }

    /// A compaction of this kind has ended.
    pub(super) fn note_end(&mut self, gave_way: bool) {
        self.gave_way = gave_way;
    }

    /// How long the store has rested at `now`, while this is the visible sequence number.
    fn rested(&mut self, visible: SequenceNumber, now: Duration) -> Duration {
        if self.visible.replace(visible) != Some(visible) {
            self.since = now;
        }
        now.saturating_sub(self.since)
    }

    /// How long the store has to rest for a compaction of tables which were all there when it was
    /// opened, or not.
    fn needed(&self, all_are_old: bool) -> Duration {
        if all_are_old || self.gave_way { LONG_REST } else { REST }
    }

    /// Has workers look again when so much more time has passed.
    fn look_after(&mut self, left: Duration) {
        let left = left.max(WAIT_MIN);
        self.wait_max = Some(self.wait_max.map_or(left, |other| other.min(left)));
    }
}

impl Scheduler {
    /// A `compaction` of `tree` that was begun because the store rests has ended so. If it could
    /// not be done, it is not tried again before the keyspace changes.
    pub(crate) fn note_quiet_end(&self, tree: &Tree, compaction: &Compaction, ended: Ended) {
        let mut state = self.state.lock();
        state.rest.note_end(ended == Ended::GaveWay);
        if ended == Ended::GivenUp {
            state.due.quiet.remove(tree.id);
        }
        if ended != Ended::Done {
            let version = tree.kept_view().version;
            let is_there = |id| version.tables().any(|(_, _, live)| live.meta.id == id);
            state.rest.in_vain.note(tree.id, compaction, is_there);
        }
    }
}

impl Store {
    /// Claims a compaction that only a store at rest does, if it rests and there is one. No flush
    /// and no compaction is in flight beside it when it begins.
    pub(super) fn claim_quiet(&self, state: &mut State) -> Option<Job> {
        let is_busy = !state.flushing.is_empty()
            || !state.running.is_empty()
            || !state.whole.is_empty()
            || state.filters.is_running();
        if is_busy || !self.options.idle_compactions || !self.options.background_rewrites {
            return None;
        }
        let mut from = state.due.quiet.first_from(0)?;
        let rested = state.rest.rested(self.writer.visible(), self.options.clock.now());
        if let Some(left) = REST.checked_sub(rested).filter(|left| !left.is_zero()) {
            state.rest.look_after(left);
            return None;
        }
        while let Some(id) = state.due.quiet.first_from(from) {
            from = id + 1;
            let Some(tree) = self.tree_of_id(id) else {
                state.due.quiet.remove(id);
                state.rest.in_vain.forget(id);
                continue;
            };
            let chosen = self.choose_quiet(&tree);
            let chosen = chosen.filter(|chosen| state.rest.in_vain.may_begin(id, chosen));
            let Some(compaction) = chosen else {
                state.due.quiet.remove(id);
                continue;
            };
            let left = state.rest.needed(self.is_old(&compaction)).saturating_sub(rested);
            if left.is_zero() {
                state.running.push((id, compaction.clone()));
                return Some(Job::Compact(tree, compaction));
            }
            state.rest.look_after(left);
        }
        None
    }

    /// Whether all that comes from level 0 was there when the store was opened.
    fn is_old(&self, compaction: &Compaction) -> bool {
        level0(compaction).all(|id| id < self.scheduler.first_file_id)
    }

    /// Whether a compaction that was begun because the store rests has to end before it is done.
    pub(crate) fn must_give_way(&self) -> bool {
        let mut state = self.scheduler.state.lock();
        if state.shut_down || !state.whole.is_empty() || self.versions.is_read_only() {
            return true;
        }
        // It may be this one that has more memory than its share.
        if self.tables.cache_room.is_awaited() {
            return true;
        }
        let busy = state.flushing.len()
            + state.running.len()
            + usize::from(state.fitting)
            + usize::from(state.filters.is_running());
        busy >= self.options.worker_threads && {
            self.note_changes(&mut state);
            self.has_unclaimed_flush(&state)
        }
    }
}
