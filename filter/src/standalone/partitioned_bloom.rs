//! A Bloom filter of k slices: each probe sets one bit in its own slice.
//!
//! Probes of a key never coincide, so that every key sets exactly `probes` bits. The rate is
//! slightly higher: with `s` bits per slice it is `(1 - (1 - 1/s)^n)^k`, which is
//! [`bloom_fpr`](crate::params::bloom_fpr) up to terms of `1/s`.
//!
//! Source: Kirsch and Mitzenmacher, "Less Hashing, Same Performance: Building a Better Bloom
//! Filter", Random Structures and Algorithms 33(2), 2008, section 3.
//!
//! # Saved payload
//!
//! Within the [envelope](crate::saved). Integers are little-endian.
//!
//! | offset | bytes | field        | meaning                                                     |
//! |--------|-------|--------------|-------------------------------------------------------------|
//! | 0      | 8     | `slice_bits` | at least 1                                                  |
//! | 8      | 8     | `probes`     | number of slices, 1 to 64                                   |
//! | 16     | 8     | `keys`       | insertions that set a bit                                   |
//! | 24     | 8 × w | `words`      | all slices without gaps; bit `i` is bit `i % 64` of word `i / 64`; bits after the last are zero |

use core::{fmt, hash::BuildHasher};

use super::bits::Bits;
use super::bloom::{bloom_stats, shape_for};
use super::probes::{PROBES_MAX, Places};
use crate::decode_error::DecodeError;
use crate::filter::{Filter, FilterStats, ShapeMismatch};
#[cfg(not(feature = "std"))]
use crate::float::Float;
use crate::hash::{Xxh3, hash_with};
use crate::saved::{Payload, Reader, SavedKind, Writer, hash_check};

/// A partitioned Bloom filter.
///
/// ```
/// use sievedb_filter::standalone::PartitionedBloom;
///
/// let mut filter = PartitionedBloom::with_rate(1_000, 0.01);
/// assert!(!filter.insert("ant"), "new");
/// assert!(filter.may_contain("ant"));
/// ```
#[derive(Clone)]
pub struct PartitionedBloom<S = Xxh3> {
    /// `slice_bits` times `probes`.
    bits: Bits,
    slice_bits: u64,
    probes: u32,
    keys: u64,
    hasher: S,
}

impl PartitionedBloom {
    /// Creates an empty filter with false-positive rate `fpr` at `capacity` keys.
    ///
    /// More keys can be inserted, at a higher rate. `capacity` 0 counts as 1.
    ///
    /// # Panics
    ///
    /// If `fpr` is not in `0 < fpr < 1`, or the filter exceeds the memory.
    #[must_use]
    pub fn with_rate(capacity: u64, fpr: f64) -> Self {
        Self::with_rate_and_hasher(capacity, fpr, Xxh3::default())
    }

    /// Creates an empty filter of `probes` slices of `slice_bits` bits.
    ///
    /// # Panics
    ///
    /// If `slice_bits` is 0, the filter exceeds the memory, or `probes` is not from 1 to
    /// [`PROBES_MAX`].
    #[must_use]
    pub fn with_shape(slice_bits: u64, probes: u32) -> Self {
        Self::with_shape_and_hasher(slice_bits, probes, Xxh3::default())
    }
}

impl<S: BuildHasher> PartitionedBloom<S> {
    /// Creates a filter like [`with_rate`](PartitionedBloom::with_rate), with a hasher.
    ///
    /// # Panics
    ///
    /// As [`with_rate`](PartitionedBloom::with_rate).
    #[must_use]
    pub fn with_rate_and_hasher(capacity: u64, fpr: f64, hasher: S) -> Self {
        let (bits, probes) = shape_for(capacity, fpr);
        Self::with_shape_and_hasher(bits.div_ceil(probes.into()), probes, hasher)
    }

    /// Creates a filter like [`with_shape`](PartitionedBloom::with_shape), with a hasher.
    ///
    /// # Panics
    ///
    /// As [`with_shape`](PartitionedBloom::with_shape).
    #[must_use]
    pub fn with_shape_and_hasher(slice_bits: u64, probes: u32, hasher: S) -> Self {
        assert!((1..=PROBES_MAX).contains(&probes), "probes is {probes}");
        let bits = slice_bits.checked_mul(probes.into()).expect("the filter exceeds the memory");
        Self { bits: Bits::new(bits), slice_bits, probes, keys: 0, hasher }
    }

    /// Inserts a key. Returns `false` if it was definitely absent, `true` if it may have been
    /// present.
    #[inline]
    pub fn insert(&mut self, key: impl AsRef<[u8]>) -> bool {
        self.insert_hash(hash_with(&self.hasher, key.as_ref()))
    }

    /// Inserts a key by its hash, as [`insert`](Self::insert).
    #[inline]
    pub fn insert_hash(&mut self, hash: u64) -> bool {
        let places = Places::one_per_slice(hash, self.slice_bits);
        let present = self.bits.set_all(places.take(self.probes));
        // A saved count is arbitrary.
        self.keys = self.keys.saturating_add(u64::from(!present));
        present
    }

