//! The whole engine over several sorted runs in the block cache: present and absent keys, scans and
//! writes.

use criterion::{BatchSize, Criterion};
use sievedb::{Db, Durability, Options, Result};
use sievedb_benches::{key, shuffled, value};

/// Two million: more than the processor's caches hold.
const ENTRIES: u64 = 1 << 21;

/// Entries in each of the two runs on level 0.
const FLUSHED: u64 = 1 << 16;

const BATCH_ENTRIES: u64 = 1 << 13;

const CACHE_BYTES: u64 = 1 << 30;

/// Three sorted runs: most entries below, two flushes above.
fn fill(db: &Db) -> Result<()> {
    let below = ENTRIES - 2 * FLUSHED;
    for first in (0..ENTRIES).step_by(BATCH_ENTRIES as usize) {
        let mut batch = db.batch();
        for index in first..first + BATCH_ENTRIES {
            batch.insert(db, key(index), value(index))?;
        }
        batch.commit(Durability::Memory)?;
        match first + BATCH_ENTRIES {
            end if end == below => db.compact()?,
            end if end > below && end.is_multiple_of(FLUSHED) => db.flush()?,
            _ => {}
        }
    }
    assert_eq!(db.stats().keyspaces[0].runs, 3);
    // Loads every block into the cache.
    db.iter().try_for_each(|entry| entry.map(drop))
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    let dir = tempfile::tempdir().expect("there is a directory for temporary files");
    let options = Options::new().block_cache_bytes(CACHE_BYTES);
    let db = options.open(dir.path()).expect("an empty directory becomes a store");
    fill(&db).expect("the store takes writes");

    let mut next = shuffled(ENTRIES);
    criterion.bench_function("engine/get present", |bencher| {
        bencher.iter_batched(
            || key(next()),
            |key| db.get(key).expect("the store is open").expect("the key was stored"),
            BatchSize::SmallInput,
        );
    });
    criterion.bench_function("engine/get absent", |bencher| {
        bencher.iter_batched(
            || key(ENTRIES + next()),
            |key| assert_eq!(db.get(key).expect("the store is open"), None),
            BatchSize::SmallInput,
        );
    });
    criterion.bench_function("engine/contains_key absent", |bencher| {
        bencher.iter_batched(
            || key(ENTRIES + next()),
            |key| assert!(!db.contains_key(key).expect("the store is open")),
            BatchSize::SmallInput,
        );
    });
    for (name, first, in_order) in
        [("absent", ENTRIES, false), ("absent, in order", ENTRIES, true), ("present", 0, false)]
    {
        criterion.bench_function(&format!("engine/contains_many of 1,000, {name}"), |bencher| {
            bencher.iter_batched(
                || {
                    let mut keys: Vec<_> = (0..1000).map(|_| key(first + next())).collect();
                    if in_order {
                        keys.sort_unstable();
                    }
                    keys
                },
                |keys| {
                    let found = db.contains_many(keys).expect("the store is open");
                    assert!(found.iter().all(|found| *found == (first == 0)));
                },
                BatchSize::LargeInput,
            );
        });
    }
    criterion.bench_function("engine/scan 100 entries", |bencher| {
        bencher.iter_batched(
            || key(next()),
            |key| db.range(key..).take(100).filter(Result::is_ok).count(),
            BatchSize::SmallInput,
        );
    });
    for (name, durability) in [("memory", Durability::Memory), ("os buffer", Durability::OsBuffer)]
    {
        criterion.bench_function(&format!("engine/write one entry, {name}"), |bencher| {
            bencher.iter_batched(
                &mut next,
                |index| {
                    let mut batch = db.batch();
                    batch.insert(&db, key(index), value(index))?;
                    batch.commit(durability)
                },
                BatchSize::SmallInput,
            );
        });
    }
    criterion.final_summary();
}
