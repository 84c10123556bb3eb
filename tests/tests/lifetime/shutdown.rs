//! A shutdown closes a store although other handles exist, and cancels its compactions.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread,
    time::Duration,
};

use sievedb::{Db, Durability, Error, Event, EventListener, KeyspaceOptions, Options};
use sievedb_doubles::MemoryFs;
use sievedb_tests::hook_fs::HookFs;

use super::small_store::{STORE_DIR, names, open};

/// Longer than any work in flight in these tests on a busy machine.
const LONG: Duration = Duration::from_secs(60);

fn assert_closed<T: std::fmt::Debug>(what: &str, outcome: Result<T, Error>) {
    match outcome {
        Err(Error::Closed) => {}
        other => panic!("{what}: {other:?}"),
    }
}

#[test]
fn n11_close_returns_the_handle_and_counts_others() {
    let fs = Arc::new(MemoryFs::new());
    let db = open(&fs);
    let users = db.keyspace("users").unwrap();
    let (snapshot, ranges, mut batch) = (users.clone(), [db.iter(), users.iter()], db.batch());
    batch.insert(&users, "key", "value").unwrap();
    let snapshots = (db.snapshot(), db.snapshot().keyspace(&users).unwrap());
    let refused = db.close().unwrap_err();
    let Error::StillOpen { handles, .. } = refused.error() else { panic!("{refused:?}") };
    assert_eq!(handles.to_string(), "2 Keyspaces, 2 Snapshots, 2 iterators, 1 Batch");
    let text = refused.to_string();
    assert!(text.contains("2 Keyspaces") && text.contains("Db::shutdown"), "{text}");
    let db = refused.into_db().expect("the store is open");
    db.insert("later", "value").unwrap();
    drop((users, snapshot, ranges, snapshots));
    batch.clear();
    db.close().unwrap();
    assert_eq!(open(&fs).get("later").unwrap().as_deref(), Some(&b"value"[..]));
}

#[test]
fn n11_shutdown_closes_a_store_with_handles() {
    for workers in [0, 2] {
        let fs = Arc::new(MemoryFs::new());
        let options = || Options::new().fs(fs.clone()).worker_threads(workers);
        let db = options().durability(Durability::Memory).open(STORE_DIR).unwrap();
        let (clone, users) = (db.clone(), db.keyspace("users").unwrap());
        for key in 0..100_u32 {
            users.insert(key.to_be_bytes(), "value").unwrap();
        }
        let (snapshot, mut range, mut batch) = (db.snapshot(), users.iter(), db.batch());
        range.next().unwrap().unwrap();
        batch.insert(&users, "key", "value").unwrap();
        db.shutdown(LONG).unwrap();
        db.shutdown(Duration::ZERO).unwrap();
        assert_closed("get", clone.get("key"));
        assert_closed("get with", users.get_with("key", <[u8]>::len));
        assert_closed("get many", users.get_many(["key"]));
        assert_closed("insert", users.insert("key", "value"));
        assert_closed("commit", batch.commit(Durability::Memory));
        assert_closed("snapshot", snapshot.get("key"));
        assert_closed("scan", range.next().unwrap());
        assert_closed("new scan", db.iter().next().unwrap());
        assert_closed("keyspace", db.keyspace("new"));
        assert_closed("options", users.set_options(KeyspaceOptions::new()));
        assert_closed("flush", db.flush());
        assert_closed("close", clone.close().map_err(Error::from));
        assert_closed("names of keyspaces", db.keyspaces());
        assert_closed("name of a keyspace", db.keyspace_exists("users"));
        assert!(users.may_contain("key") && db.stats().keyspaces.is_empty());
        assert_eq!(db.path(), Path::new(STORE_DIR));

        let again = options().open(STORE_DIR).unwrap();
        assert_eq!(again.keyspace("users").unwrap().iter().count(), 100);
        let operations = fs.operations();
        drop((db, users, snapshot, range, batch));
        assert_eq!(fs.operations(), operations, "handles of the closed store write nothing");
        again.close().unwrap();
    }
}

