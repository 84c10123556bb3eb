//! Replaces the filter of a table by one built from its keys. The data of the table stay.
//!
//! The new filter is durable in a file of its own before the manifest names it. Until then lookups
//! use the old filter. The file of the old filter, if any, is obsolete once the manifest has
//! dropped it.

use std::{borrow::Cow, io, path::PathBuf};

use super::{
    FilterHost, Filters,
    build::{self, BuiltFilter, StoredFilterFile, hashed_keys_max},
    due::{DueFilter, FilterSettings, TableFacts, due_filters},
    jobs::Seen,
    plan::{StoreShape, ideal_of},
    tables::stored_filter,
};
use crate::{
    Error, FilterRole, Result,
    file_name::FileName,
    listener::Event,
    manifest::{FilterReplaced, ManifestState, VersionEdit},
    planted::PlantedBug,
    read::tree::Tree,
    sync::atomic::Ordering::Relaxed,
    table::{FilterPlace, LiveTable, NewPlace, filters::with_cause, store::TableStore},
};

impl Filters {
    /// Finds the filters of `tree` that should be rebuilt.
    pub(super) fn check(&self, host: &impl FilterHost, tree: &Tree, seen: Seen) {
        let settings = FilterSettings::of(&tree.options(), hashed_keys_max(host.tables()));
        let version = tree.kept_view().version;
        let metas = version.metas();
        let facts = version.tables().zip(&metas).map(|((_, _, live), meta)| TableFacts {
            meta: Cow::Borrowed(meta),
            user_keys: live.table.properties().user_keys,
            unusable: live.unusable_filters(),
            stored: stored_filter(&live.filters()),
        });
        let facts: Vec<_> = facts.collect();
        let due = due_filters(&settings, &facts);
        let ids = metas.iter().map(|meta| meta.id).collect();
        self.jobs.lock().checked(tree, seen, due, &ids);
    }

    /// Builds the filter `due` and installs it. Returns `false` if it is no longer needed: the
    /// table or the old filter was removed, or the store is closing.
    ///
    /// # Errors
    ///
    /// Errors of reading the table, and of writing the filter or the manifest. The table keeps its
    /// filter.
    pub(super) fn rebuild(
        &self,
        host: &impl FilterHost,
        tree: &Tree,
        due: &DueFilter,
    ) -> Result<bool> {
        let version = tree.kept_view().version;
        let mut tables = version.tables().map(|(_, _, live)| live);
        let Some(live) = tables.find(|live| live.meta.id == due.table_id) else {
            return Ok(false);
        };
        let (role, options) = (due.role, tree.kept_options());
        let settings = FilterSettings::of(&options, hashed_keys_max(host.tables()));
        let old = live.filter_place(role);
        let new = if settings.is_built(role) && live.table.properties().user_keys > 0 {
            let ideal = || {
                let metas = version.metas();
                let shape = StoreShape::of_tables(settings.policy, metas.iter().map(Cow::as_ref));
                ideal_of(&shape, due.table_id)
            };
            let Some(choice) = due.planned.or_else(ideal) else { return Ok(false) };
            if role == FilterRole::Point && choice.bits_per_key == 0.0 {
                return Ok(false);
            }
            let Some((filter, taken)) = build::build(host, tree, live, role, choice)? else {
                return Ok(false);
            };
            host.renew_manifest()?;
            let stored = write(host, live, filter)?;
            drop(taken);
            Some(stored)
        } else if old.is_some() {
            None
        } else {
            return Ok(false);
        };
        let is_installed = self.install(host, tree, live, role, old, new)?;
        if is_installed {
            self.rebuilt.fetch_add(1, Relaxed);
            let (keyspace, table_id, reason) = (tree.name(), due.table_id, due.reason);
            host.report(&Event::FilterRebuilt { keyspace, table_id, role, reason });
        }
        Ok(is_installed)
    }

