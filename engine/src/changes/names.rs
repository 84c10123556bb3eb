//! Names of keyspaces at the position of a change stream.

use std::{collections::BTreeMap, sync::Arc};

use sievedb_format::SequenceNumber;

use crate::store::Store;

/// Known names, by the number of the keyspace.
#[derive(Debug, Default)]
pub(super) struct Names(BTreeMap<u64, Arc<str>>);

impl Names {
    /// Returns the names of the keyspaces that were not renamed after `since`.
    pub(super) fn at(store: &Store, since: SequenceNumber) -> Self {
        let trees = store.versions.trees();
        let same = trees.values().filter(|tree| tree.renamed() <= since);
        Self(same.map(|tree| (tree.id, tree.name().into())).collect())
    }

    pub(super) fn get(&self, keyspace: u64) -> Option<Arc<str>> {
        self.0.get(&keyspace).cloned()
    }

    pub(super) fn set(&mut self, keyspace: u64, name: &str) -> Arc<str> {
        let name: Arc<str> = name.into();
        self.0.insert(keyspace, Arc::clone(&name));
        name
    }

    pub(super) fn remove(&mut self, keyspace: u64) {
        self.0.remove(&keyspace);
    }
}
