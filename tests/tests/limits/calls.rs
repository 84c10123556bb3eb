//! Longest and shortest keys and values of every call that writes, besides `insert`, `remove` and
//! batches of them.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use sievedb::{
    Append, Db, Error, KEY_BYTES_MAX, Keyspace, KeyspaceOptions, Options, Result, Transaction,
    VALUE_BYTES_MAX, clock::ManualClock,
};
use sievedb_doubles::MemoryFs;

type Call = fn(&Keyspace, &[u8], &[u8]) -> Result<()>;
type Step = fn(&mut Transaction, &Keyspace, &[u8], &[u8]) -> Result<()>;

const TTL: Duration = Duration::from_secs(60);

fn soon() -> SystemTime {
    SystemTime::UNIX_EPOCH + TTL
}

/// Calls with a key and a value.
const VALUE_CALLS: [(&str, Call); 8] = [
    ("insert_with_ttl", |it, key, value| it.insert_with_ttl(key, value, TTL)),
    ("insert_expiring_at", |it, key, value| it.insert_expiring_at(key, value, soon())),
    ("insert_without_ttl", |it, key, value| it.insert_without_ttl(key, value)),
    ("insert_if_absent", |it, key, value| it.insert_if_absent(key, value).map(drop)),
    ("insert_if_absent_with_ttl", |it, key, value| {
        it.insert_if_absent_with_ttl(key, value, TTL).map(drop)
    }),
    ("compare_and_set", |it, key, value| it.compare_and_set(key, None, Some(value)).map(drop)),
    ("fetch_update", |it, key, value| it.fetch_update(key, |_| Some(value.to_vec())).map(drop)),
    ("merge", |it, key, value| it.merge(key, value)),
];

/// Calls with a key alone.
const KEY_CALLS: [(&str, Call); 10] = [
    ("fetch_add", |it, key, _| it.fetch_add(key, 1).map(drop)),
    ("take", |it, key, _| it.take(key).map(drop)),
    ("remove_if", |it, key, _| it.remove_if(key, |_| true).map(drop)),
    ("expire_after", |it, key, _| it.expire_after(key, TTL).map(drop)),
    ("expire_at", |it, key, _| it.expire_at(key, soon()).map(drop)),
    ("persist_key", |it, key, _| it.persist_key(key).map(drop)),
    ("remove_range from", |it, key, _| it.remove_range(key..)),
    ("remove_range to", |it, key, _| it.remove_range(..key)),
    ("remove_range of one", |it, key, _| it.remove_range(key..=key)),
    ("remove_prefix", |it, key, _| it.remove_prefix(key)),
];

/// Steps of transactions with a key and a value.
const VALUE_STEPS: [(&str, Step); 6] = [
    ("insert", |tx, it, key, value| tx.insert(it, key, value)),
    ("insert_with_ttl", |tx, it, key, value| tx.insert_with_ttl(it, key, value, TTL)),
    ("insert_expiring_at", |tx, it, key, value| tx.insert_expiring_at(it, key, value, soon())),
    ("insert_without_ttl", |tx, it, key, value| tx.insert_without_ttl(it, key, value)),
    ("fetch_update", |tx, it, key, value| tx.fetch_update(it, key, |_| Some(value)).map(drop)),
    ("merge", |tx, it, key, value| tx.merge(it, key, value)),
];

/// Steps of transactions with a key alone.
const KEY_STEPS: [(&str, Step); 9] = [
    ("remove", |tx, it, key, _| tx.remove(it, key)),
    ("take", |tx, it, key, _| tx.take(it, key).map(drop)),
    ("fetch_add", |tx, it, key, _| tx.fetch_add(it, key, 1).map(drop)),
    ("expire_after", |tx, it, key, _| tx.expire_after(it, key, TTL).map(drop)),
    ("expire_at", |tx, it, key, _| tx.expire_at(it, key, soon()).map(drop)),
    ("persist_key", |tx, it, key, _| tx.persist_key(it, key).map(drop)),
    ("remove_range from", |tx, it, key, _| tx.remove_range(it, key..)),
    ("remove_range to", |tx, it, key, _| tx.remove_range(it, ..key)),
    ("remove_prefix", |tx, it, key, _| tx.remove_prefix(it, key)),
];

fn store() -> (Arc<MemoryFs>, Db) {
    let fs = Arc::new(MemoryFs::new());
    let keyspace = KeyspaceOptions::new().merge_operator(Arc::new(Append::new()));
    let options = Options::new().fs(fs.clone()).clock(Arc::new(ManualClock::new()));
    let db = options.worker_threads(0).keyspace(keyspace).open("db").expect("a new store");
    (fs, db)
}

/// Returns whether a call did what it must with a key of `key_bytes` bytes and such a value.
fn is_right(result: &Result<()>, key_bytes: usize, value_bytes: usize) -> bool {
    match result {
        Ok(()) => key_bytes <= KEY_BYTES_MAX && value_bytes <= VALUE_BYTES_MAX,
        Err(Error::KeyTooLong { bytes, .. }) => *bytes > KEY_BYTES_MAX && *bytes == key_bytes,
        Err(Error::ValueTooLong { bytes, .. }) => *bytes > VALUE_BYTES_MAX,
        Err(_) => false,
    }
}

