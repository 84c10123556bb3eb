//! The default TTL of a keyspace.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use sievedb::{
    Append, Bytes, Db, Durability, Error, Keyspace, KeyspaceOptions, Options, TimeToLive,
    clock::ManualClock,
};
use sievedb_doubles::MemoryFs;
use sievedb_tests::settings::{STORE_DIR, small_keyspace, small_options};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: TimeToLive = TimeToLive::Remaining(Duration::from_secs(60));

struct Fixture {
    fs: Arc<MemoryFs>,
    clock: Arc<ManualClock>,
}

impl Fixture {
    fn new() -> Self {
        Self { fs: Arc::new(MemoryFs::new()), clock: Arc::new(ManualClock::new()) }
    }

    fn options(&self) -> Options {
        small_options(Arc::clone(&self.fs) as _).clock(Arc::clone(&self.clock) as _)
    }

    fn open(&self) -> Db {
        self.options().open(STORE_DIR).expect("it succeeds")
    }
}

fn minute() -> KeyspaceOptions {
    small_keyspace().default_ttl(60 * SECOND)
}

fn ttl(keyspace: &Keyspace, key: &str) -> Option<TimeToLive> {
    keyspace.ttl(key).expect("it succeeds")
}

fn at(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
}

#[test]
fn every_write_of_a_value_without_an_expiry_gets_the_default() {
    let fixture = Fixture::new();
    let db = fixture.open();
    let keyspace = db.keyspace_with("minute", &minute()).unwrap();
    keyspace.insert("insert", "1").unwrap();
    assert!(keyspace.insert_if_absent("absent", "1").unwrap());
    keyspace.compare_and_set("swapped", None, Some(b"1")).unwrap().unwrap();
    keyspace.fetch_update("updated", |_| Some("1")).unwrap();
    keyspace.fetch_add("counted", 1).unwrap();
    let mut batch = db.batch();
    batch.insert(&keyspace, "batch", "1").unwrap();
    batch.insert_without_ttl(&keyspace, "batch ever", "1").unwrap();
    batch.insert(&db, "elsewhere", "1").unwrap();
    batch.commit(Durability::Disk).unwrap();
    db.transaction(|transaction| {
        transaction.insert(&keyspace, "transaction", "1")?;
        assert_eq!(transaction.ttl(&keyspace, "transaction")?, Some(MINUTE));
        transaction.insert_without_ttl(&keyspace, "transaction ever", "1")
    })
    .unwrap();
    let default = ["insert", "absent", "swapped", "updated", "counted", "batch", "transaction"];
    for key in default {
        assert_eq!(ttl(&keyspace, key), Some(MINUTE), "{key}");
    }
    assert_eq!(db.ttl("elsewhere").unwrap(), Some(TimeToLive::Unlimited));

    // Writes that name an expiry, or none.
    keyspace.insert_with_ttl("second", "1", SECOND).unwrap();
    keyspace.insert_expiring_at("at", "1", at(7)).unwrap();
    keyspace.insert_without_ttl("ever", "1").unwrap();
    keyspace.insert("persisted", "1").unwrap();
    assert!(keyspace.persist_key("persisted").unwrap());
    keyspace.insert_without_ttl("expiring", "1").unwrap();
    assert!(keyspace.expire_at("expiring", at(9)).unwrap());
    let seconds = |key| match ttl(&keyspace, key) {
        Some(TimeToLive::Remaining(left)) => left.as_secs(),
        other => panic!("{key}: {other:?}"),
    };
    assert_eq!(["second", "at", "expiring"].map(seconds), [1, 7, 9]);
    let ever = ["ever", "persisted", "batch ever", "transaction ever"];
    fixture.clock.advance(60 * SECOND);
    let keys = || keyspace.iter().keys().map(|key| key.unwrap()).collect::<Vec<_>>();
    let mut want = ever.map(Bytes::from).to_vec();
    want.sort();
    assert_eq!(keys(), want);
    db.compact().unwrap();
    assert_eq!(keys(), want);
    assert_eq!(keyspace.approximate_len().unwrap(), 4, "their space is free");
    assert!(ever.iter().all(|key| ttl(&keyspace, key) == Some(TimeToLive::Unlimited)));
}

