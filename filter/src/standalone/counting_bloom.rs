//! Counting Bloom filter: a Bloom filter with a counter of four bits for each bit, so that keys can
//! be removed.
//!
//! A counter says how many of the keys inserted need it. At 15 it is saturated: it is never
//! decremented again, since nobody knows how much it should be. So no sequence of insertions and of
//! removals of keys that are there makes the filter deny a key; what saturation costs is that some
//! bits stay set. At the optimal size a counter saturates by chance once in 10^15; keys that are
//! inserted more than 14 times saturate theirs.
//!
//! Four times the memory of a [`BloomFilter`](super::BloomFilter) at the same rate. A
//! [`CuckooFilter`](super::CuckooFilter) removes keys in a quarter of this, but can be full.
//!
//! Source: Fan, Cao, Almeida, Broder, "Summary Cache: A Scalable Wide-Area Web Cache Sharing
//! Protocol", IEEE/ACM Transactions on Networking 8(3), 2000.
//!
//! # Saved payload
//!
//! The [envelope](crate::saved) is around it. Integers are little-endian.
//!
//! | offset | bytes | field      | meaning                                                           |
//! |--------|-------|------------|-------------------------------------------------------------------|
//! | 0      | 8     | `counters` | how many, at least 1                                              |
//! | 8      | 8     | `probes`   | 1 to 64                                                           |
//! | 16     | 8     | `keys`     | insertions less removals                                          |
//! | 24     | 8 × w | `words`    | counter `i` is the bits from `4 (i % 16)` of word `i / 16`; w is counters / 16, rounded up; counters behind the last are zero |

use core::{fmt, hash::BuildHasher};

use super::bloom::shape_for;
use super::counters::{COUNTER_MAX, Counters};
use super::probes::{PROBES_MAX, Places};
use crate::decode_error::DecodeError;
use crate::filter::{Filter, FilterFull, FilterStats, InsertFilter, KeyFilter, RemoveFilter};
use crate::hash::{Xxh3, hash_with};
use crate::params::{bloom_fpr_from_fill, bloom_keys_from_fill};
use crate::saved::{Payload, Reader, SavedKind, Writer};

/// A counting Bloom filter that one thread fills.
///
/// ```
/// use sievedb_filter::standalone::CountingBloom;
///
/// let mut online = CountingBloom::with_rate(1_000, 0.01);
/// online.insert("ant");
/// online.insert("bee");
/// assert!(online.remove("ant"));
/// assert!(!online.may_contain("ant") && online.may_contain("bee"));
/// assert!(!online.remove("cow"), "was not there");
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct CountingBloom<S = Xxh3> {
    counters: Counters,
    probes: u32,
    keys: u64,
    hasher: S,
}

impl CountingBloom {
    /// An empty filter that reaches the false-positive rate `fpr` when it holds `capacity` keys.
    ///
    /// More keys are taken too, at a higher rate. `capacity` 0 counts as 1.
    ///
    /// # Panics
    ///
    /// If `fpr` is not in `0 < fpr < 1`, or the memory cannot have so many counters.
    #[must_use]
    pub fn with_rate(capacity: u64, fpr: f64) -> Self {
        Self::with_rate_and_hasher(capacity, fpr, Xxh3::default())
    }

    /// An empty filter of `counters` counters of four bits, of which a key increments `probes`.
    ///
    /// # Panics
    ///
    /// If `counters` is 0 or more than the memory can have, or `probes` is not from 1 to
    /// [`PROBES_MAX`].
    #[must_use]
    pub fn with_shape(counters: u64, probes: u32) -> Self {
        Self::with_shape_and_hasher(counters, probes, Xxh3::default())
    }
}

impl<S: BuildHasher> CountingBloom<S> {
    /// As [`with_rate`](CountingBloom::with_rate), with a hasher.
    ///
    /// # Panics
    ///
    /// As [`with_rate`](CountingBloom::with_rate).
    #[must_use]
    pub fn with_rate_and_hasher(capacity: u64, fpr: f64, hasher: S) -> Self {
        let (counters, probes) = shape_for(capacity, fpr);
        Self::with_shape_and_hasher(counters, probes, hasher)
    }

    /// As [`with_shape`](CountingBloom::with_shape), with a hasher.
    ///
    /// # Panics
    ///
    /// As [`with_shape`](CountingBloom::with_shape).
    #[must_use]
    pub fn with_shape_and_hasher(counters: u64, probes: u32, hasher: S) -> Self {
        assert!((1..=PROBES_MAX).contains(&probes), "probes is {probes}");
        Self { counters: Counters::new(counters), probes, keys: 0, hasher }
    }

    /// Adds a key, also if it is there: it must be removed as often. Returns whether it may have
    /// been there: `false` means it was surely not.
    #[inline]
    pub fn insert(&mut self, key: impl AsRef<[u8]>) -> bool {
        self.insert_hash(hash_with(&self.hasher, key.as_ref()))
    }

    /// Adds a key by its hash, as [`insert`](Self::insert).
    #[inline]
    pub fn insert_hash(&mut self, hash: u64) -> bool {
        let mut present = true;
        for place in self.places(hash) {
            present &= self.counters.increment(place) != 0;
        }
        // A saved count may be anything.
        self.keys = self.keys.saturating_add(1);
        present
    }

