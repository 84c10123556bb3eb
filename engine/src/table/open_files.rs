//! Files that are kept open, and what happens when the process may open no more.
//!
//! A process has a limit of open files, which other parts of it use up as well. Table files are only kept
//! open to save the opening, so they give way: [`FrugalFs`] closes half of them whenever a call fails for
//! that reason, and tries again. Without that, a flush that cannot create its table would make the store
//! read-only.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use quick_cache::sync::Cache;
use rustix::io::Errno;

use crate::fs::{AppendFile, FileLock, Fs, ReadFile};

/// How often a call is tried again: others may take what was closed.
const TRIES_MAX: usize = 16;

/// The files used most recently, open.
#[derive(Debug)]
pub(crate) struct OpenFiles {
    /// By file id.
    files: Cache<u64, Arc<dyn ReadFile>>,
}

impl OpenFiles {
    /// Keeps at most `files_max` files open.
    pub(crate) fn new(files_max: usize) -> Self {
        Self { files: Cache::new(files_max) }
    }

    /// The file `id`, which `open` opens if it is not.
    pub(super) fn get(
        &self,
        id: u64,
        open: impl FnOnce() -> io::Result<Arc<dyn ReadFile>>,
    ) -> io::Result<Arc<dyn ReadFile>> {
        if let Some(file) = self.files.get(&id) {
            return Ok(file);
        }
        // Not within the cache's lock of the entry: `open` may close files of the cache.
        let file = open()?;
        self.files.insert(id, Arc::clone(&file));
        Ok(file)
    }

    /// Keeps `file` open, which has just been opened.
    pub(super) fn insert(&self, id: u64, file: Arc<dyn ReadFile>) {
        self.files.insert(id, file);
    }

    /// Closes the file `id`.
    pub(super) fn remove(&self, id: u64) {
        self.files.remove(&id);
    }

    /// Closes half of the files, and keeps no more from now on. Whether there were any; those that are
    /// being read are closed when that is done.
    fn close_half(&self) -> bool {
        let before = self.files.len();
        self.files.set_capacity((before / 2).max(1) as u64);
        if self.files.len() >= before {
            // Each part of the cache keeps one at least.
            self.files.clear();
        }
        before > 0
    }
}

/// A file system whose calls close files that need not be open when there may be no more of them.
#[derive(Debug)]
pub(crate) struct FrugalFs {
    inner: Arc<dyn Fs>,
    open_files: Arc<OpenFiles>,
}

impl FrugalFs {
    pub(crate) fn new(inner: Arc<dyn Fs>, open_files: Arc<OpenFiles>) -> Self {
        Self { inner, open_files }
    }

    fn call<T>(&self, call: impl Fn(&dyn Fs) -> io::Result<T>) -> io::Result<T> {
        for _ in 0..TRIES_MAX {
            match call(&*self.inner) {
                Err(error) if is_out_of_files(&error) && self.open_files.close_half() => {}
                result => return result,
            }
        }
        call(&*self.inner)
    }
}

/// Whether this process, or the system, may open no more files.
fn is_out_of_files(error: &io::Error) -> bool {
    let limits = [Errno::MFILE, Errno::NFILE].map(Errno::raw_os_error);
    error.raw_os_error().is_some_and(|code| limits.contains(&code))
}

impl Fs for FrugalFs {
    fn absolute(&self, path: &Path) -> io::Result<PathBuf> {
        self.inner.absolute(path)
    }

    fn create_folder(&self, path: &Path) -> io::Result<()> {
        self.inner.create_folder(path)
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        self.call(|fs| fs.list(folder))
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.inner.exists(path)
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn AppendFile>> {
        self.call(|fs| fs.create(path))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn ReadFile>> {
        self.call(|fs| fs.open(path))
    }

    fn open_direct(&self, path: &Path) -> io::Result<Arc<dyn ReadFile>> {
        self.call(|fs| fs.open_direct(path))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.inner.rename(from, to)
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        self.inner.unlink(path)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.inner.link(from, to)
    }

    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        self.call(|fs| fs.sync_folder(path))
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        self.call(|fs| fs.lock(path))
    }

    fn random_u64(&self) -> io::Result<u64> {
        self.inner.random_u64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs::{Call, Fault, FaultFs, MemoryFs, Times};

    /// A file system below which `files` files of a store are open, and its faults.
    fn with_open_files(files: u64) -> (FrugalFs, Arc<FaultFs>) {
        let faults = Arc::new(FaultFs::new(Arc::new(MemoryFs::new())));
        let open_files = Arc::new(OpenFiles::new(100));
        for id in 0..files {
            let path = PathBuf::from(id.to_string());
            faults.create(&path).unwrap();
            open_files.get(id, || faults.open(&path)).unwrap();
        }
        (FrugalFs::new(Arc::clone(&faults) as Arc<dyn Fs>, open_files), faults)
    }

    fn fault(error: Errno, times: Times) -> Fault {
        Fault::new(error.raw_os_error(), times).calls(&[Call::Create])
    }

    #[test]
    fn files_give_way_to_others() {
        for error in [Errno::MFILE, Errno::NFILE] {
            let (fs, faults) = with_open_files(100);
            faults.inject(fault(error, Times::Once));
            fs.create(Path::new("a")).unwrap();
            let left = fs.open_files.files.len();
            assert!((1..=60).contains(&left), "{error}: {left} files are open");
            for id in 100..200 {
                fs.open_files.get(id, || faults.open(Path::new("a"))).unwrap();
            }
            assert!(fs.open_files.files.len() <= 60, "no more are kept from then on");
        }
    }

    #[test]
    fn other_errors_and_a_limit_that_stays_are_told() {
        let (fs, faults) = with_open_files(100);
        let before = fs.open_files.files.len();
        assert!(before > 50, "the cache keeps but {before} of 100");
        faults.inject(fault(Errno::IO, Times::Once));
        let error = fs.create(Path::new("a")).map(drop).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(Errno::IO.raw_os_error()));
        assert_eq!(fs.open_files.files.len(), before);
        faults.inject(fault(Errno::MFILE, Times::ForGood));
        let error = fs.create(Path::new("a")).map(drop).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(Errno::MFILE.raw_os_error()));
        assert_eq!(fs.open_files.files.len(), 0, "all were closed in vain");
    }
}
