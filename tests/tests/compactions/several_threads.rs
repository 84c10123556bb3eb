//! The threads of a compaction of several ranges: what runs beside them, and what ends them.

use std::{
    fmt, io,
    path::Path,
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread,
};

use sievedb::{
    Compression, Db, Error, KeyspaceOptions, Options,
    fs::{AppendFile, Fs},
};
use sievedb_doubles::MemoryFs;
use sievedb_tests::layer::{Layer, Layered};

use super::{flush, small_options};

const KEYS: u32 = 2_000;
/// Threads beside that of the compaction.
const THREADS: usize = 3;
const ENOSPC: i32 = 28;

/// What happens to a thread of a range before it creates a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Waits,
    Fails,
    Panics,
}

#[derive(Debug, Default)]
struct State {
    /// Applies to the last of the threads; the others wait for the test.
    fate: Option<Fate>,
    waiting: usize,
}

/// A disk that stops the threads of ranges.
#[derive(Debug)]
struct StopsFs(Arc<Stops>);

#[derive(Default)]
struct Stops {
    disk: MemoryFs,
    state: Mutex<State>,
    changed: Condvar,
    has_struck: AtomicBool,
}

impl fmt::Debug for Stops {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stops").finish_non_exhaustive()
    }
}

impl Layer for StopsFs {
    fn inner(&self) -> &dyn Fs {
        &self.0.disk
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn AppendFile>> {
        let name = thread::current().name().unwrap_or_default().to_owned();
        if let Some(number) = name.strip_prefix("sievedb-range-") {
            self.0.stop(number.parse().unwrap())?;
        }
        self.0.disk.create(path)
    }
}

impl Stops {
    fn stop(&self, number: usize) -> io::Result<()> {
        let mut state = self.state.lock().unwrap();
        let Some(fate) = state.fate else { return Ok(()) };
        if fate != Fate::Waits && number == THREADS {
            self.has_struck.store(true, SeqCst);
            self.changed.notify_all();
            drop(state);
            assert_ne!(fate, Fate::Panics, "planted");
            return Err(io::Error::from_raw_os_error(ENOSPC));
        }
        state.waiting += 1;
        self.changed.notify_all();
        while state.fate.is_some() && !self.has_struck.load(SeqCst) {
            state = self.changed.wait(state).unwrap();
        }
        state.waiting -= 1;
        Ok(())
    }

    fn set(&self, fate: Option<Fate>) {
        self.state.lock().unwrap().fate = fate;
        self.changed.notify_all();
    }

    /// Waits until all threads of ranges wait.
    fn await_threads(&self) {
        let mut state = self.state.lock().unwrap();
        while state.waiting < THREADS {
            state = self.changed.wait(state).unwrap();
        }
    }

