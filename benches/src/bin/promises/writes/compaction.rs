//! Bytes that flushes and compactions write, and what lookups pay for it.

use std::fs;

use sievedb::{Db, Durability, KeyspaceOptions, Options, Result, Stats};
use sievedb_benches::{key, value};
use sievedb_workload::random::Permutation;

use crate::{
    figure::{Figure, Measured},
    scale::{MIB, Scale},
};

/// Memory of the loaded store, in bytes: as much as RocksDB has in the comparison.
const BUDGET_BYTES: u64 = 1229 * MIB;
/// Entries of a batch.
const BATCH_ENTRIES: u64 = 1_000;
/// Bytes of an entry in a memtable: key, value, and about 60 bytes beside them.
const MEMTABLE_ENTRY_BYTES: u64 = 176;
/// Distinct keys of the overwrites, in memtables.
const MEMTABLES: u64 = 100;
/// Lookups of absent keys. Enough for some thousand false positives.
const MISSES: u64 = 1_000_000;

/// Measures a load of new keys with default options, lookups after it, and uniform overwrites.
pub(crate) fn measure(scale: &Scale) -> Measured {
    let mut figures = load_and_look_up(scale)?;
    figures.extend(overwrite(scale)?);
    Ok(figures)
}

fn load_and_look_up(scale: &Scale) -> Measured {
    let entries = scale.pick(5_000_000, 1_000_000);
    let before = bytes_written()?;
    let db = Options::new().memory_budget(BUDGET_BYTES).open(scale.directory.join("load"))?;
    write(&db, &Permutation::new(entries, 1), entries)?;
    let loaded = bytes_written()? - before;
    db.flush()?;
    db.wait_for_background()?;
    let until_idle = bytes_written()? - before;
    let stats = db.stats();
    let background = stats.background;
    let each = |bytes: u64| bytes as f64 / entries as f64;
    let mut figures = vec![
        Figure::new("load: bytes written an entry", "B", each(loaded)),
        Figure::new("load: until idle", "B", each(until_idle)),
        Figure::new("load: in the log", "B", each(stats.writes.bytes)),
        Figure::new("load: by flushes", "B", each(background.flush_bytes_written)),
        Figure::new("load: by compactions", "B", each(background.compaction_bytes_written)),
        Figure::new("load: sorted runs", "", runs(&stats)),
    ];

    let start = db.stats();
    for index in 0..MISSES {
        assert!(db.get(key(entries + index))?.is_none(), "the key is absent");
    }
    let missed = db.stats().since(&start);
    let total = missed.total();
    let counted = total.filter_false_positives as f64;
    let predicted = start.false_positives_planned * MISSES as f64;
    let off = (predicted / counted).max(counted / predicted);
    let per_1000 = |count: u64| count as f64 * 1e3 / MISSES as f64;
    let counted_per_1000 = per_1000(total.filter_false_positives);
    figures.push(Figure::new("misses: false positives of filters per 1,000", "", counted_per_1000));
    figures
        .push(Figure::new("misses: predicted over counted, or the inverse", "x", off).at_most(1.1));
    let requests = per_1000(total.data_block_requests);
    figures.push(Figure::new("misses: data blocks per 1,000", "", requests));

    let start = db.stats();
    let hits = entries.min(200_000);
    let order = Permutation::new(entries, 2);
    for index in (0..hits).map(|at| order.at(at)) {
        assert!(db.get(key(index))?.is_some_and(|found| *found == value(index)), "a key is lost");
    }
    let requests = db.stats().since(&start).total().data_block_requests as f64;
    // One block has the entry.
    let per_1000 = requests * 1e3 / hits as f64;
    figures.push(Figure::new("hits: data blocks per 1,000", "", per_1000).at_most(1_020.0));
    Ok(figures)
}

/// Overwrites keys in random order, with memtables that hold a hundredth of them.
fn overwrite(scale: &Scale) -> Measured {
    let memtable_bytes = scale.pick(4 * MIB, MIB);
    let keys = MEMTABLES * (memtable_bytes / MEMTABLE_ENTRY_BYTES);
    let writes = 3;
    let folder = scale.directory.join("overwrites");
    let keyspace = KeyspaceOptions::new()
        .memtable_bytes(memtable_bytes as usize)
        // The ratio of the defaults.
        .base_level_bytes(4 * memtable_bytes)
        .table_bytes(2 * memtable_bytes);
    let db = Options::new().keyspace(keyspace).open(&folder)?;
    for seed in 0..writes {
        write(&db, &Permutation::new(keys, seed), keys)?;
    }
    db.flush()?;
    db.wait_for_background()?;
    let stats = db.stats();
    let background = stats.background;
    let written = background.flush_bytes_written + background.compaction_bytes_written;
    let amplification = written as f64 / background.flush_bytes_written as f64;
    let of_tables: u64 = stats.levels.iter().map(|level| level.bytes).sum();
    // The last level has each key once.
    let newest = stats.levels.last().map_or(0, |level| level.bytes).max(1);
    Ok(vec![
        Figure::new(
            "overwrites of 100 memtables: bytes written per byte flushed",
            "x",
            amplification,
        )
        .at_most(6.5),
        Figure::new("the same, tables over the last level", "x", of_tables as f64 / newest as f64)
            .at_most(1.6),
        Figure::new("the same, sorted runs", "", runs(&stats)),
    ])
}

/// Writes `entries` entries in batches, in this order.
fn write(db: &Db, order: &Permutation, entries: u64) -> Result<()> {
    for first in (0..entries).step_by(BATCH_ENTRIES as usize) {
        let mut batch = db.batch();
        for index in (first..entries.min(first + BATCH_ENTRIES)).map(|at| order.at(at)) {
            batch.insert(db, key(index), value(index))?;
        }
        batch.commit(Durability::OsBuffer)?;
    }
    Ok(())
}

fn runs(stats: &Stats) -> f64 {
    stats.levels.iter().map(|level| level.runs).sum::<u64>() as f64
}

/// Returns the bytes that the calls of this process have written to files.
fn bytes_written() -> std::io::Result<u64> {
    let counters = fs::read_to_string("/proc/self/io")?;
    let line = counters.lines().find_map(|line| line.strip_prefix("wchar: "));
    line.and_then(|count| count.parse().ok()).ok_or_else(|| std::io::Error::other("no counter"))
}
