//! Points in time, by a clock that the test sets.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use sievedb::{Counter, Db, Durability, HistoryLength, KeyspaceOptions, clock::ManualClock};
use sievedb_doubles::MemoryFs;
use sievedb_tests::settings::{STORE_DIR, small_keyspace, small_options};

use super::{assert_refused, options};

const START_MS: u64 = 1_000_000;

fn at(ms: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_millis(START_MS + ms)
}

struct Timed {
    fs: Arc<MemoryFs>,
    clock: Arc<ManualClock>,
    length: HistoryLength,
}

impl Timed {
    fn new(length: Duration) -> Self {
        let clock = Arc::new(ManualClock::new());
        clock.set_unix_time(Duration::from_millis(START_MS));
        let fs = Arc::new(MemoryFs::with_seed(1));
        Self { fs, clock, length: HistoryLength::Time(length) }
    }

    fn open(&self) -> Db {
        options(&self.fs, &self.clock, self.length).open(STORE_DIR).unwrap()
    }

    fn advance(&self, ms: u64) {
        self.clock.advance(Duration::from_millis(ms));
    }
}

fn value(db: &Db, ms: u64) -> Option<String> {
    let past = db.snapshot_at(at(ms)).unwrap();
    past.get("key").unwrap().map(|value| String::from_utf8(value.to_vec()).unwrap())
}

#[test]
fn a_time_shows_the_last_write_before_it() {
    let timed = Timed::new(Duration::from_secs(60));
    let db = timed.open();
    for number in 1..=10_u32 {
        timed.advance(2000);
        db.insert("key", number.to_string()).unwrap();
        if number % 3 == 0 {
            db.flush().unwrap();
        }
    }
    timed.advance(500);
    for number in 1..=10 {
        let written = 2000 * number;
        assert_eq!(value(&db, written - 1), (number > 1).then(|| (number - 1).to_string()));
        assert_eq!(value(&db, written), Some(number.to_string()));
        assert_eq!(value(&db, written + 499), Some(number.to_string()));
    }
    let oldest = Some(0);
    assert_eq!(value(&db, 20_501), Some("10".into()), "the present");
    assert_refused(db.snapshot_at(SystemTime::UNIX_EPOCH), oldest);
    assert_refused(db.snapshot_at(SystemTime::UNIX_EPOCH - Duration::from_secs(1)), oldest);
    let error = db.snapshot_at(at(0) - Duration::from_millis(1)).err().unwrap();
    let want = "Unix time 999.999 is not in the history of the keyspace \"default\", which begins \
                at sequence number 0; use a later point, up to the present";
    assert_eq!(error.to_string(), want);
    let written: Vec<_> =
        db.history("key").unwrap().map(|it| it.unwrap().written_at.unwrap()).collect();
    let want: Vec<_> = (1..=10).rev().map(|number| at(2000 * number)).collect();
    assert_eq!(written, want);
}

/// Versions go once no time within the history shows them, also in an idle store.
#[test]
fn a_history_of_time_moves_on_without_writes() {
    let timed = Timed::new(Duration::from_secs(60));
    let db = timed.open();
    let write = |number: u32| {
        timed.advance(10_000);
        db.insert("key", number.to_string()).unwrap();
        db.compact().unwrap();
        db.snapshot().sequence()
    };
    let written: Vec<_> = (1..=5).map(write).collect();
    let versions = || db.history("key").unwrap().count();
    assert_eq!(versions(), 5);
    timed.advance(29_999);
    assert_eq!(value(&db, 19_999), Some("1".into()));
    assert_eq!(versions(), 5);
    timed.advance(20_000);
    // The next sample but one of the times is at 40 s.
    assert_refused(db.snapshot_at(at(19_999)), Some(written[1]));
    assert_eq!(value(&db, 40_000), Some("4".into()));
    db.compact().unwrap();
    assert_eq!((versions(), db.default_keyspace().approximate_len().unwrap()), (4, 4));
    timed.advance(100_000);
    assert_eq!(value(&db, 180_000), Some("5".into()));
    assert_refused(db.snapshot_at(at(130_000)), Some(written[4]));
    db.compact().unwrap();
    assert_eq!((versions(), db.default_keyspace().approximate_len().unwrap()), (1, 1));
}

