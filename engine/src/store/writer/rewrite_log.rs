//! After a crash one new log segment replaces the replayed log.
//!
//! A sync that failed before the crash may have left bytes that read well and are not on the disk.
//! So all replayed batches are written once more, to one file for all keyspaces that is synced as a
//! whole. The memtables become active ones, and no table is written.
//!
//! The new segment has no predecessor, so it counts only once the manifest names it. The edit that
//! names it raises the floor of the log above all older segments, which count until then. The next
//! recovery unlinks a segment that no manifest names.
//!
//! Records that change keyspaces are copied too. The manifest has them, but a repair without a
//! manifest needs names, clears and drops. If changes are retained, all records are copied: the old
//! segments are not known to be durable.

use std::{path::Path, sync::Arc};

use sievedb_format::{Corruption, SequenceNumber};

use crate::{
    Error, Result,
    file_name::FileName,
    fs::Fs,
    log::{BUFFER_BYTES_MAX, Payload, PendingRecord, Position, Writer},
    manifest::ManifestState,
    store::log_state::Unflushed,
    wal::{
        chain::Segments,
        replay::{ReplayedBatch, ReplayedSegment, replay},
        segment::NewSegment,
    },
};

/// A log that was replayed.
#[derive(Debug, Clone, Copy)]
pub(in crate::store) struct ReplayedLog<'a> {
    pub(in crate::store) fs: &'a Arc<dyn Fs>,
    pub(in crate::store) folder: &'a Path,
    /// State of the manifest.
    pub(in crate::store) state: &'a ManifestState,
    pub(in crate::store) segments: &'a [ReplayedSegment],
    /// Its entries that are in no table.
    pub(in crate::store) memtables: &'a Unflushed,
    /// Every batch is needed, for the change stream.
    pub(in crate::store) keeps_all: bool,
    /// As of [`Options::log_compression`](crate::Options::log_compression).
    pub(in crate::store) compresses: bool,
}

impl ReplayedLog<'_> {
    /// Writes the needed batches to segment `id`, and makes it durable.
    /// `manifest` is the one that will name the segment. Returns the segment and its secret.
    ///
    /// # Errors
    ///
    /// [`Error::Io`], [`Error::Corrupt`] if the log does not read as it did before. The segment is
    /// unlinked if possible.
    pub(in crate::store) fn rewrite(
        &self,
        id: u64,
        manifest: Position,
    ) -> Result<(ReplayedSegment, u64)> {
        let Self { fs, folder, state, .. } = *self;
        let (previous, mark) = (None, Position::default());
        let segment = NewSegment { store_id: state.store_id, id, manifest, previous, mark };
        // Its beginning is durable before the first batch: otherwise a crash could leave batches
        // without a beginning, which is damage.
        let (group, compresses) = (Vec::new(), self.compresses);
        let mut copy = Copy { writer: segment.create(&**fs, folder)?, group, bytes: 0, compresses };
        let copied = self.copy_into(&mut copy);
        let copied = copied.inspect_err(|_| unlink_segment(&**fs, folder, id))?;
        Ok((copied, copy.writer.secret()))
    }

    fn copy_into(&self, copy: &mut Copy) -> Result<ReplayedSegment> {
        let Self { fs, folder, state, segments, .. } = *self;
        let named: Vec<_> = segments.iter().map(|segment| segment.id).collect();
        let (store_id, named, on_disk) = (state.store_id, &*named, &[][..]);
        let secrets = &state.logs;
        let source =
            Segments { fs, folder, store_id, named, secrets, floor: 0, on_disk, written: None };
        let mut last_sequence = 0;
        let again = replay(&source, state.log_mark, |replayed| {
            if self.is_needed(&replayed)? {
                last_sequence = replayed.sequence + replayed.batch.entries() - 1;
                copy.add(&replayed)?;
            }
            Ok(())
        })?;
        if again.segments != segments {
            let (expected, found) = (end(segments), end(&again.segments));
            let (what, path) = ("end of the replayed log", FileName::Log(found.0).path(folder));
            let (expected, found) = (expected.1, found.1);
            return Err(Error::corrupt(
                path,
                found,
                Corruption::Mismatch { what, expected, found },
            ));
        }
        copy.finish()?;
        let Position { file_id: id, offset: bytes } = copy.writer.position();
        Ok(ReplayedSegment { id, bytes, last_sequence })
    }

    /// Returns whether a memtable holds an entry of the batch, or the batch changes keyspaces, or
    /// all are kept.
    fn is_needed(&self, replayed: &ReplayedBatch<'_>) -> Result<bool> {
        if self.keeps_all {
            return Ok(true);
        }
        for (sequence, entry) in (replayed.sequence..).zip(&replayed.batch) {
            let entry = entry.map_err(|source| replayed.corrupt(source))?;
            if entry.changes_keyspace() {
                return Ok(true);
            }
            let memtables = self.memtables.get(&entry.keyspace());
            let first = memtables.and_then(|memtables| memtables.first_sequence());
            if first.is_some_and(|first| first <= sequence) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Id and length of the last segment.
fn end(segments: &[ReplayedSegment]) -> (u64, u64) {
    segments.last().map_or((0, 0), |last| (last.id, last.bytes))
}

/// Unlinks a segment that no manifest names. A failure is harmless: the next recovery tries again.
pub(in crate::store) fn unlink_segment(fs: &dyn Fs, folder: &Path, id: u64) {
    let _ = fs.unlink(&FileName::Log(id).path(folder));
}

/// The segment that is being written.
struct Copy {
    writer: Writer,
    /// Records for the next append.
    group: Vec<PendingRecord>,
    bytes: usize,
    compresses: bool,
}

impl Copy {
    fn add(&mut self, replayed: &ReplayedBatch<'_>) -> Result<()> {
        let sequence: SequenceNumber = replayed.sequence;
        let batch = &replayed.batch;
        let payload = Payload::of_batch(batch.payload().clone(), batch.entries(), self.compresses);
        self.bytes += payload.bytes().len();
        self.group.push(PendingRecord { sequence, payload });
        if self.bytes >= BUFFER_BYTES_MAX { self.append() } else { Ok(()) }
    }

    fn append(&mut self) -> Result<()> {
        self.bytes = 0;
        self.writer.append(&self.group, Position::default())?;
        self.group.clear();
        Ok(())
    }

    /// Seals the segment and makes all of it durable.
    fn finish(&mut self) -> Result<()> {
        self.append()?;
        self.writer.seal(Position::default())?;
        self.writer.sync_data()
    }
}
