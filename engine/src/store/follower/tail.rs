//! The parts of manifest and log that a follower has read.

use std::{mem, path::Path, sync::Arc};

use sievedb_format::SequenceNumber;

use super::rest::rest_above;
use crate::{
    Options, Result,
    manifest::{ManifestState, VersionEdit, tail::ManifestTail},
    store::{
        Store,
        log_state::{LogState, Unflushed, corrupt_state},
        recovery::Recovered,
    },
    wal::followed::{Followed, FollowedLog},
    wal::replay::ReplayedSegment,
};

/// Manifest and log as far as they were read.
#[derive(Debug)]
pub(in crate::store) struct Tail {
    pub(super) manifest: ManifestTail,
    log: FollowedLog,
    /// Changes of keyspaces that the log has and the manifest lacks.
    edit: VersionEdit,
    /// Entries of the log that are in no table.
    pub(super) memtables: Unflushed,
    /// The manifest with the changes of the log.
    pub(super) state: ManifestState,
    /// State of the visible keyspaces, once they are.
    pub(super) shown: Option<ManifestState>,
    pub(super) last_sequence: SequenceNumber,
}

/// The result of a read. The follower was behind if the read took several steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Progress {
    None,
    /// All of it is visible.
    Shown {
        is_behind: bool,
    },
    /// Tables or keyspaces have changed, too.
    Changed {
        is_behind: bool,
    },
    /// The log ends at the position read.
    Interrupted,
}

/// Entries that may become visible while the state of the manifest remains.
#[derive(Debug)]
pub(super) struct Step<'a> {
    pub(super) entries: &'a Unflushed,
    pub(super) segments: &'a [ReplayedSegment],
    pub(super) last_sequence: SequenceNumber,
}

/// Maximum number of bytes of the log after which readers see what was read.
const STEP_BYTES_MAX: u64 = 1 << 20;

/// That number is the size of the largest memtable divided by this, within its bounds.
const STEP_SHARE: u64 = 32;

/// Minimum of that number.
const STEP_BYTES_MIN: u64 = 1 << 10;

impl Tail {
    /// Continues behind a `recovered` store, of which nothing was changed.
    ///
    /// # Errors
    ///
    /// [`Error::NoStore`](crate::Error::NoStore) if its creation has not ended; errors of opening
    /// the manifest.
    pub(in crate::store) fn of(
        options: &Options,
        folder: &Path,
        recovered: &Recovered,
    ) -> Result<Self> {
        let no_store = || crate::Error::NoStore { path: folder.to_owned() };
        let loaded = recovered.kept.clone().ok_or_else(no_store)?;
        let (fs, folder_path) = (Arc::clone(&options.fs), folder.to_owned());
        let manifest = ManifestTail::new(Arc::clone(&fs), folder_path.clone(), loaded)?;
        let (store_id, segments) = (recovered.state.store_id, recovered.segments.clone());
        let mut tail = Self {
            state: ManifestState::default(),
            manifest,
            log: FollowedLog::new(fs, folder_path, store_id, segments),
            edit: recovered.edit.clone(),
            memtables: recovered.memtables.clone(),
            shown: None,
            last_sequence: recovered.last_sequence,
        };
        tail.apply_edit(folder)?;
        Ok(tail)
    }

    /// Returns the segments of the log that were read, oldest first.
    pub(super) fn segments(&self) -> &[ReplayedSegment] {
        self.log.segments()
    }