    /// Returns `false` only if no key with this hash was inserted.
    #[doc(alias = "contains")]
    #[inline]
    #[must_use]
    pub fn may_contain_hash(&self, hash: u64) -> bool {
        self.bits.all(Places::one_per_slice(hash, self.slice_bits).take(self.probes))
    }

    /// Adds all keys of `other`. The result is the filter over the union.
    ///
    /// # Errors
    ///
    /// [`ShapeMismatch`] if bits, probes or hasher differ. The filter is then unchanged.
    pub fn union(&mut self, other: &Self) -> Result<(), ShapeMismatch> {
        self.check_shape(other)?;
        self.bits.combine(&other.bits, |ours, theirs| ours | theirs);
        // The cast saturates.
        self.keys = self.stats().keys_estimated.round() as u64;
        Ok(())
    }

    /// Removes every key. Keeps the memory.
    pub fn clear(&mut self) {
        self.bits.clear();
        self.keys = 0;
    }

    /// Returns the size of a slice, in bits.
    #[must_use]
    pub fn slice_bits(&self) -> u64 {
        self.slice_bits
    }

    /// Returns the bits set per key, one per slice.
    #[must_use]
    pub fn probes(&self) -> u32 {
        self.probes
    }

    /// Returns the number of insertions of keys that were definitely absent. After
    /// [`union`](Self::union), an estimate from the bits.
    #[must_use]
    pub fn keys(&self) -> u64 {
        self.keys
    }

    /// Returns the hasher.
    #[must_use]
    pub fn hasher(&self) -> &S {
        &self.hasher
    }

    fn check_shape(&self, other: &Self) -> Result<(), ShapeMismatch> {
        ShapeMismatch::check(&[
            ("slice bits", self.slice_bits, other.slice_bits),
            ("probes", self.probes.into(), other.probes.into()),
            ("hasher", hash_check(&self.hasher), hash_check(&other.hasher)),
        ])
    }
}

impl<S: BuildHasher> Filter for PartitionedBloom<S> {
    #[inline]
    fn may_contain_hash(&self, hash: u64) -> bool {
        self.may_contain_hash(hash)
    }

    fn memory_bytes(&self) -> usize {
        self.bits.memory_bytes()
    }

    /// Returns the share of set bits, which nearly equals that of each slice, to the power of the
    /// probes. Constant time.
    fn expected_fpr(&self) -> f64 {
        self.stats().fpr
    }

    fn stats(&self) -> FilterStats {
        bloom_stats(&self.bits, self.probes, self.keys)
    }
}

impl<S: BuildHasher> Payload for PartitionedBloom<S> {
    const KIND: SavedKind = SavedKind::PartitionedBloom;

    fn write_payload(&self, writer: &mut Writer) {
        writer.u64(self.slice_bits);
        writer.u64(self.probes.into());
        writer.u64(self.keys);
        self.bits.write(writer);
    }

    fn read_payload(reader: &mut Reader<'_>, hasher: S) -> Result<Self, DecodeError> {
        let what = "bits of a filter slice";
        let slice_bits = reader.u64_in(what, 1..=u64::MAX)?;
        let probes = reader.u64_in("filter probes", 1..=PROBES_MAX.into())? as u32; // At most 64.
        let keys = reader.u64("filter keys")?;
        let bits = slice_bits
            .checked_mul(probes.into())
            .ok_or(DecodeError::OutOfRange { what, value: slice_bits })?;
        Ok(Self { bits: Bits::read(reader, bits)?, slice_bits, probes, keys, hasher })
    }
}

/// Equal filters give equal results: same shape, bits and hasher.
impl<S: BuildHasher> PartialEq for PartitionedBloom<S> {
    fn eq(&self, other: &Self) -> bool {
        self.check_shape(other).is_ok() && self.bits == other.bits
    }
}

/// Prints the shape and the load, not the bits.
impl<S> fmt::Debug for PartitionedBloom<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PartitionedBloom")
            .field("slice_bits", &self.slice_bits)
            .field("probes", &self.probes)
            .field("keys", &self.keys)
            .field("fill", &self.bits.fill())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_sets_one_bit_in_each_slice() {
        for (slice_bits, probes) in [(1, 1), (1, 64), (63, 3), (64, 7), (1000, 13)] {
            for hash in [0, 1, u64::MAX, 0x0123_4567_89ab_cdef, 1 << 63] {
                let mut filter = PartitionedBloom::with_shape(slice_bits, probes);
                assert!(!filter.insert_hash(hash));
                for slice in 0..u64::from(probes) {
                    let places = slice * slice_bits..(slice + 1) * slice_bits;
                    let set = places.filter(|&place| filter.bits.all([place].into_iter())).count();
                    assert_eq!(set, 1, "slice {slice} of {slice_bits} bits, hash {hash:#x}");
                }
            }
        }
    }
}
