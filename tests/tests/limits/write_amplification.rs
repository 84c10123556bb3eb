//! Write amplification of compactions, and its cost in reads and space.

use std::sync::Arc;

use sievedb::{Db, Durability, Options};
use sievedb_doubles::MemoryFs;
use sievedb_tests::settings::{from_env, report};

/// As many entries as the crawl of `.ci/promises faults`.
const ENTRIES: u64 = 2_000_000;
const BATCH_ENTRIES: u64 = 1_000;
/// Sorted runs that a lookup of an absent key may probe: 7 of level 0, and 6 levels below it.
const RUNS_MAX: u64 = 13;

/// Sorted runs and bytes of tables.
#[derive(Debug, Clone, Copy, Default)]
struct Shape {
    runs: u64,
    bytes: u64,
}

impl Shape {
    fn of(db: &Db) -> Self {
        let keyspace = &db.stats().keyspaces[0];
        Self { runs: keyspace.runs, bytes: keyspace.table_bytes }
    }

    fn max(self, other: Self) -> Self {
        Self { runs: self.runs.max(other.runs), bytes: self.bytes.max(other.bytes) }
    }
}

/// Writes entries with keys below `distinct` in batches, in random order, without workers. Returns
/// bytes rewritten per byte flushed.
fn write_amplification(budget_mib: u64, distinct: u64) -> f64 {
    let options = Options::new().fs(Arc::new(MemoryFs::with_seed(1))).worker_threads(0);
    let db = options.memory_budget(budget_mib << 20).open("db").unwrap();
    // Odd, so that each number occurs once.
    let shuffled = |number: u64| number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut largest = Shape::default();
    for first in (0..ENTRIES).step_by(BATCH_ENTRIES as usize) {
        let mut batch = db.batch();
        for number in first..first + BATCH_ENTRIES {
            let number = shuffled(number % distinct);
            let (host, page) = (number >> 48, number & 0xffff_ffff_ffff);
            let url = format!("https://www.host-{host:05}.example/articles/{page:015}.html");
            batch.insert(&db, url, [b'v'; 100]).unwrap();
        }
        batch.commit(Durability::Memory).unwrap();
        largest = largest.max(Shape::of(&db));
    }
    db.flush().unwrap();
    db.wait_for_background().unwrap();
    let done = db.stats().background;
    let end = Shape::of(&db);
    db.compact().unwrap();
    let space = |shape: Shape| shape.bytes as f64 / Shape::of(&db).bytes as f64;
    let rewritten = done.compaction_bytes_written as f64 / done.flush_bytes_written as f64;
    report(&format!(
        "{budget_mib} MiB, {distinct} keys: {} flushes, {} compactions, {rewritten:.2} bytes \
         rewritten per byte flushed; sorted runs: {} at most, {} at the end; space amplification: \
         {:.2} at most, {:.2} at the end",
        done.flushes,
        done.compactions,
        largest.runs,
        end.runs,
        space(largest),
        space(end)
    ));
    assert!(largest.runs <= RUNS_MAX, "{} sorted runs", largest.runs);
    rewritten
}

/// `SIEVE_LONG` measures other budgets, and entries that are overwritten once.
#[test]
fn n14_budget_of_32_mib_rewrites_less_than_5_bytes_per_byte_flushed() {
    let measured = write_amplification(32, ENTRIES);
    assert!(measured < 5.0, "{measured} bytes rewritten per byte flushed");
    // Detects a count that misses compactions.
    assert!(measured > 1.0, "{measured} bytes rewritten per byte flushed");
    if from_env("SIEVE_LONG", 0) > 0 {
        for budget_mib in [8, 16, 32, 64, 256] {
            write_amplification(budget_mib, ENTRIES);
            write_amplification(budget_mib, ENTRIES / 2);
        }
    }
}
