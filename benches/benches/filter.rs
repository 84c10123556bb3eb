//! Filters: builds and probes of each structure, inside and outside the processor's caches.
//!
//! For a comparison with other crates: `cargo run --release -p sievedb-benches --bin filters`.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput};
use sievedb_benches::{key, shuffled};
use sievedb_filter::{
    AtomicBlockedBloom, BinaryFuse8, BinaryFuse16, BlockedBloom, InsertFilter, RangeFilter, Ribbon,
    key_hash,
    range_filter::Points,
    standalone::{
        AtomicBloomFilter, BloomFilter, CountMinSketch, CountingBloom, CuckooFilter,
        PartitionedBloom, ScalableBloom, StripedBloomFilter,
    },
};

/// Keys: filters of some kilobytes, of the size of a core's cache, and beyond all caches.
const KEYS: [u64; 3] = [10_000, 1_000_000, 10_000_000];

/// Probes of one measurement.
const ASKED: u64 = 1 << 16;

/// Counts the keys that may match a filter.
type Ask = Box<dyn Fn(&[u64]) -> usize>;

/// Builds a filter over hashes.
type Build = fn(&[u64]) -> Ask;

/// The filter of an [`Ask`].
macro_rules! asking {
    ($filter:expr) => {{
        let filter = $filter;
        Box::new(move |asked: &[u64]| {
            asked.iter().filter(|&&hash| filter.may_contain_hash(hash)).count()
        })
    }};
}

/// The filter of an [`Ask`], filled key by key.
macro_rules! filled {
    ($structure:ident, $hashes:expr) => {
        asking!(fill($structure::with_rate($hashes.len() as u64, 0.01), $hashes))
    };
}

/// Structures with a rate of about 1 %, or the closest setting, by name.
const STRUCTURES: [(&str, Build); 12] = [
    ("BlockedBloom", |hashes| asking!(BlockedBloom::build(hashes, 10.0))),
    ("Ribbon", |hashes| asking!(Ribbon::build(hashes, 7.0))),
    ("BinaryFuse8", |hashes| asking!(BinaryFuse8::build(hashes))),
    ("BinaryFuse16", |hashes| asking!(BinaryFuse16::build(hashes))),
    ("BloomFilter", |hashes| filled!(BloomFilter, hashes)),
    ("AtomicBloomFilter", |hashes| filled!(AtomicBloomFilter, hashes)),
    ("StripedBloomFilter, 2 stripes", |hashes| {
        asking!(fill(StripedBloomFilter::with_rate(2, hashes.len() as u64, 0.01), hashes))
    }),
    ("PartitionedBloom", |hashes| filled!(PartitionedBloom, hashes)),
    ("CountingBloom", |hashes| filled!(CountingBloom, hashes)),
    ("ScalableBloom", |hashes| filled!(ScalableBloom, hashes)),
    ("CuckooFilter", |hashes| filled!(CuckooFilter, hashes)),
    // Two counters for each key in each of five rows: a rate of 0.94 %.
    ("CountMinSketch", |hashes| {
        asking!(fill(CountMinSketch::with_shape(hashes.len() as u64 * 2, 5), hashes))
    }),
];

fn fill<F: InsertFilter>(mut filter: F, hashes: &[u64]) -> F {
    for &hash in hashes {
        filter.try_insert_hash(hash).expect("there is room for as many as were announced");
    }
    filter
}

/// Hashes of `count` keys, from key number `first` on.
fn hashes(first: u64, count: u64) -> Vec<u64> {
    (first..first + count).map(|index| key_hash(&key(index), 0)).collect()
}

/// Set sizes. Test mode, which runs everything once, uses only the smallest.
fn keys() -> &'static [u64] {
    let tests = std::env::args().any(|argument| argument == "--test");
    if tests { &KEYS[..1] } else { &KEYS }
}

fn build_and_query(criterion: &mut Criterion) {
    for &keys in keys() {
        let stored = hashes(0, keys);
        let absent = hashes(keys, ASKED);
        let mut next = shuffled(ASKED);
        let present: Vec<u64> =
            (0..ASKED).map(|_| stored[(absent[next() as usize] % keys) as usize]).collect();
        for (name, build) in STRUCTURES {
            let mut group = criterion.benchmark_group("filter/build");
            group.throughput(Throughput::Elements(keys)).sample_size(10);
            group.bench_function(BenchmarkId::new(name, keys), |bencher| {
                bencher.iter(|| build(black_box(&stored)));
            });
            group.finish();

            let count = build(&stored);
            for (asked, hashes) in [("absent", &absent), ("present", &present)] {
                let mut group = criterion.benchmark_group(format!("filter/query {asked}"));
                group.throughput(Throughput::Elements(ASKED)).sample_size(20);
                group.bench_function(BenchmarkId::new(name, keys), |bencher| {
                    bencher.iter(|| count(black_box(hashes)));
                });
                group.finish();
            }
        }
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

/// Empty ranges of 16 points at 12.6 bits per key: a rate of 1 %.
fn ranges(criterion: &mut Criterion) {
    for &keys in keys() {
        let mut points = hashes(0, keys);
        points.sort_unstable();
        let points = Points::new(points);
        let build = || RangeFilter::build(points.clone(), 12.6, 7);
        let mut group = criterion.benchmark_group("filter/build");
        group.throughput(Throughput::Elements(keys)).sample_size(10);
        group.bench_function(BenchmarkId::new("RangeFilter", keys), |bencher| bencher.iter(build));
        group.finish();

        let (filter, asked) = (build(), hashes(keys, ASKED));
        let mut group = criterion.benchmark_group("filter/query range");
        group.throughput(Throughput::Elements(ASKED)).sample_size(20);
        group.bench_function(BenchmarkId::new("RangeFilter", keys), |bencher| {
            let is_maybe =
                |first: &&u64| filter.may_contain_range(**first, first.saturating_add(15));
            bencher.iter(|| black_box(&asked).iter().filter(is_maybe).count());
        });
        group.finish();
    }
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    build_and_query(&mut criterion);
    insert(&mut criterion);
    ranges(&mut criterion);
    criterion.final_summary();
}
