//! The classic Bloom filter: a key sets bits anywhere in one array.
//!
//! The rate is [`bloom_fpr`](crate::params::bloom_fpr) of the keys inserted; tests compare it with
//! the measured rate. That formula is for large filters. The rate of a small filter is higher on
//! average, by 1 % for 100 keys and 10 % for 10 keys. Its fill varies, and the rate is a power of
//! the fill.
//!
//! Sources: Bloom, "Space/Time Trade-offs in Hash Coding with Allowable Errors", CACM 13(7), 1970;
//! Bose et al., "On the False-Positive Rate of Bloom Filters", IPL 108(4), 2008, for small filters.
//!
//! If all keys are known in advance, a [`BlockedBloom`](crate::BlockedBloom) is several times
//! faster.
//!
//! # Saved payload
//!
//! Within the [envelope](crate::saved). Integers are little-endian.
//!
//! | offset | bytes | field    | meaning                                                         |
//! |--------|-------|----------|-----------------------------------------------------------------|
//! | 0      | 8     | `bits`   | at least 1                                                      |
//! | 8      | 8     | `probes` | 1 to 64                                                         |
//! | 16     | 8     | `keys`   | insertions that set a bit                                       |
//! | 24     | 8 × w | `words`  | bit `i` is bit `i % 64` of word `i / 64`; w is bits / 64, rounded up; bits after the last are zero |

use core::{fmt, hash::BuildHasher};

use super::bits::Bits;
use super::probes::{PROBES_MAX, Places};
use crate::decode_error::DecodeError;
use crate::filter::{Filter, FilterStats, ShapeMismatch};
#[cfg(not(feature = "std"))]
use crate::float::Float;
use crate::hash::{Xxh3, hash_with};
use crate::params::{bloom_bits, bloom_fpr_from_fill, bloom_keys_from_fill, bloom_probes};
use crate::saved::{Payload, Reader, SavedKind, Writer, hash_check};

/// A Bloom filter for one writer. See [`AtomicBloomFilter`](super::AtomicBloomFilter) for several.
///
/// ```
/// use sievedb_filter::standalone::BloomFilter;
///
/// let mut seen = BloomFilter::with_rate(1_000, 0.01);
/// assert!(!seen.insert("https://example.org/"), "new");
/// assert!(seen.insert("https://example.org/"), "seen before");
/// assert!(!seen.may_contain("https://example.org/other"));
/// ```
#[derive(Clone)]
pub struct BloomFilter<S = Xxh3> {
    bits: Bits,
    probes: u32,
    keys: u64,
    hasher: S,
}

impl BloomFilter {
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

    /// Creates an empty filter of `bits` bits and `probes` probes per key.
    ///
    /// # Panics
    ///
    /// If `bits` is 0, the filter exceeds the memory, or `probes` is not from 1 to [`PROBES_MAX`].
    #[must_use]
    pub fn with_shape(bits: u64, probes: u32) -> Self {
        Self::with_shape_and_hasher(bits, probes, Xxh3::default())
    }
}

impl<S: BuildHasher> BloomFilter<S> {
    /// Creates a filter like [`with_rate`](BloomFilter::with_rate), with a hasher.
    ///
    /// # Panics
    ///
    /// As [`with_rate`](BloomFilter::with_rate).
    #[must_use]
    pub fn with_rate_and_hasher(capacity: u64, fpr: f64, hasher: S) -> Self {
        let (bits, probes) = shape_for(capacity, fpr);
        Self::with_shape_and_hasher(bits, probes, hasher)
    }

    /// Creates a filter like [`with_shape`](BloomFilter::with_shape), with a hasher.
    ///
    /// # Panics
    ///
    /// As [`with_shape`](BloomFilter::with_shape).
    #[must_use]
    pub fn with_shape_and_hasher(bits: u64, probes: u32, hasher: S) -> Self {
        assert!((1..=PROBES_MAX).contains(&probes), "probes is {probes}");
        Self { bits: Bits::new(bits), probes, keys: 0, hasher }
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
        let present = self.bits.set_all(Places::anywhere(hash, self.bits.len()).take(self.probes));
        // A saved count is arbitrary.
        self.keys = self.keys.saturating_add(u64::from(!present));
        present
    }

    /// Returns `false` only if no key with this hash was inserted.
    #[doc(alias = "contains")]
    #[inline]
    #[must_use]
    pub fn may_contain_hash(&self, hash: u64) -> bool {
        self.bits.all(Places::anywhere(hash, self.bits.len()).take(self.probes))
    }

