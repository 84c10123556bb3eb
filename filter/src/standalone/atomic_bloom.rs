//! The classic Bloom filter with concurrent insertions and probes, without locks.
//!
//! Sets the same bits as a [`BloomFilter`], has the same [saved form](super::bloom#saved-payload),
//! and converts to and from one.
//!
//! # Memory order
//!
//! Every access is relaxed. Bits are only set, by atomic read-modify-writes, so no thread clears
//! the bit of another. A probe sees the bits of an insertion that happens before it: by joining the
//! inserting thread, a lock, or a release store and an acquire load. Without such an edge a probe
//! may miss a concurrent insertion, as if it had run earlier.
//!
//! # Contention
//!
//! A set bit is not written again, and keys are counted in 16 stripes. So threads contend only if
//! they set bits in the same cache line at the same time. This is rare in filters much larger than
//! a cache. For a small filter with many writers of new keys see
//! [`StripedBloomFilter`](super::StripedBloomFilter).

use core::{fmt, hash::BuildHasher};

use super::atomic_bits::AtomicBits;
use super::bloom::{BloomFilter, bloom_stats, shape_for, write_bloom};
use super::probes::{PROBES_MAX, Places};
use super::striped_counter::StripedCounter;
use crate::decode_error::DecodeError;
use crate::filter::{Filter, FilterStats, ShapeMismatch};
#[cfg(not(feature = "std"))]
use crate::float::Float;
use crate::hash::{Xxh3, hash_with};
use crate::saved::{Payload, Reader, SavedKind, Writer, hash_check};

/// A Bloom filter with insertion through a shared reference.
///
/// ```
/// use sievedb_filter::standalone::AtomicBloomFilter;
///
/// let seen = AtomicBloomFilter::with_rate(1_000, 0.01);
/// std::thread::scope(|scope| {
///     scope.spawn(|| seen.insert("ant"));
///     scope.spawn(|| seen.insert("bee"));
/// });
/// assert!(seen.may_contain("ant") && seen.may_contain("bee"));
/// ```
pub struct AtomicBloomFilter<S = Xxh3> {
    bits: AtomicBits,
    probes: u32,
    keys: StripedCounter,
    hasher: S,
}

impl AtomicBloomFilter {
    /// Creates an empty filter with false-positive rate `fpr` at `capacity` keys, as
    /// [`BloomFilter::with_rate`].
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

impl<S: BuildHasher> AtomicBloomFilter<S> {
    /// Creates a filter like [`with_rate`](AtomicBloomFilter::with_rate), with a hasher.
    ///
    /// # Panics
    ///
    /// As [`with_rate`](AtomicBloomFilter::with_rate).
    #[must_use]
    pub fn with_rate_and_hasher(capacity: u64, fpr: f64, hasher: S) -> Self {
        let (bits, probes) = shape_for(capacity, fpr);
        Self::with_shape_and_hasher(bits, probes, hasher)
    }

    /// Creates a filter like [`with_shape`](AtomicBloomFilter::with_shape), with a hasher.
    ///
    /// # Panics
    ///
    /// As [`with_shape`](AtomicBloomFilter::with_shape).
    #[must_use]
    pub fn with_shape_and_hasher(bits: u64, probes: u32, hasher: S) -> Self {
        assert!((1..=PROBES_MAX).contains(&probes), "probes is {probes}");
        Self { bits: AtomicBits::new(bits), probes, keys: StripedCounter::with(0), hasher }
    }

    /// Inserts a key. Returns `false` if it was definitely absent, `true` if it may have been
    /// present.
    ///
    /// If several threads insert the same new key concurrently, at least one of them gets `false`.
    #[inline]
    pub fn insert(&self, key: impl AsRef<[u8]>) -> bool {
        self.insert_hash(hash_with(&self.hasher, key.as_ref()))
    }

    /// Inserts a key by its hash, as [`insert`](Self::insert).
    #[inline]
    pub fn insert_hash(&self, hash: u64) -> bool {
        let places = Places::anywhere(hash, self.bits.len());
        let present = self.bits.set_all(places.take(self.probes));
        if !present {
            self.keys.increment();
        }
        // Shuttle would schedule the loads.
        debug_assert!(cfg!(feature = "shuttle") || self.may_contain_hash(hash), "a lost bit");
        present
    }

    /// Returns `false` only if no key with this hash was inserted before (see [memory
    /// order](self#memory-order)).
    #[doc(alias = "contains")]
    #[inline]
    #[must_use]
    pub fn may_contain_hash(&self, hash: u64) -> bool {
        self.bits.all(Places::anywhere(hash, self.bits.len()).take(self.probes))
    }

