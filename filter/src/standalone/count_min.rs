//! Count-min sketch: estimates how often a key was inserted, never too low, rarely much too high.
//!
//! A key has a counter in each row, shared with other keys; the estimate is their minimum. With
//! width `w` and depth `d`, an estimate exceeds the truth by more than `e / w` of all insertions
//! with a probability of at most `e^-d`.
//!
//! Updates are conservative: only counters below the key's new estimate are raised. Estimates never
//! exceed those of the plain update, and errors are several times smaller on skewed streams. Single
//! insertions cannot be undone. [`halve`](CountMinSketch::halve) ages all counters at once, for
//! cache admission by recent popularity.
//!
//! Sources: Cormode and Muthukrishnan, "An Improved Data Stream Summary: The Count-Min Sketch and
//! its Applications", J. Algorithms 55(1), 2005, for the bound; Estan and Varghese, "New Directions
//! in Traffic Measurement and Accounting", SIGCOMM 2002, for the conservative update; Einziger,
//! Friedman, Manes, "TinyLFU: A Highly Efficient Cache Admission Policy", ACM TOS 13(4), 2017, for
//! ageing; Kirsch and Mitzenmacher, "Less Hashing, Same Performance", ESA 2006, for rows without
//! independent hashes.
//!
//! # Saved payload
//!
//! Within the [envelope](crate::saved). Integers are little-endian.
//!
//! | offset | bytes     | field      | meaning                                                     |
//! |--------|-----------|------------|-------------------------------------------------------------|
//! | 0      | 8         | `width`    | counters of a row, at least 1                               |
//! | 8      | 8         | `depth`    | rows, 1 to 64                                               |
//! | 16     | 8         | `total`    | all insertions                                              |
//! | 24     | 8         | `keys`     | insertions of keys with an estimate of 0                    |
//! | 32     | 4 × w × d | `counters` | row after row                                               |

use alloc::boxed::Box;
use core::{fmt, hash::BuildHasher};

use super::probes::{PROBES_MAX, Places};
use crate::decode_error::DecodeError;
use crate::filter::{Filter, FilterFull, FilterStats, InsertFilter, ShapeMismatch};
#[cfg(not(feature = "std"))]
use crate::float::Float;
use crate::hash::{Xxh3, hash_with};
use crate::memory;
use crate::saved::{Payload, Reader, SavedKind, Writer, hash_check};

/// Maximum number of rows; `e^-64` is negligible.
const DEPTH_MAX: u32 = PROBES_MAX;

/// A count-min sketch for one writer.
///
/// As a [`Filter`] it matches keys with a nonzero estimate; after [`halve`](Self::halve), only keys
/// inserted often enough.
///
/// ```
/// use sievedb_filter::standalone::CountMinSketch;
///
/// let mut requests = CountMinSketch::with_error(0.001, 0.01);
/// assert_eq!(requests.insert("ant"), 1);
/// assert_eq!(requests.insert("ant"), 2);
/// assert_eq!(requests.estimate("bee"), 0);
/// requests.halve();
/// assert_eq!(requests.estimate("ant"), 1);
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct CountMinSketch<S = Xxh3> {
    /// Row after row.
    counters: Box<[u32]>,
    width: u64,
    depth: u32,
    total: u64,
    keys: u64,
    hasher: S,
}

impl CountMinSketch {
    /// Creates an empty sketch. Estimates exceed the truth by at most `epsilon` times
    /// [`total`](Self::total), except for a share `delta` of them.
    ///
    /// Has `ceil(ln(1 / delta))` rows of `ceil(e / epsilon)` counters of four bytes.
    ///
    /// # Panics
    ///
    /// If `epsilon` or `delta` is not in `0 < x < 1`, `delta` is below `e^-64`, or the sketch
    /// exceeds the memory.
    #[must_use]
    pub fn with_error(epsilon: f64, delta: f64) -> Self {
        Self::with_error_and_hasher(epsilon, delta, Xxh3::default())
    }

    /// Creates an empty sketch of `depth` rows of `width` counters.
    ///
    /// # Panics
    ///
    /// If `width` is 0, `depth` is not from 1 to 64, or the sketch exceeds the memory.
    #[must_use]
    pub fn with_shape(width: u64, depth: u32) -> Self {
        Self::with_shape_and_hasher(width, depth, Xxh3::default())
    }
}

