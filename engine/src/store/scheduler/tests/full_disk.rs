//! Compactions that find no space.

use std::{io, path::Path};

use super::{
    priorities::{self, add_runs, busy, claim, options, tree_of},
    *,
};
use crate::store::writer::stall::Awaited;

const NO_MEMORY: i32 = 12;
const NO_SPACE: i32 = 28;

/// A store without workers on a full disk with a compaction due, which flushes fit on.
fn full() -> (Arc<FaultFs>, Arc<ManualClock>, Db) {
    let fs = Arc::new(FaultFs::new(Arc::new(MemoryFs::with_seed(1))));
    let clock = Arc::<ManualClock>::default();
    let options = Options::new().fs(Arc::clone(&fs) as _).clock(Arc::clone(&clock) as _);
    let db = options.worker_threads(0).open("db").expect("a new store");
    (0..3).for_each(|_| flush(&db));
    fs.inject(Fault::new(NO_SPACE, Times::ForGood).calls(&[Call::Append]).suffix(".sst"));
    freeze(&db);
    fs.heal();
    let job = db.store().claim().expect("a memtable is frozen");
    assert!(matches!(job, Job::Flush(_)) && db.store().carry_out(&job));
    fs.inject(Fault::new(NO_SPACE, Times::ForGood).calls(&[Call::Append]).suffix(".sst"));
    (fs, clock, db)
}

fn freeze(db: &Db) {
    db.insert("key", "value").expect("there is room");
    let tree = db.store().versions.trees().get("default").cloned().expect("it is always there");
    let _placement = db.store().writer.placement();
    assert!(tree.freeze());
}

/// Flushes continue while compactions find no space.
#[test]
fn a_wait_for_flushes_does_not_fail_with_the_error_of_a_compaction() {
    let busy = busy(options(1));
    let (db, store) = (&busy.db, busy.db.store());
    (0..3).for_each(|_| priorities::freeze(db, "other", 1));
    let trees = [tree_of(db, "other")];
    assert!(store.poll_room(1, &trees).is_none(), "three memtables wait for a flush");
    let full = Error::io("append", Path::new("1.sst"), io::Error::from_raw_os_error(NO_SPACE));
    let now = store.options.clock.now();
    let note = |is_flush| {
        store.scheduler.state.lock().full_disk.note_stop(is_flush, &full, now, true);
    };
    note(false);
    let failed = store.poll_room(1, &trees);
    assert!(failed.is_none(), "{failed:?}");
    let (sender, written) = mpsc::channel();
    let keyspace = db.keyspace("other").expect("it exists");
    let writer = thread::spawn(move || sender.send(keyspace.insert("key", "value")));
    let early = written.recv_timeout(Duration::from_millis(200));
    assert!(early.is_err(), "it waits for a flush: {early:?}");
    note(true);
    let failed = store.poll_room(1, &trees);
    assert!(matches!(&failed, Some(Err(error)) if error.is_no_space()), "{failed:?}");
    store.scheduler.wake();
    let failed = written.recv_timeout(Duration::from_secs(30)).expect("it is notified");
    assert!(failed.expect_err("the disk is full").is_no_space());
    writer.join().expect("it has ended").expect("the receiver is alive");
}

fn flush(db: &Db) {
    db.insert("key", "value").expect("there is room");
    db.flush().expect("there is room");
}

/// Takes the next step except unlinks. Returns whether it was a compaction.
fn compacts(db: &Db) -> bool {
    loop {
        match db.store().claim() {
            None => return false,
            Some(job @ Job::Compact(..)) => {
                let worked = db.store().carry_out(&job);
                return !worked || db.stats().levels[0].runs == 0;
            }
            Some(other) => assert!(db.store().carry_out(&other), "{other:?}"),
        }
    }
}

