//! State of a store after all edits, and its invariants.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use sievedb_format::{Corruption, SEQUENCE_MAX, SequenceNumber};

use super::{
    edit::{FilterReplaced, KeyspaceCreated, KeyspaceRenamed, TableMoved, VersionEdit},
    retained::{self, RetainedChanges, RetentionChanged},
};
use crate::{
    file_name::ID_MAX, history_length::HistoryStart, level_count::LEVELS, log::Position,
    sequence_times::SequenceTimes, table::TableMeta,
};

/// Durable state of a store, apart from its data. Copies share keyspaces and tables.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ManifestState {
    pub(crate) store_id: u128,
    pub(crate) hash_seed: u64,
    /// Above the id of every file that ever existed.
    pub(crate) next_file_id: u64,
    /// Above the id of every keyspace that ever existed.
    pub(crate) next_keyspace_id: u64,
    /// At least the largest sequence number in a table.
    pub(crate) last_sequence: SequenceNumber,
    pub(crate) store_clock_ms: u64,
    /// The logs that must exist, each with the secret of its header. None is below the floor.
    pub(crate) logs: BTreeMap<u64, u64>,
    /// Logs with a smaller id are obsolete.
    pub(crate) log_floor: u64,
    /// Position up to which the log is durable.
    pub(crate) log_mark: Position,
    /// Retained changes; `None` if only the log required by recovery is kept.
    pub(crate) retained: Option<RetainedChanges>,
    pub(crate) sequence_times: SequenceTimes,
    /// Keyspaces by id. Shared: there may be thousands, and an edit changes few.
    pub(crate) keyspaces: BTreeMap<u64, Arc<KeyspaceState>>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct KeyspaceState {
    /// Name, unique in the store.
    pub(crate) name: String,
    /// Sequence number of the log record of the last rename; 0 without one.
    pub(crate) renamed: SequenceNumber,
    /// Encoded options; opaque here.
    pub(crate) options: Vec<u8>,
    /// Sequence number up to which every entry is in tables, and needs no log.
    pub(crate) flushed: SequenceNumber,
    /// Start of the history. Versions for earlier readers may be missing.
    pub(crate) history_from: HistoryStart,
    /// Tables by id.
    pub(crate) tables: BTreeMap<u64, Arc<TableMeta>>,
}

impl ManifestState {
    /// Returns the state of a store without files. Ids start at 1.
    pub(crate) fn new(store_id: u128, hash_seed: u64) -> Self {
        Self { store_id, hash_seed, next_file_id: 1, next_keyspace_id: 1, ..Self::default() }
    }

    /// Returns the state that an edit of [`to_edit`](Self::to_edit) recreates.
    ///
    /// # Errors
    ///
    /// [`Corruption`] if the edit breaks an invariant, or has a field reserved for a later release.
    pub(crate) fn from_edit(edit: &VersionEdit) -> Result<Self, Corruption> {
        let hash_seed = edit.hash_seed.ok_or(Corruption::Missing { what: "hash seed" })?;
        let store_id = edit.store_id.ok_or(Corruption::Missing { what: "store id" })?;
        let mut state = Self::new(store_id, hash_seed);
        state.apply_unchecked(edit)?;
        state.check()?;
        Ok(state)
    }

    /// Applies an edit. After an error the state is unspecified.
    ///
    /// Costs time in proportion to the edit, to the tables of the keyspaces that get tables, and to
    /// the number of keyspaces if it has a new name.
    ///
    /// # Errors
    ///
    /// [`Corruption`] if the edit does not fit the state or breaks an invariant: ids are below
    /// their counters, floors do not fall, the tables of a run do not overlap.
    pub(crate) fn apply(&mut self, edit: &VersionEdit) -> Result<(), Corruption> {
        self.apply_unchecked(edit)?;
        let added = edit.tables_added.iter().map(|(keyspace, _)| *keyspace);
        let moved = edit.tables_moved.iter().map(|moved| moved.keyspace);
        let touched: BTreeSet<_> = added.chain(moved).collect();
        // After the drops, which may free a name.
        if !edit.keyspaces_created.is_empty() || !edit.keyspaces_renamed.is_empty() {
            let created = edit.keyspaces_created.iter().map(|created| created.id);
            let renamed = edit.keyspaces_renamed.iter().map(|renamed| renamed.id);
            let named: BTreeSet<_> = created.chain(renamed).collect();
            self.check_names(|id| named.contains(&id))?;
        }
        // The same edit may have dropped one.
        let touched = touched.iter().filter_map(|id| self.keyspaces.get(id));
        touched.map(|keyspace| &**keyspace).try_for_each(KeyspaceState::check_runs)
    }

