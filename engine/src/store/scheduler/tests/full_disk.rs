//! Compactions that find no space.

use super::*;

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
