//! Links the files of a store into the directory of a new one.
//!
//! | file        | content                                             |
//! |-------------|-----------------------------------------------------|
//! | `mod`       | the steps of a checkpoint                           |
//! | [`capture`] | the files at one point in time                      |
//! | [`parts`]   | reads files to copy                                 |
//! | [`target`]  | the directory of the checkpoint                     |
//!
//! The captured bytes of all files never change, so links suffice. Writers append to the newest
//! segment of the log. A new segment in the checkpoint records its captured end, as that of a
//! segment to which an append has failed.

pub(crate) mod capture;
pub(crate) mod parts;
pub(crate) mod target;

use std::{collections::BTreeSet, io, path::Path, sync::Arc};

use sievedb_format::SequenceNumber;

use self::{capture::Capture, target::Target};
use crate::{
    Checkpoint, Error, Result, commit::WrittenSegment, file_name::FileName,
    manifest::ManifestState, planted::PlantedBug, store::Store,
};

impl Store {
    /// Creates a checkpoint in the directory `to`.
    ///
    /// # Errors
    ///
    /// As [`Db::checkpoint`](crate::Db::checkpoint).
    pub(crate) fn checkpoint(&self, to: &Path) -> Result<Checkpoint> {
        self.check_own_files()?;
        self.check_known()?;
        let mut target = Target::create(self.target.clone(), Some(&self.tables.folder), to)?;
        let created = self.capture_durable().and_then(|capture| self.fill(&mut target, &capture));
        self.release_captured();
        // Once the store is closed, another process may unlink files.
        created.map_err(|error| self.tables.check_not_closing().err().unwrap_or(error))
    }

    /// Captures the files of the store when all of them are durable and its newest write is
    /// visible. [`release_captured`](Self::release_captured) must follow the drop.
    ///
    /// # Errors
    ///
    /// [`Error::ReadOnly`] after a failure of the store; [`Error::Io`].
    pub(crate) fn capture_durable(&self) -> Result<Capture<'_>> {
        self.check_own_files()?;
        self.check_known()?;
        let capture = self.capture()?;
        if !self.options.read_only {
            self.writer.publish().wait_visible(capture.sequence);
            if !self.options.has_bug(PlantedBug::CheckpointWithoutLogSync) {
                self.sync_segments(capture.sequence, &capture.segments)?;
            }
            self.check_known()?;
        }
        Ok(capture)
    }

    /// Unlinks the files that became obsolete while they were captured.
    pub(crate) fn release_captured(&self) {
        self.scheduler.wake();
    }

    /// Refuses a store whose state on the disk is unknown.
    fn check_known(&self) -> Result<()> {
        if self.options.read_only { Ok(()) } else { self.versions.check_writable() }
    }

    fn fill(&self, target: &mut Target, capture: &Capture<'_>) -> Result<Checkpoint> {
        let mut state = capture.state.clone();
        if self.options.has_bug(PlantedBug::OmitTableFromCheckpoint) {
            omit_table(&mut state);
        }
        self.add_tables(target, &state)?;
        self.add_log(target, capture)?;
        target.end_log(&mut state)?;
        target.finish(state)?;
        let Target { files_linked, files_copied, bytes_copied, .. } = *target;
        let (sequence, writers_paused) = (capture.sequence, capture.paused);
        Ok(Checkpoint { sequence, files_linked, files_copied, bytes_copied, writers_paused })
    }

    /// Makes the captured log durable up to `sequence`, its newest write.
    fn sync_segments(&self, sequence: SequenceNumber, segments: &[WrittenSegment]) -> Result<()> {
        // Also the newest segment: a crash must not leave the store behind its checkpoint.
        self.writer.log().sync_to(self, sequence)?;
        // The seals of finished segments may follow the newest write.
        let finished = segments.split_last().map_or(&[][..], |(_, finished)| finished);
        finished.iter().try_for_each(|segment| segment.sync(self))
    }

    fn add_tables(&self, target: &mut Target, state: &ManifestState) -> Result<()> {
        let (folder, needed) = (&*self.tables.folder, || self.tables.check_not_closing());
        let mut blobs = BTreeSet::new();
        for table in state.keyspaces.values().flat_map(|keyspace| keyspace.tables.values()) {
            blobs.extend(table.blob_file_ids());
            target.add(FileName::Table(table.id), folder, None, &needed)?;
            let filters: BTreeSet<_> = table.filter_files().filter(|&id| id != table.id).collect();
            for id in filters {
                match target.add(FileName::Filter(id), folder, None, &needed) {
                    // The store works without a lost filter, and so does the checkpoint.
                    Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
                    added => added?,
                }
            }
        }
        if self.options.has_bug(PlantedBug::OmitBlobFileFromCheckpoint) {
            blobs.pop_first();
        }
        for id in blobs {
            target.add(FileName::Blobs(id), folder, None, &needed)?;
        }
        Ok(())
    }

    fn add_log(&self, target: &mut Target, capture: &Capture<'_>) -> Result<()> {
        let (folder, needed) = (&*self.tables.folder, || self.tables.check_not_closing());
        let values = capture.value_files().into_iter();
        let values = values.map(|(id, bytes)| (FileName::Blobs(id), bytes));
        let segments = capture.segments.iter();
        let segments = segments.map(|segment| (FileName::Log(segment.id), Some(segment.bytes)));
        for (name, bytes) in values.chain(segments) {
            match self.options.read_only {
                false => target.add(name, folder, bytes, &needed)?,
                // No process may have synced all bytes.
                true => target.copy(name, folder, bytes, &needed)?,
            }
        }
        Ok(())
    }
}

/// Removes a table from `state`, if there is one.
fn omit_table(state: &mut ManifestState) {
    let keyspace = state.keyspaces.values_mut().find(|keyspace| !keyspace.tables.is_empty());
    if let Some(keyspace) = keyspace {
        Arc::make_mut(keyspace).tables.pop_first();
    }
}
