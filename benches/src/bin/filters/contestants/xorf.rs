//! The crate xorf: binary fuse filters of 8 and 16 bits.

use xorf::{BinaryFuse8, BinaryFuse16, Filter};

use super::{Family, Given, Origin, Setting, Structure};

pub(super) const FAMILY_8: Family = Family {
    name: "xorf BinaryFuse8",
    origin: Origin::Crate,
    given: Given::Hash,
    settings: &[Setting::new("8 bits", 8.0)],
    for_rate: None,
    build: |hashes, _| {
        Box::new(BinaryFuse8::try_from(hashes).expect("different hashes make a filter"))
    },
};

pub(super) const FAMILY_16: Family = Family {
    name: "xorf BinaryFuse16",
    settings: &[Setting::new("16 bits", 16.0)],
    build: |hashes, _| {
        Box::new(BinaryFuse16::try_from(hashes).expect("different hashes make a filter"))
    },
    ..FAMILY_8
};

impl Structure for BinaryFuse8 {
    #[inline(always)]
    fn may_contain(&self, hash: u64) -> bool {
        self.contains(&hash)
    }

    fn expected_fpr(&self) -> Option<f64> {
        Some(0.5_f64.powi(8))
    }
}

impl Structure for BinaryFuse16 {
    #[inline(always)]
    fn may_contain(&self, hash: u64) -> bool {
        self.contains(&hash)
    }

    fn expected_fpr(&self) -> Option<f64> {
        Some(0.5_f64.powi(16))
    }
}
