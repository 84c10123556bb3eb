//! Counting Bloom filter: a Bloom filter with a four-bit counter per bit, so that keys can be
//! removed.
//!
//! A counter counts the keys that use it. At 15 it is saturated: it is never decremented again,
//! because its true value is unknown. So insertions and removals of present keys never cause false
//! negatives; a saturated counter only stays set. At the optimal size a counter saturates by chance
//! once in 10^15. Keys inserted more than 14 times saturate theirs.
//!
//! Uses four times the memory of a [`BloomFilter`](super::BloomFilter) at the same rate. A
//! [`CuckooFilter`](super::CuckooFilter) removes keys in a quarter of this, but can be full.
//!
//! Source: Fan, Cao, Almeida, Broder, "Summary Cache: A Scalable Wide-Area Web Cache Sharing
//! Protocol", IEEE/ACM Transactions on Networking 8(3), 2000.
//!
//! # Saved payload
//!
//! Within the [envelope](crate::saved). Integers are little-endian.
//!
//! | offset | bytes | field      | meaning                                                           |
//! |--------|-------|------------|-------------------------------------------------------------------|
//! | 0      | 8     | `counters` | number of counters, at least 1                                    |
//! | 8      | 8     | `probes`   | 1 to 64                                                           |
//! | 16     | 8     | `keys`     | insertions minus removals                                         |
//! | 24     | 8 × w | `words`    | counter `i` is the bits from `4 (i % 16)` of word `i / 16`; w is counters / 16, rounded up; counters after the last are zero |

use core::{fmt, hash::BuildHasher};

use super::bloom::shape_for;
use super::counters::{COUNTER_MAX, Counters};
use super::probes::{PROBES_MAX, Places};
use crate::decode_error::DecodeError;
use crate::filter::{Filter, FilterStats, RemoveFilter};
use crate::hash::{Xxh3, hash_with};
use crate::params::{bloom_fpr_from_fill, bloom_keys_from_fill};
use crate::saved::{Payload, Reader, SavedKind, Writer};

/// A counting Bloom filter for one writer.
///
/// ```
/// use sievedb_filter::standalone::CountingBloom;
///
/// let mut online = CountingBloom::with_rate(1_000, 0.01);
/// online.insert("ant");
/// online.insert("bee");
/// assert!(online.remove("ant"));
/// assert!(!online.may_contain("ant") && online.may_contain("bee"));
/// assert!(!online.remove("cow"), "was absent");
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct CountingBloom<S = Xxh3> {
    counters: Counters,
    probes: u32,
    keys: u64,
    hasher: S,
}

impl CountingBloom {
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

    /// Creates an empty filter of `counters` four-bit counters, of which a key increments `probes`.
    ///
    /// # Panics
    ///
    /// If `counters` is 0, the filter exceeds the memory, or `probes` is not from 1 to
    /// [`PROBES_MAX`].
    #[must_use]
    pub fn with_shape(counters: u64, probes: u32) -> Self {
        Self::with_shape_and_hasher(counters, probes, Xxh3::default())
    }
}

impl<S: BuildHasher> CountingBloom<S> {
    /// Creates a filter like [`with_rate`](CountingBloom::with_rate), with a hasher.
    ///
    /// # Panics
    ///
    /// As [`with_rate`](CountingBloom::with_rate).
    #[must_use]
    pub fn with_rate_and_hasher(capacity: u64, fpr: f64, hasher: S) -> Self {
        let (counters, probes) = shape_for(capacity, fpr);
        Self::with_shape_and_hasher(counters, probes, hasher)
    }

    /// Creates a filter like [`with_shape`](CountingBloom::with_shape), with a hasher.
    ///
    /// # Panics
    ///
    /// As [`with_shape`](CountingBloom::with_shape).
    #[must_use]
    pub fn with_shape_and_hasher(counters: u64, probes: u32, hasher: S) -> Self {
        assert!((1..=PROBES_MAX).contains(&probes), "probes is {probes}");
        Self { counters: Counters::new(counters), probes, keys: 0, hasher }
    }

    /// Inserts a key, which may be present: it must then be removed as often. Returns `false` if it
    /// was definitely absent, `true` if it may have been present.
    #[inline]
    pub fn insert(&mut self, key: impl AsRef<[u8]>) -> bool {
        self.insert_hash(hash_with(&self.hasher, key.as_ref()))
    }

    /// Inserts a key by its hash, as [`insert`](Self::insert).
    #[inline]
    pub fn insert_hash(&mut self, hash: u64) -> bool {
        let mut present = true;
        for place in self.places(hash) {
            present &= self.counters.increment(place) != 0;
        }
        // A saved count is arbitrary.
        self.keys = self.keys.saturating_add(1);
        present
    }

    /// Undoes one insertion of a key. Returns `false` and changes nothing if the key was definitely
    /// absent.
    ///
    /// Removing a key that was never inserted, but is a false positive, may cause false negatives
    /// for other keys. The filter cannot detect this.
    #[inline]
    pub fn remove(&mut self, key: impl AsRef<[u8]>) -> bool {
        self.remove_hash(hash_with(&self.hasher, key.as_ref()))
    }

    /// Undoes one insertion of a key by its hash, as [`remove`](Self::remove).
    pub fn remove_hash(&mut self, hash: u64) -> bool {
        for (taken, place) in self.places(hash).enumerate() {
            if self.counters.decrement(place) == 0 {
                self.undo_decrements(hash, taken);
                return false;
            }
        }
        self.keys = self.keys.saturating_sub(1);
        true
    }

    /// Undoes the decrements of the first `taken` probes.
    fn undo_decrements(&mut self, hash: u64, taken: usize) {
        for place in self.places(hash).take(taken) {
            // Saturated counters were not decremented.
            if self.counters.get(place) != COUNTER_MAX {
                self.counters.increment(place);
            }
        }
    }

