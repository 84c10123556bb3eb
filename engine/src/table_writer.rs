//! Writes a table outside of any store.

use std::{
    fmt, mem,
    path::{Path, PathBuf},
    sync::Arc,
};

use bytes::Bytes;
use sievedb_filter::FilterKind;
use sievedb_format::{InternalKey, SequenceNumber};
use sievedb_sstable::{TableIdentity, TableSummary, TableWriter as Writer};

use crate::{
    Error, KeyspaceOptions, Result,
    commit::check_entry,
    error::SYNC,
    filter_policy::FilterChoice,
    fs::{AppendFile, Fs, RealFs},
    gate::Gate,
    resolve::put_at,
    table::unfinished::FileSink,
};

/// A writer of ascending entries to a table file outside of any store.
///
/// [`Keyspace::ingest_files`](crate::Keyspace::ingest_files) adds such files to a store. Several
/// processes or machines can write them, and several stores can ingest the same file. RocksDB:
/// `SstFileWriter`.
///
/// The file has no filter: a store that ingests it builds one. The file is not encrypted. The
/// writer buffers a few hundred KiB, or the longest entry. With a zstd dictionary it also buffers
/// 100 times the length of the dictionary. A drop without [`finish`](Self::finish) removes the
/// file.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// use sievedb::{Db, KeyspaceOptions, TableWriter};
///
/// let path = dir.path().join("new.sst");
/// let mut writer = TableWriter::create(&path, &KeyspaceOptions::new())?;
/// writer.insert("anna", "1")?;
/// writer.insert("bert", "2")?;
/// assert_eq!(writer.finish()?.entries, 2);
///
/// let db = Db::open(dir.path().join("db"))?;
/// db.ingest_files([&path])?;
/// assert_eq!(db.get("bert")?.as_deref(), Some(&b"2"[..]));
/// # Ok::<(), sievedb::Error>(())
/// ```
#[must_use = "a table is removed unless it is finished"]
pub struct TableWriter {
    writer: Option<Writer<FileSink>>,
    file: Arc<dyn AppendFile>,
    fs: Arc<dyn Fs>,
    path: PathBuf,
    last_key: Vec<u8>,
    /// A forked child does not remove the file.
    gate: Gate,
}

/// Result of a finished [`TableWriter`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct WrittenTable {
    /// Number of entries.
    pub entries: u64,
    /// Length of the file, in bytes.
    pub bytes: u64,
}

/// Sequence number of all entries.
const SEQUENCE: SequenceNumber = 1;

impl TableWriter {
    /// Creates the file `path`, which must not exist. Of `options`, only
    /// [`block_bytes`](KeyspaceOptions::block_bytes) and
    /// [`compression`](KeyspaceOptions::compression) have an effect.
    ///
    /// # Errors
    ///
    /// [`Error::Io`], [`Error::InvalidOption`].
    pub fn create(path: impl AsRef<Path>, options: &KeyspaceOptions) -> Result<Self> {
        Self::with_fs(path, Arc::new(RealFs), options)
    }

    /// Creates a file as [`create`](Self::create) does, on the file system `fs`.
    ///
    /// # Errors
    ///
    /// As [`create`](Self::create).
    pub fn with_fs(
        path: impl AsRef<Path>,
        fs: Arc<dyn Fs>,
        options: &KeyspaceOptions,
    ) -> Result<Self> {
        options.validate()?;
        let path = path.as_ref();
        let path = fs.absolute(path).map_err(|error| Error::io("locate", path, error))?;
        let salt = fs.random_u64();
        let salt = salt.map_err(|error| Error::io("draw a random number for", &path, error))?;
        let file = fs.create(&path).map_err(|error| Error::io("create", &path, error))?;
        let (last_key, gate) = (Vec::new(), Gate::new());
        let mut created = Self { writer: None, file: Arc::clone(&file), fs, path, last_key, gate };
        // The table belongs to no store.
        let identity = TableIdentity { store_id: 0, file_id: 0, salt, hash_seed: 0 };
        let no_filter = FilterChoice { kind: FilterKind::BlockedBloom, bits_per_key: 0.0 };
        let options = KeyspaceOptions::new()
            .block_bytes(options.block_bytes)
            .compression(options.compression)
            .table_options(no_filter);
        let writer = Writer::new(FileSink(file), identity, options);
        created.writer = Some(writer.map_err(|error| Error::io("write", &created.path, error))?);
        Ok(created)
    }

