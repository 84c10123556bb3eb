//! Flushes, unlinks and merges of level 0 during a longer compaction.
//!
//! A compaction of 1.5 GiB takes a worker for seconds. If no other worker is free, it also does the
//! work of one: it unlinks obsolete files, freezes memtables that pin the log, and flushes. It also
//! runs merges of level 0 that are short or delay writes. A job has a higher priority than the one
//! that it interrupts: flushes, short merges of level 0, long ones, other compactions. So at most
//! three are nested.
//!
//! Between two jobs the compaction reads up to 1 MiB: writers that freeze a memtable during each
//! flush do not stop it. It carries out none during a pause, which cancels it.
//!
//! The buffers of all jobs on a thread are part of one share of the memory for writing. Each table
//! leaves a quarter of the share free, which suffices for a flush. Long entries and small shares
//! may leave less: the flush then exceeds the share, see [`WorkerShare`]. A compaction runs a merge
//! only while it uses at most half of its share, as at the start of each table. A merge beyond its
//! share waits for other such jobs. So a compaction beyond its share runs no merge, and none of
//! several ranges.

use std::{cell::Cell, sync::Arc};

use super::{
    Job, State,
    claim::Wanted,
    precedence::{is_short_of_level0, reduces_level0},
};
use crate::{compaction::choice::Compaction, store::Store, table::cache_room::WorkerShare};

/// The jobs that a running compaction carries out.
pub(super) struct UrgentJobs<'a> {
    store: &'a Store,
    compaction: &'a Compaction,
    share: &'a Arc<WorkerShare>,
    /// Rings of the bell before the last search for jobs.
    rings: Cell<Option<u64>>,
    /// The last job found no space. A retry is due without a ring.
    has_failed: Cell<bool>,
}

impl<'a> UrgentJobs<'a> {
    pub(super) fn new(
        store: &'a Store,
        compaction: &'a Compaction,
        share: &'a Arc<WorkerShare>,
    ) -> Self {
        Self { store, compaction, share, rings: Cell::new(None), has_failed: Cell::new(false) }
    }

    /// Carries out a job that has become due since the last call. Its end rings the bell, so the
    /// next call looks for another one. Wakes the tasks that wait for room: not only jobs end what
    /// they wait for.
    pub(super) fn carry_out(&self) {
        let (store, scheduler) = (self.store, &self.store.scheduler);
        let rings = scheduler.bell.rings();
        scheduler.room_waits.wake_after(rings);
        let may_have_job =
            self.rings.get() != Some(rings) || self.has_failed.get() || store.has_paced_unlink();
        if !may_have_job || scheduler.is_paused() || store.has_free_worker(&scheduler.state.lock())
        {
            return;
        }
        let is_half_free = self.share.bytes() <= self.share.bytes_max() / 2;
        // Another thread of the compaction may take the turn that the merge would wait for.
        let may_merge = is_half_free && !self.share.is_beyond() && !self.share.has_other_threads();
        // Otherwise the next call must search again: a merge could not run now.
        if may_merge || self.share.is_beyond() {
            self.rings.set(Some(rings));
        }
        store.free_and_freeze();
        if let Some(job) = store.claim_urgent(self.compaction, may_merge) {
            let has_worked = store.carry_out_within(&job, |is_flush| self.share.rest(is_flush));
            scheduler.room_waits.wake();
            self.has_failed.set(!has_worked);
        }
    }
}

impl Store {
    pub(super) fn has_free_worker(&self, state: &State) -> bool {
        state.claims() < self.options.worker_threads
    }

    /// Claims a job that must not wait for the end of `compaction`, if no worker is free. A merge
    /// only with `may_merge`.
    fn claim_urgent(&self, compaction: &Compaction, may_merge: bool) -> Option<Job> {
        let mut state = self.scheduler.state.lock();
        if self.has_free_worker(&state) || !self.may_claim(&state) {
            return None;
        }
        let may_flush = state.full_disk.may_flush(self.options.clock.now());
        let may_flush = may_flush && !self.versions.is_behind();
        self.note_changes(&mut state);
        if let Some(unlink) = self.claim_unlink(&mut state, may_flush) {
            return Some(unlink);
        }
        if !may_flush {
            return None;
        }
        if let Some(tree) = self.claim_flush(&mut state) {
            return Some(Job::Flush(tree));
        }
        let has_space = state.full_disk.error().is_none();
        if !may_merge || !has_space || is_short_of_level0(compaction) {
            return None;
        }
        let wanted = match reduces_level0(compaction) {
            true => Wanted::ShortOfLevel0,
            false => Wanted::UrgentOfLevel0,
        };
        self.claim_compaction(&mut state, wanted)
    }
}