    /// Applies an edit without checking whole runs and all names, which [`check`](Self::check)
    /// does.
    pub(super) fn apply_unchecked(&mut self, edit: &VersionEdit) -> Result<(), Corruption> {
        self.apply_numbers(edit)?;
        for created in &edit.keyspaces_created {
            self.create_keyspace(created)?;
        }
        for changed in &edit.keyspaces_changed {
            self.keyspace(changed.id)?.options.clone_from(&changed.options);
        }
        for renamed in &edit.keyspaces_renamed {
            self.rename_keyspace(renamed)?;
        }
        for &(keyspace, sequence) in &edit.keyspaces_cleared {
            self.keyspace(keyspace)?.tables.clear();
            self.raise_flushed(keyspace, sequence)?;
            self.raise_history_from(keyspace, HistoryStart { sequence, clock_ms: 0 })?;
        }
        for &(keyspace, id) in &edit.tables_removed {
            let removed = self.keyspace(keyspace)?.tables.remove(&id);
            removed.ok_or(Corruption::Missing { what: "removed table" })?;
        }
        for moved in &edit.tables_moved {
            check_level(moved.level, moved.run)?;
            self.keyspace(moved.keyspace)?.move_table(moved)?;
        }
        for (keyspace, table) in &edit.tables_added {
            self.check_file_id(table.id)?;
            check_level(table.level, table.run)?;
            self.last_sequence = self.last_sequence.max(table.largest_sequence);
            let added = self.keyspace(*keyspace)?.tables.insert(table.id, table.clone());
            if added.is_some() {
                return Err(Corruption::Order { what: "table that is there already" });
            }
        }
        for replaced in &edit.filters_replaced {
            self.replace_filter(replaced)?;
        }
        for &(keyspace, sequence) in &edit.flushed {
            self.raise_flushed(keyspace, sequence)?;
        }
        for &(keyspace, start) in &edit.history_from {
            self.raise_history_from(keyspace, start)?;
        }
        for &keyspace in &edit.keyspaces_dropped {
            let dropped = self.keyspaces.remove(&keyspace);
            dropped.ok_or(Corruption::Missing { what: "dropped keyspace" })?;
        }
        for &sample in &edit.sequence_times {
            if sample.1 > self.last_sequence {
                let what = "time of a sequence number";
                return Err(Corruption::OutOfRange { what, value: sample.1 });
            }
            self.sequence_times.append(sample)?;
        }
        self.apply_logs(edit)?;
        retained::apply(&mut self.retained, edit, self.log_floor)?;
        debug_assert!(self.keyspaces.keys().all(|&id| id < self.next_keyspace_id));
        debug_assert!(self.keyspaces.values().all(|known| known.flushed <= self.last_sequence));
        Ok(())
    }

    fn apply_numbers(&mut self, edit: &VersionEdit) -> Result<(), Corruption> {
        // An edit may be prepared before an edit that is applied first.
        let raise = |number: &mut u64, to: Option<u64>| *number = (*number).max(to.unwrap_or(0));
        raise(&mut self.next_file_id, edit.next_file_id);
        raise(&mut self.next_keyspace_id, edit.next_keyspace_id);
        raise(&mut self.last_sequence, edit.last_sequence);
        raise(&mut self.store_clock_ms, edit.store_clock_ms);
        self.log_mark = self.log_mark.max(edit.log_mark.unwrap_or_default());
        for (what, value) in
            [("next file id", self.next_file_id), ("next keyspace id", self.next_keyspace_id)]
        {
            if value > ID_MAX {
                return Err(Corruption::OutOfRange { what, value });
            }
        }
        if self.last_sequence > SEQUENCE_MAX {
            let (what, value) = ("last sequence number", self.last_sequence);
            return Err(Corruption::OutOfRange { what, value });
        }
        if let Some(id) = edit.store_id.filter(|&id| id != self.store_id) {
            let (expected, found) = (self.store_id as u64, id as u64);
            return Err(Corruption::Mismatch { what: "store id", expected, found });
        }
        if let Some(found) = edit.hash_seed.filter(|&seed| seed != self.hash_seed) {
            let expected = self.hash_seed;
            return Err(Corruption::Mismatch { what: "hash seed", expected, found });
        }
        Ok(())
    }

