//! Threads that take steps of background work, and the bell that notifies them.

use std::{
    cell::Cell,
    mem,
    panic::{self, AssertUnwindSafe},
    ptr,
    sync::{Arc, atomic::Ordering::SeqCst},
    thread,
    time::Duration,
};

use super::{
    Job, Scheduler, Unlinker, closing::InlineWork, unneeded::free_on_this_thread,
    urgent::UrgentJobs,
};
use crate::{
    Error, Result,
    compaction::choice::Compaction,
    filters::FilterJob,
    listener::Event,
    store::Store,
    store::compact::Ended,
    sync::{Condvar, Mutex},
    table::cache_room::WorkerShare,
};

/// Files that a worker unlinks at a time. Flushes may wait for it.
const UNLINKS_MAX: usize = 16;

/// Notifies workers. Counts its rings: none is missed between a claim and the wait. Its lock is the
/// last of all: a drop may ring under any other lock.
#[derive(Debug, Default)]
pub(super) struct Bell {
    rings: Mutex<u64>,
    rang: Condvar,
}

impl Bell {
    /// Notifies all waiting threads.
    pub(super) fn ring(&self) {
        *self.rings.lock() += 1;
        self.rang.notify_all();
    }

    /// Returns the number of rings.
    pub(super) fn rings(&self) -> u64 {
        *self.rings.lock()
    }

    /// Waits for more than `rings` rings, for at most `most`.
    pub(super) fn wait(&self, rings: u64, most: Option<Duration>) {
        let mut now = self.rings.lock();
        match most {
            Some(most) if *now == rings => {
                self.rang.wait_for(&mut now, most);
            }
            Some(_) => {}
            None => {
                while *now == rings {
                    self.rang.wait(&mut now);
                }
            }
        }
    }
}

/// Counts a claim as abandoned if a panic drops it.
struct Claim<'a> {
    scheduler: &'a Scheduler,
    /// A store may be closed while its thread unwinds from another panic.
    was_panicking: bool,
}

impl<'a> Claim<'a> {
    /// Guards the claim of `job`; `None` if no thread waits for its end.
    fn of(scheduler: &'a Scheduler, job: &Job) -> Option<Self> {
        let was_panicking = thread::panicking();
        (!matches!(job, Job::Unlink | Job::Record)).then_some(Self { scheduler, was_panicking })
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        if thread::panicking() && !self.was_panicking {
            self.scheduler.state.lock().abandoned += 1;
            self.scheduler.progress.notify_all();
        }
    }
}

/// The only thread that unlinks obsolete files, until it is dropped.
#[derive(Debug)]
pub(in crate::store) struct Unlinking<'a>(&'a Scheduler);

impl Drop for Unlinking<'_> {
    fn drop(&mut self) {
        let unlinker = mem::take(&mut self.0.state.lock().unlinker);
        debug_assert!(unlinker != Unlinker::None, "each thread ends its own turn");
        if unlinker == Unlinker::Caller {
            // Workers have left the files that came meanwhile.
            self.0.bell.ring();
        }
        self.0.progress.notify_all();
    }
}

thread_local! {
    /// The scheduler that this thread is a worker of, or writes the log for.
    static WORKER_OF: Cell<*const Scheduler> = const { Cell::new(ptr::null()) };
}

impl Scheduler {
    /// Returns `true` on a worker of the store, and within [`Store::report_later`]. The thread then
    /// reports outside of its step that the store became read-only. Within the step it may hold
    /// locks, and a listener that drops the last handle closes the store, which needs them.
    pub(in crate::store) fn defers_read_only_event(&self) -> bool {
        let is_worker = ptr::eq(WORKER_OF.get(), self);
        if is_worker {
            self.owes_read_only_event.store(true, SeqCst);
        }
        is_worker
    }