#[test]
fn every_call_takes_the_longest_key_and_no_longer_one() {
    let (fs, db) = store();
    let it = db.default_keyspace();
    for key_bytes in [0, 1, KEY_BYTES_MAX - 1, KEY_BYTES_MAX, KEY_BYTES_MAX + 1] {
        // Without bytes that end a prefix range, and with nothing but these.
        for byte in [b'k', 0, 0xff] {
            let key = vec![byte; key_bytes];
            for (name, call) in VALUE_CALLS.into_iter().chain(KEY_CALLS) {
                db.clear().expect("nothing fails");
                let before = fs.operations();
                let result = call(it, &key, b"12345678");
                let what = format!("{name}, a key of {key_bytes} bytes {byte:#04x}");
                // A key that cannot be stored is absent: conditional calls that store nothing, and
                // prefixes and bounds of an empty range, need not refuse it.
                let needs_no_write = matches!(
                    name,
                    "take"
                        | "remove_if"
                        | "expire_after"
                        | "expire_at"
                        | "persist_key"
                        | "remove_prefix"
                );
                let is_nothing = needs_no_write && result.is_ok() && fs.operations() == before;
                assert!(is_right(&result, key_bytes, 8) || is_nothing, "{what}: {result:?}");
                let stored = VALUE_CALLS.iter().any(|(of, _)| *of == name) && result.is_ok();
                assert_eq!(
                    it.contains_key(&key).expect("nothing fails"),
                    stored || name == "fetch_add" && result.is_ok(),
                    "{what}"
                );
                if stored {
                    assert_eq!(it.first().expect("nothing fails").expect("it is there").0, key);
                    // The range of one key, and the prefix, remove the longest key too.
                    it.remove_range(&*key..=&*key).expect("nothing fails");
                    assert!(it.is_empty().expect("nothing fails"), "{what}: removed by a range");
                }
            }
            for (name, step) in VALUE_STEPS.into_iter().chain(KEY_STEPS) {
                db.clear().expect("nothing fails");
                let mut transaction = db.begin();
                let result = step(&mut transaction, it, &key, b"12345678");
                let what = format!("{name} in a transaction, {key_bytes} bytes {byte:#04x}");
                let is_nothing = result.is_ok() && transaction.is_empty();
                assert!(is_right(&result, key_bytes, 8) || is_nothing, "{what}: {result:?}");
                let found = transaction.get(it, &key).expect("nothing fails");
                transaction.commit(None).expect("nothing fails");
                assert_eq!(it.get(&key).expect("nothing fails"), found, "{what}");
                let stored = VALUE_STEPS.iter().any(|(of, _)| *of == name) && result.is_ok();
                assert!(found.is_some() || !stored, "{what}");
            }
        }
    }
}

#[test]
fn every_call_refuses_a_value_that_is_too_long_without_effect() {
    let (fs, db) = store();
    let it = db.default_keyspace();
    // Never touched beyond its length: a page of zeros for all.
    let value = vec![0; VALUE_BYTES_MAX + 1];
    let before = (fs.operations(), db.stats().last_sequence);
    for (name, call) in VALUE_CALLS {
        let result = call(it, b"key", &value);
        assert!(matches!(result, Err(Error::ValueTooLong { .. })), "{name}: {result:?}");
    }
    let options = sievedb::TransactionOptions::new().bytes_max(u64::MAX);
    let mut transaction = db.begin_with(options);
    for (name, step) in VALUE_STEPS {
        let result = step(&mut transaction, it, b"key", &value);
        assert!(matches!(result, Err(Error::ValueTooLong { .. })), "{name}: {result:?}");
    }
    assert!(transaction.is_empty());
    assert_eq!((fs.operations(), db.stats().last_sequence), before, "something was changed");
}

/// A change of the value of a key may panic: nothing is written, no lock stays held, and the key
/// can be written afterwards.
#[test]
fn a_change_that_panics_writes_nothing() {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    let (_, db) = store();
    db.insert("key", "old").expect("nothing fails");
    let calls: [(&str, &dyn Fn()); 6] = [
        ("fetch_update", &|| {
            drop(db.fetch_update("key", |_| -> Option<&[u8]> { panic!("as it should") }));
        }),
        ("remove_if", &|| drop(db.remove_if("key", |_| panic!("as it should")))),
        ("get_with", &|| drop(db.get_with("key", |_| panic!("as it should")))),
        ("transaction", &|| {
            drop(db.transaction(|tx| -> Result<()> {
                tx.insert(&db, "key", "new")?;
                tx.remove_range::<&str>(&db, ..)?;
                panic!("as it should")
            }));
        }),
        ("fetch_update in a transaction", &|| {
            drop(db.transaction(|tx| {
                tx.insert(&db, "other", "new")?;
                tx.fetch_update(&db, "key", |_| -> Option<&[u8]> { panic!("as it should") })
            }));
        }),
        ("a range in a transaction", &|| {
            drop(db.transaction(|tx| -> Result<()> {
                let _range = tx.iter(&db);
                panic!("as it should")
            }));
        }),
    ];
    for (name, call) in calls {
        assert!(catch_unwind(AssertUnwindSafe(call)).is_err(), "{name} panics");
        assert_eq!(db.len().expect("nothing fails"), 1, "{name}");
        assert_eq!(db.get("key").expect("nothing fails").as_deref(), Some(&b"old"[..]), "{name}");
        db.fetch_update("key", |_| Some("new")).expect("nothing fails");
        db.transaction(|tx| tx.insert(&db, "key", "old")).expect("nothing fails");
    }
    // No snapshot of a transaction is left behind: the older versions can be dropped.
    db.compact().expect("nothing fails");
    assert_eq!(db.stats().levels.iter().map(|level| level.entries).sum::<u64>(), 1);
    assert!(db.verify().expect("nothing fails").is_good());
}
