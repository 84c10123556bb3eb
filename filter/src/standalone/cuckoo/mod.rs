//! Cuckoo filter: a table of short fingerprints that supports removal.
//!
//! The fingerprint of a key, some bits of its hash, is in one of two windows of two slots. If both
//! are full, a fingerprint is evicted to its other window. The other window follows from the
//! fingerprint and the window alone. The two windows add up to a number that depends on the
//! fingerprint, modulo the number of windows. This holds for any number of windows, so the size
//! need not be a power of two.
//!
//! Windows overlap: one starts at every slot. The achievable load is close to that of buckets of
//! four slots. A probe compares four fingerprints instead of eight, which halves the rate and saves
//! one bit per key. One bit of a slot stores its place in the window.
//!
//! | bits of a slot | bits per key | rate when 95 % full | Bloom filter of that rate |
//! |----------------|--------------|---------------------|---------------------------|
//! | 8              | 8.42         | 1.48 %              | 8.76                      |
//! | 9              | 9.47         | 0.742 %             | 10.21                     |
//! | 12             | 12.63        | 0.0928 %            | 14.53                     |
//! | 16             | 16.84        | 0.0058 %            | 20.30                     |
//!
//! Sources: Fan, Andersen, Kaminsky, Mitzenmacher, "Cuckoo Filter: Practically Better Than Bloom",
//! CoNEXT 2014; Schmitz, Zentgraf, Rahmann, "Smaller and More Flexible Cuckoo Filters", 2025, for
//! the windows; Lehman and Panigrahy, "3.5-Way Cuckoo Hashing for the Price of 2-and-a-Bit", ESA
//! 2009, for the load of overlapping blocks.
//!
//! # Saved payload
//!
//! Within the [envelope](crate::saved). Integers are little-endian.
//!
//! | offset | bytes | field   | meaning                                                            |
//! |--------|-------|---------|--------------------------------------------------------------------|
//! | 0      | 8     | `slots` | at least 2                                                         |
//! | 8      | 8     | `bits`  | bits of a slot, 4 to 28                                            |
//! | 16     | n     | `table` | slot `s` is the bits from `s bits` on; n is slots bits / 8, rounded up |
//!
//! An empty slot is 0, a full one `fingerprint * 2 + place`. Fingerprints start at 1, and `place`
//! is 0 or 1 in the window. Bits after the last slot are zero.

mod shape;
mod slots;
mod table;

use core::{fmt, hash::BuildHasher};

use self::shape::{rate_of, shape_for};
use self::slots::{BITS_MAX, BITS_MIN, Slots, WINDOW};
use self::table::Table;
use crate::decode_error::DecodeError;
use crate::filter::{Filter, FilterFull, FilterStats, InsertFilter, RemoveFilter};
use crate::hash::{Xxh3, hash_with};
use crate::saved::{Payload, Reader, SavedKind, Writer};

/// A cuckoo filter for one writer.
///
/// A key can be inserted up to four times, as many fingerprints as its windows hold, and fewer if
/// other keys use them. The next insertion fails.
///
/// ```
/// use sievedb_filter::standalone::CuckooFilter;
///
/// let mut online = CuckooFilter::with_rate(1_000, 0.01);
/// online.insert("ant")?;
/// online.insert("bee")?;
/// assert!(online.remove("ant"));
/// assert!(!online.may_contain("ant") && online.may_contain("bee"));
/// # Ok::<(), sievedb_filter::FilterFull>(())
/// ```
#[derive(Clone)]
pub struct CuckooFilter<S = Xxh3> {
    table: Table,
    hasher: S,
}

