//! Who does flushes and compactions, and when.
//!
//! Workers take one step at a time: unlink what is obsolete, else flush, else compact, else bring
//! filters to their plan, else build a filter anew, else, while the store rests, compact what costs
//! little ([`rest`]). Without workers the same steps are taken on the thread whose write made them
//! necessary. How the next one is found: [`claim`].

mod bell;
mod claim;
mod crowded;
pub(super) mod due_trees;
mod idle;
mod in_vain;
mod rest;
#[cfg(all(test, not(feature = "shuttle")))]
mod tests;
pub(super) mod unneeded;
mod wait;
mod whole;

use std::{
    collections::BTreeSet,
    mem,
    panic::{self, AssertUnwindSafe},
    sync::Arc,
    time::Duration,
};

pub(crate) use whole::WholeRequest;
use whole::WholeRequests;

use sievedb_format::SequenceNumber;

pub(crate) use self::bell::Bell;
pub(super) use self::crowded::ByPrice;
use crate::{
    Error, Result, barriers,
    clock::{Clock, SystemClock},
    compaction::choice::Compaction,
    listener::Event,
    read::tree::Tree,
    stats::BackgroundStats,
    store::Store,
    store::compact::Ended,
    store::filter_jobs::{FilterJob, FilterJobs},
    store::scheduler::due_trees::DueTrees,
    store::scheduler::idle::Idle,
    store::scheduler::rest::Rest,
    store::scheduler::unneeded::{UnneededMemory, free_on_this_thread},
    sync::{
        Condvar, Mutex,
        atomic::{
            AtomicBool, AtomicU64,
            Ordering::{Relaxed, SeqCst},
        },
    },
};

/// How long workers wait before they try again on a full disk.
const NO_SPACE_RETRY: Duration = Duration::from_millis(500);

/// Background work of an open store.
#[derive(Debug)]
pub(crate) struct Scheduler {
    state: Mutex<State>,
    unneeded: Arc<UnneededMemory>,
    /// Tables with smaller ids existed when the store was opened.
    first_file_id: u64,
    /// [`Event::BarriersRefused`] was reported, or was true when the store was opened.
    has_reported_refusal: AtomicBool,
    /// A memtable is due because scans stepped over its tombstones.
    freezes_skipped: AtomicBool,
    /// What the oldest snapshot has to reach for a compaction to be due, and 1; 0 if none waits for
    /// that.
    awaited_snapshot: AtomicU64,
    /// Tables take too much memory, and merges make them fewer.
    merges_tables: AtomicBool,
    /// There may be work.
    bell: Arc<Bell>,
    /// There may be room again on a full disk.
    room: Condvar,
    /// Some work was done, or cannot be.
    progress: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Count of the bell when a store without workers last looked for work.
    rings_seen: u64,
    /// Keyspaces that may have work.
    due: DueTrees,
    /// All keyspaces are to be looked at for compactions: scans have stepped over tombstones of
    /// some table.
    looks_at_all: bool,
    shut_down: bool,
    /// Keyspaces whose memtables are being flushed.
    flushing: BTreeSet<u64>,
    /// A flush was claimed: a merge of a crowded store goes before the next one.
    merge_turn: bool,
    /// Whether filters are brought to their plan.
    fitting: bool,
    /// Compactions in flight, with the id of their keyspace.
    running: Vec<(u64, Compaction)>,
    /// Keyspaces that somebody waits for to be compacted as a whole.
    whole: WholeRequests,
    /// Requests for that so far.
    whole_count: u64,
    filters: FilterJobs,
    rest: Rest,
    idle: Idle,
    no_space: Option<Error>,
    done: BackgroundStats,
    /// Claims that a panic left behind.
    abandoned: usize,
}

impl State {
    /// Returns whether any claimed work except unlinking is in flight.
    fn is_busy(&self) -> bool {
        let claimed = self.flushing.len()
            + self.running.len()
            + usize::from(self.fitting)
            + usize::from(self.filters.is_running());
        claimed > self.abandoned
    }
}

