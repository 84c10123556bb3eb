//! Number of reads of a table during an open.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use sievedb::{
    Options,
    fs::{Fs, ReadFile},
};
use sievedb_doubles::{Loss, MemoryFs};
use sievedb_tests::layer::{Layer, Layered};

use super::small_store::{STORE_DIR, flush, names, open};

/// Reads of a table.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Reads {
    all: usize,
    /// Reads that contain the last byte, which is part of the footer.
    of_footer: usize,
}

type ReadsOfTables = Arc<Mutex<BTreeMap<PathBuf, Reads>>>;

/// A layer that counts reads of tables.
#[derive(Debug)]
struct Counting {
    disk: Arc<MemoryFs>,
    reads: ReadsOfTables,
}

impl Layer for Counting {
    fn inner(&self) -> &dyn Fs {
        &*self.disk
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn ReadFile>> {
        let file = self.disk.open(path)?;
        if path.extension().is_none_or(|extension| extension != "sst") {
            return Ok(file);
        }
        let reads = Arc::clone(&self.reads);
        Ok(Arc::new(CountingFile { file, path: path.to_owned(), reads }))
    }
}

#[derive(Debug)]
struct CountingFile {
    file: Arc<dyn ReadFile>,
    path: PathBuf,
    reads: ReadsOfTables,
}

impl ReadFile for CountingFile {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let is_of_footer = offset + buf.len() as u64 == self.len()?;
        let mut reads = self.reads.lock().unwrap();
        let reads = reads.entry(self.path.clone()).or_default();
        reads.all += 1;
        reads.of_footer += usize::from(is_of_footer);
        self.file.read_at(buf, offset)
    }

    fn map(&self) -> io::Result<Bytes> {
        self.file.map()
    }
}

/// Opens the store on `disk` and returns how often each table was read.
fn reads_at_open(disk: Arc<MemoryFs>) -> Vec<Reads> {
    let reads = ReadsOfTables::default();
    let fs = Arc::new(Layered(Counting { disk, reads: Arc::clone(&reads) }));
    let db = Options::new().fs(fs).worker_threads(0).open(STORE_DIR).unwrap();
    let found = reads.lock().unwrap().values().copied().collect();
    drop(db);
    found
}

#[test]
fn n12_open_after_a_crash_reads_each_footer_once() {
    let fs = Arc::new(MemoryFs::new());
    let db = open(&fs);
    for round in 0..3 {
        flush(&db, round * 10..round * 10 + 10, "value");
    }
    db.insert("in the log", "only").unwrap();
    let crashed = Arc::new(fs.crash(fs.operations(), &Loss::Nothing));
    drop(db);
    assert_eq!(names(&fs, ".sst").len(), 3);
    let after_crash = reads_at_open(crashed);
    // One read of the header, and one of everything at the end.
    assert_eq!(after_crash, [Reads { all: 2, of_footer: 1 }; 3]);
    assert_eq!(reads_at_open(fs), after_crash, "as after a clean close");
}
