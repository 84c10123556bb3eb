//! A table being written, within the share of a worker.

#[cfg(all(test, not(feature = "shuttle")))]
mod tests;

use std::sync::Arc;

use sievedb_format::{InternalKey, RangeTombstone};
use sievedb_sstable::{TableIdentity, TableOrigin, TableSummary, TableWriter};

use crate::{
    Error, Result,
    fs::AppendFile,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    table::TablePlace,
    table::cache_room::ShareTaken,
    table::room::{ENTRIES_CHARGED, TableRoom},
    table::unfinished::{FileSink, Unfinished},
    table::{FilterPlace, PrefixFilterPlace, TableMeta},
};

/// Minimum bytes of an entry that is charged before it is copied.
const LONG_ENTRY_BYTES: u64 = 16 << 10;
/// Number of copies of a long entry. It is in the block being built and in its content, then in the
/// content and compressed, which may be longer.
const LONG_ENTRY_COPIES: u64 = 3;
/// Bytes of entries between measurements of the writer's memory.
const UNMEASURED_BYTES_MAX: u64 = 64 << 10;

/// A table being written. Its file is obsolete if it is dropped before it is finished.
#[derive(Debug)]
pub(crate) struct TableBuilder {
    writer: TableWriter<FileSink>,
    file: Arc<dyn AppendFile>,
    unfinished: Unfinished,
    identity: TableIdentity,
    room: TableRoom,
    entries_charged: u64,
    /// Bytes of entries since the last measurement.
    unmeasured_bytes: u64,
    taken: ShareTaken,
    is_closing: Arc<AtomicBool>,
}

impl TableBuilder {
    /// Returns a table without entries; `taken` is the initial charge of `room`.
    pub(super) fn new(
        writer: TableWriter<FileSink>,
        file: Arc<dyn AppendFile>,
        unfinished: Unfinished,
        identity: TableIdentity,
        room: TableRoom,
        taken: ShareTaken,
        is_closing: Arc<AtomicBool>,
    ) -> Self {
        Self {
            writer,
            file,
            unfinished,
            identity,
            room,
            entries_charged: 0,
            unmeasured_bytes: 0,
            taken,
            is_closing,
        }
    }

    /// Returns `true` if the table must end here for lack of memory. Each entry takes memory for
    /// the filter, and each index partition for the top index.
    pub(crate) fn has_its_share(&self) -> bool {
        let next = if self.is_charge_due() { ENTRIES_CHARGED * self.room.entry_bytes } else { 0 };
        let growing = self.entry_charge() + self.writer.growing_memory_bytes() as u64;
        let is_filter_full = |keys_max| self.writer.entries() >= keys_max;
        growing + next > self.room.growing_bytes_max
            || self.room.filter_keys_max.is_some_and(is_filter_full)
    }

    /// Returns `true` if the next entry exceeds the charged ones.
    fn is_charge_due(&self) -> bool {
        self.writer.entries() == self.entries_charged
    }

    fn entry_charge(&self) -> u64 {
        self.entries_charged * self.room.entry_bytes
    }

    /// Charges the memory of the writer and its entries, and `more` bytes.
    fn measure(&mut self, more: u64) {
        let writer_bytes = self.room.first_bytes.max(self.writer.memory_bytes() as u64);
        let filter_bytes = self.room.filter_bytes + self.entry_charge();
        self.taken.set(writer_bytes + filter_bytes + more);
        self.unmeasured_bytes = 0;
    }

    /// # Errors
    ///
    /// [`Error::Io`].
    pub(crate) fn add(&mut self, key: InternalKey<'_>, value: &[u8]) -> Result<()> {
        self.charge((key.user_key.len() + value.len()) as u64);
        self.writer
            .add(key, value)
            .map_err(|error| Error::io("write", &self.unfinished.path, error))
    }

    /// Adds a range tombstone, in any order.
    ///
    /// # Errors
    ///
    /// [`Error::Io`].
    pub(crate) fn add_range_tombstone(&mut self, tombstone: RangeTombstone) -> Result<()> {
        self.charge((tombstone.start.len() + tombstone.end.len()) as u64);
        self.writer
            .add_range_tombstone(tombstone)
            .map_err(|error| Error::io("write", &self.unfinished.path, error))
    }

    /// Charges an entry of `bytes` bytes before it is added.
    fn charge(&mut self, bytes: u64) {
        self.unmeasured_bytes += bytes;
        let is_long = bytes > LONG_ENTRY_BYTES;
        let is_charge_due = self.is_charge_due();
        if is_charge_due {
            self.entries_charged += ENTRIES_CHARGED;
        }
        if is_charge_due || is_long || self.unmeasured_bytes > UNMEASURED_BYTES_MAX {
            self.measure(if is_long { LONG_ENTRY_COPIES * bytes } else { 0 });
        }
    }

    /// Returns the number of the file.
    pub(crate) fn id(&self) -> u64 {
        self.identity.file_id
    }

    /// Returns `true` if nothing was added.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries() == 0
    }

    /// Returns the number of entries so far, with range tombstones.
    pub(crate) fn entries(&self) -> u64 {
        self.writer.entries()
    }

    /// Returns the estimated length of the file so far, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.writer.estimated_bytes()
    }

    /// Writes the rest with `origin` and makes the data durable, but not the directory entry.
    /// `blob_depth` of the blob files in `origin` alternate.
    ///
    /// # Errors
    ///
    /// [`Error::Io`]; [`Error::Closed`] instead of the sync if the store is closing.
    pub(crate) fn finish(
        self,
        place: TablePlace,
        origin: TableOrigin,
        blob_depth: u64,
    ) -> Result<Arc<TableMeta>> {
        let blob_files = origin.blob_files.clone();
        let Self { mut writer, file, mut unfinished, identity, taken: _taken, is_closing, .. } =
            self;
        let path = &unfinished.path;
        writer.set_origin(origin);
        let is_closing = || is_closing.load(Relaxed);
        let finished = writer.finish_cancellable(&is_closing);
        if is_closing() {
            return Err(Error::Closed);
        }
        let (_, summary) = finished.map_err(|error| Error::io("write", path, error))?;
        file.sync_data().map_err(|error| Error::sync_of_new_file(path, error))?;
        unfinished.finish();
        let meta = meta(&identity, place, summary);
        Ok(Arc::new(TableMeta { blob_files, blob_depth, ..meta }))
    }
}

fn meta(identity: &TableIdentity, place: TablePlace, summary: TableSummary) -> TableMeta {
    let (id, salt) = (identity.file_id, identity.salt);
    let in_table = |place| FilterPlace::in_file(id, place);
    TableMeta {
        id,
        level: place.level,
        run: place.run,
        bytes: summary.bytes,
        checksum: summary.checksum,
        salt,
        filter: summary.filter.map(in_table),
        prefix_filter: summary
            .prefix_filter
            .zip(summary.prefix_extractor)
            .map(|(place, extractor)| PrefixFilterPlace { place: in_table(place), extractor }),
        range_filter: summary.range_filter.map(in_table),
        global_sequence: None,
        bounds: summary.bounds,
        entries: summary.entries,
        tombstones: summary.tombstones,
        range_tombstones: summary.range_tombstones,
        smallest_sequence: summary.smallest_sequence,
        largest_sequence: summary.largest_sequence,
        expiry: summary.expiry,
        blob_files: Vec::new(),
        blob_depth: 0,
        written_ms: None,
    }
}