impl<S: BuildHasher> CountMinSketch<S> {
    /// Creates a sketch like [`with_error`](CountMinSketch::with_error), with a hasher.
    ///
    /// # Panics
    ///
    /// As [`with_error`](CountMinSketch::with_error).
    #[must_use]
    pub fn with_error_and_hasher(epsilon: f64, delta: f64, hasher: S) -> Self {
        assert!(epsilon > 0.0 && epsilon < 1.0, "epsilon is {epsilon}");
        assert!(delta > 0.0 && delta < 1.0, "delta is {delta}");
        // The cast saturates, and a saturated width panics below.
        let width = (core::f64::consts::E / epsilon).ceil() as u64;
        let depth = (-delta.ln()).ceil().max(1.0) as u32;
        Self::with_shape_and_hasher(width, depth, hasher)
    }

    /// Creates a sketch like [`with_shape`](CountMinSketch::with_shape), with a hasher.
    ///
    /// # Panics
    ///
    /// As [`with_shape`](CountMinSketch::with_shape).
    #[must_use]
    pub fn with_shape_and_hasher(width: u64, depth: u32, hasher: S) -> Self {
        assert!(width > 0, "a row has counters");
        assert!((1..=DEPTH_MAX).contains(&depth), "depth is {depth}");
        let counters = width.checked_mul(depth.into()).and_then(|n| usize::try_from(n).ok());
        let counters = counters.expect("the sketch exceeds the address space");
        let counters = memory::filled(0, counters).into();
        Self { counters, width, depth, total: 0, keys: 0, hasher }
    }

    /// Counts a key. Returns the new estimate.
    #[inline]
    pub fn insert(&mut self, key: impl AsRef<[u8]>) -> u32 {
        self.insert_hash(hash_with(&self.hasher, key.as_ref()))
    }

    /// Counts a key by its hash, as [`insert`](Self::insert).
    #[inline]
    pub fn insert_hash(&mut self, hash: u64) -> u32 {
        self.add_hash(hash, 1)
    }

    /// Counts a key `count` times. Returns the new estimate, which saturates at [`u32::MAX`].
    #[inline]
    pub fn add(&mut self, key: impl AsRef<[u8]>, count: u32) -> u32 {
        self.add_hash(hash_with(&self.hasher, key.as_ref()), count)
    }

    /// Counts a key `count` times by its hash, as [`add`](Self::add).
    #[inline]
    pub fn add_hash(&mut self, hash: u64, count: u32) -> u32 {
        let before = self.estimate_hash(hash);
        let estimate = before.saturating_add(count);
        for place in self.places(hash) {
            let counter = &mut self.counters[place];
            *counter = (*counter).max(estimate);
        }
        // Saved counts are arbitrary.
        self.total = self.total.saturating_add(count.into());
        self.keys = self.keys.saturating_add(u64::from(before == 0 && count > 0));
        estimate
    }

    /// Estimates how often the key was inserted; never too low, unless [`halve`](Self::halve) was
    /// called.
    #[inline]
    #[must_use]
    pub fn estimate(&self, key: impl AsRef<[u8]>) -> u32 {
        self.estimate_hash(hash_with(&self.hasher, key.as_ref()))
    }

    /// Estimates how often a key with this hash was inserted, as [`estimate`](Self::estimate).
    #[inline]
    #[must_use]
    pub fn estimate_hash(&self, hash: u64) -> u32 {
        self.places(hash).fold(u32::MAX, |least, place| least.min(self.counters[place]))
    }

    /// Returns the positions of the counters of a key, one per row.
    #[inline]
    fn places(&self, hash: u64) -> impl Iterator<Item = usize> + use<S> {
        // Positions are in memory and so fit a `usize`.
        Places::one_per_slice(hash, self.width).take(self.depth).map(|place| place as usize)
    }

    /// Returns `false` only if no key with this hash was inserted, or its insertions were forgotten
    /// by [`halve`](Self::halve).
    #[doc(alias = "contains")]
    #[inline]
    #[must_use]
    pub fn may_contain_hash(&self, hash: u64) -> bool {
        self.estimate_hash(hash) != 0
    }