#[test]
fn times_survive_a_close_and_the_past_of_an_expired_value_is_read() {
    let timed = Timed::new(Duration::from_secs(3600));
    let db = timed.open();
    timed.advance(5000);
    db.insert_with_ttl("key", "short", Duration::from_secs(10)).unwrap();
    timed.advance(20_000);
    db.insert("key", "long").unwrap();
    db.compact().unwrap();
    drop(db);
    timed.advance(100_000);
    let db = timed.open();
    timed.advance(5000);
    db.insert("key", "later").unwrap();
    db.compact().unwrap();
    let want = [
        (4999, None),
        (5000, Some("short")),
        (14_999, Some("short")),
        (15_000, None),
        (24_999, None),
        (25_000, Some("long")),
        (129_999, Some("long")),
        (130_000, Some("later")),
    ];
    for (ms, want) in want {
        assert_eq!(value(&db, ms).as_deref(), want, "at {ms}");
    }
    let first = db.history("key").unwrap().last().unwrap().unwrap();
    assert_eq!((first.value, first.expires_at), (Some("short".into()), Some(at(15_000))));
}

/// A crash loses the times of writes that were not flushed, and none of their versions.
#[test]
fn a_crash_does_not_shorten_a_history() {
    let timed = Timed::new(Duration::from_secs(20));
    let db = timed.open();
    db.flush().unwrap();
    for number in 1..=50_u32 {
        timed.advance(2000);
        db.insert("key", number.to_string()).unwrap();
    }
    let last = db.snapshot().sequence();
    let killed = Timed { fs: Arc::new(timed.fs.copy()), ..timed };
    drop(db);
    let read_only = options(&killed.fs, &killed.clock, killed.length).read_only(true);
    let db = read_only.open(STORE_DIR).unwrap();
    assert!(db.history("key").unwrap().count() >= 10);
    drop(db);
    let db = killed.open();
    db.compact().unwrap();
    assert_eq!(db.snapshot_at(last - 9).unwrap().get("key").unwrap(), Some("41".into()));
    assert!(db.history("key").unwrap().count() >= 10);
}

/// Otherwise readers of the past would see it: their clock may be a second behind the write.
#[test]
fn a_value_that_has_expired_when_it_is_written_is_a_removal() {
    type Write = fn(&Db) -> sievedb::Result<()>;
    let writes: [(&str, Write); 5] = [
        ("a TTL of zero", |db| db.insert_with_ttl("key", "b", Duration::ZERO)),
        ("an expiry", |db| db.insert_expiring_at("key", "b", at(500))),
        ("a new expiry", |db| db.expire_at("key", at(100)).map(|found| assert!(found))),
        ("a batch", |db| {
            let mut batch = db.batch();
            batch.insert_with_ttl(db, "key", "b", Duration::ZERO)?;
            batch.commit(Durability::OsBuffer).map(drop)
        }),
        ("a transaction", |db| {
            db.transaction(|transaction| transaction.insert_expiring_at(db, "key", "b", at(500)))
        }),
    ];
    let timed = Timed::new(Duration::from_secs(60));
    let db = timed.open();
    timed.advance(500);
    for (name, write) in writes {
        db.insert("key", "a").unwrap();
        write(&db).unwrap();
        let written = db.snapshot().sequence();
        db.insert("other", "c").unwrap();
        assert_eq!(db.snapshot_at(written).unwrap().get("key").unwrap(), None, "{name}");
        let newest = db.history("key").unwrap().next().unwrap().unwrap();
        assert_eq!((newest.sequence, newest.value), (Some(written), None), "{name}");
    }
}

