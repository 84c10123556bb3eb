//! The free ranges of all chunks. Handles only numbers, so that tests need no memory.

use std::collections::{BTreeMap, BTreeSet};

use super::pages::PageBytes;

/// The free ranges of all chunks, allocated by best fit. Among equal lengths, the lowest address is
/// first.
///
/// Best fit leaves large ranges whole. Filters of one keyspace have few sizes, so most ranges are
/// filled exactly. Ranges of adjacent chunks are not merged, because each chunk is unmapped by
/// itself.
#[derive(Debug, Default)]
pub(super) struct FreeRanges {
    /// Length by start address. Ranges of the same chunk never touch.
    by_address: BTreeMap<usize, usize>,
    /// Length and start address, by length.
    by_length: BTreeSet<(usize, usize)>,
    page_bytes: PageBytes,
    /// Bytes of the whole pages in all free ranges.
    whole_page_bytes: usize,
}

impl FreeRanges {
    /// Creates an empty set, for memory with pages of this size.
    pub(super) fn new(page_bytes: PageBytes) -> Self {
        Self { page_bytes, ..Self::default() }
    }

    /// Adds a free range.
    pub(super) fn add(&mut self, first: usize, bytes: usize) {
        debug_assert!(bytes > 0, "a free range is not empty");
        self.whole_page_bytes += self.page_bytes.within(first, bytes).len();
        let replaced = self.by_address.insert(first, bytes);
        debug_assert!(replaced.is_none(), "{first:#x} is free already");
        self.by_length.insert((bytes, first));
    }

    /// Removes a free range.
    pub(super) fn remove(&mut self, first: usize, bytes: usize) {
        self.whole_page_bytes -= self.page_bytes.within(first, bytes).len();
        let length = self.by_address.remove(&first);
        debug_assert_eq!(length, Some(bytes), "{first:#x} is not a free range");
        let is_indexed = self.by_length.remove(&(bytes, first));
        debug_assert!(is_indexed, "both indexes have the same ranges");
    }

    /// Returns the bytes of whole pages in all free ranges.
    pub(super) fn whole_page_bytes(&self) -> usize {
        self.whole_page_bytes
    }

    /// Returns address and length of the free ranges, the longest first.
    pub(super) fn longest_first(&self) -> impl Iterator<Item = (usize, usize)> {
        self.by_length.iter().rev().map(|&(bytes, first)| (first, bytes))
    }

    /// Treats pages as not releasable from now on.
    pub(super) fn stop_releasing_pages(&mut self) {
        self.page_bytes = PageBytes::default();
        self.whole_page_bytes = 0;
    }

    /// Returns the length of the longest free range.
    pub(super) fn longest(&self) -> usize {
        self.longest_first().next().map_or(0, |(_, bytes)| bytes)
    }

    /// Allocates `bytes` from the smallest range that has them.
    pub(super) fn allocate(&mut self, bytes: usize) -> Option<usize> {
        let &(length, first) = self.by_length.range((bytes, 0)..).next()?;
        self.remove(first, length);
        if length > bytes {
            self.add(first + bytes, length - bytes);
        }
        Some(first)
    }

    /// Frees a range of the chunk of `chunk_bytes` at `base`. Returns the length of the merged free
    /// range.
    pub(super) fn deallocate(
        &mut self,
        mut first: usize,
        mut bytes: usize,
        base: usize,
        chunk_bytes: usize,
    ) -> usize {
        debug_assert!(first >= base && first + bytes <= base + chunk_bytes, "outside of its chunk");
        let before = self.by_address.range(base..first).next_back();
        debug_assert!(before.is_none_or(|(at, length)| at + length <= first), "freed twice");
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

    /// Returns the free ranges of exactly this length.
    pub(super) fn of_bytes(&self, bytes: usize) -> impl Iterator<Item = usize> {
        self.by_length.range((bytes, 0)..=(bytes, usize::MAX)).map(|&(_, first)| first)
    }

    /// Returns the bytes of all free ranges.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.by_address.values().sum()
    }
}
