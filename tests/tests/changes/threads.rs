//! Streams beside writers, and streams that wait.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
        mpsc,
    },
    task::{Context, Poll, Wake, Waker},
    thread,
    time::Duration,
};

use sievedb::{
    ChangeBatch, ChangeRetention, Db, Durability, Error, Options, changes::ChangesOptions,
    fs::RealFs, planted::PlantedBug,
};
use sievedb_doubles::MemoryFs;
use sievedb_tests::{
    observe::observe,
    settings::{STORE_DIR, small_options},
    stream::Follower,
};

use super::open;

const WRITERS: u32 = 8;
const WRITES: u32 = 1500;
const READERS: usize = 2;
/// Waits without a batch after the last write, after which a reader aborts.
const IDLE_MAX: usize = 500;

fn threaded(options: Options) -> Options {
    options.retain_changes(ChangeRetention::bytes(1 << 30)).worker_threads(2)
}

/// Writes of one thread: single ones, batches over two keyspaces, and removals.
fn write(db: &Db, writer: u32) {
    let other = db.keyspace("other").unwrap();
    for number in 0..WRITES {
        let (a, b) = ((number % 50).to_be_bytes(), (number % 7 * 8 + writer).to_be_bytes());
        let value = [writer.to_be_bytes(), number.to_be_bytes()].concat();
        let mut batch = db.batch();
        match number % 5 {
            0 => batch.remove(db, a).unwrap(),
            1 => batch.remove_range(db, b..).unwrap(),
            _ => {
                batch.insert(db, a, &value).unwrap();
                batch.insert(&other, b, &value).unwrap();
            }
        }
        let words = [Durability::Memory, Durability::OsBuffer, Durability::Disk];
        batch.commit(words[number as usize % 3]).unwrap();
        if number % 500 == 499 {
            db.flush().unwrap();
        }
    }
}

/// Reads batches until `last`, which is `usize::MAX` during writes, and checks their order.
fn follow(db: &Db, since: u64, last: &AtomicUsize, options: ChangesOptions) -> Vec<ChangeBatch> {
    let mut changes = db.changes_with(since, options).unwrap();
    let mut batches = Vec::new();
    let mut idle = 0;
    while changes.position() < last.load(SeqCst) as u64 && idle < IDLE_MAX {
        let Some(batch) = changes.next_within(Duration::from_millis(20)) else {
            idle += usize::from(last.load(SeqCst) != usize::MAX);
            continue;
        };
        idle = 0;
        let batch = batch.unwrap();
        assert!(
            batches.last().is_none_or(|it: &ChangeBatch| {
                it.last_sequence() + 1 == batch.first_sequence()
            })
        );
        batches.push(batch);
    }
    batches
}

/// Runs writers and readers. Returns an error if a copy differs from the store.
fn stress(options: Options, path: &Path) -> Result<(), String> {
    let db = threaded(options).open(path).unwrap();
    let base = observe(&db, &Default::default()).map_err(|error| error.to_string())?;
    let (since, last) = (db.snapshot().sequence(), AtomicUsize::new(usize::MAX));
    let copies = thread::scope(|scope| {
        let readers: Vec<_> = (0..READERS)
            .map(|reader| {
                let durability = [Durability::Disk, Durability::OsBuffer][reader % 2];
                let options = ChangesOptions::new().durability(durability);
                let (db, last) = (&db, &last);
                scope.spawn(move || follow(db, since, last, options))
            })
            .collect();
        let db = &db;
        let writers: Vec<_> =
            (0..WRITERS).map(|writer| scope.spawn(move || write(db, writer))).collect();
        let ended: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
        last.store(usize::try_from(db.snapshot().sequence()).unwrap(), SeqCst);
        ended.into_iter().for_each(|writer| writer.unwrap());
        readers.into_iter().map(|reader| reader.join()).collect::<Vec<_>>()
    });
    let found = observe(&db, &Default::default()).map_err(|error| error.to_string())?;
    for batches in copies {
        let batches = batches.map_err(|_| "batches out of order".to_owned())?;
        let mut copy = Follower::new(&db, base.clone()).map_err(|error| error.to_string())?;
        batches.iter().try_for_each(|batch| copy.apply(batch))?;
        if *copy.model() != found {
            return Err(copy.model().difference(&found, 10));
        }
    }
    Ok(())
}

#[test]
fn streams_beside_eight_writers_lose_and_double_nothing() {
    stress(in_memory(), STORE_DIR.as_ref()).unwrap();
    let dir = tempfile::tempdir().unwrap();
    stress(small_options(Arc::new(RealFs)), dir.path()).unwrap();
}

fn in_memory() -> Options {
    small_options(Arc::new(MemoryFs::with_seed(1)))
}

#[test]
fn planted_skipped_changes_are_caught() {
    let planted = in_memory().planted_bug(PlantedBug::SkipChanges);
    stress(planted, STORE_DIR.as_ref()).unwrap_err();
}

