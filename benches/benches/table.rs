//! Tables: writes, and lookups that pass the filter, with and without the block cache.

use std::{io, sync::Arc};

use bytes::Bytes;
use criterion::{BatchSize, Criterion, Throughput};
use sievedb_benches::{KEY_BYTES, VALUE_BYTES, key, shuffled, value};
use sievedb_format::{InternalKey, Kind, SEQUENCE_MAX, Trailer};
use sievedb_sstable::{
    BlockCache, BlockCounts, Table, TableIdentity, options::TableOptions, writer::TableWriter,
};

const ENTRIES: u64 = 1 << 16;

const IDENTITY: TableIdentity = TableIdentity { store_id: 1, file_id: 2, salt: 3, hash_seed: 0 };

/// Opens a table of `entries`, written to memory.
fn table(entries: &[(u64, [u8; KEY_BYTES])], cache_bytes: u64) -> Table {
    let (bytes, summary) = write(entries).expect("a vector takes every table");
    let source = Arc::new(Bytes::from(bytes));
    let cache = Arc::new(BlockCache::new(cache_bytes));
    Table::open(source, IDENTITY, summary.bytes, cache).expect("the table was just written")
}

fn write(
    entries: &[(u64, [u8; KEY_BYTES])],
) -> io::Result<(Vec<u8>, sievedb_sstable::TableSummary)> {
    let mut writer = TableWriter::new(Vec::new(), IDENTITY, TableOptions::default())?;
    for (index, key) in entries {
        let key = InternalKey::new(key, Trailer::new(index + 1, Kind::Put));
        writer.add(key, &value(*index))?;
    }
    writer.finish()
}

fn get(table: &Table, key: &[u8]) -> Option<Bytes> {
    let found = table.get(key, SEQUENCE_MAX, &mut BlockCounts::default());
    found.expect("memory can be read").map(|(_, value)| value)
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    let mut entries: Vec<_> = (0..ENTRIES).map(|index| (index, key(index))).collect();
    entries.sort_unstable_by_key(|&(_, key)| key);

    let mut group = criterion.benchmark_group("table");
    group.sample_size(20);
    group.throughput(Throughput::Bytes(ENTRIES * (KEY_BYTES + VALUE_BYTES) as u64));
    group.bench_function("write 65,536 entries", |bencher| bencher.iter(|| write(&entries)));
    group.finish();

    let mut next = shuffled(ENTRIES);
    for (name, cache_bytes) in [("cached", 64 << 20), ("not cached", 0)] {
        let table = table(&entries, cache_bytes);
        criterion.bench_function(&format!("table/get present, {name}"), |bencher| {
            bencher.iter_batched(
                || key(next()),
                |key| get(&table, &key).expect("the key was written"),
                BatchSize::SmallInput,
            );
        });
        criterion.bench_function(&format!("table/get absent past the filter, {name}"), |bencher| {
            bencher.iter_batched(
                || key(ENTRIES + next()),
                |key| assert_eq!(get(&table, &key), None),
                BatchSize::SmallInput,
            );
        });
    }
    criterion.final_summary();
}
