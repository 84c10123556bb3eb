//! The keyspaces of an open store, and which of them have changed.

use std::{collections::BTreeMap, sync::Arc};

use crate::read::{changed_trees::ChangedTrees, tree::Tree, view::PlacedMemtable};

/// The trees of the keyspaces, by name and by id.
#[derive(Debug, Default)]
pub(crate) struct KeyspaceTrees {
    by_name: BTreeMap<String, Arc<Tree>>,
    by_id: BTreeMap<u64, Arc<Tree>>,
    changed: Arc<ChangedTrees>,
}

impl KeyspaceTrees {
    /// The tree of the keyspace `name`.
    pub(crate) fn get(&self, name: &str) -> Option<&Arc<Tree>> {
        self.by_name.get(name)
    }

    /// The tree with this id.
    pub(crate) fn of_id(&self, id: u64) -> Option<&Arc<Tree>> {
        self.by_id.get(&id)
    }

    /// All trees, by name.
    pub(crate) fn values(&self) -> impl Iterator<Item = &Arc<Tree>> {
        self.by_name.values()
    }

    /// The names, in order.
    pub(crate) fn names(&self) -> impl Iterator<Item = &String> {
        self.by_name.keys()
    }

    /// The ids, ascending.
    pub(crate) fn ids(&self) -> impl Iterator<Item = u64> {
        self.by_id.keys().copied()
    }

    /// Where the trees note that they have changed.
    pub(crate) fn changed(&self) -> &Arc<ChangedTrees> {
        &self.changed
    }

    /// Adds a tree, whose name no other one has.
    pub(crate) fn insert(&mut self, tree: Arc<Tree>) {
        self.by_id.insert(tree.id, Arc::clone(&tree));
        self.by_name.insert(tree.name.clone(), tree);
    }

    /// Makes the memtables of a replayed log the active ones of their keyspaces, before any reader.
    pub(crate) fn set_replayed(&self, memtables: BTreeMap<u64, Arc<PlacedMemtable>>) {
        for (keyspace, replayed) in memtables {
            let tree = self.of_id(keyspace);
            tree.expect("entries are replayed for known keyspaces only").set_replayed(replayed);
        }
    }

    /// Takes the tree of the keyspace `name` out.
    pub(crate) fn remove(&mut self, name: &str) {
        if let Some(tree) = self.by_name.remove(name) {
            self.by_id.remove(&tree.id);
        }
    }
}
