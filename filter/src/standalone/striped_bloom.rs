//! A Bloom filter for heavy contention: each thread fills its own array.
//!
//! # When to use it
//!
//! Keys cannot be striped: all threads would still write all stripes, as they write all lines of an
//! [`AtomicBloomFilter`](super::AtomicBloomFilter). So each thread sets bits in one of several
//! arrays of full size, and a probe tests each bit in all of them. With as many stripes as threads,
//! no line has two writers. The rate is that of one filter with all keys.
//!
//! The cost is `stripes` times the memory, and `stripes` loads per probe. Insertions do not report
//! whether the key was present, because reading other stripes would be contention. Use this filter
//! if threads insert new keys into a filter that fits the caches, and rarely probe it. Example: a
//! filter filled in parallel and then [merged](StripedBloomFilter::to_bloom). Otherwise use an
//! atomic filter.
//!
//! Measured with 8 threads on 2 busy virtual cores and filters of 2 KiB to 5 MiB. In the caches
//! there is no gain over [`AtomicBloomFilter`](super::AtomicBloomFilter). Outside of them an
//! insertion takes up to twice the time. More cores contend more.
//!
//! Memory order is that of [`AtomicBloomFilter`](super::atomic_bloom#memory-order).

use alloc::boxed::Box;
use core::{fmt, hash::BuildHasher};

use super::atomic_bits::AtomicBits;
use super::bits::Bits;
use super::bloom::{BloomFilter, bloom_stats, shape_for};
use super::probes::Places;
use super::striped_counter::StripedCounter;
use crate::filter::{Filter, FilterFull, FilterStats, InsertFilter};
use crate::hash::{Xxh3, hash_with};
use crate::sync::thread_number;

/// A Bloom filter with one array for each of several threads.
///
/// It has no saved form of its own: save [`to_bloom`](Self::to_bloom), and continue with
/// [`from_bloom`](Self::from_bloom).
///
/// ```
/// use sievedb_filter::standalone::StripedBloomFilter;
///
/// let filter = StripedBloomFilter::with_rate(2, 1_000, 0.01);
/// std::thread::scope(|scope| {
///     scope.spawn(|| filter.insert("ant"));
///     scope.spawn(|| filter.insert("bee"));
/// });
/// let merged = filter.to_bloom();
/// assert!(merged.may_contain("ant") && merged.may_contain("bee"));
/// ```
pub struct StripedBloomFilter<S = Xxh3> {
    /// Never empty; of equal length.
    stripes: Box<[AtomicBits]>,
    probes: u32,
    keys: StripedCounter,
    hasher: S,
}

impl StripedBloomFilter {
    /// Creates an empty filter for `stripes` threads, with false-positive rate `fpr` at `capacity`
    /// keys, as [`BloomFilter::with_rate`].
    ///
    /// # Panics
    ///
    /// If `stripes` is 0, `fpr` is not in `0 < fpr < 1`, or the filter exceeds the memory.
    #[must_use]
    pub fn with_rate(stripes: usize, capacity: u64, fpr: f64) -> Self {
        Self::with_rate_and_hasher(stripes, capacity, fpr, Xxh3::default())
    }

    /// Creates an empty filter of `stripes` times `bits` bits, with `probes` probes per key.
    ///
    /// # Panics
    ///
    /// If `stripes` or `bits` is 0, the filter exceeds the memory, or `probes` is not from 1 to
    /// [`PROBES_MAX`](super::PROBES_MAX).
    #[must_use]
    pub fn with_shape(stripes: usize, bits: u64, probes: u32) -> Self {
        Self::with_shape_and_hasher(stripes, bits, probes, Xxh3::default())
    }
}

impl<S: BuildHasher> StripedBloomFilter<S> {
    /// Creates a filter like [`with_rate`](StripedBloomFilter::with_rate), with a hasher.
    ///
    /// # Panics
    ///
    /// As [`with_rate`](StripedBloomFilter::with_rate).
    #[must_use]
    pub fn with_rate_and_hasher(stripes: usize, capacity: u64, fpr: f64, hasher: S) -> Self {
        let (bits, probes) = shape_for(capacity, fpr);
        Self::with_shape_and_hasher(stripes, bits, probes, hasher)
    }

    /// Creates a filter like [`with_shape`](StripedBloomFilter::with_shape), with a hasher.
    ///
    /// # Panics
    ///
    /// As [`with_shape`](StripedBloomFilter::with_shape).
    #[must_use]
    pub fn with_shape_and_hasher(stripes: usize, bits: u64, probes: u32, hasher: S) -> Self {
        Self::from_bloom(stripes, BloomFilter::with_shape_and_hasher(bits, probes, hasher))
    }

    /// Creates a filter of `stripes` stripes with the keys of `filter`.
    ///
    /// # Panics
    ///
    /// If `stripes` is 0, or the filter exceeds the memory.
    #[must_use]
    pub fn from_bloom(stripes: usize, filter: BloomFilter<S>) -> Self {
        assert!(stripes > 0, "a filter has stripes");
        let (bits, probes, keys, hasher) = filter.into_parts();
        let len = bits.len();
        let others = (1..stripes).map(|_| AtomicBits::new(len));
        let stripes = core::iter::once(bits.into()).chain(others).collect();
        Self { stripes, probes, keys: StripedCounter::with(keys), hasher }
    }

