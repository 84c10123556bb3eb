//! Clears beside writers, readers, flushes and compactions.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::{
    sync::{
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
        mpsc,
    },
    thread,
    time::Duration,
};

use sievedb::{
    Db, Durability, Keyspace, KeyspaceOptions, Options, Result,
    clock::{Clock, SystemClock},
};
use sievedb_tests::{
    rng::Rng,
    settings::{from_env, seed},
};

/// Keys that a writer puts in each of its batches.
const KEYS: u8 = 5;
const WRITERS: u8 = 3;
/// Time after which the threads end, although no snapshot with entries was read.
const TIME_MAX: Duration = Duration::from_secs(60);

struct Shared {
    db: Db,
    /// Has the same batches, and is never cleared.
    kept: Keyspace,
    cleared: Keyspace,
    is_over: AtomicBool,
    /// Checked snapshots with entries, and clears.
    checked: AtomicU64,
    clears: AtomicU64,
}

fn key(writer: u8, number: u8) -> [u8; 2] {
    [writer, number]
}

/// Writes batches. Between two of them its keys go from the last value to none, and never back.
fn write(shared: &Shared, writer: u8) -> u64 {
    let Shared { db, kept, cleared, .. } = shared;
    let mut clears_seen = 0;
    for round in 1_u64.. {
        if shared.is_over.load(Relaxed) {
            break;
        }
        let value = [&round.to_be_bytes()[..], &[writer; 200]].concat();
        let mut batch = db.batch();
        for number in 0..KEYS {
            batch.insert(cleared, key(writer, number), &value).unwrap();
            batch.insert(kept, key(writer, number), &value).unwrap();
        }
        batch.commit(Durability::Memory).unwrap();
        let mut is_cleared = false;
        for look in 0..4 {
            let got = cleared.get(key(writer, look % KEYS)).unwrap();
            assert!(got.is_some() || round > 0);
            assert!(!(is_cleared && got.is_some()), "round {round}: a key has returned");
            assert!(got.as_ref().is_none_or(|got| **got == *value), "round {round}: an old value");
            clears_seen += u64::from(!is_cleared && got.is_none());
            is_cleared |= got.is_none();
        }
        let kept = kept.get(key(writer, 0)).unwrap();
        assert_eq!(kept.as_deref(), Some(&*value), "a keyspace beside it");
    }
    clears_seen
}

/// Reads snapshots: batches are there as a whole or not at all, and snapshots do not change.
fn read(shared: &Shared) {
    while !shared.is_over.load(Relaxed) {
        let snapshot = shared.db.snapshot();
        let of_snapshot = snapshot.keyspace(&shared.cleared).unwrap();
        let entries = of_snapshot.iter().collect::<Result<Vec<_>>>().unwrap();
        for group in entries.chunk_by(|(a, _), (b, _)| a[0] == b[0]) {
            assert_eq!(group.len(), usize::from(KEYS), "a batch was cleared in parts");
            assert!(group.iter().all(|(_, value)| *value == group[0].1), "two batches are mixed");
        }
        thread::yield_now();
        let again = of_snapshot.iter().rev().collect::<Result<Vec<_>>>().unwrap();
        assert!(again.iter().rev().eq(&entries), "a snapshot has changed");
        for (key, value) in entries.iter().take(3) {
            assert_eq!(of_snapshot.get(key).unwrap().as_ref(), Some(value));
        }
        shared.checked.fetch_add(u64::from(!entries.is_empty()), Relaxed);
    }
}

fn clear(shared: &Shared, mut rng: Rng) {
    while !shared.is_over.load(Relaxed) {
        thread::sleep(Duration::from_millis(rng.below(12) as u64));
        match rng.below(4) {
            0 => shared.cleared.flush().unwrap(),
            1 => shared.db.compact().unwrap(),
            _ => {
                shared.cleared.clear().unwrap();
                shared.clears.fetch_add(1, Relaxed);
            }
        }
    }
}

