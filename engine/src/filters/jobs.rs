//! Background work on filters: jobs that are due, claimed or aborted.
//!
//! A check of a keyspace takes microseconds for each table, so it runs without a lock. This module
//! stores its results. Rebuilds run one at a time, which bounds their memory and leaves the other
//! workers to flushes and compactions.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    mem,
    ops::Bound,
    sync::{Arc, Weak},
};

use super::{FilterHost, Filters, due::DueFilter};
use crate::{FilterRole, Result, read::tree::Tree, version::Version};

/// A claimed job.
#[derive(Debug)]
pub(crate) enum FilterJob {
    /// Apply the plan to filters in memory.
    Fit,
    /// Find the filters of a keyspace that should be rebuilt.
    Check(Arc<Tree>, Seen),
    /// Rebuild a filter.
    Rebuild(Arc<Tree>, DueFilter),
}

/// Background work on filters.
#[derive(Debug, Default)]
pub(super) struct FilterJobs {
    is_fitting: bool,
    /// A check or a rebuild is in flight.
    is_rebuilding: bool,
    /// State of each keyspace, by id.
    trees: BTreeMap<u64, TreeJobs>,
    /// Keyspaces that may have work: those that have changed since their last check without work.
    due: BTreeSet<u64>,
    /// The keyspace of the last claim. They take turns.
    last_id: u64,
    /// Number of requests to check all keyspaces.
    checks: u64,
    /// Value of `checks` when all keyspaces were last made due.
    checks_noted: u64,
}

/// A table, and the role of the filter.
type Place = (u64, FilterRole);

#[derive(Debug, Default)]
struct TreeJobs {
    seen: Option<Seen>,
    /// `None` for most of many keyspaces: they never had a rebuild.
    rebuilds: Option<Box<Rebuilds>>,
}

/// Rebuilds of the filters of a keyspace.
#[derive(Debug, Default)]
struct Rebuilds {
    due: VecDeque<DueFilter>,
    /// Rebuilds that made no difference, or are as near to the plan as possible. They are not
    /// repeated.
    done: BTreeMap<Place, DueFilter>,
    /// Filters whose table could not be read, or whose file could not be written.
    aborted: BTreeSet<Place>,
}

/// State of a keyspace at its check.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    /// Weak reference, so that the address is not reused.
    version: Weak<Version>,
    /// [`Tree::filter_settings_number`].
    settings: u64,
    /// [`FilterJobs::checks`].
    checks: u64,
}

impl Filters {
    /// Claims the next job; the caller must [run](Self::run) it. Rebuilds only with
    /// `may_rebuild`.
    pub(crate) fn claim(&self, host: &impl FilterHost, may_rebuild: bool) -> Option<FilterJob> {
        let mut jobs = self.jobs.lock();
        if !jobs.is_fitting && self.is_due(host) {
            jobs.is_fitting = true;
            return Some(FilterJob::Fit);
        }
        let rebuilds = may_rebuild && host.options().background_rewrites;
        if rebuilds { jobs.claim(|id| host.keyspace(id)) } else { None }
    }

    /// Runs a claimed job.
    ///
    /// # Errors
    ///
    /// A [retryable](crate::Error::is_retryable) error. The rebuild stays due.
    pub(crate) fn run(&self, host: &impl FilterHost, job: &FilterJob) -> Result<()> {
        match job {
            FilterJob::Fit => {
                debug_assert!(self.jobs.lock().is_fitting, "claimed");
                self.fit(host);
                self.jobs.lock().is_fitting = false;
                Ok(())
            }
            FilterJob::Check(tree, seen) => {
                debug_assert!(self.jobs.lock().is_rebuilding, "claimed");
                self.check(host, tree, seen.clone());
                Ok(())
            }
            FilterJob::Rebuild(tree, due) => {
                debug_assert!(self.jobs.lock().is_rebuilding, "claimed");
                let rebuilt = self.rebuild(host, tree, due);
                self.end_rebuild(host, tree, due, rebuilt)
            }
        }
    }