    /// Adds all keys of `other`. The result is the filter over the union.
    ///
    /// # Errors
    ///
    /// [`ShapeMismatch`] if bits, probes or hasher differ. The filter is then unchanged.
    pub fn union(&mut self, other: &Self) -> Result<(), ShapeMismatch> {
        self.check_shape(other)?;
        self.bits.combine(&other.bits, |ours, theirs| ours | theirs);
        self.keys = self.keys_by_bits();
        Ok(())
    }

    /// Keeps the bits that are set in both filters: common keys are still found.
    ///
    /// The rate is at most the smaller of the two. It is above that of a filter over the common
    /// keys, because other keys may share bits.
    ///
    /// # Errors
    ///
    /// [`ShapeMismatch`] if bits, probes or hasher differ. The filter is then unchanged.
    pub fn intersect(&mut self, other: &Self) -> Result<(), ShapeMismatch> {
        self.check_shape(other)?;
        self.bits.combine(&other.bits, |ours, theirs| ours & theirs);
        self.keys = self.keys_by_bits();
        Ok(())
    }

    /// Removes every key. Keeps the memory.
    pub fn clear(&mut self) {
        self.bits.clear();
        self.keys = 0;
    }

    /// Returns the size of the array, in bits.
    #[must_use]
    pub fn bits(&self) -> u64 {
        self.bits.len()
    }

    /// Returns the bits set per key.
    #[must_use]
    pub fn probes(&self) -> u32 {
        self.probes
    }

    /// Returns the number of insertions of keys that were definitely absent. After
    /// [`union`](Self::union) or [`intersect`](Self::intersect), an estimate from the bits.
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
            ("bits", self.bits.len(), other.bits.len()),
            ("probes", self.probes.into(), other.probes.into()),
            ("hasher", hash_check(&self.hasher), hash_check(&other.hasher)),
        ])
    }

    /// Estimates the keys from the bits; [`u64::MAX`] if all are set.
    fn keys_by_bits(&self) -> u64 {
        // The cast saturates.
        self.stats().keys_estimated.round() as u64
    }
}

/// Conversions to and from other filters.
impl<S> BloomFilter<S> {
    pub(super) fn from_parts(bits: Bits, probes: u32, keys: u64, hasher: S) -> Self {
        Self { bits, probes, keys, hasher }
    }

    pub(super) fn into_parts(self) -> (Bits, u32, u64, S) {
        (self.bits, self.probes, self.keys, self.hasher)
    }
}

impl<S: BuildHasher> Filter for BloomFilter<S> {
    #[inline]
    fn may_contain_hash(&self, hash: u64) -> bool {
        self.may_contain_hash(hash)
    }

    fn memory_bytes(&self) -> usize {
        self.bits.memory_bytes()
    }

    /// Returns the share of set bits to the power of the probes. Constant time.
    fn expected_fpr(&self) -> f64 {
        bloom_fpr_from_fill(self.bits.fill(), self.probes)
    }

    fn stats(&self) -> FilterStats {
        bloom_stats(&self.bits, self.probes, self.keys)
    }
}

impl<S: BuildHasher> Payload for BloomFilter<S> {
    const KIND: SavedKind = SavedKind::Bloom;

    fn write_payload(&self, writer: &mut Writer) {
        write_bloom(&self.bits, self.probes, self.keys, writer);
    }

    fn read_payload(reader: &mut Reader<'_>, hasher: S) -> Result<Self, DecodeError> {
        let bits = reader.u64_in("filter bits", 1..=u64::MAX)?;
        let probes = reader.u64_in("filter probes", 1..=PROBES_MAX.into())? as u32; // At most 64.
        let keys = reader.u64("filter keys")?;
        Ok(Self { bits: Bits::read(reader, bits)?, probes, keys, hasher })
    }
}

/// Equal filters give equal results: same shape, bits and hasher.
impl<S: BuildHasher> PartialEq for BloomFilter<S> {
    fn eq(&self, other: &Self) -> bool {
        self.check_shape(other).is_ok() && self.bits == other.bits
    }
}

/// Prints the shape and the load, not the bits.
impl<S> fmt::Debug for BloomFilter<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BloomFilter")
            .field("bits", &self.bits.len())
            .field("probes", &self.probes)
            .field("keys", &self.keys)
            .field("fill", &self.bits.fill())
            .finish_non_exhaustive()
    }
}