    /// Waits until no thread unlinks. No other one begins until the result is dropped; `None` once
    /// the store is being closed. A shutdown waits for the end: a list of retired tables has a file
    /// id that the next opening may use.
    ///
    /// Workers do not wait for it, so that flushes go on.
    pub(in crate::store) fn begin_unlinks(&self) -> Option<Unlinking<'_>> {
        let mut state = self.state.lock();
        while !state.shut_down && state.unlinker != Unlinker::None {
            self.progress.wait(&mut state);
        }
        if state.shut_down {
            return None;
        }
        state.unlinker = Unlinker::Caller;
        Some(Unlinking(self))
    }

    /// Takes steps until the store shuts down.
    pub(in crate::store) fn work(store: &Store) {
        let scheduler = &store.scheduler;
        free_on_this_thread();
        WORKER_OF.set(scheduler);
        loop {
            let rings = scheduler.bell.rings();
            let stepped = panic::catch_unwind(AssertUnwindSafe(|| store.step()));
            let worked = stepped.unwrap_or_else(|_| {
                // The claim remains: no thread needs its end.
                store.poison(Error::WorkerPanicked);
                false
            });
            store.report_owed();
            scheduler.room_waits.wake();
            let state = scheduler.state.lock();
            if state.shut_down {
                return;
            }
            if !worked {
                let wait_max = scheduler.room_waits.limit(store.wait_max(&state));
                drop(state);
                scheduler.bell.wait(rings, wait_max);
            }
        }
    }
}

/// A thread acts as a worker until the guard is dropped.
struct ActsAsWorker {
    before: *const Scheduler,
}

impl Drop for ActsAsWorker {
    fn drop(&mut self) {
        WORKER_OF.set(self.before);
    }
}

impl Store {
    /// Calls `work`, and reports afterwards if the store became read-only, as a worker does.
    pub(crate) fn report_later<T>(&self, work: impl FnOnce() -> T) -> T {
        let acts = ActsAsWorker { before: WORKER_OF.replace(&raw const self.scheduler) };
        let is_outer = !ptr::eq(acts.before, &raw const self.scheduler);
        let result = work();
        drop(acts);
        // Otherwise the outer call may hold locks.
        if is_outer {
            self.report_owed();
        }
        result
    }

    /// Reports that the store became read-only, unless that was reported.
    fn report_owed(&self) {
        if self.scheduler.owes_read_only_event.swap(false, SeqCst) {
            self.report_read_only();
        }
    }

    /// Takes all steps on this thread, in a store without workers. In a read-only store, fits the
    /// filters.
    pub(crate) fn run_inline(&self) {
        if self.options.read_only {
            return self.filters.fit_due(self);
        }
        if self.options.worker_threads > 0 || !self.scheduler.has_news() {
            return;
        }
        let _inline = InlineWork::begin(&self.scheduler);
        let stepped = panic::catch_unwind(AssertUnwindSafe(|| while self.step() {}));
        if let Err(reason) = stepped {
            // As on a worker. No thread may wait for the claim of the step.
            self.poison(Error::WorkerPanicked);
            panic::resume_unwind(reason);
        }
    }

    /// Does one piece of work. Returns `false` if none could be done.
    pub(super) fn step(&self) -> bool {
        if self.scheduler.is_refusal_new() {
            self.notify(&Event::BarriersRefused);
        }
        self.free_and_freeze();
        // Without workers this thread is a writer, and does no optional work.
        if self.options.worker_threads > 0 {
            self.freeze_idle();
        }
        let Some(job) = self.claim() else { return false };
        self.carry_out(&job)
    }

    /// Frees memory that lookups have left, and freezes the memtables that are due.
    pub(super) fn free_and_freeze(&self) {
        if self.scheduler.unneeded.free() {
            self.tables.fit_cache();
        }
        self.relieve_log();
        self.freeze_skipped();
        self.freeze_asked();
    }

    /// Executes a claimed job and releases the claim. Returns whether more work may be tried at
    /// once.
    pub(super) fn carry_out(&self, job: &Job) -> bool {
        self.carry_out_within(job, |is_flush| match is_flush {
            true => self.tables.flush_share(),
            false => self.tables.worker_share(),
        })
    }

