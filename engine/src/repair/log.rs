//! The log of a damaged store.

use std::sync::Arc;

use sievedb_format::{Corruption, Kind, RangeTombstone, SequenceNumber, Trailer};

use super::{OlderValues, Repair, Saved, copied::Copied, lost::check_lost};
use crate::{
    Error, Result,
    resolve::{is_operand, is_tombstone},
    store::verify::segments_of,
    wal::{batch::Entry, chain::Segments, replay::ReplayedBatch, replay::replay_readable},
};

impl Repair<'_> {
    /// Copies the log up to its first damage. Without a manifest there may be several logs.
    pub(super) fn log(&mut self, names: &[String]) -> Result<()> {
        for log in self.logs.unwrap_or_default() {
            self.is_cut = log.is_cut;
            self.log_of(&log.ids, &log.ids)?;
        }
        if self.logs.is_some() {
            return Ok(());
        }
        let (named, on_disk) = segments_of(&self.loaded.state, names);
        self.log_of(&named, &on_disk)
    }

    fn log_of(&mut self, named: &[u64], on_disk: &[u64]) -> Result<()> {
        let loaded = self.loaded;
        let (fs, folder) = (Arc::clone(self.fs()), self.folder);
        let store_id = loaded.state.store_id;
        let segments = Segments {
            fs: &fs,
            folder,
            store_id,
            named,
            secrets: &loaded.state.logs,
            floor: loaded.state.log_floor,
            on_disk,
            written: None,
        };
        // Errors of the new store, which are no damage to the old one.
        let mut refused = None;
        let replayed = replay_readable(&segments, loaded.state.log_mark, |batch| {
            self.batch(&batch).map_err(|error| match error {
                BatchError::Damaged(source) => batch.corrupt(source),
                BatchError::Refused(error) => refused.insert(error).clone(),
            })?;
            self.found.log_batches += 1;
            Ok(())
        });
        if let Some(error) = refused {
            return Err(error);
        }
        // The lost manifest is reported already.
        let vouched = |manifest| match self.logs {
            Some(_) => Ok(()),
            None => loaded.check_vouched(folder, manifest),
        };
        let checked = replayed.and_then(|replayed| vouched(replayed.manifest));
        if let Err(error) = checked {
            check_lost(&error)?;
            self.found.error(&error);
        }
        Ok(())
    }

    fn batch(&mut self, replayed: &ReplayedBatch<'_>) -> Result<(), BatchError> {
        let (state, is_rebuilt) = (&self.loaded.state, self.logs.is_some());
        for (sequence, entry) in (replayed.sequence..).zip(&replayed.batch) {
            let flushed = |id| {
                let flushed = state.keyspaces.get(&id).map_or(0, |known| known.flushed);
                flushed.max(self.changes.cleared(id))
            };
            match entry? {
                Entry::Point { keyspace, kind, key, value } if sequence > flushed(keyspace) => {
                    match replayed.error_of(&value) {
                        Some(error) => self.lost_entry(keyspace, sequence, key, error)?,
                        None => self.entry(keyspace, sequence, kind, key, &value)?,
                    }
                }
                Entry::RemoveRange { keyspace, start, end } if sequence > flushed(keyspace) => {
                    self.range(keyspace, RangeTombstone::new(start, end, sequence))?;
                }
                Entry::CreateKeyspace { keyspace, name, options } => {
                    if is_rebuilt {
                        self.create_without_manifest(keyspace, name, options)?;
                    } else if keyspace >= state.next_keyspace_id {
                        // The manifest has the other keyspaces, or dropped them.
                        self.create(keyspace, name, options)?;
                    }
                }
                Entry::DropKeyspace { keyspace } => {
                    self.dropped.insert(keyspace);
                    if let Some(Saved { keyspace, .. }) = self.saved.remove(&keyspace) {
                        self.db.drop_keyspace(&keyspace.name())?;
                    }
                }
                Entry::ClearKeyspace { keyspace } if sequence > flushed(keyspace) => {
                    if let Some(saved) = self.saved.get_mut(&keyspace) {
                        saved.clear()?;
                    }
                }
                Entry::RenameKeyspace { keyspace, name } => {
                    let renamed = state.keyspaces.get(&keyspace).map_or(0, |known| known.renamed);
                    // Without a manifest each keyspace has its last name from the start.
                    let is_new = !is_rebuilt && sequence > renamed;
                    if let Some(saved) = self.saved.get(&keyspace).filter(|_| is_new) {
                        self.db.rename_keyspace(&saved.keyspace.name(), name)?;
                    }
                }
                // The versions are in a table, the clears in the manifest.
                Entry::Point { .. }
                | Entry::RemoveRange { .. }
                | Entry::ClearKeyspace { .. }
                | Entry::Ingest { .. }
                | Entry::Ignored { .. } => {}
            }
        }
        Ok(())
    }
}

