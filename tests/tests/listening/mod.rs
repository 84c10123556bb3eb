//! A listener cannot harm the store that calls it.

use std::{
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::SeqCst},
        mpsc::{self, Sender},
    },
    thread,
    time::Duration,
};

use sievedb::{
    ChangeRetention, Db, Durability, Event, EventListener, KeyspaceOptions, Options,
    changes::ChangesOptions, clock::SystemClock,
};
use sievedb_doubles::{Call, Fault, FaultFs, MemoryFs, Times};
use sievedb_tests::{
    hook_fs::HookFs,
    settings::{STORE_DIR, small_options},
};

const EIO: i32 = 5;
const ENOSPC: i32 = 28;

/// Panics at the first event of each kind.
#[derive(Debug, Default)]
struct Panicking(Mutex<Vec<String>>);

impl EventListener for Panicking {
    fn on_event(&self, event: &Event) {
        let mut seen = self.0.lock().expect("not held at the panic");
        // The name of the variant.
        let kind = format!("{event:?}").split(' ').next().unwrap_or_default().to_owned();
        if seen.contains(&kind) {
            return;
        }
        seen.push(kind);
        drop(seen);
        panic!("a listener panics, as it should: {event:?}");
    }
}

/// Drops the last handle of a store when the disk is full.
#[derive(Debug, Default)]
struct Dropping(Mutex<Option<Db>>);

