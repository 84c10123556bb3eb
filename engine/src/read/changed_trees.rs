//! Which keyspaces have changed since background work looked.

use std::{collections::BTreeSet, mem};

use crate::sync::Mutex;

/// The ids of trees whose memtables, tables or options have changed. So whoever looks for work need
/// not look at all keyspaces, of which there may be thousands.
#[derive(Debug, Default)]
pub(crate) struct ChangedTrees {
    ids: Mutex<BTreeSet<u64>>,
}

impl ChangedTrees {
    /// Notes that the tree `id` has changed. After the change: whoever takes the note sees it.
    pub(crate) fn note(&self, id: u64) {
        self.ids.lock().insert(id);
    }

    /// Those that were noted since the last call, ascending.
    pub(crate) fn take(&self) -> BTreeSet<u64> {
        mem::take(&mut *self.ids.lock())
    }
}
