//! Values beside the log, beside other threads.

use std::{
    fmt, io,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::Relaxed},
        mpsc,
    },
    thread,
    time::Duration,
};

use sievedb::{
    Db, Durability,
    fs::{AppendFile, Fs, ReadFile},
};
use sievedb_doubles::{Call, MemoryFs};
use sievedb_tests::{
    layer::{Layer, Layered},
    settings::STORE_DIR,
};

use super::{blob_files, keyspace, options, value};

const EIO: i32 = 5;

/// Runs before a call of a kind on a file with this suffix, after a number of others.
#[derive(Clone, Default)]
struct Hook(Arc<Mutex<Option<Due>>>);

struct Due {
    call: Call,
    suffix: &'static str,
    /// Calls before the one that is meant.
    after: usize,
    run: Box<dyn FnOnce() -> io::Result<()> + Send>,
}

impl fmt::Debug for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hook")
    }
}

impl Hook {
    fn set(
        &self,
        call: Call,
        suffix: &'static str,
        after: usize,
        run: impl FnOnce() -> io::Result<()> + Send + 'static,
    ) {
        *self.0.lock().unwrap() = Some(Due { call, suffix, after, run: Box::new(run) });
    }

    /// Returns whether it has not run. It never will.
    fn take(&self) -> bool {
        self.0.lock().unwrap().take().is_some()
    }

    fn before(&self, call: Call, path: &Path) -> io::Result<()> {
        let is_due = |due: &mut Due| {
            let is_of_kind = due.call == call && path.to_string_lossy().ends_with(due.suffix);
            let less = due.after.checked_sub(usize::from(is_of_kind));
            due.after = less.unwrap_or_default();
            is_of_kind && less.is_none()
        };
        let due = self.0.lock().unwrap().take_if(is_due);
        due.map_or(Ok(()), |due| (due.run)())
    }
}

/// A disk whose calls run a hook.
#[derive(Debug)]
struct HookedFs {
    disk: Arc<MemoryFs>,
    hook: Hook,
    /// Open blob files that can be appended to.
    open: Arc<AtomicUsize>,
}

#[derive(Debug)]
struct HookedFile {
    file: Arc<dyn AppendFile>,
    path: Box<Path>,
    hook: Hook,
    /// Of blob files.
    open: Option<Arc<AtomicUsize>>,
}

impl HookedFs {
    fn on(disk: &Arc<MemoryFs>, hook: &Hook) -> Layered<Self> {
        Layered(Self { disk: Arc::clone(disk), hook: hook.clone(), open: Arc::default() })
    }

    fn hooked(&self, path: &Path, file: Arc<dyn AppendFile>) -> Arc<dyn AppendFile> {
        let is_blobs = path.extension().is_some_and(|extension| extension == "blob");
        let open = is_blobs.then(|| Arc::clone(&self.open));
        if let Some(open) = &open {
            open.fetch_add(1, Relaxed);
        }
        Arc::new(HookedFile { file, path: path.into(), hook: self.hook.clone(), open })
    }
}

impl Drop for HookedFile {
    fn drop(&mut self) {
        if let Some(open) = &self.open {
            open.fetch_sub(1, Relaxed);
        }
    }
}

impl AppendFile for HookedFile {
    fn append(&self, bytes: &[u8]) -> io::Result<()> {
        self.file.append(bytes)
    }

    fn reserve(&self, file_bytes: u64) -> io::Result<()> {
        self.file.reserve(file_bytes)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.hook.before(Call::SyncData, &self.path)?;
        self.file.sync_data()
    }
}

