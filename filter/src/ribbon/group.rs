//! A column group: the words of up to eight columns, in whole cache lines.

use alloc::vec::Vec;
use core::ops::Index;

use super::shape::GroupShape;
use crate::arena::{FilterArena, Slice};
use crate::prefetch::prefetch_at;

pub(crate) const LINE_WORDS: usize = 8;

/// 64 bytes aligned to 64: a block of eight columns is one cache line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C, align(64))]
pub(crate) struct WordLine(pub(crate) [u64; LINE_WORDS]);

/// The words of all blocks in order, followed by at least a line of zeros.
///
/// So a probe may read eight words from its block and from the next one, whatever the number of
/// columns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Group {
    pub(crate) lines: Slice<WordLine>,
    pub(crate) shape: GroupShape,
}

/// The column groups of a filter, at least one.
///
/// The first one, which every probe reads, is not behind another pointer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Groups {
    pub(crate) first: Group,
    pub(crate) others: Vec<Group>,
}

impl Groups {
    /// # Panics
    ///
    /// If `groups` is empty.
    pub(crate) fn new(groups: impl IntoIterator<Item = Group>) -> Self {
        let mut groups = groups.into_iter();
        let first = groups.next().expect("a filter has columns");
        Self { first, others: groups.collect() }
    }

    pub(crate) fn len(&self) -> usize {
        1 + self.others.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Group> {
        core::iter::once(&self.first).chain(&self.others)
    }

    pub(crate) fn last_mut(&mut self) -> &mut Group {
        self.others.last_mut().unwrap_or(&mut self.first)
    }

    /// Frees all groups after the first `count`, but never the first one.
    pub(crate) fn truncate(&mut self, count: usize) {
        self.others.truncate(count.saturating_sub(1));
        self.others.shrink_to_fit();
    }
}

impl Index<usize> for Groups {
    type Output = Group;

    fn index(&self, index: usize) -> &Group {
        index.checked_sub(1).map_or(&self.first, |index| &self.others[index])
    }
}

impl Group {
    pub(crate) fn zeroed(shape: GroupShape, arena: &FilterArena) -> Self {
        let lines = Slice::filled(WordLine([0; LINE_WORDS]), Self::lines_of(shape), arena);
        Self { lines, shape }
    }

    /// Returns the lines of a group of this shape.
    pub(crate) fn lines_of(shape: GroupShape) -> usize {
        (shape.words() as usize).div_ceil(LINE_WORDS) + 1 // They are in memory.
    }

    #[inline(always)]
    pub(crate) fn view(&self) -> View<'_> {
        View { lines: &self.lines, shape: self.shape }
    }

    pub(crate) fn words(&self) -> impl Iterator<Item = u64> {
        self.lines.iter().flat_map(|line| line.0)
    }

    #[inline(always)]
    pub(crate) fn word(&self, index: usize) -> u64 {
        self.view().word(index)
    }

    /// Stores the words of `block`: the first of `columns`, as many as it has.
    pub(crate) fn set_block(&mut self, block: u64, columns: &[u64; LINE_WORDS]) {
        let first = self.shape.first_word(block) as usize; // Below the number of words.
        let count = usize::from(self.shape.block_columns(block));
        for (index, &column) in (first..).zip(&columns[..count]) {
            self.lines[index / LINE_WORDS].0[index % LINE_WORDS] = column;
        }
    }
}

/// A group as probes read it.
///
/// By value, so that the optimizer sees what a caller knows of the shape.
#[derive(Debug, Clone, Copy)]
pub(crate) struct View<'a> {
    pub(crate) lines: &'a [WordLine],
    pub(crate) shape: GroupShape,
}

impl View<'_> {
    /// Returns the view of a group without mixed columns, for which less is computed.
    #[inline(always)]
    pub(crate) fn unmixed(self) -> Self {
        debug_assert_eq!(self.shape.upper, 0);
        Self { shape: GroupShape { upper: 0, ..self.shape }, ..self }
    }

    #[inline(always)]
    pub(crate) fn word(&self, index: usize) -> u64 {
        self.lines[index / LINE_WORDS].0[index % LINE_WORDS]
    }

    /// Prefetches the cache line of a word.
    #[inline(always)]
    pub(crate) fn prefetch(&self, index: usize) {
        prefetch_at(self.lines.as_ptr().cast::<u64>().wrapping_add(index));
    }
}
