//! The filters that are to be built anew, and those that are not to be tried again.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::{Arc, Weak},
};

use crate::{
    Error,
    filter_policy::FilterChoice,
    read::tree::Tree,
    store::filter_need::{DueFilter, TableFacts, due_filters},
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
    due: VecDeque<DueFilter>,
    /// What was built for which tables: not to be built again if it is still not what was wanted.
    built: BTreeMap<u64, FilterChoice>,
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
    pub(crate) fn release(&mut self, tree: &Tree, due: &DueFilter) {
        self.is_running = false;
        if let Some(jobs) = self.trees.get_mut(&tree.id) {
            jobs.built.insert(due.table_id, due.choice);
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
            if jobs.examined.as_ptr() != Arc::as_ptr(&view.version) {
                jobs.examine(tree, &view.version);
            }
        }
    }
}

impl TreeJobs {
    fn examine(&mut self, tree: &Tree, version: &Arc<Version>) {
        self.examined = Arc::downgrade(version);
        let metas = version.metas();
        let facts = version.tables().zip(&metas).map(|((_, _, live), meta)| {
            let filters = live.filters();
            TableFacts {
                meta,
                user_keys: live.table.properties().user_keys,
                is_unusable: filters.is_unusable(),
                kind: filters.point.resident().map(|filter| filter.kind()),
            }
        });
        let facts: Vec<_> = facts.collect();
        let is_there = |id: u64| metas.iter().any(|meta| meta.id == id);
        self.built.retain(|&id, _| is_there(id));
        self.given_up.retain(|&id| is_there(id));
        let due = due_filters(&tree.options.filter_policy, &facts).into_iter();
        let is_new = |due: &DueFilter| {
            !self.given_up.contains(&due.table_id)
                && self.built.get(&due.table_id) != Some(&due.choice)
        };
        self.due = due.filter(is_new).collect();
    }
}