/// Counts a claim as abandoned if a panic drops it.
struct Claim<'a> {
    scheduler: &'a Scheduler,
    /// A store may be closed while its thread unwinds from another panic.
    was_panicking: bool,
}

impl<'a> Claim<'a> {
    /// The claim of `job`; `None` if no thread waits for its end.
    fn of(scheduler: &'a Scheduler, job: &Job) -> Option<Self> {
        let was_panicking = std::thread::panicking();
        (!matches!(job, Job::Unlink)).then_some(Self { scheduler, was_panicking })
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() && !self.was_panicking {
            self.scheduler.state.lock().abandoned += 1;
            self.scheduler.progress.notify_all();
        }
    }
}

/// A piece of work that one worker has claimed.
#[derive(Debug)]
enum Job {
    Unlink,
    Flush(Arc<Tree>),
    Compact(Arc<Tree>, Compaction),
    FitFilters,
    Filter(FilterJob),
}

impl Scheduler {
    /// Creates the scheduler of a store whose new files have ids from `first_file_id` on.
    pub(super) fn new(has_workers: bool, first_file_id: u64) -> Self {
        let bell = Arc::<Bell>::default();
        Self {
            state: Mutex::default(),
            unneeded: Arc::new(UnneededMemory::new(&bell, has_workers)),
            first_file_id,
            has_reported_refusal: AtomicBool::new(barriers::is_refused()),
            freezes_skipped: AtomicBool::new(false),
            awaited_snapshot: AtomicU64::new(0),
            merges_tables: AtomicBool::new(false),
            bell,
            room: Condvar::new(),
            progress: Condvar::new(),
        }
    }

    /// There may be work.
    pub(crate) fn wake(&self) {
        // Under the lock: a thread that found no progress waits by now.
        let _state = self.state.lock();
        self.bell.ring();
        self.progress.notify_all();
    }

    pub(super) const fn unneeded(&self) -> &Arc<UnneededMemory> {
        &self.unneeded
    }

    /// A memtable is due because scans stepped over its tombstones: the next step looks for it.
    pub(crate) fn freeze_skipped(&self) {
        self.freezes_skipped.store(true, SeqCst);
        self.wake();
    }

    /// Whether [`freeze_skipped`](Self::freeze_skipped) was called since the last call.
    pub(crate) fn take_freezes_skipped(&self) -> bool {
        self.freezes_skipped.swap(false, SeqCst)
    }

    /// A compaction waits for the oldest snapshot to reach this number, or none does.
    fn await_snapshot(&self, awaited: Option<SequenceNumber>) {
        self.awaited_snapshot.store(awaited.map_or(0, |awaited| awaited + 1), SeqCst);
    }

    /// The oldest snapshot is this one now. Wakes the workers only if a compaction waits for that.
    pub(crate) fn snapshot_is_gone(&self, oldest_snapshot: Option<SequenceNumber>) {
        let Some(awaited) = self.awaited_snapshot.load(SeqCst).checked_sub(1) else { return };
        if oldest_snapshot.is_none_or(|oldest| awaited <= oldest) {
            self.wake();
        }
    }

    /// There may be a compaction due that no change of a keyspace tells of.
    pub(crate) fn look_at_all(&self) {
        self.state.lock().looks_at_all = true;
        self.wake();
    }

    /// There may be room again on a full disk: the next worker tries.
    pub(crate) fn retry(&self) {
        let mut state = self.state.lock();
        state.no_space = None;
        state.filters.retry();
        drop(state);
        self.room.notify_all();
        self.wake();
    }

    /// Ends the workers after the work that they have claimed. No more is claimed.
    pub(crate) fn shut_down(&self) {
        self.state.lock().shut_down = true;
        self.room.notify_all();
        self.wake();
    }

