//! The crate qfilter: a quotient filter.

use qfilter::{Builder, Filter, truncate_to_fingerprint};

use super::{Family, Given, Origin, RATES, Structure};

pub(super) const FAMILY: Family = Family {
    name: "qfilter",
    origin: Origin::Crate,
    given: Given::Hash,
    settings: RATES,
    for_rate: Some(Some),
    build: |hashes, rate| Box::new(build(hashes, rate)),
};

/// From sorted fingerprints, which its documentation calls the fastest way.
fn build(hashes: &[u64], rate: f64) -> Filter {
    let filter = Filter::new(hashes.len() as u64, rate).expect("so many keys fit");
    let bits = filter.fingerprint_size();
    let mut fingerprints: Vec<u64> =
        hashes.iter().map(|&hash| truncate_to_fingerprint(hash, bits)).collect();
    fingerprints.sort_unstable();
    let mut builder = Builder::new(filter);
    for fingerprint in fingerprints {
        builder.insert_fingerprint(false, fingerprint).expect("it has room for all");
    }
    builder.into_filter()
}

impl Structure for Filter {
    #[inline(always)]
    fn may_contain(&self, hash: u64) -> bool {
        self.contains_fingerprint(hash)
    }

    fn expected_fpr(&self) -> Option<f64> {
        Some(self.current_error_ratio())
    }
}
