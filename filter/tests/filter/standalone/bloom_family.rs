//! The Bloom filters as a `Structure`.

use sievedb_filter::params::bloom_fpr;
use sievedb_filter::standalone::{
    AtomicBloomFilter, BloomFilter, PartitionedBloom, StripedBloomFilter,
};
use sievedb_filter::{FilterFull, InsertFilter, KeyFilter, Xxh3};

use super::Structure;
use crate::random::{Random, seed};

impl Structure for BloomFilter {
    const NAME: &str = "bloom";

    fn with_rate(capacity: u64, fpr: f64, hasher: Xxh3) -> Self {
        Self::with_rate_and_hasher(capacity, fpr, hasher)
    }

    fn stated_fpr(&self, keys: u64) -> f64 {
        bloom_fpr(self.bits() as f64 / keys as f64, self.probes())
    }

    fn try_insert(&mut self, key: &[u8]) -> Result<bool, FilterFull> {
        Ok(self.insert(key))
    }
}

impl Structure for AtomicBloomFilter {
    const NAME: &str = "bloom"; // The same bytes.

    fn with_rate(capacity: u64, fpr: f64, hasher: Xxh3) -> Self {
        Self::with_rate_and_hasher(capacity, fpr, hasher)
    }

    fn stated_fpr(&self, keys: u64) -> f64 {
        bloom_fpr(self.bits() as f64 / keys as f64, self.probes())
    }

    fn try_insert(&mut self, key: &[u8]) -> Result<bool, FilterFull> {
        Ok(self.insert(key))
    }
}

impl Structure for StripedBloomFilter {
    const NAME: &str = "striped_bloom";

    fn with_rate(capacity: u64, fpr: f64, hasher: Xxh3) -> Self {
        Self::with_rate_and_hasher(3, capacity, fpr, hasher)
    }

    fn stated_fpr(&self, keys: u64) -> f64 {
        bloom_fpr(self.bits() as f64 / keys as f64, self.probes())
    }

    fn try_insert(&mut self, key: &[u8]) -> Result<bool, FilterFull> {
        let hash = self.hash(key);
        self.try_insert_hash(hash)
    }
}

impl Structure for PartitionedBloom {
    const NAME: &str = "partitioned_bloom";

    fn with_rate(capacity: u64, fpr: f64, hasher: Xxh3) -> Self {
        Self::with_rate_and_hasher(capacity, fpr, hasher)
    }

    fn stated_fpr(&self, keys: u64) -> f64 {
        bloom_fpr(self.slice_bits() as f64 * f64::from(self.probes()) / keys as f64, self.probes())
    }

    fn try_insert(&mut self, key: &[u8]) -> Result<bool, FilterFull> {
        Ok(self.insert(key))
    }
}

/// Union and intersection of atomic filters equal those of plain ones.
#[test]
fn atomic_filters_are_combined_as_plain_ones() {
    let hashes = Random(seed()).many(1_000);
    let filled = |hashes: &[u64]| {
        let mut filter = BloomFilter::with_shape(9_000, 6);
        hashes.iter().for_each(|&hash| {
            filter.insert_hash(hash);
        });
        filter
    };
    let (one, two) = (filled(&hashes[..600]), filled(&hashes[400..]));
    let atomic = AtomicBloomFilter::from(two.clone());
    let mut want = one.clone();
    let found = AtomicBloomFilter::from(one.clone());
    want.union(&two).expect("equal shapes");
    found.union(&atomic).expect("equal shapes");
    assert!(found.to_bloom() == want);

    let mut want = one.clone();
    let mut found = AtomicBloomFilter::from(one);
    want.intersect(&two).expect("equal shapes");
    found.intersect(&atomic).expect("equal shapes");
    assert!(found.to_bloom() == want && found.keys() == want.keys());
    assert!(hashes[400..600].iter().all(|&hash| found.may_contain_hash(hash)));

    let other = AtomicBloomFilter::with_shape(9_001, 6);
    assert_eq!(found.union(&other).map_err(|error| error.what), Err("bits"));
    assert_eq!(found.intersect(&other).map_err(|error| error.what), Err("bits"));
    assert!(found.to_bloom() == want);
}