/// Returns bits and probes for `capacity` keys at rate `fpr`.
pub(super) fn shape_for(capacity: u64, fpr: f64) -> (u64, u32) {
    assert!(fpr > 0.0 && fpr < 1.0, "fpr is {fpr}");
    let capacity = capacity.max(1);
    let bits = bloom_bits(capacity, fpr).max(1);
    (bits, bloom_probes(bits as f64 / capacity as f64).min(PROBES_MAX))
}

/// Returns the statistics of an array in which a key sets `probes` bits.
pub(super) fn bloom_stats(bits: &Bits, probes: u32, keys: u64) -> FilterStats {
    let fill = bits.fill();
    FilterStats {
        bits: bits.len(),
        probes,
        keys,
        keys_estimated: bloom_keys_from_fill(bits.len(), bits.ones(), probes),
        fill,
        fpr: bloom_fpr_from_fill(fill, probes),
    }
}

/// Writes the [payload](self#saved-payload).
pub(super) fn write_bloom(bits: &Bits, probes: u32, keys: u64, writer: &mut Writer) {
    writer.u64(bits.len());
    writer.u64(probes.into());
    writer.u64(keys);
    bits.write(writer);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(keys: impl Iterator<Item = u32>) -> BloomFilter {
        let mut filter = BloomFilter::with_rate(1000, 0.01);
        keys.for_each(|key| {
            filter.insert(key.to_string());
        });
        filter
    }

    #[test]
    fn shapes_follow_the_formulas() {
        let cases = [
            ("1 %", 1_000_000, 0.01, 9_585_059, 7),
            ("nearly 1", 10, 0.999_999, 1, 1),
            ("no keys", 0, 0.01, 10, 7),
            ("tiny", 1000, 1e-30, 143_776, PROBES_MAX),
        ];
        for (name, capacity, fpr, bits, probes) in cases {
            let filter = BloomFilter::with_rate(capacity, fpr);
            assert_eq!((filter.bits(), filter.probes()), (bits, probes), "{name}");
        }
    }

    /// Positions above 32 bits. Only a few pages of the memory are written.
    #[cfg_attr(miri, ignore = "an array of 640 MiB")]
    #[test]
    fn a_large_array_is_used_evenly() {
        const BITS: u64 = 5 << 30;
        let mut filter = BloomFilter::with_shape(BITS, 12);
        let mut quarters = [0; 4];
        for i in 0..1000_u64 {
            let hash = i.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            for place in Places::anywhere(hash, BITS).take(12) {
                quarters[(place / (BITS / 4)) as usize] += 1;
            }
            assert!(!filter.insert_hash(hash) && filter.may_contain_hash(hash), "{i}");
        }
        assert!(quarters.iter().all(|&n| (2_700..3_300).contains(&n)), "{quarters:?}");
    }

    #[test]
    fn a_union_equals_the_filter_over_both_sets() {
        let mut union = filled(0..500);
        union.union(&filled(300..900)).expect("equal shapes");
        assert!(union == filled(0..900));
        assert!(union.keys().abs_diff(900) < 30, "{union:?}");
    }

    #[test]
    fn an_intersection_keeps_the_common_keys() {
        let mut common = filled(0..500);
        common.intersect(&filled(300..900)).expect("equal shapes");
        assert!((300..500).all(|key: u32| common.may_contain(key.to_string())));
        assert!(common.expected_fpr() < filled(0..500).expected_fpr());
    }

    #[test]
    fn unequal_filters_are_not_combined() {
        let seeded = |seed| BloomFilter::with_shape_and_hasher(640, 3, Xxh3::with_seed(seed));
        let cases = [
            ("bits", BloomFilter::with_shape(641, 3)),
            ("probes", BloomFilter::with_shape(640, 4)),
            ("hasher", seeded(1)),
        ];
        for (what, other) in cases {
            let mut filter = seeded(0);
            filter.insert("a");
            let before = filter.clone();
            assert_eq!(filter.union(&other).map_err(|error| error.what), Err(what));
            assert_eq!(filter.intersect(&other).map_err(|error| error.what), Err(what));
            assert!(filter == before && filter != other, "{what}");
        }
    }

    #[test]
    fn a_saved_filter_round_trips() {
        let filter = filled(0..700);
        let read = BloomFilter::from_bytes(&filter.to_bytes()).expect("just written");
        assert!(read == filter);
        assert_eq!(read.stats(), filter.stats());
    }
}
