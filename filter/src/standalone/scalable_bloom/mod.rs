//! Scalable Bloom filter: grows with the number of keys.
//!
//! A chain of filters, the layers. When the newest layer is at capacity, a larger one is added. Its
//! rate is lower by the tightening ratio `t`: layer `i` has the rate `p (1 - t) t^i`. The sum of
//! the rates is less than `p`, the requested rate, for any number of layers.
//!
//! A probe tests all layers, the newest first, because it has most of the keys. Layers are blocked
//! filters, so a probe costs one cache line in each. With classic filters, six layers would be a
//! tenth smaller: 20.6 instead of 22.5 bits per key. A miss would be two to three times as slow: 50
//! instead of 18 ns for 20,000 keys, 373 instead of 107 ns for 10 million.
//!
//! A smaller ratio makes late layers strict, a larger one the first. With the default of 0.8 the
//! first layer has a fifth of the rate, and the sixth, a thousand times larger, a fifteenth. That
//! costs about 4 to 7 bits per key, besides the unused capacity of the newest layer.
//!
//! Source: Almeida, Baquero, Preguiça, Hutchison, "Scalable Bloom Filters", Information Processing
//! Letters 101(6), 2007. There the first layer has the rate `p`, and the total is `p / (1 - t)`.
//!
//! # Saved payload
//!
//! Within the [envelope](crate::saved). Integers are little-endian.
//!
//! | offset | bytes | field        | meaning                                        |
//! |--------|-------|--------------|------------------------------------------------|
//! | 0      | 8     | `capacity`   | keys of the first layer, at least 1            |
//! | 8      | 8     | `fpr`        | as a 64-bit float, 1e-8 to 0.5                 |
//! | 16     | 8     | `growth`     | 2 to 16                                        |
//! | 24     | 8     | `tightening` | as a 64-bit float, 0.1 to 0.99                 |
//! | 32     | 8     | `n`          | number of layers, 1 to 64                      |
//! | 40     |       | `layers`     | n layers, the oldest first                     |
//!
//! A layer:
//!
//! | offset | bytes  | field    | meaning                                                |
//! |--------|--------|----------|--------------------------------------------------------|
//! | 0      | 8      | `lines`  | at least capacity × growth^(number of the layer) / 512 |
//! | 8      | 8      | `probes` | 1 to 16                                                |
//! | 16     | 8      | `keys`   | at most capacity × growth^(number of the layer)        |
//! | 24     | 64 × m | `bits`   | m lines, bit `i` of a line is bit `i % 8` of byte `i / 8` |

mod layer;

use alloc::{vec, vec::Vec};
use core::{fmt, hash::BuildHasher, ops::RangeInclusive};

use self::layer::Layer;
use crate::decode_error::DecodeError;
use crate::filter::{Filter, FilterStats};
#[cfg(not(feature = "std"))]
use crate::float::Float;
use crate::hash::{Xxh3, hash_with};
use crate::line::Path;
use crate::saved::{Payload, Reader, SavedKind, Writer};

/// Default factor by which a layer is larger than the previous one.
const GROWTH: u32 = 4;
const GROWTH_MAX: u32 = 16;
/// Default factor of the rate from layer to layer.
const TIGHTENING: f64 = 0.8;
const TIGHTENING_MIN: f64 = 0.1;
const TIGHTENING_MAX: f64 = 0.99;
/// Smaller rates are lost in the rounding of the formula for a layer.
const FPR_MIN: f64 = 1e-8;
/// Up to this rate a layer has at least one bit per key. So the bytes of a saved layer justify its
/// capacity.
const FPR_MAX: f64 = 0.5;
/// More layers of at least doubling size exceed any memory.
const LAYERS_MAX: u64 = 64;

