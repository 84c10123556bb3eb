//! The filters that are to be rebuilt, and those that are not to be tried again.
//!
//! Which they are is found out without a lock, one keyspace after the other: it takes microseconds
//! for each table, and flushes must not wait for that. Here is only what was found.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    mem,
    sync::{Arc, Weak},
};

use crate::{
    Error, FilterRole, filters::DueFilter, read::changed_trees::TreeIds, read::tree::Tree,
    store::filter_rebuild::Rebuilt, version::Version,
};

/// The filters that are to be rebuilt: one at a time, which bounds the memory and leaves the
/// other workers to flushes and compactions.
#[derive(Debug, Default)]
pub(crate) struct FilterJobs {
    /// By the id of the keyspace.
    trees: BTreeMap<u64, TreeJobs>,
    /// Keyspaces that may have work: those that changed since nothing was left to do for them.
    due: TreeIds,
    is_running: bool,
    /// How often all were to be looked through again.
    again: u64,
    /// Its value when all keyspaces were last noted for that.
    again_noted: u64,
    /// Why all of it waits: the disk is full.
    put_off: Option<Error>,
}

/// A table, and which of its filters.
type Place = (u64, FilterRole);

#[derive(Debug, Default)]
struct TreeJobs {
    seen: Option<Seen>,
    due: VecDeque<DueFilter>,
    /// What was due and made no difference, or brings the filter no nearer to the plan than it can
    /// come: not to be done again.
    done: BTreeMap<Place, DueFilter>,
    /// Tables that could not be read, or whose filter could not be written.
    given_up: BTreeSet<Place>,
}

/// What a keyspace was when its tables were looked through.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    /// A weak reference, so that its address is not used again.
    version: Weak<Version>,
    /// [`Tree::filter_settings_number`].
    settings: u64,
    /// [`FilterJobs::again`].
    again: u64,
}

/// The next piece of work.
#[derive(Debug)]
pub(crate) enum FilterJob {
    /// Look through the tables of a keyspace.
    Look(Arc<Tree>, Seen),
    /// Build a filter.
    Build(Arc<Tree>, DueFilter),
}

impl FilterJobs {
    /// The next piece of work, if there is none in flight. Give the claim back with
    /// [`looked`](Self::looked) or [`release`](Self::release).
    ///
    /// `tree_of` tells the keyspace with an id, if it is there.
    pub(crate) fn claim(
        &mut self,
        tree_of: impl Fn(u64) -> Option<Arc<Tree>>,
    ) -> Option<FilterJob> {
        if self.is_running || self.put_off.is_some() {
            return None;
        }
        while let Some(id) = self.due.first_from(0) {
            if let Some(job) = tree_of(id).and_then(|tree| self.next_of(tree)) {
                self.is_running = true;
                return Some(job);
            }
            self.due.remove(id);
            if tree_of(id).is_none() {
                self.trees.remove(&id);
            }
        }
        None
    }

    /// The next piece of work for `tree`.
    fn next_of(&mut self, tree: Arc<Tree>) -> Option<FilterJob> {
        let again = self.again;
        let jobs = self.trees.entry(tree.id).or_default();
        if !jobs.is_up_to_date(&tree, again) {
            let version = Arc::downgrade(&tree.view().kept().version);
            let seen = Seen { version, settings: tree.filter_settings_number(), again };
            return Some(FilterJob::Look(tree, seen));
        }
        let due = jobs.due.pop_front()?;
        Some(FilterJob::Build(tree, due))
    }

    /// Notes that these keyspaces have changed.
    pub(crate) fn note(&mut self, changed: BTreeSet<u64>) {
        self.due.add(changed);
    }

    /// Whether all keyspaces are to be noted, because all are to be looked through again.
    pub(crate) fn looks_again(&mut self) -> bool {
        mem::replace(&mut self.again_noted, self.again) != self.again
    }