/// Otherwise it would write until the disk is full, twice a second.
#[test]
fn a_compaction_that_found_no_space_waits_ever_longer() {
    let (fs, clock, db) = full();
    assert!(compacts(&db), "four runs are due");
    let refused = |db: &Db| {
        let stats = db.stats();
        (stats.background.compactions_without_space, stats.compaction_bytes_refused > 0)
    };
    for (failures, ms) in [(1, 500), (2, 1_000), (3, 2_000)] {
        assert!(!compacts(&db), "it fails again");
        clock.advance(Duration::from_millis(ms - 1));
        assert!(!compacts(&db), "it fails again");
        assert_eq!(refused(&db), (failures, true));
        let wait_max = db.store().wait_max(&db.store().scheduler.state.lock());
        assert!(wait_max.is_some_and(|wait| wait.as_millis() <= 10), "{wait_max:?}");
        clock.advance(Duration::from_millis(1));
        assert!(compacts(&db), "the pause of {ms} ms is over");
    }
    let error = db.wait_for_background().expect_err("a compaction is due");
    assert!(error.is_no_space(), "{error}");
    assert!(db.compact().expect_err("the disk is full").is_no_space());
    fs.heal();
    db.wait_for_background().expect("there is room");
    assert_eq!((db.stats().levels[0].runs, refused(&db).1), (0, false));
}

/// Memtables are flushed while a compaction waits.
#[test]
fn flushes_continue_while_compactions_wait() {
    let (fs, _clock, db) = full();
    assert!(compacts(&db), "four runs are due");
    fs.heal();
    flush(&db);
    assert_eq!(db.stats().levels[0].runs, 5, "the disk may have no room for the compaction");
    db.compact().expect("there is room");
    assert_eq!(db.stats().levels[0].runs, 0);
}

/// Otherwise each flush would begin a compaction that fails.
#[test]
fn a_flush_ends_no_pause_of_compactions() {
    let fs = Arc::new(FaultFs::new(Arc::new(MemoryFs::with_seed(1))));
    let clock = Arc::<ManualClock>::default();
    let busy = busy(options(1).fs(Arc::clone(&fs) as _).clock(Arc::clone(&clock) as _));
    let (db, store) = (&busy.db, busy.db.store());
    add_runs(db, "a", 4, 100);
    let merge = claim(db).expect("four runs are due");
    fs.inject(Fault::new(NO_MEMORY, Times::Once).calls(&[Call::Create]).suffix(".sst"));
    assert!(!store.carry_out(&merge), "it fails");
    store.scheduler.retry_flushes();
    assert!(claim(db).is_none(), "the pause goes on");
    let awaited = Awaited::Any { compactions_of: None };
    assert!(store.scheduler.no_space_for(awaited).is_some());
    assert!(store.scheduler.state.lock().full_disk.flush_error().is_none());
    clock.advance(Duration::from_millis(500));
    let merge = claim(db).expect("the pause is over");
    fs.inject(Fault::new(NO_MEMORY, Times::Once).calls(&[Call::Create]).suffix(".sst"));
    store.scheduler.retry_flushes();
    assert!(!store.carry_out(&merge), "no call waits for it");
    assert!(claim(db).is_none());
}

/// A writer gets the error only if its own keyspace waits for space.
#[test]
fn a_refused_compaction_fails_no_write_to_another_keyspace() {
    let busy = busy(options(1).clock(Arc::<ManualClock>::default()));
    let (db, store) = (&busy.db, busy.db.store());
    add_runs(db, "a", 32, 1);
    add_runs(db, "b", 4, 100);
    let error = Error::io("append", "1.sst", io::Error::from_raw_os_error(NO_SPACE));
    store.note_failed(&Compaction::of_bytes(1), &error);
    // Not even its merges, which would be refused, too.
    let hold = store.scheduler.begin_ingest(&tree_of(db, "a"));
    assert!(hold.is_empty() && claim(db).is_none(), "the only other one is refused");
    let (sender, written) = mpsc::channel();
    let keyspace = db.keyspace("a").expect("it exists");
    let writer = thread::spawn(move || sender.send(keyspace.insert("key", "value")));
    let early = written.recv_timeout(Duration::from_millis(200));
    assert!(early.is_err(), "it waits for level 0: {early:?}");
    store.scheduler.end_ingest(&tree_of(db, "a"));
    assert!(claim(db).is_none(), "both are refused");
    let failed = written.recv_timeout(Duration::from_secs(30)).expect("it is notified");
    assert!(failed.expect_err("the disk is full").is_no_space());
    writer.join().expect("it has ended").expect("the receiver is alive");
}

