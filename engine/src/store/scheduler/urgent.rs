//! Flushes and short compactions of level 0 during a longer compaction.
//!
//! A compaction of 1.5 GiB takes a worker for seconds. If no other worker is free meanwhile, it
//! carries out flushes, and short compactions of level 0 if it is none itself. A job has a higher
//! priority than the one that it interrupts, so at most two of them are nested.
//!
//! The buffers of all jobs on a thread are part of one share of the memory for writing. So a
//! compaction interrupts itself only while it uses at most half of its share, as at the start of
//! each table. A job that exceeds its share waits for others that do, so a compaction that does
//! carries out none.

use std::{cell::Cell, sync::Arc};

use super::{Job, claim::is_short_of_level0};
use crate::{compaction::choice::Compaction, store::Store, table::cache_room::WorkerShare};

/// The jobs that a running compaction carries out.
pub(super) struct UrgentJobs<'a> {
    store: &'a Store,
    compaction: &'a Compaction,
    share: &'a Arc<WorkerShare>,
    /// Rings of the bell before the last search for jobs.
    rings: Cell<Option<u64>>,
}

impl<'a> UrgentJobs<'a> {
    pub(super) fn new(
        store: &'a Store,
        compaction: &'a Compaction,
        share: &'a Arc<WorkerShare>,
    ) -> Self {
        Self { store, compaction, share, rings: Cell::new(None) }
    }

    /// Carries out the jobs that have become due since the last call.
    pub(super) fn carry_out(&self) {
        let scheduler = &self.store.scheduler;
        let rings = Some(scheduler.bell.rings());
        if self.rings.get() == rings
            || self.share.is_beyond()
            || self.share.bytes() > self.share.bytes_max() / 2
        {
            return;
        }
        self.rings.set(rings);
        while let Some(job) = self.store.claim_urgent(self.compaction) {
            let has_worked = self.store.carry_out_within(&job, &self.share.rest());
            scheduler.room_waits.wake();
            if !has_worked {
                break;
            }
        }
    }
}

impl Store {
    /// Claims a job that must not wait for the end of `compaction`, if no worker is free.
    fn claim_urgent(&self, compaction: &Compaction) -> Option<Job> {
        let mut state = self.scheduler.state.lock();
        let is_worker_free = state.claims() < self.options.worker_threads;
        if is_worker_free
            || state.shut_down
            || state.no_space.is_some()
            || self.versions.is_read_only()
            || self.versions.is_behind()
        {
            return None;
        }
        self.note_changes(&mut state);
        if let Some(tree) = self.claim_flush(&mut state) {
            return Some(Job::Flush(tree));
        }
        if is_short_of_level0(compaction) {
            return None;
        }
        self.claim_compaction(&mut state, true)
    }
}
