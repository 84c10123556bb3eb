//! Where a piece goes: the free ranges of all chunks. Numbers alone, so that it can be tested so.

use std::collections::{BTreeMap, BTreeSet};

use super::pages::PageBytes;

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
    page_bytes: PageBytes,
    /// Bytes of the whole pages in all holes.
    whole_page_bytes: usize,
}

impl Holes {
    /// None yet, in memory with such pages.
    pub(super) fn new(page_bytes: PageBytes) -> Self {
        Self { page_bytes, ..Self::default() }
    }

    /// Adds a range that is free.
    pub(super) fn add(&mut self, first: usize, bytes: usize) {
        self.whole_page_bytes += self.page_bytes.within(first, bytes).len();
        self.by_address.insert(first, bytes);
        self.by_length.insert((bytes, first));
    }

    /// Forgets a hole.
    pub(super) fn remove(&mut self, first: usize, bytes: usize) {
        self.whole_page_bytes -= self.page_bytes.within(first, bytes).len();
        self.by_address.remove(&first);
        self.by_length.remove(&(bytes, first));
    }

    /// Bytes of the whole pages in all holes.
    pub(super) fn whole_page_bytes(&self) -> usize {
        self.whole_page_bytes
    }

    /// The holes, the longest first: first address and length.
    pub(super) fn longest_first(&self) -> impl Iterator<Item = (usize, usize)> {
        self.by_length.iter().rev().map(|&(bytes, first)| (first, bytes))
    }

    /// No page of a hole can be given back from now on.
    pub(super) fn keep_pages(&mut self) {
        self.page_bytes = PageBytes::default();
        self.whole_page_bytes = 0;
    }

    /// The bytes of the longest hole.
    pub(super) fn longest(&self) -> usize {
        self.longest_first().next().map_or(0, |(_, bytes)| bytes)
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

    /// Frees a piece of the chunk of `chunk_bytes` at `base`. Returns the length of the hole that
    /// it is in now.
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

    /// The holes of exactly so many bytes.
    pub(super) fn of_bytes(&self, bytes: usize) -> impl Iterator<Item = usize> {
        self.by_length.range((bytes, 0)..=(bytes, usize::MAX)).map(|&(_, first)| first)
    }

    /// Bytes of all holes.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.by_address.values().sum()
    }
}
