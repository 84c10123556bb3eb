//! A ribbon on its way from its payload into memory, a piece at a time.

use alloc::vec::Vec;
use core::mem;

use super::Ribbon;
use super::group::{Group, Groups, LINE_WORDS, WordLine};
use super::path::Path;
use super::shape::{GroupShape, Shape};
use super::stored::Layout;
use crate::arena::{Filling, FilterArena};

/// The first columns of a stored ribbon, as far as they were read. Becomes what
/// [`Ribbon::shrink_to`] would leave of the whole. Nothing is checked again when it is asked.
pub(crate) struct Loading {
    layout: Layout,
    shape: Shape,
    arena: FilterArena,
    read: Vec<Group>,
    present: GroupLoading,
    thresholds: Vec<u8>,
}

impl Loading {
    /// Of a payload of this layout.
    pub(crate) fn new(layout: Layout, columns: f64, arena: &FilterArena) -> Self {
        let shape = layout.shrunk(columns);
        let present = GroupLoading::new(shape.group(0), layout.shape.group(0), arena);
        let arena = arena.clone();
        Self { layout, shape, arena, read: Vec::new(), present, thresholds: Vec::new() }
    }

    /// The next bytes of the group `index`: as many as remain, or a multiple of 64. All groups of
    /// [`Layout::groups_for`] come one after the other.
    pub(crate) fn put(&mut self, index: usize, bytes: &[u8]) {
        self.begin(index);
        let behind = self.present.put(bytes);
        if index == 0 {
            let left = self.layout.shape.threshold_bytes() as usize - self.thresholds.len(); // Fewer than words.
            self.thresholds.extend_from_slice(&behind[..behind.len().min(left)]);
        }
    }

    /// Ends the groups before the group `index`, which is the next one that has bytes.
    fn begin(&mut self, index: usize) {
        while self.read.len() < index {
            let next = self.read.len() + 1;
            let (wanted, stored) = (self.shape.group(next), self.layout.shape.group(next));
            let next = GroupLoading::new(wanted, stored, &self.arena);
            self.read.push(mem::replace(&mut self.present, next).finish());
        }
    }

    /// The ribbon.
    ///
    /// # Panics
    ///
    /// Unless all bytes of its groups were put.
    pub(crate) fn finish(mut self, key_count: u64) -> Ribbon {
        // The last one has no bytes if no block has a word in it.
        self.begin(self.shape.group_count() - 1);
        let groups = Groups::new(self.read.into_iter().chain([self.present.finish()]));
        Ribbon::from_parts(Path::detect(), self.shape, groups, self.thresholds, key_count)
    }
}

/// The wanted columns of a group, as far as they were read.
struct GroupLoading {
    lines: Filling<WordLine>,
    wanted: GroupShape,
    stored: GroupShape,
    /// Stored words that were not read yet.
    words_left: usize,
    /// The block that the next stored word belongs to, and its column there.
    block: u64,
    column: u8,
    /// The words behind the last full line, and their number.
    line: [u64; LINE_WORDS],
    line_words: usize,
}

impl GroupLoading {
    fn new(wanted: GroupShape, stored: GroupShape, arena: &FilterArena) -> Self {
        Self {
            lines: Filling::new(Group::lines_of(wanted), arena),
            wanted,
            stored,
            words_left: stored.words() as usize, // They are to be in memory.
            block: 0,
            column: 0,
            line: [0; LINE_WORDS],
            line_words: 0,
        }
    }

    /// Takes the words off the front of `bytes`; returns what is behind them.
    fn put<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let (words, _) = bytes.as_chunks();
        let words = &words[..words.len().min(self.words_left)];
        self.words_left -= words.len();
        if self.wanted == self.stored {
            // Pieces begin where lines do.
            let (lines, rest) = words.as_chunks::<LINE_WORDS>();
            self.lines.extend(lines.iter().map(|line| WordLine(line.map(u64::from_le_bytes))));
            rest.iter().for_each(|word| self.push(u64::from_le_bytes(*word)));
        } else {
            words.iter().for_each(|word| self.push_wanted(u64::from_le_bytes(*word)));
        }
        &bytes[size_of_val(words)..]
    }

    /// Of each block as many columns as are wanted.
    fn push_wanted(&mut self, word: u64) {
        // Blocks may have no word at all in a group.
        while self.column == self.stored.block_columns(self.block) {
            (self.block, self.column) = (self.block + 1, 0);
        }
        if self.column < self.wanted.block_columns(self.block) {
            self.push(word);
        }
        self.column += 1;
    }

    fn push(&mut self, word: u64) {
        self.line[self.line_words] = word;
        self.line_words += 1;
        if self.line_words == LINE_WORDS {
            self.push_line();
        }
    }

    fn push_line(&mut self) {
        self.lines.extend([WordLine(mem::take(&mut self.line))].into_iter());
        self.line_words = 0;
    }

    /// # Panics
    ///
    /// Unless all words were put.
    fn finish(mut self) -> Group {
        if self.line_words > 0 {
            self.push_line();
        }
        // Behind the last word a line of zeros.
        self.push_line();
        Group { lines: self.lines.finish(), shape: self.wanted }
    }
}
