//! Pages released to the system. Handles only numbers, as [`free_ranges`](super::free_ranges) does.

use std::{collections::BTreeMap, ops::Range};

/// Size of a page, if the system takes back single pages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct PageBytes(Option<usize>);

impl PageBytes {
    /// Creates the size from `bytes`, a power of two; `None` if pages cannot be released.
    pub(super) fn new(bytes: Option<usize>) -> Self {
        assert!(bytes.is_none_or(usize::is_power_of_two));
        Self(bytes)
    }

    /// Returns the size of a page; 0 if none can be released.
    pub(super) fn or_zero(self) -> usize {
        self.0.unwrap_or(0)
    }

    /// Returns the whole pages within a range of addresses.
    pub(super) fn within(self, first: usize, bytes: usize) -> Range<usize> {
        let Some(page) = self.0 else { return first..first };
        let start = first.next_multiple_of(page);
        start..((first + bytes) & !(page - 1)).max(start)
    }

    /// Returns all pages that a range touches.
    fn touching(self, first: usize, bytes: usize) -> Range<usize> {
        let Some(page) = self.0 else { return first..first };
        first & !(page - 1)..(first + bytes).next_multiple_of(page)
    }

    /// Rounds `bytes` up to whole pages.
    pub(super) fn rounded(self, bytes: usize) -> usize {
        self.0.map_or(0, |page| bytes.checked_next_multiple_of(page).unwrap_or(usize::MAX))
    }
}

/// A set of released pages.
#[derive(Debug, Default)]
pub(super) struct Released {
    /// End address by start address. Ranges do not overlap, but may touch.
    ends: BTreeMap<usize, usize>,
    bytes: usize,
}

impl Released {
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds pages, none of which is in the set.
    pub(super) fn add(&mut self, pages: Range<usize>) {
        debug_assert!(!pages.is_empty(), "a range has pages");
        self.bytes += pages.len();
        let replaced = self.ends.insert(pages.start, pages.end);
        debug_assert!(replaced.is_none(), "{:#x} is released already", pages.start);
    }

    /// Removes all pages that a range touches, because they are about to be written.
    pub(super) fn remove(&mut self, page_bytes: PageBytes, first: usize, bytes: usize) {
        let taken = page_bytes.touching(first, bytes);
        while let Some((&start, &end)) = self.ends.range(..taken.end).next_back()
            && end > taken.start
        {
            self.ends.remove(&start);
            self.bytes -= end - start;
            for rest in [start..taken.start, taken.end..end] {
                if !rest.is_empty() {
                    self.add(rest);
                }
            }
        }
    }

    /// Returns the last pages of `pages` that are not in the set.
    pub(super) fn last_gap(&self, pages: Range<usize>) -> Option<Range<usize>> {
        let mut gap_end = pages.end;
        while gap_end > pages.start {
            let before = self.ends.range(..gap_end).next_back();
            let Some((&start, &end)) = before.filter(|(_, end)| **end > pages.start) else {
                return Some(pages.start..gap_end);
            };
            if end < gap_end {
                return Some(end..gap_end);
            }
            gap_end = start;
        }
        None
    }
}
