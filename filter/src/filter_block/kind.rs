//! The kinds of table filters, and their rates by bits per key.

use crate::binary_fuse::{BITS_PER_KEY, BITS_PER_KEY_WIDE, fingerprint_bits_for};
use crate::params::{
    BITS_PER_KEY_MAX, blocked_bloom_bits_per_key, blocked_bloom_fpr, blocked_bloom_probes,
    columns_for_fpr, columns_fpr,
};
use crate::ribbon::COLUMNS_MAX;

/// The kind of a filter, as stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
#[repr(u8)]
pub enum FilterKind {
    /// [`BlockedBloom`](crate::BlockedBloom).
    BlockedBloom = 1,
    /// [`Ribbon`](crate::Ribbon).
    Ribbon = 2,
    /// [`BinaryFuse`](crate::binary_fuse::BinaryFuse), with fingerprints of 8 or 16 bits.
    BinaryFuse = 3,
    /// [`RangeFilter`](crate::RangeFilter): probed with key ranges instead of hashes.
    Range = 4,
}

impl FilterKind {
    /// Returns the expected false-positive rate of a large filter of this kind, from 0 to 1; `None`
    /// for a range filter, whose rate depends on the range.
    ///
    /// For a ribbon, `bits_per_key` counts only the columns, without the 0.3 % of thresholds and
    /// empty slots. A binary fuse filter has 9 or 18 bits per key: its fingerprints have 16 bits
    /// from [`BITS_PER_KEY_WIDE`] bits per key on, and 8 below.
    ///
    /// # Panics
    ///
    /// If `bits_per_key` is not in `0 < bits_per_key <= `[`BITS_PER_KEY_MAX`].
    #[must_use]
    pub fn expected_fpr(self, bits_per_key: f64) -> Option<f64> {
        assert!(
            bits_per_key > 0.0 && bits_per_key <= BITS_PER_KEY_MAX,
            "bits_per_key is {bits_per_key}"
        );
        match self {
            Self::BlockedBloom => {
                Some(blocked_bloom_fpr(bits_per_key, blocked_bloom_probes(bits_per_key)))
            }
            Self::Ribbon => Some(columns_fpr(bits_per_key.clamp(1.0, COLUMNS_MAX.into()))),
            Self::BinaryFuse => Some(columns_fpr(fingerprint_bits_for(bits_per_key).into())),
            Self::Range => None,
        }
    }

    /// Returns the smallest number of bits per key with which a large filter of this kind has at
    /// most rate `fpr`: the inverse of [`expected_fpr`](Self::expected_fpr). At least 1 for a
    /// ribbon.
    ///
    /// `None` if the kind cannot reach the rate. The limits are 8e-7 for a blocked Bloom filter,
    /// which takes [`BITS_PER_KEY_MAX`], 2^-32 for a ribbon, and 2^-16 for a binary fuse filter.
    /// Always `None` for a range filter.
    ///
    /// # Panics
    ///
    /// If `fpr` is not in `0 < fpr < 1`.
    #[must_use]
    pub fn bits_per_key_for(self, fpr: f64) -> Option<f64> {
        assert!(fpr > 0.0 && fpr < 1.0, "fpr is {fpr}");
        match self {
            Self::BlockedBloom => blocked_bloom_bits_per_key(fpr),
            Self::Ribbon => {
                let columns = columns_for_fpr(fpr).max(1.0);
                (columns <= COLUMNS_MAX.into()).then_some(columns)
            }
            Self::BinaryFuse => [BITS_PER_KEY, BITS_PER_KEY_WIDE]
                .into_iter()
                .find(|&bits| columns_fpr(fingerprint_bits_for(bits).into()) <= fpr),
            Self::Range => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KINDS: [FilterKind; 3] =
        [FilterKind::BlockedBloom, FilterKind::Ribbon, FilterKind::BinaryFuse];

    #[cfg_attr(miri, ignore = "long loops without unsafe code")]
    #[test]
    fn bits_per_key_are_minimal() {
        for kind in KINDS {
            for exponent in 1..400 {
                let fpr = 0.95_f64.powi(exponent);
                let Some(bits) = kind.bits_per_key_for(fpr) else {
                    let most = kind.expected_fpr(BITS_PER_KEY_MAX).expect("a known kind");
                    assert!(most > fpr, "{kind:?}, {fpr}");
                    continue;
                };
                let rate = kind.expected_fpr(bits).expect("a known kind");
                assert!(rate <= fpr * (1.0 + 1e-9), "{kind:?}, {fpr}: {bits} bits give {rate}");
                let fewer = kind.expected_fpr(bits * 0.999).expect("a known kind");
                let is_least = match kind {
                    FilterKind::Ribbon => bits == 1.0,
                    FilterKind::BinaryFuse => bits == BITS_PER_KEY,
                    _ => false,
                };
                assert!(is_least || fewer > fpr, "{kind:?}, {fpr}: {bits} bits, {fewer}");
            }
        }
    }

    #[test]
    fn known_rates() {
        use FilterKind::{BinaryFuse, BlockedBloom, Range, Ribbon};
        let cases = [
            (BlockedBloom, 0.01, Some(9.92)),
            (Ribbon, 0.01, Some(6.72)),
            (Ribbon, 0.7, Some(1.0)),
            (Ribbon, 1e-10, None),
            (BinaryFuse, 0.01, Some(9.0)),
            (BinaryFuse, 1.0 / 256.0, Some(9.0)),
            (BinaryFuse, 0.001, Some(18.0)),
            (BinaryFuse, 1e-5, None),
            (BlockedBloom, 1e-7, None),
            (Range, 0.01, None),
        ];
        for (kind, fpr, want) in cases {
            let found = kind.bits_per_key_for(fpr).map(|bits| (bits * 100.0).round() / 100.0);
            assert_eq!(found, want, "{kind:?}, {fpr}");
        }
        assert_eq!(BinaryFuse.expected_fpr(17.9), Some(1.0 / 256.0));
        assert_eq!(BinaryFuse.expected_fpr(18.0), Some(1.0 / 65536.0));
        assert_eq!(BinaryFuse.expected_fpr(0.5), Some(1.0 / 256.0));
        assert_eq!(Range.expected_fpr(10.0), None);
    }
}