/// A growing Bloom filter for one writer.
///
/// ```
/// use sievedb_filter::standalone::ScalableBloom;
///
/// let mut seen = ScalableBloom::with_rate(100, 0.01);
/// for page in 0..10_000_u32 {
///     seen.insert(page.to_le_bytes());
/// }
/// assert!((0..10_000_u32).all(|page| seen.may_contain(page.to_le_bytes())));
/// assert!(seen.layers() == 5 && seen.expected_fpr() < 0.01);
/// ```
#[derive(Clone)]
pub struct ScalableBloom<S = Xxh3> {
    /// The oldest first; never empty.
    layers: Vec<Layer>,
    path: Path,
    growth: u32,
    fpr: f64,
    tightening: f64,
    hasher: S,
}

impl ScalableBloom {
    /// Creates an empty filter whose false-positive rate stays below `fpr` for any number of keys.
    ///
    /// The first layer has room for `capacity` keys, each further one for four times as many as the
    /// previous one. `capacity` 0 counts as 1, a rate above 0.5 as 0.5.
    ///
    /// # Panics
    ///
    /// If `fpr` is not in `1e-8 <= fpr < 1`, or the first layer exceeds the memory.
    #[must_use]
    pub fn with_rate(capacity: u64, fpr: f64) -> Self {
        Self::with_rate_and_hasher(capacity, fpr, Xxh3::default())
    }

    /// Creates a filter like [`with_rate`](Self::with_rate), but each layer is `growth` times as
    /// large as the previous one, from 2 to 16 (default 4). The rate of a layer is `tightening`
    /// times that of the previous one, from 0.1 to 0.99 (default 0.8).
    ///
    /// # Panics
    ///
    /// As [`with_rate`](Self::with_rate), or if `growth` or `tightening` is out of range.
    #[must_use]
    pub fn with_shape(capacity: u64, fpr: f64, growth: u32, tightening: f64) -> Self {
        Self::with_shape_and_hasher(capacity, fpr, growth, tightening, Xxh3::default())
    }
}

impl<S: BuildHasher> ScalableBloom<S> {
    /// Creates a filter like [`with_rate`](ScalableBloom::with_rate), with a hasher.
    ///
    /// # Panics
    ///
    /// As [`with_rate`](ScalableBloom::with_rate).
    #[must_use]
    pub fn with_rate_and_hasher(capacity: u64, fpr: f64, hasher: S) -> Self {
        Self::with_shape_and_hasher(capacity, fpr, GROWTH, TIGHTENING, hasher)
    }

    /// Creates a filter like [`with_shape`](ScalableBloom::with_shape), with a hasher.
    ///
    /// # Panics
    ///
    /// As [`with_shape`](ScalableBloom::with_shape).
    #[must_use]
    pub fn with_shape_and_hasher(
        capacity: u64,
        fpr: f64,
        growth: u32,
        tightening: f64,
        hasher: S,
    ) -> Self {
        assert!((FPR_MIN..1.0).contains(&fpr), "fpr is {fpr}");
        let fpr = fpr.min(FPR_MAX);
        assert!((2..=GROWTH_MAX).contains(&growth), "growth is {growth}");
        assert!(
            (TIGHTENING_MIN..=TIGHTENING_MAX).contains(&tightening),
            "tightening is {tightening}"
        );
        let first = Layer::new(capacity.max(1), fpr * (1.0 - tightening));
        Self { layers: vec![first], path: Path::detect(), growth, fpr, tightening, hasher }
    }

    /// Inserts a key unless it may be present. Returns `true` if it may be present.
    ///
    /// Costs a probe, and rarely the allocation of a layer.
    ///
    /// # Panics
    ///
    /// If the next layer exceeds the memory.
    #[inline]
    pub fn insert(&mut self, key: impl AsRef<[u8]>) -> bool {
        self.insert_hash(hash_with(&self.hasher, key.as_ref()))
    }

    /// Inserts a key by its hash, as [`insert`](Self::insert).
    ///
    /// # Panics
    ///
    /// As [`insert`](Self::insert).
    #[inline]
    pub fn insert_hash(&mut self, hash: u64) -> bool {
        if self.may_contain_hash(hash) {
            return true;
        }
        if self.newest().is_full() {
            self.grow();
        }
        self.layers.last_mut().expect("a filter has a layer").insert(hash, self.path);
        false
    }

