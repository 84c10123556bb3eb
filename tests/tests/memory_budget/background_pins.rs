//! Flushes and compactions do not pin memtables after they have read them.

use std::{
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    thread,
};

use sievedb::{Db, Event, EventListener, Options};
use sievedb_tests::hook_fs::HookFs;

use crate::counting::turn;

/// The open store, and the pinned bytes measured during its background work.
#[derive(Debug, Default)]
struct Seen {
    db: Mutex<Option<Db>>,
    looks: AtomicU64,
    pinned_bytes_max: AtomicU64,
}

impl Seen {
    fn look(&self, db: &Db) {
        self.looks.fetch_add(1, SeqCst);
        self.pinned_bytes_max.fetch_max(db.stats().memory.pinned_bytes, SeqCst);
    }
}

/// Records the pinned bytes after each flush.
impl EventListener for Seen {
    fn on_event(&self, event: &Event) {
        let db = self.db.lock().unwrap();
        if let (Event::Flushed { .. }, Some(db)) = (event, &*db) {
            self.look(db);
        }
    }
}

fn fill(db: &Db, first: u32) {
    for key in first..first + 1_000 {
        db.insert(key.to_be_bytes(), [7; 200]).unwrap();
    }
}

#[test]
fn n9_flush_releases_its_memtables_before_it_ends() {
    let _turn = turn();
    let seen = Arc::new(Seen::default());
    let fs = Arc::new(HookFs::new(|_: &Path| ()));
    let options = Options::new().fs(fs).worker_threads(0).listener(seen.clone());
    let db = options.open("db").unwrap();
    *seen.db.lock().unwrap() = Some(db.clone());
    fill(&db, 0);
    db.flush().unwrap();
    seen.db.lock().unwrap().take();
    assert_eq!(seen.looks.load(SeqCst), 1);
    assert_eq!(seen.pinned_bytes_max.load(SeqCst), 0);
}

/// Memtables flushed while a compaction merges are freed at once.
#[test]
fn n9_compaction_pins_no_memtables() {
    let _turn = turn();
    let seen = Arc::new(Seen::default());
    let of_hook = Arc::clone(&seen);
    let before_create = move |path: &Path| {
        // Once: the flush below creates a table too.
        let taken = of_hook.db.try_lock().ok().and_then(|mut db| db.take());
        let Some(db) = taken.filter(|_| path.extension().is_some_and(|name| name == "sst")) else {
            return;
        };
        let flush = || {
            fill(&db, 5_000);
            db.flush().unwrap();
            of_hook.look(&db);
        };
        thread::scope(|scope| scope.spawn(flush).join().unwrap());
    };
    let fs = Arc::new(HookFs::new(before_create));
    let options = Options::new().fs(fs).worker_threads(0).background_rewrites(false);
    let db = options.open("db").unwrap();
    for first in [0, 500] {
        fill(&db, first);
        db.flush().unwrap();
    }
    *seen.db.lock().unwrap() = Some(db.clone());
    db.compact().unwrap();
    assert_eq!(seen.looks.load(SeqCst), 1, "a memtable was flushed during the compaction");
    assert_eq!(seen.pinned_bytes_max.load(SeqCst), 0);
    assert_eq!(db.iter().count(), 2_500);
}
