//! Blob files written beside a table.

use std::{collections::BTreeMap, mem, sync::Arc};

use sievedb_format::InternalKey;
use sievedb_sstable::{BlobIdentity, BlobUse, BlobWriter};

use super::{
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
    keyspace_options::KeyspaceOptions,
    resolve::{blob_for, is_lasting_value},
};

/// Shorter appends to a blob file are buffered.
const BUFFER_BYTES: usize = 64 << 10;

/// Moves long values of a table into blob files, and counts the bytes that its entries refer to.
#[derive(Debug)]
pub(crate) struct BlobOutput<'a> {
    tables: &'a TableStore,
    options: &'a KeyspaceOptions,
    /// The file being written.
    open: Option<OpenFile>,
    /// New files of the present table: obsolete unless the table is finished.
    finished: Vec<Unfinished>,
    /// Files that the present table refers to.
    used: BTreeMap<u64, BlobUse>,
    /// Encoded reference.
    stored: Vec<u8>,
    /// A planted bug.
    misplaces: bool,
    /// Charge of the buffer, if there may be one.
    _taken: Option<ShareTaken>,
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

impl<'a> BlobOutput<'a> {
    pub(crate) fn new(
        tables: &'a TableStore,
        options: &'a KeyspaceOptions,
        share: &Arc<WorkerShare>,
        misplaces: bool,
    ) -> Self {
        let taken = options.blob_value_bytes.map(|_| share.take(BUFFER_BYTES as u64));
        let (open, finished, used, stored) = Default::default();
        Self { tables, options, open, finished, used, stored, misplaces, _taken: taken }
    }

    /// Adds an entry to `table`. A long value goes to a blob file.
    ///
    /// # Errors
    ///
    /// [`Error::Io`].
    pub(crate) fn add(
        &mut self,
        table: &mut TableBuilder,
        key: InternalKey<'_>,
        value: &[u8],
    ) -> Result<()> {
        let is_long = |bytes: u64| value.len() as u64 >= bytes;
        if !is_lasting_value(key.trailer) || !self.options.blob_value_bytes.is_some_and(is_long) {
            return table.add(key, value);
        }
        let mut stored = mem::take(&mut self.stored);
        stored.clear();
        self.store(value, &mut stored)?;
        let added = table.add(InternalKey::new(key.user_key, blob_for(key.trailer)), &stored);
        self.stored = stored;
        added
    }

    /// Adds an entry whose value stays where it is.
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
        // Two versions of a key may name one value only in a damaged table.
        used.used_bytes = used.used_bytes.saturating_add(blob.reference.bytes).min(used.bytes);
        table.add(key, stored)
    }

    /// Writes a value, and appends its reference to `stored`.
    fn store(&mut self, value: &[u8], stored: &mut Vec<u8>) -> Result<()> {
        if self.open.as_ref().is_some_and(|open| open.writer.bytes() >= self.options.table_bytes) {
            self.finish_file()?;
        }
        let open = match &mut self.open {
            Some(open) => open,
            None => self.open.insert(create(self.tables, self.options)?),
        };
        let added = open.writer.add(value);
        let mut reference =
            added.map_err(|error| Error::io("write", &open.unfinished.path, error))?;
        open.used_bytes += reference.bytes;
        reference.offset += u64::from(self.misplaces);
        reference.encode(stored);
        Ok(())
    }

    /// Makes the data of the open file durable.
    fn finish_file(&mut self) -> Result<()> {
        let Some(OpenFile { writer, file, unfinished, id, used_bytes }) = self.open.take() else {
            return Ok(());
        };
        let path = &unfinished.path;
        let (_, written) = writer.finish().map_err(|error| Error::io("write", path, error))?;
        self.tables.check_not_closing()?;
        file.sync_data().map_err(|error| Error::sync_of_new_file(path, error))?;
        self.used.insert(id, BlobUse { used_bytes, ..written });
        self.finished.push(unfinished);
        Ok(())
    }

    /// Ends the files of the present table, before it is finished. Returns all files that it refers
    /// to, ascending, and the new ones among them. Their directory entries are not durable.
    ///
    /// # Errors
    ///
    /// [`Error::Io`]; [`Error::Closed`] instead of a sync if the store is closing.
    pub(crate) fn end_table(&mut self) -> Result<(Vec<BlobUse>, NewBlobs)> {
        self.finish_file()?;
        let used = mem::take(&mut self.used).into_values().collect();
        Ok((used, NewBlobs(mem::take(&mut self.finished))))
    }
}

fn create(tables: &TableStore, options: &KeyspaceOptions) -> Result<OpenFile> {
    let id = tables.new_file_id();
    let path = FileName::Blobs(id).path(&tables.folder);
    let file = tables.fs.create(&path).map_err(|error| Error::io("create", &path, error))?;
    let unfinished = Unfinished::new(path, &tables.obsolete_files);
    let path = &unfinished.path;
    let salt = tables.fs.random_u64();
    let salt = salt.map_err(|error| Error::io("draw a random number for", path, error))?;
    let identity = BlobIdentity { store_id: tables.store_id, file_id: id, salt };
    let sink = FileSink(Arc::clone(&file));
    let writer = BlobWriter::new(sink, identity, options.compression, BUFFER_BYTES);
    let writer = writer.map_err(|error| Error::io("write", path, error))?;
    Ok(OpenFile { writer, file, unfinished, id, used_bytes: 0 })
}
