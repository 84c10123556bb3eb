//! Expired entries leave the files without a call of the user.

use std::{sync::Arc, time::Duration};

use sievedb::{Compression, Db, HistoryLength, Options, clock::ManualClock};
use sievedb_doubles::MemoryFs;
use sievedb_tests::settings::{STORE_DIR, small_keyspace};

const SECOND: Duration = Duration::from_secs(1);
const KEYS: u32 = 2_000;

/// Opens a store without threads: due work runs in `wait_for_background`.
fn open(clock: &Arc<ManualClock>) -> Db {
    let options = Options::new().fs(Arc::new(MemoryFs::new())).worker_threads(0);
    let keyspace = small_keyspace()
        .memtable_bytes(1 << 20)
        .table_bytes(64 << 10)
        .compression(Compression::None);
    options.clock(Arc::clone(clock) as _).keyspace(keyspace).open(STORE_DIR).expect("it succeeds")
}

fn fill(db: &Db, ttl: impl Fn(u32) -> Option<Duration>) {
    for key in 0..KEYS {
        match ttl(key) {
            Some(ttl) => db.insert_with_ttl(key.to_be_bytes(), [7; 100], ttl).expect("it succeeds"),
            None => db.insert(key.to_be_bytes(), [7; 100]).expect("it succeeds"),
        }
    }
    db.compact().expect("it succeeds");
}

fn table_bytes(db: &Db) -> u64 {
    db.stats().levels.iter().map(|level| level.bytes).sum()
}

#[test]
fn tables_that_have_expired_are_unlinked_unread() {
    let clock = Arc::new(ManualClock::new());
    let db = open(&clock);
    fill(&db, |_| Some(10 * SECOND));
    clock.advance(9 * SECOND);
    db.wait_for_background().expect("it succeeds");
    assert!(table_bytes(&db) > 200_000, "it is too early");
    let (before, snapshot) = (db.stats(), db.snapshot());
    clock.advance(SECOND);
    db.wait_for_background().expect("it succeeds");
    assert_eq!(snapshot.iter().count(), KEYS as usize, "the snapshot still sees them");
    drop(snapshot);
    db.wait_for_background().expect("it succeeds");
    assert_eq!(table_bytes(&db), 0);
    let after = db.stats();
    let read = |stats: &sievedb::Stats| stats.background.compaction_bytes_read;
    assert_eq!(read(&after), read(&before));
    assert_eq!(db.iter().count(), 0);
}

#[test]
fn older_values_below_expired_ones_stay_hidden() {
    let clock = Arc::new(ManualClock::new());
    let db = open(&clock);
    fill(&db, |_| None);
    for key in 0..KEYS {
        db.insert_with_ttl(key.to_be_bytes(), "newer", SECOND).expect("it succeeds");
    }
    db.flush().expect("it succeeds");
    clock.advance(SECOND);
    db.wait_for_background().expect("it succeeds");
    assert_eq!(db.iter().count(), 0, "no older value is back");
    db.compact().expect("it succeeds");
    assert_eq!((db.iter().count(), table_bytes(&db)), (0, 0));
}

#[test]
fn most_space_returns_when_most_entries_have_expired() {
    let clock = Arc::new(ManualClock::new());
    let db = open(&clock);
    fill(&db, |key| (!key.is_multiple_of(10)).then_some(SECOND + SECOND * (key % 5)));
    let before = table_bytes(&db);
    clock.advance(10 * SECOND);
    db.wait_for_background().expect("it succeeds");
    let left = table_bytes(&db);
    assert!(left < before / 6, "{left} of {before} bytes are left");
    let entries: u64 = db.stats().levels.iter().map(|level| level.entries).sum();
    assert_eq!(entries, u64::from(KEYS) / 10, "no expired entry is left");
    assert_eq!(db.iter().count(), KEYS as usize / 10);
    assert!(db.verify().expect("it succeeds").problems.is_empty());
}

/// Each rewrite of a table in level 0 leaves tombstones, which do not make it due again.
#[test]
fn a_table_above_lasting_values_is_rewritten_a_few_times_only() {
    let clock = Arc::new(ManualClock::new());
    let db = open(&clock);
    fill(&db, |_| None);
    for key in 0..KEYS {
        let ttl = Duration::from_millis(u64::from(10 * key));
        db.insert_with_ttl(key.to_be_bytes(), "newer", SECOND + ttl).expect("it succeeds");
    }
    db.flush().expect("it succeeds");
    let before = db.stats().background.compactions;
    for _ in 0..KEYS / 20 {
        clock.advance(Duration::from_millis(200));
        db.wait_for_background().expect("it succeeds");
    }
    let rewrites = db.stats().background.compactions - before;
    assert!((1..5).contains(&rewrites), "{rewrites} rewrites");
    assert_eq!(db.stats().levels[0].tables, 1, "it stays above the lasting values");
}

/// The clock of a snapshot may hold back what the number of the history does not.
#[test]
fn a_snapshot_beside_a_history_frees_expired_tables_when_it_goes() {
    let clock = Arc::new(ManualClock::new());
    let db = open(&clock);
    let default = db.default_keyspace();
    let hour = HistoryLength::Time(3600 * SECOND);
    default.set_options(default.options().keep_history(hour)).expect("it succeeds");
    let other = db.keyspace("other").expect("it succeeds");
    fill(&db, |_| Some(600 * SECOND));
    let write = |after_seconds: u32| {
        clock.advance(after_seconds * SECOND);
        other.insert("key", "value").expect("it succeeds");
    };
    write(2);
    let snapshot = db.snapshot();
    write(3900);
    // The history begins at the first of these writes, after the expiry.
    clock.advance(600 * SECOND);
    db.wait_for_background().expect("it succeeds");
    assert!(table_bytes(&db) > 200_000, "the snapshot still sees them");
    drop(snapshot);
    db.wait_for_background().expect("it succeeds");
    assert_eq!(table_bytes(&db), 0);
}

/// Without writes, all snapshots have one sequence number.
#[test]
fn overlapping_snapshots_do_not_keep_what_has_expired() {
    let clock = Arc::new(ManualClock::new());
    let db = open(&clock);
    fill(&db, |_| Some(10 * SECOND));
    let mut snapshot = db.snapshot();
    for seconds in [6, 12] {
        clock.advance(6 * SECOND);
        db.wait_for_background().expect("it succeeds");
        assert!(table_bytes(&db) > 200_000, "a snapshot sees them after {seconds} s");
        snapshot = db.snapshot();
    }
    db.wait_for_background().expect("it succeeds");
    assert_eq!((table_bytes(&db), snapshot.iter().count()), (0, 0));
}
