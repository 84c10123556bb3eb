//! Where a piece goes: the free ranges of all chunks. Numbers alone, so that it can be tested so.

use std::collections::{BTreeMap, BTreeSet};

/// The free ranges of all chunks: best fit, and of equals the lowest address.
///
/// The best fit leaves large holes whole; with few sizes, which filters of one keyspace have, most
/// holes are filled exactly. Chunks that touch stay apart: each goes back by itself.
#[derive(Debug, Default)]
pub(super) struct Holes {
    /// Length by first address. No two of the same chunk touch.
    by_address: BTreeMap<usize, usize>,
    /// The same, by length.
    by_length: BTreeSet<(usize, usize)>,
}

impl Holes {
    /// Adds a range that is free.
    pub(super) fn add(&mut self, first: usize, bytes: usize) {
        self.by_address.insert(first, bytes);
        self.by_length.insert((bytes, first));
    }

    /// Forgets a hole.
    pub(super) fn remove(&mut self, first: usize, bytes: usize) {
        self.by_address.remove(&first);
        self.by_length.remove(&(bytes, first));
    }

    /// Takes `bytes` from the smallest hole that has them.
    pub(super) fn take(&mut self, bytes: usize) -> Option<usize> {
        let &(length, first) = self.by_length.range((bytes, 0)..).next()?;
        self.remove(first, length);
        if length > bytes {
            self.add(first + bytes, length - bytes);
        }
        Some(first)
    }

    /// Frees a piece of the chunk of `chunk_bytes` at `base`. Returns the length of the hole that it is
    /// in now.
    pub(super) fn give_back(
        &mut self,
        mut first: usize,
        mut bytes: usize,
        base: usize,
        chunk_bytes: usize,
    ) -> usize {
        let before = self.by_address.range(base..first).next_back();
        if let Some((&before, &length)) = before.filter(|(at, length)| **at + **length == first) {
            self.remove(before, length);
            (first, bytes) = (before, length + bytes);
        }
        let end = first + bytes;
        if end < base + chunk_bytes
            && let Some(&length) = self.by_address.get(&end)
        {
            self.remove(end, length);
            bytes += length;
        }
        self.add(first, bytes);
        bytes
    }

    /// Holes of exactly so many bytes.
    pub(super) fn whole_chunks(&self, bytes: usize) -> usize {
        self.by_length.range((bytes, 0)..=(bytes, usize::MAX)).count()
    }
    /// Bytes of all holes.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.by_address.values().sum()
    }
}
