//! An in-memory disk with a journal of its operations.
//!
//! It guarantees what [`sievedb::fs`] requires and no more: see [`Loss`](super::Loss) for what a
//! crash can lose. Every call that changes something adds an [`Operation`]. Failing calls, reads,
//! empty appends and syncs without effect add none.
//!
//! Paths are UTF-8 without `..`. The root always exists and is the current directory: `/a/b` and
//! `a/b` are the same file.

use std::{
    collections::BTreeMap,
    fmt::{self, Debug},
    io,
    path::Path,
    sync::Arc,
};

use bytes::Bytes;
use parking_lot::Mutex;
use sievedb::fs::{AppendFile, FileLock, Fs, ReadFile};

use super::{
    Operation,
    disk::{Disk, Node},
    disk_file::DiskAppend,
    journal::Change,
    random::SplitMix64,
};

/// An in-memory disk that can crash after every operation.
///
/// Handles remain on their disk after [`crash`](Self::crash), which returns a new one.
pub struct MemoryFs {
    pub(super) disk: Arc<Mutex<Disk>>,
}

impl MemoryFs {
    /// Creates an empty disk with seed 0 and an empty journal; see [`with_seed`](Self::with_seed)
    /// and [`kept_in`](Self::kept_in).
    #[must_use]
    pub fn new() -> Self {
        Self::with_seed(0)
    }

    /// Creates an empty disk whose [`Fs::random_u64`] depends on `seed`.
    ///
    /// The numbers continue after a crash, so runs are reproducible. Two disks need different seeds
    /// if their stores must have different ids.
    #[must_use]
    pub fn with_seed(seed: u64) -> Self {
        let disk = Disk::with_capacity(1, SplitMix64(seed));
        Self { disk: Arc::new(Mutex::new(disk)) }
    }

    /// Returns the number of operations in the journal.
    #[must_use]
    pub fn operations(&self) -> usize {
        self.disk.lock().journal.len()
    }

    /// Returns the journal.
    #[must_use]
    pub fn journal(&self) -> Vec<Operation> {
        let disk = self.disk.lock();
        disk.journal.iter().map(|record| disk.operation(record)).collect()
    }

    /// Returns each file's path and bytes, to compare two disks. Copies bytes only if files grew
    /// since the last call or have reserved bytes.
    #[must_use]
    pub fn contents(&self) -> BTreeMap<Arc<str>, Bytes> {
        let disk = self.disk.lock();
        disk.files().map(|(name, file)| (name.path.clone(), file.bytes())).collect()
    }

    /// Returns the bytes of a file.
    ///
    /// # Errors
    ///
    /// As [`Fs::open`].
    pub fn read(&self, path: impl AsRef<Path>) -> io::Result<Bytes> {
        Ok(self.disk.lock().file(path.as_ref())?.bytes())
    }

    /// Replaces the bytes of the file `path`, as disk damage would; creates it if missing.
    ///
    /// The new bytes are durable, and the journal is cleared as by [`settle`](Self::settle). Open
    /// handles keep the old bytes.
    ///
    /// # Errors
    ///
    /// `NotFound` if the directory does not exist.
    pub fn replace(&self, path: impl AsRef<Path>, bytes: impl Into<Bytes>) -> io::Result<()> {
        let mut disk = self.disk.lock();
        let name = disk.place(path.as_ref())?;
        let path = disk.names[name].path.clone();
        let file = disk.new_file(path, bytes.into());
        disk.enter(name, Node::File(file), None);
        disk.settle();
        Ok(())
    }

    /// Clears the journal: all changes are durable. Frees memory that only the journal uses, such
    /// as unlinked files.
    pub fn settle(&self) {
        self.disk.lock().settle();
    }
}

impl Default for MemoryFs {
    fn default() -> Self {
        Self::new()
    }
}

impl Debug for MemoryFs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryFs").field("operations", &self.operations()).finish_non_exhaustive()
    }
}

impl Fs for MemoryFs {
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.disk.lock().create_dir(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let disk = self.disk.lock();
        let dir = disk.dir(dir)?;
        let files = disk.files().filter(|(name, _)| name.dir == dir);
        let mut names: Vec<_> = files.map(|(name, _)| name.last().to_owned()).collect();
        names.sort_unstable();
        Ok(names)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        match self.disk.lock().find(path) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn AppendFile>> {
        let file = self.disk.lock().create(path)?;
        Ok(Arc::new(DiskAppend { disk: self.disk.clone(), file }))
    }

    fn open_append(&self, path: &Path) -> io::Result<Arc<dyn AppendFile>> {
        let file = self.disk.lock().file(path)?.clone();
        if file.has_reserved() {
            let what = "appends would lie behind reserved bytes";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        Ok(Arc::new(DiskAppend { disk: self.disk.clone(), file }))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn ReadFile>> {
        Ok(self.disk.lock().file(path)?.clone())
    }

    /// Equal to `open`: there is no page cache to bypass.
    fn open_direct(&self, path: &Path) -> io::Result<Arc<dyn ReadFile>> {
        self.open(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        if from.parent() != to.parent() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut disk = self.disk.lock();
        let file = disk.file(from)?.clone();
        let (from, to) = (disk.place(from)?, disk.place(to)?);
        if disk.holds(to, &file) {
            // POSIX: a rename between two names of one file has no effect.
            return Ok(());
        }
        disk.change_entry(to, Change::Rename { from, to, node: Node::File(file) });
        Ok(())
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        let mut disk = self.disk.lock();
        disk.file(path)?;
        let name = disk.place(path)?;
        disk.change_entry(name, Change::Leave { name });
        Ok(())
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut disk = self.disk.lock();
        let file = disk.file(from)?.clone();
        let from = disk.place(from)?;
        let to = disk.free_place(to)?;
        disk.enter(to, Node::File(file), Some(from));
        Ok(())
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        let mut disk = self.disk.lock();
        let dir = disk.dir(path)?;
        disk.sync_dir(dir)
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        let mut disk = self.disk.lock();
        let file = match disk.file(path) {
            Ok(file) => file.clone(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => disk.create(path)?,
            Err(error) => return Err(error),
        };
        let lock = file.lock().ok_or(io::ErrorKind::WouldBlock)?;
        Ok(Box::new(lock))
    }

    fn lock_shared(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        let file = self.disk.lock().file(path)?.clone();
        let lock = file.lock_shared().ok_or(io::ErrorKind::WouldBlock)?;
        Ok(Box::new(lock))
    }

    fn random_u64(&self) -> io::Result<u64> {
        Ok(self.disk.lock().random.next())
    }
}