    /// Executes a claimed job and releases the claim. The buffers of a flush or a compaction are
    /// part of `share`, which is called with `true` for a flush. Returns whether more work may be
    /// tried at once.
    pub(super) fn carry_out_within(
        &self,
        job: &Job,
        share: impl FnOnce(bool) -> Arc<WorkerShare>,
    ) -> bool {
        let _claim = Claim::of(&self.scheduler, job);
        if matches!(job, Job::Compact(..)) {
            // The runs that it holds delay no write.
            self.scheduler.room_waits.wake();
        }
        let retries = self.scheduler.state.lock().retries_of(job);
        let outcome = match job {
            Job::Unlink => {
                let _unlinking = Unlinking(&self.scheduler);
                self.unlink_due();
                Ok(Ended::Done)
            }
            Job::Record => self.record_keyspaces().map(|()| Ended::Done),
            Job::Flush(tree) => self.flush_frozen(tree, &share(true)).map(|()| Ended::Done),
            Job::Compact(tree, compaction) => {
                let share = share(false);
                let urgent = UrgentJobs::new(self, compaction, &share);
                self.run_compaction(tree, compaction, &share, &|| {
                    urgent.carry_out();
                    self.scheduler.is_paused()
                })
            }
            Job::CompactIdle(tree, compaction) => {
                self.run_idle_compaction(tree, compaction, &share(false))
            }
            Job::Filter(filter) => self.filters.run(self, filter).map(|()| Ended::Done),
        };
        // Memtables were flushed.
        self.tables.fit_cache();
        self.release(job, outcome, retries)
    }

    /// Releases a claim that was made after `retries` retries. Returns whether more work may be
    /// tried at once.
    fn release(&self, job: &Job, outcome: Result<Ended>, retries: u64) -> bool {
        // Interrupted by a close: nothing has changed.
        let outcome = match outcome {
            Err(Error::Closed) => Ok(Ended::Interrupted),
            ended => ended,
        };
        if let Err(error) = &outcome
            && !error.is_retryable()
        {
            self.poison(error.clone());
        }
        if let (Job::Compact(_, compaction), Err(error)) = (job, &outcome) {
            self.note_failed(compaction, error);
        }
        let mut state = self.scheduler.state.lock();
        let now = self.options.clock.now();
        let is_idle_work = match job {
            Job::Unlink | Job::Record => true,
            Job::Filter(filter) => !matches!(filter, FilterJob::Rebuild(..)),
            // Another compaction of an idle store follows at once.
            Job::CompactIdle(..) => matches!(outcome, Ok(Ended::Done)),
            Job::Flush(_) | Job::Compact(..) => false,
        };
        if !is_idle_work {
            state.idle_compactions.note_work(now);
        }
        match job {
            Job::Unlink | Job::Record => {}
            Job::Filter(_) => {
                debug_assert!(state.filter_jobs > 0, "a job of filters without a claim");
                state.filter_jobs -= 1;
            }
            Job::Flush(tree) => {
                let was_claimed = state.flushing.remove(&tree.id);
                debug_assert!(was_claimed, "a flush without a claim");
            }
            Job::Compact(tree, compaction) | Job::CompactIdle(tree, compaction) => {
                state.end_claim(tree, compaction);
                self.note_busy(tree, &state.running_in(tree));
                // Now: the unlink of the inputs comes next, and may take long.
                let _ = self.choose_requested(&mut state, tree);
                if matches!(outcome, Ok(Ended::Done)) {
                    state.full_disk.note_success(compaction);
                }
            }
        }
        let worked = outcome.is_ok();
        // A call that ended the pause since then waits for the next attempt.
        let is_outdated = state.retries_of(job) != retries;
        let has_written = matches!(outcome, Ok(Ended::Done));
        let full = outcome.err().filter(|error| error.is_retryable() && !is_outdated);
        let (disk, has_workers) = (&mut state.full_disk, self.options.worker_threads > 0);
        let is_news = match (job, &full) {
            (Job::Filter(FilterJob::Rebuild(..)), full) => disk.note_rebuild(full.as_ref(), now),
            (job, Some(error)) => disk.note_stop(job.is_flush(), error, now, has_workers),
            (_, None) => false,
        };
        // Neither an unlink nor an aborted compaction proves that the disk has room, nor a move.
        let has_written = match job {
            Job::Unlink | Job::Filter(_) => false,
            Job::Record | Job::Flush(_) => has_written,
            Job::Compact(_, it) | Job::CompactIdle(_, it) => has_written && it.writes_tables(),
        };
        if has_written {
            disk.end_stops();
        }
        // Not after a failure: the workers would retry at once.
        if worked {
            self.scheduler.bell.ring();
        }
        self.scheduler.progress.notify_all();
        drop(state);
        if let Some(error) = full.filter(|_| is_news) {
            self.notify(&Event::NoSpace { error });
        }
        worked || is_outdated
    }

