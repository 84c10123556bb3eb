//! Cuckoo filter: a table of short fingerprints of the keys, which can give keys up again.
//!
//! A key has a fingerprint, some bits of its hash, which lies in one of two windows of two slots.
//! Where both are full, a fingerprint is evicted to its other window, which is found from the
//! fingerprint and the window alone: the two add up to a number that depends on the fingerprint,
//! modulo the number of windows. That holds for any number of windows, so the size need not be a
//! power of two.
//!
//! Windows overlap: one starts at every slot. Fingerprints then find room nearly as well as in
//! buckets of four slots, and a question compares four of them instead of eight, which halves the
//! rate: a bit per key less than a filter with buckets. One bit of a slot says which place of the
//! window it is.
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
//! 2009, for how far overlapping blocks can be filled.
//!
//! # Saved payload
//!
//! The [envelope](crate::saved) is around it. Integers are little-endian.
//!
//! | offset | bytes | field   | meaning                                                            |
//! |--------|-------|---------|--------------------------------------------------------------------|
//! | 0      | 8     | `slots` | at least 2                                                         |
//! | 8      | 8     | `bits`  | bits of a slot, 4 to 28                                            |
//! | 16     | n     | `table` | slot `s` is bits `s bits` and following; n is slots bits / 8, rounded up |
//!
//! An empty slot is 0, another `fingerprint * 2 + place`, with `fingerprint` from 1 and the slot at
//! place 0 or 1 of its window. Bits behind the last slot are zero.

mod shape;
mod slots;
mod table;

use core::{fmt, hash::BuildHasher};

use self::shape::{rate_of, shape_for};
use self::slots::{BITS_MAX, BITS_MIN, Slots, WINDOW};
use self::table::Table;
use crate::decode_error::DecodeError;
use crate::filter::{Filter, FilterFull, FilterStats, InsertFilter, KeyFilter, RemoveFilter};
use crate::hash::{Xxh3, hash_with};
use crate::saved::{Payload, Reader, SavedKind, Writer};

/// A cuckoo filter that one thread fills.
///
/// A key may be inserted again, and is then there as often: up to four times, for that many
/// fingerprints fit its windows, and less often if other keys have taken them. The next insertion
/// is refused.
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
    /// An empty filter that holds `capacity` different keys, then at a false-positive rate of at
    /// most `fpr`.
    ///
    /// Takes about `(log2(1 / fpr) + 1.9) / 0.95` bits per key, rounded up to whole bits of a slot.
    /// A filter of many keys at a rate above 2 % gets a bit more, so that it can be filled. Of a
    /// hundred filters less than one refuses a key before it holds `capacity` keys; of those that
    /// are made for a rate of 1 % and up to 10 million keys, hardly one in a thousand. `capacity` 0
    /// counts as 1.
    ///
    /// # Panics
    ///
    /// If `fpr` is not in `1.5e-8 <= fpr < 1`, or the memory cannot have so many slots.
    #[must_use]
    pub fn with_rate(capacity: u64, fpr: f64) -> Self {
        Self::with_rate_and_hasher(capacity, fpr, Xxh3::default())
    }

    /// An empty filter of `slots` slots of `bits` bits, from 4 to 28.
    ///
    /// A large one can be filled to 95 %, at a rate of `4 * 0.95 / 2^bits`. One of few bits takes
    /// less: many keys then have the same fingerprint in the same windows. For 10 million keys, 9
    /// bits are enough.
    ///
    /// # Panics
    ///
    /// If `slots` is below 2 or more than the memory can have, or `bits` is out of range.
    #[must_use]
    pub fn with_shape(slots: u64, bits: u32) -> Self {
        Self::with_shape_and_hasher(slots, bits, Xxh3::default())
    }
}

impl<S: BuildHasher> CuckooFilter<S> {
    /// As [`with_rate`](CuckooFilter::with_rate), with a hasher.
    ///
    /// # Panics
    ///
    /// As [`with_rate`](CuckooFilter::with_rate).
    #[must_use]
    pub fn with_rate_and_hasher(capacity: u64, fpr: f64, hasher: S) -> Self {
        let (slots, bits) = shape_for(capacity, fpr);
        Self::with_shape_and_hasher(slots, bits, hasher)
    }

