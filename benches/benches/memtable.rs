//! The memtable: inserts, lookups of present and absent keys, and its list versus another one.

#[path = "memtable/lists.rs"]
mod lists;

use std::ops::Range;

use bytes::Bytes;
use criterion::{BatchSize, Criterion};
use sievedb_benches::{key, shuffled, value};
use sievedb_filter::key_hash;
use sievedb_format::{Kind, SEQUENCE_MAX, Trailer};
use sievedb_memtable::Memtable;

const ENTRIES: u64 = 1 << 17;

fn insert(memtable: &Memtable, index: u64) {
    let key = key(index);
    memtable.insert(key_hash(&key, 0), &key, trailer(index), &value(index));
}

fn insert_all(memtable: &Memtable, indexes: Range<u64>) {
    let entries: Vec<_> = indexes.map(|index| (key(index), value(index), trailer(index))).collect();
    memtable.insert_all(
        entries
            .iter()
            .map(|(key, value, trailer)| (key_hash(key, 0), &key[..], *trailer, &value[..])),
    );
}

fn trailer(index: u64) -> Trailer {
    Trailer::new(index + 1, Kind::Put)
}

fn filled(entries: u64) -> Memtable {
    let memtable = Memtable::new(32 << 20);
    (0..entries).for_each(|index| insert(&memtable, index));
    memtable
}

/// Probes the filter first, like the engine.
fn get(memtable: &Memtable, key: &[u8]) -> Option<Bytes> {
    let found = memtable.may_contain_hash(key_hash(key, 0));
    found.then(|| memtable.get(key, SEQUENCE_MAX)).flatten().map(|(_, value)| value)
}

fn main() {
    lists::report_memory();
    let mut criterion = Criterion::default().configure_from_args();
    criterion.bench_function("memtable/insert 1000 into 10,000", |bencher| {
        bencher.iter_batched_ref(
            || filled(10_000),
            |memtable| (10_000..11_000).for_each(|index| insert(memtable, index)),
            BatchSize::LargeInput,
        );
    });

    criterion.bench_function("memtable/insert 1000 together into 10,000", |bencher| {
        bencher.iter_batched_ref(
            || filled(10_000),
            |memtable| insert_all(memtable, 10_000..11_000),
            BatchSize::LargeInput,
        );
    });

    let memtable = filled(ENTRIES);
    let mut next = shuffled(ENTRIES);
    criterion.bench_function("memtable/get present", |bencher| {
        bencher.iter_batched(
            || key(next()),
            |key| get(&memtable, &key).expect("the key was inserted"),
            BatchSize::SmallInput,
        );
    });
    criterion.bench_function("memtable/get absent", |bencher| {
        bencher.iter_batched(
            || key(ENTRIES + next()),
            |key| assert_eq!(get(&memtable, &key), None),
            BatchSize::SmallInput,
        );
    });
    lists::compare(&mut criterion);
    criterion.final_summary();
}
