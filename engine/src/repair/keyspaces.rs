//! Keyspaces that only the log names.

use std::sync::Arc;

use super::{Repair, Saved};
use crate::{DEFAULT_KEYSPACE, KeyspaceOptions, Result, manifest::KeyspaceState};

/// The default keyspace is created with the store.
pub(super) const DEFAULT_ID: u64 = 1;

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
                    _ => self.create_unnamed(id)?,
                },
            }
        }
        Ok(self.saved.get_mut(&id))
    }

    fn has_name(&self, name: &str) -> bool {
        self.saved.values().any(|saved| saved.keyspace.name() == name)
    }

    fn create_unnamed(&mut self, id: u64) -> Result<()> {
        let mut name = format!("recovered-{id}");
        while self.has_name(&name) {
            name.push('+');
        }
        if id == DEFAULT_ID && !self.has_name(DEFAULT_KEYSPACE) {
            DEFAULT_KEYSPACE.clone_into(&mut name);
        }
        self.create(id, &name, &KeyspaceOptions::new().encode())?;
        self.unnamed.push(name);
        Ok(())
    }

    /// Creates a keyspace that the log names, unless a newer one has its name: then it was dropped.
    /// Two logs may name it: a rewritten one, and its predecessor.
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
            Some(other) if other > id => {
                self.dropped.insert(id);
                return Ok(());
            }
            Some(other) => {
                self.saved.remove(&other);
                self.dropped.insert(other);
                if name != DEFAULT_KEYSPACE {
                    self.db.drop_keyspace(name)?;
                }
            }
            None => {}
        }
        self.create(id, name, encoded)
    }
}