    fn apply_logs(&mut self, edit: &VersionEdit) -> Result<(), Corruption> {
        let floor = edit.log_floor.unwrap_or(self.log_floor);
        if floor < self.log_floor {
            return Err(Corruption::OutOfRange { what: "log floor", value: floor });
        }
        self.log_floor = floor;
        for &(id, secret) in &edit.logs_created {
            self.check_file_id(id)?;
            if id < self.log_floor || self.logs.insert(id, secret).is_some() {
                return Err(Corruption::Order { what: "log that is obsolete or there already" });
            }
        }
        self.logs = self.logs.split_off(&self.log_floor);
        debug_assert!(self.logs.keys().all(|&id| id >= self.log_floor && id < self.next_file_id));
        Ok(())
    }

    fn replace_filter(&mut self, replaced: &FilterReplaced) -> Result<(), Corruption> {
        let FilterReplaced { keyspace, id, place } = replaced;
        if let Some(place) = place.place() {
            self.check_file_id(place.file_id)?;
        }
        let table = self.keyspace(*keyspace)?.tables.get_mut(id);
        let table = table.ok_or(Corruption::Missing { what: "table of a replaced filter" })?;
        Arc::make_mut(table).replace_filter(place.clone());
        Ok(())
    }

    fn create_keyspace(&mut self, created: &KeyspaceCreated) -> Result<(), Corruption> {
        let KeyspaceCreated { id, name, options } = created;
        if *id >= self.next_keyspace_id {
            return Err(Corruption::OutOfRange { what: "keyspace id", value: *id });
        }
        let state =
            KeyspaceState { name: name.clone(), options: options.clone(), ..Default::default() };
        if self.keyspaces.insert(*id, Arc::new(state)).is_some() {
            return Err(Corruption::Order { what: "keyspace that is there already" });
        }
        Ok(())
    }

    fn rename_keyspace(&mut self, renamed: &KeyspaceRenamed) -> Result<(), Corruption> {
        let KeyspaceRenamed { id, sequence, name } = renamed;
        let known = self.keyspace(*id)?;
        if *sequence < known.renamed || *sequence > SEQUENCE_MAX {
            let what = "sequence number of a rename";
            return Err(Corruption::OutOfRange { what, value: *sequence });
        }
        known.renamed = *sequence;
        known.name.clone_from(name);
        self.last_sequence = self.last_sequence.max(*sequence);
        Ok(())
    }

    /// Records that no entry of a keyspace up to `sequence` needs the log.
    fn raise_flushed(&mut self, id: u64, sequence: SequenceNumber) -> Result<(), Corruption> {
        let flushed = &mut self.keyspace(id)?.flushed;
        if sequence < *flushed || sequence > SEQUENCE_MAX {
            return Err(Corruption::OutOfRange {
                what: "flushed sequence number",
                value: sequence,
            });
        }
        *flushed = sequence;
        self.last_sequence = self.last_sequence.max(sequence);
        Ok(())
    }

    /// Records that versions of a keyspace before `start` may be missing.
    fn raise_history_from(&mut self, id: u64, start: HistoryStart) -> Result<(), Corruption> {
        if start.sequence > SEQUENCE_MAX {
            let (what, value) = ("start of a history", start.sequence);
            return Err(Corruption::OutOfRange { what, value });
        }
        let history_from = &mut self.keyspace(id)?.history_from;
        *history_from = history_from.max(start);
        Ok(())
    }

    /// Checks the names of the keyspaces that are new, or have a new name.
    fn check_names(&self, is_new: impl Fn(u64) -> bool) -> Result<(), Corruption> {
        let (new, others): (Vec<_>, Vec<_>) = self.keyspaces.iter().partition(|it| is_new(*it.0));
        let mut names = BTreeSet::new();
        let is_unique = new.iter().all(|(_, keyspace)| names.insert(&keyspace.name))
            && !others.iter().any(|(_, keyspace)| names.contains(&keyspace.name));
        if !is_unique {
            return Err(Corruption::Order { what: "keyspace that is there already" });
        }
        Ok(())
    }

    fn keyspace(&mut self, id: u64) -> Result<&mut KeyspaceState, Corruption> {
        let keyspace = self.keyspaces.get_mut(&id);
        keyspace.map(Arc::make_mut).ok_or(Corruption::Missing { what: "keyspace" })
    }

    fn check_file_id(&self, id: u64) -> Result<(), Corruption> {
        if id >= self.next_file_id {
            return Err(Corruption::OutOfRange { what: "file id", value: id });
        }
        Ok(())
    }