impl CuckooFilter {
    /// Creates an empty filter for `capacity` distinct keys, with a false-positive rate of at most
    /// `fpr`.
    ///
    /// Takes about `(log2(1 / fpr) + 1.9) / 0.95` bits per key, rounded up to whole bits of a slot.
    /// A filter of many keys at a rate above 2 % gets one more bit, so that it can be filled.
    ///
    /// Fewer than one in a hundred filters fail before `capacity` keys. With a rate of 1 % and up
    /// to 10 million keys, hardly one in a thousand fails. `capacity` 0 counts as 1.
    ///
    /// # Panics
    ///
    /// If `fpr` is not in `1.5e-8 <= fpr < 1`, or the filter exceeds the memory.
    #[must_use]
    pub fn with_rate(capacity: u64, fpr: f64) -> Self {
        Self::with_rate_and_hasher(capacity, fpr, Xxh3::default())
    }

    /// Creates an empty filter of `slots` slots of `bits` bits, from 4 to 28.
    ///
    /// A large one can be filled to 95 %, at a rate of `4 * 0.95 / 2^bits`. With few bits the load
    /// is lower, because many keys share fingerprint and windows. 9 bits suffice for 10 million
    /// keys.
    ///
    /// # Panics
    ///
    /// If `slots` is below 2, the filter exceeds the memory, or `bits` is out of range.
    #[must_use]
    pub fn with_shape(slots: u64, bits: u32) -> Self {
        Self::with_shape_and_hasher(slots, bits, Xxh3::default())
    }
}

impl<S: BuildHasher> CuckooFilter<S> {
    /// Creates a filter like [`with_rate`](CuckooFilter::with_rate), with a hasher.
    ///
    /// # Panics
    ///
    /// As [`with_rate`](CuckooFilter::with_rate).
    #[must_use]
    pub fn with_rate_and_hasher(capacity: u64, fpr: f64, hasher: S) -> Self {
        let (slots, bits) = shape_for(capacity, fpr);
        Self::with_shape_and_hasher(slots, bits, hasher)
    }

    /// Creates a filter like [`with_shape`](CuckooFilter::with_shape), with a hasher.
    ///
    /// # Panics
    ///
    /// As [`with_shape`](CuckooFilter::with_shape).
    #[must_use]
    pub fn with_shape_and_hasher(slots: u64, bits: u32, hasher: S) -> Self {
        Self { table: Table::new(Slots::new(slots, bits), 0), hasher }
    }

    /// Inserts a key, which may be present. Returns `false` if it was definitely absent, `true` if
    /// it may have been present.
    ///
    /// Costs about two cache misses while the filter is less than half full. The last keys of a
    /// large filter, close to 95 %, take some hundred evictions each. A capacity 3 % above the
    /// number of keys halves the time to fill.
    ///
    /// # Errors
    ///
    /// [`FilterFull`] if there is no room. The filter is then unchanged. The first failure costs
    /// thousands of evictions, which are undone: up to some milliseconds. Until a key is removed,
    /// later insertions try only their own four slots.
    #[inline]
    pub fn insert(&mut self, key: impl AsRef<[u8]>) -> Result<bool, FilterFull> {
        self.insert_hash(hash_with(&self.hasher, key.as_ref()))
    }

    /// Inserts a key by its hash, as [`insert`](Self::insert).
    ///
    /// # Errors
    ///
    /// As [`insert`](Self::insert).
    #[inline]
    pub fn insert_hash(&mut self, hash: u64) -> Result<bool, FilterFull> {
        self.table.insert(hash).ok_or(FilterFull { keys: self.table.keys })
    }

    /// Undoes one insertion of a key. Returns `false` and changes nothing if the key was definitely
    /// absent.
    ///
    /// Removing a key that was never inserted, but is a false positive, removes another key with
    /// the same fingerprint and windows. The filter cannot detect this.
    #[inline]
    pub fn remove(&mut self, key: impl AsRef<[u8]>) -> bool {
        self.remove_hash(hash_with(&self.hasher, key.as_ref()))
    }

    /// Undoes one insertion of a key by its hash, as [`remove`](Self::remove).
    #[inline]
    pub fn remove_hash(&mut self, hash: u64) -> bool {
        self.table.remove(hash)
    }

