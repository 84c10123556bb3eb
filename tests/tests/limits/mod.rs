//! Longest keys and values, and longer ones.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

mod calls;
mod descriptors;
mod many;
mod small_budget;
mod write_amplification;

use std::{path::Path, sync::Arc};

use sievedb::{
    Db, Durability, Error, KEY_BYTES_MAX, KeyspaceOptions, Options, VALUE_BYTES_MAX,
    clock::ManualClock,
};
use sievedb_doubles::MemoryFs;

/// Returns bytes with a long period, different for each `seed`.
fn bytes(seed: u8, len: usize) -> Vec<u8> {
    let mixed = |at: usize| (at as u32).wrapping_mul(0x9e37_79b1) >> 13;
    (0..len).map(|at| mixed(at) as u8 ^ seed).collect()
}

/// Checks that `db` holds exactly `entries`, in ascending order.
fn check(db: &Db, entries: &[(Vec<u8>, Vec<u8>)], when: &str) {
    for (key, value) in entries {
        let found = db.get(key).unwrap();
        // Not `assert_eq`: it would print the values.
        assert!(found.as_deref() == Some(value), "{when}: key of {} bytes", key.len());
        assert!(db.contains_key(key).unwrap() && db.may_contain(key), "{when}: {}", key.len());
    }
    let mut scan = db.iter();
    for (key, value) in entries {
        let (k, v) = scan.next().unwrap().unwrap();
        assert!(k == *key && v == *value, "{when}: key of {} bytes in a scan", key.len());
    }
    assert!(scan.next().is_none(), "{when}");
    let mut scan = db.iter();
    for (key, value) in entries.iter().rev() {
        let (k, v) = scan.next_back().unwrap().unwrap();
        assert!(k == *key && v == *value, "{when}: key of {} bytes backwards", key.len());
    }
    assert!(scan.next_back().is_none(), "{when}");
}

/// Moves `entries` through log, memtable, table and compaction, with reopens in between.
fn check_journey(path: &Path, entries: &[(Vec<u8>, Vec<u8>)]) {
    // The longest value must fit three quarters of it.
    let open = || Options::new().memtable_bytes_max(1 << 30).open(path).unwrap();
    let db = open();
    for (key, value) in entries {
        db.insert(key, value).unwrap();
    }
    check(&db, entries, "in memtables");
    drop(db);
    let db = open();
    check(&db, entries, "from the log");
    db.flush().unwrap();
    check(&db, entries, "flushed");
    db.compact().unwrap();
    check(&db, entries, "compacted");
    drop(db);
    check(&open(), entries, "reopened");
}

#[test]
fn keys_and_values_of_all_lengths_are_read_back() {
    let dir = tempfile::tempdir().unwrap();
    let lengths = [0, 1, 2, 7, 8, 255, 256, 4095, 4096, 65_534, KEY_BYTES_MAX];
    let mut entries = Vec::new();
    for (at, key_bytes) in lengths.into_iter().enumerate() {
        let value_bytes = [0, 1, 127, 128, 16_383, 65_536, (1 << 20) - 8, 1 << 20, 3 << 20][at % 9];
        entries.push((bytes(7, key_bytes), bytes(at as u8, value_bytes)));
        // A neighbour that differs in the last byte only.
        if key_bytes > 0 {
            let mut key = bytes(7, key_bytes);
            *key.last_mut().unwrap() ^= 0x55;
            entries.push((key, Vec::new()));
        }
    }
    entries.sort();
    check_journey(dir.path(), &entries);
}

#[test]
fn longest_value_is_read_back() {
    let dir = tempfile::tempdir().unwrap();
    let entries = [
        (b"a".to_vec(), b"before".to_vec()),
        (bytes(1, KEY_BYTES_MAX), bytes(2, VALUE_BYTES_MAX)),
        (b"z".to_vec(), b"behind".to_vec()),
    ];
    let mut entries = entries.to_vec();
    entries.sort();
    check_journey(dir.path(), &entries);
}

#[test]
fn too_long_keys_and_values_are_refused_without_effect() {
    let fs = Arc::new(MemoryFs::new());
    let keyspace = KeyspaceOptions::new().memtable_bytes(1 << 20);
    let options = Options::new().fs(fs.clone()).clock(Arc::new(ManualClock::new()));
    let db = options.worker_threads(0).keyspace(keyspace).open("db").unwrap();
    db.insert("k", "v").unwrap();
    let (key, value) = (vec![b'k'; KEY_BYTES_MAX + 1], vec![b'v'; VALUE_BYTES_MAX + 1]);
    let before = (fs.operations(), db.stats().last_sequence, db.stats().memory.memtable_bytes);
    let check_key = |outcome: sievedb::Result<()>| {
        let Err(error) = outcome else { panic!("a key that is too long was taken") };
        assert_eq!(
            error.to_string(),
            "a key of 65537 bytes is too long: at most 65536 are allowed"
        );
        let Error::KeyTooLong { bytes, bytes_max } = error else { panic!("{error:?}") };
        assert_eq!((bytes, bytes_max), (KEY_BYTES_MAX + 1, KEY_BYTES_MAX));
    };
    let check_value = |outcome: sievedb::Result<()>| {
        let Err(error) = outcome else { panic!("a value that is too long was taken") };
        let Error::ValueTooLong { bytes, bytes_max } = error else { panic!("{error:?}") };
        assert_eq!((bytes, bytes_max), (VALUE_BYTES_MAX + 1, VALUE_BYTES_MAX));
    };
    check_key(db.insert(&key, "v"));
    check_key(db.remove(&key));
    check_value(db.insert("k", &value));

    // A key that cannot be stored is absent; its lookup is not an error.
    assert_eq!(db.get(&key).unwrap(), None);
    assert!(!db.contains_key(&key).unwrap());
    let below = db.range(..&key[..]).next().unwrap().unwrap();
    assert_eq!(&*below.0, b"k");
    assert!(db.range(&key[..]..).next().is_none());
    assert!(db.prefix(&key).next().is_none());

    let mut batch = db.batch();
    batch.insert(&db, "one", "1").unwrap();
    check_key(batch.insert(&db, &key, "v"));
    check_key(batch.remove(&db, &key));
    check_value(batch.insert(&db, "k", &value));
    batch.insert(&db, "two", "2").unwrap();
    assert_eq!(batch.len(), 2);
    let after = (fs.operations(), db.stats().last_sequence, db.stats().memory.memtable_bytes);
    assert_eq!(after, before, "something was changed");

    batch.commit(Durability::Disk).unwrap();
    let entries: Vec<_> = db.iter().map(|entry| entry.unwrap()).collect();
    let found: Vec<_> = entries.iter().map(|(key, value)| (&**key, &**value)).collect();
    assert_eq!(found, [(&b"k"[..], &b"v"[..]), (b"one", b"1"), (b"two", b"2")]);
}