    /// Waits until no claimed work is in flight, for at most `timeout`. Returns whether none is.
    ///
    /// Called after [`shut_down`](Self::shut_down): no more is claimed.
    pub(crate) fn wait_for_claimed(&self, timeout: Duration) -> bool {
        let clock = SystemClock::new();
        let mut state = self.state.lock();
        while state.is_busy() {
            let Some(left) = timeout.checked_sub(clock.now()) else { return false };
            self.progress.wait_for(&mut state, left);
        }
        true
    }

    /// Whether the store is about to close.
    pub(crate) fn is_shut_down(&self) -> bool {
        self.state.lock().shut_down
    }

    /// Looks at the filters that are to be rebuilt. Whoever waits for them looks again.
    pub(crate) fn with_filters<T>(&self, look: impl FnOnce(&mut FilterJobs) -> T) -> T {
        let looked = look(&mut self.state.lock().filters);
        self.progress.notify_all();
        looked
    }

    /// The body of a worker thread.
    pub(crate) fn work(store: &Store) {
        let scheduler = &store.scheduler;
        free_on_this_thread();
        loop {
            let rings = scheduler.bell.rings();
            let stepped = panic::catch_unwind(AssertUnwindSafe(|| store.step()));
            let worked = stepped.unwrap_or_else(|_| {
                // What the step had claimed stays claimed, and is not needed any more.
                store.poison(Error::WorkerPanicked);
                false
            });
            let mut state = scheduler.state.lock();
            if state.shut_down {
                return;
            }
            if !worked && state.no_space.is_some() {
                // Whatever there is to do, and not for `work`: what a failed step leaves behind is
                // unlinked, which wakes the others, and they would try the same at once.
                scheduler.room.wait_for(&mut state, NO_SPACE_RETRY);
            } else if !worked && state.filters.why_put_off().is_some() {
                // Flushes and compactions found room: they are not to wait for filters.
                drop(state);
                if scheduler.bell.rings() != rings {
                    // A flush may be due since the step looked for one.
                    continue;
                }
                scheduler.bell.wait(rings, Some(NO_SPACE_RETRY));
                scheduler.state.lock().filters.retry();
            } else if !worked {
                let wait_max = store.wait_max(&state);
                drop(state);
                scheduler.bell.wait(rings, wait_max);
            }
        }
    }

    /// Returns whether the system has begun to refuse barriers that it allowed before; once.
    fn is_refusal_new(&self) -> bool {
        barriers::is_refused() && !self.has_reported_refusal.swap(true, Relaxed)
    }

    /// What was done so far.
    pub(crate) fn done(&self) -> BackgroundStats {
        self.state.lock().done
    }

    /// Adds to what was done.
    pub(crate) fn count(&self, add: impl FnOnce(&mut BackgroundStats)) {
        add(&mut self.state.lock().done);
    }

    /// Whether there may be work that was not there at the last call, or that a full disk put off,
    /// in a store without workers.
    fn has_news(&self) -> bool {
        let mut state = self.state.lock();
        let rings = self.bell.rings();
        mem::replace(&mut state.rings_seen, rings) != rings || state.no_space.is_some()
    }
}

impl Store {
    /// Takes all steps there are, on this thread, in a store without workers. In one that is only
    /// read these are about filters in memory.
    pub(crate) fn run_inline(&self) {
        if self.options.read_only {
            return self.fit_due_filters();
        }
        if self.options.worker_threads > 0 || !self.scheduler.has_news() {
            return;
        }
        let stepped = panic::catch_unwind(AssertUnwindSafe(|| while self.step() {}));
        if let Err(reason) = stepped {
            // As on a worker: what the step had claimed stays claimed, and nobody is to wait for
            // it.
            self.poison(Error::WorkerPanicked);
            panic::resume_unwind(reason);
        }
    }