    /// As [`with_shape`](CuckooFilter::with_shape), with a hasher.
    ///
    /// # Panics
    ///
    /// As [`with_shape`](CuckooFilter::with_shape).
    #[must_use]
    pub fn with_shape_and_hasher(slots: u64, bits: u32, hasher: S) -> Self {
        Self { table: Table::new(Slots::new(slots, bits), 0), hasher }
    }

    /// Adds a key, also if it is there. Returns whether it may have been there: `false` means it
    /// was surely not.
    ///
    /// Costs about two cache misses while the filter is less than half full; the last keys of a
    /// large filter, close to 95 %, take some hundred evictions each. A filter that is made for 3 %
    /// more keys than come takes half of the time to fill.
    ///
    /// # Errors
    ///
    /// [`FilterFull`] if no room was found. The filter is then as it was: every earlier key is
    /// still found. The first refusal costs thousands of evictions, which are undone: up to some
    /// milliseconds. Until a key is removed, later insertions try only their own four slots.
    #[inline]
    pub fn insert(&mut self, key: impl AsRef<[u8]>) -> Result<bool, FilterFull> {
        self.insert_hash(hash_with(&self.hasher, key.as_ref()))
    }

    /// Adds a key by its hash, as [`insert`](Self::insert).
    ///
    /// # Errors
    ///
    /// As [`insert`](Self::insert).
    #[inline]
    pub fn insert_hash(&mut self, hash: u64) -> Result<bool, FilterFull> {
        self.table.insert(hash).ok_or(FilterFull { keys: self.table.keys })
    }

    /// Takes back one insertion of a key. `false` if the key was surely not there; nothing is
    /// changed then.
    ///
    /// Removing a key that was never inserted, but that the filter takes for present, makes it deny
    /// another key with the same fingerprint and windows. That is the caller's fault, and cannot be
    /// noticed.
    #[inline]
    pub fn remove(&mut self, key: impl AsRef<[u8]>) -> bool {
        self.remove_hash(hash_with(&self.hasher, key.as_ref()))
    }

    /// Takes back one insertion of a key by its hash, as [`remove`](Self::remove).
    #[inline]
    pub fn remove_hash(&mut self, hash: u64) -> bool {
        self.table.remove(hash)
    }

    /// Returns `false` only if the key is not in the filter.
    #[doc(alias = "contains")]
    #[inline]
    #[must_use]
    pub fn may_contain(&self, key: impl AsRef<[u8]>) -> bool {
        self.may_contain_hash(hash_with(&self.hasher, key.as_ref()))
    }

    /// Returns `false` only if no key with this hash is in the filter.
    ///
    /// Reads two places of the table, at the same time, and has no branch that depends on them.
    #[doc(alias = "contains")]
    #[inline]
    #[must_use]
    pub fn may_contain_hash(&self, hash: u64) -> bool {
        self.table.contains(hash)
    }

    /// Starts to load what a call with this hash will read.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        self.table.prefetch(hash);
    }

    /// Forgets every key. Keeps the memory.
    pub fn clear(&mut self) {
        self.table.clear();
    }

    /// Insertions less removals.
    #[must_use]
    pub fn keys(&self) -> u64 {
        self.table.keys
    }

    /// Slots, each for one insertion.
    #[must_use]
    pub fn slots(&self) -> u64 {
        self.table.slots.len()
    }

    /// Bits of a slot: one more than those of a fingerprint.
    #[must_use]
    pub fn slot_bits(&self) -> u32 {
        self.table.slots.bits()
    }

    /// Share of the slots in use, from 0 to 1.
    #[must_use]
    pub fn fill(&self) -> f64 {
        self.table.keys as f64 / self.table.slots.len() as f64
    }

    /// The hasher it was made with.
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

    /// Exact for different keys: the chance that one of them has the fingerprint and the windows of
    /// an absent one. Repeated insertions count as further keys. Costs nothing.
    fn expected_fpr(&self) -> f64 {
        rate_of(self.table.keys, self.table.slots.windows(), self.table.slots.fingerprints())
    }

    /// `keys` and `keys_estimated` are the slots in use: insertions less removals. Costs nothing.
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

impl<S: BuildHasher> KeyFilter for CuckooFilter<S> {
    type Hasher = S;

    fn hasher(&self) -> &S {
        &self.hasher
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

/// Shows the shape and the load, not the bits.
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
