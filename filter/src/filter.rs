//! What the filters have in common: the traits, the statistics, the errors.
//!
//! | trait            | a filter that                                | implemented by                    |
//! |------------------|----------------------------------------------|-----------------------------------|
//! | [`Filter`]       | answers about hashes                         | all but [`AtomicBlockedBloom`](crate::AtomicBlockedBloom) |
//! | [`KeyFilter`]    | hashes keys itself                           | the [standalone](crate::standalone) ones |
//! | [`InsertFilter`] | takes keys one by one, and can be cleared    | those that grow key by key        |
//! | [`RemoveFilter`] | gives keys up again                          | those that count, or keep fingerprints |
//!
//! Each structure offers the same calls as methods of its own, so that its users need no import;
//! the traits serve code that takes any filter. Of a table's filter, [`stats`](Filter::stats) is a
//! call of the trait alone.

use core::{error, fmt, hash::BuildHasher};

use crate::hash::hash_with;

/// A set of keys that answers "surely not" or "maybe" about the hash of a key.
pub trait Filter {
    /// Returns `false` only if no key with this hash is in the filter.
    fn may_contain_hash(&self, hash: u64) -> bool;

    /// Bytes that the filter keeps in memory, on the heap.
    fn memory_bytes(&self) -> usize;

    /// The expected false-positive rate now, from 0 to 1: of the keys that it holds, not of those
    /// that it was made for.
    fn expected_fpr(&self) -> f64;

    /// What the filter holds. May count its bits: the structure says what that costs.
    fn stats(&self) -> FilterStats;
}

/// A filter that turns keys into hashes itself.
pub trait KeyFilter: Filter {
    /// How it hashes.
    type Hasher: BuildHasher;

    /// The hasher it was made with.
    fn hasher(&self) -> &Self::Hasher;

    /// The hash of a key: of one write of its bytes.
    fn hash(&self, key: impl AsRef<[u8]>) -> u64
    where
        Self: Sized,
    {
        hash_with(self.hasher(), key.as_ref())
    }
}

/// A filter that takes keys one by one.
pub trait InsertFilter: Filter {
    /// Adds a key, and answers [`may_contain_hash`](Filter::may_contain_hash) as it was before, in
    /// one pass.
    ///
    /// # Errors
    ///
    /// [`FilterFull`] if the structure has a capacity and it is reached. The filter is then as it
    /// was: every earlier key is still found. A Bloom filter never fails; its rate grows instead.
    fn try_insert_hash(&mut self, hash: u64) -> Result<bool, FilterFull>;

    /// Forgets every key. Keeps the memory.
    fn clear(&mut self);
}

/// A filter that gives keys up again.
pub trait RemoveFilter: InsertFilter {
    /// Takes back one insertion of a key. `false` if the key was surely not there; nothing is
    /// changed then.
    ///
    /// Removing a key that was never inserted, but that the filter takes for present, may make it
    /// deny other keys. That is the caller's fault, and cannot always be noticed.
    fn remove_hash(&mut self, hash: u64) -> bool;
}

/// What a filter holds.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct FilterStats {
    /// Size of its array in bits. Bookkeeping beside it is in
    /// [`memory_bytes`](Filter::memory_bytes).
    pub bits: u64,
    /// Places of the array that a question looks at, at most.
    pub probes: u32,
    /// Insertions of keys that were not there, as far as the filter could tell. Repeated keys do
    /// not count. Too low by about the false-positive rate: a new key may be taken for a known one.
    /// In a filter that gives keys up again: insertions less removals, also repeated ones.
    pub keys: u64,
    /// Different keys, estimated from the array alone. Infinite if it is full.
    pub keys_estimated: f64,
    /// Share of the array that is in use, from 0 to 1.
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

/// A key was refused: the filter has no room. It holds what it held before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct FilterFull {
    /// Keys that it holds.
    pub keys: u64,
}

impl fmt::Display for FilterFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the filter is full with {} keys", self.keys)
    }
}

impl error::Error for FilterFull {}

/// Two filters cannot be combined: their `what` differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShapeMismatch {
    /// Bits, probes, or the hash of a fixed text under the hashers.
    pub what: &'static str,
    /// Of the filter that was to be changed.
    pub ours: u64,
    /// Of the other one.
    pub theirs: u64,
}

impl ShapeMismatch {
    /// Names the first of `facts`, `(what, ours, theirs)`, that differs.
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