    /// Halves every counter, rounding down: earlier insertions count half.
    ///
    /// An estimate is then never below half of the truth, rounded down; keys inserted once are
    /// forgotten. Reads and writes all counters: call it once in some multiple of
    /// [`width`](Self::width) insertions.
    pub fn halve(&mut self) {
        for counter in &mut self.counters {
            *counter /= 2;
        }
        self.total /= 2;
        self.keys = self.keys_by_counters();
    }

    /// Adds the counts of `other`.
    ///
    /// Estimates are never too low. They may be higher than those of one sketch over both streams,
    /// because the conservative update was applied to each stream separately. The bound holds.
    ///
    /// # Errors
    ///
    /// [`ShapeMismatch`] if width, depth or hasher differ. The sketch is then unchanged.
    pub fn merge(&mut self, other: &Self) -> Result<(), ShapeMismatch> {
        ShapeMismatch::check(&[
            ("width", self.width, other.width),
            ("depth", self.depth.into(), other.depth.into()),
            ("hasher", hash_check(&self.hasher), hash_check(&other.hasher)),
        ])?;
        for (counter, &other) in self.counters.iter_mut().zip(&other.counters) {
            *counter = counter.saturating_add(other);
        }
        self.total = self.total.saturating_add(other.total);
        self.keys = self.keys_by_counters();
        Ok(())
    }

    /// Removes every key. Keeps the memory.
    pub fn clear(&mut self) {
        self.counters.fill(0);
        self.total = 0;
        self.keys = 0;
    }

    /// Returns the number of insertions; [`halve`](Self::halve) halves it.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Returns the counters per row.
    #[must_use]
    pub fn width(&self) -> u64 {
        self.width
    }

    /// Returns the number of rows: counters per key.
    #[must_use]
    pub fn depth(&self) -> u32 {
        self.depth
    }

    /// Returns the share of [`total`](Self::total) by which an estimate may be too high: `e /
    /// width`.
    #[must_use]
    pub fn epsilon(&self) -> f64 {
        core::f64::consts::E / self.width as f64
    }

    /// Returns the maximum share of estimates that exceed this error: `e^-depth`.
    #[must_use]
    pub fn delta(&self) -> f64 {
        (-f64::from(self.depth)).exp()
    }

    /// Returns the current error bound of estimates, except for a share [`delta`](Self::delta) of
    /// them: [`epsilon`](Self::epsilon) times [`total`](Self::total).
    #[must_use]
    pub fn error_bound(&self) -> f64 {
        self.epsilon() * self.total as f64
    }

    /// Returns the hasher.
    #[must_use]
    pub fn hasher(&self) -> &S {
        &self.hasher
    }

    /// Returns the share of nonzero counters of each row.
    fn fills(&self) -> impl Iterator<Item = f64> {
        // It was allocated with this width, which fits a `usize`.
        self.counters.chunks_exact(self.width as usize).map(|row| {
            row.iter().filter(|&&counter| counter != 0).count() as f64 / self.width as f64
        })
    }

    /// Estimates the distinct keys from the fill of the rows: `-width ln(1 - fill)`, on average.
    /// Infinite if all counters of a row are in use.
    fn keys_estimated(&self) -> f64 {
        let sum: f64 = self.fills().map(|fill| -(-fill).ln_1p()).sum();
        sum * self.width as f64 / f64::from(self.depth)
    }

    /// Rounds the estimated keys; [`u64::MAX`] if all counters of a row are in use.
    fn keys_by_counters(&self) -> u64 {
        // The cast saturates.
        self.keys_estimated().round() as u64
    }
}

impl<S: BuildHasher> Filter for CountMinSketch<S> {
    #[inline]
    fn may_contain_hash(&self, hash: u64) -> bool {
        self.may_contain_hash(hash)
    }

    fn memory_bytes(&self) -> usize {
        size_of_val(&*self.counters)
    }

    /// Returns the product of the rows' shares of nonzero counters. Reads all counters.
    fn expected_fpr(&self) -> f64 {
        self.fills().product()
    }

    /// Returns the statistics. Reads all counters. `keys` is the number of insertions of keys with
    /// an estimate of 0; after [`halve`](Self::halve) and [`merge`](Self::merge), an estimate.
    fn stats(&self) -> FilterStats {
        FilterStats {
            bits: self.counters.len() as u64 * u64::from(u32::BITS),
            probes: self.depth,
            keys: self.keys,
            keys_estimated: self.keys_estimated(),
            fill: self.fills().sum::<f64>() / f64::from(self.depth),
            fpr: self.expected_fpr(),
        }
    }
}