    fn tables(&self) -> usize {
        let names = self.disk.list(Path::new("db")).unwrap();
        names.iter().filter(|name| name.ends_with(".sst")).count()
    }
}

fn options(stops: &Arc<Stops>) -> Options {
    let keyspace = KeyspaceOptions::new().compression(Compression::None);
    small_options()
        .fs(Arc::new(Layered(StopsFs(Arc::clone(stops)))))
        .worker_threads(THREADS + 1)
        .compaction_ranges(THREADS + 1)
        .idle_compactions(false)
        .keyspace(keyspace)
}

/// Opens a store with two runs in level 0.
fn open(stops: &Arc<Stops>) -> Db {
    let db = options(stops).open("db").unwrap();
    flush(&db, 0..KEYS);
    flush(&db, 0..KEYS);
    // A worker that fits filters would not be lent to the compaction.
    db.wait_for_background().unwrap();
    assert_eq!(stops.tables(), 2);
    db
}

fn check(db: &Db) {
    assert_eq!(db.len().unwrap(), u64::from(KEYS));
    assert_eq!(db.verify().unwrap().problems.len(), 0);
}

#[test]
fn flushes_do_not_wait_for_the_threads_of_ranges() {
    let stops = Arc::new(Stops::default());
    let db = open(&stops);
    stops.set(Some(Fate::Waits));
    thread::scope(|scope| {
        let compacts = scope.spawn(|| db.compact());
        stops.await_threads();
        flush(&db, 0..10);
        stops.set(None);
        compacts.join().unwrap().unwrap();
    });
    assert!(stops.tables() > THREADS, "a table of each range at least");
    check(&db);
}

#[test]
fn compactions_of_other_keyspaces_do_not_wait_for_the_threads_of_ranges() {
    let stops = Arc::new(Stops::default());
    let db = open(&stops);
    let [large, other] = ["default", "other"].map(|name| db.keyspace(name).unwrap());
    for _ in 0..2 {
        other.insert("key", "value").unwrap();
        other.flush().unwrap();
    }
    stops.set(Some(Fate::Waits));
    thread::scope(|scope| {
        let compacts = scope.spawn(|| large.compact());
        stops.await_threads();
        other.compact().unwrap();
        stops.set(None);
        compacts.join().unwrap().unwrap();
    });
    check(&db);
}

#[test]
fn a_pause_ends_the_threads_of_ranges() {
    let stops = Arc::new(Stops::default());
    let db = open(&stops);
    stops.set(Some(Fate::Waits));
    let pause = thread::scope(|scope| {
        let compacts = scope.spawn(|| db.compact());
        stops.await_threads();
        let pauses = scope.spawn(|| db.pause_compactions());
        // The pause has begun: it ends the call at once.
        let ended = compacts.join().unwrap();
        assert!(matches!(ended, Err(Error::CompactionsPaused)), "{ended:?}");
        stops.set(None);
        pauses.join().unwrap().unwrap()
    });
    db.wait_for_background().unwrap();
    assert_eq!((stops.tables(), db.stats().background.compactions), (2, 0));
    drop(pause);
    db.compact().unwrap();
    check(&db);
}

#[test]
fn an_error_of_one_range_ends_all_and_leaves_no_table() {
    let stops = Arc::new(Stops::default());
    let db = open(&stops);
    stops.set(Some(Fate::Fails));
    let failed = db.compact();
    assert!(matches!(&failed, Err(error) if error.is_no_space()), "{failed:?}");
    assert!(stops.has_struck.load(SeqCst));
    stops.set(None);
    db.wait_for_background().unwrap();
    check(&db);
    db.compact().unwrap();
    db.wait_for_background().unwrap();
    let tables: u64 = db.stats().levels.iter().map(|level| level.tables).sum();
    assert_eq!(stops.tables() as u64, tables, "no table of the failed compaction is left");
    check(&db);
}

#[test]
fn a_panic_of_one_range_ends_all() {
    let stops = Arc::new(Stops::default());
    let db = open(&stops);
    stops.set(Some(Fate::Panics));
    let Err(Error::ReadOnly { cause }) = db.compact() else { panic!("it panicked") };
    assert!(matches!(*cause, Error::WorkerPanicked), "{cause:?}");
    stops.set(None);
    check(&db);
    drop(db);
    let db = options(&stops).open("db").unwrap();
    check(&db);
    db.compact().unwrap();
    check(&db);
}

#[test]
fn a_drop_of_the_keyspace_ends_the_threads_of_ranges() {
    let stops = Arc::new(Stops::default());
    let db = options(&stops).open("db").unwrap();
    let keyspace = db.keyspace("gone").unwrap();
    for _ in 0..2 {
        (0..KEYS).for_each(|key| keyspace.insert(key.to_be_bytes(), [7; 100]).unwrap());
        keyspace.flush().unwrap();
    }
    stops.set(Some(Fate::Waits));
    thread::scope(|scope| {
        let compacts = scope.spawn(|| keyspace.compact());
        stops.await_threads();
        db.drop_keyspace("gone").unwrap();
        stops.set(None);
        // It may report the drop, or that nothing is left to do.
        let _ = compacts.join().unwrap();
    });
    drop(keyspace);
    db.wait_for_background().unwrap();
    // Makes the unlinks durable: a list of the unlinked tables is not needed any more.
    flush(&db, 0..10);
    db.wait_for_background().unwrap();
    assert_eq!(stops.tables(), 1);
}
