//! A change of the tables of a keyspace.

use std::{collections::BTreeSet, sync::Arc};

use sievedb_format::SequenceNumber;

use crate::{
    manifest::TableMoved,
    table::{LiveTable, TableMeta},
    version::Version,
};

/// A change of a keyspace's tables.
#[derive(Debug, Default)]
pub(in crate::store) struct Change {
    /// New tables, each at its level and run.
    pub(in crate::store) added: Vec<Arc<TableMeta>>,
    /// Tables that are no longer needed.
    pub(in crate::store) removed: Vec<u64>,
    /// Tables that change their level.
    pub(in crate::store) moved: Vec<Move>,
    /// Entries that need no replay any more.
    pub(in crate::store) flushed: Option<Flushed>,
    /// [`KeptView::cleared`](crate::read::view::KeptView) of the view that was read.
    pub(in crate::store) cleared: SequenceNumber,
    /// A compaction filter removed or replaced values.
    pub(in crate::store) filtered: Option<ByFilter>,
    /// Newest sequence number of entries that were removed unread, whatever they hid.
    pub(in crate::store) unlinked_to: SequenceNumber,
}

/// Values that a compaction filter removed or replaced.
#[derive(Debug, Clone, Copy)]
pub(in crate::store) struct ByFilter {
    /// The newest snapshot then. It is older than all of them.
    pub(in crate::store) newest_snapshot: Option<SequenceNumber>,
}

/// Entries that a flush has moved into tables.
#[derive(Debug, Clone, Copy)]
pub(in crate::store) struct Flushed {
    /// The last sequence number placed in the memtables.
    pub(in crate::store) placed: SequenceNumber,
    /// The last one of what was inserted into them, which may be less if writes failed, and 0 if
    /// all did.
    pub(in crate::store) inserted: SequenceNumber,
}

/// A table that changes its level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::store) struct Move {
    pub(in crate::store) id: u64,
    pub(in crate::store) level: u8,
    pub(in crate::store) run: u64,
}

impl Move {
    pub(in crate::store) const fn of(self, keyspace: u64) -> TableMoved {
        TableMoved { keyspace, id: self.id, level: self.level, run: self.run }
    }
}

impl Change {
    /// Marks the removed tables of the version `old` as obsolete: each is unlinked when its last
    /// reader drops it.
    pub(in crate::store) fn retire_removed(&self, old: &Version) {
        let removed: BTreeSet<_> = self.removed.iter().copied().collect();
        for (_, _, live) in old.tables().filter(|(_, _, live)| removed.contains(&live.meta.id)) {
            live.mark_obsolete();
        }
    }

    /// Returns the version after `old`, with the `opened` tables.
    pub(in crate::store) fn next_version(
        &self,
        old: &Version,
        opened: &[Arc<LiveTable>],
    ) -> Version {
        let removed: BTreeSet<_> = self.removed.iter().copied().collect();
        let mut tables = Vec::new();
        for (level, run, live) in old.tables() {
            if removed.contains(&live.meta.id) {
                continue;
            }
            let moved = self.moved.iter().find(|moved| moved.id == live.meta.id);
            let (level, run) = moved.map_or((level, run), |moved| (moved.level, moved.run));
            tables.push((level, run, Arc::clone(live)));
        }
        let added = opened.iter().map(|live| (live.meta.level, live.meta.run, Arc::clone(live)));
        Version::new(tables.into_iter().chain(added))
    }
}