#[test]
fn n11_iterators_of_a_closed_store_end_after_one_error() {
    let fs = Arc::new(MemoryFs::new());
    let db = open(&fs);
    (0..3_u8).for_each(|key| db.insert([key], "value").unwrap());
    let (mut range, mut keys, mut borrowed) = (db.iter(), db.iter().keys(), db.iter());
    let (mut back, mut exhausted) = (db.iter(), db.iter());
    range.next().unwrap().unwrap();
    keys.next().unwrap().unwrap();
    borrowed.next_ref().unwrap().unwrap();
    back.next_back().unwrap().unwrap();
    assert_eq!(exhausted.by_ref().count(), 3);
    db.shutdown(LONG).unwrap();
    assert_closed("entry", range.next().unwrap());
    assert_closed("key", keys.next().unwrap());
    assert_closed("borrowed", borrowed.next_ref());
    assert_closed("from the back", back.next_back().unwrap());
    assert!(range.next().is_none() && range.next_back().is_none());
    assert!(keys.next().is_none() && keys.next_back().is_none());
    assert!(borrowed.next_ref().unwrap().is_none() && borrowed.next_back_ref().unwrap().is_none());
    assert!(back.next_back().is_none() && back.next().is_none());
    assert!(exhausted.next().is_none() && exhausted.next_back_ref().unwrap().is_none());
    range.seek([0]);
    assert_closed("after a seek", range.next().unwrap());
    assert!(range.next().is_none());
}

/// The stored entries are at their end, the own ones are not.
#[test]
fn n11_own_writes_of_a_transaction_end_with_its_store() {
    let fs = Arc::new(MemoryFs::new());
    let db = open(&fs);
    db.insert("a", "stored").unwrap();
    let mut transaction = db.begin();
    transaction.insert(&db, "b", "own").unwrap();
    transaction.insert(&db, "c", "own").unwrap();
    let mut range = transaction.range(&db, "a"..);
    assert_eq!(range.by_ref().take(2).count(), 2);
    db.shutdown(LONG).unwrap();
    assert_closed("own entry", range.next().unwrap());
    assert!(range.next().is_none());
}

/// Acknowledged writes of threads survive a concurrent shutdown.
#[test]
fn n11_shutdown_waits_for_writes_in_flight() {
    for workers in [0, 2] {
        let fs = Arc::new(MemoryFs::new());
        let keyspace = KeyspaceOptions::new().memtable_bytes(16 << 10).table_bytes(16 << 10);
        let options = Options::new().fs(fs.clone()).keyspace(keyspace).worker_threads(workers);
        let db = options.durability(Durability::Memory).open(STORE_DIR).unwrap();
        let written = AtomicUsize::new(0);
        thread::scope(|scope| {
            for thread in 0..3_u32 {
                let (db, written) = (&db, &written);
                scope.spawn(move || {
                    for number in 0_u32.. {
                        let key = [thread.to_be_bytes(), number.to_be_bytes()].concat();
                        match db.insert(key, [7; 100]) {
                            Ok(()) => written.fetch_add(1, SeqCst),
                            Err(Error::Closed) => return,
                            Err(error) => panic!("{error}"),
                        };
                    }
                });
            }
            while written.load(SeqCst) < 2_000 {
                thread::yield_now();
            }
            db.shutdown(LONG).unwrap();
        });
        let again = open(&fs);
        assert_eq!(again.iter().count(), written.load(SeqCst), "{workers} workers");
    }
}

/// A table of an unfinished ingest may have a file id that the next owner uses.
#[test]
fn n11_shutdown_waits_for_the_creation_of_an_ingested_table() {
    let (begun, has_begun) = sync_channel(1);
    let (gate, created) = (Arc::new(parking::Gate::default()), Arc::new(AtomicUsize::new(0)));
    let fs = Arc::new(HookFs::new({
        let (gate, created) = (Arc::clone(&gate), Arc::clone(&created));
        move |path| {
            created.fetch_add(1, SeqCst);
            if path.extension().is_some_and(|it| it == "sst") {
                begun.send(()).unwrap();
                gate.wait();
            }
        }
    }));
    let options = Options::new().fs(fs).worker_threads(0);
    let db = options.open(STORE_DIR).unwrap();
    let ingesting = thread::spawn({
        let db = db.clone();
        move || db.ingest([("key", "value")])
    });
    has_begun.recv().unwrap();
    let busy = db.shutdown(Duration::from_millis(20));
    assert!(matches!(busy, Err(Error::StillBusy { .. })), "{busy:?}");
    gate.open();
    db.shutdown(LONG).unwrap();
    let before = created.load(SeqCst);
    assert_closed("ingest", ingesting.join().unwrap());
    assert_eq!(created.load(SeqCst), before, "the store has another owner");
}

/// Blocks the worker after a flush until released.
#[derive(Debug)]
struct Keeper {
    flushed: SyncSender<()>,
    release: parking::Gate,
}

mod parking {
    use std::sync::{Condvar, Mutex};

