//! `Db::verify` concurrent with synced writes.

use std::{
    io,
    path::Path,
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use sievedb::{
    Db, Durability, Options,
    fs::{AppendFile, FileLock, Fs, ReadFile},
};
use sievedb_doubles::MemoryFs;

const STORE_DIR: &str = "db";

/// A write before a read of a log, with the number of reads before it.
type Writer = Arc<Mutex<Option<(usize, Db)>>>;

/// A file system that writes to the store just before a log is read.
#[derive(Debug)]
struct WritesBeforeRead {
    disk: Arc<MemoryFs>,
    writer: Writer,
}

#[derive(Debug)]
struct ReadLog {
    file: Arc<dyn ReadFile>,
    writer: Writer,
}

/// Writes more than the first window of a reader, in synced batches.
fn write_on(db: &Db) {
    for number in 0..100_u32 {
        insert(db, number + 1000);
    }
}

fn insert(db: &Db, number: u32) {
    let mut batch = db.batch();
    batch.insert(db, number.to_be_bytes(), [7; 960]).unwrap();
    batch.commit(Durability::Disk).unwrap();
}

impl ReadFile for ReadLog {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let due = {
            let mut writer = self.writer.lock().unwrap();
            match &mut *writer {
                Some((0, _)) => writer.take(),
                Some((left, _)) => {
                    *left -= 1;
                    None
                }
                None => None,
            }
        };
        if let Some((_, db)) = due {
            write_on(&db);
        }
        self.file.read_at(buf, offset)
    }

    fn map(&self) -> io::Result<Bytes> {
        self.file.map()
    }
}

impl Fs for WritesBeforeRead {
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.disk.create_dir(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.disk.list(dir)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.disk.exists(path)
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn AppendFile>> {
        self.disk.create(path)
    }

    fn open_append(&self, path: &Path) -> io::Result<Arc<dyn AppendFile>> {
        self.disk.open_append(path)
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn ReadFile>> {
        let file = self.disk.open(path)?;
        if path.extension().is_none_or(|extension| extension != "log") {
            return Ok(file);
        }
        Ok(Arc::new(ReadLog { file, writer: Arc::clone(&self.writer) }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        self.disk.unlink(path)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk.link(from, to)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.disk.sync_dir(path)
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        self.disk.lock(path)
    }

    fn lock_shared(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        self.disk.lock_shared(path)
    }

    fn random_u64(&self) -> io::Result<u64> {
        self.disk.random_u64()
    }
}

/// The log is longer than its records: readers see zeros where writers will write, and must not
/// take them for lost records.
#[test]
fn verify_finds_no_damage_beside_writes() {
    /// Numbers of batches of about 1 KiB before: the end of the first window, within and at the end
    /// of the second, and in the third.
    const BATCHES: [u32; 6] = [1, 20, 31, 100, 158, 200];
    for batches in BATCHES {
        let mut has_written = 0;
        for reads in 0..5 {
            let writer = Writer::default();
            let disk = Arc::new(MemoryFs::with_seed(1));
            let fs = Arc::new(WritesBeforeRead { disk, writer: Arc::clone(&writer) });
            let db = Options::new().fs(fs).worker_threads(0).open(STORE_DIR).unwrap();
            (0..batches).for_each(|number| insert(&db, number));
            let before = db.verify().unwrap();
            assert!(before.is_good(), "{batches} batches: {before}");
            assert!(before.log_batches >= batches.into(), "{batches} batches: {before}");
            *writer.lock().unwrap() = Some((reads, db.clone()));
            let beside = db.verify().unwrap();
            has_written += u32::from(writer.lock().unwrap().take().is_none());
            assert!(beside.is_good(), "{batches} batches, {reads} reads: {beside}");
            assert_eq!(beside.log_batches, before.log_batches, "{batches} batches, {reads} reads");
            let after = db.verify().unwrap();
            assert!(after.is_good(), "{batches} batches, {reads} reads: {after}");
        }
        assert!(has_written > 0, "{batches} batches: no thread wrote beside it");
    }
}