    /// Inserts a key.
    #[inline]
    pub fn insert(&self, key: impl AsRef<[u8]>) {
        self.insert_hash(hash_with(&self.hasher, key.as_ref()));
    }

    /// Inserts a key by its hash.
    #[inline]
    pub fn insert_hash(&self, hash: u64) {
        let stripe = &self.stripes[thread_number() % self.stripes.len()];
        if !stripe.set_all(Places::anywhere(hash, self.bits()).take(self.probes)) {
            self.keys.increment();
        }
    }

    /// Returns `false` only if no key with this hash was inserted before.
    #[doc(alias = "contains")]
    #[inline]
    #[must_use]
    pub fn may_contain_hash(&self, hash: u64) -> bool {
        let places = Places::anywhere(hash, self.bits());
        AtomicBits::all_in(&self.stripes, places.take(self.probes))
    }

    /// Removes every key. Keeps the memory.
    pub fn clear(&mut self) {
        self.stripes.iter_mut().for_each(AtomicBits::clear);
        self.keys = StripedCounter::with(0);
    }

    /// Returns the size of each array, in bits.
    #[must_use]
    pub fn bits(&self) -> u64 {
        self.stripes[0].len()
    }

    /// Returns the bits set per key.
    #[must_use]
    pub fn probes(&self) -> u32 {
        self.probes
    }

    /// Returns the number of arrays.
    #[must_use]
    pub fn stripes(&self) -> usize {
        self.stripes.len()
    }

    /// Returns the number of insertions that set a bit in their stripe. A key that several threads
    /// inserted may count several times.
    #[must_use]
    pub fn keys(&self) -> u64 {
        self.keys.sum()
    }

    /// Returns the hasher.
    #[must_use]
    pub fn hasher(&self) -> &S {
        &self.hasher
    }

    /// Returns the filter over the keys of all stripes.
    #[must_use]
    pub fn to_bloom(&self) -> BloomFilter<S>
    where
        S: Clone,
    {
        let hasher = self.hasher.clone();
        BloomFilter::from_parts(self.merged(), self.probes, self.keys.sum(), hasher)
    }

    fn merged(&self) -> Bits {
        let mut bits = self.stripes[0].snapshot();
        for stripe in &self.stripes[1..] {
            bits.combine(&stripe.snapshot(), |ours, theirs| ours | theirs);
        }
        bits
    }
}

impl<S: BuildHasher> Filter for StripedBloomFilter<S> {
    #[inline]
    fn may_contain_hash(&self, hash: u64) -> bool {
        self.may_contain_hash(hash)
    }

    fn memory_bytes(&self) -> usize {
        let stripes: usize = self.stripes.iter().map(AtomicBits::memory_bytes).sum();
        stripes + size_of_val(&*self.stripes) + self.keys.memory_bytes()
    }

    /// Returns the share of set bits to the power of the probes. Merges the stripes to count the
    /// bits.
    fn expected_fpr(&self) -> f64 {
        self.stats().fpr
    }

    /// Returns the statistics of the merged filter; `bits` is the size of one stripe. A key that
    /// several threads inserted may count several times. Merges the stripes to count the bits.
    fn stats(&self) -> FilterStats {
        bloom_stats(&self.merged(), self.probes, self.keys.sum())
    }
}

impl<S: BuildHasher> InsertFilter for StripedBloomFilter<S> {
    /// Never fails. Probes and then inserts, which is atomic with a unique reference.
    #[inline]
    fn try_insert_hash(&mut self, hash: u64) -> Result<bool, FilterFull> {
        let present = self.may_contain_hash(hash);
        if !present {
            self.insert_hash(hash);
        }
        Ok(present)
    }

    fn clear(&mut self) {
        self.clear();
    }
}

/// Prints the shape and the load, not the bits.
impl<S> fmt::Debug for StripedBloomFilter<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StripedBloomFilter")
            .field("stripes", &self.stripes.len())
            .field("bits", &self.stripes[0].len())
            .field("probes", &self.probes)
            .field("keys", &self.keys.sum())
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;

    #[test]
    fn stripes_are_merged() {
        let filter = StripedBloomFilter::with_shape(3, 1000, 4);
        let mut want = BloomFilter::with_shape(1000, 4);
        // One thread after the other, each with its own number and stripe.
        for thread in 0..6_u32 {
            std::thread::scope(|scope| {
                scope.spawn(|| (0..10).for_each(|i| filter.insert((thread * 10 + i).to_string())));
            });
        }
        for key in 0..60_u32 {
            want.insert(key.to_string());
            assert!(filter.may_contain(key.to_string()), "{key}");
        }
        assert!(filter.to_bloom() == want);
        for hash in (0..1000_u64).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15)) {
            assert_eq!(filter.may_contain_hash(hash), want.may_contain_hash(hash));
        }
        let again = StripedBloomFilter::from_bloom(2, want.clone());
        assert!(again.to_bloom() == want);
    }
}