    #[derive(Debug, Default)]
    pub(super) struct Gate(Mutex<bool>, Condvar);

    impl Gate {
        pub(super) fn open(&self) {
            *self.0.lock().unwrap() = true;
            self.1.notify_all();
        }

        pub(super) fn wait(&self) {
            drop(self.1.wait_while(self.0.lock().unwrap(), |is_open| !*is_open).unwrap());
        }
    }
}

impl EventListener for Keeper {
    fn on_event(&self, event: &Event) {
        if matches!(event, Event::Flushed { .. }) {
            self.flushed.send(()).unwrap();
            self.release.wait();
        }
    }
}

#[test]
fn n11_shutdown_reports_unfinished_work() {
    let fs = Arc::new(MemoryFs::new());
    let (flushed, has_flushed): (_, Receiver<()>) = sync_channel(10);
    let keeper = Arc::new(Keeper { flushed, release: parking::Gate::default() });
    let options = Options::new().fs(fs.clone()).worker_threads(1).listener(keeper.clone());
    let db = options.open(STORE_DIR).unwrap();
    db.insert("key", "value").unwrap();
    let flushing = thread::spawn({
        let db = db.clone();
        move || db.flush()
    });
    has_flushed.recv().unwrap();
    let busy = db.shutdown(Duration::from_millis(20));
    assert!(matches!(busy, Err(Error::StillBusy { .. })), "{busy:?}");
    assert_closed("get", db.get("key"));
    let locked = Options::new().fs(fs.clone()).open(STORE_DIR);
    assert!(matches!(locked, Err(Error::Locked { .. })), "{locked:?}");
    keeper.release.open();
    db.shutdown(LONG).unwrap();
    drop(flushing.join().unwrap());
    assert_eq!(open(&fs).get("key").unwrap().as_deref(), Some(&b"value"[..]));
}

/// Counts completed compactions.
#[derive(Debug, Default)]
struct Compactions(AtomicUsize);

impl EventListener for Compactions {
    fn on_event(&self, event: &Event) {
        if matches!(event, Event::Compacted { .. }) {
            self.0.fetch_add(1, SeqCst);
        }
    }
}

/// A shutdown cancels a verification instead of waiting for it.
#[test]
fn n11_shutdown_cancels_verify() {
    for workers in [0, 2] {
        let fs = Arc::new(MemoryFs::new());
        let options = Options::new().fs(fs.clone()).worker_threads(workers);
        let db = options.background_rewrites(false).open(STORE_DIR).unwrap();
        for run in 0..3_u32 {
            for key in 0..1_000_u32 {
                db.insert((3 * key + run).to_be_bytes(), [7; 100]).unwrap();
            }
            db.flush().unwrap();
        }
        let mut looks = 0;
        db.verify_with(|_| looks += 1).unwrap();
        assert!(looks >= 6, "two for each table: {looks}");
        let (other, mut looks) = (db.clone(), 0);
        let verified = db.verify_with(|_| {
            looks += 1;
            other.shutdown(LONG).unwrap();
        });
        assert_closed("verify", verified);
        assert_eq!(looks, 1, "{workers} workers");
    }
}

/// Tables of cancelled compactions are unlinked, and no entry is lost.
#[test]
fn n11_close_removes_output_of_cancelled_compactions() {
    let fs = Arc::new(MemoryFs::new());
    let keyspace = KeyspaceOptions::new().memtable_bytes(64 << 10).table_bytes(64 << 10);
    let keyspace = keyspace.base_level_bytes(256 << 10);
    let options = || {
        let options = Options::new().fs(fs.clone()).keyspace(keyspace.clone());
        options.durability(Durability::Memory)
    };
    let mut keys = 0_u32;
    for _ in 0..10 {
        let listener = Arc::new(Compactions::default());
        let db: Db =
            options().worker_threads(2).listener(listener.clone()).open(STORE_DIR).unwrap();
        while listener.0.load(SeqCst) < 3 {
            let key = keys.wrapping_mul(2_654_435_761).to_be_bytes();
            db.insert(key, [7; 100]).unwrap();
            keys += 1;
        }
        db.close().unwrap();
        let tables = names(&fs, ".sst");
        // An open unlinks orphans: there are none.
        let db = options().worker_threads(0).read_only(true).open(STORE_DIR).unwrap();
        let named: u64 = db.stats().levels.iter().map(|level| level.tables).sum();
        assert_eq!(tables.len() as u64, named, "{tables:?}");
        assert_eq!(db.iter().count(), keys as usize);
        db.close().unwrap();
    }
}
