//! Makes a change of the tables of a keyspace durable, then visible.

use std::sync::Arc;

use crate::{
    Error, Result,
    history_length::HistoryStart,
    manifest::VersionEdit,
    planted::PlantedBug,
    read::tree::Tree,
    store::{
        Store,
        versions::change::{ByFilter, Change},
    },
    table::{LiveTable, TableMeta},
};

impl Store {
    /// Makes `change` durable in the manifest, then visible to readers. If the keyspace was dropped
    /// or cleared since, the new tables are obsolete at once.
    ///
    /// # Errors
    ///
    /// Errors of [`edit_manifest`](Store::edit_manifest): the new tables are orphans.
    /// [`Error::Closed`], and errors of opening the new tables: these are obsolete.
    pub(super) fn install(&self, tree: &Arc<Tree>, change: &Change) -> Result<()> {
        debug_assert!(change.added.iter().all(|table| !change.removed.contains(&table.id)));
        debug_assert!(
            change.flushed.is_none_or(|it| it.placed <= self.writer.visible()),
            "a flush of invisible writes"
        );
        let opened = self.open_new(tree, &change.added)?;
        if !opened.is_empty() {
            let synced = self.tables.check_not_closing().and_then(|()| self.tables.sync_dir());
            if let Err(error) = &synced
                && (matches!(error, Error::Closed) || error.is_retryable())
            {
                // No manifest names them.
                opened.iter().for_each(|live| live.mark_obsolete());
            }
            synced?;
        }
        // Filters are in memory before lookups see their tables, if there is room.
        let fits = opened.is_empty() || {
            let version = change.next_version(&tree.kept_view().version, &opened);
            self.filters.admit(self, tree, &version, &opened)
        };
        let keyspace = tree.id;
        let flushed = change.flushed.map(|flushed| flushed.inserted).filter(|&last| last > 0);
        let edit = VersionEdit {
            tables_added: opened.iter().map(|live| (keyspace, Arc::clone(&live.meta))).collect(),
            tables_removed: change.removed.iter().map(|&id| (keyspace, id)).collect(),
            tables_moved: change.moved.iter().map(|moved| moved.of(keyspace)).collect(),
            flushed: flushed.iter().map(|&sequence| (keyspace, sequence)).collect(),
            last_sequence: flushed,
            log_mark: Some(self.writer.log().mark()),
            ..VersionEdit::default()
        };
        let edited = self.edit_manifest(
            // The edit includes the creation of the keyspace, if the manifest lacks it.
            |_| {
                // A history that was begun meanwhile has the values that a filter removed.
                let is_kept = change.filtered.is_some() && tree.history_length().is_some();
                let is_cleared = tree.view_seldom().cleared != change.cleared;
                let is_current = !tree.is_dropped() && !is_cleared && !is_kept;
                // Under the manifest lock no other thread begins a history.
                let history_from = self.history_from(tree).into_iter().collect();
                is_current.then_some(VersionEdit { history_from, ..edit })
            },
            |edited| {
                if edited {
                    // The extractor may have changed since the tables were opened.
                    let extractor = &tree.options().prefix_extractor;
                    opened.iter().for_each(|live| self.tables.fit_extractor(live, extractor));
                    let flushed = change.flushed.map_or(0, |flushed| flushed.placed);
                    if !opened.is_empty() {
                        let removed = change.removed.iter().copied();
                        self.tables.obsolete_files.retire_listed(removed);
                    }
                    if self.options.has_bug(PlantedBug::DeleteBlobFileEarly) {
                        let version = tree.kept_view().version;
                        let tables = version.tables().map(|(_, _, live)| live);
                        let gone = tables.filter(|live| change.removed.contains(&live.meta.id));
                        let paths = gone.flat_map(|live| live.blobs.iter());
                        let paths = paths.map(|file| file.path.to_path_buf());
                        self.tables.obsolete_files.extend(paths);
                    }
                    let install = |snapshots_from| {
                        tree.install(flushed, snapshots_from, change.unlinked_to, |old| {
                            change.retire_removed(old);
                            change.next_version(old, &opened)
                        })
                    };
                    match change.filtered {
                        Some(ByFilter { newest_snapshot }) => {
                            let snapshots = self.versions.snapshots();
                            snapshots.keep_before_filter(tree.id, newest_snapshot, install);
                        }
                        None => drop(install(0)),
                    }
                } else {
                    opened.iter().for_each(|live| live.mark_obsolete());
                }
            },
        );
        if edited.is_err() {
            self.note_uncertain(&opened);
        }
        drop(opened);
        self.filters.note_installed(self, fits, !change.removed.is_empty());
        edited
    }

    /// Opens tables that no manifest names. All of them are obsolete after an error: each retry
    /// would leave files.
    ///
    /// # Errors
    ///
    /// As [`TableStore::open`](crate::table::store::TableStore::open).
    pub(super) fn open_new(
        &self,
        tree: &Tree,
        added: &[Arc<TableMeta>],
    ) -> Result<Vec<Arc<LiveTable>>> {
        let (listener, options) = (self.options.listener.as_deref(), tree.kept_options());
        let mut opened = Vec::with_capacity(added.len());
        for meta in added {
            match self.tables.open_and_report(&tree.name(), &options, meta, listener) {
                Ok(live) => opened.push(Arc::new(live)),
                Err(error) => {
                    let rest = added[opened.len()..].iter().rev();
                    rest.for_each(|table| self.tables.discard(table, true));
                    opened.iter().for_each(|live| live.mark_obsolete());
                    return Err(error);
                }
            }
        }
        Ok(opened)
    }

    /// Notes tables that an edit of the manifest names, which failed.
    pub(super) fn note_uncertain(&self, tables: &[Arc<LiveTable>]) {
        // No version has them.
        tables.iter().for_each(|live| live.let_go_of_memory());
        self.versions.add_uncertain_tables(tables);
    }

    /// Returns where the history of `tree` begins after the flushes and compactions so far.
    fn history_from(&self, tree: &Tree) -> Option<(u64, HistoryStart)> {
        let from = tree.history_length().map(|_| tree.history_from())?;
        (from != HistoryStart::default()).then_some((tree.id, from))
    }
}
