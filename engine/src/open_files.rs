//! Open table files, and the limit of open files of the process.
//!
//! Other parts of the process use the same limit. Table files are kept open only for speed:
//! [`FrugalFs`] closes half of them when a call fails because of the limit, and retries. Without
//! that, a flush that cannot create its table would make the store read-only. Calls of other
//! threads that fail meanwhile are retried without closing more.
//!
//! Fewer files are then kept, until many have been opened again.
//!
//! Stores of a [`MemoryPool`](crate::MemoryPool) are [`Sharers`]: the one with the most open files
//! closes half of them. An idle store would otherwise keep the descriptors that others need.

use std::{
    io,
    path::{Path, PathBuf},
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use quick_cache::sync::Cache;

use crate::{
    error::is_out_of_files,
    fs::{AppendFile, DirHandle, FileLock, Fs, ReadFile, forward_fs},
    sync::Mutex,
};

/// Other threads may take the closed descriptors.
const TRIES_MAX: usize = 16;

/// Number of opens of files that were not kept, after which the limit is reconsidered.
const OPENS_STEP: u64 = 1_000;
/// Maximum number of steps before the limit is raised. The rest of the process may be short of
/// descriptors for good, and then each raise takes some of them.
const STEPS_MAX: u32 = 1 << 10;

/// The most recently used files, kept open.
#[derive(Debug)]
pub(crate) struct OpenFiles {
    /// By file id.
    files: Cache<u64, Arc<dyn ReadFile>>,
    files_max: usize,
    /// Opens of files that were not kept.
    opens: AtomicU64,
    /// Locked while the limit changes.
    limit: Mutex<Limit>,
    sharers: Arc<Sharers>,
}

/// Stores that close table files for one another.
#[derive(Debug, Default)]
pub(crate) struct Sharers {
    /// Locked while files are closed, before the limit of a store.
    shortages: Mutex<Shortages>,
}

#[derive(Debug, Default)]
struct Shortages {
    stores: Vec<Weak<OpenFiles>>,
    /// Number of rounds in which files were closed.
    rounds: u64,
}

/// The current limit of open files.
#[derive(Debug)]
struct Limit {
    files: usize,
    /// Steps of opens since the last change.
    steps: u32,
    /// Steps before the limit is raised. Doubles with each raise.
    steps_needed: u32,
}

impl OpenFiles {
    /// Returns the files of a store, or of a reader of tables, that shares with no other.
    pub(crate) fn new(files_max: usize) -> Self {
        Self::of(files_max, Arc::default())
    }

    /// Returns the files of a store that shares with `sharers`.
    pub(crate) fn sharing(files_max: usize, sharers: &Arc<Sharers>) -> Arc<Self> {
        let files = Arc::new(Self::of(files_max, Arc::clone(sharers)));
        let mut shortages = sharers.shortages.lock();
        shortages.stores.retain(|store| store.strong_count() > 0);
        shortages.stores.push(Arc::downgrade(&files));
        files
    }

    fn of(files_max: usize, sharers: Arc<Sharers>) -> Self {
        let limit = Limit { files: files_max, steps: 0, steps_needed: 1 };
        let (opens, limit) = (AtomicU64::new(0), Mutex::new(limit));
        Self { files: Cache::new(files_max), files_max, opens, limit, sharers }
    }

    /// Returns the file `id`. `open` opens it if it is closed.
    pub(crate) fn get(
        &self,
        id: u64,
        open: impl FnOnce() -> io::Result<Arc<dyn ReadFile>>,
    ) -> io::Result<Arc<dyn ReadFile>> {
        if let Some(file) = self.files.get(&id) {
            return Ok(file);
        }
        // Runs without the cache's lock of the entry: `open` may close files of the cache.
        let file = open()?;
        self.files.insert(id, Arc::clone(&file));
        if (self.opens.fetch_add(1, Relaxed) + 1).is_multiple_of(OPENS_STEP) {
            self.raise_limit();
        }
        Ok(file)
    }

    /// Doubles a lowered limit, after enough opens.
    #[cold]
    fn raise_limit(&self) {
        let mut limit = self.limit.lock();
        limit.steps = limit.steps.saturating_add(1);
        if limit.steps < limit.steps_needed {
            return;
        }
        limit.steps = 0;
        if limit.files >= self.files_max {
            // No shortage for as long as the last wait.
            limit.steps_needed = 1;
            return;
        }
        limit.files = (limit.files * 2).min(self.files_max);
        limit.steps_needed = (limit.steps_needed * 2).min(STEPS_MAX);
        self.files.set_capacity(limit.files as u64);
    }

    pub(crate) fn insert(&self, id: u64, file: Arc<dyn ReadFile>) {
        self.files.insert(id, file);
    }

    pub(crate) fn remove(&self, id: u64) {
        self.files.remove(&id);
    }

    fn round(&self) -> u64 {
        self.sharers.shortages.lock().rounds
    }

    /// Closes half of the files, or those of the sharer with the most, for a call that began in the
    /// round `before` and failed. Returns `true` if any were closed since.
    ///
    /// One shortage affects calls of many threads. Only the first call closes files, otherwise
    /// hardly any would stay open.
    fn close_for(&self, before: u64) -> bool {
        let mut shortages = self.sharers.shortages.lock();
        if shortages.rounds == before {
            let sharers: Vec<_> = shortages.stores.iter().filter_map(Weak::upgrade).collect();
            let all = sharers.iter().map(|store| &**store).chain([self]);
            let most = all.max_by_key(|store| store.files.len());
            if !most.is_some_and(Self::close_half) {
                return false;
            }
            shortages.rounds += 1;
        }
        true
    }

    /// Closes half of the files, and lowers the limit to the rest. Returns `false` if there were
    /// none. Files being read are closed after the read.
    fn close_half(&self) -> bool {
        let mut limit = self.limit.lock();
        let before = self.files.len();
        if before == 0 {
            // Other parts of the process hold all descriptors, so a new limit is unknown.
            return false;
        }
        (limit.files, limit.steps) = ((before / 2).max(1), 0);
        self.files.set_capacity(limit.files as u64);
        if self.files.len() >= before {
            // Each shard of the cache keeps at least one file.
            self.files.clear();
        }
        true
    }
}

/// A file system whose calls close table files when the limit of open files is reached.
#[derive(Debug)]
pub(crate) struct FrugalFs {
    inner: Arc<dyn Fs>,
    open_files: Arc<OpenFiles>,
    /// The [kept](Self::keep_folder) directory of the store.
    folder: OnceLock<(PathBuf, Box<dyn DirHandle>)>,
}

impl FrugalFs {
    pub(crate) fn new(inner: Arc<dyn Fs>, open_files: Arc<OpenFiles>) -> Self {
        Self { inner, open_files, folder: OnceLock::new() }
    }

    /// Keeps the directory `path` open, so that its sync needs no descriptor. A sync that cannot
    /// open the directory counts as failed, which is final.
    pub(crate) fn keep_folder(&self, path: &Path) -> io::Result<()> {
        if let Some(handle) = self.call(|fs| fs.open_dir(path))? {
            let _ = self.folder.set((path.to_owned(), handle));
        }
        Ok(())
    }

    fn call<T>(&self, call: impl Fn(&dyn Fs) -> io::Result<T>) -> io::Result<T> {
        for _ in 0..TRIES_MAX {
            let round = self.open_files.round();
            match call(&*self.inner) {
                Err(error) if is_out_of_files(&error) && self.open_files.close_for(round) => {}
                result => return result,
            }
        }
        call(&*self.inner)
    }
}

impl Fs for FrugalFs {
    forward_fs! {
        absolute, resolve, create_dir, exists, rename, unlink, link, read_system_file,
        random_u64
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        self.call(|fs| fs.list(folder))
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn AppendFile>> {
        self.call(|fs| fs.create(path))
    }

    fn open_append(&self, path: &Path) -> io::Result<Arc<dyn AppendFile>> {
        self.call(|fs| fs.open_append(path))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn ReadFile>> {
        self.call(|fs| fs.open(path))
    }

    fn open_direct(&self, path: &Path) -> io::Result<Arc<dyn ReadFile>> {
        self.call(|fs| fs.open_direct(path))
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        match self.folder.get() {
            Some((kept, handle)) if kept == path => handle.sync(),
            _ => self.call(|fs| fs.sync_dir(path)),
        }
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        self.call(|fs| fs.lock(path))
    }

    fn lock_shared(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        self.call(|fs| fs.lock_shared(path))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use rustix::io::Errno;

    use super::*;
    use crate::fs::{Call, Fault, FaultFs, MemoryFs, Times};

    /// Returns a file system with `files` open files of a store, and its faults.
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
    fn files_are_closed_for_other_calls() {
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
    fn limit_is_raised_after_many_opens() {
        let (fs, faults) = with_open_files(100);
        let open_many = |count: u64| {
            for id in 0..count {
                // All are closed already.
                let path = || faults.open(Path::new("1"));
                fs.open_files.get(1_000 + id % 500, path).unwrap();
            }
            fs.open_files.files.len()
        };
        for shortage in 0..3 {
            for round in 0..=shortage {
                faults.inject(fault(Errno::MFILE, Times::Once));
                fs.create(Path::new(&format!("{shortage}-{round}-new"))).unwrap();
            }
            assert!(open_many(400) <= 60, "a shortage is remembered for a while");
            let mut opens = 0;
            while open_many(100) <= 60 {
                opens += 100;
                assert!(opens < 40_000, "{} files are open", fs.open_files.files.len());
            }
            open_many(40_000);
            let open = fs.open_files.files.len();
            assert!((80..=130).contains(&open), "{open} files are open");
        }
    }

    /// Makes `calls` calls fail once for lack of descriptors, as from as many threads: all have
    /// begun before the first of them is retried. Returns the number of tries.
    fn fail_together(fs: &FrugalFs, calls: u32) -> u32 {
        let tries = Cell::new(0);
        let called = fs.call(|_| {
            let earlier = tries.get();
            if earlier > 0 {
                tries.set(earlier + 1);
                return Ok(());
            }
            tries.set(1 + if calls > 1 { fail_together(fs, calls - 1) } else { 0 });
            Err(Errno::MFILE.into())
        });
        called.unwrap();
        tries.get()
    }

    #[test]
    fn one_shortage_halves_once() {
        let (fs, _) = with_open_files(100);
        let half =
            |before: usize| (before / 4..=before * 3 / 4).contains(&fs.open_files.files.len());
        let before = fs.open_files.files.len();
        assert_eq!(fail_together(&fs, 16), 32, "each is tried twice");
        assert!(half(before), "{} of {before} files are open", fs.open_files.files.len());
        // The next shortage is a separate one.
        let before = fs.open_files.files.len();
        assert_eq!(fail_together(&fs, 1), 2);
        assert!(half(before), "{} of {before} files are open", fs.open_files.files.len());
    }

    #[test]
    fn a_shortage_that_others_make_is_not_remembered() {
        let (fs, faults) = with_open_files(0);
        faults.inject(fault(Errno::MFILE, Times::Once));
        fs.create(Path::new("a")).map(drop).unwrap_err();
        fs.create(Path::new("a")).unwrap();
        for id in 0..100 {
            fs.open_files.get(id, || faults.open(Path::new("a"))).unwrap();
        }
        assert!(fs.open_files.files.len() > 50, "no file of the store was open");
    }

    #[test]
    fn sharers_with_the_most_files_close_them_for_others() {
        let sharers = Arc::default();
        let faults = Arc::new(FaultFs::new(Arc::new(MemoryFs::new())));
        faults.create(Path::new("a")).unwrap();
        let store = |files: u64| {
            let store = OpenFiles::sharing(100, &sharers);
            for id in 0..files {
                store.get(id, || faults.open(Path::new("a"))).unwrap();
            }
            store
        };
        let (large, small, empty) = (store(100), store(20), store(0));
        drop(store(100));
        let fs = FrugalFs::new(Arc::clone(&faults) as Arc<dyn Fs>, Arc::clone(&empty));
        let left = || [&large, &small, &empty].map(|store| store.files.len());
        let before = left();
        assert_eq!(fail_together(&fs, 16), 32);
        let [of_large, of_small, _] = left();
        assert!((1..=before[0] * 3 / 4).contains(&of_large), "{of_large} of {before:?}");
        assert_eq!(of_small, before[1]);
        faults.inject(fault(Errno::MFILE, Times::ForGood));
        fs.create(Path::new("b")).map(drop).unwrap_err();
        assert_eq!(left(), [0; 3], "all were closed, to no effect");
    }

    #[test]
    fn other_errors_and_a_limit_that_stays_are_returned() {
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
        assert_eq!(fs.open_files.files.len(), 0, "all were closed, to no effect");
    }
}
