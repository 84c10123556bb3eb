//! Our blocked Bloom filter.

use sievedb_filter::{BlockedBloom, filter_block, params::blocked_bloom_bits_per_key};

use super::{BITS, Family, Given, Origin, Structure};

pub(super) const FAMILY: Family = Family {
    name: "BlockedBloom",
    origin: Origin::Ours,
    given: Given::Hash,
    settings: BITS,
    for_rate: Some(blocked_bloom_bits_per_key),
    build: |hashes, bits| Box::new(BlockedBloom::build(hashes, bits)),
};

impl Structure for BlockedBloom {
    #[inline]
    fn may_contain(&self, hash: u64) -> bool {
        self.may_contain_hash(hash)
    }

    fn answer_all(&self, hashes: &[u64], answers: &mut [bool]) -> bool {
        self.may_contain_hashes(hashes, answers);
        true
    }

    fn expected_fpr(&self) -> Option<f64> {
        Some(self.expected_fpr())
    }

    fn stored_bytes(&self) -> Option<usize> {
        // The bits that were asked for are a note in the trailer.
        Some(filter_block::encode(self, 0, 0, 10_000).len())
    }
}