    /// The tables of `tree`, which was then as `seen` says, have these filters to be built, and
    /// these ids.
    pub(crate) fn looked(
        &mut self,
        tree: &Tree,
        seen: Seen,
        due: Vec<DueFilter>,
        ids: &BTreeSet<u64>,
    ) {
        self.is_running = false;
        let Some(jobs) = self.trees.get_mut(&tree.id) else { return };
        if jobs.seen.as_ref().map(|seen| seen.settings) != Some(seen.settings) {
            jobs.done.clear();
        }
        jobs.done.retain(|(id, _), _| ids.contains(id));
        jobs.given_up.retain(|(id, _)| ids.contains(id));
        let is_new = |due: &DueFilter| {
            let place = place(due);
            !jobs.given_up.contains(&place) && jobs.done.get(&place) != Some(due)
        };
        jobs.due = due.into_iter().filter(is_new).collect();
        jobs.seen = Some(seen);
    }

    /// The claimed filter is in place, or not needed any more.
    pub(crate) fn release(&mut self, tree: &Tree, due: &DueFilter, rebuilt: Rebuilt) {
        self.is_running = false;
        let is_settled = rebuilt == Rebuilt::Installed && due.planned.is_none();
        if let Some(jobs) = self.trees.get_mut(&tree.id).filter(|_| !is_settled) {
            jobs.done.insert(place(due), *due);
        }
    }

    /// The claimed filter cannot be built.
    pub(crate) fn give_up(&mut self, tree: &Tree, due: &DueFilter) {
        self.is_running = false;
        if let Some(jobs) = self.trees.get_mut(&tree.id) {
            jobs.given_up.insert(place(due));
        }
    }

    /// The claimed filter waits, with all others, until there may be room. Whether they did not
    /// yet.
    pub(crate) fn put_off(&mut self, tree: &Tree, due: &DueFilter, error: Error) -> bool {
        self.is_running = false;
        if let Some(jobs) = self.trees.get_mut(&tree.id) {
            jobs.due.push_front(*due);
        }
        self.put_off.replace(error).is_none()
    }

    /// There may be room again.
    pub(crate) fn retry(&mut self) {
        self.put_off = None;
    }

    /// A filter has turned out to be damaged: all are looked through again.
    pub(crate) fn look_again(&mut self) {
        self.again += 1;
    }

    /// There may be more memory: what was given up is tried once more.
    pub(crate) fn try_given_up(&mut self) {
        self.trees.values_mut().for_each(|jobs| jobs.given_up.clear());
        self.look_again();
    }

    /// Why nothing is built at present.
    pub(crate) fn why_put_off(&self) -> Option<&Error> {
        self.put_off.as_ref()
    }

    /// Whether a piece of this work is in flight.
    pub(crate) fn is_running(&self) -> bool {
        self.is_running
    }

    /// Whether the tables of `tree` were looked through as they are, and all that was due was
    /// built.
    pub(crate) fn is_done_for(&self, tree: &Tree) -> bool {
        let jobs = self.trees.get(&tree.id);
        jobs.is_some_and(|jobs| jobs.is_up_to_date(tree, self.again) && jobs.due.is_empty())
    }

    /// Whether nothing is being built, nor could be.
    pub(crate) fn is_idle(&self, tree_of: impl Fn(u64) -> Option<Arc<Tree>>) -> bool {
        let mut from = 0;
        while let Some(id) = self.due.first_from(from) {
            if tree_of(id).is_some_and(|tree| !self.is_done_for(&tree)) {
                return false;
            }
            from = id + 1;
        }
        !self.is_running
    }
}

impl TreeJobs {
    /// Whether the keyspace is as it was when its tables were looked through.
    fn is_up_to_date(&self, tree: &Tree, again: u64) -> bool {
        self.seen.as_ref().is_some_and(|seen| {
            let present = tree.view();
            seen.version.as_ptr() == Arc::as_ptr(&present.kept().version)
                && (seen.settings, seen.again) == (tree.filter_settings_number(), again)
        })
    }
}

fn place(due: &DueFilter) -> Place {
    (due.table_id, due.role)
}
