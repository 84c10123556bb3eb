//! Which pages of holes the system has back. Numbers alone, as [`holes`](super::holes).

use std::{collections::BTreeMap, ops::Range};

/// Bytes of a page, where the system takes single ones back.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct PageBytes(Option<usize>);

impl PageBytes {
    /// A power of two; `None` where no page can be given back.
    pub(super) fn new(bytes: Option<usize>) -> Self {
        assert!(bytes.is_none_or(usize::is_power_of_two));
        Self(bytes)
    }

    /// Bytes of a page; 0 where none can be given back.
    pub(super) fn or_zero(self) -> usize {
        self.0.unwrap_or(0)
    }

    /// The whole pages in a range, by their addresses.
    pub(super) fn within(self, first: usize, bytes: usize) -> Range<usize> {
        let Some(page) = self.0 else { return first..first };
        let start = first.next_multiple_of(page);
        start..((first + bytes) & !(page - 1)).max(start)
    }

    /// All pages that a range touches.
    fn around(self, first: usize, bytes: usize) -> Range<usize> {
        let Some(page) = self.0 else { return first..first };
        first & !(page - 1)..(first + bytes).next_multiple_of(page)
    }

    /// Bytes of as many pages as have so many bytes.
    pub(super) fn rounded(self, bytes: usize) -> usize {
        self.0.map_or(0, |page| bytes.checked_next_multiple_of(page).unwrap_or(usize::MAX))
    }
}

/// The pages that the system has back.
#[derive(Debug, Default)]
pub(super) struct Released {
    /// Ends of ranges by their first addresses. They lie apart, but may touch.
    ends: BTreeMap<usize, usize>,
    bytes: usize,
}

impl Released {
    /// Bytes of all of them.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds pages, none of which is there already.
    pub(super) fn add(&mut self, pages: Range<usize>) {
        self.bytes += pages.len();
        self.ends.insert(pages.start, pages.end);
    }

    /// Forgets all pages that a range touches: they are about to be written.
    pub(super) fn take(&mut self, page_bytes: PageBytes, first: usize, bytes: usize) {
        let taken = page_bytes.around(first, bytes);
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

    /// The last pages of `pages` that are not among them.
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
