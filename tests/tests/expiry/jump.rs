//! A wall clock that jumps by ten years, forward and back.
//!
//! The store clock follows a wall clock that is ahead when the store is opened, and never goes back
//! while it is open or after a clean close. After a power cut it continues at the last edit of the
//! manifest.

use std::{sync::Arc, time::Duration};

use sievedb::{Bytes, Db, Durability, TimeToLive, clock::ManualClock};
use sievedb_doubles::{Loss, MemoryFs};
use sievedb_tests::settings::{STORE_DIR, small_keyspace, small_options};

const HOUR: Duration = Duration::from_secs(3600);
const TEN_YEARS: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
/// The wall clock at first.
const TODAY: Duration = Duration::from_secs(50 * 365 * 24 * 3600);

/// Opens the store while the wall clock is at `wall`.
fn open(fs: &Arc<MemoryFs>, wall: Duration) -> (Db, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::new());
    clock.set_unix_time(wall);
    let options = small_options(Arc::clone(fs) as _).clock(Arc::clone(&clock) as _);
    (options.open(STORE_DIR).expect("it succeeds"), clock)
}

/// Writes lasting values, values of an hour, and values of twenty years.
fn fill(db: &Db) {
    for number in 0..40_u32 {
        let key = |class: &str| format!("{class}{number:03}");
        db.insert(key("ever"), "1").expect("it succeeds");
        db.insert_with_ttl(key("hour"), "2", HOUR).expect("it succeeds");
        db.insert_with_ttl(key("years"), "3", 2 * TEN_YEARS).expect("it succeeds");
    }
}

fn counts(db: &Db) -> [usize; 3] {
    ["ever", "hour", "years"].map(|class| db.prefix(class).count())
}

fn left(db: &Db, key: &str) -> Duration {
    match db.ttl(key).expect("it succeeds") {
        Some(TimeToLive::Remaining(left)) => left,
        other => panic!("{key}: {other:?}"),
    }
}

#[test]
fn a_jump_while_the_store_is_open_changes_nothing() {
    let fs = Arc::new(MemoryFs::new());
    let (db, clock) = open(&fs, TODAY);
    fill(&db);
    for wall in [TODAY + TEN_YEARS, TODAY - TEN_YEARS, Duration::ZERO] {
        clock.set_unix_time(wall);
        db.wait_for_background().unwrap();
        assert_eq!((counts(&db), left(&db, "hour000")), ([40, 40, 40], HOUR));
        db.compact().unwrap();
        assert_eq!(counts(&db), [40, 40, 40]);
    }
    clock.advance(HOUR);
    assert_eq!(counts(&db), [40, 0, 40], "the monotonic clock counts");
}

#[test]
fn a_jump_at_an_opening_is_followed_forward_and_never_back() {
    let fs = Arc::new(MemoryFs::new());
    let (db, _) = open(&fs, TODAY);
    fill(&db);
    drop(db);
    let (db, _) = open(&fs, TODAY + TEN_YEARS);
    assert_eq!((counts(&db), left(&db, "years000")), ([40, 0, 40], TEN_YEARS));
    // The expired values are a flush, a compaction and a close nearer to their end.
    db.insert_with_ttl("hour999", "4", HOUR).unwrap();
    db.compact().unwrap();
    assert_eq!(counts(&db), [40, 1, 40]);
    drop(db);
    for wall in [TODAY, TODAY - TEN_YEARS, Duration::ZERO] {
        let (db, clock) = open(&fs, wall);
        assert_eq!(counts(&db), [40, 1, 40], "the store clock stays ahead");
        assert_eq!(left(&db, "hour999"), HOUR, "and stands still while the store is closed");
        assert_eq!(left(&db, "years039"), TEN_YEARS);
        // New values live as long as they should.
        db.insert_with_ttl("new", "5", HOUR).unwrap();
        db.compact().unwrap();
        assert_eq!(left(&db, "new"), HOUR);
        assert_eq!(db.get("new").unwrap(), Some(Bytes::from("5")));
        drop((db, clock));
    }
    let (db, clock) = open(&fs, Duration::ZERO);
    clock.advance(HOUR);
    db.compact().unwrap();
    assert_eq!((counts(&db), db.get("new").unwrap()), ([40, 0, 40], None));
    clock.advance(TEN_YEARS);
    db.wait_for_background().unwrap();
    assert_eq!(counts(&db), [40, 0, 0]);
    assert!(db.verify().unwrap().is_good());
}

