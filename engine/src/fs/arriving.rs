//! A file system with files that are read from an origin until they arrive.

use std::{
    collections::BTreeMap,
    fmt::Debug,
    io,
    ops::Range,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{
            AtomicBool, AtomicU64,
            Ordering::{Acquire, Relaxed, Release},
        },
    },
};

use bytes::Bytes;

use super::{Fs, ReadFile, forward_fs};
use crate::sync::RwLock;

/// The place from which files arrive.
pub(crate) trait Origin: Debug + Send + Sync {
    /// Opens the object of a file.
    ///
    /// # Errors
    ///
    /// Errors of the origin.
    fn open(&self, object: &str) -> io::Result<Arc<dyn ReadFile>>;
}

/// Files that arrive individually.
#[derive(Debug)]
pub(crate) struct ArrivingFiles {
    origin: Arc<dyn Origin>,
    files: RwLock<BTreeMap<PathBuf, Arc<Arrival>>>,
    reads: AtomicU64,
    bytes_read: AtomicU64,
}

#[derive(Debug)]
struct Arrival {
    /// Name of the file at the origin.
    object: String,
    bytes: u64,
    has_arrived: AtomicBool,
}

impl Arrival {
    fn has_arrived(&self) -> bool {
        self.has_arrived.load(Acquire)
    }
}

impl ArrivingFiles {
    pub(crate) fn new(origin: Arc<dyn Origin>) -> Self {
        let (reads, bytes_read) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { origin, files: RwLock::new(BTreeMap::new()), reads, bytes_read }
    }

    /// Adds files that have not arrived: absolute path, name at the origin, and length. Files added
    /// before are unchanged, unless they arrived and were lost afterwards.
    pub(crate) fn add(&self, added: impl IntoIterator<Item = (PathBuf, String, u64)>) {
        let mut files = self.files.write();
        for (path, object, bytes) in added {
            let is_known = |known: &Arc<Arrival>| !known.has_arrived() && known.object == object;
            if !files.get(&path).is_some_and(is_known) {
                let has_arrived = AtomicBool::new(false);
                files.insert(path, Arc::new(Arrival { object, bytes, has_arrived }));
            }
        }
    }

    /// Records that the file `path` is complete and durable under its name.
    pub(crate) fn arrive(&self, path: &Path) {
        if let Some(arrival) = self.files.read().get(path) {
            arrival.has_arrived.store(true, Release);
        }
    }

    /// Removes a file that no reader needs.
    pub(crate) fn forget(&self, path: &Path) {
        self.files.write().remove(path);
    }

    /// Returns the number of reads from the origin.
    pub(crate) fn reads(&self) -> u64 {
        self.reads.load(Relaxed)
    }

    /// Returns the length of what was read from the origin, in bytes.
    pub(crate) fn bytes_read(&self) -> u64 {
        self.bytes_read.load(Relaxed)
    }
}

/// Opens files from the origin until they arrive. Forwards all other calls.
#[derive(Debug)]
pub(crate) struct ArrivingFs {
    inner: Arc<dyn Fs>,
    arriving: Arc<ArrivingFiles>,
}

impl ArrivingFs {
    pub(crate) fn new(inner: Arc<dyn Fs>, arriving: Arc<ArrivingFiles>) -> Self {
        Self { inner, arriving }
    }

    /// Returns the file if it has not arrived.
    fn absent(&self, path: &Path) -> Option<Arc<Arrival>> {
        let files = self.arriving.files.read();
        files.get(path).filter(|arrival| !arrival.has_arrived()).cloned()
    }

    fn open_as(&self, path: &Path, is_direct: bool) -> io::Result<Arc<dyn ReadFile>> {
        let local = Local { fs: Arc::clone(&self.inner), path: path.to_owned(), is_direct };
        let Some(arrival) = self.absent(path) else { return local.open() };
        let opened = self.arriving.origin.open(&arrival.object)?;
        let opened = Opened { file: opened, is_local: false };
        Ok(Arc::new(ArrivingFile {
            local,
            arrival,
            arriving: Arc::clone(&self.arriving),
            is_scattered: AtomicBool::new(false),
            opened: RwLock::new(opened),
        }))
    }
}

impl Fs for ArrivingFs {
    forward_fs! {
        absolute, resolve, create_dir, list, create, open_append, rename, unlink, link,
        sync_dir, open_dir, lock, lock_shared, read_system_file, random_u64
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        if self.absent(path).is_some() { Ok(true) } else { self.inner.exists(path) }
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn ReadFile>> {
        self.open_as(path, false)
    }

    fn open_direct(&self, path: &Path) -> io::Result<Arc<dyn ReadFile>> {
        self.open_as(path, true)
    }
}

/// A file under its own name.
#[derive(Debug)]
struct Local {
    fs: Arc<dyn Fs>,
    path: PathBuf,
    is_direct: bool,
}

impl Local {
    fn open(&self) -> io::Result<Arc<dyn ReadFile>> {
        if self.is_direct { self.fs.open_direct(&self.path) } else { self.fs.open(&self.path) }
    }
}

#[derive(Debug, Clone)]
struct Opened {
    file: Arc<dyn ReadFile>,
    is_local: bool,
}

/// An open file, which is read locally once it has arrived.
#[derive(Debug)]
struct ArrivingFile {
    local: Local,
    arrival: Arc<Arrival>,
    arriving: Arc<ArrivingFiles>,
    is_scattered: AtomicBool,
    opened: RwLock<Opened>,
}

impl ArrivingFile {
    fn file(&self) -> io::Result<Opened> {
        let opened = self.opened.read().clone();
        if opened.is_local || !self.arrival.has_arrived() {
            return Ok(opened);
        }
        let file = self.local.open()?;
        if self.is_scattered.load(Relaxed) {
            file.reads_are_scattered();
        }
        let opened = Opened { file, is_local: true };
        self.opened.write().clone_from(&opened);
        Ok(opened)
    }
}

impl ReadFile for ArrivingFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.arrival.bytes)
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let Opened { file, is_local } = self.file()?;
        if is_local {
            return file.read_at(buf, offset);
        }
        match file.read_at(buf, offset) {
            // The origin may have removed an object that it no longer needs.
            Err(_) if self.arrival.has_arrived() => self.file()?.file.read_at(buf, offset),
            read => {
                self.arriving.reads.fetch_add(1, Relaxed);
                self.arriving.bytes_read.fetch_add(buf.len() as u64, Relaxed);
                read
            }
        }
    }

    fn advise_read(&self, place: Range<u64>) {
        // The next read reports an error.
        if let Ok(opened) = self.file() {
            opened.file.advise_read(place);
        }
    }

    fn reads_are_scattered(&self) {
        self.is_scattered.store(true, Relaxed);
        self.opened.read().file.reads_are_scattered();
    }

    fn map(&self) -> io::Result<Bytes> {
        self.file()?.file.map()
    }
}