impl Layer for HookedFs {
    fn inner(&self) -> &dyn Fs {
        &*self.disk
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn AppendFile>> {
        Ok(self.hooked(path, self.disk.create(path)?))
    }

    fn open_append(&self, path: &Path) -> io::Result<Arc<dyn AppendFile>> {
        Ok(self.hooked(path, self.disk.open_append(path)?))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn ReadFile>> {
        self.hook.before(Call::Open, path)?;
        self.disk.open(path)
    }
}

fn open() -> (Arc<MemoryFs>, Hook, Db) {
    let (disk, hook) = (Arc::new(MemoryFs::new()), Hook::default());
    let fs = Arc::new(HookedFs::on(&disk, &hook));
    // A flush leaves a segment with one value.
    let db = options(&disk).log_segment_bytes(4 << 10).fs(fs).open(STORE_DIR).unwrap();
    (disk, hook, db)
}

/// Another thread drops or clears the keyspace, and the log with it, before the new table is open.
#[test]
fn a_keyspace_may_go_while_it_is_flushed() {
    let opens =
        (0..6).map(|after| goes_while_flushed(false, after) && goes_while_flushed(true, after));
    assert!(opens.filter(|&is_due| is_due).count() >= 1, "no table was opened");
}

/// Returns `false` if the flush opens fewer tables.
fn goes_while_flushed(clears: bool, after: usize) -> bool {
    let (disk, hook, db) = open();
    let other = db.keyspace_with("other", &keyspace()).unwrap();
    other.insert("key", value(1, 1, 5000)).unwrap();
    let (beside, cleared) = (db.clone(), other.clone());
    hook.set(Call::Open, ".sst", after, move || {
        let goes = move || {
            match clears {
                true => cleared.clear().unwrap(),
                false => beside.drop_keyspace("other").map(drop).unwrap(),
            }
            beside.insert("key", "value").unwrap();
            beside.flush().unwrap();
        };
        thread::spawn(goes).join().unwrap();
        Ok(())
    });
    // A dropped keyspace may be reported.
    let _ = other.flush();
    if hook.take() {
        return false;
    }
    assert_eq!(db.stats().read_only, None, "clears: {clears}");
    db.insert("more", "value").unwrap();
    db.flush().unwrap();
    assert_eq!(blob_files(&disk, STORE_DIR), Vec::<String>::new(), "clears: {clears}");
    true
}

/// Linux reports a failed writeback to one sync only. A sync in another thread, which begins before
/// the failure is known, must not succeed.
#[test]
fn a_failed_sync_of_values_fails_every_sync() {
    let (_, hook, db) = open();
    db.insert("key", value(1, 1, 5000)).unwrap();
    db.persist(Durability::Disk).unwrap();
    let (beside, (sent, results)) = (db.clone(), mpsc::channel());
    // By the flush: the end of the file.
    hook.set(Call::SyncData, ".blob", 0, move || {
        let writes = move || {
            let written = beside.insert("more", value(2, 1, 5000));
            sent.send(written.and_then(|()| beside.persist(Durability::Disk))).unwrap();
        };
        let writer = thread::spawn(writes);
        // It waits for this sync, or else succeeds meanwhile.
        for _ in 0..50 {
            if !writer.is_finished() {
                thread::sleep(Duration::from_millis(10));
            }
        }
        Err(io::Error::from_raw_os_error(EIO))
    });
    assert!(db.flush().is_err());
    assert!(!hook.take(), "no file was synced");
    assert!(results.recv().unwrap().is_err(), "the writer relies on a failed sync");
    assert!(db.stats().read_only.is_some());
}

/// A process has few descriptors. Files that were not synced have one, also when they take no more
/// values.
#[test]
fn unsynced_files_are_bounded() {
    let disk = Arc::new(MemoryFs::new());
    let fs = Arc::new(HookedFs::on(&disk, &Hook::default()));
    let open = Arc::clone(&fs.0.open);
    let long = keyspace().memtable_bytes(16 << 20).table_bytes(20 << 10);
    let options = options(&disk).log_segment_bytes(16 << 20).log_bytes_max(64 << 20);
    let db = options.keyspace(long).fs(fs).open(STORE_DIR).unwrap();
    let mut most = 0;
    for number in 0..1200_u32 {
        db.insert(number.to_be_bytes(), value(number, 1, 2000)).unwrap();
        most = most.max(open.load(Relaxed));
    }
    assert!((17..=64).contains(&most), "{most} files");
    db.flush().unwrap();
    assert_eq!(open.load(Relaxed), 0);
    let files = blob_files(&disk, STORE_DIR).len();
    db.insert(0_u32.to_be_bytes(), value(0, 2, 2000)).unwrap();
    assert_eq!(blob_files(&disk, STORE_DIR).len(), files + 1, "there is room again");
    for number in 0..1200_u32 {
        let round = if number == 0 { 2 } else { 1 };
        let found = db.get(number.to_be_bytes()).unwrap();
        assert_eq!(found.as_deref(), Some(&*value(number, round, 2000)));
    }
}