#[test]
fn the_default_is_stored_and_changes_later_writes_only() {
    let fixture = Fixture::new();
    let db = fixture.open();
    let keyspace = db.keyspace_with("minute", &minute()).unwrap();
    keyspace.insert("a", "1").unwrap();
    drop((keyspace, db));
    let db = fixture.open();
    let keyspace = db.open_keyspace("minute").unwrap();
    assert_eq!(keyspace.options().get_default_ttl(), Some(60 * SECOND));
    assert!(keyspace.options().to_string().ends_with("default TTL of 60s"));
    keyspace.insert("b", "1").unwrap();
    keyspace.set_options(keyspace.options().default_ttl(2 * SECOND)).unwrap();
    keyspace.insert("c", "1").unwrap();
    keyspace.set_options(keyspace.options().default_ttl(None)).unwrap();
    keyspace.insert("d", "1").unwrap();
    let two = Some(TimeToLive::Remaining(2 * SECOND));
    let want = [Some(MINUTE), Some(MINUTE), two, Some(TimeToLive::Unlimited)];
    assert_eq!(["a", "b", "c", "d"].map(|key| ttl(&keyspace, key)), want);
    match keyspace.set_options(keyspace.options().default_ttl(Duration::ZERO)) {
        Err(Error::InvalidOption { name: "default_ttl", allowed: "more than zero" }) => {}
        other => panic!("{other:?}"),
    }
    drop((keyspace, db));

    // The options of an opening are those of the default keyspace.
    let db = fixture.options().keyspace(minute()).open(STORE_DIR).unwrap();
    db.insert("a", "1").unwrap();
    assert_eq!(db.ttl("a").unwrap(), Some(MINUTE));
    drop(db);
    let db = fixture.options().keyspace(small_keyspace()).open(STORE_DIR).unwrap();
    db.insert("b", "1").unwrap();
    assert_eq!(db.ttl("a").unwrap(), Some(MINUTE));
    assert_eq!(db.ttl("b").unwrap(), Some(TimeToLive::Unlimited));
}

#[test]
fn a_store_clock_far_in_the_future_saturates() {
    let fixture = Fixture::new();
    fixture.clock.set_unix_time(Duration::from_millis(u64::MAX - 5));
    let db = fixture.options().keyspace(minute()).open(STORE_DIR).unwrap();
    db.insert("a", "1").unwrap();
    db.insert_with_ttl("b", "1", Duration::MAX).unwrap();
    db.transaction(|transaction| transaction.insert(&db, "c", "1")).unwrap();
    let mut batch = db.batch();
    batch.insert(&db, "d", "1").unwrap();
    batch.commit(Durability::Disk).unwrap();
    db.fetch_update("e", |_| Some("1")).unwrap();
    fixture.clock.advance(90 * SECOND);
    db.compact().unwrap();
    assert_eq!(db.iter().count(), 5, "the last millisecond never comes");
    drop(db);
    let db = fixture.options().keyspace(minute()).open(STORE_DIR).unwrap();
    db.insert("f", "1").unwrap();
    assert_eq!(db.len().unwrap(), 6);
    let most = small_keyspace().default_ttl(Duration::MAX);
    let keyspace = db.keyspace_with("most", &most).unwrap();
    keyspace.insert("a", "1").unwrap();
    assert!(keyspace.contains_key("a").unwrap());
}

#[test]
fn operands_do_not_expire_and_apply_to_what_is_left() {
    let fixture = Fixture::new();
    let db = fixture.open();
    let options = minute().merge_operator(Arc::new(Append::with_separator(",")));
    let keyspace = db.keyspace_with("lists", &options).unwrap();
    let value = |key: &str| keyspace.get(key).unwrap();
    for is_flushed in [false, true] {
        keyspace.insert("a", "one").unwrap();
        keyspace.merge("a", "two").unwrap();
        db.transaction(|transaction| transaction.merge(&keyspace, "b", "one")).unwrap();
        assert_eq!(ttl(&keyspace, "b"), Some(MINUTE), "a value, not an operand");
        if is_flushed {
            db.flush().unwrap();
        }
        assert_eq!(value("a").as_deref(), Some(&b"one,two"[..]));
        fixture.clock.advance(60 * SECOND);
        assert_eq!((value("a").as_deref(), value("b")), (Some(&b"two"[..]), None));
        db.compact().unwrap();
        assert_eq!((value("a").as_deref(), value("b")), (Some(&b"two"[..]), None));
    }
}
