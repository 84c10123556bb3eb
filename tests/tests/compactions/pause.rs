//! Pauses of compactions.

use std::{
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU32, Ordering::SeqCst},
        mpsc,
    },
    thread,
    time::Duration,
};

use sievedb::{
    CompactionContext, CompactionFilter, Compression, Decision, Error, KeyspaceOptions, Options,
};
use sievedb_tests::hook_fs::HookFs;

use super::{flush, open, small_options, tables};

/// Runs of level 0 at which writes wait, outside of a pause.
const RUNS_MAX: u64 = 32;

#[test]
fn writes_and_flushes_continue_during_a_pause() {
    let db = open();
    let pause = db.pause_compactions().unwrap();
    for _ in 0..RUNS_MAX + 8 {
        flush(&db, 0..10);
    }
    let stats = db.stats();
    assert_eq!((tables(&stats), stats.background.compactions), ((RUNS_MAX + 8, 0), 0), "{stats}");
    assert_eq!((stats.write_delay_us, stats.writes.stalls), (0, 0), "{stats}");
    db.wait_for_background().unwrap();
    drop(pause);
    db.wait_for_background().unwrap();
    assert!(tables(&db.stats()).0 < 4, "{}", db.stats());
    assert_eq!(db.len().unwrap(), 10);
}

#[test]
fn the_last_guard_resumes() {
    let db = open();
    let (first, second) = (db.pause_compactions().unwrap(), db.pause_compactions().unwrap());
    for _ in 0..8 {
        flush(&db, 0..10);
    }
    drop(first);
    flush(&db, 0..10);
    assert_eq!(tables(&db.stats()).0, 9);
    assert!(matches!(db.compact(), Err(Error::CompactionsPaused)));
    assert!(matches!(db.compact_range("a".."b"), Err(Error::CompactionsPaused)));
    drop(second);
    db.compact().unwrap();
    assert_eq!(tables(&db.stats()), (0, 1));
}

/// With workers, a pause ends compactions in flight and calls that wait for them.
#[test]
fn a_pause_cancels_compactions_in_flight() {
    let keyspace = KeyspaceOptions::new().memtable_bytes(1 << 20).compression(Compression::None);
    let db = small_options().worker_threads(2).keyspace(keyspace).open("db").unwrap();
    for _ in 0..3 {
        flush(&db, 0..20_000);
    }
    let mut cancelled = 0;
    for round in 0..50 {
        let (begun, begins) = mpsc::channel();
        let compacts = thread::spawn({
            let db = db.clone();
            move || {
                begun.send(()).unwrap();
                db.compact()
            }
        });
        begins.recv().unwrap();
        thread::sleep(Duration::from_micros(200 * round));
        let pause = db.pause_compactions().unwrap();
        let before = db.stats().background.compactions;
        match compacts.join().unwrap() {
            Ok(()) => {}
            Err(Error::CompactionsPaused) => cancelled += 1,
            Err(error) => panic!("{error}"),
        }
        assert_eq!(db.stats().background.compactions, before, "none ends during a pause");
        drop(pause);
        if cancelled > 2 {
            break;
        }
        flush(&db, 0..1_000);
    }
    assert!(cancelled > 0, "no call was in flight");
    db.compact().unwrap();
    assert_eq!(db.len().unwrap(), 20_000);
    assert_eq!(db.verify().unwrap().problems.len(), 0);
}

/// A compaction that moves values from blob files counts them, not only their references.
#[test]
fn a_pause_cancels_a_compaction_that_moves_long_values() {
    const VALUES: u32 = 60;
    const BYTES: usize = 200_000;
    let (creates, created) = mpsc::channel();
    let (pauses, paused) = mpsc::channel::<()>();
    let (creates, paused) = (Mutex::new(creates), Mutex::new(paused));
    let is_armed = Arc::new(AtomicBool::new(false));
    let fs = HookFs::new({
        let is_armed = Arc::clone(&is_armed);
        move |path: &Path| {
            let is_blob = path.extension().is_some_and(|it| it == "blob");
            if is_blob && is_armed.swap(false, SeqCst) {
                creates.lock().unwrap().send(()).unwrap();
                paused.lock().unwrap().recv().unwrap();
            }
        }
    });
    let keyspace = KeyspaceOptions::new()
        .compression(Compression::None)
        .blob_value_bytes(1_000)
        .blob_garbage_ratio(0.1)
        .table_bytes(1 << 30);
    let db = Options::new().fs(Arc::new(fs)).worker_threads(2).keyspace(keyspace);
    let db = db.open("db").unwrap();
    let empty = db.keyspace("empty").unwrap();
    for _ in 0..2 {
        for key in 0..VALUES {
            db.insert(key.to_be_bytes(), vec![7; BYTES]).unwrap();
        }
        db.flush().unwrap();
        // Half of the first file is garbage.
        for key in (0..VALUES).step_by(2) {
            db.insert(key.to_be_bytes(), "short").unwrap();
        }
    }
    db.flush().unwrap();
    db.wait_for_background().unwrap();
    is_armed.store(true, SeqCst);
    let compacts = thread::spawn({
        let db = db.clone();
        move || db.compact()
    });
    created.recv().unwrap();
    // The pause begins before the compaction goes on, and waits for it.
    let pause = thread::spawn({
        let db = db.clone();
        move || db.pause_compactions()
    });
    while !matches!(empty.compact(), Err(Error::CompactionsPaused)) {
        assert!(!pause.is_finished(), "a pause waits for the compaction in flight");
        thread::sleep(Duration::from_millis(1));
    }
    // Others may have ended before.
    let before = db.stats().background.compactions;
    pauses.send(()).unwrap();
    let pause = pause.join().unwrap().unwrap();
    let result = compacts.join().unwrap();
    assert!(matches!(result, Err(Error::CompactionsPaused)), "{result:?}");
    assert_eq!(db.stats().background.compactions, before, "the one in flight was cancelled");
    drop(pause);
    db.compact().unwrap();
    assert_eq!(db.len().unwrap(), u64::from(VALUES));
    assert!(db.verify().unwrap().is_good());
}