    /// Adds all keys of `other`. Other threads may insert meanwhile.
    ///
    /// # Errors
    ///
    /// [`ShapeMismatch`] if bits, probes or hasher differ. The filter is then unchanged.
    pub fn union(&self, other: &Self) -> Result<(), ShapeMismatch> {
        self.check_shape(other)?;
        self.bits.unite(&other.bits);
        Ok(())
    }

    /// Keeps the bits that are set in both filters, as [`BloomFilter::intersect`]. The key count
    /// becomes an estimate from the bits.
    ///
    /// Requires a unique reference, because it would undo concurrent insertions.
    ///
    /// # Errors
    ///
    /// [`ShapeMismatch`] if bits, probes or hasher differ. The filter is then unchanged.
    pub fn intersect(&mut self, other: &Self) -> Result<(), ShapeMismatch> {
        self.check_shape(other)?;
        self.bits.intersect(&other.bits);
        // The cast saturates.
        self.keys = StripedCounter::with(self.stats().keys_estimated.round() as u64);
        Ok(())
    }

    /// Removes every key. Keeps the memory.
    pub fn clear(&mut self) {
        self.bits.clear();
        self.keys = StripedCounter::with(0);
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

    /// Returns the number of insertions that set a bit. A key that several threads inserted
    /// concurrently may count several times. Keys added by [`union`](Self::union) do not count.
    #[must_use]
    pub fn keys(&self) -> u64 {
        self.keys.sum()
    }

    /// Returns the hasher.
    #[must_use]
    pub fn hasher(&self) -> &S {
        &self.hasher
    }

    /// Returns a copy of the current bits for one writer.
    #[must_use]
    pub fn to_bloom(&self) -> BloomFilter<S>
    where
        S: Clone,
    {
        BloomFilter::from_parts(self.bits.snapshot(), self.probes, self.keys(), self.hasher.clone())
    }

    fn check_shape(&self, other: &Self) -> Result<(), ShapeMismatch> {
        ShapeMismatch::check(&[
            ("bits", self.bits.len(), other.bits.len()),
            ("probes", self.probes.into(), other.probes.into()),
            ("hasher", hash_check(&self.hasher), hash_check(&other.hasher)),
        ])
    }
}

impl<S> From<BloomFilter<S>> for AtomicBloomFilter<S> {
    fn from(filter: BloomFilter<S>) -> Self {
        let (bits, probes, keys, hasher) = filter.into_parts();
        Self { bits: bits.into(), probes, keys: StripedCounter::with(keys), hasher }
    }
}

impl<S> From<AtomicBloomFilter<S>> for BloomFilter<S> {
    fn from(filter: AtomicBloomFilter<S>) -> Self {
        let AtomicBloomFilter { bits, probes, keys, hasher } = filter;
        Self::from_parts(bits.snapshot(), probes, keys.sum(), hasher)
    }
}

impl<S: BuildHasher> Filter for AtomicBloomFilter<S> {
    #[inline]
    fn may_contain_hash(&self, hash: u64) -> bool {
        self.may_contain_hash(hash)
    }

    fn memory_bytes(&self) -> usize {
        self.bits.memory_bytes() + self.keys.memory_bytes()
    }

    /// Returns the share of set bits to the power of the probes. Counts the bits: 0.1 ms per MB.
    fn expected_fpr(&self) -> f64 {
        self.stats().fpr
    }

    /// Counts the bits: 0.1 ms per MB.
    fn stats(&self) -> FilterStats {
        bloom_stats(&self.bits.snapshot(), self.probes, self.keys())
    }
}

/// The format of [`BloomFilter`]: either reads the other's.
impl<S: BuildHasher> Payload for AtomicBloomFilter<S> {
    const KIND: SavedKind = SavedKind::Bloom;

    fn write_payload(&self, writer: &mut Writer) {
        write_bloom(&self.bits.snapshot(), self.probes, self.keys(), writer);
    }

    fn read_payload(reader: &mut Reader<'_>, hasher: S) -> Result<Self, DecodeError> {
        BloomFilter::read_payload(reader, hasher).map(Self::from)
    }
}

/// Copies the current bits.
impl<S: Clone> Clone for AtomicBloomFilter<S> {
    fn clone(&self) -> Self {
        Self {
            bits: self.bits.snapshot().into(),
            probes: self.probes,
            keys: StripedCounter::with(self.keys.sum()),
            hasher: self.hasher.clone(),
        }
    }
}

/// Prints the shape and the load, not the bits.
impl<S> fmt::Debug for AtomicBloomFilter<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AtomicBloomFilter")
            .field("bits", &self.bits.len())
            .field("probes", &self.probes)
            .field("keys", &self.keys.sum())
            .finish_non_exhaustive()
    }
}
