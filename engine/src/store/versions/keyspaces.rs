//! Keyspaces by name and id, and changes of them that only the log has.

use std::{collections::BTreeMap, sync::Arc};

use sievedb_format::SequenceNumber;

use crate::{
    manifest::{KeyspaceCreated, KeyspaceRenamed, VersionEdit},
    read::{changed_trees::ChangedTrees, tree::Tree},
    store::log_state::Unflushed,
    version::Version,
};

/// The trees of the keyspaces, by name and by id.
#[derive(Debug, Default)]
pub(crate) struct KeyspaceTrees {
    by_name: BTreeMap<String, Arc<Tree>>,
    by_id: BTreeMap<u64, Arc<Tree>>,
    changed: Arc<ChangedTrees>,
}

impl KeyspaceTrees {
    pub(crate) fn get(&self, name: &str) -> Option<&Arc<Tree>> {
        self.by_name.get(name)
    }

    pub(crate) fn of_id(&self, id: u64) -> Option<&Arc<Tree>> {
        self.by_id.get(&id)
    }

    /// Returns all trees, by name.
    pub(crate) fn values(&self) -> impl Iterator<Item = &Arc<Tree>> {
        self.by_name.values()
    }

    /// Returns the ids, ascending.
    pub(in crate::store) fn ids(&self) -> impl Iterator<Item = u64> {
        self.by_id.keys().copied()
    }

    /// Returns the list in which trees note that they have changed.
    pub(in crate::store) fn changed(&self) -> &Arc<ChangedTrees> {
        &self.changed
    }

    pub(in crate::store) fn insert(&mut self, tree: Arc<Tree>) {
        let before = self.by_id.insert(tree.id, Arc::clone(&tree));
        debug_assert!(before.is_none(), "ids of keyspaces are not reused");
        let before = self.by_name.insert(tree.name(), tree);
        debug_assert!(before.is_none(), "the names of keyspaces are unique");
    }

    /// Replaces all trees by `trees`. Their names are unique.
    pub(super) fn replace(&mut self, trees: &[Arc<Tree>]) {
        self.by_name = trees.iter().map(|tree| (tree.name(), Arc::clone(tree))).collect();
        self.by_id = trees.iter().map(|tree| (tree.id, Arc::clone(tree))).collect();
        debug_assert_eq!(self.by_name.len(), self.by_id.len(), "names of keyspaces are unique");
    }

    /// Makes the memtables of a replayed log those of their keyspaces, before any reader.
    pub(in crate::store) fn set_replayed(&self, memtables: &Unflushed) {
        for (&keyspace, replayed) in memtables {
            let tree = self.of_id(keyspace);
            let tree = tree.expect("entries are replayed for known keyspaces only");
            let before = tree.replace(Some(replayed.all()), None, 0);
            debug_assert!(before.active.first_sequence().is_none(), "entries would be lost");
            debug_assert!(before.frozen.is_empty(), "the log was replayed after a freeze");
        }
    }

    fn rename(&mut self, tree: &Arc<Tree>, name: &str, sequence: SequenceNumber) {
        let removed = self.by_name.remove(&tree.name());
        debug_assert!(removed.is_some_and(|it| it.id == tree.id), "its name leads to it");
        tree.set_name(name.to_owned(), sequence);
        let before = self.by_name.insert(name.to_owned(), Arc::clone(tree));
        debug_assert!(before.is_none(), "the names of keyspaces are unique");
    }

    fn remove(&mut self, tree: &Tree) {
        let removed = self.by_name.remove(&tree.name());
        debug_assert!(removed.is_some_and(|it| it.id == tree.id), "a keyspace is dropped once");
        let removed = self.by_id.remove(&tree.id);
        debug_assert!(removed.is_some(), "each keyspace has a name and an id");
    }
}

/// A creation, a rename or a drop of keyspaces that is durable in the log.
#[derive(Debug)]
pub(in crate::store) enum KeyspaceChange {
    Created(Arc<Tree>, KeyspaceCreated),
    Renamed(Arc<Tree>, KeyspaceRenamed),
    Dropped(Vec<Arc<Tree>>),
}

/// Changes of keyspaces that are durable in the log and not in the manifest. Each edit of the
/// manifest includes them until one succeeds.
#[derive(Debug, Default)]
pub(super) struct Unrecorded {
    created: Vec<KeyspaceCreated>,
    renamed: Vec<KeyspaceRenamed>,
    cleared: Vec<Cleared>,
    dropped: Vec<Arc<Tree>>,
}

/// A clear of a keyspace.
#[derive(Debug)]
struct Cleared {
    keyspace: u64,
    sequence: SequenceNumber,
    /// The tables that the clear removed.
    before: Arc<Version>,
}

impl Unrecorded {
    /// Applies `change` to `trees`, and notes it for the next edit.
    pub(super) fn note(&mut self, change: KeyspaceChange, trees: &mut KeyspaceTrees) {
        match change {
            KeyspaceChange::Created(tree, created) => {
                trees.insert(tree);
                self.created.push(created);
            }
            KeyspaceChange::Renamed(tree, renamed) => {
                trees.rename(&tree, &renamed.name, renamed.sequence);
                self.renamed.push(renamed);
            }
            KeyspaceChange::Dropped(dropped) => {
                for tree in &dropped {
                    tree.mark_dropped();
                    trees.remove(tree);
                }
                self.dropped.extend(dropped);
            }
        }
    }

    /// Notes for the next edit that a keyspace was cleared, which had the tables of `before`.
    pub(super) fn note_cleared(
        &mut self,
        keyspace: u64,
        sequence: SequenceNumber,
        before: Arc<Version>,
    ) {
        debug_assert!(self.cleared.iter().all(|earlier| earlier.sequence < sequence));
        self.cleared.push(Cleared { keyspace, sequence, before });
    }

    pub(super) fn add_to(&self, edit: &mut VersionEdit) {
        for &Cleared { keyspace, sequence, .. } in &self.cleared {
            // The manifest has no other tables of the keyspace than the removed ones.
            edit.tables_removed.retain(|&(id, _)| id != keyspace);
            edit.tables_moved.retain(|moved| moved.keyspace != keyspace);
            edit.filters_replaced.retain(|replaced| replaced.keyspace != keyspace);
            edit.keyspaces_cleared.push((keyspace, sequence));
        }
        edit.keyspaces_renamed.extend(self.renamed.iter().cloned());
        edit.keyspaces_created.extend(self.created.iter().cloned());
        edit.keyspaces_dropped.extend(self.dropped.iter().map(|tree| tree.id));
        let next = self.created.iter().map(|created| created.id + 1).max();
        edit.next_keyspace_id = edit.next_keyspace_id.max(next);
    }

    /// Notes that the manifest has the changes: tables of dropped and cleared keyspaces become
    /// obsolete. Returns whether there were any changes.
    pub(super) fn record(&mut self) -> bool {
        let Self { created, renamed, cleared, dropped } = self;
        let any = !created.is_empty()
            || !renamed.is_empty()
            || !cleared.is_empty()
            || !dropped.is_empty();
        for (_, _, live) in cleared.iter().flat_map(|cleared| cleared.before.tables()) {
            live.mark_obsolete();
        }
        for tree in &self.dropped {
            debug_assert!(tree.is_dropped(), "only dropped keyspaces lose their tables");
            tree.discard();
        }
        *self = Self::default();
        any
    }
}
