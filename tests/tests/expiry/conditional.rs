//! The expiry of values that conditional writes store.

use std::{sync::Arc, time::Duration};

use sievedb::{Counter, Db, Keyspace, Result, TimeToLive, clock::ManualClock};
use sievedb_doubles::MemoryFs;
use sievedb_tests::settings::{STORE_DIR, small_keyspace, small_options};

const SECOND: Duration = Duration::from_secs(1);

type Call = fn(&Db, &Keyspace) -> Result<()>;

/// Changes of the count "a" that read it.
const CHANGES: [(&str, Call); 8] = [
    ("fetch_add", |_, it| it.fetch_add("a", 1).map(drop)),
    ("fetch_update", |_, it| it.fetch_update("a", |_| Some(count(7))).map(drop)),
    ("update_fetch", |_, it| it.update_fetch("a", |_| Some(count(7))).map(drop)),
    ("compare_and_set", |_, it| {
        let old = it.get("a")?;
        it.compare_and_set("a", old.as_deref(), Some(&count(7)))?.expect("no other write");
        Ok(())
    }),
    ("fetch_add in a transaction", |db, it| {
        db.transaction(|tx| tx.fetch_add(it, "a", 1)).map(drop)
    }),
    ("fetch_update in a transaction", |db, it| {
        db.transaction(|tx| tx.fetch_update(it, "a", |_| Some(count(7)))).map(drop)
    }),
    ("update_fetch in a transaction", |db, it| {
        db.transaction(|tx| tx.update_fetch(it, "a", |_| Some(count(7)))).map(drop)
    }),
    ("merge in a transaction", |db, it| db.transaction(|tx| tx.merge(it, "a", count(1)))),
];

fn count(number: i64) -> Vec<u8> {
    number.to_be_bytes().to_vec()
}

fn left(seconds: u32) -> Option<TimeToLive> {
    Some(TimeToLive::Remaining(seconds * SECOND))
}

/// Returns a store with a keyspace of counters, which expire after a minute by default.
fn new_store() -> (Db, Keyspace, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::new());
    let options = small_options(Arc::new(MemoryFs::new())).clock(Arc::clone(&clock) as _);
    let db = options.open(STORE_DIR).expect("a new store");
    let options = small_keyspace().default_ttl(60 * SECOND).merge_operator(Arc::new(Counter));
    let counts = db.keyspace_with("counts", &options).expect("a new keyspace");
    (db, counts, clock)
}

#[test]
fn a_new_value_keeps_the_expiry_of_the_old_one() {
    for (name, change) in CHANGES {
        let (db, counts, clock) = new_store();
        for is_flushed in [false, true] {
            let flush = || {
                if is_flushed {
                    db.flush().unwrap();
                }
            };
            counts.insert_with_ttl("a", count(1), 9 * SECOND).unwrap();
            flush();
            clock.advance(2 * SECOND);
            change(&db, &counts).unwrap();
            assert_eq!(counts.ttl("a").unwrap(), left(7), "{name}");
            // Operands apply to the value, and have no expiry of their own.
            counts.merge("a", count(1)).unwrap();
            flush();
            change(&db, &counts).unwrap();
            assert_eq!(counts.ttl("a").unwrap(), left(7), "{name} of operands");
            clock.advance(7 * SECOND);
            assert_eq!(counts.get("a").unwrap(), None, "{name}");
            // An expired value is absent.
            change(&db, &counts).unwrap();
            assert_eq!(counts.ttl("a").unwrap(), left(60), "{name} of an expired value");

            counts.insert_without_ttl("a", count(1)).unwrap();
            flush();
            change(&db, &counts).unwrap();
            assert_eq!(counts.ttl("a").unwrap(), Some(TimeToLive::Unlimited), "{name}");
            counts.remove("a").unwrap();
            change(&db, &counts).unwrap();
            assert_eq!(counts.ttl("a").unwrap(), left(60), "{name} of an absent key");
        }
    }
}

#[test]
fn a_change_in_a_transaction_keeps_an_expiry_of_its_own_write() {
    let (db, counts, _) = new_store();
    db.transaction(|tx| {
        tx.insert_with_ttl(&counts, "a", count(1), 9 * SECOND)?;
        tx.fetch_add(&counts, "a", 1)?;
        assert_eq!(tx.ttl(&counts, "a")?, left(9));
        tx.remove(&counts, "a")?;
        tx.fetch_add(&counts, "a", 1)?;
        assert_eq!(tx.ttl(&counts, "a")?, left(60));
        Ok(())
    })
    .unwrap();
    assert_eq!(counts.ttl("a").unwrap(), left(60));
}

/// The operands have no expiry: what is left of them has none either.
#[test]
fn a_change_of_operands_without_a_value_stores_a_value_without_an_expiry() {
    let (_, counts, clock) = new_store();
    counts.insert_with_ttl("a", count(1), SECOND).unwrap();
    counts.merge("a", count(5)).unwrap();
    clock.advance(SECOND);
    assert_eq!(counts.fetch_add("a", 2).unwrap(), 5);
    assert_eq!(counts.ttl("a").unwrap(), Some(TimeToLive::Unlimited));
}

#[test]
fn a_lock_is_free_after_its_lease() {
    let (db, counts, clock) = new_store();
    for handle in [&counts, db.default_keyspace()] {
        assert!(handle.insert_if_absent_with_ttl("lock", "anna", 5 * SECOND).unwrap());
        assert!(!handle.insert_if_absent_with_ttl("lock", "bert", 9 * SECOND).unwrap());
        assert_eq!(handle.ttl("lock").unwrap(), left(5));
        clock.advance(5 * SECOND);
        assert!(handle.insert_if_absent_with_ttl("lock", "bert", 9 * SECOND).unwrap());
        assert_eq!(handle.ttl("lock").unwrap(), left(9));
        assert_eq!(handle.take("lock").unwrap().unwrap(), "bert");
    }
    assert!(db.insert_if_absent_with_ttl("none", "", Duration::ZERO).unwrap());
    assert_eq!(db.get("none").unwrap(), None, "expired at once");
}