    /// Records that the keyspaces `changed` have changed. `all` returns the ids of all keyspaces.
    pub(crate) fn note_changed(&self, changed: BTreeSet<u64>, all: impl FnOnce() -> BTreeSet<u64>) {
        let mut jobs = self.jobs.lock();
        jobs.due.extend(changed);
        if jobs.checks_noted != jobs.checks {
            jobs.checks_noted = jobs.checks;
            jobs.due.extend(all());
        }
    }

    /// Returns `true` if no job is due or in flight.
    pub(crate) fn is_idle(&self, host: &impl FilterHost) -> bool {
        let jobs = self.jobs.lock();
        let is_due = |id: &u64| host.keyspace(*id).is_some_and(|tree| !jobs.is_done_for(&tree));
        !jobs.is_fitting
            && !self.is_due(host)
            && (!host.options().background_rewrites
                || !jobs.is_rebuilding && !jobs.due.iter().any(is_due))
    }

    /// Returns `true` if a check or a rebuild is in flight.
    pub(crate) fn is_rebuilding(&self) -> bool {
        self.jobs.lock().is_rebuilding
    }

    /// Returns `true` if `tree` has no filter to rebuild.
    #[cfg(all(test, not(feature = "shuttle")))]
    pub(crate) fn is_done_for(&self, tree: &Tree) -> bool {
        self.jobs.lock().is_done_for(tree)
    }
}

impl FilterJobs {
    /// Claims the next check or rebuild, if none is in flight. `tree_of` returns the keyspace with
    /// an id.
    fn claim(&mut self, tree_of: impl Fn(u64) -> Option<Arc<Tree>>) -> Option<FilterJob> {
        if self.is_rebuilding {
            return None;
        }
        while let Some(id) = self.next_id() {
            let tree = tree_of(id);
            let is_dropped = tree.is_none();
            if let Some(job) = tree.and_then(|tree| self.next_of(tree)) {
                (self.is_rebuilding, self.last_id) = (true, id);
                return Some(job);
            }
            self.due.remove(&id);
            if is_dropped {
                self.trees.remove(&id);
            }
        }
        None
    }

    /// Returns the next keyspace that may have work.
    fn next_id(&self) -> Option<u64> {
        let after = (Bound::Excluded(self.last_id), Bound::Unbounded);
        self.due.range(after).next().or_else(|| self.due.first()).copied()
    }

    /// Returns the next check or rebuild of `tree`.
    fn next_of(&mut self, tree: Arc<Tree>) -> Option<FilterJob> {
        let checks = self.checks;
        let jobs = self.trees.entry(tree.id).or_default();
        if !jobs.is_up_to_date(&tree, checks) {
            let version = Arc::downgrade(&tree.view_seldom().kept().version);
            let seen = Seen { version, settings: tree.filter_settings_number(), checks };
            return Some(FilterJob::Check(tree, seen));
        }
        let rebuilds = jobs.rebuilds.as_mut()?;
        let due = rebuilds.due.pop_front()?;
        let Rebuilds { aborted, done, .. } = &**rebuilds;
        debug_assert!(!aborted.contains(&place(&due)), "aborted rebuilds are not repeated");
        debug_assert!(done.get(&place(&due)) != Some(&due), "nor those without effect");
        Some(FilterJob::Rebuild(tree, due))
    }

