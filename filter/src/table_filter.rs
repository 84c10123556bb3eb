//! An enum over the filters of a table.
//!
//! The filters are an enum instead of trait objects. A lookup probes one filter per candidate
//! table, and a branch over few kinds is faster than an indirect call.

use crate::binary_fuse::{BinaryFuse8, BinaryFuse16, fingerprint_bits_for};
use crate::blocked_bloom::BlockedBloom;
use crate::decode_error::DecodeError;
use crate::filter_block::{self, Expected, FilterKind};
use crate::params::BITS_PER_KEY_MAX;
use crate::ribbon::Ribbon;

/// A table's filter in memory.
#[derive(Debug, Clone)]
#[non_exhaustive]
#[repr(u8)] // A separate tag byte: a niche in another field costs 0.3 ns a probe.
pub enum TableFilter {
    /// One cache line per probe.
    BlockedBloom(BlockedBloom),
    /// Two thirds of the memory.
    Ribbon(Ribbon),
    /// Nine bits per key and three lines per probe; a rate of 1/256.
    BinaryFuse8(BinaryFuse8),
    /// Eighteen bits per key; a rate of 1/65,536.
    BinaryFuse16(BinaryFuse16),
}

impl TableFilter {
    /// Decodes a filter block; the same as [`filter_block::decode`].
    ///
    /// # Errors
    ///
    /// [`DecodeError`] if the block is invalid. The caller must then treat every key as matching.
    pub fn decode(bytes: &[u8], expected: Expected) -> Result<Self, DecodeError> {
        filter_block::decode(bytes, expected)
    }

    /// Builds a filter of this kind over the hashes of keys.
    ///
    /// The kind may round `bits_per_key`: see [`FilterKind::expected_fpr`]. Returns `None` for a
    /// range filter, which has no hashes.
    ///
    /// # Panics
    ///
    /// If `bits_per_key` is not in `0 < bits_per_key <= `[`BITS_PER_KEY_MAX`].
    #[must_use]
    pub fn build(kind: FilterKind, hashes: &[u64], bits_per_key: f64) -> Option<Self> {
        Self::build_unless(kind, hashes, bits_per_key, &|| false)
    }

    /// Does the same as [`build`](Self::build), but returns `None` soon after `is_cancelled`
    /// returns `true`, which it must then always do. A blocked Bloom filter is not cancelled: its
    /// build takes a few ns per key.
    ///
    /// # Panics
    ///
    /// As [`build`](Self::build).
    #[must_use]
    pub fn build_unless(
        kind: FilterKind,
        hashes: &[u64],
        bits_per_key: f64,
        is_cancelled: &dyn Fn() -> bool,
    ) -> Option<Self> {
        assert!(
            bits_per_key > 0.0 && bits_per_key <= BITS_PER_KEY_MAX,
            "bits_per_key is {bits_per_key}"
        );
        match kind {
            FilterKind::BlockedBloom => Some(BlockedBloom::build(hashes, bits_per_key).into()),
            FilterKind::Ribbon => {
                Ribbon::build_unless(hashes, bits_per_key, is_cancelled).map(Self::from)
            }
            FilterKind::BinaryFuse if fingerprint_bits_for(bits_per_key) == 8 => {
                BinaryFuse8::build_unless(hashes, is_cancelled).map(Self::from)
            }
            FilterKind::BinaryFuse => {
                BinaryFuse16::build_unless(hashes, is_cancelled).map(Self::from)
            }
            FilterKind::Range => None,
        }
    }

    /// Returns `false` only if the table holds no key with this hash.
    #[doc(alias = "contains")]
    #[inline]
    #[must_use]
    pub fn may_contain_hash(&self, hash: u64) -> bool {
        match self {
            Self::BlockedBloom(filter) => filter.may_contain_hash(hash),
            Self::Ribbon(filter) => filter.may_contain_hash(hash),
            Self::BinaryFuse8(_) | Self::BinaryFuse16(_) => self.fuse_may_contain(hash),
        }
    }

    /// Probes a fuse filter. Separate, because a jump table over four kinds costs the others
    /// 0.3 ns.
    #[inline(never)]
    pub(crate) fn fuse_may_contain(&self, hash: u64) -> bool {
        match self {
            Self::BinaryFuse8(filter) => filter.may_contain_hash(hash),
            Self::BinaryFuse16(filter) => filter.may_contain_hash(hash),
            Self::BlockedBloom(_) | Self::Ribbon(_) => unreachable!("not a fuse filter"),
        }
    }

