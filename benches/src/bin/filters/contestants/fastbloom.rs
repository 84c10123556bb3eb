//! The crate fastbloom: a Bloom filter without lines.

use fastbloom::BloomFilter;

use super::{Family, Given, Origin, RATES, Structure};

pub(super) const FAMILY: Family = Family {
    name: "fastbloom",
    origin: Origin::Crate,
    given: Given::Hash,
    settings: RATES,
    for_rate: Some(Some),
    build: |hashes, rate| {
        let mut filter = BloomFilter::with_false_pos(rate).expected_items(hashes.len());
        for &hash in hashes {
            filter.insert_hash(hash);
        }
        Box::new(Fastbloom { filter, keys: hashes.len() })
    },
};

#[derive(Debug)]
struct Fastbloom {
    filter: BloomFilter,
    keys: usize,
}

impl Structure for Fastbloom {
    #[inline(always)]
    fn may_contain(&self, hash: u64) -> bool {
        self.filter.contains_hash(hash)
    }

    fn expected_fpr(&self) -> Option<f64> {
        Some(self.filter.expected_false_pos(self.keys))
    }
}