#[test]
fn no_power_cut_loses_a_lasting_value_or_splits_a_jump() {
    let fs = Arc::new(MemoryFs::new());
    let (db, _) = open(&fs, TODAY);
    fill(&db);
    db.persist(Durability::Disk).unwrap();
    drop(db);
    let began = fs.operations();
    let (db, _) = open(&fs, TODAY + TEN_YEARS);
    db.insert("ever999", "4").unwrap();
    db.flush().unwrap();
    db.compact().unwrap();
    let stored = fs.operations();
    drop(db);
    let mut kept = [0, 0];
    for at in began..=fs.operations() {
        for loss in [Loss::Nothing, Loss::Everything, Loss::Random { seed: 7, torn: true }] {
            let crashed = Arc::new(fs.crash(at, &loss));
            // The wall clock was set back meanwhile.
            let (db, _) = open(&crashed, TODAY);
            let [ever, hour, years] = counts(&db);
            assert!((40..=41).contains(&ever) && years == 40, "{ever} and {years} after {at}");
            assert!([0, 40].contains(&hour), "{hour} after {at}: expired at once or not at all");
            assert!(at < stored || hour == 0, "the clock was stored before {at}");
            kept[usize::from(hour > 0)] += 1;
        }
    }
    assert!(kept.iter().all(|&count| count > 0), "both happen: {kept:?}");
}

#[test]
fn a_jump_counts_for_a_default_ttl_too() {
    let fs = Arc::new(MemoryFs::new());
    let (db, _) = open(&fs, TODAY);
    let hour = small_keyspace().default_ttl(HOUR);
    let sessions = db.keyspace_with("sessions", &hour).unwrap();
    sessions.insert("old", "1").unwrap();
    sessions.insert_without_ttl("ever", "1").unwrap();
    drop((sessions, db));
    for (wall, expected) in [(TODAY + TEN_YEARS, HOUR), (TODAY, HOUR)] {
        let (db, clock) = open(&fs, wall);
        let sessions = db.open_keyspace("sessions").unwrap();
        assert_eq!(sessions.get("old").unwrap(), None);
        assert!(sessions.contains_key("ever").unwrap());
        sessions.insert("new", "2").unwrap();
        assert_eq!(sessions.ttl("new").unwrap(), Some(TimeToLive::Remaining(expected)));
        clock.advance(HOUR / 2);
        db.flush().unwrap();
        assert!(sessions.contains_key("new").unwrap());
    }
}

/// It opens at the last edit of the writer, whose clock may be hours further and ahead of the wall
/// clock.
#[test]
fn a_refresh_moves_a_follower_forward_to_the_clock_of_the_writer() {
    let fs = Arc::new(MemoryFs::new());
    let (db, _) = open(&fs, TODAY + TEN_YEARS);
    db.insert_with_ttl("key", "1", 2 * HOUR).unwrap();
    drop(db);
    let (writer, clock) = open(&fs, TODAY);
    clock.advance(HOUR);
    let options = small_options(Arc::clone(&fs) as _).clock(Arc::clone(&clock) as _);
    let follower = options.follow(true).open(STORE_DIR).unwrap();
    assert_eq!((left(&writer, "key"), left(&follower, "key")), (HOUR, 2 * HOUR));
    writer.insert("other", "2").unwrap();
    writer.flush().unwrap();
    assert!(follower.refresh().unwrap());
    assert_eq!(left(&follower, "key"), HOUR);
    clock.advance(HOUR);
    assert_eq!((writer.get("key").unwrap(), follower.get("key").unwrap()), (None, None));
}
