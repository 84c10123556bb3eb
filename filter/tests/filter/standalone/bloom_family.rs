//! How the tests see the Bloom filters.

use sievedb_filter::params::bloom_fpr;
use sievedb_filter::standalone::{
    AtomicBloomFilter, BloomFilter, PartitionedBloom, StripedBloomFilter,
};
use sievedb_filter::{FilterFull, InsertFilter, KeyFilter, Xxh3};

use super::Structure;

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
        Self::from_bloom(3, BloomFilter::with_rate_and_hasher(capacity, fpr, hasher))
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
