//! A disk in memory that keeps a journal of its operations.
//!
//! It keeps the promises of [`sievedb::fs`] and no others: see [`Loss`](super::Loss) for what a
//! crash can take. Every call that changes something adds an [`Operation`] to the journal; calls
//! that fail, reads, empty appends and syncs with nothing to sync do not.
//!
//! Paths are UTF-8 without `..`. The root, which always exists, is also the current folder: `/a/b`
//! and `a/b` are the same file.

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

/// A disk in memory that can be cut from power after every operation.
///
/// Handles keep working on the disk they came from, also after [`crash`](Self::crash), which makes
/// another one.
pub struct MemoryFs {
    pub(super) disk: Arc<Mutex<Disk>>,
}

impl MemoryFs {
    /// An empty disk with an empty journal. Its random numbers are those of
    /// [`with_seed`](Self::with_seed) of 0.
    #[must_use]
    pub fn new() -> Self {
        Self::with_seed(0)
    }

    /// The same with other random numbers ([`Fs::random_u64`]).
    ///
    /// They follow from the seed, and go on after a crash: what happens to a store on this disk can
    /// be repeated, and two disks need two seeds if their stores must not be taken for each other.
    #[must_use]
    pub fn with_seed(seed: u64) -> Self {
        let disk = Disk::with_capacity(1, SplitMix64(seed));
        Self { disk: Arc::new(Mutex::new(disk)) }
    }

    /// Number of operations in the journal.
    #[must_use]
    pub fn operations(&self) -> usize {
        self.disk.lock().journal.len()
    }

    /// The journal.
    #[must_use]
    pub fn journal(&self) -> Vec<Operation> {
        let disk = self.disk.lock();
        disk.journal.iter().map(|record| disk.operation(record)).collect()
    }

    /// Every file's path and bytes, for comparing two disks. Copies no bytes unless files grew
    /// since the last such call, or have reserved ones.
    #[must_use]
    pub fn contents(&self) -> BTreeMap<Arc<str>, Bytes> {
        let disk = self.disk.lock();
        disk.files().map(|(name, file)| (name.path.clone(), file.bytes())).collect()
    }

    /// The bytes of a file.
    ///
    /// # Errors
    ///
    /// As [`Fs::open`].
    pub fn read(&self, path: impl AsRef<Path>) -> io::Result<Bytes> {
        Ok(self.disk.lock().file(path.as_ref())?.bytes())
    }

    /// Gives the file `path` other bytes, as if the disk had gone bad; creates it if missing.
    ///
    /// The new bytes are durable. The journal starts anew, as after [`settle`](Self::settle).
    /// Handles that are open see the old bytes.
    ///
    /// # Errors
    ///
    /// `NotFound` if there is no such folder.
    pub fn replace(&self, path: impl AsRef<Path>, bytes: impl Into<Bytes>) -> io::Result<()> {
        let mut disk = self.disk.lock();
        let name = disk.place(path.as_ref())?;
        let path = disk.names[name].path.clone();
        let file = disk.new_file(path, bytes.into());
        disk.enter(name, Node::File(file), None);
        disk.settle();
        Ok(())
    }

    /// Forgets the journal: all that was done is durable from here on. Frees what only the journal
    /// held, such as the bytes of unlinked files.
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

    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        let disk = self.disk.lock();
        let folder = disk.folder(folder)?;
        let files = disk.files().filter(|(name, _)| name.folder == folder);
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

    /// There is no cache to be passed by.
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
            // POSIX: two names of one file stay as they are.
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
        let folder = disk.folder(path)?;
        disk.sync_dir(folder);
        Ok(())
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
