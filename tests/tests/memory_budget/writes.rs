//! Writes that exceed the budget.

use std::sync::Arc;

use sievedb::{Batch, Db, Durability, Error, Keyspace, Options};
use sievedb_doubles::MemoryFs;
use sievedb_tests::{rng::Rng, settings};

use crate::{
    MIB,
    counting::{forget_peak, peak_bytes, turn},
    samples::most_bytes_while,
};

#[test]
fn write_that_never_fits_is_refused() {
    let _turn = turn();
    let options = Options::new().fs(Arc::new(MemoryFs::new())).worker_threads(0);
    let db = options.memory_budget(8 << 20).open("db").unwrap();
    let before = db.stats().last_sequence;
    let large = vec![1; 2 * MIB];
    match db.insert("key", &large) {
        Err(Error::WriteTooLarge { bytes, bytes_max }) => {
            assert!(bytes > large.len() as u64);
            assert_eq!(bytes_max, 3 << 19, "three quarters of 2 MiB");
        }
        other => panic!("{other:?}"),
    }
    let mut batch = db.batch();
    assert_eq!(batch.bytes(), 0);
    for key in 0..20_u8 {
        batch.insert(&db, [key], vec![key; 100_000]).unwrap();
    }
    match batch.commit(Durability::OsBuffer) {
        Err(error @ Error::WriteTooLarge { bytes, .. }) => {
            assert_eq!(bytes, batch.bytes());
            let text = error.to_string();
            assert!(text.contains("1.5 MiB (1572864)"), "{text}");
            assert!(text.contains("Options::memtable_bytes_max"), "{text}");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(db.stats().last_sequence, before);
    assert!(db.iter().next().is_none());
    // A write that fits after a flush waits for it.
    for key in 0..10_u8 {
        db.insert([key], vec![key; 100_000]).unwrap();
    }
    db.insert("key", &large[..MIB]).unwrap();
    assert!(db.stats().background.flushes > 0);
    // It fits a larger budget.
    db.set_memory_budget(64 << 20).unwrap();
    db.insert("key", &large).unwrap();
    assert_eq!(db.get("key").unwrap().unwrap(), large);
}

#[test]
fn write_that_nearly_fits_completes() {
    let _turn = turn();
    let options = Options::new().fs(Arc::new(MemoryFs::new())).worker_threads(0);
    let db = options.memory_budget(8 << 20).open("db").unwrap();
    let (mut stored, mut refused) = (0, 0);
    for short_bytes in (0..30_000).step_by(100) {
        let value = vec![1; (3 << 19) - short_bytes];
        match db.insert("key", &value) {
            Ok(()) => stored += 1,
            Err(Error::WriteTooLarge { bytes, bytes_max }) => {
                assert!(bytes > bytes_max, "{bytes} of {bytes_max}");
                assert_eq!(stored, 0, "a longer one was stored");
                refused += 1;
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert!(stored > 0 && refused > 0, "{stored} stored, {refused} refused");
}

/// Copies of a value in blocks of several runs and in the output are more than the budget.
#[test]
fn entries_of_a_quarter_of_the_budget_are_merged_within_it() {
    const BUDGET: usize = 8 * MIB;
    const VALUE_BYTES: usize = BUDGET / 4;
    const KEYS: usize = 8;

    let _turn = turn();
    let dir = tempfile::tempdir().unwrap();
    let mut rng = Rng::new(settings::seed("long entries", 4));
    let before = forget_peak();
    let options = Options::new().memory_budget(BUDGET as u64).filter_bytes_max(64 << 10);
    let db = options.memtable_bytes_max(3 << 20).open(dir.path()).unwrap();
    let mut value = vec![0; VALUE_BYTES];
    let mut newest = [None; KEYS];
    let sampled = most_bytes_while(&db, || {
        for _ in 0..4 * KEYS {
            let (key, byte) = (rng.below(KEYS), rng.below(256) as u8);
            // Incompressible.
            value.iter_mut().for_each(|byte| *byte = rng.below(256) as u8);
            value[0] = byte;
            db.insert(key.to_be_bytes(), &value).unwrap();
            newest[key] = Some(byte);
        }
        db.compact().unwrap();
    });
    // The value, and the encoded write.
    let callers = 2 * VALUE_BYTES + (64 << 10);
    let most = peak_bytes().max(sampled) - before;
    println!("{most} bytes, {callers} of callers");
    assert!(most <= BUDGET + callers, "{most} bytes at the most");
    for (key, byte) in newest.into_iter().enumerate() {
        let found = db.get_with(key.to_be_bytes(), |found| found[0]).unwrap();
        assert_eq!(found, byte, "key {key}");
    }
}

/// Opens a store with a limit of 2 MiB for memtables. Returns a batch of two writes to its keyspace
/// "users", one of `value_bytes` bytes.
fn with_long_batch(value_bytes: usize) -> (Db, Keyspace, Batch) {
    let options = Options::new().fs(Arc::new(MemoryFs::new())).worker_threads(0);
    let db = options.memory_budget(8 << 20).open("db").unwrap();
    let users = db.keyspace("users").unwrap();
    users.insert("gone", "").unwrap();
    let mut batch = db.batch();
    batch.insert(&users, "long", vec![7; value_bytes]).unwrap();
    batch.remove(&users, "gone").unwrap();
    (db, users, batch)
}

/// Empty memtables take none of the limit.
#[test]
fn batch_of_three_quarters_of_the_limit_is_committed() {
    let _turn = turn();
    let limit = 3 << 19;
    let beside = with_long_batch(MIB).2.bytes() as usize - MIB;
    // Entries are aligned.
    let fits = |value_bytes: &usize| with_long_batch(*value_bytes).2.bytes() <= limit;
    let most = limit as usize - beside;
    let value_bytes = (most - 16..=most).rev().find(fits).unwrap();
    let (_db, users, mut batch) = with_long_batch(value_bytes);
    assert!(batch.bytes() + 16 > limit, "{} bytes", batch.bytes());
    batch.commit(Durability::OsBuffer).unwrap();
    assert!(users.contains_key("long").unwrap());
}

#[test]
fn refused_batch_is_unchanged() {
    let _turn = turn();
    let value_bytes = 2 * MIB;
    let (db, users, mut batch) = with_long_batch(value_bytes);
    let (len, bytes) = (batch.len(), batch.bytes());
    for _ in 0..2 {
        let refused = batch.commit(Durability::OsBuffer);
        assert!(matches!(refused, Err(Error::WriteTooLarge { .. })), "{refused:?}");
        assert_eq!((batch.len(), batch.bytes()), (len, bytes));
    }
    // Enough entries that their number takes two bytes in the log.
    for key in 0..200_u8 {
        batch.insert(&db, [key], [key; 3]).unwrap();
    }
    assert!(batch.bytes() > bytes);
    db.set_memory_budget(64 << 20).unwrap();
    batch.commit(Durability::OsBuffer).unwrap();
    assert_eq!((batch.len(), batch.bytes()), (0, 0));
    // A refused batch can be extended.
    batch.insert(&db, "again", "").unwrap();
    batch.commit(Durability::OsBuffer).unwrap();
    assert_eq!(users.get("long").unwrap().unwrap(), vec![7; value_bytes]);
    assert!(!users.contains_key("gone").unwrap() && db.contains_key("again").unwrap());
    for key in 0..200_u8 {
        assert_eq!(db.get([key]).unwrap().as_deref(), Some(&[key; 3][..]));
    }
    drop((users, batch));
    db.close().unwrap();
}

/// The limit of memtables includes the charge of a batch before it is applied.
#[test]
fn batch_reports_its_memory() {
    let _turn = turn();
    let options = Options::new().fs(Arc::new(MemoryFs::new())).worker_threads(0);
    let db = options.open("db").unwrap();
    let users = db.keyspace("users").unwrap();
    for keyspace in [db.default_keyspace(), &users] {
        // Creates its memtable, whose filter is not charged to a batch.
        keyspace.insert("", "").unwrap();
    }
    for (name, entries, value_bytes) in
        [("one", 1, 10), ("many short ones", 10_000, 0), ("some long ones", 20, 50_000)]
    {
        let before = db.stats().memory.memtable_bytes;
        let mut batch = db.batch();
        for key in 0..entries {
            let keyspace = if key % 2 == 0 { db.default_keyspace() } else { &users };
            batch.insert(keyspace, format!("{name}{key}"), vec![1; value_bytes]).unwrap();
        }
        let bytes = batch.bytes();
        assert!(bytes > entries * value_bytes as u64, "{name}: {bytes}");
        batch.commit(Durability::Memory).unwrap();
        let taken = db.stats().memory.memtable_bytes - before;
        assert!(taken <= bytes && bytes < 2 * taken + 4096, "{name}: {taken} of {bytes}");
    }
}