    /// Adds an entry, whose key must be above all earlier keys.
    ///
    /// # Errors
    ///
    /// * The entry was not added, and the writer can continue: [`Error::KeysNotAscending`],
    ///   [`Error::KeyTooLong`], [`Error::ValueTooLong`].
    /// * The writer must be dropped: [`Error::Io`], also of a full disk.
    pub fn insert(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        let (key, value) = (key.as_ref(), value.as_ref());
        check_entry(key, value)?;
        if self.entries() > 0 && key <= &*self.last_key {
            return Err(Error::KeysNotAscending { key: Bytes::copy_from_slice(key) });
        }
        self.add(SEQUENCE, key, value)?;
        self.last_key.clear();
        self.last_key.extend_from_slice(key);
        Ok(())
    }

    /// Adds an entry with a sequence number.
    pub(crate) fn add(&mut self, sequence: SequenceNumber, key: &[u8], value: &[u8]) -> Result<()> {
        let mut writer = self.writer.take().ok_or_else(|| self.failed())?;
        let added = writer.add(InternalKey::new(key, put_at(sequence)), value);
        added.map_err(|error| Error::io("write", &self.path, error))?;
        // After an error the writer is unusable.
        self.writer = Some(writer);
        Ok(())
    }

    fn failed(&self) -> Error {
        Error::io("write", &self.path, std::io::Error::other("an earlier write failed"))
    }

    /// Returns the number of entries added so far.
    #[must_use]
    pub fn entries(&self) -> u64 {
        self.writer.as_ref().map_or(0, Writer::entries)
    }

    /// Returns the approximate length of the file so far, in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.writer.as_ref().map_or(0, Writer::estimated_bytes)
    }

    /// Writes the rest of the table, and makes the file and its name durable.
    ///
    /// # Errors
    ///
    /// [`Error::Io`]; the file is removed.
    pub fn finish(mut self) -> Result<WrittenTable> {
        let TableSummary { entries, bytes, .. } = self.end()?;
        if let Some(dir) = self.path.parent() {
            self.fs.sync_dir(dir).map_err(|error| Error::io(SYNC, dir, error))?;
        }
        self.keep();
        Ok(WrittenTable { entries, bytes })
    }

    /// Writes the rest of a table whose name need not be durable.
    ///
    /// Syncs the file, because the sync writes the last page of an encrypted file.
    pub(crate) fn end(&mut self) -> Result<TableSummary> {
        let writer = self.writer.take().ok_or_else(|| self.failed())?;
        let finished = writer.finish();
        let (_, summary) = finished.map_err(|error| Error::io("write", &self.path, error))?;
        self.file.sync_data().map_err(|error| Error::io(SYNC, &self.path, error))?;
        Ok(summary)
    }

    /// Keeps the file, and returns its path.
    pub(crate) fn keep(&mut self) -> PathBuf {
        mem::take(&mut self.path)
    }
}

impl Drop for TableWriter {
    fn drop(&mut self) {
        if !self.path.as_os_str().is_empty() && !self.gate.is_forked() {
            // If this fails, the caller can remove the file.
            let _ = self.fs.unlink(&self.path);
        }
    }
}

impl fmt::Debug for TableWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("TableWriter");
        debug.field("path", &self.path).field("entries", &self.entries()).finish_non_exhaustive()
    }
}
