//! Restores a backup, and the archived log after it.

use std::{collections::BTreeSet, path::Path, sync::Arc};

use bytes::Bytes;
use sievedb_format::SequenceNumber;

use super::{
    Backup, BackupSet, RestoreOptions, chain::Chain, log_part::ArchivedBatch, record::StoredFile,
    restrict, restrict::Keyspaces, wrong_content,
};
#[cfg(doc)]
use crate::PointInTime;
use crate::{
    Error, Result,
    encryption::StoredFs,
    file_name::FileName,
    log::{BUFFER_BYTES_MAX, Payload, PendingRecord, Position, Writer},
    manifest::{ManifestState, VersionEdit},
    store::checkpoint::target::Target,
    wal::batch::{Batch, Entry},
};

/// A restored store without its tables.
#[derive(Debug)]
pub(super) struct Begun {
    pub(super) backup: Backup,
    pub(super) state: ManifestState,
    /// Files that the store lacks.
    pub(super) files: Vec<StoredFile>,
}

impl BackupSet {
    /// Writes the backup `number` into a new store in the directory `to`, which must be missing or
    /// empty. Every file is compared with its checksum. The store is durable at return.
    ///
    /// # Errors
    ///
    /// After an error, the directory has no store, and files of the call are removed.
    ///
    /// * [`Error::NoBackup`].
    /// * [`Error::Corrupt`]: a file of the backup is damaged or missing.
    /// * [`Error::NewerRelease`].
    /// * [`Error::Encrypted`], [`Error::NotEncrypted`], [`Error::NoKey`], [`Error::WrongKey`]: the
    ///   set requires other keys, or none.
    /// * [`Error::DirectoryNotEmpty`], [`Error::NotADirectory`], [`Error::Locked`].
    /// * [`Error::DirectoriesOverlap`]: one directory is or contains the other.
    /// * [`Error::Io`].
    pub fn restore(&self, number: u64, to: impl AsRef<Path>) -> Result<Backup> {
        self.restore_with(&RestoreOptions::new().backup(number), to)
    }

    /// Restores the backup and the point that `options` select, as [`restore`](Self::restore) does.
    /// The returned backup has the sequence number of the restored store.
    ///
    /// # Errors
    ///
    /// As [`restore`](Self::restore), and:
    ///
    /// * [`Error::NotArchived`]: no backup and archived log reach the
    ///   [point](RestoreOptions::to).
    /// * [`Error::Corrupt`]: a part of the archived log is damaged or missing.
    /// * [`Error::IngestNotArchived`]: the archived log up to the point has an
    ///   [ingest](crate::Keyspace::ingest). Restore a backup made after it, or a point before it.
    /// * [`Error::NoKeyspace`]: there is no such keyspace at that point.
    pub fn restore_with(&self, options: &RestoreOptions, to: impl AsRef<Path>) -> Result<Backup> {
        let files = StoredFs::new(Arc::clone(&self.fs), self.keys.as_ref(), false);
        // First: a wrong directory fails at once, before the log is read.
        let mut target = Target::create(files, self.objects.directory(), to.as_ref())?;
        let chain = self.chain(options)?;
        let Begun { backup, state, files } = self.begin(chain, options, &target)?;
        for file in &files {
            self.fetch(&target, file)?;
        }
        target.finish(state)?;
        Ok(backup)
    }

    /// Writes the log of `chain`, which `options` select.
    pub(super) fn begin(
        &self,
        chain: Chain,
        options: &RestoreOptions,
        target: &Target,
    ) -> Result<Begun> {
        let is_log = |file: &&StoredFile| matches!(parsed(file), Some(FileName::Log(_)));
        for file in chain.record.files.iter().filter(is_log) {
            self.fetch(target, file)?;
        }
        let mut state = chain.record.state.clone();
        let values = target.value_files(&state)?;
        let is_value = |file: &&StoredFile| match parsed(file) {
            Some(FileName::Blobs(id)) => values.contains(&id),
            _ => false,
        };
        for file in chain.record.files.iter().filter(is_value) {
            self.fetch(target, file)?;
        }
        let sequence = self.add_log(target, &chain, &mut state)?;
        if let Some(wanted) = &options.keyspaces {
            let mut keyspaces = Keyspaces::new(&state);
            target.replay(&state, |batch| keyspaces.apply(&batch))?;
            let edit = keyspaces.restrict_to(wanted, sequence)?;
            let restricted = restrict::apply(&mut state, &edit, sequence);
            restricted.map_err(|source| self.corrupt_record(chain.number, source))?;
        }
        let needed = table_files(&state);
        let is_needed =
            |file: &&StoredFile| parsed(file).is_some_and(|it| needed.contains(&it.id()));
        let backup = chain.record.backup(chain.number);
        let backup = Backup { sequence, archived_to: sequence, ..backup };
        let files = chain.record.files.into_iter();
        let is_left = |file: &StoredFile| !is_log(&file) && !is_value(&file) && is_needed(&file);
        let files = files.filter(is_left).collect();
        Ok(Begun { backup, state, files })
    }