    /// Returns `false` only if no key with this hash is in the filter.
    ///
    /// Reads two windows concurrently. No branch depends on them.
    #[doc(alias = "contains")]
    #[inline]
    #[must_use]
    pub fn may_contain_hash(&self, hash: u64) -> bool {
        self.table.contains(hash)
    }

    /// Prefetches the windows that a probe of this hash reads.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        self.table.prefetch(hash);
    }

    /// Removes every key. Keeps the memory.
    pub fn clear(&mut self) {
        self.table.clear();
    }

    /// Returns insertions minus removals.
    #[must_use]
    pub fn keys(&self) -> u64 {
        self.table.keys
    }

    /// Returns the number of slots, one per insertion.
    #[must_use]
    pub fn slots(&self) -> u64 {
        self.table.slots.len()
    }

    /// Returns the bits of a slot: one more than those of a fingerprint.
    #[must_use]
    pub fn slot_bits(&self) -> u32 {
        self.table.slots.bits()
    }

    /// Returns the share of slots in use, from 0 to 1.
    #[must_use]
    pub fn fill(&self) -> f64 {
        self.table.keys as f64 / self.table.slots.len() as f64
    }

    /// Returns the hasher.
    #[must_use]
    pub fn hasher(&self) -> &S {
        &self.hasher
    }
}

impl<S: BuildHasher> Filter for CuckooFilter<S> {
    #[inline]
    fn may_contain_hash(&self, hash: u64) -> bool {
        self.may_contain_hash(hash)
    }

    fn memory_bytes(&self) -> usize {
        self.table.slots.memory_bytes()
    }

    /// Returns the rate, which is exact for distinct keys: the probability that one of them has the
    /// fingerprint and windows of an absent key. Repeated insertions count as further keys.
    /// Constant time.
    fn expected_fpr(&self) -> f64 {
        rate_of(self.table.keys, self.table.slots.windows(), self.table.slots.fingerprints())
    }

    /// Returns the statistics. `keys` and `keys_estimated` are the slots in use: insertions minus
    /// removals. Constant time.
    fn stats(&self) -> FilterStats {
        FilterStats {
            bits: self.table.slots.len() * u64::from(self.table.slots.bits()),
            probes: 2 * WINDOW as u32, // 4.
            keys: self.table.keys,
            keys_estimated: self.table.keys as f64,
            fill: self.fill(),
            fpr: self.expected_fpr(),
        }
    }
}

impl<S: BuildHasher> InsertFilter for CuckooFilter<S> {
    #[inline]
    fn try_insert_hash(&mut self, hash: u64) -> Result<bool, FilterFull> {
        self.insert_hash(hash)
    }

    fn clear(&mut self) {
        self.clear();
    }
}

impl<S: BuildHasher> RemoveFilter for CuckooFilter<S> {
    #[inline]
    fn remove_hash(&mut self, hash: u64) -> bool {
        self.remove_hash(hash)
    }
}

impl<S: BuildHasher> Payload for CuckooFilter<S> {
    const KIND: SavedKind = SavedKind::Cuckoo;

    fn write_payload(&self, writer: &mut Writer) {
        writer.u64(self.table.slots.len());
        writer.u64(self.table.slots.bits().into());
        self.table.slots.write(writer);
    }

    fn read_payload(reader: &mut Reader<'_>, hasher: S) -> Result<Self, DecodeError> {
        let len = reader.u64_in("cuckoo slots", WINDOW..=u64::MAX)?;
        let bits = reader.u64_in("bits of a cuckoo slot", BITS_MIN.into()..=BITS_MAX.into())?;
        let slots = Slots::read(reader, len, bits as u32)?; // At most 28 bits.
        let keys = slots.used();
        Ok(Self { table: Table::new(slots, keys), hasher })
    }
}

/// Prints the shape and the load, not the bits.
impl<S> fmt::Debug for CuckooFilter<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CuckooFilter")
            .field("slots", &self.table.slots.len())
            .field("slot_bits", &self.table.slots.bits())
            .field("keys", &self.table.keys)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
