//! Reads and writes of values that expire, one rule per test.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, SystemTime},
};

use sievedb::{
    Db, Durability, Error, OlderValues, Options, TimeToLive, VALUE_BYTES_MAX,
    clock::{Clock, ManualClock},
    explain::ExplainedAnswer,
};
use sievedb_doubles::MemoryFs;
use sievedb_tests::settings::{STORE_DIR, small_options};

const SECOND: Duration = Duration::from_secs(1);

fn open(fs: &Arc<MemoryFs>, clock: &Arc<ManualClock>) -> Db {
    let options = small_options(Arc::clone(fs) as _).clock(Arc::clone(clock) as _);
    options.open(STORE_DIR).unwrap()
}

fn new_store() -> (Db, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::new());
    (open(&Arc::new(MemoryFs::new()), &clock), clock)
}

/// Checks every read of keys "a" (never expires), "b" (expired if `is_expired`), "c" (absent).
fn check_reads(db: &Db, is_expired: bool, place: &str) {
    let b = (!is_expired).then_some(&b"two"[..]);
    let found = |key: &str| db.get(key).unwrap();
    assert_eq!(found("a").as_deref(), Some(&b"one"[..]), "{place}");
    assert_eq!(found("b").as_deref(), b, "{place}");
    assert_eq!(found("c"), None, "{place}");
    assert_eq!(db.get_with("b", <[u8]>::to_vec).unwrap().as_deref(), b, "{place}");
    assert_eq!(db.contains_key("b").unwrap(), !is_expired, "{place}");
    assert_eq!(db.contains_many(["b", "a"]).unwrap(), [!is_expired, true], "{place}");
    let many = db.get_many(["c", "b", "a"]).unwrap();
    assert_eq!(many.iter().map(|it| it.as_deref()).collect::<Vec<_>>()[1], b, "{place}");
    assert!(is_expired || db.may_contain("b"), "{place}");
    let up: Vec<_> = db.iter().map(|entry| entry.unwrap()).collect();
    let mut down: Vec<_> = db.iter().rev().map(|entry| entry.unwrap()).collect();
    down.reverse();
    let of = |entries: &[(sievedb::Bytes, sievedb::Bytes)]| {
        entries.iter().map(|(key, value)| format!("{key:?}={value:?}")).collect::<Vec<_>>()
    };
    let want =
        if is_expired { vec![r#"b"a"=b"one""#] } else { vec![r#"b"a"=b"one""#, r#"b"b"=b"two""#] };
    assert_eq!((of(&up), of(&down)), (want.iter().map(|it| (*it).to_owned()).collect(), of(&up)));
    let mut range = db.range("b"..);
    let entry = range.next_ref().unwrap();
    assert_eq!(entry.map(|entry| entry.value().to_vec()).as_deref(), b, "{place}");
    let explained = db.explain("b").unwrap();
    match explained.answer {
        ExplainedAnswer::Present { value_bytes } => {
            assert_eq!((value_bytes, is_expired), (3, false))
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
    db.insert("b", "older").unwrap();
    db.flush().unwrap();
    db.insert("a", "one").unwrap();
    db.insert_with_ttl("b", "two", 10 * SECOND).unwrap();
    assert_eq!(db.ttl("a").unwrap(), Some(TimeToLive::Unlimited));
    assert_eq!(db.ttl("b").unwrap(), Some(TimeToLive::Remaining(10 * SECOND)));
    assert_eq!(db.ttl("c").unwrap(), None);
    check_reads(&db, false, "in a memtable");
    db.flush().unwrap();
    check_reads(&db, false, "in a table");
    clock.advance(Duration::from_millis(9_999));
    check_reads(&db, false, "a millisecond before");
    assert_eq!(db.ttl("b").unwrap(), Some(TimeToLive::Remaining(Duration::from_millis(1))));
    let (snapshot, range) = (db.snapshot(), db.range("b"..));
    clock.advance(Duration::from_millis(1));
    check_reads(&db, true, "in a table");
    assert_eq!(db.ttl("b").unwrap(), None);
    assert_eq!(snapshot.get("b").unwrap().as_deref(), Some(&b"two"[..]), "its clock is fixed");
    assert_eq!(snapshot.ttl("b").unwrap(), Some(TimeToLive::Remaining(Duration::from_millis(1))));
    assert_eq!(range.count(), 1, "its clock is fixed");
    db.compact().unwrap();
    assert_eq!(snapshot.get("b").unwrap().as_deref(), Some(&b"two"[..]), "the snapshot needs it");
    drop(snapshot);
    for _ in 0..2 {
        drop(db);
        db = open(&fs, &clock);
        assert_eq!(db.get("b").unwrap(), None, "reopened");
        db.compact().unwrap();
    }
    assert_eq!(db.stats().levels.iter().map(|level| level.entries).sum::<u64>(), 1);
    assert!(db.insert_if_absent("b", "three").unwrap());
    assert_eq!(db.ttl("b").unwrap(), Some(TimeToLive::Unlimited));
    db.verify().unwrap();
}

#[test]
fn a_time_to_live_of_any_length_is_accepted() {
    let (db, clock) = new_store();
    db.insert("zero", "older").unwrap();
    db.insert_with_ttl("zero", "", Duration::ZERO).unwrap();
    assert_eq!(db.get("zero").unwrap(), None, "it hides the older value");
    db.insert_with_ttl("most", "", Duration::MAX).unwrap();
    db.insert_expiring_at("past", "", SystemTime::UNIX_EPOCH - SECOND).unwrap();
    db.insert_expiring_at("soon", "", SystemTime::UNIX_EPOCH + SECOND).unwrap();
    assert_eq!(db.get("past").unwrap(), None);
    assert!(db.contains_key("soon").unwrap() && db.contains_key("most").unwrap());
    clock.advance(Duration::from_secs(1 << 40));
    db.compact().unwrap();
    assert!(!db.contains_key("soon").unwrap() && db.contains_key("most").unwrap());
    db.insert_with_ttl("later", "", Duration::from_nanos(1)).unwrap();
    assert!(db.contains_key("later").unwrap(), "rounded up");
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
    assert!(!db.expire_at("a", at(9)).unwrap() && !db.persist_key("a").unwrap());
    assert_eq!(db.iter().count(), 0, "nothing was written");
    db.insert("a", "1").unwrap();
    assert!(db.persist_key("a").unwrap(), "it does not expire");
    for round in 0..2 {
        assert!(db.expire_at("a", at(9)).unwrap());
        assert_eq!(db.ttl("a").unwrap(), Some(TimeToLive::Remaining(9 * SECOND)));
        assert!(db.expire_at("a", at(4)).unwrap(), "an earlier expiry");
        if round == 1 {
            db.flush().unwrap();
        }
        assert!(db.persist_key("a").unwrap());
        assert_eq!(db.ttl("a").unwrap(), Some(TimeToLive::Unlimited));
        assert_eq!(db.get("a").unwrap().as_deref(), Some(&b"1"[..]));
    }
    assert!(db.expire_at("a", at(4)).unwrap());
    clock.advance(4 * SECOND);
    assert!(!db.persist_key("a").unwrap() && !db.expire_at("a", at(9)).unwrap(), "it is too late");
    assert_eq!(db.fetch_add("a", 7).unwrap(), 0, "an expired counter");
}

#[test]
fn a_batch_holds_values_that_expire() {
    let (db, clock) = new_store();
    let other = db.keyspace("other").unwrap();
    let mut batch = db.batch();
    batch.insert_with_ttl(&db, "a", "1", SECOND).unwrap();
    batch.insert_expiring_at(&other, "b", "2", SystemTime::UNIX_EPOCH + 5 * SECOND).unwrap();
    batch.insert(&other, "c", "3").unwrap();
    assert_eq!(batch.len(), 3);
    batch.commit(Durability::Disk).unwrap();
    assert_eq!(db.get("a").unwrap().as_deref(), Some(&b"1"[..]));
    clock.advance(2 * SECOND);
    assert_eq!((db.get("a").unwrap(), other.iter().count()), (None, 2));
    clock.advance(3 * SECOND);
    assert_eq!(other.iter().count(), 1);
}

#[test]
fn a_read_only_store_reads_as_of_its_opening() {
    let fs = Arc::new(MemoryFs::new());
    let clock = Arc::new(ManualClock::new());
    let db = open(&fs, &clock);
    db.insert_with_ttl("a", "1", SECOND).unwrap();
    drop(db);
    let options = || small_options(Arc::clone(&fs) as _).clock(Arc::clone(&clock) as _);
    let read_only = options().read_only(true).open(STORE_DIR).unwrap();
    clock.advance(2 * SECOND);
    assert!(read_only.contains_key("a").unwrap() && read_only.iter().count() == 1);
    drop(read_only);
    let read_only = options().read_only(true).open(STORE_DIR).unwrap();
    assert!(!read_only.contains_key("a").unwrap() && read_only.iter().count() == 0);
}

#[test]
fn repair_keeps_the_expiry() {
    let fs = Arc::new(MemoryFs::new());
    let clock = Arc::new(ManualClock::new());
    let db = open(&fs, &clock);
    db.insert_with_ttl("table", "1", SECOND).unwrap();
    db.insert_with_ttl("gone", "1", Duration::ZERO).unwrap();
    db.flush().unwrap();
    db.insert_with_ttl("log", "2", 2 * SECOND).unwrap();
    db.insert("ever", "3").unwrap();
    drop(db);
    let options = || small_options(Arc::clone(&fs) as _).clock(Arc::clone(&clock) as _);
    options().repair(STORE_DIR, "repaired", OlderValues::LeaveOut).unwrap();
    let db = options().open("repaired").unwrap();
    let keys = || db.iter().keys().map(|key| key.unwrap()).collect::<Vec<_>>();
    assert_eq!(keys(), ["ever", "log", "table"]);
    assert_eq!(db.ttl("log").unwrap(), Some(TimeToLive::Remaining(2 * SECOND)));
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
    let db = db.open(STORE_DIR).unwrap();
    let plain = db.keyspace("plain").unwrap();
    for place in ["memtable", "table"] {
        for keyspace in [db.default_keyspace(), &plain] {
            keyspace.insert("a", "1").unwrap();
        }
        db.insert_with_ttl("b", "2", SECOND).unwrap();
        if place == "table" {
            db.flush().unwrap();
        }
        let reads = |call: &dyn Fn()| {
            let before = clock.reads.load(Relaxed);
            call();
            clock.reads.load(Relaxed) - before
        };
        let none: [(&str, &dyn Fn()); 6] = [
            ("a hit", &|| assert!(db.get("a").unwrap().is_some())),
            ("a miss", &|| assert!(db.get("c").unwrap().is_none())),
            ("contains_key", &|| assert!(db.contains_key("a").unwrap())),
            ("a scan", &|| assert_eq!(plain.iter().count(), 1)),
            ("get_many", &|| assert_eq!(plain.get_many(["a", "c"]).unwrap().len(), 2)),
            ("may_contain", &|| assert!(!db.may_contain("c"))),
        ];
        for (name, call) in none {
            assert_eq!(reads(call), 0, "{name} in a {place}");
        }
        assert_eq!(reads(&|| assert!(db.get("b").unwrap().is_some())), 1, "a {place}");
        assert_eq!(reads(&|| assert_eq!(db.iter().count(), 2)), 1, "a {place}");
    }
}
