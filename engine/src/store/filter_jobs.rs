//! The filters that are to be built anew, and those that are not to be tried again.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::{Arc, Weak},
};

use crate::{
    Error,
    filter_policy::FilterPolicy,
    read::tree::Tree,
    store::filter_need::{DueFilter, TableFacts, due_filters},
    store::filter_rebuild::Rebuilt,
    store::residency::stored_filter,
    version::Version,
};

/// The filters that are to be built anew: one at a time, which bounds the memory and leaves the
/// other workers to flushes and compactions.
#[derive(Debug, Default)]
pub(crate) struct FilterJobs {
    /// By the id of the keyspace.
    trees: BTreeMap<u64, TreeJobs>,
    is_running: bool,
    /// Why all of it waits: the disk is full.
    put_off: Option<Error>,
}

#[derive(Debug, Default)]
struct TreeJobs {
    /// The version that was looked through; a weak reference, so that its address is not used again.
    examined: Weak<Version>,
    /// What was asked of its filters then.
    policy: Option<FilterPolicy>,
    due: VecDeque<DueFilter>,
    /// What was due and made no difference, or brings the filter no nearer to the plan than it can come:
    /// not to be done again.
    done: BTreeMap<u64, DueFilter>,
    /// Tables that could not be read, or whose filter could not be written.
    given_up: BTreeSet<u64>,
}

impl FilterJobs {
    /// The next filter to build, if none is being built. Gives the claim back with
    /// [`release`](Self::release).
    pub(crate) fn claim(&mut self, trees: &[Arc<Tree>]) -> Option<(Arc<Tree>, DueFilter)> {
        if self.is_running || self.put_off.is_some() {
            return None;
        }
        self.examine(trees);
        let (tree, due) = trees.iter().find_map(|tree| {
            let due = self.trees.get_mut(&tree.id)?.due.pop_front()?;
            Some((Arc::clone(tree), due))
        })?;
        self.is_running = true;
        Some((tree, due))
    }

    /// The claimed filter is in place, or not needed any more.
    pub(crate) fn release(&mut self, tree: &Tree, due: &DueFilter, rebuilt: Rebuilt) {
        self.is_running = false;
        let is_settled = rebuilt == Rebuilt::Installed && due.planned.is_none();
        if let Some(jobs) = self.trees.get_mut(&tree.id).filter(|_| !is_settled) {
            jobs.done.insert(due.table_id, *due);
        }
    }

    /// The claimed filter cannot be built.
    pub(crate) fn give_up(&mut self, tree: &Tree, due: &DueFilter) {
        self.is_running = false;
        if let Some(jobs) = self.trees.get_mut(&tree.id) {
            jobs.given_up.insert(due.table_id);
        }
    }

    /// The claimed filter waits, with all others, until there may be room. Whether they did not yet.
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
        for jobs in self.trees.values_mut() {
            jobs.examined = Weak::new();
        }
    }

    /// Why nothing is built at present.
    pub(crate) fn why_put_off(&self) -> Option<&Error> {
        self.put_off.as_ref()
    }

    /// Whether nothing is being built, nor could be.
    pub(crate) fn is_idle(&mut self, trees: &[Arc<Tree>]) -> bool {
        self.examine(trees);
        !self.is_running && trees.iter().all(|tree| self.trees[&tree.id].due.is_empty())
    }

    /// Looks through the keyspaces that have changed since the last time.
    fn examine(&mut self, trees: &[Arc<Tree>]) {
        self.trees.retain(|id, _| trees.iter().any(|tree| tree.id == *id));
        for tree in trees {
            let view = tree.kept_view();
            let jobs = self.trees.entry(tree.id).or_default();
            let policy = tree.filter_policy();
            if jobs.policy != Some(policy) {
                jobs.done.clear();
            }
            let is_new = jobs.examined.as_ptr() != Arc::as_ptr(&view.version);
            if is_new || jobs.policy != Some(policy) {
                jobs.examine(policy, &view.version);
            }
        }
    }
}

impl TreeJobs {
    fn examine(&mut self, policy: FilterPolicy, version: &Arc<Version>) {
        (self.examined, self.policy) = (Arc::downgrade(version), Some(policy));
        let metas = version.metas();
        let facts = version.tables().zip(&metas).map(|((_, _, live), meta)| {
            let filters = live.filters();
            TableFacts {
                meta: meta.clone(),
                user_keys: live.table.properties().user_keys,
                is_unusable: filters.is_point_unusable(),
                stored: stored_filter(&filters),
            }
        });
        let facts: Vec<_> = facts.collect();
        let ids: BTreeSet<_> = metas.iter().map(|meta| meta.id).collect();
        self.done.retain(|id, _| ids.contains(id));
        self.given_up.retain(|id| ids.contains(id));
        let due = due_filters(&policy, &facts).into_iter();
        let is_new = |due: &DueFilter| {
            !self.given_up.contains(&due.table_id) && self.done.get(&due.table_id) != Some(due)
        };
        self.due = due.filter(is_new).collect();
    }
}