    /// Returns `false` only if no key with this hash is in the filter.
    #[doc(alias = "contains")]
    #[inline]
    #[must_use]
    pub fn may_contain_hash(&self, hash: u64) -> bool {
        // Without an unpredictable branch per counter.
        self.places(hash).fold(true, |found, place| found & (self.counters.get(place) != 0))
    }

    /// Returns the positions of the counters of a key, which may repeat.
    #[inline]
    fn places(&self, hash: u64) -> impl Iterator<Item = u64> + use<S> {
        Places::anywhere(hash, self.counters.len()).take(self.probes)
    }

    /// Removes every key. Keeps the memory.
    pub fn clear(&mut self) {
        self.counters.clear();
        self.keys = 0;
    }

    /// Returns insertions minus removals.
    #[must_use]
    pub fn keys(&self) -> u64 {
        self.keys
    }

    /// Returns the number of counters.
    #[must_use]
    pub fn counters(&self) -> u64 {
        self.counters.len()
    }

    /// Returns the number of counters that reached 15 and stay there until [`clear`](Self::clear).
    #[must_use]
    pub fn saturated(&self) -> u64 {
        self.counters.saturated()
    }

    /// Returns the counters incremented per key.
    #[must_use]
    pub fn probes(&self) -> u32 {
        self.probes
    }

    /// Returns the hasher.
    #[must_use]
    pub fn hasher(&self) -> &S {
        &self.hasher
    }

    fn fill(&self) -> f64 {
        self.counters.used() as f64 / self.counters.len() as f64
    }
}

impl<S: BuildHasher> Filter for CountingBloom<S> {
    #[inline]
    fn may_contain_hash(&self, hash: u64) -> bool {
        self.may_contain_hash(hash)
    }

    fn memory_bytes(&self) -> usize {
        self.counters.memory_bytes()
    }

    /// Returns the share of counters in use to the power of the probes. Constant time.
    fn expected_fpr(&self) -> f64 {
        bloom_fpr_from_fill(self.fill(), self.probes)
    }

    /// Returns the statistics. `keys` is insertions minus removals. Constant time.
    fn stats(&self) -> FilterStats {
        FilterStats {
            bits: self.counters.len() * 4,
            probes: self.probes,
            keys: self.keys,
            keys_estimated: bloom_keys_from_fill(
                self.counters.len(),
                self.counters.used(),
                self.probes,
            ),
            fill: self.fill(),
            fpr: self.expected_fpr(),
        }
    }
}

impl<S: BuildHasher> RemoveFilter for CountingBloom<S> {
    fn remove_hash(&mut self, hash: u64) -> bool {
        self.remove_hash(hash)
    }
}

impl<S: BuildHasher> Payload for CountingBloom<S> {
    const KIND: SavedKind = SavedKind::CountingBloom;

    fn write_payload(&self, writer: &mut Writer) {
        writer.u64(self.counters.len());
        writer.u64(self.probes.into());
        writer.u64(self.keys);
        self.counters.write(writer);
    }

    fn read_payload(reader: &mut Reader<'_>, hasher: S) -> Result<Self, DecodeError> {
        let counters = reader.u64_in("filter counters", 1..=u64::MAX)?;
        let probes = reader.u64_in("filter probes", 1..=PROBES_MAX.into())? as u32; // At most 64.
        let keys = reader.u64("filter keys")?;
        Ok(Self { counters: Counters::read(reader, counters)?, probes, keys, hasher })
    }
}

/// Prints the shape and the load, not the counters.
impl<S> fmt::Debug for CountingBloom<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CountingBloom")
            .field("counters", &self.counters.len())
            .field("probes", &self.probes)
            .field("keys", &self.keys)
            .field("saturated", &self.counters.saturated())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::saved::Saved;

    /// Few counters and many probes: most keys use one of their counters twice.
    #[cfg_attr(miri, ignore = "long loops without unsafe code")]
    #[test]
    fn a_rejected_removal_changes_nothing() {
        for counters in [1, 2, 3, 5, 8, 30] {
            let mut filter = CountingBloom::with_shape(counters, 7);
            for round in 0..8_u32 {
                filter.insert(round.to_le_bytes());
                let before = filter.counters.clone();
                let rejected = (100..400_u32).filter(|key| {
                    let mut changed = filter.clone();
                    let rejected = !changed.remove(key.to_le_bytes());
                    assert!(!rejected || changed.counters == before, "{counters} counters, {key}");
                    rejected
                });
                assert!(counters < 30 || rejected.count() > 0, "{counters} counters");
            }
        }
    }

    #[test]
    fn a_saturated_counter_stays() {
        let mut filter = CountingBloom::with_shape(1000, 3);
        for _ in 0..20 {
            filter.insert("often");
        }
        assert_eq!((filter.saturated(), filter.keys()), (3, 20));
        for _ in 0..20 {
            assert!(filter.remove("often"));
        }
        assert!(filter.may_contain("often"), "a saturated counter stays");
        assert_eq!((filter.saturated(), filter.keys()), (3, 0));
        filter.clear();
        assert!(!filter.may_contain("often"));
    }

    #[cfg_attr(miri, ignore = "long loops without unsafe code")]
    #[test]
    fn a_saved_filter_round_trips() {
        let mut filter = CountingBloom::with_rate(100, 0.01);
        (0..2000_u32).for_each(|key| {
            filter.insert((key % 110).to_le_bytes());
        });
        let read: CountingBloom = Saved::from_bytes(&filter.to_bytes()).expect("just written");
        assert!(read.counters == filter.counters && filter.saturated() > 0);
        assert_eq!(read.stats(), filter.stats());
    }
}
