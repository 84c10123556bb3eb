//! Blob files written beside a table.

use std::{collections::BTreeMap, io, mem, path::Path, sync::Arc};

use sievedb_format::InternalKey;
use sievedb_sstable::{BlobIdentity, BlobReference, BlobUse, BlobWriter, PIECE_BYTES};

use super::{
    blob_spans::BlobSpans,
    blobs::Blob,
    builder::TableBuilder,
    cache_room::{ShareTaken, WorkerShare},
    store::TableStore,
    unfinished::{FileSink, Unfinished},
};
use crate::{
    Error, Result,
    file_name::FileName,
    fs::AppendFile,
    keyspace_options::{Compression, KeyspaceOptions},
    resolve::{blob_for, is_lasting_value},
};

/// Size of the buffer of a blob file. Longer appends bypass it.
const BUFFER_BYTES: usize = 64 << 10;
/// Number of compressed copies of a piece during its write: growing a buffer copies it.
const COMPRESSED_COPIES: usize = 2;

/// Moves long values of a table into blob files, and counts the bytes that its entries refer to.
#[derive(Debug)]
pub(crate) struct BlobOutput {
    /// Minimum length of a value that is moved.
    value_bytes_min: u64,
    file_bytes_max: u64,
    compression: Compression,
    /// The file being written.
    open: Option<OpenFile>,
    /// New files of the current table: obsolete unless the table is finished.
    finished: Vec<Unfinished>,
    finished_bytes: u64,
    /// Files to which the current table refers.
    used: BTreeMap<u64, BlobUse>,
    /// Ranges of the entries of the current table that refer to each file.
    spans: BlobSpans,
    /// Encoded reference.
    stored: Vec<u8>,
    /// A planted bug.
    misplaces: bool,
    /// Charge of the writer, from the start if the option is set.
    taken: ShareTaken,
}

#[derive(Debug)]
struct OpenFile {
    writer: BlobWriter<FileSink>,
    file: Arc<dyn AppendFile>,
    unfinished: Unfinished,
    id: u64,
    used_bytes: u64,
}

/// The new blob files of a table that is about to be finished.
#[derive(Debug)]
pub(crate) struct NewBlobs(Vec<Unfinished>);

