//! The filter of a table is rebuilt from its keys, without its data being written again.
//!
//! The new filter lies in a file of its own, and is durable there before the manifest names it. The
//! one that it replaces serves until then; its file, if it has one, goes when the manifest has
//! forgotten it.

use std::{borrow::Cow, collections::BTreeMap, io, path::PathBuf, sync::Arc};

use sievedb_sstable::TableOptions;

use crate::{
    Error, FilterRole, Result,
    error::SYNC,
    file_name::FileName,
    filter_policy::FilterChoice,
    filters::{DueFilter, FilterSettings, TableFacts, choice, due_filters},
    keyspace_options::KeyspaceOptions,
    listener::Event,
    manifest::{FilterReplaced, ManifestState, VersionEdit},
    planted::PlantedBug,
    read::tree::Tree,
    store::{Store, filter_jobs::Seen, residency::stored_filter},
    table::{
        FilterPlace, LiveTable, NewPlace, TableMeta,
        filter_store::{BuiltFilter, StoredAnew},
        filters::with_cause,
    },
};

/// What came of building a filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rebuilt {
    /// It is in place.
    Installed,
    /// The table is gone, or has got another filter meanwhile; or the store is about to close.
    NotNeeded,
}

impl Store {
    /// Finds out which filters of `tree` should be rebuilt.
    pub(crate) fn look_for_due_filters(&self, tree: &Arc<Tree>, seen: Seen) {
        let settings = FilterSettings::of(&tree.options());
        let version = tree.kept_view().version;
        let metas = version.metas();
        let facts = version.tables().zip(&metas).map(|((_, _, live), meta)| {
            let filters = live.filters();
            TableFacts {
                meta: Cow::Borrowed(meta),
                user_keys: live.table.properties().user_keys,
                unusable: live.unusable_filters(),
                stored: stored_filter(&filters),
            }
        });
        let facts: Vec<_> = facts.collect();
        let due = due_filters(&settings, &facts);
        let ids = metas.iter().map(|meta| meta.id).collect();
        self.scheduler.with_filters(|jobs| jobs.looked(tree, seen, due, &ids));
    }

    /// Builds the filter `due` and puts it in place.
    ///
    /// # Errors
    ///
    /// What reading the table, writing the filter or the manifest fails with. The table has the
    /// filter that it had.
    pub(crate) fn rebuild_filter(&self, tree: &Arc<Tree>, due: &DueFilter) -> Result<Rebuilt> {
        let version = tree.kept_view().version;
        let mut tables = version.tables().map(|(_, _, live)| live);
        let Some(live) = tables.find(|live| live.meta.id == due.table_id) else {
            return Ok(Rebuilt::NotNeeded);
        };
        let (role, options) = (due.role, tree.kept_options());
        let settings = FilterSettings::of(&options);
        let old = live.filter_place(role);
        let has_keys = live.table.properties().user_keys > 0;
        let new = if settings.is_built(role) && has_keys {
            let chosen = || choice(&settings.policy, &version.metas(), due.table_id);
            let Some(choice) = due.planned.or_else(chosen) else { return Ok(Rebuilt::NotNeeded) };
            let options = one_filter(&options, role, choice);
            let Some((filter, taken)) = self.build_filter(tree, live, role, &options)? else {
                return Ok(Rebuilt::NotNeeded);
            };
            self.renew_manifest()?;
            let stored = self.write_filter(live, filter)?;
            drop(taken);
            Some(stored)
        } else if old.is_some() {
            None
        } else {
            return Ok(Rebuilt::NotNeeded);
        };
        let rebuilt = self.install_filter(tree, live, role, old, new)?;
        if rebuilt == Rebuilt::Installed {
            self.scheduler.count(|done| done.filters_rebuilt += 1);
            let (keyspace, table_id, reason) = (tree.name.clone(), due.table_id, due.reason);
            self.notify(&Event::FilterRebuilt { keyspace, table_id, role, reason });
        }
        Ok(rebuilt)
    }

    /// Writes `filter` into a file of its own, durable with its entry in the folder, and reads it
    /// back.
    fn write_filter(&self, live: &LiveTable, filter: BuiltFilter) -> Result<StoredAnew> {
        let prefix_seed = match &filter {
            BuiltFilter::Prefix(prefix) => prefix.hash_seed,
            BuiltFilter::Point(_) | BuiltFilter::Range(_) => self.hash_seed,
        };
        let sync = !self.options.has_bug(PlantedBug::InstallFilterBeforeSync);
        let place = self.tables.write_filter(&live.meta, &filter, sync)?;
        drop(filter);
        let path = self.filter_path(&place);
        let synced = if sync { self.tables.sync_dir() } else { Ok(()) };
        let read_back = synced.and_then(|()| {
            let stored = self.tables.read_back(live, place, prefix_seed);
            stored.map_err(|reason| {
                let source = io::Error::other(with_cause(&reason));
                Error::io("read back", path.clone().unwrap_or_default(), source)
            })
        });
        match read_back {
            Ok(stored) => Ok(stored.expect("what was written has a place")),
            Err(error) => {
                self.tables.obsolete_files.extend(path);
                Err(error)
            }
        }
    }

