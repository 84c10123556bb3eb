//! Bytes that compactions write for each byte flushed.

use std::sync::Arc;

use sievedb::{Durability, Options, fs::MemoryFs};
use sievedb_tests::settings::{from_env, report};

/// As many entries as the crawl of `.ci/promises faults` has.
const ENTRIES: u64 = 2_000_000;
const BATCH_ENTRIES: u64 = 1_000;

/// Writes the entries in batches, in no order, without workers, and returns bytes rewritten per byte
/// flushed.
fn write_amplification(budget_mib: u64) -> f64 {
    let options = Options::new().fs(Arc::new(MemoryFs::with_seed(1))).worker_threads(0);
    let db = options.memory_budget(budget_mib << 20).open("db").unwrap();
    // Odd, so that each number comes once.
    let shuffled = |number: u64| number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for first in (0..ENTRIES).step_by(BATCH_ENTRIES as usize) {
        let mut batch = db.batch();
        for number in first..first + BATCH_ENTRIES {
            let number = shuffled(number);
            let (host, page) = (number >> 48, number & 0xffff_ffff_ffff);
            let url = format!("https://www.host-{host:05}.example/articles/{page:015}.html");
            batch.insert(&db, url, [b'v'; 100]).unwrap();
        }
        batch.commit(Durability::Memory).unwrap();
    }
    db.flush().unwrap();
    let done = db.stats().background;
    let rewritten = done.compaction_bytes_written as f64 / done.flush_bytes_written as f64;
    report(&format!(
        "{budget_mib} MiB: {} flushes, {} compactions, {rewritten:.2} bytes rewritten per byte flushed",
        done.flushes, done.compactions
    ));
    rewritten
}

/// `SIEVE_LONG` measures other budgets, too.
#[test]
fn n14_a_budget_of_32_mib_rewrites_less_than_5_bytes_per_byte_flushed() {
    let measured = write_amplification(32);
    assert!(measured < 5.0, "{measured} bytes rewritten per byte flushed");
    if from_env("SIEVE_LONG", 0) > 0 {
        for budget_mib in [8, 16, 64, 256] {
            write_amplification(budget_mib);
        }
    }
    // Rules out a count that misses compactions.
    assert!(measured > 1.0, "{measured} bytes rewritten per byte flushed");
}