    /// Writes a file of a backup.
    fn fetch(&self, target: &Target, file: &StoredFile) -> Result<()> {
        let (object, path) = self.open_object(file)?;
        let found = target.write(&file.name, &*object, &path, file.bytes)?;
        if found == file.digest[0] {
            Ok(())
        } else {
            Err(wrong_content(&path, file.digest[0], found))
        }
    }

    /// Refuses a batch after which the archived log is incomplete.
    ///
    /// # Errors
    ///
    /// [`Error::IngestNotArchived`].
    fn check_no_ingest(&self, batch: &ArchivedBatch) -> Result<()> {
        let corrupt = |source| Error::corrupt(&self.path, 0, source);
        let entries = Batch::decode(batch.payload.clone()).map_err(corrupt)?;
        for (sequence, entry) in (batch.first..).zip(&entries) {
            if let Entry::Ingest { .. } = entry.map_err(corrupt)? {
                return Err(Error::IngestNotArchived { path: self.path.clone(), sequence });
            }
        }
        Ok(())
    }

    /// Adds the archived log of `chain` as a segment. Returns the sequence number of the last
    /// write.
    fn add_log(&self, target: &Target, chain: &Chain, state: &mut ManifestState) -> Result<u64> {
        let mut last = chain.record.sequence;
        let (mut samples, mut whole_ms) = (Vec::new(), 0);
        if !chain.parts.is_empty() {
            let mark = state.log_mark;
            let store_id = state.store_id;
            target.add_segment(state, |writer| {
                for &range in &chain.parts {
                    let part = self.part(range, store_id)?;
                    samples.extend(part.samples);
                    if range.upto <= chain.last {
                        whole_ms = whole_ms.max(part.whole_ms.unwrap_or(0));
                    }
                    let mut group =
                        Group { writer: &mut *writer, records: Vec::new(), bytes: 0, mark };
                    for batch in part.batches {
                        // Parts may overlap after an interrupted update.
                        if batch.first > last && batch.last <= chain.last {
                            last = batch.last;
                            self.check_no_ingest(&batch)?;
                            group.add(batch.first, batch.payload)?;
                        }
                    }
                    group.append()?;
                }
                writer.sync_data()?;
                let mark = writer.position();
                writer.seal(mark)?;
                writer.sync_data()
            })?;
        }
        let sampled = samples.iter().filter(|(_, sequence)| *sequence <= chain.last);
        let sampled_ms = sampled.map(|&(ms, _)| ms).max().unwrap_or(0);
        let clock_ms = state.store_clock_ms.max(sampled_ms).max(whole_ms);
        let mut known_ms = state.sequence_times.samples().last().map_or(0, |&(ms, _)| ms);
        // Overlapping parts have the same samples.
        samples.retain(|&(ms, sequence)| {
            let is_new = ms > known_ms && sequence <= last;
            known_ms = if is_new { ms } else { known_ms };
            is_new
        });
        let edit = VersionEdit {
            last_sequence: Some(last),
            store_clock_ms: Some(chain.at_ms.unwrap_or(clock_ms)),
            sequence_times: samples,
            ..VersionEdit::default()
        };
        let applied = state.apply(&edit);
        applied.map_err(|source| self.corrupt_record(chain.number, source)).map(|()| last)
    }
}

/// Records written by one append.
struct Group<'w> {
    writer: &'w mut Writer,
    records: Vec<PendingRecord>,
    bytes: usize,
    mark: Position,
}

impl Group<'_> {
    fn add(&mut self, sequence: SequenceNumber, payload: Bytes) -> Result<()> {
        self.bytes += payload.len();
        self.records.push(PendingRecord { sequence, payload: Payload::new(payload) });
        if self.bytes >= BUFFER_BYTES_MAX { self.append() } else { Ok(()) }
    }

    fn append(&mut self) -> Result<()> {
        self.bytes = 0;
        self.writer.append(&self.records, self.mark)?;
        self.records.clear();
        Ok(())
    }
}

fn parsed(file: &StoredFile) -> Option<FileName<'_>> {
    FileName::parse(&file.name)
}

/// Returns the ids of the tables and filters of a store.
fn table_files(state: &ManifestState) -> BTreeSet<Option<u64>> {
    let tables = state.keyspaces.values().flat_map(|keyspace| keyspace.tables.values());
    tables
        .flat_map(|table| table.filter_files().chain(table.blob_file_ids()).chain([table.id]))
        .map(Some)
        .collect()
}
