//! Table files as sources of the table format. Opens files when needed, and counts every read.

use std::{
    error, fmt, io,
    ops::Range,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use bytes::Bytes;
use sievedb_format::Corruption;
use sievedb_sstable::{ReadError, TableSource};

use crate::{
    Error, Result,
    fs::{Fs, ReadFile},
    open_files::OpenFiles,
    options::ReadMode,
    stats::Counters,
};

/// Opens table files, and keeps the most recently used ones open.
#[derive(Debug)]
pub(crate) struct TableFiles {
    shared: Arc<Shared>,
}

/// Number of files that [`TableFiles::few_at_once`] keeps open.
const FEW_FILES: usize = 64;

#[derive(Debug)]
struct Shared {
    fs: Arc<dyn Fs>,
    mode: ReadMode,
    open: Arc<OpenFiles>,
    counters: Arc<Counters>,
    mapped_bytes: Arc<AtomicU64>,
    /// Another process may delete files in use.
    follows: bool,
}

/// The cause of a read that failed because another process has deleted the file.
#[derive(Debug)]
struct FileGone;

impl fmt::Display for FileGone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the writer of the store has deleted the file")
    }
}

impl error::Error for FileGone {}

pub(crate) fn table_error(path: &Path, error: ReadError) -> Error {
    match error {
        ReadError::Io(source) if source.get_ref().is_some_and(|it| it.is::<FileGone>()) => {
            Error::FilesGone { path: path.to_owned() }
        }
        ReadError::Io(source) => Error::io("read", path, source),
        ReadError::Corrupt { offset, source } => Error::corrupt(path, offset, source),
    }
}

impl TableFiles {
    pub(crate) fn new(
        fs: Arc<dyn Fs>,
        mode: ReadMode,
        open: Arc<OpenFiles>,
        counters: Arc<Counters>,
        follows: bool,
    ) -> Self {
        let mapped_bytes = Arc::default();
        let shared = Shared { fs, mode, open, counters, mapped_bytes, follows };
        Self { shared: Arc::new(shared) }
    }

    /// Reads by position and keeps one file open, for callers that read file after file.
    pub(crate) fn one_by_one(fs: Arc<dyn Fs>, counters: Arc<Counters>) -> Self {
        Self::new(fs, ReadMode::Pread, Arc::new(OpenFiles::new(1)), counters, false)
    }

    /// Reads by position and keeps a few files open, for callers that read many files concurrently.
    pub(crate) fn few_at_once(fs: Arc<dyn Fs>, counters: Arc<Counters>) -> Self {
        Self::new(fs, ReadMode::Pread, Arc::new(OpenFiles::new(FEW_FILES)), counters, false)
    }

    /// Returns the file `path` with number `id`, for the lifetime of its table.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] if it is missing, since the manifest names it. [`Error::Io`] if it cannot
    /// be opened or, in [`ReadMode::Map`], mapped.
    pub(crate) fn source(
        &self,
        id: u64,
        path: impl Into<Arc<Path>>,
    ) -> Result<Arc<dyn TableSource>> {
        let path = path.into();
        let Shared { ref fs, mode, .. } = *self.shared;
        let opened = open(&**fs, mode, &path);
        let file = opened.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => {
                Error::corrupt(&*path, 0, Corruption::Missing { what: "table" })
            }
            _ => Error::io("open", &*path, error),
        })?;
        let bytes = file.len().map_err(|error| Error::io("measure", &*path, error))?;
        let mapped = match mode {
            ReadMode::Map => Some(file.map().map_err(|error| Error::io("map", &*path, error))?),
            ReadMode::Pread | ReadMode::Direct => None,
        };
        let table = TableFile { shared: Arc::clone(&self.shared), id, path, bytes };
        let Some(bytes) = mapped else {
            self.shared.open.insert(id, file);
            return Ok(Arc::new(table));
        };
        let mapped_bytes = Arc::clone(&self.shared.mapped_bytes);
        let bytes = Bytes::from_owner(CountedMap::new(bytes, mapped_bytes));
        Ok(Arc::new(MappedTable { bytes, table }))
    }

    /// Reopens the file `id` at the next read: another file has replaced it under its name.
    #[cfg(feature = "encryption")]
    pub(super) fn reopen(&self, id: u64) {
        self.shared.open.remove(id);
    }

    pub(crate) fn open_files(&self) -> &Arc<OpenFiles> {
        &self.shared.open
    }

    pub(crate) fn mapped_bytes(&self) -> u64 {
        self.shared.mapped_bytes.load(Relaxed)
    }
}