    /// Prefetches what [`may_contain_hash`](Self::may_contain_hash) reads.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        match self {
            Self::BlockedBloom(filter) => filter.prefetch(hash),
            Self::Ribbon(filter) => filter.prefetch(hash),
            Self::BinaryFuse8(filter) => filter.prefetch(hash),
            Self::BinaryFuse16(filter) => filter.prefetch(hash),
        }
    }

    /// Sets each of `results` to [`may_contain_hash`](Self::may_contain_hash) of the hash at its
    /// index, with many loads in flight at once.
    ///
    /// # Panics
    ///
    /// If the slices differ in length.
    pub fn may_contain_hashes(&self, hashes: &[u64], results: &mut [bool]) {
        match self {
            Self::BlockedBloom(filter) => filter.may_contain_hashes(hashes, results),
            Self::Ribbon(filter) => filter.may_contain_hashes(hashes, results),
            Self::BinaryFuse8(filter) => filter.may_contain_hashes(hashes, results),
            Self::BinaryFuse16(filter) => filter.may_contain_hashes(hashes, results),
        }
    }

    /// Returns the memory of the filter, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        match self {
            Self::BlockedBloom(filter) => filter.memory_bytes(),
            Self::Ribbon(filter) => filter.memory_bytes(),
            Self::BinaryFuse8(filter) => filter.memory_bytes(),
            Self::BinaryFuse16(filter) => filter.memory_bytes(),
        }
    }

    /// Returns the bytes that its [arena](crate::FilterArena) counts as used.
    #[must_use]
    pub fn arena_bytes(&self) -> usize {
        match self {
            Self::BlockedBloom(filter) => filter.arena_bytes(),
            Self::Ribbon(filter) => filter.arena_bytes(),
            Self::BinaryFuse8(filter) => filter.arena_bytes(),
            Self::BinaryFuse16(filter) => filter.arena_bytes(),
        }
    }

    /// Returns the expected false-positive rate, from 0 to 1.
    #[must_use]
    pub fn expected_fpr(&self) -> f64 {
        match self {
            Self::BlockedBloom(filter) => filter.expected_fpr(),
            Self::Ribbon(filter) => filter.expected_fpr(),
            Self::BinaryFuse8(filter) => filter.expected_fpr(),
            Self::BinaryFuse16(filter) => filter.expected_fpr(),
        }
    }

    /// Returns the number of keys that the filter was built over.
    #[must_use]
    pub fn key_count(&self) -> u64 {
        match self {
            Self::BlockedBloom(filter) => filter.key_count(),
            Self::Ribbon(filter) => filter.key_count(),
            Self::BinaryFuse8(filter) => filter.key_count(),
            Self::BinaryFuse16(filter) => filter.key_count(),
        }
    }

    /// Returns the kind of the filter.
    #[must_use]
    pub fn kind(&self) -> FilterKind {
        match self {
            Self::BlockedBloom(_) => FilterKind::BlockedBloom,
            Self::Ribbon(_) => FilterKind::Ribbon,
            Self::BinaryFuse8(_) | Self::BinaryFuse16(_) => FilterKind::BinaryFuse,
        }
    }
}

impl From<BlockedBloom> for TableFilter {
    fn from(filter: BlockedBloom) -> Self {
        Self::BlockedBloom(filter)
    }
}

impl From<Ribbon> for TableFilter {
    fn from(filter: Ribbon) -> Self {
        Self::Ribbon(filter)
    }
}

impl From<BinaryFuse8> for TableFilter {
    fn from(filter: BinaryFuse8) -> Self {
        Self::BinaryFuse8(filter)
    }
}

impl From<BinaryFuse16> for TableFilter {
    fn from(filter: BinaryFuse16) -> Self {
        Self::BinaryFuse16(filter)
    }
}

#[cfg(test)]
mod tests {
    use core::cell::Cell;

    use super::*;
    use crate::key_hash;

    #[cfg_attr(miri, ignore = "long loops")]
    #[test]
    fn n11_a_build_checks_cancellation_often() {
        let hashes: Vec<u64> =
            (0..200_000_u64).map(|key| key_hash(&key.to_le_bytes(), 7)).collect();
        for kind in [FilterKind::Ribbon, FilterKind::BinaryFuse] {
            let checks = Cell::new(0_u32);
            let build = |checks_max: u32| {
                checks.set(0);
                TableFilter::build_unless(kind, &hashes, 10.0, &|| {
                    checks.set(checks.get() + 1);
                    checks.get() > checks_max
                })
            };
            assert!(build(u32::MAX).is_some(), "{kind:?}");
            let all = checks.get();
            assert!(all > 100, "{kind:?}: {all} checks");
            for checks_max in [0, all / 10, all / 2, all - 1] {
                assert!(build(checks_max).is_none(), "{kind:?}: after {checks_max} of {all}");
            }
        }
    }
}
