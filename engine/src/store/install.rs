//! A change of a keyspace's tables, made durable and then visible.

use std::{collections::BTreeSet, sync::Arc};

use sievedb_format::SequenceNumber;

use crate::{
    Error, Result,
    manifest::{TableMoved, VersionEdit},
    read::tree::Tree,
    store::Store,
    table::{LiveTable, TableMeta},
    version::Version,
};

/// A change of a keyspace's tables.
#[derive(Debug, Default)]
pub(crate) struct Change {
    /// New tables, each at its level and run.
    pub(crate) added: Vec<Arc<TableMeta>>,
    /// Tables that are no longer needed.
    pub(crate) removed: Vec<u64>,
    /// Tables that change their level.
    pub(crate) moved: Vec<Move>,
    /// What need not be replayed any more.
    pub(crate) flushed: Option<Flushed>,
}

/// What a flush has brought into tables.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Flushed {
    /// The last sequence number placed in the memtables.
    pub(crate) placed: SequenceNumber,
    /// The last one of what was inserted into them, which may be less if writes failed, and 0 if
    /// all did.
    pub(crate) inserted: SequenceNumber,
}

/// A table that changes its level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Move {
    pub(crate) id: u64,
    pub(crate) level: u8,
    pub(crate) run: u64,
}

impl Move {
    const fn of(self, keyspace: u64) -> TableMoved {
        TableMoved { keyspace, id: self.id, level: self.level, run: self.run }
    }
}

impl Store {
    /// Makes `change` durable in the manifest and then visible to readers. Does nothing for a
    /// keyspace that was dropped meanwhile: its new tables are obsolete at once.
    ///
    /// # Errors
    ///
    /// As [`edit_manifest`](Store::edit_manifest): the new tables are then orphans.
    /// [`Error::Closed`] if the store is being closed, and errors of opening the new tables: these
    /// are then obsolete.
    pub(crate) fn install(&self, tree: &Arc<Tree>, change: &Change) -> Result<()> {
        let listener = self.options.listener.as_deref();
        let options = tree.kept_options();
        let open = |meta| {
            let opened = self.tables.open_and_report(&tree.name, &options, meta, listener);
            opened.map(Arc::new)
        };
        let opened = change.added.iter().map(open);
        let opened = opened.collect::<Result<Vec<_>>>().inspect_err(|_| {
            // No manifest names them. Otherwise each retry would leave such files.
            change.added.iter().rev().for_each(|table| self.tables.discard(table.id, true));
        })?;
        if !opened.is_empty() {
            let synced = self.tables.check_not_closing().and_then(|()| self.tables.sync_dir());
            if matches!(synced, Err(Error::Closed)) {
                // No manifest names them.
                opened.iter().for_each(|live| live.mark_obsolete());
            }
            synced?;
        }
        // A filter is in memory before its table can be asked, if there is room.
        let fits = opened.is_empty() || {
            let version = next_version(&tree.kept_view().version, change, &opened);
            self.admit_filters(tree, &version, &opened)
        };
        let keyspace = tree.id;
        let flushed = change.flushed.map(|flushed| flushed.inserted).filter(|&last| last > 0);
        let edit = VersionEdit {
            tables_added: opened.iter().map(|live| (keyspace, Arc::clone(&live.meta))).collect(),
            tables_removed: change.removed.iter().map(|&id| (keyspace, id)).collect(),
            tables_moved: change.moved.iter().map(|moved| moved.of(keyspace)).collect(),
            flushed: flushed.iter().map(|&sequence| (keyspace, sequence)).collect(),
            last_sequence: flushed,
            log_mark: Some(self.log.mark()),
            ..VersionEdit::default()
        };
        let edited = self.edit_manifest(
            // The manifest may not know the keyspace yet: the edit then takes its creation along.
            |_| (!tree.is_dropped()).then_some(edit),
            |edited| {
                if edited {
                    // It may have changed since they were opened.
                    let extractor = &tree.options().prefix_extractor;
                    opened.iter().for_each(|live| self.tables.fit_extractor(live, extractor));
                    let flushed = change.flushed.map_or(0, |flushed| flushed.placed);
                    if !opened.is_empty() {
                        let removed = change.removed.iter().copied();
                        self.tables.obsolete_files.retire_listed(removed);
                    }
                    tree.install(flushed, |old| {
                        let_go_of_removed(old, change);
                        next_version(old, change, &opened)
                    });
                } else {
                    opened.iter().for_each(|live| live.mark_obsolete());
                }
            },
        );
        if edited.is_err() {
            let paths = opened.iter().map(|live| live.path.to_path_buf());
            self.uncertain_files.lock().extend(paths);
        }
        drop(opened);
        if !fits {
            self.fit_filters();
        }
        // Also if that has just looked: lookups may not have let go of the filters before by then.
        if !change.removed.is_empty() {
            self.filters_have_room();
        }
        edited
    }
}

/// Tables that `change` removes are unlinked when their last reader lets go; their filters go when
/// the last lookup does, so that no iterator keeps them in memory.
fn let_go_of_removed(old: &Version, change: &Change) {
    let removed: BTreeSet<_> = change.removed.iter().copied().collect();
    for (_, _, live) in old.tables().filter(|(_, _, live)| removed.contains(&live.meta.id)) {
        live.mark_obsolete();
    }
}

/// The version after `change`.
fn next_version(old: &Version, change: &Change, opened: &[Arc<LiveTable>]) -> Version {
    let removed: BTreeSet<_> = change.removed.iter().copied().collect();
    let mut tables = Vec::new();
    for (level, run, live) in old.tables() {
        if removed.contains(&live.meta.id) {
            continue;
        }
        let moved = change.moved.iter().find(|moved| moved.id == live.meta.id);
        let (level, run) = moved.map_or((level, run), |moved| (moved.level, moved.run));
        tables.push((level, run, Arc::clone(live)));
    }
    let added = opened.iter().map(|live| (live.meta.level, live.meta.run, Arc::clone(live)));
    Version::new(tables.into_iter().chain(added))
}