/// Drops the last handle when the store becomes read-only. Reports that, and flushes.
#[derive(Debug)]
struct Reporting(Mutex<Option<Db>>, Mutex<Sender<&'static str>>);

impl EventListener for Reporting {
    fn on_event(&self, event: &Event) {
        let report = match event {
            Event::ReadOnly { .. } => {
                let handle = self.0.lock().expect("not held at a panic").take();
                drop(handle);
                "read-only"
            }
            Event::Flushed { .. } => "flushed",
            _ => return,
        };
        let _ = self.1.lock().expect("not held at a panic").send(report);
    }
}

impl EventListener for Dropping {
    fn on_event(&self, event: &Event) {
        if matches!(event, Event::NoSpace { .. }) {
            let handle = self.0.lock().expect("not held at a panic").take();
            drop(handle);
        }
    }
}

#[test]
fn panicking_listener_does_not_stop_the_store() {
    for workers in [0, 2] {
        let fs = Arc::new(FaultFs::new(Arc::new(MemoryFs::new())));
        let listener = Arc::<Panicking>::default();
        let options = || {
            let clock = Arc::new(SystemClock::new());
            small_options(fs.clone()).clock(clock).worker_threads(workers)
        };
        let db = options().listener(listener.clone()).open(STORE_DIR).unwrap();
        let write = |thread: u32| {
            for number in 0..500u32 {
                let key = [thread.to_be_bytes(), number.to_be_bytes()].concat();
                db.insert(key, [7; 100]).unwrap();
            }
        };
        thread::scope(|scope| {
            for thread in 0..3 {
                scope.spawn(move || write(thread));
            }
        });
        db.compact().unwrap();
        db.insert("more", "").unwrap();
        fs.inject(Fault::new(ENOSPC, Times::ForGood).calls(&[Call::Append]).suffix(".sst"));
        assert!(db.flush().unwrap_err().is_no_space());
        fs.heal();
        db.flush().unwrap();
        assert!(db.stats().read_only.is_none(), "{workers} workers");
        // A worker reports the event after it has notified waiting threads.
        let is_told = || {
            let seen = listener.0.lock().unwrap();
            ["Flushed", "Compacted", "NoSpace"].iter().all(|kind| seen.iter().any(|it| it == kind))
        };
        let in_time = (0..6_000).any(|_| {
            thread::sleep(Duration::from_millis(u64::from(!is_told()) * 10));
            is_told()
        });
        assert!(in_time, "flushed, compacted, no space");
        drop(db);
        assert_eq!(options().open(STORE_DIR).unwrap().iter().count(), 3 * 500 + 1);
    }
}

#[test]
fn listener_may_hold_the_last_handle() {
    for workers in [1, 4] {
        let fs = Arc::new(FaultFs::new(Arc::new(MemoryFs::new())));
        let listener = Arc::<Dropping>::default();
        let options = || {
            let clock = Arc::new(SystemClock::new());
            small_options(fs.clone()).clock(clock).worker_threads(workers)
        };
        let db = options().listener(listener.clone()).open(STORE_DIR).unwrap();
        fs.inject(Fault::new(ENOSPC, Times::ForGood).calls(&[Call::Append]).suffix(".sst"));
        let mut batch = db.batch();
        for number in 0..2 * (4 << 10) / 100u32 {
            batch.insert(&db, number.to_be_bytes(), [7; 100]).unwrap();
        }
        batch.commit(Durability::Disk).unwrap();
        *listener.0.lock().unwrap() = Some(db.clone());
        // Freezes the full memtable, so that a worker finds the full disk.
        db.insert("more", "").unwrap();
        drop(db);
        let reopened = (0..6_000).find_map(|_| {
            thread::sleep(Duration::from_millis(10));
            if listener.0.lock().unwrap().is_some() {
                return None;
            }
            fs.heal();
            options().open(STORE_DIR).ok()
        });
        let reopened = reopened.expect("a worker closes the store and lets go of its lock");
        assert!(reopened.contains_key("more").unwrap(), "{workers} workers");
    }
}

/// A worker makes the store read-only at each of its syncs: of the log, of a table, of the
/// manifest, under the locks of these.
#[test]
fn listener_may_drop_the_last_handle_when_the_store_becomes_read_only() {
    for syncs in 0.. {
        let fs = Arc::new(FaultFs::new(Arc::new(MemoryFs::new())));
        let (sender, reports) = mpsc::channel();
        let listener = Arc::new(Reporting(Mutex::default(), Mutex::new(sender)));
        let options = || {
            let clock = Arc::new(SystemClock::new());
            // No rotation: only the worker syncs.
            let options = small_options(fs.clone()).clock(clock).worker_threads(1);
            options.log_segment_bytes(64 << 10).log_bytes_max(256 << 10)
        };
        let db = options().listener(listener.clone()).open(STORE_DIR).unwrap();
        let mut batch = db.batch();
        for number in 0..2 * (4 << 10) / 100u32 {
            batch.insert(&db, number.to_be_bytes(), [7; 100]).unwrap();
        }
        batch.commit(Durability::OsBuffer).unwrap();
        fs.inject(Fault::new(EIO, Times::Once).calls(&Call::SYNCS).after(syncs));
        let all = db.clone();
        *listener.0.lock().unwrap() = Some(db);
        // Freezes the full memtable, so that a worker writes it.
        all.insert("more", "").unwrap();
        drop(all);
        let report = reports.recv_timeout(Duration::from_secs(60));
        if report.expect("no deadlock") == "flushed" {
            assert!(syncs >= 3, "log, table and manifest are synced");
            // Not under the lock: the worker may report a later sync, and the close waits for it.
            let handle = listener.0.lock().unwrap().take();
            drop(handle);
            break;
        }
        options().open(STORE_DIR).expect("the worker has closed the store");
    }
}

/// Neither the future of a commit, nor a stream, nor the thread for syncs keeps the store open, and
/// each of them writes the log.
#[test]
fn listener_may_drop_the_last_handle_when_an_asynchronous_write_of_the_log_fails() {
    for (name, workers) in [("the future", 0), ("the thread for syncs", 1), ("a stream", 0)] {
        let is_held = Arc::new(AtomicBool::new(false));
        let there = Arc::clone(&is_held);
        let disk = HookFs::new(move |path: &Path| {
            while path.extension().is_some_and(|it| it == "log") && there.load(SeqCst) {
                thread::sleep(Duration::from_millis(1));
            }
        });
        let fs = Arc::new(FaultFs::new(Arc::new(disk)));
        let (sender, reports) = mpsc::channel();
        let listener = Arc::new(Reporting(Mutex::default(), Mutex::new(sender)));
        let options = || {
            let options = small_options(fs.clone()).worker_threads(workers);
            options.keyspace(KeyspaceOptions::new()).retain_changes(ChangeRetention::bytes(1 << 20))
        };
        let db = options().listener(listener.clone()).open(STORE_DIR).unwrap();
        // The next record seals the segment, and begins the next one.
        db.insert("long", [7; 5 << 10]).unwrap();
        let fault = Fault::new(EIO, Times::Once).calls(&[Call::Append]).suffix(".log");
        fs.inject(fault.after(1));
        is_held.store(workers > 0, SeqCst);
        let buffered = ChangesOptions::new().durability(Durability::OsBuffer);
        let mut changes = db.changes_with(db.snapshot().sequence(), buffered).unwrap();
        let mut batch = db.batch();
        batch.insert(&db, "more", "").unwrap();
        let by_stream = name == "a stream";
        let durability = if by_stream { Durability::Memory } else { Durability::Disk };
        let commit = batch.commit_async(durability).unwrap();
        *listener.0.lock().unwrap() = Some(db.clone());
        drop((batch, db));
        is_held.store(false, SeqCst);
        let fails = thread::spawn(move || match by_stream {
            true => changes.next().is_some_and(|next| next.is_err()),
            false => commit.wait().is_err(),
        });
        let report = reports.recv_timeout(Duration::from_secs(120));
        assert_eq!(report.expect(name), "read-only", "{name}");
        assert!(fails.join().unwrap(), "{name}");
        options().open(STORE_DIR).expect("the listener has closed the store");
    }
}

/// Without workers, the future of a wait for room flushes, and does not keep the store open.
#[test]
fn listener_may_drop_the_last_handle_when_a_wait_for_room_fails() {
    for syncs in 0.. {
        let fs = Arc::new(FaultFs::new(Arc::new(MemoryFs::new())));
        let (sender, reports) = mpsc::channel();
        let listener = Arc::new(Reporting(Mutex::default(), Mutex::new(sender)));
        let options = || Options::new().fs(fs.clone()).worker_threads(0).memory_budget(8 << 20);
        let db = options().listener(listener.clone()).open(STORE_DIR).unwrap();
        let mut batch = db.batch();
        batch.insert(&db, "a", vec![7; 1_200 << 10]).unwrap();
        batch.try_commit(Durability::OsBuffer).unwrap();
        batch.insert(&db, "b", vec![7; 1_200 << 10]).unwrap();
        batch.try_commit(Durability::OsBuffer).expect_err("the first memtable is not flushed");
        let room = batch.room();
        fs.inject(Fault::new(EIO, Times::Once).calls(&Call::SYNCS).after(syncs));
        *listener.0.lock().unwrap() = Some(db.clone());
        drop((batch, db));
        let waits = thread::spawn(|| room.wait());
        let report = reports.recv_timeout(Duration::from_secs(120)).expect("no deadlock");
        let waited = waits.join().unwrap();
        if report == "flushed" {
            // A later sync may have failed.
            assert!(syncs >= 3, "log, table and manifest are synced");
            break;
        }
        assert!(waited.is_err(), "{syncs} syncs before");
        options().open(STORE_DIR).expect("the listener has closed the store");
    }
}