    /// Ends a check: the filters `due` of `tree` must be rebuilt. Its tables have these `ids`.
    pub(super) fn checked(
        &mut self,
        tree: &Tree,
        seen: Seen,
        due: Vec<DueFilter>,
        ids: &BTreeSet<u64>,
    ) {
        self.end_claim();
        debug_assert!(due.iter().all(|due| ids.contains(&due.table_id)), "of its tables");
        let settings = seen.settings;
        let Some(jobs) = self.trees.get_mut(&tree.id) else { return };
        let before = jobs.seen.replace(seen);
        if due.is_empty() && jobs.rebuilds.is_none() {
            return;
        }
        let Rebuilds { due: all_due, done, aborted } = jobs.rebuilds_mut();
        if before.map(|seen| seen.settings) != Some(settings) {
            done.clear();
        }
        done.retain(|(id, _), _| ids.contains(id));
        aborted.retain(|(id, _)| ids.contains(id));
        let is_new = |due: &DueFilter| {
            let place = place(due);
            !aborted.contains(&place) && done.get(&place) != Some(due)
        };
        *all_due = due.into_iter().filter(is_new).collect();
    }

    /// Ends a rebuild: the filter is installed, or no longer needed.
    pub(super) fn end(&mut self, tree: &Tree, due: &DueFilter, is_installed: bool) {
        self.end_claim();
        let is_settled = is_installed && due.planned.is_none();
        if let Some(jobs) = self.trees.get_mut(&tree.id).filter(|_| !is_settled) {
            jobs.rebuilds_mut().done.insert(place(due), *due);
        }
    }

    /// Ends a rebuild that failed permanently. It is repeated if a check of all keyspaces was
    /// requested meanwhile: there may be more memory.
    pub(super) fn abort(&mut self, tree: &Tree, due: &DueFilter) {
        self.end_claim();
        let checks = self.checks;
        let jobs = self.trees.get_mut(&tree.id);
        let is_checked =
            |jobs: &&mut TreeJobs| jobs.seen.as_ref().is_some_and(|it| it.checks == checks);
        if let Some(jobs) = jobs.filter(is_checked) {
            jobs.rebuilds_mut().aborted.insert(place(due));
        }
    }

    /// Ends a rebuild that a retry may complete.
    pub(super) fn put_back(&mut self, tree: &Tree, due: &DueFilter) {
        self.end_claim();
        if let Some(jobs) = self.trees.get_mut(&tree.id) {
            jobs.rebuilds_mut().due.push_front(*due);
        }
    }

    /// Schedules a check of all keyspaces, because a filter is damaged.
    pub(super) fn check_all(&mut self) {
        self.checks += 1;
    }

    /// Retries aborted rebuilds once: there may be more memory.
    pub(super) fn retry_aborted(&mut self) {
        let rebuilds = self.trees.values_mut().filter_map(|jobs| jobs.rebuilds.as_mut());
        rebuilds.for_each(|rebuilds| rebuilds.aborted.clear());
        self.check_all();
    }

    fn end_claim(&mut self) {
        let was_claimed = mem::take(&mut self.is_rebuilding);
        debug_assert!(was_claimed, "a claim ends once");
    }

    /// Returns `true` if `tree` is unchanged since its check, and every due filter was rebuilt.
    fn is_done_for(&self, tree: &Tree) -> bool {
        let jobs = self.trees.get(&tree.id);
        jobs.is_some_and(|jobs| {
            let has_due = || jobs.rebuilds.as_ref().is_some_and(|it| !it.due.is_empty());
            jobs.is_up_to_date(tree, self.checks) && !has_due()
        })
    }
}

impl TreeJobs {
    fn rebuilds_mut(&mut self) -> &mut Rebuilds {
        self.rebuilds.get_or_insert_default()
    }

    /// Returns `true` if the keyspace is unchanged since its check.
    fn is_up_to_date(&self, tree: &Tree, checks: u64) -> bool {
        self.seen.as_ref().is_some_and(|seen| {
            let present = tree.view_seldom();
            seen.version.as_ptr() == Arc::as_ptr(&present.kept().version)
                && (seen.settings, seen.checks) == (tree.filter_settings_number(), checks)
        })
    }
}

fn place(due: &DueFilter) -> Place {
    (due.table_id, due.role)
}