impl NewBlobs {
    /// Keeps the files: their table is finished.
    pub(crate) fn finish(mut self) {
        self.0.iter_mut().for_each(Unfinished::finish);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl BlobOutput {
    pub(crate) fn new(
        tables: &TableStore,
        options: &KeyspaceOptions,
        share: &Arc<WorkerShare>,
        misplaces: bool,
    ) -> Self {
        let too_long = tables.unmergeable_value_bytes().max(BUFFER_BYTES as u64);
        let value_bytes_min = options.blob_value_bytes.unwrap_or(too_long);
        let taken = share.take(options.blob_value_bytes.map_or(0, |_| BUFFER_BYTES as u64));
        let (file_bytes_max, compression) = (options.table_bytes, options.compression);
        let (open, finished, finished_bytes, used, spans, stored) = Default::default();
        Self {
            value_bytes_min,
            file_bytes_max,
            compression,
            open,
            finished,
            finished_bytes,
            used,
            spans,
            stored,
            misplaces,
            taken,
        }
    }

    /// Returns `true` if a value of this length goes to a blob file.
    pub(crate) fn is_long(&self, value_bytes: u64) -> bool {
        value_bytes >= self.value_bytes_min
    }

    /// Adds an entry to `table`. A long value goes to a blob file.
    ///
    /// # Errors
    ///
    /// [`Error::Io`].
    pub(crate) fn add(
        &mut self,
        tables: &TableStore,
        table: &mut TableBuilder,
        key: InternalKey<'_>,
        value: &[u8],
    ) -> Result<()> {
        if !is_lasting_value(key.trailer) || !self.is_long(value.len() as u64) {
            return table.add(key, value);
        }
        self.store(tables, table, key, value.len(), COMPRESSED_COPIES, |writer, path| {
            writer.add(value).map_err(|error| Error::io("write", path, error))
        })
    }

    /// Adds an entry to `table` whose value of this length goes to a blob file. `fill` returns it
    /// piece by piece, as [`BlobWriter::add_from`] requires.
    ///
    /// # Errors
    ///
    /// [`Error::Io`]; those of `fill`, after which the output remains usable.
    pub(crate) fn add_from(
        &mut self,
        tables: &TableStore,
        table: &mut TableBuilder,
        key: InternalKey<'_>,
        value_bytes: u64,
        fill: impl FnMut(&mut [u8]) -> Result<()>,
    ) -> Result<()> {
        let bytes = usize::try_from(value_bytes).unwrap_or(usize::MAX);
        self.store(tables, table, key, bytes, COMPRESSED_COPIES + 1, |writer, path| {
            writer.add_from(value_bytes, fill, |error: io::Error| Error::io("write", path, error))
        })
    }

    /// Adds an entry whose value stays in its current blob file.
    ///
    /// # Errors
    ///
    /// [`Error::Io`].
    pub(crate) fn add_reference(
        &mut self,
        table: &mut TableBuilder,
        key: InternalKey<'_>,
        stored: &[u8],
        blob: &Blob,
    ) -> Result<()> {
        let unused = BlobUse { used_bytes: 0, ..blob.file.file };
        let used = self.used.entry(unused.file_id).or_insert(unused);
        // Only in a damaged table can two versions of a key refer to one value.
        self.spans.note(unused.file_id);
        used.used_bytes = used.used_bytes.saturating_add(blob.reference.bytes).min(used.bytes);
        table.add(key, stored)
    }

    /// Returns the length of the new files of the current table so far, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.finished_bytes + self.open.as_ref().map_or(0, |open| open.writer.bytes())
    }

    /// Writes a value of this length by `add`, which needs `copies` copies of a piece. Adds its
    /// entry to `table`.
    fn store(
        &mut self,
        tables: &TableStore,
        table: &mut TableBuilder,
        key: InternalKey<'_>,
        bytes: usize,
        copies: usize,
        add: impl FnOnce(&mut BlobWriter<FileSink>, &Path) -> Result<BlobReference>,
    ) -> Result<()> {
        if self.open.as_ref().is_some_and(|open| open.writer.bytes() >= self.file_bytes_max) {
            self.finish_file(tables)?;
        }
        let open = match &mut self.open {
            Some(open) => open,
            None => self.open.insert(create(tables, self.compression)?),
        };
        let is_long = bytes >= BUFFER_BYTES;
        if is_long {
            let of_pieces = copies * bytes.min(PIECE_BYTES);
            self.taken.set((open.writer.memory_bytes().max(BUFFER_BYTES) + of_pieces) as u64);
        }
        let added = add(&mut open.writer, &open.unfinished.path);
        if is_long {
            self.taken.set(open.writer.memory_bytes().max(BUFFER_BYTES) as u64);
        }
        let mut reference = added?;
        open.used_bytes += reference.bytes;
        self.spans.note(open.id);
        reference.offset += u64::from(self.misplaces);
        self.stored.clear();
        reference.encode(&mut self.stored);
        table.add(InternalKey::new(key.user_key, blob_for(key.trailer)), &self.stored)
    }

    /// Makes the data of the open file durable.
    fn finish_file(&mut self, tables: &TableStore) -> Result<()> {
        let Some(OpenFile { writer, file, unfinished, id, used_bytes }) = self.open.take() else {
            return Ok(());
        };
        if used_bytes == 0 {
            // The file has only copies that failed, and is obsolete.
            return Ok(());
        }
        let path = &unfinished.path;
        let (_, written) = writer.finish().map_err(|error| Error::io("write", path, error))?;
        tables.check_not_closing()?;
        file.sync_data().map_err(|error| Error::sync_of_new_file(path, error))?;
        self.finished_bytes += written.bytes;
        self.used.insert(id, BlobUse { used_bytes, ..written });
        self.finished.push(unfinished);
        Ok(())
    }

    /// Ends the files of the current table, before it is finished. Returns all files that it refers
    /// to, ascending, including new ones, and how many alternate. Their directory entries are not
    /// durable.
    ///
    /// # Errors
    ///
    /// [`Error::Io`]; [`Error::Closed`] instead of a sync if the store is closing.
    pub(crate) fn end_table(
        &mut self,
        tables: &TableStore,
    ) -> Result<(Vec<BlobUse>, NewBlobs, u64)> {
        self.finish_file(tables)?;
        self.finished_bytes = 0;
        let used = mem::take(&mut self.used).into_values().collect();
        let depth = self.spans.take_depth();
        Ok((used, NewBlobs(mem::take(&mut self.finished)), depth))
    }
}

fn create(tables: &TableStore, compression: Compression) -> Result<OpenFile> {
    let id = tables.new_file_id();
    let path = FileName::Blobs(id).path(&tables.folder);
    let file = tables.create_file(&path)?;
    let unfinished = Unfinished::new(path, &tables.obsolete_files);
    let path = &unfinished.path;
    let salt = tables.fs.random_u64();
    let salt = salt.map_err(|error| Error::io("draw a random number for", path, error))?;
    let identity = BlobIdentity { store_id: tables.store_id, file_id: id, salt };
    let sink = FileSink(Arc::clone(&file));
    let writer = BlobWriter::new(sink, identity, compression, BUFFER_BYTES);
    let writer = writer.map_err(|error| Error::io("write", path, error))?;
    Ok(OpenFile { writer, file, unfinished, id, used_bytes: 0 })
}
