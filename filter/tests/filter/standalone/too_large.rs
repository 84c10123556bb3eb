//! A filter that exceeds the memory panics, as documented, instead of aborting the process.

use std::panic::catch_unwind;

use sievedb_filter::standalone::{
    AtomicBloomFilter, BloomFilter, CountMinSketch, CountingBloom, CuckooFilter, PartitionedBloom,
    ScalableBloom, StripedBloomFilter,
};

/// A petabyte and more, beyond any address space, and sizes that overflow.
const CAPACITIES: [u64; 5] = [1 << 54, 1 << 60, u64::MAX / 20 * 19, u64::MAX - 1, u64::MAX];

/// Creates a filter for this number of keys.
type Build = fn(u64);

#[test]
fn filters_larger_than_memory_panic() {
    let structures: [(&str, Build); 8] = [
        ("Bloom", |n| drop(BloomFilter::with_rate(n, 0.01))),
        ("atomic Bloom", |n| drop(AtomicBloomFilter::with_rate(n, 0.01))),
        ("striped Bloom", |n| drop(StripedBloomFilter::with_rate(2, n, 0.01))),
        ("partitioned Bloom", |n| drop(PartitionedBloom::with_rate(n, 0.01))),
        ("counting Bloom", |n| drop(CountingBloom::with_rate(n, 0.01))),
        ("scalable Bloom", |n| drop(ScalableBloom::with_rate(n, 0.01))),
        ("cuckoo", |n| drop(CuckooFilter::with_rate(n, 0.01))),
        ("count-min", |n| drop(CountMinSketch::with_shape(n, 1))),
    ];
    for (name, build) in structures {
        for capacity in CAPACITIES {
            assert!(catch_unwind(|| build(capacity)).is_err(), "{name}, {capacity} keys");
        }
    }
}