/// Blocks its first call until the test goes on.
#[derive(Debug)]
struct Held {
    calls: AtomicU32,
    called: Mutex<mpsc::Sender<()>>,
    released: Mutex<mpsc::Receiver<()>>,
}

impl CompactionFilter for Held {
    fn name(&self) -> &str {
        "held"
    }

    fn filter(&self, _: &CompactionContext<'_>, _: &[u8], _: &[u8]) -> Decision {
        if self.calls.fetch_add(1, SeqCst) == 0 {
            self.called.lock().unwrap().send(()).unwrap();
            self.released.lock().unwrap().recv().unwrap();
        }
        Decision::Keep
    }
}

/// A compaction that reads values from blob files counts them, not only their references.
#[test]
fn a_pause_cancels_a_compaction_that_filters_long_values() {
    const VALUES: u32 = 40;
    let (called, calls) = mpsc::channel();
    let (release, released) = mpsc::channel();
    let (called, released) = (Mutex::new(called), Mutex::new(released));
    let filter = Arc::new(Held { calls: AtomicU32::new(0), called, released });
    let keyspace = KeyspaceOptions::new().blob_value_bytes(1_000);
    let keyspace = keyspace.compaction_filter(Arc::clone(&filter) as _);
    let db = small_options().worker_threads(2).keyspace(keyspace).open("db").unwrap();
    let empty = db.keyspace("empty").unwrap();
    for key in 0..VALUES {
        db.insert(key.to_be_bytes(), vec![7; 200_000]).unwrap();
    }
    db.flush().unwrap();
    let compacts = thread::spawn({
        let db = db.clone();
        move || db.compact()
    });
    calls.recv().unwrap();
    let pause = thread::spawn({
        let db = db.clone();
        move || db.pause_compactions()
    });
    while !matches!(empty.compact(), Err(Error::CompactionsPaused)) {
        assert!(!pause.is_finished(), "a pause waits for the compaction in flight");
        thread::sleep(Duration::from_millis(1));
    }
    release.send(()).unwrap();
    let pause = pause.join().unwrap().unwrap();
    let result = compacts.join().unwrap();
    assert!(matches!(result, Err(Error::CompactionsPaused)), "{result:?}");
    let shown = filter.calls.load(SeqCst);
    assert!(shown < 10, "{shown} values of 200 KB");
    drop(pause);
    db.compact().unwrap();
    assert_eq!(filter.calls.load(SeqCst), shown + VALUES);
}

/// A writer that waits for compactions goes on once they are paused.
#[test]
fn a_pause_releases_stopped_writers() {
    let db = small_options().worker_threads(2).open("db").unwrap();
    let pause = db.pause_compactions().unwrap();
    for _ in 0..RUNS_MAX {
        flush(&db, 0..300);
    }
    drop(pause);
    // The first compaction may already be done: then the writer does not wait at all.
    let writer = thread::spawn({
        let db = db.clone();
        move || db.insert("key", "value")
    });
    let _pause = db.pause_compactions().unwrap();
    writer.join().unwrap().unwrap();
}

#[test]
fn a_guard_keeps_the_store_open_and_outlives_a_shutdown() {
    let db = open();
    let pause = db.pause_compactions().unwrap();
    db.shutdown(Duration::from_secs(60)).unwrap();
    assert!(matches!(db.pause_compactions(), Err(Error::Closed)));
    drop(pause);
}