    /// Does one piece of work. `false` if there was none that could be done.
    fn step(&self) -> bool {
        if self.scheduler.is_refusal_new() {
            self.notify(&Event::BarriersRefused);
        }
        if self.scheduler.unneeded.free() {
            self.tables.fit_cache();
        }
        self.relieve_log();
        self.freeze_skipped();
        self.freeze_asked();
        // Without workers this thread is a writer, which must not wait for optional work.
        if self.options.worker_threads > 0 {
            self.freeze_idle();
        }
        let Some(job) = self.claim() else { return false };
        self.carry_out(&job)
    }

    /// Does a claimed piece of work and gives the claim back. Whether more work may be tried at
    /// once.
    fn carry_out(&self, job: &Job) -> bool {
        let _claim = Claim::of(&self.scheduler, job);
        let outcome = match job {
            Job::Unlink => {
                self.unlink_obsolete();
                Ok(Ended::Done)
            }
            Job::Flush(tree) => self.flush_frozen(tree).map(|()| Ended::Done),
            Job::Compact(tree, compaction) => self.run_compaction(tree, compaction),
            Job::FitFilters => {
                self.fit_filters();
                Ok(Ended::Done)
            }
            Job::Filter(FilterJob::Look(tree, seen)) => {
                self.look_for_due_filters(tree, seen.clone());
                return true;
            }
            Job::Filter(FilterJob::Build(tree, due)) => {
                let rebuilt = self.rebuild_filter(tree, due);
                let worked = self.release_filter(tree, due, rebuilt);
                self.scheduler.state.lock().rest.note_work(self.options.clock.now());
                return worked;
            }
        };
        // Memtables were flushed, or filters have changed.
        self.tables.fit_cache();
        self.release(job, outcome)
    }

    /// Gives a claim back. Whether more work may be tried at once.
    fn release(&self, job: &Job, outcome: Result<Ended>) -> bool {
        // What a close broke off has changed nothing, and left obsolete files.
        let outcome = match outcome {
            Err(Error::Closed) => Ok(Ended::GaveWay),
            ended => ended,
        };
        if let Err(error) = &outcome
            && !error.is_passing()
        {
            self.poison(error.clone());
        }
        let mut state = self.scheduler.state.lock();
        if matches!(job, Job::Flush(_) | Job::Compact(..)) {
            state.rest.note_work(self.options.clock.now());
        }
        match job {
            // A job of filters is given back by who has done it.
            Job::Unlink | Job::Filter(_) => {}
            Job::FitFilters => state.fitting = false,
            Job::Flush(tree) => {
                state.flushing.remove(&tree.id);
            }
            Job::Compact(tree, compaction) => {
                let is_this =
                    |(id, other): &(u64, Compaction)| *id == tree.id && other == compaction;
                let at = state.running.iter().position(is_this);
                state.running.swap_remove(at.expect("a claimed compaction is running"));
                // It may have failed, and others may have waited for it.
                state.due.compact.add([tree.id]);
            }
        }
        let worked = outcome.is_ok();
        // That files were unlinked does not tell that a flush or a compaction has room, nor does a
        // compaction that was broken off.
        let has_written =
            matches!(outcome, Ok(Ended::Done)) && !matches!(job, Job::Unlink | Job::FitFilters);
        let full = outcome.err().filter(Error::is_passing);
        let news = full.clone().filter(|_| state.no_space.is_none());
        if full.is_some() || has_written {
            state.no_space = full;
        }
        // After a failure nothing is woken: the workers would try the same at once.
        if worked {
            self.scheduler.bell.ring();
        }
        self.scheduler.progress.notify_all();
        drop(state);
        if let Some(error) = news {
            self.notify(&Event::NoSpace { error });
        }
        worked
    }

    /// Removes files that nothing needs. A failure is no harm: they are orphans when the store is
    /// opened the next time.
    pub(crate) fn unlink_obsolete(&self) {
        if let Err(error) = self.tables.unlink_obsolete() {
            self.poison(error);
        }
    }
}
