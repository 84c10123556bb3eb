//! Table files as the table format reads them: opened when needed, every read counted.

use std::{
    io,
    ops::Range,
    path::{Path, PathBuf},
    sync::Arc,
};

use bytes::Bytes;
use quick_cache::sync::Cache;
use sievedb_sstable::TableSource;

use crate::{
    Error, Result,
    fs::{Fs, ReadFile},
    options::ReadMode,
    stats::Counters,
};

/// Opens table files, and keeps those used most recently open.
#[derive(Debug)]
pub(crate) struct TableFiles {
    fs: Arc<dyn Fs>,
    mode: ReadMode,
    open: Arc<Cache<u64, Arc<dyn ReadFile>>>,
    counters: Arc<Counters>,
}

impl TableFiles {
    pub(crate) fn new(
        fs: Arc<dyn Fs>,
        mode: ReadMode,
        open_files_max: usize,
        counters: Arc<Counters>,
    ) -> Self {
        Self { fs, mode, open: Arc::new(Cache::new(open_files_max)), counters }
    }

    /// The file `path` with number `id`, for as long as its table lives.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if it cannot be opened or, in [`ReadMode::Map`], mapped.
    pub(crate) fn source(&self, id: u64, path: PathBuf) -> Result<Arc<dyn TableSource>> {
        let counters = Arc::clone(&self.counters);
        let file = self.fs.open(&path).map_err(|error| Error::io("open", &path, error))?;
        if self.mode == ReadMode::Map {
            let bytes = file.map().map_err(|error| Error::io("map", &path, error))?;
            return Ok(Arc::new(MappedTable { bytes, counters }));
        }
        let bytes = file.len().map_err(|error| Error::io("measure", &path, error))?;
        let (fs, open) = (Arc::clone(&self.fs), Arc::clone(&self.open));
        open.insert(id, file);
        Ok(Arc::new(TableFile { fs, id, path, bytes, open, counters }))
    }
}

impl TableFiles {
    /// The file `path`, to be read once.
    ///
    /// # Errors
    ///
    /// What the operating system says.
    pub(crate) fn source_once(&self, path: &Path) -> io::Result<Arc<dyn TableSource>> {
        let file = self.fs.open(path)?;
        let bytes = file.len()?;
        Ok(Arc::new(OpenFile { file, bytes, counters: Arc::clone(&self.counters) }))
    }
}

/// A file that is open for as long as it is read.
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
    fs: Arc<dyn Fs>,
    id: u64,
    path: PathBuf,
    bytes: u64,
    open: Arc<Cache<u64, Arc<dyn ReadFile>>>,
    counters: Arc<Counters>,
}

impl TableSource for TableFile {
    fn len(&self) -> u64 {
        self.bytes
    }

    fn read_at(&self, offset: u64, bytes: usize) -> io::Result<Bytes> {
        let file = self.open.get_or_insert_with(&self.id, || self.fs.open(&self.path))?;
        let mut buffer = vec![0; bytes];
        file.read_at(&mut buffer, offset)?;
        count_read(&self.counters, bytes);
        Ok(buffer.into())
    }

    fn will_read(&self, places: &[Range<u64>]) {
        // If it cannot be opened, the read that follows tells.
        let Ok(file) = self.open.get_or_insert_with(&self.id, || self.fs.open(&self.path)) else {
            return;
        };
        for place in places {
            file.will_read(place.clone());
        }
    }
}

impl Drop for TableFile {
    fn drop(&mut self) {
        self.open.remove(&self.id);
    }
}

/// A table file in a memory map.
#[derive(Debug)]
struct MappedTable {
    bytes: Bytes,
    counters: Arc<Counters>,
}

impl TableSource for MappedTable {
    fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn is_mapped(&self) -> bool {
        true
    }

    fn read_at(&self, offset: u64, bytes: usize) -> io::Result<Bytes> {
        let start = usize::try_from(offset).ok();
        let range = start.and_then(|start| Some(start..start.checked_add(bytes)?));
        let range = range.filter(|range| range.end <= self.bytes.len());
        let range = range.ok_or(io::ErrorKind::UnexpectedEof)?;
        count_read(&self.counters, bytes);
        Ok(self.bytes.slice(range))
    }
}

fn count_read(counters: &Counters, bytes: usize) {
    let local = counters.local();
    local.read_calls.add(1);
    local.read_bytes.add(bytes as u64);
}
