//! Filters of tables: the filter of each table, the part of it in memory, and rebuilds.
//!
//! 1. A new table gets the filter that the best division among all tables gives it
//!    ([`choose_filter`]). The file holds it whole, memory holds what fits.
//! 2. Opening a store reads the trailers of all filters, plans, and loads them ([`Filters::load`]).
//! 3. Installing tables plans again: other filters shrink, then the new ones are loaded before
//!    lookups see their tables ([`Filters::admit`]).
//! 4. The plan spends the bytes of the budget where they avoid the most false positives ([`plan`]).
//! 5. It weights tables by sampled lookups ([`measured_use`]).
//! 6. Prefix and range filters are in memory whole or not at all, chosen first ([`scan_choice`]).
//! 7. Ribbons drop columns in memory and reload them from the file; other filters are whole or
//!    absent ([`change`]).
//! 8. A replaced filter is freed by the last lookup whose view holds it. No copy exceeds the bound
//!    meanwhile.
//! 9. A lower budget or policy takes effect before the call returns; what a higher one has room for
//!    is loaded in the background ([`fit`]).
//! 10. The background rebuilds filters that are missing, unusable or far off the plan, one at a
//!     time, each into a file of its own ([`due`], [`jobs`], [`build`], [`rebuild`]).
//!
//! No lookup reads a filter from a file, and none calls this module: it finds filters in its view.
//!
//! | caller            | calls                                                            |
//! |-------------------|------------------------------------------------------------------|
//! | open              | [`Filters::load`]                                                |
//! | flush, compaction | [`choose_filter`]                                                |
//! | install           | [`Filters::admit`], [`Filters::note_installed`]                  |
//! | refresh           | as install, then [`Filters::fit_due`]                            |
//! | budget            | [`Filters::set_bytes_max`]                                       |
//! | options           | [`Filters::hold`], [`Filters::apply_policies`]                   |
//! | background        | [`Filters::claim`], [`Filters::run`], [`Filters::wait_max`] …    |
//! | statistics        | [`Filters::add_to`], [`add_run`], [`add_table`], [`bytes_and_max`] |
//! | verify            | [`FilterChecks`]                                                 |
//!
//! All of them pass the store as [`FilterHost`].

mod admit;
mod build;
mod change;
mod check;
mod due;
mod fit;
mod host;
mod jobs;
mod load;
mod measured_use;
mod memory;
mod new_table;
mod plan;
mod prediction;
mod rebuild;
mod replace;
mod scan_choice;
mod statistics;
mod step;
mod tables;

pub(crate) use check::{FilterChecks, FilterOwner};
pub(crate) use host::FilterHost;
pub(crate) use jobs::FilterJob;
pub(crate) use new_table::choose_filter;
pub(crate) use statistics::{add_run, add_table, bytes_and_max};

use std::time::Duration;

use self::{
    change::Unreadable,
    jobs::FilterJobs,
    measured_use::MeasuredUse,
    memory::FilterMemory,
    prediction::Prediction,
    tables::{FilterTables, Target},
};
use crate::sync::{
    Mutex, MutexGuard,
    atomic::{
        AtomicBool, AtomicU32, AtomicU64,
        Ordering::{Relaxed, SeqCst},
    },
};

/// Interval between plans while memory is short, because the use of tables may change.
const REPLAN_INTERVAL: Duration = Duration::from_secs(10);

/// Wait before the first retry if a lookup holds the room of a filter. Doubles with each retry, up
/// to [`REPLAN_INTERVAL`].
const STUCK_INTERVAL: Duration = Duration::from_millis(20);

/// Number of retries after which the interval stops doubling.
const STUCK_RETRIES_MAX: u32 = 10;

/// Maximum bytes of filters that one background job reads, so that other work gets its turn.
const LOAD_BYTES_MAX: u64 = 64 << 20;

/// State of all filters of a store, except the filters themselves.
#[derive(Debug)]
pub(crate) struct Filters {
    /// Held while filters change. Taken by [`hold`](Self::hold), except by a cut.
    change: Mutex<MeasuredUse>,
    /// Number of threads that wait for `change`. A cut that waits for a lookup aborts for them.
    change_waiters: AtomicU32,
    /// Budget of plans, in bytes. The limit of the account follows when the filters are within it.
    bytes_max: AtomicU64,
    /// Room is available, or use has changed: the background job must run.
    is_due: AtomicBool,
    /// The last plan left filters with less memory than they could use, so their use decides.
    is_short: AtomicBool,
    /// Consecutive plans that left something undone because lookups held its room.
    stuck_plans: AtomicU32,
    /// [`Counters::probes`](crate::stats::Counters::probes) at the last plan.
    probes_planned: AtomicU64,
    /// False positives that the last plans predict.
    predicted: Mutex<Prediction>,
    /// Bytes that the last plan of all keyspaces leaves, minus those admitted since. While they
    /// last, new tables concern only their own keyspace. Changed while `change` is held.
    spare_bytes: AtomicU64,
    /// Time of the last plan by the clock of the options, in milliseconds.
    planned_at_ms: AtomicU64,
    /// Rebuilds. Locked after the lock of background work. While it is held,
    /// [`FilterHost::keyspace`] is the only permitted call to the host.
    jobs: Mutex<FilterJobs>,
    /// Filters rebuilt so far.
    rebuilt: AtomicU64,
}