    /// Reads the next part of the log. Inserts new batches into the memtables, and calls `show` for
    /// entries that readers may see at once. After an error the tail is unusable.
    ///
    /// # Errors
    ///
    /// [`Error::Io`](crate::Error::Io), [`Error::Corrupt`](crate::Error::Corrupt), errors of
    /// options that this process lacks.
    pub(super) fn read(
        &mut self,
        store: &Store,
        mut show: impl FnMut(&Step<'_>),
    ) -> Result<Progress> {
        // First: what it has of the history is in the log or in tables.
        let before = self.manifest.read()?;
        let (options, memory) = (&store.options, &store.tables.memory);
        // The batches follow those of the state before: flushed ones, too.
        let state = before.as_ref().unwrap_or(self.manifest.state());
        let (edit, memtables) = (mem::take(&mut self.edit), mem::take(&mut self.memtables));
        let mut log = LogState::resume(options, state, memory, edit, memtables);
        let mut largest = 0;
        for tree in store.versions.trees().values() {
            let bytes = tree.options().memtable_bytes;
            log.note_memtable_bytes(tree.id, bytes);
            largest = largest.max(bytes);
        }
        let step_bytes = (largest as u64 / STEP_SHARE).clamp(STEP_BYTES_MIN, STEP_BYTES_MAX);
        let (mut steps, mut is_shown) = (0, true);
        loop {
            let mut has_batches = false;
            let followed = self.log.read(&self.manifest.state().logs, step_bytes, |batch| {
                has_batches = true;
                log.apply(&batch)
            })?;
            log.check_features()?;
            if log.ingested() > self.manifest.state().last_sequence {
                // The manifest gets the tables of the ingest just now, unless it fails.
                return Ok(Progress::Interrupted);
            }
            if followed == Followed::Interrupted {
                return Ok(Progress::Interrupted);
            }
            if has_batches {
                steps += 1;
                let segments = self.log.segments();
                let last = segments.last().map_or(0, |segment| segment.last_sequence);
                self.last_sequence = last.max(self.last_sequence);
                // With new tables, whose opening may fail, the rest becomes visible at once.
                let is_rest = followed == Followed::ToEnd && before.is_some();
                let entries = log.entries().filter(|_| !is_rest);
                is_shown = entries.is_some();
                if let Some(entries) = entries {
                    show(&Step { entries, segments, last_sequence: self.last_sequence });
                }
            }
            if followed == Followed::ToEnd {
                break;
            }
        }
        (self.edit, self.memtables) = log.into_parts();
        self.last_sequence = self.manifest.state().last_sequence.max(self.last_sequence);
        if before.is_some() {
            self.log.retain(&self.manifest.state().logs);
            self.leave_recorded();
        }
        let is_changed = before.is_some() || !is_shown;
        if is_changed {
            self.apply_edit(&store.tables.folder)?;
            self.leave_flushed(store);
        }
        let is_behind = steps > 1;
        Ok(match (is_changed, steps) {
            (true, _) => Progress::Changed { is_behind },
            (false, 0) => Progress::None,
            (false, _) => Progress::Shown { is_behind },
        })
    }

    /// Removes the changes of keyspaces that the manifest has by now.
    fn leave_recorded(&mut self) {
        let (edit, state) = (&mut self.edit, self.manifest.state());
        let next_id = state.next_keyspace_id;
        let is_known = |id: u64| id >= next_id || state.keyspaces.contains_key(&id);
        let of = |id: u64| state.keyspaces.get(&id);
        edit.keyspaces_created.retain(|created| created.id >= next_id);
        edit.keyspaces_dropped.retain(|&id| is_known(id));
        edit.keyspaces_cleared.retain(|&(id, sequence)| {
            is_known(id) && of(id).is_none_or(|known| sequence > known.flushed)
        });
        edit.keyspaces_renamed.retain(|renamed| {
            is_known(renamed.id) && of(renamed.id).is_none_or(|it| renamed.sequence > it.renamed)
        });
    }

    /// Applies the changes of the log to the state of the manifest.
    fn apply_edit(&mut self, folder: &Path) -> Result<()> {
        self.state = self.manifest.state().clone();
        self.state.apply(&self.edit).map_err(|source| corrupt_state(folder, source))
    }

    /// Removes memtables of dropped keyspaces, and those with flushed entries.
    fn leave_flushed(&mut self, store: &Store) {
        let state = &self.state;
        self.memtables.retain(|id, memtables| {
            let Some(keyspace) = state.keyspaces.get(id) else { return false };
            let tree = store.versions.trees().of_id(*id).cloned();
            let memtable_bytes = tree.map_or(0, |tree| tree.options().memtable_bytes);
            let flushed = keyspace.flushed;
            memtables.leave_flushed(flushed, memtable_bytes, |placed, bytes| {
                rest_above(placed, flushed, bytes, &store.tables)
            })
        });
    }
}
