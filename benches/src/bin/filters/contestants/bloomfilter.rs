//! The crate bloomfilter: a Bloom filter without lines, with two SipHashes of its own.

use bloomfilter::Bloom;

use super::{Family, Given, Origin, RATES, Structure};

/// Fixed, so that a run can be repeated.
const SEED: [u8; 32] = *b"a seed of 32 bytes for SipHash..";

pub(super) const FAMILY: Family = Family {
    name: "bloomfilter",
    origin: Origin::Crate,
    given: Given::Key,
    settings: RATES,
    for_rate: Some(Some),
    build: |hashes, rate| {
        let filter = Bloom::new_for_fp_rate_with_seed(hashes.len(), rate, &SEED);
        let mut filter: Bloom<u64> = filter.expect("a given seed cannot fail");
        for hash in hashes {
            filter.set(hash);
        }
        Box::new(filter)
    },
};

impl Structure for Bloom<u64> {
    #[inline(always)]
    fn may_contain(&self, hash: u64) -> bool {
        self.check(&hash)
    }
}
