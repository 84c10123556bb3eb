//! Scans of cached tables in one sorted run and in three: full scans in both directions, and short
//! scans. Times are per scan; criterion also reports entries per second.

use std::hint::black_box;

use criterion::{Criterion, Throughput};
use sievedb::{Db, Durability, Options, Range, Result};
use sievedb_benches::{key, shuffled, value};

/// Half a million: more than the processor's caches hold.
const ENTRIES: u64 = 1 << 19;

const BATCH_ENTRIES: u64 = 1 << 13;

const SHORT_ENTRIES: u64 = 50;

const CACHE_BYTES: u64 = 1 << 30;

/// The stores, with the entries of each run, the oldest first.
const STORES: [(&str, &[u64]); 2] =
    [("one run", &[ENTRIES]), ("three runs", &[ENTRIES - (1 << 16), 1 << 15, 1 << 15])];

fn fill(db: &Db, runs: &[u64]) -> Result<()> {
    let mut next = 0;
    for (run, entries) in runs.iter().enumerate() {
        let end = next + entries;
        while next < end {
            let mut batch = db.batch();
            for index in next..end.min(next + BATCH_ENTRIES) {
                batch.insert(db, key(index), value(index))?;
            }
            next = end.min(next + BATCH_ENTRIES);
            batch.commit(Durability::Memory)?;
        }
        if run == 0 { db.compact()? } else { db.flush()? }
    }
    assert_eq!(db.stats().keyspaces[0].runs, runs.len() as u64);
    // Loads every block into the cache.
    db.iter().try_for_each(|entry| entry.map(drop))
}

/// Reads up to `entries_max` entries. Returns their number.
fn lend(range: &mut Range, back: bool, entries_max: u64) -> Result<u64> {
    let mut entries = 0;
    while entries < entries_max {
        let entry = if back { range.next_back_ref()? } else { range.next_ref()? };
        let Some(entry) = entry else { break };
        black_box((entry.key(), entry.value()));
        entries += 1;
    }
    Ok(entries)
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    for (store, runs) in STORES {
        let dir = tempfile::tempdir().expect("there is a directory for temporary files");
        let options = Options::new().block_cache_bytes(CACHE_BYTES).idle_compactions(false);
        let db = options.open(dir.path()).expect("an empty directory becomes a store");
        fill(&db, runs).expect("the store takes writes");
        let mut next = shuffled(ENTRIES);

        let mut group = criterion.benchmark_group(format!("scan of {store}"));
        group.sample_size(10).throughput(Throughput::Elements(ENTRIES));
        for (name, back) in [("forward", false), ("backward", true)] {
            group.bench_function(name, |bencher| {
                bencher.iter(|| {
                    let entries = lend(&mut db.iter(), back, u64::MAX).expect("the store is open");
                    assert_eq!(entries, ENTRIES);
                });
            });
        }
        group.bench_function("forward, entries kept", |bencher| {
            bencher.iter(|| assert_eq!(db.iter().filter(Result::is_ok).count() as u64, ENTRIES));
        });
        group.bench_function("keys", |bencher| {
            bencher.iter(|| {
                let mut keys = db.iter().keys();
                let mut entries = 0;
                while let Some(key) = keys.next_ref().expect("the store is open") {
                    black_box(key);
                    entries += 1;
                }
                assert_eq!(entries, ENTRIES);
            });
        });
        group.sample_size(100).throughput(Throughput::Elements(SHORT_ENTRIES));
        group.bench_function("short", |bencher| {
            bencher.iter(|| {
                let mut range = db.range(key(next())..);
                lend(&mut range, false, SHORT_ENTRIES).expect("the store is open")
            });
        });
        let mut range = db.iter();
        group.bench_function("short, by a seek", |bencher| {
            bencher.iter(|| {
                range.seek(key(next()));
                lend(&mut range, false, SHORT_ENTRIES).expect("the store is open")
            });
        });
        group.finish();
    }
    criterion.final_summary();
}
