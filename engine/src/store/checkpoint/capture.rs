//! The files of a store at one point in time.
//!
//! The state of the manifest is copied while no record is written to the log. A flush syncs the log
//! before it writes tables, so the tables have no entry that the log lacks at that point. Together
//! they are what a crash at that point would leave: tables, and the log up to its last record.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use sievedb_format::SequenceNumber;

use crate::{
    Result,
    commit::WrittenSegment,
    log::{Position, Reader},
    manifest::{ManifestState, VersionEdit},
    planted::PlantedBug,
    store::{Store, log_state::corrupt_state},
    sync::MutexGuard,
    table::obsolete::Hold,
};

/// A store at one point in time, whose files are kept.
#[derive(Debug)]
pub(crate) struct Capture<'s> {
    /// Sequence number of the newest write.
    pub(crate) sequence: SequenceNumber,
    /// State for the manifest of the checkpoint.
    pub(crate) state: ManifestState,
    /// Segments of the log, oldest first. The newest one may grow behind its captured length.
    pub(crate) segments: Vec<WrittenSegment>,
    /// Time for which the log was locked.
    pub(super) paused: Duration,
    /// Kept until all files are linked.
    _hold: Hold,
    /// Of a replica: no refresh replaces the log meanwhile.
    _log_files: Option<MutexGuard<'s, ()>>,
}

impl Store {
    /// Captures the files of the store.
    ///
    /// # Errors
    ///
    /// Errors of writing the log; [`Error::Io`](crate::Error::Io),
    /// [`Error::Corrupt`](crate::Error::Corrupt) if a log segment that the manifest does not name
    /// cannot be read.
    pub(super) fn capture(&self) -> Result<Capture<'_>> {
        let log_files = self.keep_log_files()?;
        if !self.options.read_only && !self.options.has_bug(PlantedBug::CheckpointWithoutLogBuffer)
        {
            self.writer.log().write(self)?;
        }
        // An ingest is in the log before it is in the manifest.
        let no_ingest = self.versions.lock_keyspaces();
        let (state, hold, sequence, segments, paused) = loop {
            let captured = self.writer.log().read_written(|sequence, segments| {
                let start = self.options.clock.now();
                let read = self.versions.try_read_manifest(|manifest| {
                    let state = manifest.state().clone();
                    // Before an edit can make a file obsolete.
                    let hold = self.tables.obsolete_files.hold(file_ids(&state, &segments));
                    (state, hold)
                });
                let paused = self.options.clock.now().saturating_sub(start);
                read.map(|(state, hold)| (state, hold, sequence, segments, paused))
            });
            if let Some(captured) = captured {
                break captured;
            }
            // An edit waits for the disk. Writers must not wait for it, too.
            self.versions.read_manifest(|_| ());
        };
        drop(no_ingest);
        let (_hold, _log_files) = (hold, log_files);
        let mut capture = Capture { sequence, state, segments, paused, _hold, _log_files };
        self.complete(&mut capture)?;
        Ok(capture)
    }

    /// Adds what the manifest of the store gets later: the captured log and its end.
    fn complete(&self, capture: &mut Capture<'_>) -> Result<()> {
        let Capture { sequence, state, segments, .. } = capture;
        // A segment that the floor makes obsolete may not be removed yet.
        segments.retain(|segment| segment.id >= state.log_floor);
        let named = std::mem::take(&mut state.logs);
        for segment in &*segments {
            // The manifest of a read-only store may lack the newest segments.
            let secret = match named.get(&segment.id) {
                Some(&secret) => secret,
                None => self.secret_of(segment)?,
            };
            state.logs.insert(segment.id, secret);
        }
        if let Some(retained) = &mut state.retained {
            // The stream of the checkpoint begins with it.
            retained.logs.clear();
            retained.from = *sequence;
        }
        let newest = segments.last();
        let edit = VersionEdit {
            next_file_id: Some(self.tables.next_file_id()),
            last_sequence: Some(*sequence),
            store_clock_ms: Some(self.versions.clock().at_ms(self.options.clock.now())),
            log_mark: newest.map(|it| Position { file_id: it.id, offset: it.bytes }),
            sequence_times: self.versions.times_up_to(*sequence, state),
            ..VersionEdit::default()
        };
        state.apply(&edit).map_err(|source| corrupt_state(&self.tables.folder, source))
    }

    /// Returns the secret in the header of a segment.
    fn secret_of(&self, segment: &WrittenSegment) -> Result<u64> {
        let WrittenSegment { id, path, .. } = segment;
        let file = self.tables.fs.open(path);
        let file = file.map_err(|error| crate::Error::io("open", path, error))?;
        let mut reader = Reader::new(file, path.clone(), *id)?;
        let header = reader.read_header()?;
        header.map(|header| header.secret).map_err(|source| reader.corrupt(0, source))
    }
}

/// Returns the ids of all files that a checkpoint links.
fn file_ids(state: &ManifestState, segments: &[WrittenSegment]) -> Vec<u64> {
    let tables = state.keyspaces.values().flat_map(|keyspace| keyspace.tables.values());
    let tables =
        tables.flat_map(|meta| meta.filter_files().chain(meta.blob_file_ids()).chain([meta.id]));
    let values = segments.iter().flat_map(|segment| segment.values.iter().map(|&(id, _)| id));
    tables.chain(segments.iter().map(|segment| segment.id)).chain(values).collect()
}

impl Capture<'_> {
    /// Returns the blob files with values of the log that no table has: their ids, and the lengths
    /// that the log needs; `None` for the whole file.
    pub(crate) fn value_files(&self) -> BTreeMap<u64, Option<u64>> {
        let tables = self.state.keyspaces.values().flat_map(|keyspace| keyspace.tables.values());
        let of_tables: BTreeSet<_> = tables.flat_map(|table| table.blob_file_ids()).collect();
        let values = self.segments.iter().flat_map(|segment| segment.values.iter().copied());
        values.filter(|(id, _)| !of_tables.contains(id)).collect()
    }
}
