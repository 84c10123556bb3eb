//! The classic Bloom filter that many threads fill and ask at once, without a lock.
//!
//! Sets the same bits as a [`BloomFilter`], has the same [saved form](super::bloom#saved-payload),
//! and turns into one and back.
//!
//! # Memory order
//!
//! Every access is relaxed. Bits are only ever set, each by an atomic read-modify-write, so no
//! thread undoes the bit of another. A thread that learned of an insertion through a synchronising
//! edge (joining the inserting thread, a lock, a release store read with acquire) sees its bits. A
//! thread that asks without such an edge may still get "no": it cannot tell this from having asked
//! earlier.
//!
//! # Contention
//!
//! A bit that is set already is not written, and keys are counted in 16 stripes. So threads disturb
//! each other only where they set bits in the same line of 64 bytes at the same time, which is rare
//! once the filter is much larger than a cache. For a small one that many threads fill with new
//! keys see [`StripedBloomFilter`](super::StripedBloomFilter).

use core::{fmt, hash::BuildHasher};

use super::atomic_bits::AtomicBits;
use super::bloom::{BloomFilter, bloom_stats, shape_for, write_bloom};
use super::probes::{PROBES_MAX, Places};
use super::striped_counter::StripedCounter;
use crate::decode_error::DecodeError;
use crate::filter::{Filter, FilterFull, FilterStats, InsertFilter, KeyFilter, ShapeMismatch};
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
    /// An empty filter that reaches the false-positive rate `fpr` when it holds `capacity` keys; as
    /// [`BloomFilter::with_rate`].
    ///
    /// # Panics
    ///
    /// If `fpr` is not in `0 < fpr < 1`, or the memory cannot have so many bits.
    #[must_use]
    pub fn with_rate(capacity: u64, fpr: f64) -> Self {
        Self::with_rate_and_hasher(capacity, fpr, Xxh3::default())
    }

    /// An empty filter of `bits` bits, of which a key sets `probes`.
    ///
    /// # Panics
    ///
    /// If `bits` is 0 or more than the memory can have, or `probes` is not from 1 to
    /// [`PROBES_MAX`].
    #[must_use]
    pub fn with_shape(bits: u64, probes: u32) -> Self {
        Self::with_shape_and_hasher(bits, probes, Xxh3::default())
    }
}

impl<S: BuildHasher> AtomicBloomFilter<S> {
    /// As [`with_rate`](AtomicBloomFilter::with_rate), with a hasher.
    ///
    /// # Panics
    ///
    /// As [`with_rate`](AtomicBloomFilter::with_rate).
    #[must_use]
    pub fn with_rate_and_hasher(capacity: u64, fpr: f64, hasher: S) -> Self {
        let (bits, probes) = shape_for(capacity, fpr);
        Self::with_shape_and_hasher(bits, probes, hasher)
    }

    /// As [`with_shape`](AtomicBloomFilter::with_shape), with a hasher.
    ///
    /// # Panics
    ///
    /// As [`with_shape`](AtomicBloomFilter::with_shape).
    #[must_use]
    pub fn with_shape_and_hasher(bits: u64, probes: u32, hasher: S) -> Self {
        assert!((1..=PROBES_MAX).contains(&probes), "probes is {probes}");
        Self { bits: AtomicBits::new(bits), probes, keys: StripedCounter::with(0), hasher }
    }

    /// Adds a key. Returns whether it may have been there: `false` means it is surely new.
    ///
    /// If threads add the same new key at once, at least one of them is told that it is new; more
    /// of them may be.
    #[inline]
    pub fn insert(&self, key: impl AsRef<[u8]>) -> bool {
        self.insert_hash(hash_with(&self.hasher, key.as_ref()))
    }

    /// Adds a key by its hash, as [`insert`](Self::insert).
    #[inline]
    pub fn insert_hash(&self, hash: u64) -> bool {
        let places = Places::anywhere(hash, self.bits.len());
        let present = self.bits.set_all(places.take(self.probes));
        if !present {
            self.keys.increment();
        }
        present
    }

