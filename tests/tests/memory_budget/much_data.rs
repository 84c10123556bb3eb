//! A small budget serves much data: each table uses little memory, and tables are few.

use sievedb::{Db, Durability, Keyspace, Options, stats::MemoryStats};
use sievedb_tests::{rng::Rng, settings};

use crate::{
    MIB,
    counting::{forget_peak, peak_bytes, turn},
    samples::most_bytes_while,
};

/// Memory outside of the budget: counters of threads, and the batch of the test.
const FIXED_BYTES: usize = 64 << 10;
const VALUE_BYTES: usize = 100;
/// A writer that outruns compactions makes them merge more runs at once, into smaller tables.
const ENTRIES_BETWEEN_WAITS: u64 = 50_000;

/// Writes entries of 116 bytes, and waits for compactions now and then.
fn write(db: &Db, keyspace: &Keyspace, entries: u64) {
    let mut rng = Rng::new(settings::seed("much data", 4));
    let mut value = [0; VALUE_BYTES];
    let mut batch = db.batch();
    for number in 1..=entries {
        value.chunks_mut(4).for_each(|word| word[0] = rng.below(256) as u8);
        let key = u128::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
        batch.insert(keyspace, key.to_be_bytes(), value).unwrap();
        if number % 100 == 0 {
            batch.commit(Durability::Memory).unwrap();
        }
        if number % ENTRIES_BETWEEN_WAITS == 0 {
            db.wait_for_background().unwrap();
        }
    }
    batch.commit(Durability::Memory).unwrap();
}

/// Writes `entries` to a store with this budget, merges and reads them. Checks the entries per
/// table and the resident bytes per table.
fn hold(budget: usize, entries: u64, entries_of_table_min: u64, resident_of_table_max: u64) {
    let dir = tempfile::tempdir().unwrap();
    let before = forget_peak();
    let options = Options::new().memory_budget(budget as u64);
    // With small filters, unused filter memory cannot hide an excess.
    let db = options.filter_bytes_max(budget as u64 / 16).open(dir.path()).unwrap();
    let keyspace = db.keyspace("data").unwrap();
    let resident_bytes = |memory: &MemoryStats| memory.index_bytes + memory.bookkeeping_bytes;
    let without_tables = resident_bytes(&db.stats().memory);
    let check = |what: &str, sampled: usize| {
        // A compaction pins the tables that it replaces.
        db.wait_for_background().unwrap();
        let stats = db.stats();
        let peak = peak_bytes().max(sampled) - before;
        let memory = &stats.memory;
        let tables = stats.keyspaces[0].tables;
        let of_table = entries / tables;
        let resident = resident_bytes(memory) - without_tables;
        println!(
            "{} MiB, {what}: {peak} bytes; {tables} tables of {of_table} entries; {memory:?}",
            budget / MIB
        );
        assert!(peak <= budget + FIXED_BYTES, "{what}: {peak} bytes at the most");
        assert!(of_table >= entries_of_table_min, "{what}: {tables} tables");
        assert!(
            resident < tables * resident_of_table_max,
            "{what}: {resident} bytes of {tables} tables"
        );
    };
    let sampled = most_bytes_while(&db, || write(&db, &keyspace, entries));
    check("written", sampled);
    keyspace.compact().unwrap();
    forget_peak();
    let mut found = 0;
    let sampled = most_bytes_while(&db, || {
        for entry in keyspace.iter().read_ahead_bytes_max(0) {
            found += u64::from(entry.unwrap().1.len() == VALUE_BYTES);
        }
    });
    assert_eq!(found, entries);
    check("merged and read", sampled);
}

/// With its two workers, the smallest budget serves 12 times its size, and 48 times in the long
/// form.
#[test]
fn smallest_budget_serves_much_data() {
    let _turn = turn();
    if std::env::var_os("SIEVE_LONG").is_none() {
        return hold(8 * MIB, 870_000, 7_000, 8_000);
    }
    let cases = [
        (8, 7_000, 8_000),
        (12, 13_000, 9_000),
        (16, 18_000, 10_000),
        (24, 27_000, 12_000),
        (64, 60_000, 30_000),
    ];
    for (budget_mib, entries_of_table_min, resident_of_table_max) in cases {
        hold(budget_mib * MIB, 3_470_000, entries_of_table_min, resident_of_table_max);
    }
}

/// Tables of the smallest budget have 12,000 entries while they are few. From 256 tables on they
/// grow, so that memory does not grow with the data.
#[test]
fn many_entries_make_larger_tables() {
    const ENTRIES: u64 = 4_000_000;
    let _turn = turn();
    let dir = tempfile::tempdir().unwrap();
    let before = forget_peak();
    let db = Options::new().memory_budget(8 * MIB as u64).open(dir.path()).unwrap();
    let keyspace = db.keyspace("data").unwrap();
    let key = |number: u64| number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
    let sampled = most_bytes_while(&db, || {
        let mut batch = db.batch();
        for number in 1..=ENTRIES {
            batch.insert(&keyspace, key(number), b"value").unwrap();
            if number % 100 == 0 {
                batch.commit(Durability::Memory).unwrap();
            }
        }
        keyspace.compact().unwrap();
    });
    let tables = db.stats().keyspaces[0].tables;
    let peak = peak_bytes().max(sampled) - before;
    println!("{tables} tables, {peak} bytes");
    assert!(tables <= 100, "{tables} tables");
    assert!(peak <= 8 * MIB + FIXED_BYTES, "{peak} bytes at the most");
    for number in (1..=ENTRIES).step_by(10_007) {
        assert_eq!(keyspace.get(key(number)).unwrap().unwrap(), b"value"[..], "entry {number}");
    }
}
