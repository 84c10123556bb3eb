//! The filter of a table is built anew from its keys, without its data being written again.
//!
//! The new filter lies in a file of its own, and is durable there before the manifest names it. The
//! one that it replaces serves until then; its file, if it has one, goes when the manifest has
//! forgotten it.

use std::{collections::BTreeMap, io, path::PathBuf, sync::Arc};

use sievedb_filter::{TableFilter, key_hash};
use sievedb_format::{Corruption, Kind};
use sievedb_sstable::{CacheUse, StoredFilter, Table};

use crate::{
    Error, Result,
    error::SYNC,
    file_name::FileName,
    filter_policy::FilterChoice,
    listener::Event,
    manifest::{FilterReplaced, ManifestState, VersionEdit},
    memory::MemoryUse,
    planted::PlantedBug,
    read::tree::Tree,
    store::{
        Store,
        filter_need::{DueFilter, choice},
    },
    table::{
        FilterPlace, LiveTable,
        filters::with_cause,
        store::{ENTRIES_CHARGED, ENTRY_BYTES},
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
    /// Builds the filter `due` and puts it in place.
    ///
    /// # Errors
    ///
    /// What reading the table, writing the filter or the manifest fails with. The table has the filter
    /// that it had.
    pub(crate) fn rebuild_filter(&self, tree: &Arc<Tree>, due: &DueFilter) -> Result<Rebuilt> {
        let version = tree.kept_view().version;
        let mut tables = version.tables().map(|(_, _, live)| live);
        let Some(live) = tables.find(|live| live.meta.id == due.table_id) else {
            return Ok(Rebuilt::NotNeeded);
        };
        let old = live.filters().place;
        let chosen = || choice(&tree.filter_policy(), &version.metas(), due.table_id);
        let Some(choice) = due.planned.or_else(chosen) else { return Ok(Rebuilt::NotNeeded) };
        let has_keys = live.table.properties().user_keys > 0;
        let new = if choice.bits_per_key > 0.0 && has_keys {
            let Some(filter) = self.build_filter(tree, live, choice)? else {
                return Ok(Rebuilt::NotNeeded);
            };
            let (place, filter) = self.write_filter(live, filter)?;
            Some((place, filter))
        } else if old.is_some() {
            None
        } else {
            return Ok(Rebuilt::NotNeeded);
        };
        let rebuilt = self.install_filter(tree, live, old, new)?;
        if rebuilt == Rebuilt::Installed {
            self.background.count(|done| done.filters_rebuilt += 1);
            let (keyspace, table_id, reason) = (tree.name.clone(), due.table_id, due.reason);
            self.tell(&Event::FilterRebuilt { keyspace, table_id, reason });
        }
        Ok(rebuilt)
    }

    /// The filter of all keys of a table; `None` if it is not needed any more.
    fn build_filter(
        &self,
        tree: &Tree,
        live: &LiveTable,
        choice: FilterChoice,
    ) -> Result<Option<TableFilter>> {
        let charge = self.tables.memory.charge(MemoryUse::Writing, 0);
        let mut cursor = Table::cursor(Arc::clone(&live.table), CacheUse::Bypass);
        let (mut hashes, mut last, mut entries) = (Vec::new(), None::<Vec<u8>>, 0_u64);
        cursor.seek_to_first().map_err(|error| live.error(error))?;
        while let Some(key) = cursor.key() {
            if entries.is_multiple_of(ENTRIES_CHARGED) {
                if self.background.is_shut_down() || tree.is_dropped() {
                    return Ok(None);
                }
                charge.grow(ENTRIES_CHARGED as usize * ENTRY_BYTES);
            }
            entries += 1;
            if last.as_deref() != Some(key.user_key) {
                hashes.push(key_hash(key.user_key, self.hash_seed));
                let last = last.get_or_insert_default();
                last.clear();
                last.extend_from_slice(key.user_key);
            }
            cursor.next().map_err(|error| live.error(error))?;
        }
        // A filter over some of the keys would hide the others.
        let properties = live.table.properties();
        let expected = properties.entries() - properties.count(Kind::RangeTombstone);
        if entries != expected {
            let source =
                Corruption::Mismatch { what: "entries of the table", expected, found: entries };
            return Err(Error::corrupt(&live.path, 0, source));
        }
        Ok(TableFilter::build(choice.kind, &hashes, choice.bits_per_key))
    }

    /// Writes `filter` into a file of its own, durable with its entry in the folder, and reads it back.
    fn write_filter(
        &self,
        live: &LiveTable,
        filter: TableFilter,
    ) -> Result<(FilterPlace, StoredFilter)> {
        let bytes = 2 * filter.memory_bytes();
        let charge = self.tables.memory.charge(MemoryUse::Writing, bytes);
        let sync = !self.options.has_bug(PlantedBug::InstallFilterBeforeSync);
        let place = self.tables.write_filter(&live.meta, &filter, sync)?;
        drop(filter);
        let synced = if sync { self.tables.sync_folder() } else { Ok(()) };
        let read_back = synced.and_then(|()| {
            let stored = self.tables.open_filter_file(&live.meta, place);
            let checked = stored.and_then(|stored| stored.load(f64::INFINITY).map(|_| stored));
            checked.map_err(|reason| {
                let source = io::Error::other(with_cause(&reason));
                Error::io("read back", self.filter_path(place), source)
            })
        });
        drop(charge);
        read_back.map(|stored| (place, stored)).inspect_err(|_| self.discard_filter(place))
    }

    /// Makes `new` the filters of a table that still has the one at `old`.
    fn install_filter(
        &self,
        tree: &Arc<Tree>,
        live: &LiveTable,
        old: Option<FilterPlace>,
        new: Option<(FilterPlace, StoredFilter)>,
    ) -> Result<Rebuilt> {
        let (keyspace, id) = (tree.id, live.meta.id);
        let old_file = live.filter_path();
        if self.options.has_bug(PlantedBug::DeleteFilterEarly)
            && let Some(path) = &old_file
        {
            let _ = self.tables.fs.unlink(path);
        }
        let is_expected = |state: &ManifestState| {
            let tables = state.keyspaces.get(&keyspace).map(|keyspace| &keyspace.tables);
            let table = tables.and_then(|tables: &BTreeMap<_, Arc<_>>| tables.get(&id));
            !tree.is_dropped() && table.is_some_and(|table| table.filter == old)
        };
        let place = new.as_ref().map(|(place, _)| *place);
        let edit = VersionEdit {
            filters_replaced: vec![FilterReplaced { keyspace, id, place }],
            ..VersionEdit::default()
        };
        let edited = self.edit_manifest(
            |state| is_expected(state).then_some(edit),
            |edited| {
                if edited {
                    self.replace_filter(tree, live, new);
                    if let Some(path) = old_file {
                        self.tables.obsolete_files.push(path);
                    }
                }
                edited
            },
        );
        match edited {
            Ok(true) => Ok(Rebuilt::Installed),
            Ok(false) => {
                // A compaction was quicker.
                if let Some(place) = place {
                    self.discard_filter(place);
                }
                Ok(Rebuilt::NotNeeded)
            }
            Err(error) => {
                let path = place.map(|place| self.filter_path(place));
                self.uncertain_files.lock().extend(path);
                Err(error)
            }
        }
    }

    /// The filter at `place`, which no manifest ever named, is of no use.
    fn discard_filter(&self, place: FilterPlace) {
        self.tables.obsolete_files.push(self.filter_path(place));
    }

    fn filter_path(&self, place: FilterPlace) -> PathBuf {
        FileName::Filter(place.file_id).path(&self.tables.folder)
    }

    /// Gives the claim of the filter `due` back. Whether more work may be tried at once.
    ///
    /// No failure of a filter makes the store read-only, but for a sync: then nobody knows what else is
    /// not on the disk.
    pub(crate) fn release_filter(
        &self,
        tree: &Tree,
        due: &DueFilter,
        outcome: Result<Rebuilt>,
    ) -> bool {
        let error = match outcome {
            Ok(rebuilt) => {
                self.background.with_filters(|jobs| jobs.release(tree, due, rebuilt));
                return true;
            }
            Err(error) => error,
        };
        if error.is_no_space() {
            let waiting = error.clone();
            if self.background.with_filters(|jobs| jobs.put_off(tree, due, waiting)) {
                self.tell(&Event::NoSpace { error });
            }
            return false;
        }
        if let Error::Io { op: SYNC, .. } = &error {
            self.poison(error.clone());
        }
        self.background.with_filters(|jobs| jobs.give_up(tree, due));
        let (keyspace, table_id) = (tree.name.clone(), due.table_id);
        self.tell(&Event::FilterNotRebuilt { keyspace, table_id, error });
        true
    }
}