/// Also while a checkpoint or the pace of unlinks keeps obsolete files.
#[test]
fn the_space_of_tables_is_that_of_their_files() {
    let fs = Arc::new(MemoryFs::with_seed(1));
    let keyspace = KeyspaceOptions::new().blob_value_bytes(Some(500));
    let options = options(0).fs(Arc::clone(&fs) as _).keyspace(keyspace);
    let db = options.open("db").expect("a new store");
    let check = |when: &str| {
        let is_table = |name: &str| name.ends_with(".sst") || name.ends_with(".blob");
        let files = fs.contents().into_iter().filter(|(name, _)| is_table(name));
        let bytes = files.map(|(_, bytes)| bytes.len()).sum::<usize>();
        let (_, occupied) = db.store().point_of_space();
        assert_eq!(occupied, bytes as i64, "{when}");
        bytes
    };
    for value in 0..2 {
        for key in 0..200_u8 {
            db.insert([key], vec![value; usize::from(key) * 5]).expect("there is room");
        }
        db.flush().expect("there is room");
    }
    check("flushes");
    db.ingest((200..220_u8).map(|key| ([key], [key; 900]))).expect("there is room");
    let before = check("an ingest");
    let (tree, mut files) = (tree_of(&db, "default"), Vec::new());
    for meta in tree.view().version.metas().iter() {
        files.extend(meta.blob_file_ids().chain([meta.id]));
    }
    let hold = db.store().tables.obsolete_files.hold(files);
    db.compact().expect("there is room");
    assert!(check("a compaction whose inputs are held") > before);
    drop(hold);
    db.wait_for_background().expect("there is room");
    assert!(check("their unlink") < before);
}

/// Counts reports of a full disk.
#[derive(Debug, Default)]
struct Reports(AtomicU64);

impl EventListener for Reports {
    fn on_event(&self, event: &Event) {
        if matches!(event, Event::NoSpace { .. }) {
            self.0.fetch_add(1, SeqCst);
        }
    }
}

/// Each attempt reads the whole table.
#[test]
fn a_filter_rebuild_that_found_no_space_waits_ever_longer() {
    let fs = Arc::new(FaultFs::new(Arc::new(MemoryFs::with_seed(1))));
    let reports = Arc::<Reports>::default();
    let options = Options::new().fs(Arc::clone(&fs) as _).worker_threads(2);
    let db = options.listener(Arc::clone(&reports) as _).open("db").expect("a new store");
    flush(&db);
    db.wait_for_background().expect("there is room");
    fs.inject(Fault::new(NO_SPACE, Times::ForGood).calls(&Call::GROWING).suffix(".filter"));
    let options = KeyspaceOptions::new().range_filter_bits_per_key(12.0);
    db.default_keyspace().set_options(options).expect("good options");
    thread::sleep(Duration::from_millis(1_800));
    let attempts = fs.failures();
    assert!((1..=3).contains(&attempts), "{attempts} attempts, at 0, 500 and 1,500 ms");
    assert_eq!(reports.0.load(SeqCst), 1);
    fs.heal();
    db.wait_for_background().expect("there is room");
}

/// A failed ingest leaves no bytes that are never subtracted: they would hide freed space.
#[test]
fn the_files_of_a_failed_ingest_occupy_no_space() {
    let fs = Arc::new(FaultFs::new(Arc::new(MemoryFs::with_seed(1))));
    let options = options(0).fs(Arc::clone(&fs) as _);
    let options = options.keyspace(KeyspaceOptions::new().blob_value_bytes(Some(500)));
    let db = options.open("db").expect("a new store");
    let entries = || (0..9_u8).map(|key| ([key], [key; 900]));
    db.ingest(entries()).expect("there is room");
    let (_, before) = db.store().point_of_space();
    let of_log = Fault::new(NO_SPACE, Times::Once).calls(&[Call::Append]).suffix(".log");
    let of_table = Fault::new(5, Times::Once).calls(&[Call::ReadAt]).suffix(".sst");
    for fault in [of_log, of_table] {
        fs.inject(fault);
        db.ingest(entries()).expect_err("a call fails");
        db.wait_for_background().expect("there is room");
        assert_eq!(db.store().point_of_space().1, before);
    }
}
