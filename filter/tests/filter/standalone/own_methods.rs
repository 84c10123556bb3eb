//! Inherent methods, without imported traits or a named hasher type.

use std::collections::hash_map::RandomState;

use sievedb_filter::standalone::{
    AtomicBloomFilter, BloomFilter, CountMinSketch, CountingBloom, CuckooFilter, PartitionedBloom,
    ScalableBloom, StripedBloomFilter,
};

/// Saves a filter over the key `ant` and loads it, with the default hasher and another.
macro_rules! is_saved {
    ($($Structure:ident: $filter:expr, $with_hasher:expr;)*) => {$({
        let mut filter = $filter;
        let _ = filter.insert("ant");
        let mut file = Vec::new();
        filter.save(&mut file).expect("a list accepts all bytes");
        assert_eq!(file, filter.to_bytes());
        for read in [$Structure::from_bytes(&file).unwrap(), $Structure::load(&file[..]).unwrap()] {
            assert!(read.may_contain("ant"));
            assert_eq!(read.memory_bytes(), filter.memory_bytes());
            assert_eq!(read.expected_fpr(), filter.expected_fpr());
            assert_eq!(read.stats(), filter.stats());
        }

        let hasher = RandomState::new();
        let mut filter = $with_hasher(hasher.clone());
        let _ = filter.insert("ant");
        let file = filter.to_bytes();
        let read = $Structure::from_bytes_with_hasher(&file, hasher.clone()).unwrap();
        assert!(read.may_contain("ant"));
        let read = $Structure::load_with_hasher(&file[..], hasher).unwrap();
        assert!(read.may_contain("ant"));
        assert!($Structure::from_bytes(&file).is_err(), "the default hasher");
    })*};
}

#[test]
#[expect(unused_mut, reason = "an atomic filter is filled through a shared reference")]
fn filters_are_saved_without_a_trait() {
    is_saved! {
        AtomicBloomFilter: AtomicBloomFilter::with_rate(100, 0.01),
            |hasher| AtomicBloomFilter::with_rate_and_hasher(100, 0.01, hasher);
        BloomFilter: BloomFilter::with_rate(100, 0.01),
            |hasher| BloomFilter::with_rate_and_hasher(100, 0.01, hasher);
        CountMinSketch: CountMinSketch::with_error(0.1, 0.01),
            |hasher| CountMinSketch::with_error_and_hasher(0.1, 0.01, hasher);
        CountingBloom: CountingBloom::with_rate(100, 0.01),
            |hasher| CountingBloom::with_rate_and_hasher(100, 0.01, hasher);
        CuckooFilter: CuckooFilter::with_rate(100, 0.01),
            |hasher| CuckooFilter::with_rate_and_hasher(100, 0.01, hasher);
        PartitionedBloom: PartitionedBloom::with_rate(100, 0.01),
            |hasher| PartitionedBloom::with_rate_and_hasher(100, 0.01, hasher);
        ScalableBloom: ScalableBloom::with_rate(100, 0.01),
            |hasher| ScalableBloom::with_rate_and_hasher(100, 0.01, hasher);
    }
}

#[test]
fn filters_are_extended() {
    macro_rules! is_extended {
        ($($filter:expr,)*) => {$({
            let mut filter = $filter;
            filter.extend(["ant", "bee"]);
            filter.extend(&[String::from("cow")]);
            assert!(["ant", "bee", "cow"].iter().all(|key| filter.may_contain(key)));
            assert!(filter.expected_fpr() > 0.0 && filter.stats().keys == 3, "{filter:?}");
        })*};
    }
    is_extended! {
        AtomicBloomFilter::with_rate(100, 0.01),
        BloomFilter::with_rate(100, 0.01),
        CountMinSketch::with_error(0.1, 0.01),
        CountingBloom::with_rate(100, 0.01),
        PartitionedBloom::with_rate(100, 0.01),
        ScalableBloom::with_rate(100, 0.01),
        StripedBloomFilter::with_rate(2, 100, 0.01),
    }
}
