//! Resident memory of a process compared with the budget of its store.

use std::{env, ops::Range, path::Path};

use sievedb::{Db, Durability, Options};

use super::{DIR_VARIABLE, MIB, other_process, resident_bytes};

const BUDGET_VARIABLE: &str = "SIEVE_RESIDENT_BUDGET_MIB";
const LOAD_VARIABLE: &str = "SIEVE_RESIDENT_LOAD";
/// Additional bytes for allocator and stacks.
const ALLOWANCE: u64 = 8 * MIB;
/// Bytes of all entries per byte of the budget: enough for compactions of several levels.
const BYTES_PER_BUDGET: u64 = 3;
const VALUE: [u8; 100] = [b'v'; 100];
/// Entries of a batch, and between two measurements.
const GROUP_ENTRIES: u64 = 500;
const BATCHES: &str = "in batches";

/// Returns a URL-like key, in random order.
fn key(number: u64) -> Vec<u8> {
    let spread = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    format!("https://www.example.com/{:05}/{spread:016x}.html", spread >> 48).into_bytes()
}

fn one_by_one(db: &Db, numbers: Range<u64>) {
    for number in numbers {
        db.insert(key(number), VALUE).unwrap();
    }
}

fn in_a_batch(db: &Db, numbers: Range<u64>) {
    let keys: Vec<_> = numbers.map(key).collect();
    let present = db.contains_many(&keys).unwrap();
    assert!(!present.contains(&true));
    let mut batch = db.batch();
    for key in keys {
        batch.insert(db, key, VALUE).unwrap();
    }
    batch.commit(Durability::OsBuffer).unwrap();
}

/// Runs in a separate process.
#[test]
fn writer() {
    let Some(dir) = env::var_os(DIR_VARIABLE) else { return };
    let Ok(load) = env::var(LOAD_VARIABLE) else { return };
    let budget = env::var(BUDGET_VARIABLE).unwrap().parse::<u64>().unwrap() * MIB;
    let db = Options::new().memory_budget(budget).open(Path::new(&dir)).unwrap();
    let groups = BYTES_PER_BUDGET * budget / (key(0).len() + VALUE.len()) as u64 / GROUP_ENTRIES;
    let write = if load == BATCHES { in_a_batch } else { one_by_one };
    let mut resident_max = 0;
    for group in 0..groups {
        write(&db, group * GROUP_ENTRIES..(group + 1) * GROUP_ENTRIES);
        // Without pages of the program itself, which are large in a test.
        resident_max = resident_max.max(resident_bytes("RssAnon:"));
    }
    eprintln!(
        "{} KiB are resident at most, {load}, budget {} MiB",
        resident_max >> 10,
        budget / MIB
    );
    assert!(resident_max <= budget + ALLOWANCE, "{resident_max} bytes are resident");
}

#[test]
fn n9_resident_memory_stays_within_the_budget_and_8_mib() {
    for budget_mib in ["32", "64"] {
        for load in ["one by one", BATCHES] {
            let dir = tempfile::tempdir().unwrap();
            let mut writer = other_process("processes::resident::writer");
            writer.env(DIR_VARIABLE, dir.path());
            writer.env(BUDGET_VARIABLE, budget_mib).env(LOAD_VARIABLE, load);
            assert!(writer.status().unwrap().success(), "{load}, {budget_mib} MiB");
        }
    }
}
