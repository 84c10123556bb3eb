//! Properties of every standalone filter, tested through the traits.
//!
//! To add a structure, implement [`Structure`] and add a line to [`promises!`] below.

mod bloom_family;
mod counting_family;
mod false_positive_rate;
mod golden;
mod hostile_bytes;
mod no_false_negative;
mod own_methods;
mod round_trip;
mod too_large;

use sievedb_filter::{FilterFull, InsertFilter, KeyFilter, Saved, Xxh3};

/// A structure under test: its creation and its stated rate.
pub(crate) trait Structure: InsertFilter + KeyFilter<Hasher = Xxh3> {
    /// Name of its golden file.
    const NAME: &str;
    /// `true` if the structure rejects keys when it is full.
    const CAN_BE_FULL: bool = false;

    /// Creates an empty structure for `capacity` keys at rate `fpr`.
    fn with_rate(capacity: u64, fpr: f64, hasher: Xxh3) -> Self;

    /// Returns the documented rate for `keys` keys, computed without its bits.
    fn stated_fpr(&self, keys: u64) -> f64;

    /// Inserts a key as a user does. Returns `true` if it may have been present.
    fn try_insert(&mut self, key: &[u8]) -> Result<bool, FilterFull>;
}

/// A structure with a saved form.
pub(crate) trait SavedStructure: Structure + Saved {}

impl<F: Structure + Saved> SavedStructure for F {}

/// Inserts keys. Returns those that were not rejected.
fn insert_all<'k, F: Structure>(filter: &mut F, keys: &'k [Vec<u8>]) -> Vec<&'k [u8]> {
    let mut taken = Vec::new();
    for key in keys {
        match filter.try_insert(key) {
            Ok(_) => taken.push(&key[..]),
            Err(full) => assert!(F::CAN_BE_FULL, "{}: {full}", F::NAME),
        }
    }
    taken
}

fn found<F: Structure>(filter: &F, key: &[u8]) -> bool {
    filter.may_contain_hash(filter.hash(key))
}

/// Tests of each structure; `saved` ones have a saved form.
macro_rules! promises {
    ($($name:ident: $Structure:ty, [$($saved:ident)?];)*) => {$(
        mod $name {
            use super::*;

            #[test]
            fn adversarial_keys_are_found() {
                no_false_negative::of_adversarial_keys::<$Structure>();
            }

            #[test]
            fn hostile_hashes_are_found() {
                no_false_negative::of_hostile_hashes::<$Structure>();
            }

            #[test]
            fn random_keys_are_found() {
                no_false_negative::of_random_keys::<$Structure>();
            }

            #[test]
            fn many_keys_are_found() {
                no_false_negative::of_many_keys::<$Structure>();
            }

            #[test]
            fn the_rate_equals_the_stated_one() {
                false_positive_rate::is_stated::<$Structure>();
            }

            #[test]
            fn a_cleared_filter_is_empty() {
                round_trip::clear_empties::<$Structure>();
            }

            $(
                #[test]
                fn $saved() {
                    golden::is_pinned::<$Structure>();
                    round_trip::bytes_are_read_back::<$Structure>();
                    round_trip::another_hasher_is_rejected::<$Structure>();
                    #[cfg(feature = "serde")]
                    round_trip::serde_reads_back::<$Structure>();
                }

                #[test]
                fn hostile_bytes_are_rejected() {
                    hostile_bytes::are_rejected::<$Structure>();
                }
            )?
        }
    )*};
}

promises! {
    bloom: sievedb_filter::standalone::BloomFilter, [saved];
    atomic_bloom: sievedb_filter::standalone::AtomicBloomFilter, [saved];
    striped_bloom: sievedb_filter::standalone::StripedBloomFilter, [];
    partitioned_bloom: sievedb_filter::standalone::PartitionedBloom, [saved];
    counting_bloom: sievedb_filter::standalone::CountingBloom, [saved];
    cuckoo: sievedb_filter::standalone::CuckooFilter, [saved];
    scalable_bloom: sievedb_filter::standalone::ScalableBloom, [saved];
    count_min: sievedb_filter::standalone::CountMinSketch, [saved];
}