    /// Returns `false` only if the key was not added before (see [memory
    /// order](self#memory-order)).
    #[doc(alias = "contains")]
    #[inline]
    #[must_use]
    pub fn may_contain(&self, key: impl AsRef<[u8]>) -> bool {
        self.may_contain_hash(hash_with(&self.hasher, key.as_ref()))
    }

    /// Returns `false` only if no key with this hash was added before (see
    /// [memory order](self#memory-order)).
    #[doc(alias = "contains")]
    #[inline]
    #[must_use]
    pub fn may_contain_hash(&self, hash: u64) -> bool {
        self.bits.all(Places::anywhere(hash, self.bits.len()).take(self.probes))
    }

    /// Adds all keys of `other`, also while other threads insert.
    ///
    /// # Errors
    ///
    /// [`ShapeMismatch`] if bits, probes or hasher differ. Nothing is changed then.
    pub fn union(&self, other: &Self) -> Result<(), ShapeMismatch> {
        self.check_shape(other)?;
        self.bits.unite(&other.bits);
        Ok(())
    }

    /// Keeps the bits that `other` has too: as [`BloomFilter::intersect`]. The count of keys
    /// becomes the estimate from the bits.
    ///
    /// Through a unique reference: it would undo what another thread inserts at the same time.
    ///
    /// # Errors
    ///
    /// [`ShapeMismatch`] if bits, probes or hasher differ. Nothing is changed then.
    pub fn intersect(&mut self, other: &Self) -> Result<(), ShapeMismatch> {
        self.check_shape(other)?;
        self.bits.intersect(&other.bits);
        // A float turns into an integer by saturation.
        self.keys = StripedCounter::with(self.stats().keys_estimated.round() as u64);
        Ok(())
    }

    /// Forgets every key. Keeps the memory.
    pub fn clear(&mut self) {
        self.bits.clear();
        self.keys = StripedCounter::with(0);
    }

    /// Size of the array, in bits.
    #[must_use]
    pub fn bits(&self) -> u64 {
        self.bits.len()
    }

    /// Bits set per key.
    #[must_use]
    pub fn probes(&self) -> u32 {
        self.probes
    }

    /// Insertions that found a bit missing. A key that several threads inserted at once may count
    /// for each of them; keys that came by [`union`](Self::union) do not count.
    #[must_use]
    pub fn keys(&self) -> u64 {
        self.keys.sum()
    }

    /// The hasher it was made with.
    #[must_use]
    pub fn hasher(&self) -> &S {
        &self.hasher
    }

    /// A copy that one thread owns, of the bits that are set now.
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

    /// The share of set bits to the power of the probes. Counts the bits: 0.1 ms for a megabyte.
    fn expected_fpr(&self) -> f64 {
        self.stats().fpr
    }

    /// Counts the bits: 0.1 ms for a megabyte.
    fn stats(&self) -> FilterStats {
        bloom_stats(&self.bits.snapshot(), self.probes, self.keys())
    }
}

impl<S: BuildHasher> KeyFilter for AtomicBloomFilter<S> {
    type Hasher = S;

    fn hasher(&self) -> &S {
        &self.hasher
    }
}

impl<S: BuildHasher> InsertFilter for AtomicBloomFilter<S> {
    /// Never fails.
    #[inline]
    fn try_insert_hash(&mut self, hash: u64) -> Result<bool, FilterFull> {
        Ok(self.insert_hash(hash))
    }

    fn clear(&mut self) {
        self.clear();
    }
}

/// As a [`BloomFilter`]: either reads what the other wrote.
impl<S: BuildHasher> Payload for AtomicBloomFilter<S> {
    const KIND: SavedKind = SavedKind::Bloom;

    fn write_payload(&self, writer: &mut Writer) {
        write_bloom(&self.bits.snapshot(), self.probes, self.keys(), writer);
    }

    fn read_payload(reader: &mut Reader<'_>, hasher: S) -> Result<Self, DecodeError> {
        BloomFilter::read_payload(reader, hasher).map(Self::from)
    }
}

/// A copy of the bits that are set now.
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

/// Shows the shape and the load, not the bits.
impl<S> fmt::Debug for AtomicBloomFilter<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AtomicBloomFilter")
            .field("bits", &self.bits.len())
            .field("probes", &self.probes)
            .field("keys", &self.keys.sum())
            .finish_non_exhaustive()
    }
}
