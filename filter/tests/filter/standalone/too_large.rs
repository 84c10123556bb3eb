//! A filter that no memory can hold panics, as documented, and does not end the process.

use std::panic::catch_unwind;

use sievedb_filter::standalone::{
    AtomicBloomFilter, BloomFilter, CountMinSketch, CountingBloom, CuckooFilter, PartitionedBloom,
    ScalableBloom, StripedBloomFilter,
};

/// A petabyte and more, which no process can address, and what no integer counts.
const CAPACITIES: [u64; 5] = [1 << 54, 1 << 60, u64::MAX / 20 * 19, u64::MAX - 1, u64::MAX];

/// Makes a filter for so many keys.
type Build = fn(u64);

#[test]
fn filters_that_fit_no_memory_panic() {
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