    fn newest(&self) -> &Layer {
        self.layers.last().expect("a filter has a layer")
    }

    #[cold]
    fn grow(&mut self) {
        let capacity = self.newest().capacity.saturating_mul(self.growth.into());
        // At most 64 layers: each is at least twice the size of the previous one.
        let stricter = self.tightening.powi(self.layers.len() as i32);
        // Lower rates would be lost in rounding; the sum over 64 layers is negligible.
        let fpr = (self.fpr * (1.0 - self.tightening) * stricter).max(FPR_MIN / 1e3);
        self.layers.push(Layer::new(capacity, fpr));
    }

    /// Returns `false` only if no key with this hash was inserted.
    ///
    /// Reads a cache line of each layer, up to the first that matches.
    #[doc(alias = "contains")]
    #[inline]
    #[must_use]
    pub fn may_contain_hash(&self, hash: u64) -> bool {
        // Costs 2 ns if all layers are in the caches, saves a tenth of the time otherwise.
        self.prefetch(hash);
        self.layers.iter().rev().any(|layer| layer.may_contain(hash, self.path))
    }

    /// Prefetches the lines that a probe of this hash reads.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        self.layers.iter().for_each(|layer| layer.prefetch(hash));
    }

    /// Removes every key, and frees all layers but the first.
    pub fn clear(&mut self) {
        self.layers.truncate(1);
        self.layers.iter_mut().for_each(Layer::clear);
    }

    /// Returns the number of insertions of keys that were definitely absent.
    #[must_use]
    pub fn keys(&self) -> u64 {
        self.layers.iter().fold(0, |keys: u64, layer| keys.saturating_add(layer.keys))
    }

    /// Returns the number of layers, at least 1.
    #[must_use]
    pub fn layers(&self) -> usize {
        self.layers.len()
    }

    /// Returns the requested rate, which the filter does not exceed.
    #[must_use]
    pub fn fpr_max(&self) -> f64 {
        self.fpr
    }

    /// Returns the hasher.
    #[must_use]
    pub fn hasher(&self) -> &S {
        &self.hasher
    }
}

impl<S: BuildHasher> Filter for ScalableBloom<S> {
    #[inline]
    fn may_contain_hash(&self, hash: u64) -> bool {
        self.may_contain_hash(hash)
    }

    fn memory_bytes(&self) -> usize {
        self.layers.iter().map(Layer::memory_bytes).sum()
    }

    /// Returns the rate computed from the bits of all layers; see
    /// [`blocked_bloom_fpr_of`](crate::params::blocked_bloom_fpr_of). Reads all bits.
    fn expected_fpr(&self) -> f64 {
        self.stats().fpr
    }

    /// Returns the statistics. Reads all bits.
    fn stats(&self) -> FilterStats {
        let bits = self.memory_bytes() as u64 * 8;
        let (mut probes, mut bits_set, mut keys_estimated, mut negative) = (0, 0, 0.0, 1.0);
        for layer in &self.layers {
            let set = layer.bits_set();
            probes += u32::from(layer.probes());
            bits_set += set;
            keys_estimated += layer.keys_estimated(set);
            negative *= 1.0 - layer.expected_fpr(set);
        }
        FilterStats {
            bits,
            probes,
            keys: self.keys(),
            keys_estimated,
            fill: bits_set as f64 / bits as f64,
            fpr: 1.0 - negative,
        }
    }
}

impl<S: BuildHasher> Payload for ScalableBloom<S> {
    const KIND: SavedKind = SavedKind::ScalableBloom;

    fn write_payload(&self, writer: &mut Writer) {
        writer.u64(self.layers[0].capacity);
        writer.u64(self.fpr.to_bits());
        writer.u64(self.growth.into());
        writer.u64(self.tightening.to_bits());
        writer.u64(self.layers.len() as u64);
        self.layers.iter().for_each(|layer| layer.write(writer));
    }