/// Values that expired before the history are gone for all of its points, and stay so.
#[test]
fn an_expired_value_does_not_come_back_with_a_longer_history() {
    let hours = |count: u64| Duration::from_secs(3600 * count);
    let hours_ms = |count: u64| 3_600_000 * count;
    let timed = Timed::new(hours(1));
    let db = timed.open();
    db.insert_with_ttl("key", "a", hours(2)).unwrap();
    let written = db.snapshot().sequence();
    timed.advance(hours_ms(10));
    db.compact().unwrap();
    assert_eq!(db.default_keyspace().approximate_len().unwrap(), 0, "it was dropped");
    db.insert("other", "b").unwrap();
    assert_eq!(db.snapshot_at(written).unwrap().get("key").unwrap(), None);
    let default = db.default_keyspace();
    default.set_options(default.options().keep_history(HistoryLength::from(hours(24)))).unwrap();
    assert_refused(db.snapshot_at(at(hours_ms(1))), Some(written));
    assert_eq!(value(&db, hours_ms(9)), None);
}

/// The start of another history does not expire values of this one.
#[test]
fn each_keyspace_has_its_own_clock_of_the_past() {
    let timed = Timed::new(Duration::from_secs(3600));
    let db = timed.open();
    let minute = HistoryLength::Time(Duration::from_secs(60));
    let short = db.keyspace_with("short", &KeyspaceOptions::new().keep_history(minute)).unwrap();
    db.insert_with_ttl("key", "a", Duration::from_secs(30)).unwrap();
    let written = db.snapshot().sequence();
    timed.advance(300_000);
    db.insert("other", "b").unwrap();
    let past = db.snapshot_at(written).unwrap();
    for _ in 0..2 {
        assert_eq!(past.get("key").unwrap(), Some("a".into()));
        assert_eq!(db.snapshot_at(written).unwrap().get("key").unwrap(), Some("a".into()));
        // The newest write of `short` is its past up to now.
        assert_eq!(past.keyspace(&short).unwrap().get("key").unwrap(), None);
        db.compact().unwrap();
    }
}

/// The history begins at the last sample before its time, with the clock of that time.
#[test]
fn a_snapshot_above_the_start_of_the_history_keeps_its_clock() {
    let timed = Timed::new(Duration::from_secs(10));
    let db = timed.open();
    timed.advance(500);
    db.insert_with_ttl("key", "a", Duration::from_millis(400)).unwrap();
    timed.advance(100);
    let snapshot = db.snapshot();
    timed.advance(100);
    db.insert("other", "b").unwrap();
    // The history begins 950 ms after the opening.
    timed.advance(10_250);
    for compact in [Db::flush, Db::compact] {
        compact(&db).unwrap();
        assert_eq!(snapshot.get("key").unwrap(), Some("a".into()));
    }
}

/// The sequence number of the snapshot was written after the expiry, but its sample before.
#[test]
fn a_snapshot_of_the_past_does_not_change_when_it_leaves_the_history() {
    let length = HistoryLength::Sequences(4);
    let timed = Timed { length, ..Timed::new(Duration::from_secs(1)) };
    let db = timed.open();
    db.insert_with_ttl("key", "a", Duration::from_millis(150)).unwrap();
    timed.advance(200);
    let older = db.snapshot();
    timed.advance(10);
    db.insert("other", "b").unwrap();
    let written = db.snapshot().sequence();
    db.insert("other", "c").unwrap();
    let past = db.snapshot_at(written).unwrap();
    assert_eq!([&older, &past].map(|it| it.get("key").unwrap()), [None, None]);
    (0..6).for_each(|_| db.insert("other", "d").unwrap());
    db.compact().unwrap();
    assert_refused(db.snapshot_at(written), Some(written + 3));
    assert_eq!(past.get("key").unwrap(), None);
}

