//! Filters: building one, and asking it, in and out of the processor's caches.

use std::hint::black_box;

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput};
use sievedb_benches::{key, shuffled};
use sievedb_filter::{AtomicBlockedBloom, BlockedBloom, key_hash};

const BITS_PER_KEY: f64 = 10.0;

/// Hashes of `count` keys, from key number `first` on.
fn hashes(first: u64, count: u64) -> Vec<u64> {
    (first..first + count).map(|index| key_hash(&key(index), 0)).collect()
}

fn build(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("filter/build");
    for keys in [10_000, 1_000_000] {
        let hashes = hashes(0, keys);
        group.throughput(Throughput::Elements(keys));
        group.sample_size(20);
        group.bench_function(BenchmarkId::new("blocked Bloom", keys), |bencher| {
            bencher.iter(|| BlockedBloom::build(black_box(&hashes), BITS_PER_KEY));
        });
    }
}

fn query(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("filter/query absent");
    // 20 KiB, and 5 MiB of filter.
    for keys in [1 << 14, 1 << 22] {
        let filter = BlockedBloom::build(&hashes(0, keys), BITS_PER_KEY);
        let absent = hashes(keys, 1 << 16);
        let mut next = shuffled(1 << 16);
        group.bench_function(BenchmarkId::new("blocked Bloom", keys), |bencher| {
            bencher.iter_batched(
                || absent[next() as usize],
                |hash| filter.may_contain_hash(hash),
                BatchSize::SmallInput,
            );
        });
    }
}

fn insert(criterion: &mut Criterion) {
    let filter = AtomicBlockedBloom::with_bytes(512 << 10, 6);
    let hashes = hashes(0, 1 << 16);
    let mut next = shuffled(1 << 16);
    criterion.bench_function("filter/insert, atomic blocked Bloom", |bencher| {
        bencher.iter(|| filter.insert_hash(hashes[next() as usize]));
    });
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    build(&mut criterion);
    query(&mut criterion);
    insert(&mut criterion);
    criterion.final_summary();
}
