//! Our standalone structures, filled key by key.

use sievedb_filter::{
    Filter, InsertFilter,
    standalone::{
        AtomicBloomFilter, BloomFilter, CountingBloom, CuckooFilter, PartitionedBloom,
        ScalableBloom,
    },
};

use super::{Built, Family, Given, Origin, RATES, Structure};

pub(super) const BLOOM: Family = Family {
    name: "BloomFilter",
    origin: Origin::Ours,
    given: Given::Hash,
    settings: RATES,
    for_rate: Some(Some),
    build: |hashes, rate| filled(BloomFilter::with_rate(hashes.len() as u64, rate), hashes),
};

pub(super) const ATOMIC_BLOOM: Family = Family {
    name: "AtomicBloomFilter",
    build: |hashes, rate| filled(AtomicBloomFilter::with_rate(hashes.len() as u64, rate), hashes),
    ..BLOOM
};

pub(super) const PARTITIONED_BLOOM: Family = Family {
    name: "PartitionedBloom",
    build: |hashes, rate| filled(PartitionedBloom::with_rate(hashes.len() as u64, rate), hashes),
    ..BLOOM
};

pub(super) const COUNTING_BLOOM: Family = Family {
    name: "CountingBloom",
    build: |hashes, rate| filled(CountingBloom::with_rate(hashes.len() as u64, rate), hashes),
    ..BLOOM
};

/// For a set of unknown size: starts with capacity for a thousand keys.
pub(super) const SCALABLE_BLOOM: Family = Family {
    name: "ScalableBloom",
    build: |hashes, rate| filled(ScalableBloom::with_rate(1_000, rate), hashes),
    ..BLOOM
};

pub(super) const CUCKOO: Family = Family {
    name: "CuckooFilter",
    build: |hashes, rate| filled(CuckooFilter::with_rate(hashes.len() as u64, rate), hashes),
    ..BLOOM
};

/// A filter of the family of traits.
struct Standalone<F>(F);

fn filled<F: InsertFilter + 'static>(mut filter: F, hashes: &[u64]) -> Box<dyn Built> {
    for &hash in hashes {
        filter.try_insert_hash(hash).expect("it has room for as many keys as were announced");
    }
    Box::new(Standalone(filter))
}

impl<F: Filter> Structure for Standalone<F> {
    #[inline(always)]
    fn may_contain(&self, hash: u64) -> bool {
        self.0.may_contain_hash(hash)
    }

    fn expected_fpr(&self) -> Option<f64> {
        Some(self.0.expected_fpr())
    }
}
