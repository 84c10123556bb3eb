//! Keeps log segments for the change stream that the store no longer needs.
//!
//! Below the floor of the log a segment is obsolete, unless the same edit of the manifest retains
//! it. By then it is durable with its seal, so that bytes missing later are damage. Recovery does
//! not replay it.

use std::path::PathBuf;

use sievedb_format::SequenceNumber;

use super::Store;
use crate::{
    ChangeRetention, Options, Result,
    file_name::FileName,
    manifest::{
        ManifestState, VersionEdit,
        retained::{RetainedChanges, RetainedLog, RetentionChanged},
    },
    wal::replay::ReplayedSegment,
};

impl Store {
    /// Returns whether log segments are kept for their changes.
    pub(super) fn is_retaining(&self) -> bool {
        self.versions.read_manifest(|manifest| manifest.state().retained.is_some())
    }

    /// Returns after which sequence number all changes are kept, and the length of the segments
    /// that are kept for them.
    pub(super) fn retained_stats(&self) -> (Option<SequenceNumber>, u64) {
        self.versions.read_manifest(|manifest| {
            let retained = manifest.state().retained.as_ref();
            let bytes = retained.map_or(0, RetainedChanges::bytes);
            (retained.map(|retained| retained.from), bytes)
        })
    }

    /// Raises the floor of the log. The segments below are retained within the limits of the
    /// retention; others become obsolete. `last_sequence` is noted too. Applies the limits also if
    /// the floor stays.
    pub(super) fn leave_logs_below(
        &self,
        floor: u64,
        last_sequence: Option<SequenceNumber>,
    ) -> Result<()> {
        let left = match self.is_retaining() {
            true => self.writer.log().sync_below(self, floor)?,
            false => Vec::new(),
        };
        let (now_ms, mut dropped) = (self.versions.clock().now_ms(), Vec::new());
        let change = |state: &ManifestState| {
            if state.log_floor >= floor {
                return None;
            }
            let log_floor = Some(floor);
            let mut edit = VersionEdit { log_floor, last_sequence, ..VersionEdit::default() };
            dropped = match &state.retained {
                Some(retained) => retire(state, retained, &left, now_ms, &mut edit),
                None => state.logs.range(..floor).map(|(&id, _)| id).collect(),
            };
            Some(edit)
        };
        if self.edit_manifest(change, |edited| edited)? {
            let values = self.writer.log().remove_below(floor);
            self.push_logs(&dropped);
            // After the log that refers to them.
            drop(values);
            return Ok(());
        }
        self.drop_old_changes()
    }

    /// Drops the segments beyond the limits of the retention.
    pub(super) fn drop_old_changes(&self) -> Result<()> {
        let (now_ms, mut dropped) = (self.versions.clock().now_ms(), Vec::new());
        let change = |state: &ManifestState| {
            let retained = state.retained.as_ref()?;
            let mut edit = VersionEdit::default();
            dropped = drop_due(retained, now_ms, &mut edit);
            (!dropped.is_empty()).then_some(edit)
        };
        self.edit_manifest(change, |_| ())?;
        self.push_logs(&dropped);
        Ok(())
    }

    fn push_logs(&self, ids: &[u64]) {
        for &id in ids {
            self.tables.obsolete_files.push(self.log_path(id));
        }
    }

    fn log_path(&self, id: u64) -> PathBuf {
        FileName::Log(id).path(&self.tables.folder)
    }
}

/// Adds to `edit`, which raises the floor of the log, that the segments `left` below it are
/// retained. Returns the ids of those that become obsolete.
fn retire(
    state: &ManifestState,
    retained: &RetainedChanges,
    left: &[ReplayedSegment],
    now_ms: u64,
    edit: &mut VersionEdit,
) -> Vec<u64> {
    let floor = edit.log_floor.unwrap_or(state.log_floor);
    let newest = retained.logs.last_key_value();
    let mut before = newest.map_or(retained.from, |(_, log)| log.last_sequence);
    for &ReplayedSegment { id, bytes, last_sequence } in left {
        let Some(&secret) = state.logs.get(&id).filter(|_| id < floor) else { continue };
        // A segment without a batch may have a lower number.
        let last_sequence = last_sequence.max(before);
        before = last_sequence;
        edit.logs_retained
            .push((id, RetainedLog { secret, last_sequence, bytes, retired_ms: now_ms }));
    }
    drop_due(retained, now_ms, edit)
}

/// Adds to `edit` that the segments beyond the limits are dropped. Returns their ids.
fn drop_due(retained: &RetainedChanges, now_ms: u64, edit: &mut VersionEdit) -> Vec<u64> {
    edit.retained_floor = retained.due_floor(&edit.logs_retained, now_ms);
    let Some(floor) = edit.retained_floor else { return Vec::new() };
    let ids = retained.logs.keys().chain(edit.logs_retained.iter().map(|(id, _)| id));
    ids.copied().filter(|&id| id < floor.id).collect()
}

/// Returns the retention of the opening, if it differs from the stored one. Later openings without
/// it use the stored one. `last` is the last sequence number.
pub(super) fn changed_retention(
    options: &Options,
    state: &ManifestState,
    last: SequenceNumber,
) -> Option<RetentionChanged> {
    let given = options.change_retention?;
    let stored = state.retained.as_ref().map_or(ChangeRetention::none(), |kept| kept.limits);
    let is_same = given == stored || (given.is_none() && stored.is_none());
    (!is_same).then_some(RetentionChanged { limits: given, from: last })
}

/// Returns whether the changes of the replayed log are kept: they were, and are after `changed`.
pub(super) fn keeps_changes(state: &ManifestState, changed: Option<&RetentionChanged>) -> bool {
    state.retained.is_some() && changed.is_none_or(|changed| !changed.limits.is_none())
}