/// Prevents changes of filters and of the options that determine them.
#[derive(Debug)]
pub(crate) struct Held<'a>(MutexGuard<'a, MeasuredUse>);

impl Filters {
    fn new(bytes_max: u64, predicted: Prediction) -> Self {
        Self {
            change: Mutex::default(),
            change_waiters: AtomicU32::new(0),
            bytes_max: AtomicU64::new(bytes_max),
            // Some filters may not have fitted when the store was opened.
            is_due: AtomicBool::new(true),
            is_short: AtomicBool::new(false),
            stuck_plans: AtomicU32::new(0),
            probes_planned: AtomicU64::new(0),
            predicted: Mutex::new(predicted),
            spare_bytes: AtomicU64::new(0),
            planned_at_ms: AtomicU64::new(0),
            jobs: Mutex::default(),
            rebuilt: AtomicU64::new(0),
        }
    }

    /// Waits for the change of filters in flight, and keeps others from starting.
    ///
    /// May take long, so the manifest must not be locked yet: the next segment of the log needs it,
    /// and all writes need that. A cut that waits for a lookup aborts, so that flushes do not wait
    /// for that lookup.
    pub(crate) fn hold(&self) -> Held<'_> {
        self.change_waiters.fetch_add(1, SeqCst);
        let change = self.change.lock();
        let waiters = self.change_waiters.fetch_sub(1, SeqCst);
        debug_assert!(waiters > 0, "each thread counts itself once");
        Held(change)
    }

    /// Returns `true` if the background job has work.
    pub(crate) fn is_due(&self, host: &impl FilterHost) -> bool {
        let store = host.tables();
        if self.is_due.load(SeqCst) || store.memory.filters_are_due() {
            return true;
        }
        let Some(wait_max) = self.wait_max() else { return false };
        let planned_at = Duration::from_millis(self.planned_at_ms.load(Relaxed));
        let is_stuck = self.stuck_plans.load(Relaxed) > 0;
        // Without a probe, the use is unchanged.
        let is_used = || store.counters.probes() != self.probes_planned.load(Relaxed);
        host.options().clock.now().saturating_sub(planned_at) >= wait_max && (is_stuck || is_used())
    }

    /// Returns the maximum wait of the background job before its next run. `None` means until
    /// notified.
    pub(crate) fn wait_max(&self) -> Option<Duration> {
        match self.stuck_plans.load(Relaxed) {
            0 => self.is_short.load(Relaxed).then_some(REPLAN_INTERVAL),
            plans => {
                let doubled = 1 << (plans - 1).min(STUCK_RETRIES_MAX);
                Some(STUCK_INTERVAL.saturating_mul(doubled).min(REPLAN_INTERVAL))
            }
        }
    }

    /// Plans the part of each filter of all `tables` in memory.
    fn plan(
        &self,
        host: &impl FilterHost,
        measured: &mut MeasuredUse,
        tables: &FilterTables,
        bytes_max: u64,
    ) -> Vec<Target> {
        let (store, now) = (host.tables(), host.options().clock.now());
        measured.add(&store.counters.take_sample(), &tables.ids());
        self.planned_at_ms.store(u64::try_from(now.as_millis()).unwrap_or(u64::MAX), Relaxed);
        self.probes_planned.store(store.counters.probes(), Relaxed);
        let bytes_max = FilterMemory::of(store).planned(bytes_max);
        let (plan, targets) = tables.plan(bytes_max, measured);
        // The planner computes in `f64`.
        debug_assert!(plan.bytes_left as f64 <= bytes_max as f64, "more is left than there was");
        let lacks = targets.iter().any(Target::lacks_scan_filters);
        debug_assert!(!lacks || bytes_max < u64::MAX || tables.has_bound(), "no bound refuses one");
        self.is_short.store(plan.is_short || lacks, Relaxed);
        self.spare_bytes.store(if lacks { 0 } else { plan.bytes_left }, Relaxed);
        *self.predicted.lock() = Prediction::of(tables, &plan, measured);
        targets
    }

    /// Plans the only keyspace of `tables`. Equals [`plan`](Self::plan) of all keyspaces while the
    /// spare bytes cover all new filters.
    fn plan_alone(&self, measured: &MeasuredUse, tables: &FilterTables) -> Vec<Target> {
        debug_assert_eq!(tables.keyspaces.len(), 1, "of one keyspace");
        let (plan, targets) = tables.plan(u64::MAX, measured);
        let lacks = targets.iter().any(Target::lacks_scan_filters);
        debug_assert!(!lacks || tables.has_bound(), "only a bound of the keyspace refuses one");
        self.is_short.fetch_or(plan.is_short || lacks, Relaxed);
        self.predicted.lock().update(Prediction::of(tables, &plan, measured));
        targets
    }

    /// Reports unreadable filters, and schedules their rebuild.
    fn report_unreadable(
        &self,
        host: &impl FilterHost,
        tables: &FilterTables,
        unreadable: Vec<Unreadable>,
    ) {
        if !unreadable.is_empty() {
            self.jobs.lock().check_all();
        }
        for unreadable in unreadable {
            host.report(&unreadable.event(tables));
        }
    }
}
