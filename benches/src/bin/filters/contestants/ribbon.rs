//! Our ribbon.

use sievedb_filter::{Ribbon, filter_block, params::columns_for_fpr};

use super::{Family, Given, Origin, Setting, Structure};

pub(super) const FAMILY: Family = Family {
    name: "Ribbon",
    origin: Origin::Ours,
    given: Given::Hash,
    settings: &[
        Setting::new("1 %", 6.72),
        Setting::new("7 columns", 7.0),
        Setting::new("8 columns", 8.0),
        Setting::new("0.1 %", 9.976),
        Setting::new("16 columns", 16.0),
    ],
    for_rate: Some(|rate| Some(columns_for_fpr(rate))),
    build: |hashes, columns| Box::new(Ribbon::build(hashes, columns)),
};

impl Structure for Ribbon {
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
        Some(filter_block::encode_ribbon(self, 0, 0, 8_000).len())
    }
}