fn open(fs: &dyn Fs, mode: ReadMode, path: &Path) -> io::Result<Arc<dyn ReadFile>> {
    match mode {
        ReadMode::Pread => {
            let file = fs.open(path)?;
            // Linux treats two adjacent reads as a long scan, and prefetches four times as much.
            // Scans of the engine announce their own read-ahead.
            file.reads_are_scattered();
            Ok(file)
        }
        ReadMode::Map => fs.open(path),
        ReadMode::Direct => fs.open_direct(path),
    }
}

impl TableFiles {
    /// Returns the file `path`, which stays open for one sequential read.
    ///
    /// # Errors
    ///
    /// Errors of the operating system.
    pub(crate) fn source_once(&self, path: &Path) -> io::Result<Arc<dyn TableSource>> {
        let file = self.shared.fs.open(path)?;
        let bytes = file.len()?;
        Ok(Arc::new(OpenFile { file, bytes, counters: Arc::clone(&self.shared.counters) }))
    }
}

#[derive(Debug)]
struct OpenFile {
    file: Arc<dyn ReadFile>,
    bytes: u64,
    counters: Arc<Counters>,
}

impl TableSource for OpenFile {
    fn len(&self) -> u64 {
        self.bytes
    }

    fn read_at(&self, offset: u64, bytes: usize) -> io::Result<Bytes> {
        let mut buffer = vec![0; bytes];
        self.file.read_at(&mut buffer, offset)?;
        count_read(&self.counters, bytes);
        Ok(buffer.into())
    }
}

/// A table file read by position.
#[derive(Debug)]
struct TableFile {
    shared: Arc<Shared>,
    id: u64,
    path: Arc<Path>,
    bytes: u64,
}

impl TableFile {
    fn file(&self) -> io::Result<Arc<dyn ReadFile>> {
        let Shared { fs, mode, open: files, follows, .. } = &*self.shared;
        files.get(self.id, || match open(&**fs, *mode, &self.path) {
            Err(error) if *follows && error.kind() == io::ErrorKind::NotFound => {
                Err(io::Error::new(io::ErrorKind::NotFound, FileGone))
            }
            opened => opened,
        })
    }
}

impl TableSource for TableFile {
    fn len(&self) -> u64 {
        self.bytes
    }

    fn read_at(&self, offset: u64, bytes: usize) -> io::Result<Bytes> {
        let file = self.file()?;
        let mut buffer = vec![0; bytes];
        file.read_at(&mut buffer, offset)?;
        count_read(&self.shared.counters, bytes);
        Ok(buffer.into())
    }

    fn advise_read(&self, places: &[Range<u64>]) {
        // The next read reports an error.
        let Ok(file) = self.file() else { return };
        for place in places {
            file.advise_read(place.clone());
        }
    }
}

impl Drop for TableFile {
    fn drop(&mut self) {
        self.shared.open.remove(self.id);
    }
}

/// A map, counted until the last block or value that is a slice of it is dropped.
struct CountedMap {
    bytes: Bytes,
    mapped_bytes: Arc<AtomicU64>,
}

impl CountedMap {
    fn new(bytes: Bytes, mapped_bytes: Arc<AtomicU64>) -> Self {
        mapped_bytes.fetch_add(bytes.len() as u64, Relaxed);
        Self { bytes, mapped_bytes }
    }
}

impl AsRef<[u8]> for CountedMap {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for CountedMap {
    fn drop(&mut self) {
        self.mapped_bytes.fetch_sub(self.bytes.len() as u64, Relaxed);
    }
}

#[derive(Debug)]
struct MappedTable {
    bytes: Bytes,
    /// Used for read-ahead hints, which load the pages of the map.
    table: TableFile,
}

impl TableSource for MappedTable {
    fn len(&self) -> u64 {
        self.table.bytes
    }

    fn is_mapped(&self) -> bool {
        true
    }

    fn read_at(&self, offset: u64, bytes: usize) -> io::Result<Bytes> {
        let found = TableSource::read_at(&self.bytes, offset, bytes)?;
        count_read(&self.table.shared.counters, bytes);
        Ok(found)
    }

    fn advise_read(&self, places: &[Range<u64>]) {
        self.table.advise_read(places);
    }
}

fn count_read(counters: &Counters, bytes: usize) {
    let local = counters.local();
    local.read_calls.add(1);
    local.read_bytes.add(bytes as u64);
}
