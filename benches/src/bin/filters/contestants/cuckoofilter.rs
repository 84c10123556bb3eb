//! The crate cuckoofilter: fingerprints of 8 bits in buckets of 4.

use std::hash::Hasher;

use cuckoofilter::CuckooFilter;
use sievedb_workload::random::mix;

use super::{Family, Given, Origin, Setting, Structure};

pub(super) const FAMILY: Family = Family {
    name: "cuckoofilter",
    origin: Origin::Crate,
    given: Given::Hash,
    settings: &[Setting::new("8 bits", 8.0)],
    for_rate: None,
    build: |hashes, _| Box::new(build(hashes)),
};

/// Builds a filter with a power of two of slots. If a key does not fit, the next power is tried.
fn build(hashes: &[u64]) -> CuckooFilter<Mixer> {
    let mut slots = hashes.len();
    loop {
        let mut filter = CuckooFilter::with_capacity(slots);
        if hashes.iter().all(|hash| filter.add(hash).is_ok()) {
            return filter;
        }
        slots *= 2;
    }
}

impl Structure for CuckooFilter<Mixer> {
    #[inline(always)]
    fn may_contain(&self, hash: u64) -> bool {
        self.contains(&hash)
    }
}

/// Hasher instead of the crate's default, SipHash: keys are hashed already. The crate also hashes
/// fingerprints with it, which need mixing.
#[derive(Debug, Clone, Copy, Default)]
struct Mixer {
    state: u64,
}

impl Hasher for Mixer {
    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(byte.into());
        }
    }

    #[inline]
    fn write_u64(&mut self, number: u64) {
        // Mixing maps zero to zero, so a constant is added.
        self.state = mix((self.state ^ number).wrapping_add(0x9e37_79b9_7f4a_7c15));
    }

    #[inline]
    fn write_usize(&mut self, number: usize) {
        self.write_u64(number as u64);
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.state
    }
}