    /// Notes that `compaction` failed, if the reason is a full disk or a missing key: pauses before
    /// later attempts grow.
    pub(super) fn note_failed(&self, compaction: &Compaction, error: &Error) {
        let is_full = error.is_no_space();
        if is_full || matches!(error, Error::NoKey { .. }) {
            let mut state = self.scheduler.state.lock();
            state.done.compactions_without_space += u64::from(is_full);
            let point = self.point_of_space();
            state.full_disk.note_failure(compaction, error, point);
        }
    }

    /// Unlinks the next obsolete file, or [several](UNLINKS_MAX) without a pace or room on the
    /// disk. The caller has claimed it.
    fn unlink_due(&self) {
        let is_full = self.scheduler.state.lock().full_disk.error().is_some();
        let unlinked = match is_full || !self.tables.unlink_pace.is_set() {
            true => self.tables.unlink_obsolete(UNLINKS_MAX),
            false => self.tables.unlink_first_obsolete(self.options.clock.now()),
        };
        if let Err(error) = unlinked {
            self.poison(error);
        }
    }

    /// Unlinks obsolete files, unless the store is being closed.
    pub(crate) fn unlink_obsolete(&self) {
        if let Some(_unlinking) = self.scheduler.begin_unlinks() {
            self.unlink_last();
        }
    }

    /// Unlinks obsolete files, also of a store that is being closed. Those that remain are orphans
    /// at the next opening.
    pub(crate) fn unlink_last(&self) {
        if let Err(error) = self.tables.unlink_obsolete(usize::MAX) {
            self.poison(error);
        }
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;
    use crate::{Compression, KeyspaceOptions, Options, clock::ManualClock, fs::MemoryFs};

    #[test]
    fn unlinks_after_a_compaction_keep_their_pace() {
        const BYTES_PER_STEP: usize = 10 << 10;
        let (fs, clock) = (Arc::new(MemoryFs::with_seed(1)), Arc::new(ManualClock::new()));
        let keyspace = KeyspaceOptions::new().compression(Compression::None);
        let options = Options::new().fs(Arc::clone(&fs) as _).clock(Arc::clone(&clock) as _);
        let options = options.worker_threads(0).keyspace(keyspace);
        let db = options.unlink_bytes_per_second(1 << 20).open("db").expect("a new store");
        for _ in 0..6 {
            (0..60_u8).for_each(|key| db.insert([key], [key; 1000]).expect("there is room"));
            db.flush().expect("there is room");
        }
        clock.advance(Duration::from_secs(60));
        db.compact().expect("there is room");
        let tables = || {
            let files = fs.contents().into_iter().filter(|(name, _)| name.ends_with(".sst"));
            files.map(|(_, bytes)| bytes.len()).collect::<Vec<_>>()
        };
        let (before, mut steps) = (tables(), 0);
        let table_bytes = *before.iter().max().expect("a table");
        assert!(before.len() > 4, "most of the inputs wait: {before:?}");
        while tables().len() > 1 {
            let waiting = tables().len();
            clock.advance(Duration::from_micros(9_766));
            while db.store().step() {}
            assert!(tables().len() + 1 >= waiting, "one at a time");
            steps += 1;
            assert!(steps < 1_000, "they are never unlinked");
        }
        let unlinked: usize = before.iter().sum::<usize>() - table_bytes;
        let due = unlinked / BYTES_PER_STEP;
        assert!((due - 7..=due + 7).contains(&steps), "{steps} steps for {unlinked} bytes");
    }

    #[test]
    fn a_shutdown_waits_for_unlinks() {
        let options = Options::new().fs(Arc::new(MemoryFs::with_seed(1))).worker_threads(0);
        let db = options.open("db").expect("a new store");
        let scheduler = &db.store().scheduler;
        let unlinking = scheduler.begin_unlinks().expect("the store is open");
        let busy = db.shutdown(Duration::from_millis(20));
        assert!(matches!(busy, Err(Error::StillBusy { .. })), "{busy:?}");
        assert!(scheduler.begin_unlinks().is_none(), "the close unlinks the rest");
        drop(unlinking);
        db.shutdown(Duration::from_secs(60)).expect("nothing is in flight");
    }
}
