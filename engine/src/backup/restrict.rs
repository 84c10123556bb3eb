//! Restricts the state of a store to selected keyspaces.

use std::collections::BTreeMap;

use sievedb_format::{Corruption, SequenceNumber};

use crate::{
    Error, Result,
    keyspace_options::DEFAULT_KEYSPACE,
    manifest::{KeyspaceCreated, KeyspaceRenamed, ManifestState, VersionEdit},
    wal::{batch::Entry, replay::ReplayedBatch},
};

/// The keyspaces at a position of the log.
#[derive(Debug)]
pub(super) struct Keyspaces<'a> {
    state: &'a ManifestState,
    names: BTreeMap<u64, String>,
    /// Keyspaces renamed in the log, with the sequence number of the last rename.
    renamed: BTreeMap<u64, SequenceNumber>,
    /// Keyspaces created in the log, not in `state`.
    created: BTreeMap<u64, KeyspaceCreated>,
    next_id: u64,
}

impl<'a> Keyspaces<'a> {
    pub(super) fn new(state: &'a ManifestState) -> Self {
        let names = state.keyspaces.iter().map(|(&id, known)| (id, known.name.clone())).collect();
        let (renamed, created) = (BTreeMap::new(), BTreeMap::new());
        Self { state, names, renamed, created, next_id: state.next_keyspace_id }
    }

    /// Applies a batch, as the recovery of the log does.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`].
    pub(super) fn apply(&mut self, replayed: &ReplayedBatch<'_>) -> Result<()> {
        for (sequence, entry) in (replayed.sequence..).zip(&replayed.batch) {
            match entry.map_err(|source| replayed.corrupt(source))? {
                Entry::CreateKeyspace { keyspace: id, name, options } if id >= self.next_id => {
                    self.next_id = id + 1;
                    self.names.insert(id, name.to_owned());
                    let (name, options) = (name.to_owned(), options.to_owned());
                    self.created.insert(id, KeyspaceCreated { id, name, options });
                }
                Entry::RenameKeyspace { keyspace, name } => {
                    let renamed = self.state.keyspaces.get(&keyspace).map_or(0, |it| it.renamed);
                    if let Some(known) =
                        self.names.get_mut(&keyspace).filter(|_| sequence > renamed)
                    {
                        name.clone_into(known);
                        self.renamed.insert(keyspace, sequence);
                    }
                }
                Entry::DropKeyspace { keyspace } => {
                    self.names.remove(&keyspace);
                }
                Entry::CreateKeyspace { .. }
                | Entry::ClearKeyspace { .. }
                | Entry::Point { .. }
                | Entry::RemoveRange { .. }
                | Entry::Ingest { .. }
                | Entry::Ignored { .. } => {}
            }
        }
        Ok(())
    }

    /// Returns the edit that drops all keyspaces other than `wanted`, and clears the default one
    /// unless it is wanted. `last` is the last sequence number.
    ///
    /// The log is unchanged: recovery treats the ids of the other keyspaces as those of keyspaces
    /// that the manifest dropped.
    ///
    /// # Errors
    ///
    /// [`Error::NoKeyspace`].
    pub(super) fn restrict_to(
        self,
        wanted: &[String],
        last: SequenceNumber,
    ) -> Result<VersionEdit> {
        let is_known = |name: &&String| self.names.values().any(|known| known == *name);
        if let Some(name) = wanted.iter().find(|name| !is_known(name)) {
            return Err(Error::NoKeyspace { name: name.clone() });
        }
        let mut edit =
            VersionEdit { next_keyspace_id: Some(self.next_id), ..VersionEdit::default() };
        edit.last_sequence = Some(last);
        let is_wanted = |id: &u64| self.names.get(id).is_some_and(|name| wanted.contains(name));
        let default = self.names.iter().find(|(_, name)| *name == DEFAULT_KEYSPACE);
        let default = default.map(|(&id, _)| id).filter(|id| !is_wanted(id));
        let is_left = |id: &u64| is_wanted(id) || default == Some(*id);
        let others = self.state.keyspaces.keys().copied();
        edit.keyspaces_dropped = others.filter(|id| !is_left(id)).collect();
        let created = self.created.into_values();
        edit.keyspaces_created = created.filter(|created| is_left(&created.id)).collect();
        // Uses their last names: another keyspace may have an earlier name of one of them.
        let renamed = self.renamed.iter().filter(|(id, _)| is_left(id));
        let renamed = renamed.filter_map(|(&id, &sequence)| {
            let name = self.names.get(&id)?.clone();
            Some(KeyspaceRenamed { id, sequence, name })
        });
        edit.keyspaces_renamed = renamed.collect();
        edit.keyspaces_cleared = default.map(|id| (id, last)).into_iter().collect();
        Ok(edit)
    }
}

/// Applies [`restrict_to`](Keyspaces::restrict_to).
///
/// # Errors
///
/// [`Corruption`] if the edit does not match the state.
pub(super) fn apply(
    state: &mut ManifestState,
    edit: &VersionEdit,
    last: SequenceNumber,
) -> Result<(), Corruption> {
    state.apply(edit)?;
    if let Some(retained) = &mut state.retained {
        // Earlier changes include those of other keyspaces.
        retained.from = last;
    }
    Ok(())
}
