//! Filters are kept in memory as the plan says: which, and how much of each.
//!
//! [`filter_plan`](crate::filters::plan) decides; here the store is described to it, and what it
//! wants is carried out. A resident ribbon gives up columns by a smaller copy, and gets them back
//! from its file. Whatever is replaced is freed when the last lookup that began with it is done. No
//! lookup ever reads a filter: this is done by those who change tables or the budget, and by a
//! background job.
//!
//! | module             | answers                                                       |
//! |--------------------|---------------------------------------------------------------|
//! | [`filter_tables`]  | which tables there are, what of their filters is in memory     |
//! | [`measured_use`]   | how often lookups come to each                                |
//! | [`change`]         | how filters take the place of others without exceeding a bound |
//! | [`budget`]         | when the budget or the use changes                            |
//! | [`prediction`]     | what the plans expect of lookups                              |
//! | [`options_change`] | when the options of a keyspace change                         |
//! | [`scan_choice`]    | which prefix and range filters there is room for               |
//! | [`tables`]         | when tables come, and when the store is opened                |

mod budget;
mod change;
mod filter_tables;
mod measured_use;
mod options_change;
mod prediction;
mod scan_choice;
mod tables;

pub(crate) use filter_tables::stored_filter;
pub(crate) use prediction::Prediction;
pub(crate) use tables::load_filters;

use std::time::Duration;

use self::{
    change::{Changes, Patience, Unreadable},
    filter_tables::{FilterTables, KeyspaceTables, Target},
    measured_use::MeasuredUse,
};
use crate::{
    listener::{Event, EventListener, notify},
    store::Store,
    store::filter_jobs::FilterJobs,
    sync::{
        Mutex, MutexGuard,
        atomic::{
            AtomicBool, AtomicU32, AtomicU64,
            Ordering::{Relaxed, SeqCst},
        },
    },
};

/// How often a plan is made again where memory is short, because the use of the tables may have
/// changed.
pub(crate) const REPLAN_INTERVAL: Duration = Duration::from_secs(10);

/// How long to wait before the first look for room that a lookup holds; twice as long before each
/// next one, up to [`REPLAN_INTERVAL`].
const STUCK_INTERVAL: Duration = Duration::from_millis(20);

/// After so many looks the interval is the longest.
const STUCK_LOOKS_MAX: u32 = 10;

/// Bytes of filters that the background job reads at a time, before other work has its turn.
const LOAD_BYTES_MAX: u64 = 64 << 20;

/// What the store knows of its filters, beside the filters themselves.
#[derive(Debug)]
pub(crate) struct Residency {
    /// Held while filters are changed. Taken by [`lock_change`](Self::lock_change), except by a
    /// cut.
    change: Mutex<MeasuredUse>,
    /// Threads that wait for `change`: a cut that waits for a lookup aborts for them.
    change_waiters: AtomicU32,
    /// What plans are made for, in bytes. The limit of the account follows when the filters are
    /// within it.
    bytes_max: AtomicU64,
    /// There is room, or use has changed: the background job is to look.
    is_due: AtomicBool,
    /// The last plan left filters less than they could use: with other use it would be another one.
    is_short: AtomicBool,
    /// How often in turn something was left undone because lookups held what was to give way.
    stuck_looks: AtomicU32,
    /// [`Counters::questions`](crate::stats::Counters::questions) at the last plan.
    questions_planned: AtomicU64,
    /// What the last plans predict.
    predicted: Mutex<Prediction>,
    /// Bytes that the last plan of all keyspaces leaves, without what came since: as long as there
    /// are any, tables that come concern their own keyspace only. Changed while `change` is held.
    spare_bytes: AtomicU64,
    /// When the last plan was made, by the clock of the options, in milliseconds.
    planned_at_ms: AtomicU64,
}

impl Residency {
    /// For a store that was opened with a plan which predicts this.
    pub(crate) fn new(bytes_max: u64, predicted: Prediction) -> Self {
        Self {
            change: Mutex::default(),
            change_waiters: AtomicU32::new(0),
            bytes_max: AtomicU64::new(bytes_max),
            // What did not fit at the opening.
            is_due: AtomicBool::new(true),
            is_short: AtomicBool::new(false),
            stuck_looks: AtomicU32::new(0),
            questions_planned: AtomicU64::new(0),
            predicted: Mutex::new(predicted),
            spare_bytes: AtomicU64::new(0),
            planned_at_ms: AtomicU64::new(0),
        }
    }

    /// Runs that a lookup of an absent key searches in vain, as the last plan predicts.
    /// The mean over the keyspaces that are there.
    pub(crate) fn false_positives_planned(&self, is_there: impl Fn(u64) -> bool) -> f64 {
        let mut predicted = self.predicted.lock();
        predicted.retain(is_there);
        predicted.false_positives()
    }

