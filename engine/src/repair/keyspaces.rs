//! Keyspaces that the log has, and no table.

use super::{Repair, Saved};
use crate::{DEFAULT_KEYSPACE, KeyspaceOptions, Result};

/// Id of the default keyspace: it is created with the store.
const DEFAULT_ID: u64 = 1;

impl Repair<'_> {
    /// Returns the keyspace of an entry of the log; `None` if it is gone.
    ///
    /// Without a manifest a keyspace may be in the log alone, behind the segment that names it: it
    /// gets a name of its own.
    pub(super) fn saved_of(&mut self, id: u64) -> Result<Option<&mut Saved>> {
        let is_unnamed = self.rebuilt_log.is_some()
            && !self.saved.contains_key(&id)
            && !self.dropped.contains(&id);
        if is_unnamed {
            let has = |name: &str| self.saved.values().any(|saved| saved.keyspace.name() == name);
            let mut name = format!("recovered-{id}");
            while has(&name) {
                name.push('+');
            }
            if id == DEFAULT_ID && !has(DEFAULT_KEYSPACE) {
                DEFAULT_KEYSPACE.clone_into(&mut name);
            }
            self.create(id, &name, &KeyspaceOptions::new().encode())?;
            self.unnamed.push(name);
        }
        Ok(self.saved.get_mut(&id))
    }

    /// Creates a keyspace that the log names, unless a newer one has its name: it was dropped then.
    /// Two logs may name it: a rewritten one, and the one before.
    pub(super) fn create_without_manifest(
        &mut self,
        id: u64,
        name: &str,
        encoded: &[u8],
    ) -> Result<()> {
        if self.saved.contains_key(&id) || self.dropped.contains(&id) {
            return Ok(());
        }
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