#[test]
fn no_key_returns_after_a_clear_and_no_snapshot_changes() {
    let dir = tempfile::tempdir().unwrap();
    let small = KeyspaceOptions::new()
        .memtable_bytes(16 << 10)
        .table_bytes(8 << 10)
        .base_level_bytes(16 << 10)
        .block_bytes(1 << 10);
    let options = Options::new().worker_threads(2).log_segment_bytes(64 << 10).keyspace(small);
    let db = options.open(dir.path()).unwrap();
    let (kept, cleared) = (db.keyspace("kept").unwrap(), db.keyspace("cleared").unwrap());
    let (is_over, checked, clears) = Default::default();
    let shared = Shared { db, kept, cleared, is_over, checked, clears };
    let rng = Rng::new(seed("clears beside writers", 5));
    let time = Duration::from_millis(from_env("SIEVE_CLEAR_MS", 1200));
    let shared_ref = &shared;
    thread::scope(|scope| {
        let writers: Vec<_> =
            (0..WRITERS).map(|writer| scope.spawn(move || write(shared_ref, writer))).collect();
        let reader = scope.spawn(move || read(shared_ref));
        let clearer = scope.spawn(move || clear(shared_ref, rng));
        let clock = SystemClock::new();
        let counts = || (shared_ref.clears.load(Relaxed), shared_ref.checked.load(Relaxed));
        let is_enough = || counts().0 > 0 && counts().1 > 0;
        let goes_on = |now| now < time || (now < TIME_MAX && !is_enough());
        while goes_on(clock.now()) && !clearer.is_finished() && !reader.is_finished() {
            thread::sleep(Duration::from_millis(10));
        }
        shared_ref.is_over.store(true, Relaxed);
        let seen: u64 = writers.into_iter().map(|writer| writer.join().unwrap()).sum();
        reader.join().unwrap();
        clearer.join().unwrap();
        let (clears, checked) = counts();
        assert!(clears > 0 && checked > 0, "{clears} clears, {checked} snapshots, {seen} seen");
    });
    let Shared { db, kept, cleared, .. } = shared;
    cleared.clear().unwrap();
    db.compact().unwrap();
    db.wait_for_background().unwrap();
    assert!(cleared.is_empty().unwrap());
    assert!(db.verify().unwrap().is_good());
    let entries = kept.len().unwrap();
    drop((kept, cleared));
    db.close().unwrap();
    let db = Db::open(dir.path()).unwrap();
    assert!(db.open_keyspace("cleared").unwrap().is_empty().unwrap());
    assert_eq!(db.open_keyspace("kept").unwrap().len().unwrap(), entries);
}

#[test]
fn a_range_of_another_thread_outlives_a_clear_and_later_reads_find_nothing() {
    const ENTRIES: usize = 300;
    let dir = tempfile::tempdir().unwrap();
    let small = KeyspaceOptions::new().memtable_bytes(64 << 10).block_bytes(1 << 10);
    let db = Options::new().worker_threads(1).keyspace(small).open(dir.path()).unwrap();
    let keyspace = db.keyspace("cleared").unwrap();
    let fill = |first: usize| {
        for number in first..first + ENTRIES / 3 {
            keyspace.insert(number.to_be_bytes(), [7; 100]).unwrap();
        }
    };
    fill(0);
    db.compact().unwrap();
    fill(ENTRIES / 3);
    db.flush().unwrap();
    fill(2 * ENTRIES / 3);
    thread::scope(|scope| {
        // A thread that panics closes its channel, so the other one ends, too.
        let (to_reader, go) = mpsc::channel::<()>();
        let (done, from_reader) = mpsc::channel::<()>();
        let (keyspace, db) = (&keyspace, &db);
        let reader = scope.spawn(move || {
            let mut range = keyspace.iter();
            let first = range.next().unwrap().unwrap();
            assert_eq!(&first.0[..], 0_usize.to_be_bytes());
            done.send(()).unwrap();
            go.recv().unwrap();
            for number in [0, ENTRIES / 2, ENTRIES - 1].map(usize::to_be_bytes) {
                assert_eq!(keyspace.get(number).unwrap(), None);
                assert!(!keyspace.contains_key(number).unwrap());
            }
            assert!(keyspace.is_empty().unwrap() && keyspace.last().unwrap().is_none());
            let last = range.next_back().unwrap().unwrap();
            assert_eq!(&last.0[..], (ENTRIES - 1).to_be_bytes());
            done.send(()).unwrap();
            go.recv().unwrap();
            let left = range.collect::<Result<Vec<_>>>().unwrap();
            assert_eq!(left.len(), ENTRIES - 2, "the range keeps its view");
        });
        from_reader.recv().unwrap();
        keyspace.clear().unwrap();
        to_reader.send(()).unwrap();
        from_reader.recv().unwrap();
        // Neither new keys nor background work change what the range sees.
        keyspace.insert(5_usize.to_be_bytes(), "new").unwrap();
        db.compact().unwrap();
        db.wait_for_background().unwrap();
        assert_eq!(keyspace.len().unwrap(), 1);
        to_reader.send(()).unwrap();
        reader.join().unwrap();
    });
    assert_eq!(keyspace.get(5_usize.to_be_bytes()).unwrap().as_deref(), Some(&b"new"[..]));
    assert_eq!(keyspace.len().unwrap(), 1);
}
