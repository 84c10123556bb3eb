//! Events during a call of a set.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::{
    fmt, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use sievedb::{
    ChangeRetention, Error, RestoreOptions, Retention,
    fs::{AppendFile, Fs, ReadFile},
};
use sievedb_doubles::MemoryFs;
use sievedb_tests::{
    layer::{Layer, Layered},
    settings::{STORE_DIR, small_options},
};

use super::{entries, set_on};

type Event = Box<dyn FnOnce() + Send>;

/// A disk that calls a function once, before it opens or creates a file.
struct Watched {
    disk: Arc<MemoryFs>,
    opened: Mutex<Vec<PathBuf>>,
    /// A part of the path, and the function.
    event: Mutex<Option<(&'static str, Event)>>,
}

impl Watched {
    fn on() -> (Arc<MemoryFs>, Arc<Layered<Self>>) {
        let disk = Arc::new(MemoryFs::new());
        let watched =
            Self { disk: Arc::clone(&disk), opened: Mutex::default(), event: Mutex::default() };
        (disk, Arc::new(Layered(watched)))
    }

    fn before(&self, path: &'static str, event: impl FnOnce() + Send + 'static) {
        *self.event.lock().unwrap() = Some((path, Box::new(event)));
    }

    fn run(&self, path: &Path) {
        let event = self
            .event
            .lock()
            .unwrap()
            .take_if(|(begin, _)| path.to_str().is_some_and(|path| path.contains(*begin)));
        if let Some((_, event)) = event {
            event();
        }
    }
}

impl fmt::Debug for Watched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watched").finish_non_exhaustive()
    }
}

impl Layer for Watched {
    fn inner(&self) -> &dyn Fs {
        &*self.disk
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn AppendFile>> {
        self.run(path);
        self.disk.create(path)
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn ReadFile>> {
        self.run(path);
        self.opened.lock().unwrap().push(path.to_owned());
        self.disk.open(path)
    }
}

#[test]
fn changes_that_are_lost_during_a_backup_begin_another_log() {
    let (_, watched) = Watched::on();
    let fs = Arc::clone(&watched) as Arc<dyn Fs>;
    let options = small_options(Arc::clone(&fs)).retain_changes(ChangeRetention::bytes(1));
    let db = options.open(STORE_DIR).unwrap();
    let set = set_on(fs);
    let mut archive = set.archive(&db).unwrap().backup_after_log_bytes(1);
    archive.update().unwrap();
    db.insert("key", "value").unwrap();
    let writer = db.clone();
    watched.0.before("backups/000002", move || {
        for round in 0..20_u32 {
            (0..7_u32).for_each(|key| writer.insert(key.to_be_bytes(), [round as u8; 99]).unwrap());
            writer.flush().unwrap();
        }
    });
    assert_eq!(archive.update().unwrap().backup.map(|backup| backup.number), Some(2));
    db.insert("later", "").unwrap();
    archive.update().unwrap();
    let wanted = entries(&db);
    drop(db);
    set.restore_with(&RestoreOptions::new(), "data/new").unwrap();
    let copy = small_options(Arc::clone(&watched) as Arc<dyn Fs>).open("data/new").unwrap();
    assert_eq!(entries(&copy), wanted);
}

#[test]
fn a_prune_during_a_verification_or_a_list_is_no_problem() {
    let (disk, watched) = Watched::on();
    let fs = || Arc::clone(&watched) as Arc<dyn Fs>;
    let db = small_options(fs()).open(STORE_DIR).unwrap();
    let set = set_on(fs());
    for round in 0..3_u8 {
        db.insert("key", [round; 300]).unwrap();
        db.compact().unwrap();
        set.create(&db).unwrap();
    }
    for (path, kept, left) in [("set/objects/", 2, 2), ("set/backups/000002", 1, 1)] {
        let pruning = set_on(Arc::clone(&disk) as Arc<dyn Fs>);
        watched.0.before(path, move || {
            assert_eq!(pruning.prune(&Retention::new().last(kept)).unwrap().removed.len(), 1);
        });
        let report = set.verify().unwrap();
        assert!(report.problems.is_empty(), "{report}");
        assert_eq!(set.list().unwrap().len(), left);
    }
    set.create(&db).unwrap();
    let pruning = set_on(Arc::clone(&disk) as Arc<dyn Fs>);
    watched.0.before("set/backups/000003", move || {
        pruning.prune(&Retention::new().last(1)).unwrap();
    });
    assert_eq!(set.list().unwrap().len(), 1);
    // Damage of a backup that is left is still found.
    let objects = disk.list(Path::new("data/set/objects")).unwrap();
    disk.unlink(&Path::new("data/set/objects").join(&objects[0])).unwrap();
    assert_eq!(set.verify().unwrap().problems.len(), 1);
}

#[test]
fn a_replica_refuses_a_set_that_was_begun_again() {
    let (disk, watched) = Watched::on();
    let options = small_options(Arc::clone(&watched) as Arc<dyn Fs>);
    let db = options.clone().open(STORE_DIR).unwrap();
    let set = set_on(Arc::clone(&watched) as Arc<dyn Fs>);
    let refused = set.open_replica(&RestoreOptions::new(), &options, "data/replica");
    assert!(matches!(refused, Err(Error::NoBackup { number: 0, .. })), "{refused:?}");
    for round in 0..2_u8 {
        db.insert("key", [round]).unwrap();
        set.create(&db).unwrap();
    }
    let replica = set.open_replica(&RestoreOptions::new(), &options, "data/replica").unwrap();
    while replica.fetch_next().unwrap() {}
    assert!(!replica.refresh().unwrap());
    for name in ["000001", "000002"] {
        disk.unlink(&Path::new("data/set/backups").join(name)).unwrap();
    }
    db.insert("key", "later").unwrap();
    assert_eq!(set.create(&db).unwrap().number, 1);
    let refused = replica.refresh();
    assert!(matches!(refused, Err(Error::NoBackup { number: 2, .. })), "{refused:?}");
}

#[test]
fn the_number_of_parts_of_a_log_is_limited_and_a_restore_reads_each_once() {
    let (disk, watched) = Watched::on();
    let options = small_options(Arc::clone(&watched) as Arc<dyn Fs>);
    let db = options.retain_changes(ChangeRetention::bytes(1 << 20)).open(STORE_DIR).unwrap();
    let set = set_on(Arc::clone(&watched) as Arc<dyn Fs>);
    let mut archive = set.archive(&db).unwrap();
    for round in 0..2100_u32 {
        db.insert("round", round.to_be_bytes()).unwrap();
        archive.update().unwrap();
    }
    let backups = set.list().unwrap();
    assert_eq!(backups.len(), 2, "{backups:?}");
    watched.0.opened.lock().unwrap().clear();
    let options = RestoreOptions::new().backup(1).to(backups[1].sequence);
    set.restore_with(&options, "data/new").unwrap();
    let parts = disk.list(Path::new("data/set/log")).unwrap();
    let parts = parts.iter().filter(|name| name.starts_with("000001-")).count();
    let opened = watched.0.opened.lock().unwrap();
    let opened = opened.iter().filter(|path| path.starts_with("data/set/log")).count();
    assert!(opened > 1900 && opened <= parts, "{opened} of {parts}");
}
