//! Compactions that become due when a snapshot is dropped.

use super::*;
use crate::{Fifo, resolve::ReadPoint};

#[test]
fn only_a_snapshot_that_something_waits_for_wakes_the_workers() {
    let scheduler = Scheduler::new(true, 0);
    let at = |sequence, clock_ms| Some(ReadPoint::at_time(sequence, clock_ms));
    let cases = [
        ("nothing waits", None, None, 0),
        ("an older one is left", at(9, 5), at(8, 7), 0),
        ("one with an older clock is left", at(9, 5), at(9, 4), 0),
        ("the oldest is as new", at(9, 5), at(9, 5), 1),
        ("none is left", at(9, 5), None, 1),
        ("number 0", at(0, 0), at(0, 0), 1),
    ];
    for (name, awaited, oldest, want) in cases {
        let before = scheduler.bell.rings();
        scheduler.await_snapshot(awaited);
        scheduler.snapshot_is_gone(oldest);
        assert_eq!(scheduler.bell.rings() - before, want, "{name}");
    }
}

/// Entries that snapshots kept are compacted without another write, once the last of these
/// snapshots is gone.
#[test]
fn a_snapshot_that_goes_wakes_the_workers() {
    let (sender, compacted) = mpsc::sync_channel(100);
    let options = Options::new().fs(Arc::new(MemoryFs::with_seed(1))).worker_threads(1);
    let options = options.idle_compactions(false).listener(Arc::new(Compactions(sender)));
    let db = options.open("db").expect("a new store");
    let snapshots = [db.snapshot(), db.snapshot()];
    for number in 0..100_u64 {
        db.insert(number.to_be_bytes(), [7; 40]).expect("there is room");
    }
    let [older, newer] = [db.snapshot(), db.snapshot()];
    // Most of them hide nothing: the table is mostly tombstones.
    for number in 0..300_u64 {
        db.remove(number.to_be_bytes()).expect("there is room");
    }
    db.compact().expect("there is room");
    db.wait_for_background().expect("there is room");
    let tombstones = || db.stats().levels.iter().map(|level| level.tombstones).sum::<u64>();
    assert_eq!(tombstones(), 300, "a snapshot keeps what they hide");
    drop((snapshots, older));
    while compacted.try_recv().is_ok() {}
    drop(newer);
    compacted.recv_timeout(Duration::from_secs(20)).expect("a worker is woken");
    db.wait_for_background().expect("there is room");
    assert_eq!(tombstones(), 0);
}

/// A removal of expired tables waits for snapshots, too.
#[test]
fn a_snapshot_that_goes_frees_expired_tables_of_fifo() {
    let fs = Arc::new(MemoryFs::with_seed(1));
    let clock = Arc::<ManualClock>::default();
    let options = Options::new().fs(Arc::clone(&fs) as _).clock(Arc::clone(&clock) as _);
    let style = KeyspaceOptions::new().compaction_style(Fifo::new(1 << 30));
    let db = options.keyspace(style).worker_threads(0).open("db").expect("a new store");
    db.insert_with_ttl("key", "value", Duration::from_secs(60)).expect("there is room");
    db.flush().expect("there is room");
    let has_tables = || {
        db.wait_for_background().expect("there is room");
        let names = fs.list("db".as_ref()).expect("it exists");
        names.iter().any(|name| name.ends_with(".sst"))
    };
    let snapshots = [db.snapshot(), db.snapshot()];
    clock.advance(Duration::from_secs(120));
    assert!(has_tables(), "a snapshot reads the value");
    let [older, newer] = snapshots;
    drop(newer);
    assert!(has_tables(), "a snapshot reads the value");
    drop(older);
    assert!(!has_tables());
}