    fn read_payload(reader: &mut Reader<'_>, hasher: S) -> Result<Self, DecodeError> {
        let mut capacity = reader.u64_in("filter capacity", 1..=u64::MAX)?;
        let fpr = float_in(reader, "filter rate", FPR_MIN..=FPR_MAX)?;
        let growth = reader.u64_in("filter growth", 2..=GROWTH_MAX.into())? as u32; // At most 16.
        let tightening = float_in(reader, "filter tightening", TIGHTENING_MIN..=TIGHTENING_MAX)?;
        let n = reader.u64_in("filter layers", 1..=LAYERS_MAX)?;
        let mut layers = Vec::new();
        for _ in 0..n {
            layers.push(Layer::read(reader, capacity)?);
            capacity = capacity.saturating_mul(growth.into());
        }
        Ok(Self { layers, path: Path::detect(), growth, fpr, tightening, hasher })
    }
}

/// Reads a float that must be in `range`.
fn float_in(
    reader: &mut Reader<'_>,
    what: &'static str,
    range: RangeInclusive<f64>,
) -> Result<f64, DecodeError> {
    let bits = reader.u64(what)?;
    let value = f64::from_bits(bits);
    match range.contains(&value) {
        true => Ok(value),
        false => Err(DecodeError::OutOfRange { what, value: bits }),
    }
}

/// Prints the shape and the load, not the bits.
impl<S: BuildHasher> fmt::Debug for ScalableBloom<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScalableBloom")
            .field("layers", &self.layers.len())
            .field("fpr", &self.fpr)
            .field("keys", &self.keys())
            .finish_non_exhaustive()
    }
}

/// Compares layers, growth, rates and hasher.
impl<S: PartialEq> PartialEq for ScalableBloom<S> {
    fn eq(&self, other: &Self) -> bool {
        let shape = |filter: &Self| (filter.growth, filter.fpr, filter.tightening);
        shape(self) == shape(other) && self.layers == other.layers && self.hasher == other.hasher
    }
}

/// Rates are never NaN.
impl<S: Eq> Eq for ScalableBloom<S> {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::saved::Saved;

    fn filled(capacity: u64, keys: u32) -> ScalableBloom {
        let mut filter = ScalableBloom::with_rate(capacity, 0.02);
        (0..keys).for_each(|key| {
            filter.insert(key.to_le_bytes());
        });
        filter
    }

    #[test]
    fn layers_are_added_at_capacity() {
        // The first false positives come later: these counts are exact.
        let cases = [(0, 1), (1, 1), (10, 1), (11, 2), (50, 2), (51, 3), (210, 3), (215, 4)];
        for (keys, layers) in cases {
            assert_eq!(filled(10, keys).layers(), layers, "{keys} keys");
        }
    }

    #[cfg_attr(miri, ignore = "long loops without unsafe code")]
    #[test]
    fn no_chain_exceeds_its_rate() {
        for (growth, tightening) in [(2, 0.5), (2, 0.9), (4, 0.8), (10, 0.1)] {
            let mut filter = ScalableBloom::with_shape(5, 0.05, growth, tightening);
            (0..20_000_u32).for_each(|key| {
                filter.insert(key.to_le_bytes());
            });
            let rate = filter.expected_fpr();
            assert!(rate > 0.0 && rate < 0.05, "growth {growth}, tightening {tightening}: {rate}");
        }
    }

    #[cfg_attr(miri, ignore = "long loops without unsafe code")]
    #[test]
    fn a_saved_filter_round_trips() {
        let filter = filled(10, 3000);
        let bytes = filter.to_bytes();
        let mut read: ScalableBloom = Saved::from_bytes(&bytes).expect("just written");
        assert_eq!(read.to_bytes(), bytes);
        assert_eq!(read.stats(), filter.stats());
        assert!(
            (filter.stats().keys_estimated / 3000.0 - 1.0).abs() < 0.05,
            "{:?}",
            filter.stats()
        );
        read.clear();
        assert_eq!(read.to_bytes(), filled(10, 0).to_bytes());
    }
}
