//! Traits, statistics and errors that the filters share.
//!
//! | trait            | a filter that                      | implemented by                           |
//! |------------------|------------------------------------|------------------------------------------|
//! | [`Filter`]       | is probed with hashes              | all but [`AtomicBlockedBloom`](crate::AtomicBlockedBloom) |
//! | [`KeyFilter`]    | hashes keys itself                 | the [standalone](crate::standalone) ones |
//! | [`InsertFilter`] | inserts keys one by one            | all standalone ones with `&mut` inserts  |
//! | [`RemoveFilter`] | removes keys                       | those with counters or fingerprints      |
//!
//! Each structure has the same methods as inherent ones, so that callers need no import. The traits
//! are for generic code. Only [`stats`](Filter::stats) of table filters has no inherent method.

use core::{error, fmt, hash::BuildHasher};

use crate::hash::hash_with;

/// A set of hashes that is probed with false positives but no false negatives.
pub trait Filter {
    /// Returns `false` only if no key with this hash is in the filter.
    fn may_contain_hash(&self, hash: u64) -> bool;

    /// Returns the heap bytes of the filter.
    fn memory_bytes(&self) -> usize;

    /// Returns the expected false-positive rate for the keys inserted so far, from 0 to 1.
    fn expected_fpr(&self) -> f64;

    /// Returns the statistics. May count the set bits; the structure documents the cost.
    fn stats(&self) -> FilterStats;
}

/// A filter that hashes keys itself.
pub trait KeyFilter: Filter {
    /// The type of its hasher.
    type Hasher: BuildHasher;

    /// Returns its hasher.
    fn hasher(&self) -> &Self::Hasher;

    /// Returns the hash of a key: one write of its bytes.
    fn hash(&self, key: impl AsRef<[u8]>) -> u64
    where
        Self: Sized,
    {
        hash_with(self.hasher(), key.as_ref())
    }
}

/// A filter that inserts keys one by one.
pub trait InsertFilter: Filter {
    /// Inserts a key, and returns `true` if the filter may have contained it before. Takes one
    /// pass.
    ///
    /// # Errors
    ///
    /// [`FilterFull`] if the structure has a capacity and it is reached. The filter is then
    /// unchanged. A Bloom filter never fails; its false-positive rate rises instead.
    fn try_insert_hash(&mut self, hash: u64) -> Result<bool, FilterFull>;

    /// Removes every key. Keeps the memory.
    fn clear(&mut self);
}

/// A filter that removes keys.
pub trait RemoveFilter: InsertFilter {
    /// Undoes one insertion of a key. Returns `false` and changes nothing if the key was definitely
    /// absent.
    ///
    /// Removing a key that was never inserted, but is a false positive, may cause false negatives
    /// for other keys. The filter cannot detect this.
    fn remove_hash(&mut self, hash: u64) -> bool;
}

/// Statistics of a filter.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct FilterStats {
    /// Size of the array in bits, without the metadata counted in
    /// [`memory_bytes`](Filter::memory_bytes).
    pub bits: u64,
    /// Maximum number of array positions that a probe reads.
    pub probes: u32,
    /// Insertions of keys that the filter did not contain. Repeated keys do not count. Too low by
    /// about the false-positive rate, because a new key may be a false positive. With removals:
    /// insertions minus removals, repetitions included.
    pub keys: u64,
    /// Distinct keys, estimated from the array alone. Infinite if it is full.
    pub keys_estimated: f64,
    /// Share of the array in use, from 0 to 1.
    pub fill: f64,
    /// Expected false-positive rate now, from 0 to 1.
    pub fpr: f64,
}

impl fmt::Display for FilterStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { bits, probes, keys, fill, fpr, .. } = self;
        let (fill, fpr) = (fill * 100.0, fpr * 100.0);
        write!(f, "{keys} keys in {bits} bits, {probes} probes, {fill:.1} % full, {fpr:.4} % rate")
    }
}

/// The filter is at capacity and rejected a key. It is unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct FilterFull {
    /// Keys in the filter.
    pub keys: u64,
}

impl fmt::Display for FilterFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the filter is full with {} keys", self.keys)
    }
}

impl error::Error for FilterFull {}

/// Two filters cannot be combined because their `what` differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShapeMismatch {
    /// Bits, probes, or the hash of a fixed text by the hashers.
    pub what: &'static str,
    /// Value of the filter to be changed.
    pub ours: u64,
    /// Value of the other filter.
    pub theirs: u64,
}

impl ShapeMismatch {
    /// Returns an error for the first of `facts`, `(what, ours, theirs)`, that differs.
    pub(crate) fn check(facts: &[(&'static str, u64, u64)]) -> Result<(), Self> {
        match facts.iter().find(|(_, ours, theirs)| ours != theirs) {
            Some(&(what, ours, theirs)) => Err(Self { what, ours, theirs }),
            None => Ok(()),
        }
    }
}

impl fmt::Display for ShapeMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, ours, theirs } = self;
        write!(f, "filters of different {what} cannot be combined: {ours:#x} and {theirs:#x}")
    }
}

impl error::Error for ShapeMismatch {}