impl<S: BuildHasher> InsertFilter for CountMinSketch<S> {
    /// Never fails.
    #[inline]
    fn try_insert_hash(&mut self, hash: u64) -> Result<bool, FilterFull> {
        Ok(self.insert_hash(hash) > 1)
    }

    fn clear(&mut self) {
        self.clear();
    }
}

impl<S: BuildHasher> Payload for CountMinSketch<S> {
    const KIND: SavedKind = SavedKind::CountMin;

    fn write_payload(&self, writer: &mut Writer) {
        writer.u64(self.width);
        writer.u64(self.depth.into());
        writer.u64(self.total);
        writer.u64(self.keys);
        self.counters.iter().for_each(|counter| writer.bytes(&counter.to_le_bytes()));
    }

    fn read_payload(reader: &mut Reader<'_>, hasher: S) -> Result<Self, DecodeError> {
        let width = reader.u64_in("sketch width", 1..=u64::MAX)?;
        let depth = reader.u64_in("sketch depth", 1..=DEPTH_MAX.into())? as u32; // At most 64.
        let total = reader.u64("sketch total")?;
        let keys = reader.u64("sketch keys")?;
        let need = width.saturating_mul(u64::from(depth) * size_of::<u32>() as u64);
        let (counters, _) = reader.bytes("sketch counters", need)?.as_chunks();
        let counters = counters.iter().map(|&bytes| u32::from_le_bytes(bytes)).collect();
        Ok(Self { counters, width, depth, total, keys, hasher })
    }
}

/// Prints the shape and the load, not the counters.
impl<S> fmt::Debug for CountMinSketch<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CountMinSketch")
            .field("width", &self.width)
            .field("depth", &self.depth)
            .field("total", &self.total)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::saved::Saved;

    #[test]
    fn shapes_follow_the_bound() {
        let cases = [
            ("1 % of the total, 1 % of the keys", 0.01, 0.01, 272, 5),
            ("a thousandth", 0.001, 0.001, 2719, 7),
            ("hardly a bound", 0.9, 0.9, 4, 1),
        ];
        for (name, epsilon, delta, width, depth) in cases {
            let sketch = CountMinSketch::with_error(epsilon, delta);
            assert_eq!((sketch.width(), sketch.depth()), (width, depth), "{name}");
            assert!(sketch.epsilon() <= epsilon && sketch.delta() <= delta, "{name}");
        }
    }

    #[test]
    fn counters_saturate() {
        let mut sketch = CountMinSketch::with_shape(100, 3);
        assert_eq!(sketch.add("often", u32::MAX - 1), u32::MAX - 1);
        assert_eq!([(); 3].map(|()| sketch.insert("often")), [u32::MAX; 3]);
        let other = sketch.clone();
        sketch.merge(&other).expect("equal shapes");
        assert_eq!(sketch.estimate("often"), u32::MAX);
        assert_eq!(sketch.add("never", 0), 0);
        assert_eq!(sketch.keys, 1);
    }

    #[test]
    fn unequal_sketches_are_not_merged() {
        let seeded = |seed| CountMinSketch::with_shape_and_hasher(64, 3, Xxh3::with_seed(seed));
        let cases = [
            ("width", CountMinSketch::with_shape(65, 3)),
            ("depth", CountMinSketch::with_shape(64, 4)),
            ("hasher", seeded(1)),
        ];
        for (what, other) in cases {
            let mut sketch = seeded(0);
            sketch.insert("a");
            assert_eq!(sketch.merge(&other).map_err(|error| error.what), Err(what));
            assert_eq!(sketch.total(), 1, "{what}");
        }
    }

    #[cfg_attr(miri, ignore = "long loops without unsafe code")]
    #[test]
    fn a_saved_sketch_round_trips() {
        let mut sketch = CountMinSketch::with_error(0.01, 0.01);
        (0..3000_u32).for_each(|key| {
            sketch.insert((key % 700).to_le_bytes());
        });
        let read: CountMinSketch = Saved::from_bytes(&sketch.to_bytes()).expect("just written");
        assert!(read.counters == sketch.counters);
        assert_eq!((read.total(), read.stats()), (sketch.total(), sketch.stats()));
        assert!(read.stats().keys_estimated > 600.0, "{:?}", read.stats());
    }
}
