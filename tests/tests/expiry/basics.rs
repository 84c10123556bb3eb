//! Reads and writes of values that expire, one rule per test.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, SystemTime},
};

use sievedb::{
    Append, Db, Durability, Error, KeyspaceOptions, OlderValues, Options, TimeToLive,
    VALUE_BYTES_MAX,
    clock::{Clock, ManualClock},
    explain::ExplainedAnswer,
};
use sievedb_doubles::MemoryFs;
use sievedb_tests::settings::{STORE_DIR, small_options};

const SECOND: Duration = Duration::from_secs(1);

fn open(fs: &Arc<MemoryFs>, clock: &Arc<ManualClock>) -> Db {
    let options = small_options(Arc::clone(fs) as _).clock(Arc::clone(clock) as _);
    options.open(STORE_DIR).expect("it succeeds")
}

fn new_store() -> (Db, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::new());
    (open(&Arc::new(MemoryFs::new()), &clock), clock)
}

/// Checks every read of keys "a" (never expires), "b" (expired if `is_expired`), "c" (absent).
fn check_reads(db: &Db, is_expired: bool, place: &str) {
    let b = (!is_expired).then_some(&b"two"[..]);
    let found = |key: &str| db.get(key).expect("it succeeds");
    assert_eq!(found("a").as_deref(), Some(&b"one"[..]), "{place}");
    assert_eq!(found("b").as_deref(), b, "{place}");
    assert_eq!(found("c"), None, "{place}");
    assert_eq!(db.get_with("b", <[u8]>::to_vec).expect("it succeeds").as_deref(), b, "{place}");
    assert_eq!(db.contains_key("b").expect("it succeeds"), !is_expired, "{place}");
    assert_eq!(db.contains_many(["b", "a"]).expect("it succeeds"), [!is_expired, true], "{place}");
    let many = db.get_many(["c", "b", "a"]).expect("it succeeds");
    assert_eq!(many.iter().map(|it| it.as_deref()).collect::<Vec<_>>()[1], b, "{place}");
    assert!(is_expired || db.may_contain("b"), "{place}");
    let up: Vec<_> = db.iter().map(|entry| entry.expect("it succeeds")).collect();
    let mut down: Vec<_> = db.iter().rev().map(|entry| entry.expect("it succeeds")).collect();
    down.reverse();
    let of = |entries: &[(sievedb::Bytes, sievedb::Bytes)]| {
        entries.iter().map(|(key, value)| format!("{key:?}={value:?}")).collect::<Vec<_>>()
    };
    let want =
        if is_expired { vec![r#"b"a"=b"one""#] } else { vec![r#"b"a"=b"one""#, r#"b"b"=b"two""#] };
    assert_eq!((of(&up), of(&down)), (want.iter().map(|it| (*it).to_owned()).collect(), of(&up)));
    let mut range = db.range("b"..);
    let entry = range.next_ref().expect("it succeeds");
    assert_eq!(entry.map(|entry| entry.value().to_vec()).as_deref(), b, "{place}");
    let explained = db.explain("b").expect("it succeeds");
    match explained.answer {
        ExplainedAnswer::Present { value_bytes } => {
            assert_eq!((value_bytes, is_expired), (3, false));
        }
        ExplainedAnswer::Expired => assert!(is_expired, "{place}"),
        answer => panic!("{place}: {answer:?}"),
    }
}

#[test]
fn an_expired_value_is_invisible_to_every_read() {
    let fs = Arc::new(MemoryFs::new());
    let clock = Arc::new(ManualClock::new());
    let mut db = open(&fs, &clock);
    db.insert("b", "older").expect("it succeeds");
    db.flush().expect("it succeeds");
    db.insert("a", "one").expect("it succeeds");
    db.insert_with_ttl("b", "two", 10 * SECOND).expect("it succeeds");
    assert_eq!(db.ttl("a").expect("it succeeds"), Some(TimeToLive::Unlimited));
    assert_eq!(db.ttl("b").expect("it succeeds"), Some(TimeToLive::Remaining(10 * SECOND)));
    assert_eq!(db.ttl("c").expect("it succeeds"), None);
    check_reads(&db, false, "in a memtable");
    db.flush().expect("it succeeds");
    check_reads(&db, false, "in a table");
    clock.advance(Duration::from_millis(9_999));
    check_reads(&db, false, "a millisecond before");
    assert_eq!(
        db.ttl("b").expect("it succeeds"),
        Some(TimeToLive::Remaining(Duration::from_millis(1)))
    );
    let (snapshot, range) = (db.snapshot(), db.range("b"..));
    clock.advance(Duration::from_millis(1));
    check_reads(&db, true, "in a table");
    assert_eq!(db.ttl("b").expect("it succeeds"), None);
    assert_eq!(
        snapshot.get("b").expect("it succeeds").as_deref(),
        Some(&b"two"[..]),
        "its clock is fixed"
    );
    assert_eq!(
        snapshot.ttl("b").expect("it succeeds"),
        Some(TimeToLive::Remaining(Duration::from_millis(1)))
    );
    assert_eq!(range.count(), 1, "its clock is fixed");
    db.compact().expect("it succeeds");
    assert_eq!(
        snapshot.get("b").expect("it succeeds").as_deref(),
        Some(&b"two"[..]),
        "the snapshot needs it"
    );
    drop(snapshot);
    for _ in 0..2 {
        drop(db);
        db = open(&fs, &clock);
        assert_eq!(db.get("b").expect("it succeeds"), None, "reopened");
        db.compact().expect("it succeeds");
    }
    assert_eq!(db.stats().levels.iter().map(|level| level.entries).sum::<u64>(), 1);
    assert!(db.insert_if_absent("b", "three").expect("it succeeds"));
    assert_eq!(db.ttl("b").expect("it succeeds"), Some(TimeToLive::Unlimited));
    db.verify().expect("it succeeds");
}

#[test]
fn a_time_to_live_of_any_length_is_accepted() {
    let (db, clock) = new_store();
    db.insert("zero", "older").expect("it succeeds");
    db.insert_with_ttl("zero", "", Duration::ZERO).expect("it succeeds");
    assert_eq!(db.get("zero").expect("it succeeds"), None, "it hides the older value");
    db.insert_with_ttl("most", "", Duration::MAX).expect("it succeeds");
    db.insert_expiring_at("past", "", SystemTime::UNIX_EPOCH - SECOND).expect("it succeeds");
    db.insert_expiring_at("soon", "", SystemTime::UNIX_EPOCH + SECOND).expect("it succeeds");
    assert_eq!(db.get("past").expect("it succeeds"), None);
    assert!(
        db.contains_key("soon").expect("it succeeds")
            && db.contains_key("most").expect("it succeeds")
    );
    clock.advance(Duration::from_secs(1 << 40));
    db.compact().expect("it succeeds");
    assert!(
        !db.contains_key("soon").expect("it succeeds")
            && db.contains_key("most").expect("it succeeds")
    );
    db.insert_with_ttl("later", "", Duration::from_nanos(1)).expect("it succeeds");
    assert!(db.contains_key("later").expect("it succeeds"), "rounded up");
}

#[test]
fn the_prefix_is_no_part_of_the_length_of_a_value() {
    let (db, _) = new_store();
    let long = vec![0; VALUE_BYTES_MAX + 1];
    match db.insert_with_ttl("a", &long, SECOND) {
        Err(Error::ValueTooLong { bytes, bytes_max }) => {
            assert_eq!((bytes, bytes_max), (VALUE_BYTES_MAX + 1, VALUE_BYTES_MAX));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_expiry_of_a_key_is_set_and_removed() {
    let (db, clock) = new_store();
    let at = |seconds| SystemTime::UNIX_EPOCH + seconds * SECOND;
    assert!(
        !db.expire_at("a", at(9)).expect("it succeeds")
            && !db.persist_key("a").expect("it succeeds")
    );
    assert_eq!(db.iter().count(), 0, "nothing was written");
    db.insert("a", "1").expect("it succeeds");
    assert!(db.persist_key("a").expect("it succeeds"), "it does not expire");
    for round in 0..2 {
        assert!(db.expire_at("a", at(9)).expect("it succeeds"));
        assert_eq!(db.ttl("a").expect("it succeeds"), Some(TimeToLive::Remaining(9 * SECOND)));
        assert!(db.expire_at("a", at(4)).expect("it succeeds"), "an earlier expiry");
        assert!(db.expire_after("a", 5 * SECOND).expect("it succeeds"));
        assert_eq!(db.ttl("a").expect("it succeeds"), Some(TimeToLive::Remaining(5 * SECOND)));
        if round == 1 {
            db.flush().expect("it succeeds");
        }
        assert!(db.persist_key("a").expect("it succeeds"));
        assert_eq!(db.ttl("a").expect("it succeeds"), Some(TimeToLive::Unlimited));
        assert_eq!(db.get("a").expect("it succeeds").as_deref(), Some(&b"1"[..]));
    }
    assert!(db.expire_at("a", at(4)).expect("it succeeds"));
    clock.advance(4 * SECOND);
    assert!(
        !db.persist_key("a").expect("it succeeds")
            && !db.expire_at("a", at(9)).expect("it succeeds")
            && !db.expire_after("a", SECOND).expect("it succeeds"),
        "it is too late"
    );
    assert_eq!(db.fetch_add("a", 7).expect("it succeeds"), 0, "an expired counter");
}

/// Also of a store that was only read since it was opened.
#[test]
fn a_close_keeps_the_store_clock() {
    let fs = Arc::new(MemoryFs::new());
    let clock = Arc::new(ManualClock::new());
    let db = open(&fs, &clock);
    db.insert_with_ttl("a", "1", 5 * SECOND).expect("it succeeds");
    drop(db);
    let db = open(&fs, &clock);
    clock.advance(6 * SECOND);
    assert_eq!(db.get("a").expect("it succeeds"), None);
    drop(db);
    clock.set_unix_time(Duration::ZERO);
    let db = open(&fs, &clock);
    assert_eq!(db.get("a").expect("it succeeds"), None, "the clock ran backwards");
}

/// Below operands, too: they would stay, and the value that was to be kept would not.
#[test]
fn the_expiry_below_merge_operands_is_read_and_removed() {
    let (db, clock) = new_store();
    let options = KeyspaceOptions::new().merge_operator(Arc::new(Append::new()));
    let lists = db.keyspace_with("lists", &options).expect("it succeeds");
    for (key, is_flushed) in [("a", false), ("b", true)] {
        lists.insert_with_ttl(key, "1", 9 * SECOND).expect("it succeeds");
        if is_flushed {
            lists.flush().expect("it succeeds");
        }
        lists.merge(key, "2").expect("it succeeds");
        let left = Some(TimeToLive::Remaining(9 * SECOND));
        assert_eq!(lists.ttl(key).expect("it succeeds"), left, "{key}");
    }
    assert!(lists.persist_key("a").expect("it succeeds"));
    clock.advance(9 * SECOND);
    let found = |key: &str| lists.get(key).expect("it succeeds");
    assert_eq!((found("a"), found("b")), (Some("12".into()), Some("2".into())));
    let unlimited = Some(TimeToLive::Unlimited);
    assert_eq!(["a", "b"].map(|key| lists.ttl(key).expect("it succeeds")), [unlimited; 2]);
}

#[test]
fn a_batch_holds_values_that_expire() {
    let (db, clock) = new_store();
    let other = db.keyspace("other").expect("it succeeds");
    let mut batch = db.batch();
    batch.insert_with_ttl(&db, "a", "1", SECOND).expect("it succeeds");
    batch
        .insert_expiring_at(&other, "b", "2", SystemTime::UNIX_EPOCH + 5 * SECOND)
        .expect("it succeeds");
    batch.insert(&other, "c", "3").expect("it succeeds");
    assert_eq!(batch.len(), 3);
    batch.commit(Durability::Disk).expect("it succeeds");
    assert_eq!(db.get("a").expect("it succeeds").as_deref(), Some(&b"1"[..]));
    clock.advance(2 * SECOND);
    assert_eq!((db.get("a").expect("it succeeds"), other.iter().count()), (None, 2));
    clock.advance(3 * SECOND);
    assert_eq!(other.iter().count(), 1);
}

#[test]
fn a_read_only_store_reads_as_of_its_opening() {
    let fs = Arc::new(MemoryFs::new());
    let clock = Arc::new(ManualClock::new());
    let db = open(&fs, &clock);
    db.insert_with_ttl("a", "1", SECOND).expect("it succeeds");
    drop(db);
    let options = || small_options(Arc::clone(&fs) as _).clock(Arc::clone(&clock) as _);
    let read_only = options().read_only(true).open(STORE_DIR).expect("it succeeds");
    clock.advance(2 * SECOND);
    assert!(read_only.contains_key("a").expect("it succeeds") && read_only.iter().count() == 1);
    drop(read_only);
    let read_only = options().read_only(true).open(STORE_DIR).expect("it succeeds");
    assert!(!read_only.contains_key("a").expect("it succeeds") && read_only.iter().count() == 0);
}

#[test]
fn repair_keeps_the_expiry() {
    let fs = Arc::new(MemoryFs::new());
    let clock = Arc::new(ManualClock::new());
    let db = open(&fs, &clock);
    db.insert_with_ttl("table", "1", SECOND).expect("it succeeds");
    db.insert_with_ttl("gone", "1", Duration::ZERO).expect("it succeeds");
    db.flush().expect("it succeeds");
    db.insert_with_ttl("log", "2", 2 * SECOND).expect("it succeeds");
    db.insert("ever", "3").expect("it succeeds");
    drop(db);
    let options = || small_options(Arc::clone(&fs) as _).clock(Arc::clone(&clock) as _);
    options().repair(STORE_DIR, "repaired", OlderValues::LeaveOut).expect("it succeeds");
    let db = options().open("repaired").expect("it succeeds");
    let keys = || db.iter().keys().map(|key| key.expect("it succeeds")).collect::<Vec<_>>();
    assert_eq!(keys(), ["ever", "log", "table"]);
    assert_eq!(db.ttl("log").expect("it succeeds"), Some(TimeToLive::Remaining(2 * SECOND)));
    clock.advance(SECOND);
    assert_eq!(keys(), ["ever", "log"]);
    clock.advance(SECOND);
    assert_eq!(keys(), ["ever"]);
}

/// A clock that counts how often it is read.
#[derive(Debug, Default)]
struct CountingClock {
    clock: ManualClock,
    reads: AtomicU64,
}

impl Clock for CountingClock {
    fn now(&self) -> Duration {
        self.reads.fetch_add(1, Relaxed);
        self.clock.now()
    }

    fn unix_time(&self) -> Duration {
        self.clock.unix_time()
    }

    fn sleep(&self, duration: Duration) {
        self.clock.sleep(duration);
    }
}

#[test]
fn no_read_of_a_key_without_an_expiry_reads_the_clock() {
    let clock = Arc::new(CountingClock::default());
    let fs = Arc::new(MemoryFs::new());
    let db = Options::new().fs(fs).clock(Arc::clone(&clock) as _).worker_threads(0);
    let db = db.open(STORE_DIR).expect("it succeeds");
    let plain = db.keyspace("plain").expect("it succeeds");
    for place in ["memtable", "table"] {
        for keyspace in [db.default_keyspace(), &plain] {
            keyspace.insert("a", "1").expect("it succeeds");
        }
        db.insert_with_ttl("b", "2", SECOND).expect("it succeeds");
        if place == "table" {
            db.flush().expect("it succeeds");
        }
        let reads = |call: &dyn Fn()| {
            let before = clock.reads.load(Relaxed);
            call();
            clock.reads.load(Relaxed) - before
        };
        let none: [(&str, &dyn Fn()); 6] = [
            ("a hit", &|| assert!(db.get("a").expect("it succeeds").is_some())),
            ("a miss", &|| assert!(db.get("c").expect("it succeeds").is_none())),
            ("contains_key", &|| assert!(db.contains_key("a").expect("it succeeds"))),
            ("a scan", &|| assert_eq!(plain.iter().count(), 1)),
            ("get_many", &|| assert_eq!(plain.get_many(["a", "c"]).expect("it succeeds").len(), 2)),
            ("may_contain", &|| assert!(!db.may_contain("c"))),
        ];
        for (name, call) in none {
            assert_eq!(reads(call), 0, "{name} in a {place}");
        }
        assert_eq!(reads(&|| assert!(db.get("b").expect("it succeeds").is_some())), 1, "a {place}");
        assert_eq!(reads(&|| assert_eq!(db.iter().count(), 2)), 1, "a {place}");
    }
}