    /// Locks changes of filters, after those in flight. A cut that waits for a lookup aborts and is
    /// retried later, so that flushes do not wait for that lookup.
    fn lock_change(&self) -> MutexGuard<'_, MeasuredUse> {
        self.change_waiters.fetch_add(1, SeqCst);
        let change = self.change.lock();
        self.change_waiters.fetch_sub(1, SeqCst);
        change
    }

    /// Takes so many of the spare bytes, if there are as many.
    fn take_spare(&self, bytes: u64) -> bool {
        let taken = |spare: u64| spare.checked_sub(bytes);
        self.spare_bytes.fetch_update(Relaxed, Relaxed, taken).is_ok()
    }

    /// How long the background job may wait for the next look; `None` for as long as nothing
    /// happens.
    pub(crate) fn wait_max(&self) -> Option<Duration> {
        match self.stuck_looks.load(Relaxed) {
            0 => self.is_short.load(Relaxed).then_some(REPLAN_INTERVAL),
            looks => {
                let longer = STUCK_INTERVAL.saturating_mul(1 << (looks - 1).min(STUCK_LOOKS_MAX));
                Some(longer.min(REPLAN_INTERVAL))
            }
        }
    }

    /// Notes whether something was left undone for want of room that the plan has.
    fn note_stuck(&self, is_stuck: bool) {
        let looks = self.stuck_looks.load(Relaxed);
        self.stuck_looks.store(if is_stuck { looks.saturating_add(1) } else { 0 }, Relaxed);
    }
}

impl Store {
    /// Whether the background job has something to look at.
    pub(crate) fn filters_are_due(&self) -> bool {
        let residency = &self.residency;
        if residency.is_due.load(SeqCst) || self.tables.memory.filters_are_due() {
            return true;
        }
        let Some(wait_max) = residency.wait_max() else { return false };
        let planned_at = Duration::from_millis(residency.planned_at_ms.load(Relaxed));
        let is_stuck = residency.stuck_looks.load(Relaxed) > 0;
        // Without a question nobody has, the use is what it was.
        let has_changed =
            || self.tables.counters.probes() != residency.questions_planned.load(Relaxed);
        self.options.clock.now().saturating_sub(planned_at) >= wait_max
            && (is_stuck || has_changed())
    }

    /// All tables at present.
    fn filter_tables(&self) -> FilterTables {
        let trees: Vec<_> = self.versions.trees().values().cloned().collect();
        let of_tree = |tree| KeyspaceTables::of_tree(tree, &tree.kept_view().version);
        FilterTables { keyspaces: trees.iter().map(of_tree).collect() }
    }

    /// What should be in memory of the filters of `tables`, for a budget of so many bytes.
    fn plan_filters(
        &self,
        measured: &mut MeasuredUse,
        tables: &FilterTables,
        bytes_max: u64,
    ) -> Vec<Target> {
        measured.add(&self.tables.counters.take_sample(), &tables.ids());
        let now_ms = self.options.clock.now().as_millis();
        self.residency.planned_at_ms.store(u64::try_from(now_ms).unwrap_or(u64::MAX), Relaxed);
        let questions = self.tables.counters.probes();
        self.residency.questions_planned.store(questions, Relaxed);
        let bytes_max = self.tables.filter_memory().planned(bytes_max);
        let (plan, targets) = tables.plan(bytes_max, measured);
        let lacks = targets.iter().any(Target::lacks_scan_filters);
        self.residency.is_short.store(plan.is_short || lacks, Relaxed);
        self.residency.spare_bytes.store(if lacks { 0 } else { plan.bytes_left }, Relaxed);
        *self.residency.predicted.lock() = Prediction::of(tables, &plan, measured);
        targets
    }

    /// The same for the keyspace of `tables` alone, while there are spare bytes for all that is
    /// new: then it is what a plan of all keyspaces would say.
    fn plan_alone(&self, measured: &MeasuredUse, tables: &FilterTables) -> Vec<Target> {
        let (plan, targets) = tables.plan(u64::MAX, measured);
        let is_short = plan.is_short || targets.iter().any(Target::lacks_scan_filters);
        self.residency.is_short.fetch_or(is_short, Relaxed);
        self.residency.predicted.lock().update(Prediction::of(tables, &plan, measured));
        targets
    }

    /// What is planned for, and never exceeded by what is loaded.
    fn filter_bytes_goal(&self) -> u64 {
        let limit = self.tables.memory.filter_bytes_max();
        self.residency.bytes_max.load(SeqCst).min(limit)
    }

    /// Tells of filters that could not be read.
    fn tell_unreadable(&self, tables: &FilterTables, unreadable: Vec<Unreadable>) {
        if !unreadable.is_empty() {
            self.scheduler.with_filters(FilterJobs::look_again);
        }
        if let Some(listener) = &self.options.listener {
            tell_unreadable(&**listener, tables, unreadable);
        }
    }
}

fn tell_unreadable(
    listener: &dyn EventListener,
    tables: &FilterTables,
    unreadable: Vec<Unreadable>,
) {
    for Unreadable { keyspace, table_id, reason } in unreadable {
        let keyspace = tables.keyspaces[keyspace].name.clone();
        notify(listener, &Event::FilterUnusable { keyspace, table_id, reason });
    }
}
