//! Checkpoints and backups of replicas.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::{
    io,
    path::Path,
    sync::{
        Arc, Mutex,
        mpsc::{Receiver, Sender, channel},
    },
    thread,
    time::Duration,
};

use sievedb::{BackupSet, Db, Replica, RestoreOptions, clock::ManualClock, fs::Fs};
use sievedb_doubles::MemoryFs;
use sievedb_tests::{
    layer::{Layer, Layered},
    settings::STORE_DIR,
};

use super::{
    entries, options,
    refresh::next_backup,
    replicas::{Entries, complete, open},
    set,
};

/// Checks that a store in the directory `path` has the entries `wanted`.
fn check_copy(disk: &Arc<MemoryFs>, path: &str, wanted: &Entries) {
    let copy = options(disk).create_if_missing(false).open(path).unwrap();
    assert!(entries(&copy) == *wanted, "{path}");
    assert!(copy.verify().unwrap().is_good());
}

/// Checks a checkpoint and a backup of a replica, whose names end with `name`.
fn check_copies(disk: &Arc<MemoryFs>, replica: &Replica, name: &str, wanted: &Entries) {
    let (copy, restored) = (format!("data/copy {name}"), format!("data/restored {name}"));
    let checkpoint = replica.db().checkpoint(&copy).unwrap();
    assert_eq!(checkpoint.sequence, replica.db().snapshot().sequence());
    check_copy(disk, &copy, wanted);
    let fs = Arc::clone(disk) as Arc<dyn Fs>;
    let other = BackupSet::with_fs(format!("data/set {name}"), fs, Arc::new(ManualClock::new()));
    other.create(replica.db()).unwrap();
    other.restore_with(&RestoreOptions::new(), &restored).unwrap();
    check_copy(disk, &restored, wanted);
}

/// Adds keys to the log.
fn write_log(db: &Db, round: u8) {
    for number in 0..100_u8 {
        db.insert([b'l', number], [round; 20]).unwrap();
    }
}

#[test]
fn copies_of_a_refreshed_replica_have_its_log() {
    for (has_log, flushes) in [(false, false), (false, true), (true, false), (true, true)] {
        let disk = Arc::new(MemoryFs::new());
        let db = options(&disk).open(STORE_DIR).unwrap();
        next_backup(&disk, &db, 0);
        if !has_log {
            db.flush().unwrap();
            set(&disk).create(&db).unwrap();
        }
        let replica = open(&set(&disk), &options(&disk)).unwrap();
        complete(&replica);
        for round in 1..3 {
            db.insert("key", [round]).unwrap();
            if flushes {
                db.flush().unwrap();
            }
            write_log(&db, round);
            set(&disk).create(&db).unwrap();
            assert!(replica.refresh().unwrap());
            complete(&replica);
            let name = format!("{has_log} {flushes} {round}");
            check_copies(&disk, &replica, &name, &entries(&db));
        }
    }
}

/// Blocks the next link of a file: reports it, and waits.
#[derive(Debug)]
struct Blocking {
    disk: Arc<MemoryFs>,
    next: Mutex<Option<(Sender<()>, Receiver<()>)>>,
}

impl Layer for Blocking {
    fn inner(&self) -> &dyn Fs {
        &*self.disk
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        if let Some((reached, passes)) = self.next.lock().unwrap().take() {
            reached.send(()).unwrap();
            passes.recv().unwrap();
        }
        self.disk.link(from, to)
    }
}

#[test]
fn a_refresh_waits_for_a_checkpoint() {
    let disk = Arc::new(MemoryFs::new());
    let db = options(&disk).open(STORE_DIR).unwrap();
    let old = next_backup(&disk, &db, 0);
    let fs = Arc::new(Layered(Blocking { disk: Arc::clone(&disk), next: Mutex::default() }));
    let local = options(&disk).fs(Arc::clone(&fs) as Arc<dyn Fs>);
    let replica = open(&set(&disk), &local).unwrap();
    complete(&replica);
    let new = next_backup(&disk, &db, 1);
    let ((reached, is_reached), (pass, passes)) = (channel(), channel());
    *fs.0.next.lock().unwrap() = Some((reached, passes));
    thread::scope(|scope| {
        let checkpoint = scope.spawn(|| replica.db().checkpoint("data/copy"));
        is_reached.recv().unwrap();
        let refresh = scope.spawn(|| replica.refresh());
        // The refresh must not end before the checkpoint.
        for _ in 0..200 {
            if refresh.is_finished() {
                break;
            }
            thread::sleep(Duration::from_millis(1));
        }
        pass.send(()).unwrap();
        checkpoint.join().unwrap().unwrap();
        assert!(refresh.join().unwrap().unwrap());
    });
    assert_eq!(entries(replica.db()), new);
    check_copy(&disk, "data/copy", &old);
    complete(&replica);
    check_copies(&disk, &replica, "after", &new);
}

/// Panics at the next opening of an object.
#[derive(Debug)]
struct Panicking {
    disk: Arc<MemoryFs>,
    is_due: Mutex<bool>,
}

impl Layer for Panicking {
    fn inner(&self) -> &dyn Fs {
        &*self.disk
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn sievedb::fs::ReadFile>> {
        let is_due = std::mem::take(&mut *self.is_due.lock().unwrap());
        assert!(!is_due, "a planted panic");
        self.disk.open(path)
    }
}

#[test]
fn a_panic_of_the_set_delays_a_fetch() {
    let disk = Arc::new(MemoryFs::new());
    let db = options(&disk).open(STORE_DIR).unwrap();
    let wanted = next_backup(&disk, &db, 0);
    let fs = Arc::new(Layered(Panicking { disk: Arc::clone(&disk), is_due: Mutex::new(false) }));
    let replica = open(&super::set_on(Arc::clone(&fs) as Arc<dyn Fs>), &options(&disk)).unwrap();
    let pending = replica.stats().files_pending;
    *fs.0.is_due.lock().unwrap() = true;
    let failed = replica.fetch_next();
    assert!(matches!(failed, Err(sievedb::Error::Io { .. })), "{failed:?}");
    let stats = replica.stats();
    assert!(stats.error.is_some() && stats.files_pending == pending, "{stats:?}");
    complete(&replica);
    assert_eq!(entries(replica.db()), wanted);
}