impl Repair<'_> {
    /// Removes a range of keys that no table removes.
    fn range(&mut self, keyspace: u64, tombstone: RangeTombstone) -> Result<()> {
        let is_rebuilt = self.logs.is_some();
        let Some(saved) = self.saved_of(keyspace)? else { return Ok(()) };
        match is_rebuilt {
            true => saved.remove_older(tombstone),
            false => saved.remove_range(&tombstone),
        }
    }

    /// Records that the value of an entry is lost, which is in no table.
    fn lost_entry(
        &mut self,
        keyspace: u64,
        sequence: SequenceNumber,
        key: &[u8],
        error: &Error,
    ) -> Result<()> {
        let (older, is_rebuilt) = (self.older, self.logs.is_some());
        let Some(saved) = self.saved_of(keyspace)? else { return Ok(()) };
        if is_rebuilt {
            // A table may have the entry.
            let is_removed = saved.is_removed(sequence, key);
            if is_removed || saved.compare_newest(sequence, key).is_le() {
                return Ok(());
            }
        }
        saved.note_older(older, key, |_| Ok(()))?;
        let (name, first) = (saved.keyspace.name(), self.found.problems.len());
        self.lost_value(key, error)?;
        self.name_keyspace(first, &name);
        Ok(())
    }

    /// Copies an entry that is in no table.
    fn entry(
        &mut self,
        keyspace: u64,
        sequence: SequenceNumber,
        kind: Kind,
        key: &[u8],
        value: &[u8],
    ) -> Result<()> {
        let trailer = Trailer::new(sequence, kind);
        let copied = is_operand(trailer).then(|| Copied::new(key, value, self.is_cut, 0));
        let value = (!is_tombstone(trailer)).then_some((kind, value));
        let (older, is_cut, is_rebuilt) = (self.older, self.is_cut, self.logs.is_some());
        if is_cut && older == OlderValues::LeaveOut && !self.saved.contains_key(&keyspace) {
            self.older_left_out += u64::from(value.is_some());
            return Ok(());
        }
        let Some(saved) = self.saved_of(keyspace)? else { return Ok(()) };
        if is_rebuilt {
            if saved.is_removed(sequence, key) {
                return Ok(());
            }
            let order = saved.compare_newest(sequence, key);
            // A table may have the entry. An operand must not count twice.
            if order.is_lt() || (order.is_eq() && copied.is_some()) {
                return Ok(());
            }
        }
        if let Some(copied) = copied {
            return saved.merge(older, &copied, None);
        }
        match is_cut {
            true => saved.note_older(older, key, |saved| saved.store(key, value)),
            false => saved.put(key, value),
        }
    }
}

enum BatchError {
    Damaged(Corruption),
    /// The new store refused an entry.
    Refused(Error),
}

impl From<Corruption> for BatchError {
    fn from(source: Corruption) -> Self {
        Self::Damaged(source)
    }
}

impl From<Error> for BatchError {
    fn from(error: Error) -> Self {
        Self::Refused(error)
    }
}