    /// Takes back one insertion of a key. `false` if the key was surely not there; nothing is
    /// changed then.
    ///
    /// Removing a key that was never inserted, but that the filter takes for present, may make it
    /// deny other keys. That is the caller's fault, and cannot be noticed.
    #[inline]
    pub fn remove(&mut self, key: impl AsRef<[u8]>) -> bool {
        self.remove_hash(hash_with(&self.hasher, key.as_ref()))
    }

    /// Takes back one insertion of a key by its hash, as [`remove`](Self::remove).
    pub fn remove_hash(&mut self, hash: u64) -> bool {
        for (taken, place) in self.places(hash).enumerate() {
            if self.counters.decrement(place) == 0 {
                self.put_back(hash, taken);
                return false;
            }
        }
        self.keys = self.keys.saturating_sub(1);
        true
    }

    /// Undoes the decrements of the first `taken` probes.
    fn put_back(&mut self, hash: u64, taken: usize) {
        for place in self.places(hash).take(taken) {
            // One that is saturated was not decremented.
            if self.counters.get(place) != COUNTER_MAX {
                self.counters.increment(place);
            }
        }
    }

    /// Returns `false` only if the key is not in the filter.
    #[doc(alias = "contains")]
    #[inline]
    #[must_use]
    pub fn may_contain(&self, key: impl AsRef<[u8]>) -> bool {
        self.may_contain_hash(hash_with(&self.hasher, key.as_ref()))
    }

    /// Returns `false` only if no key with this hash is in the filter.
    #[doc(alias = "contains")]
    #[inline]
    #[must_use]
    pub fn may_contain_hash(&self, hash: u64) -> bool {
        // Without a branch for each, which could not be predicted.
        self.places(hash).fold(true, |found, place| found & (self.counters.get(place) != 0))
    }

    /// The places of the counters of a key. One may come twice.
    #[inline]
    fn places(&self, hash: u64) -> impl Iterator<Item = u64> + use<S> {
        Places::anywhere(hash, self.counters.len()).take(self.probes)
    }

    /// Forgets every key. Keeps the memory.
    pub fn clear(&mut self) {
        self.counters.clear();
        self.keys = 0;
    }

    /// Insertions less removals.
    #[must_use]
    pub fn keys(&self) -> u64 {
        self.keys
    }

    /// How many counters there are.
    #[must_use]
    pub fn counters(&self) -> u64 {
        self.counters.len()
    }

    /// Counters that reached 15 and will stay there until [`clear`](Self::clear).
    #[must_use]
    pub fn saturated(&self) -> u64 {
        self.counters.saturated()
    }

    /// Counters incremented per key.
    #[must_use]
    pub fn probes(&self) -> u32 {
        self.probes
    }

    /// The hasher it was made with.
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

    /// The share of counters in use to the power of the probes. Costs nothing.
    fn expected_fpr(&self) -> f64 {
        bloom_fpr_from_fill(self.fill(), self.probes)
    }

    /// `keys` is insertions less removals. Costs nothing.
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

impl<S: BuildHasher> KeyFilter for CountingBloom<S> {
    type Hasher = S;

    fn hasher(&self) -> &S {
        &self.hasher
    }
}

impl<S: BuildHasher> InsertFilter for CountingBloom<S> {
    /// Never fails.
    #[inline]
    fn try_insert_hash(&mut self, hash: u64) -> Result<bool, FilterFull> {
        Ok(self.insert_hash(hash))
    }

    fn clear(&mut self) {
        self.clear();
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

/// Shows the shape and the load, not the counters.
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

    /// Few counters and many probes: most keys meet one of their counters twice.
    #[test]
    fn a_refused_removal_changes_nothing() {
        for counters in [1, 2, 3, 5, 8, 30] {
            let mut filter = CountingBloom::with_shape(counters, 7);
            for round in 0..8_u32 {
                filter.insert(round.to_le_bytes());
                let before = filter.counters.clone();
                let refused = (100..400_u32).filter(|key| {
                    let mut changed = filter.clone();
                    let refused = !changed.remove(key.to_le_bytes());
                    assert!(!refused || changed.counters == before, "{counters} counters, {key}");
                    refused
                });
                assert!(counters < 30 || refused.count() > 0, "{counters} counters");
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
        assert!(filter.may_contain("often"), "nobody knows that it is gone");
        assert_eq!((filter.saturated(), filter.keys()), (3, 0));
        filter.clear();
        assert!(!filter.may_contain("often"));
    }

    #[test]
    fn a_saved_filter_is_the_same() {
        let mut filter = CountingBloom::with_rate(100, 0.01);
        (0..2000_u32).for_each(|key| {
            filter.insert((key % 110).to_le_bytes());
        });
        let read: CountingBloom = Saved::from_bytes(&filter.to_bytes()).expect("just written");
        assert!(read.counters == filter.counters && filter.saturated() > 0);
        assert_eq!(read.stats(), filter.stats());
    }
}