    /// Checks the names of all keyspaces, and every run of each.
    ///
    /// # Errors
    ///
    /// [`Corruption::Order`] if two keyspaces have one name, or two tables of a run overlap.
    pub(super) fn check(&self) -> Result<(), Corruption> {
        self.check_names(|_| true)?;
        self.keyspaces.values().map(|keyspace| &**keyspace).try_for_each(KeyspaceState::check_runs)
    }

    /// Returns `true` if the log segment `id` is kept only for its changes.
    pub(crate) fn retains(&self, id: u64) -> bool {
        self.retained.as_ref().is_some_and(|retained| retained.logs.contains_key(&id))
    }

    /// Returns an edit that recreates this state from [`new`](Self::new).
    pub(crate) fn to_edit(&self) -> VersionEdit {
        let keyspaces = || self.keyspaces.iter().map(|(&id, keyspace)| (id, &**keyspace));
        let created = |(id, keyspace): (u64, &KeyspaceState)| KeyspaceCreated {
            id,
            name: keyspace.name.clone(),
            options: keyspace.options.clone(),
        };
        let tables = |(id, keyspace): (u64, &'_ KeyspaceState)| {
            let tables: Vec<_> = keyspace.tables.values().map(|t| (id, t.clone())).collect();
            tables
        };
        let flushed = keyspaces().filter(|(_, keyspace)| keyspace.flushed > 0);
        let history_from =
            keyspaces().filter(|(_, keyspace)| keyspace.history_from != HistoryStart::default());
        let renamed = keyspaces().filter(|(_, keyspace)| keyspace.renamed > 0);
        let renamed = renamed.map(|(id, keyspace)| {
            let (sequence, name) = (keyspace.renamed, keyspace.name.clone());
            KeyspaceRenamed { id, sequence, name }
        });
        VersionEdit {
            store_id: Some(self.store_id),
            hash_seed: Some(self.hash_seed),
            next_file_id: Some(self.next_file_id),
            next_keyspace_id: Some(self.next_keyspace_id),
            last_sequence: Some(self.last_sequence),
            store_clock_ms: Some(self.store_clock_ms),
            logs_created: self.logs.iter().map(|(&id, &secret)| (id, secret)).collect(),
            log_floor: Some(self.log_floor),
            keyspaces_created: keyspaces().map(created).collect(),
            keyspaces_renamed: renamed.collect(),
            tables_added: keyspaces().flat_map(tables).collect(),
            flushed: flushed.map(|(id, keyspace)| (id, keyspace.flushed)).collect(),
            log_mark: (self.log_mark != Position::default()).then_some(self.log_mark),
            sequence_times: self.sequence_times.samples().to_vec(),
            history_from: history_from.map(|(id, keyspace)| (id, keyspace.history_from)).collect(),
            retention_changed: self
                .retained
                .as_ref()
                .map(|&RetainedChanges { limits, from, .. }| RetentionChanged { limits, from }),
            logs_retained: self.retained.iter().flat_map(RetainedChanges::to_logs).collect(),
            ..VersionEdit::default()
        }
    }
}

/// Checks level and run: level 0 has several runs, each deeper level one, with number 0.
fn check_level(level: u8, run: u64) -> Result<(), Corruption> {
    if usize::from(level) >= LEVELS {
        return Err(Corruption::OutOfRange { what: "level of a table", value: level.into() });
    }
    if level > 0 && run > 0 {
        return Err(Corruption::OutOfRange { what: "run of a table", value: run });
    }
    Ok(())
}

impl KeyspaceState {
    fn move_table(&mut self, moved: &TableMoved) -> Result<(), Corruption> {
        let table = self.tables.get_mut(&moved.id);
        let table = table.ok_or(Corruption::Missing { what: "moved table" })?;
        let table = Arc::make_mut(table);
        (table.level, table.run) = (moved.level, moved.run);
        Ok(())
    }

    /// Checks that the tables of each run do not overlap.
    fn check_runs(&self) -> Result<(), Corruption> {
        let mut tables: Vec<_> = self.tables.values().collect();
        tables.sort_unstable_by(|a, b| {
            let place = (a.level, a.run).cmp(&(b.level, b.run));
            place.then_with(|| a.bounds.cmp_starts(&b.bounds))
        });
        let overlap = |pair: &[&Arc<TableMeta>; 2]| {
            let [left, right] = pair;
            (left.level, left.run) == (right.level, right.run)
                && !left.bounds.is_before(&right.bounds)
        };
        if tables.array_windows().any(overlap) {
            return Err(Corruption::Order { what: "tables of a run" });
        }
        Ok(())
    }
}