/// A value that expired before the history began has no version with a value, before a compaction
/// drops it and after.
#[test]
fn a_value_that_expired_before_the_history_is_listed_without_value() {
    let timed = Timed::new(Duration::from_secs(100));
    let db = timed.open();
    db.insert_with_ttl("key", "a", Duration::from_secs(10)).unwrap();
    let written = db.snapshot().sequence();
    timed.advance(20_000);
    db.insert("key", "b").unwrap();
    let values = |db: &Db| {
        let versions = db.history("key").unwrap().map(Result::unwrap);
        versions.map(|version| version.value).collect::<Vec<_>>()
    };
    assert_eq!(values(&db), [Some("b".into()), Some("a".into())]);
    // The write is in the history still, but its expiry is not.
    timed.advance(95_000);
    let expired_first = values(&db);
    assert_eq!(expired_first[0], Some("b".into()));
    assert!(expired_first[1..].iter().all(Option::is_none), "{expired_first:?}");
    if let Ok(past) = db.snapshot_at(written) {
        assert_eq!(past.get("key").unwrap(), None);
    }
    db.compact().unwrap();
    assert_eq!(values(&db)[0], Some("b".into()));
    assert!(values(&db)[1..].iter().all(Option::is_none));
    // Now it is below the start: not listed at all.
    db.insert_with_ttl("key", "c", Duration::from_secs(10)).unwrap();
    timed.advance(215_000);
    assert_eq!(values(&db), [] as [Option<sievedb::Bytes>; 0]);
    db.compact().unwrap();
    assert_eq!(values(&db), [] as [Option<sievedb::Bytes>; 0]);
}

/// Times that are known from an earlier history do not belong to a later one.
#[test]
fn a_history_does_not_reach_back_to_an_earlier_one() {
    let timed = Timed::new(Duration::from_secs(1000));
    let db = timed.open();
    let set = |db: &Db, length: Option<u64>| {
        let default = db.default_keyspace();
        let length = length.map(|seconds| HistoryLength::Time(Duration::from_secs(seconds)));
        default.set_options(default.options().keep_history(length)).unwrap();
    };
    db.insert("key", "a").unwrap();
    timed.advance(10_000);
    set(&db, None);
    for value in ["b", "c"] {
        timed.advance(10_000);
        db.insert("key", value).unwrap();
        db.compact().unwrap();
    }
    timed.advance(10_000);
    set(&db, Some(5000));
    let begun = db.snapshot().sequence();
    for ms in [5_000, 25_000, 39_999] {
        assert_refused(db.snapshot_at(at(ms)), Some(begun));
    }
    assert_eq!(value(&db, 40_000), Some("c".into()));
}

/// The edit that begins it stores the clock, too: a crash and a wall clock that is set back would
/// leave a history that begins in the future.
#[test]
fn a_history_that_an_opening_begins_is_not_ahead_of_the_store_clock() {
    let timed = Timed::new(Duration::from_secs(3600));
    let without = small_options(Arc::clone(&timed.fs) as _).keyspace(small_keyspace());
    let db = without.clock(Arc::clone(&timed.clock) as _).open(STORE_DIR).unwrap();
    db.insert("key", "1").unwrap();
    drop(db);
    let years = Duration::from_secs(10 * 365 * 86_400);
    timed.clock.set_unix_time(years);
    let db = timed.open();
    // Before the first write, which stores the clock.
    let killed = Timed { fs: Arc::new(timed.fs.copy()), ..timed };
    drop(db);
    killed.clock.set_unix_time(Duration::from_millis(START_MS));
    let db = killed.open();
    let past = db.snapshot_at(SystemTime::UNIX_EPOCH + years).unwrap();
    assert_eq!(past.get("key").unwrap(), Some("1".into()));
}

/// After a crash the times of writes that were not flushed are lost: a time among them shows the
/// end of what was recovered, or the state before.
#[test]
fn a_crash_never_invents_a_time() {
    let timed = Timed::new(Duration::from_secs(3600));
    let db = timed.open();
    for number in 1..=20_u32 {
        timed.advance(2000);
        db.insert("key", number.to_string()).unwrap();
        if number == 10 {
            db.flush().unwrap();
        }
    }
    let killed = Timed { fs: Arc::new(timed.fs.copy()), ..timed };
    drop(db);
    let db = killed.open();
    killed.advance(2000);
    db.insert("key", "21").unwrap();
    db.compact().unwrap();
    for number in 1..=9 {
        assert_eq!(value(&db, 2000 * number), Some(number.to_string()));
    }
    for number in 11..=20 {
        let found: u64 = value(&db, 2000 * number).unwrap().parse().unwrap();
        assert!((number..=20).contains(&found), "{number}: {found}");
    }
    assert_eq!(value(&db, 42_000), Some("21".into()));
}

