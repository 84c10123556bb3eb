//! Names of keyspaces without a manifest.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{Repair, Saved, log_changes::LogChanges};
use crate::{
    DEFAULT_KEYSPACE, KeyspaceOptions, Result,
    manifest::{KeyspaceState, ManifestState},
};

/// The default keyspace is created with the store.
pub(super) const DEFAULT_ID: u64 = 1;

/// Keyspaces whose tables have the name of another keyspace.
pub(super) struct Namesakes {
    /// Ids of dropped keyspaces.
    pub(super) dropped: BTreeSet<u64>,
    /// New names of the others.
    pub(super) unnamed: Vec<String>,
    /// Number of omitted tables.
    pub(super) left_out: u64,
}

impl Namesakes {
    /// Omits those that the log shows to be dropped, and names the others anew. Tables keep the
    /// name that their keyspace had when they were written, so one of two namesakes was renamed
    /// since. The one with a name in the log keeps it, else the one with the newest table. `newest`
    /// has the newest table of each keyspace.
    pub(super) fn separate(
        state: &mut ManifestState,
        changes: &LogChanges,
        newest: &BTreeMap<u64, u64>,
    ) -> Self {
        let mut found = Self { dropped: BTreeSet::new(), unnamed: Vec::new(), left_out: 0 };
        let mut ids: Vec<u64> = state.keyspaces.keys().copied().collect();
        ids.sort_by_key(|&id| {
            let is_empty = state.keyspaces[&id].tables.is_empty();
            let is_old = (id != DEFAULT_ID, is_empty, changes.name(id).is_none());
            (changes.is_dropped(id), is_old, Reverse(newest.get(&id)))
        });
        let mut names = BTreeSet::new();
        for id in ids {
            let known = &state.keyspaces[&id];
            if names.insert(known.name.clone()) {
                continue;
            }
            if changes.is_dropped(id) {
                found.left_out += known.tables.len() as u64;
                found.dropped.insert(id);
                state.keyspaces.remove(&id);
                continue;
            }
            if known.tables.is_empty() {
                // The log decides the name.
                continue;
            }
            let is_used = |name: &str| state.keyspaces.values().any(|known| known.name == name);
            let name = new_name(id, is_used);
            if let Some(known) = state.keyspaces.get_mut(&id) {
                Arc::make_mut(known).name.clone_from(&name);
            }
            found.unnamed.push(name);
        }
        found
    }
}

/// Returns a name for the keyspace `id` that is not used.
fn new_name(id: u64, is_used: impl Fn(&str) -> bool) -> String {
    let mut name = format!("recovered-{id}");
    while is_used(&name) {
        name.push('+');
    }
    name
}

impl Repair<'_> {
    /// Returns the keyspace of an entry of the log; `None` if it was dropped.
    ///
    /// Without a manifest, a keyspace may be known only from entries after the lost segment that
    /// names it. It then gets a new name.
    pub(super) fn saved_of(&mut self, id: u64) -> Result<Option<&mut Saved>> {
        let is_unknown =
            self.logs.is_some() && !self.saved.contains_key(&id) && !self.dropped.contains(&id);
        if is_unknown {
            let emptied = self.emptied.remove(&id);
            match emptied.filter(|emptied| !self.has_name(&emptied.name)) {
                Some(emptied) => self.create(id, &emptied.name, &emptied.options)?,
                None => match self.changes.name(id).map(str::to_owned) {
                    Some(name) if !self.has_name(&name) => {
                        self.create(id, &name, &KeyspaceOptions::new().encode())?;
                    }
                    _ => self.create_unnamed(id, &KeyspaceOptions::new().encode())?,
                },
            }
        }
        Ok(self.saved.get_mut(&id))
    }

    fn has_name(&self, name: &str) -> bool {
        self.saved.values().any(|saved| saved.keyspace.name() == name)
    }

    /// Creates a keyspace with a new name.
    fn create_unnamed(&mut self, id: u64, encoded: &[u8]) -> Result<()> {
        let mut name = new_name(id, |name| self.has_name(name));
        if id == DEFAULT_ID && !self.has_name(DEFAULT_KEYSPACE) {
            DEFAULT_KEYSPACE.clone_into(&mut name);
        }
        self.create(id, &name, encoded)?;
        self.unnamed.push(name);
        Ok(())
    }

    /// Creates a keyspace that the log names. Two logs may name it: a rewritten one, and its
    /// predecessor. If a newer one has its name, it was dropped, or renamed later. An older one
    /// with its name was dropped or renamed before.
    pub(super) fn create_without_manifest(
        &mut self,
        id: u64,
        name: &str,
        encoded: &[u8],
    ) -> Result<()> {
        if self.saved.contains_key(&id) || self.dropped.contains(&id) {
            return Ok(());
        }
        let renamed = self.changes.name(id).map(str::to_owned);
        let name = renamed.as_deref().unwrap_or(name);
        if self.is_cut {
            // A lost segment may drop it.
            let known = self.emptied.entry(id).or_default();
            if known.name.is_empty() {
                let (name, options) = (name.to_owned(), encoded.to_vec());
                *known = Arc::new(KeyspaceState { name, options, ..KeyspaceState::default() });
            }
            return Ok(());
        }
        let emptied = self.emptied.remove(&id);
        // Options of a table are newer.
        let encoded = emptied.as_ref().map_or(encoded, |emptied| &emptied.options);
        let namesake = self.saved.iter().find(|(_, saved)| saved.keyspace.name() == name);
        match namesake.map(|(&other, _)| other) {
            Some(_) if self.changes.is_dropped(id) => {
                self.dropped.insert(id);
                return Ok(());
            }
            Some(other) if other > id || other == DEFAULT_ID => {
                return self.create_unnamed(id, encoded);
            }
            Some(other) if self.changes.is_dropped(other) => {
                self.saved.remove(&other);
                self.dropped.insert(other);
                self.db.drop_keyspace(name)?;
            }
            Some(other) => {
                let renamed = new_name(other, |name| self.has_name(name));
                self.db.rename_keyspace(name, &renamed)?;
                self.unnamed.push(renamed);
            }
            None => {}
        }
        self.create(id, name, encoded)
    }
}
