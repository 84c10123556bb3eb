//! Sets of keyspaces, for background work.

use std::{collections::BTreeSet, mem};

use crate::sync::Mutex;

/// The ids of trees whose memtables, tables or options have changed since background work last took
/// them.
///
/// So a search for work does not read all keyspaces, of which there may be thousands.
#[derive(Debug, Default)]
pub(crate) struct ChangedTrees {
    ids: Mutex<BTreeSet<u64>>,
}

impl ChangedTrees {
    /// Adds the tree `id`, after its change: a thread that takes the id sees the change.
    pub(crate) fn insert(&self, id: u64) {
        self.ids.lock().insert(id);
    }

    /// Removes and returns all ids, ascending.
    pub(crate) fn take(&self) -> BTreeSet<u64> {
        mem::take(&mut *self.ids.lock())
    }
}

/// Ids of keyspaces, ascending. Ids can be removed during a walk.
#[derive(Debug, Default)]
pub(crate) struct TreeIds(BTreeSet<u64>);

impl TreeIds {
    pub(crate) fn add(&mut self, ids: impl IntoIterator<Item = u64>) {
        self.0.extend(ids);
    }

    /// Adds an id. Returns `true` if it was not there.
    pub(crate) fn insert(&mut self, id: u64) -> bool {
        self.0.insert(id)
    }

    pub(crate) fn remove(&mut self, id: u64) {
        self.0.remove(&id);
    }

    pub(crate) fn contains(&self, id: u64) -> bool {
        self.0.contains(&id)
    }

    /// Returns a walk over all ids that begins after `last`.
    pub(crate) fn walk_behind(last: u64) -> Walk {
        let start = last.saturating_add(1);
        Walk { from: start, start, has_wrapped: false }
    }

    /// Returns the smallest id from `from` on.
    pub(crate) fn first_from(&self, from: u64) -> Option<u64> {
        self.0.range(from..).next().copied()
    }
}

/// A walk over [`TreeIds`] that begins at some id, wraps around, and ends just before it. Ids may
/// be removed meanwhile.
#[derive(Debug)]
pub(crate) struct Walk {
    from: u64,
    start: u64,
    has_wrapped: bool,
}

impl Walk {
    /// Returns the next id of `ids`.
    pub(crate) fn next(&mut self, ids: &TreeIds) -> Option<u64> {
        if !self.has_wrapped {
            if let Some(id) = ids.first_from(self.from) {
                self.from = id.saturating_add(1);
                return Some(id);
            }
            (self.from, self.has_wrapped) = (0, true);
        }
        let id = ids.first_from(self.from).filter(|&id| id < self.start)?;
        self.from = id + 1;
        Some(id)
    }
}