    /// Makes `new` the filter for this role of a table that still has the one at `old`.
    fn install_filter(
        &self,
        tree: &Arc<Tree>,
        live: &LiveTable,
        role: FilterRole,
        old: Option<FilterPlace>,
        new: Option<StoredAnew>,
    ) -> Result<Rebuilt> {
        let (keyspace, id) = (tree.id, live.meta.id);
        let old_file = live.filter_path(role);
        if self.options.has_bug(PlantedBug::DeleteFilterEarly)
            && let Some(path) = &old_file
        {
            let _ = self.tables.fs.unlink(path);
        }
        let place = new.as_ref().map_or_else(|| NewPlace::none(role), StoredAnew::new_place);
        let path = self.filter_path(&place);
        let edit = VersionEdit {
            filters_replaced: vec![FilterReplaced { keyspace, id, place: place.clone() }],
            ..VersionEdit::default()
        };
        let is_expected = |state: &ManifestState| {
            let tables = state.keyspaces.get(&keyspace).map(|keyspace| &keyspace.tables);
            let table = tables.and_then(|tables: &BTreeMap<_, Arc<_>>| tables.get(&id));
            let is_asked = match &place {
                // Nobody changes the extractor while the manifest is locked.
                NewPlace::Prefix(Some(prefix)) => {
                    tree.options().prefix_extractor.name().as_deref() == Some(&prefix.extractor)
                }
                _ => true,
            };
            let has_old = |table: &Arc<TableMeta>| table.filter_place(role) == old;
            !tree.is_dropped() && is_asked && table.is_some_and(has_old)
        };
        let replacement = self.prepare_filter(tree, live, role, new);
        let edited = self.edit_manifest(
            |state| is_expected(state).then_some(edit),
            |edited| {
                if edited {
                    self.replace_filter(tree, replacement);
                    self.tables.obsolete_files.extend(old_file);
                }
                edited
            },
        );
        match edited {
            Ok(true) => Ok(Rebuilt::Installed),
            Ok(false) => {
                // A compaction was quicker, or the options changed.
                self.tables.obsolete_files.extend(path);
                Ok(Rebuilt::NotNeeded)
            }
            Err(error) => {
                self.versions.add_uncertain(path);
                Err(error)
            }
        }
    }

    fn filter_path(&self, place: &NewPlace) -> Option<PathBuf> {
        let place = place.place()?;
        Some(FileName::Filter(place.file_id).path(&self.tables.folder))
    }

    /// Gives the claim of the filter `due` back. Whether more work may be tried at once.
    ///
    /// No failure of a filter makes the store read-only, but for a sync: then nobody knows what
    /// else is not on the disk.
    pub(crate) fn release_filter(
        &self,
        tree: &Tree,
        due: &DueFilter,
        outcome: Result<Rebuilt>,
    ) -> bool {
        let error = match outcome {
            Ok(rebuilt) => {
                self.scheduler.with_filters(|jobs| jobs.release(tree, due, rebuilt));
                return true;
            }
            Err(error) => error,
        };
        if error.is_passing() {
            let waiting = error.clone();
            if self.scheduler.with_filters(|jobs| jobs.put_off(tree, due, waiting)) {
                self.notify(&Event::NoSpace { error });
            }
            return false;
        }
        if let Error::Io { op: SYNC, .. } = &error {
            self.poison(error.clone());
        }
        self.scheduler.with_filters(|jobs| jobs.give_up(tree, due));
        let (keyspace, table_id, role) = (tree.name.clone(), due.table_id, due.role);
        self.notify(&Event::FilterNotRebuilt { keyspace, table_id, role, error });
        true
    }
}

/// The options of a table that has no filter but this one.
fn one_filter(options: &KeyspaceOptions, role: FilterRole, choice: FilterChoice) -> TableOptions {
    let none = TableOptions::default().filter_kind(choice.kind).filter_bits_per_key(0.0);
    match role {
        FilterRole::Point => none.filter_bits_per_key(choice.bits_per_key),
        FilterRole::Prefix => match options.prefix_extractor.present() {
            Some(extractor) => {
                none.prefix_filter(extractor.clone(), options.filter_policy.bits_per_key)
            }
            None => none,
        },
        FilterRole::Range => none.range_filter_bits_per_key(options.range_filter_bits_per_key),
    }
}