#[test]
fn a_waiting_stream_is_notified_and_ends_with_the_store() {
    let (_, db) = open();
    let mut changes = db.changes(db.snapshot().sequence()).unwrap();
    assert!(changes.next_within(Duration::from_millis(1)).is_none());
    assert!(!changes.is_ended());
    let (got_first, is_read) = mpsc::channel();
    let reader = thread::spawn(move || {
        let first = changes.next_within(Duration::from_secs(60)).unwrap().unwrap();
        got_first.send(()).unwrap();
        // The store is closed meanwhile.
        let second = changes.next_within(Duration::from_secs(60));
        assert!(second.is_none() && changes.is_ended());
        assert!(changes.next().is_none());
        first
    });
    thread::sleep(Duration::from_millis(20));
    db.insert("key", "value").unwrap();
    is_read.recv().unwrap();
    thread::sleep(Duration::from_millis(20));
    drop(db);
    assert_eq!(reader.join().unwrap().changes().len(), 1);
}

#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, SeqCst);
    }
}

#[test]
fn a_task_is_woken_by_a_write_and_by_the_close() {
    let (_, db) = open();
    let mut changes = db.changes(db.snapshot().sequence()).unwrap();
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(Arc::clone(&woken));
    let mut context = Context::from_waker(&waker);
    assert!(changes.poll_next(&mut context).is_pending());
    assert!(changes.poll_next(&mut context).is_pending(), "registered once");
    assert!(!woken.0.swap(false, SeqCst));
    db.insert("key", "value").unwrap();
    assert!(woken.0.swap(false, SeqCst));
    let Poll::Ready(Some(Ok(batch))) = changes.poll_next(&mut context) else { panic!() };
    assert_eq!(batch.changes().len(), 1);
    assert!(changes.poll_next(&mut context).is_pending());
    db.close().unwrap();
    assert!(woken.0.swap(false, SeqCst));
    assert!(matches!(changes.poll_next(&mut context), Poll::Ready(None)));
}

/// A task that waits is kept, an earlier or dropped one is not: its memory would grow until the
/// next write.
#[test]
fn a_stream_keeps_the_waker_of_its_last_poll_only() {
    let (_, db) = open();
    let mut changes = db.changes(db.snapshot().sequence()).unwrap();
    let tasks: [Arc<Woken>; 2] = Default::default();
    for task in &tasks {
        let waker = Waker::from(Arc::clone(task));
        assert!(changes.poll_next(&mut Context::from_waker(&waker)).is_pending());
    }
    assert_eq!(tasks.each_ref().map(Arc::strong_count), [1, 2]);
    drop(changes);
    assert_eq!(tasks.each_ref().map(Arc::strong_count), [1, 1]);
}

struct Panics;

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        panic!("a waker panics, as it should");
    }
}

#[test]
fn a_waker_that_panics_harms_neither_a_write_nor_the_close() {
    let (_, db) = open();
    let mut changes = db.changes(db.snapshot().sequence()).unwrap();
    let waker = Waker::from(Arc::new(Panics));
    let mut context = Context::from_waker(&waker);
    assert!(changes.poll_next(&mut context).is_pending());
    db.insert("key", "value").unwrap();
    assert!(db.stats().read_only.is_none());
    assert!(matches!(changes.poll_next(&mut context), Poll::Ready(Some(Ok(_)))));
    assert!(changes.poll_next(&mut context).is_pending());
    db.close().unwrap();
}

/// Uses the store where it is woken, as a task does that an executor runs, or drops, at once.
struct UsesStore(Db);

impl Wake for UsesStore {
    fn wake(self: Arc<Self>) {
        drop(self.0.snapshot());
        self.0.keyspace("of the waker").expect("no lock is held");
    }
}

#[test]
fn wakers_of_changes_of_keyspaces_may_use_the_store() {
    let (_, db) = open();
    let changes: [fn(&Db); 4] = [
        |db| db.default_keyspace().clear().unwrap(),
        |db| drop(db.keyspace("new").unwrap()),
        |db| assert!(db.drop_keyspace("new").unwrap()),
        |db| {
            let mut ingestion = db.default_keyspace().ingestion().unwrap();
            ingestion.insert("key", "value").unwrap();
            ingestion.finish().unwrap();
        },
    ];
    for change in changes {
        let waker = Waker::from(Arc::new(UsesStore(db.clone())));
        let mut stream = db.changes(db.snapshot().sequence()).unwrap();
        assert!(stream.poll_next(&mut Context::from_waker(&waker)).is_pending());
        let (done, is_done) = mpsc::channel();
        let changed = db.clone();
        thread::spawn(move || {
            change(&changed);
            let _ = done.send(());
        });
        is_done.recv_timeout(Duration::from_secs(60)).expect("no thread waits for itself");
        assert!(db.drop_keyspace("of the waker").unwrap(), "the waker was called");
    }
}

#[test]
fn a_stream_does_not_keep_the_store_open() {
    let (fs, db) = open();
    db.insert("key", "value").unwrap();
    let mut changes = db.changes(0).unwrap();
    changes.next().unwrap().unwrap();
    db.close().unwrap();
    assert!(changes.next().is_none() && changes.is_ended());
    let again = small_options(Arc::clone(&fs) as _).open(STORE_DIR).unwrap();
    assert!(matches!(again.changes(99), Err(Error::ChangesLost { .. })));
    assert_eq!(again.changes(changes.position()).unwrap().count(), 1);
}