    /// Makes `new` the filter for `role` of a table, unless the filter at `old` was replaced
    /// meanwhile.
    fn install(
        &self,
        host: &impl FilterHost,
        tree: &Tree,
        live: &LiveTable,
        role: FilterRole,
        old: Option<FilterPlace>,
        new: Option<StoredFilterFile>,
    ) -> Result<bool> {
        let (store, keyspace, id) = (host.tables(), tree.id, live.meta.id);
        let old_file = live.filter_path(role);
        if host.options().has_bug(PlantedBug::DeleteFilterEarly)
            && let Some(path) = &old_file
        {
            let _ = store.fs.unlink(path);
        }
        let place = new.as_ref().map_or_else(|| NewPlace::none(role), StoredFilterFile::new_place);
        debug_assert!(place.place() != old, "a rebuilt filter has a place of its own");
        let path = place.place().map(|place| path(store, place));
        let edit = VersionEdit {
            filters_replaced: vec![FilterReplaced { keyspace, id, place: place.clone() }],
            ..VersionEdit::default()
        };
        let is_expected = |state: &ManifestState| {
            let keyspace = state.keyspaces.get(&keyspace);
            let table = keyspace.and_then(|keyspace| keyspace.tables.get(&id));
            let has_extractor = match &place {
                // No thread changes the extractor while the manifest is locked.
                NewPlace::Prefix(Some(prefix)) => {
                    tree.options().prefix_extractor.name().as_deref() == Some(&prefix.extractor)
                }
                _ => true,
            };
            let has_old = table.is_some_and(|table| table.filter_place(role) == old);
            !tree.is_dropped() && has_extractor && has_old
        };
        let replacement = self.prepare(store, tree, live, role, new);
        let is_installed = host.edit(
            path.clone(),
            |state| is_expected(state).then_some(edit),
            || {
                self.replace(tree, replacement);
                store.obsolete_files.extend(old_file);
            },
        )?;
        if !is_installed {
            // A compaction removed the table first, or the options changed.
            store.obsolete_files.extend(path);
        }
        Ok(is_installed)
    }

    /// Ends the claim of the filter `due`.
    ///
    /// Only a failed sync makes the store read-only: other files may not be durable either.
    ///
    /// # Errors
    ///
    /// [Retryable](Error::is_retryable) errors. Others are reported.
    pub(super) fn end_rebuild(
        &self,
        host: &impl FilterHost,
        tree: &Tree,
        due: &DueFilter,
        outcome: Result<bool>,
    ) -> Result<()> {
        let error = match outcome {
            Ok(is_installed) => {
                self.jobs.lock().end(tree, due, is_installed);
                return Ok(());
            }
            Err(error) => error,
        };
        if error.is_retryable() {
            self.jobs.lock().put_back(tree, due);
            return Err(error);
        }
        if error.is_failed_sync() {
            host.poison(error.clone());
        }
        self.jobs.lock().abort(tree, due);
        let (keyspace, table_id, role) = (tree.name(), due.table_id, due.role);
        host.report(&Event::FilterNotRebuilt { keyspace, table_id, role, error });
        Ok(())
    }
}

/// Writes `filter` into a file of its own, durable with its directory entry, and reads it back.
fn write(
    host: &impl FilterHost,
    live: &LiveTable,
    filter: BuiltFilter,
) -> Result<StoredFilterFile> {
    let store = host.tables();
    let prefix_seed = match &filter {
        BuiltFilter::Prefix(prefix) => prefix.hash_seed,
        BuiltFilter::Point(_) | BuiltFilter::Range(_) => store.hash_seed,
    };
    let sync = !host.options().has_bug(PlantedBug::InstallFilterBeforeSync);
    let place = build::write(store, live, &filter, sync)?;
    drop(filter);
    let path = place.place().map(|place| path(store, place));
    let synced = if sync { store.sync_dir() } else { Ok(()) };
    let read_back = synced.and_then(|()| {
        build::read_back(store, live, place, prefix_seed).map_err(|reason| {
            let source = io::Error::other(with_cause(&reason));
            Error::io("read back", path.clone().unwrap_or_default(), source)
        })
    });
    match read_back {
        Ok(stored) => Ok(stored.expect("what was written has a place")),
        Err(error) => {
            store.obsolete_files.extend(path);
            Err(error)
        }
    }
}

fn path(store: &TableStore, place: FilterPlace) -> PathBuf {
    FileName::Filter(place.file_id).path(&store.folder)
}
