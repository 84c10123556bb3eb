//! Our table filters: built from all keys at once, and stored.

use sievedb_filter::{
    BinaryFuse8, BinaryFuse16, BlockedBloom, Expected, Ribbon, TableFilter,
    filter_block::encode,
    params::{blocked_bloom_bits_per_key, columns_for_fpr},
};

use super::{BITS, Family, Given, Origin, Setting, Structure};

pub(super) const BLOCKED_BLOOM: Family = Family {
    name: "BlockedBloom",
    origin: Origin::Ours,
    given: Given::Hash,
    settings: BITS,
    for_rate: Some(blocked_bloom_bits_per_key),
    build: |hashes, bits| Box::new(BlockedBloom::build(hashes, bits)),
};

pub(super) const RIBBON: Family = Family {
    name: "Ribbon",
    settings: &[
        Setting::new("1 %", 6.72),
        Setting::new("7 columns", 7.0),
        Setting::new("8 columns", 8.0),
        Setting::new("0.1 %", 9.976),
        Setting::new("16 columns", 16.0),
    ],
    for_rate: Some(|rate| Some(columns_for_fpr(rate))),
    build: |hashes, columns| Box::new(Ribbon::build(hashes, columns)),
    ..BLOCKED_BLOOM
};

pub(super) const BINARY_FUSE_8: Family = Family {
    name: "BinaryFuse8",
    settings: &[Setting::new("8 bits", 8.0)],
    for_rate: None,
    build: |hashes, _| Box::new(BinaryFuse8::build(hashes)),
    ..BLOCKED_BLOOM
};

pub(super) const BINARY_FUSE_16: Family = Family {
    name: "BinaryFuse16",
    settings: &[Setting::new("16 bits", 16.0)],
    build: |hashes, _| Box::new(BinaryFuse16::build(hashes)),
    ..BINARY_FUSE_8
};

/// Hashes of a batched call, as many as the limits of batched calls assume.
const BATCH: usize = 32;

/// The calls that all table filters share.
macro_rules! structure {
    ($name:ident, $kind:ident) => {
        impl Structure for $name {
            #[inline(always)]
            fn may_contain(&self, hash: u64) -> bool {
                self.may_contain_hash(hash)
            }

            fn answer_all(&self, hashes: &[u64], answers: &mut [bool]) -> bool {
                for (hashes, answers) in hashes.chunks(BATCH).zip(answers.chunks_mut(BATCH)) {
                    self.may_contain_hashes(hashes, answers);
                }
                true
            }

            fn expected_fpr(&self) -> Option<f64> {
                Some(self.expected_fpr())
            }

            fn stored_bytes(&self) -> Option<usize> {
                let filter = TableFilter::$kind(self.clone());
                Some(encode(&filter, Expected { hash_seed: 0, salt: 0 }).len())
            }
        }
    };
}

structure!(BlockedBloom, BlockedBloom);
structure!(Ribbon, Ribbon);
structure!(BinaryFuse8, BinaryFuse8);
structure!(BinaryFuse16, BinaryFuse16);