fn follow(timed: &Timed) -> Db {
    options(&timed.fs, &timed.clock, timed.length).follow(true).open(STORE_DIR).unwrap()
}

/// A follower has the times of the writer up to its last flush. Later writes count from the refresh
/// that showed them.
#[test]
fn a_follower_shows_no_later_writes_as_past() {
    let timed = Timed::new(Duration::from_secs(3600));
    let writer = timed.open();
    timed.advance(2000);
    writer.insert("key", "1").unwrap();
    writer.flush().unwrap();
    timed.advance(2000);
    writer.insert("key", "2").unwrap();
    timed.advance(1000);
    let follower = follow(&timed);
    timed.advance(10_000);
    writer.insert("key", "3").unwrap();
    timed.advance(5000);
    assert!(follower.refresh().unwrap());
    let shown = [2000, 4999, 5000, 19_999, 20_000].map(|ms| value(&follower, ms).unwrap());
    assert_eq!(shown, ["1", "1", "2", "2", "3"]);
    writer.flush().unwrap();
    timed.advance(5000);
    writer.insert("key", "4").unwrap();
    assert!(follower.refresh().unwrap());
    for (ms, want) in [(3999, "1"), (4000, "2"), (14_999, "2"), (15_000, "3"), (24_999, "3")] {
        assert_eq!(value(&follower, ms).as_deref(), Some(want), "at {ms}");
        assert_eq!(value(&writer, ms).as_deref(), Some(want), "at {ms}");
    }
    assert_eq!(value(&follower, 25_000).as_deref(), Some("4"));
}

#[test]
fn a_follower_does_not_shorten_a_history() {
    let timed = Timed::new(Duration::from_secs(30));
    let writer = timed.open();
    writer.flush().unwrap();
    let follower = follow(&timed);
    for number in 1..=20_u32 {
        timed.advance(5000);
        writer.insert("key", number.to_string()).unwrap();
        assert!(follower.refresh().unwrap());
        let [found, want] = [&follower, &writer].map(|db| db.history("key").unwrap().count());
        assert_eq!(found, want, "{number}");
    }
}

/// A compaction drops the number of the version before the history, and with it its time.
#[test]
fn the_time_of_a_version_without_a_number_is_unknown() {
    let timed = Timed::new(Duration::from_secs(60));
    let db = timed.open();
    timed.advance(100_000);
    let write = |keys: &[&str]| {
        keys.iter().for_each(|key| db.insert(key, "value").unwrap());
        db.compact().unwrap();
    };
    write(&["a", "key", "z"]);
    let written = || db.history("key").unwrap().next().unwrap().unwrap().written_at;
    assert_eq!(written(), Some(at(100_000)));
    timed.advance(100_000);
    write(&["a", "z"]);
    timed.advance(100_000);
    write(&["a", "z"]);
    assert_eq!(written(), None);
}

/// No reader of an operand has seen the value below it, which had expired.
#[test]
fn operands_are_not_merged_with_a_value_that_had_expired() {
    let timed = Timed::new(Duration::from_secs(60));
    let db = timed.open();
    let options = small_keyspace().keep_history(timed.length).merge_operator(Arc::new(Counter));
    let counters = db.keyspace_with("counters", &options).unwrap();
    counters.insert_with_ttl("key", "text", Duration::from_secs(1)).unwrap();
    timed.advance(2000);
    counters.merge("key", 5_i64.to_be_bytes()).unwrap();
    let values: Vec<_> = counters.history("key").unwrap().map(|it| it.unwrap().value).collect();
    assert_eq!(values, [counters.get("key").unwrap(), Some("text".into())]);
}
