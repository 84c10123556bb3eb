//! Our Bloom filter without lines.

use sievedb_filter::{Filter, standalone::BloomFilter};

use super::{Family, Given, Origin, RATES, Structure};

pub(super) const FAMILY: Family = Family {
    name: "BloomFilter",
    origin: Origin::Ours,
    given: Given::Hash,
    settings: RATES,
    for_rate: Some(Some),
    build: |hashes, rate| {
        let mut filter = BloomFilter::with_rate(hashes.len() as u64, rate);
        for &hash in hashes {
            filter.insert_hash(hash);
        }
        Box::new(filter)
    },
};

impl Structure for BloomFilter {
    #[inline]
    fn may_contain(&self, hash: u64) -> bool {
        self.may_contain_hash(hash)
    }

    fn expected_fpr(&self) -> Option<f64> {
        Some(Filter::expected_fpr(self))
    }
}
