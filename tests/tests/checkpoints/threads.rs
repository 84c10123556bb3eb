//! Checkpoints while threads write, flushes and compactions run, and keyspaces come and go.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread,
};

use sievedb::{Db, Durability, Options, clock::SystemClock};
use sievedb_doubles::MemoryFs;
use sievedb_tests::{
    rng::Rng,
    settings::{STORE_DIR, from_env, report, seed, small_options},
};

const WRITERS: u64 = 3;

/// Numbers of writes, acknowledged before a checkpoint began.
type Acknowledged = Vec<u64>;

fn options(disk: &Arc<MemoryFs>) -> Options {
    let clock = Arc::new(SystemClock::new());
    small_options(Arc::clone(disk) as _).clock(clock).worker_threads(2)
}

/// Writes batches of two keyspaces: write n of a thread stores n under its own key in both, and
/// under one of 50 keys.
fn write(db: &Db, thread: u64, lots: &mut Rng, done: &[AtomicU64], stop: &AtomicBool) {
    let other = db.keyspace("other").unwrap();
    let levels = [Durability::Memory, Durability::OsBuffer, Durability::Disk];
    for number in 1.. {
        if stop.load(Relaxed) {
            return;
        }
        let mut batch = db.batch();
        batch.insert(db, format!("newest{thread}"), format!("{number}")).unwrap();
        batch.insert(db, format!("{thread}.{}", number % 50), format!("{number}")).unwrap();
        batch.insert(&other, format!("newest{thread}"), format!("{number}")).unwrap();
        batch.commit(*lots.pick(&levels)).unwrap();
        done[thread as usize].store(number, Relaxed);
    }
}

/// Creates, renames, fills and drops keyspaces, flushes and compacts.
fn change(db: &Db, stop: &AtomicBool) {
    for number in 0_u64.. {
        if stop.load(Relaxed) {
            return;
        }
        let space = db.keyspace("passing").unwrap();
        space.insert("number", format!("{number}")).unwrap();
        db.rename_keyspace("passing", "renamed").unwrap();
        match number % 3 {
            0 => db.flush().unwrap(),
            1 => db.compact().unwrap(),
            _ => space.clear().unwrap(),
        }
        assert!(db.drop_keyspace("renamed").unwrap());
    }
}

/// Checks that the checkpoint is a prefix of the history: of each thread the writes up to one
/// number, at least those acknowledged before.
fn check(copy: &Db, acknowledged: &Acknowledged) {
    let other = copy.open_keyspace("other").unwrap();
    let entries: BTreeMap<_, _> = copy.iter().map(Result::unwrap).collect();
    for (thread, &least) in acknowledged.iter().enumerate() {
        let newest = format!("newest{thread}");
        let number = |value: Option<&[u8]>| {
            value.map_or(0, |value| std::str::from_utf8(value).unwrap().parse::<u64>().unwrap())
        };
        let last = number(entries.get(newest.as_bytes()).map(|value| &**value));
        assert!(last >= least, "thread {thread}: {last} of at least {least} writes");
        assert_eq!(number(other.get(&newest).unwrap().as_deref()), last, "half of a batch");
        for slot in 0..50 {
            let found = entries.get(format!("{thread}.{slot}").as_bytes());
            let wanted = (1..=last).rev().find(|number| number % 50 == slot).unwrap_or(0);
            assert_eq!(number(found.map(|value| &**value)), wanted, "thread {thread}, slot {slot}");
        }
    }
    let report = copy.verify().unwrap();
    assert!(report.is_good(), "{report}");
    // Each keyspace change is there as a whole.
    for name in copy.keyspaces().unwrap() {
        let known = ["default", "other", "passing", "renamed"];
        assert!(known.contains(&&*name), "{name}");
    }
}

/// `SIEVE_CHECKPOINTS` takes more of them.
#[test]
fn checkpoint_is_a_prefix_of_concurrent_histories() {
    let (seed, count) = (seed("checkpoints", 1), from_env("SIEVE_CHECKPOINTS", 40));
    let disk = Arc::new(MemoryFs::new());
    let db = options(&disk).open(STORE_DIR).unwrap();
    drop(db.keyspace("other").unwrap());
    let (stop, done) = (AtomicBool::new(false), [const { AtomicU64::new(0) }; WRITERS as usize]);
    let failure = Mutex::new(None);
    thread::scope(|scope| {
        for thread in 0..WRITERS {
            let (db, done, stop) = (&db, &done[..], &stop);
            scope.spawn(move || write(db, thread, &mut Rng::new(seed + thread), done, stop));
        }
        scope.spawn(|| change(&db, &stop));
        let taken = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let mut before = 0;
            for number in 0..count {
                let path = format!("data/copy{number}");
                let acknowledged: Acknowledged = done.iter().map(|it| it.load(Relaxed)).collect();
                let taken = db.checkpoint(&path).unwrap();
                assert!(taken.sequence >= before, "{} after {before}", taken.sequence);
                before = taken.sequence;
                let copy = options(&disk).create_if_missing(false).open(&path).unwrap();
                assert_eq!(copy.snapshot().sequence(), taken.sequence, "checkpoint {number}");
                check(&copy, &acknowledged);
            }
        }));
        stop.store(true, Relaxed);
        *failure.lock().unwrap() = taken.err();
    });
    if let Some(panic) = failure.into_inner().unwrap() {
        std::panic::resume_unwind(panic);
    }
    let writes: u64 = done.iter().map(|it| it.load(Relaxed)).sum();
    report(&format!("checkpoints: {count} during {writes} batches, all of them whole prefixes"));
    assert!(writes > u64::from(count as u32), "only {writes} batches were written");
}
