//! Loads a ribbon from its payload, piece by piece.

use alloc::vec::Vec;
use core::mem;

use super::Ribbon;
use super::group::{Group, Groups, LINE_WORDS, WordLine};
use super::path::Path;
use super::shape::{GroupShape, Shape};
use super::stored::Layout;
use crate::arena::{FilterArena, SliceBuilder};

/// The first columns of a stored ribbon, as far as they were read. Becomes what
/// [`Ribbon::shrink_to`] would leave of the whole filter. Probes do not check it again.
pub(crate) struct Loading {
    layout: Layout,
    shape: Shape,
    arena: FilterArena,
    read: Vec<Group>,
    present: GroupLoading,
    thresholds: Vec<u8>,
}

impl Loading {
    /// Starts to load a payload of this layout.
    pub(crate) fn new(layout: Layout, columns: f64, arena: &FilterArena) -> Self {
        let shape = layout.shrunk(columns);
        let present = GroupLoading::new(shape.group(0), layout.shape.group(0), arena);
        let arena = arena.clone();
        Self { layout, shape, arena, read: Vec::new(), present, thresholds: Vec::new() }
    }

    /// Adds the next bytes of group `index`: the rest, or a multiple of 64 bytes. The groups of
    /// [`Layout::groups_for`] come in order.
    pub(crate) fn put(&mut self, index: usize, bytes: &[u8]) {
        self.begin(index);
        let rest = self.present.put(bytes);
        if index == 0 {
            let left = self.layout.shape.threshold_bytes() as usize - self.thresholds.len(); // Fewer than words.
            self.thresholds.extend_from_slice(&rest[..rest.len().min(left)]);
        }
    }

    /// Finishes the groups before group `index`, the next one that has bytes.
    fn begin(&mut self, index: usize) {
        while self.read.len() < index {
            let next = self.read.len() + 1;
            let (target, stored) = (self.shape.group(next), self.layout.shape.group(next));
            let next = GroupLoading::new(target, stored, &self.arena);
            self.read.push(mem::replace(&mut self.present, next).finish());
        }
    }

    /// Returns the ribbon.
    ///
    /// # Panics
    ///
    /// If bytes of its groups are missing.
    pub(crate) fn finish(mut self, key_count: u64) -> Ribbon {
        // The last group has no bytes if no block has a word in it.
        self.begin(self.shape.group_count() - 1);
        let groups = Groups::new(self.read.into_iter().chain([self.present.finish()]));
        Ribbon::from_parts(Path::detect(), self.shape, groups, self.thresholds, key_count)
    }
}

/// The target columns of a group, as far as they were read.
struct GroupLoading {
    lines: SliceBuilder<WordLine>,
    target: GroupShape,
    stored: GroupShape,
    /// Stored words not read yet.
    words_left: usize,
    /// Block and column of the next stored word.
    block: u64,
    column: u8,
    /// Words after the last full line, and their number.
    line: [u64; LINE_WORDS],
    line_words: usize,
}

impl GroupLoading {
    fn new(target: GroupShape, stored: GroupShape, arena: &FilterArena) -> Self {
        Self {
            lines: SliceBuilder::new(Group::lines_of(target), arena),
            target,
            stored,
            words_left: stored.words() as usize, // The caller has them in memory.
            block: 0,
            column: 0,
            line: [0; LINE_WORDS],
            line_words: 0,
        }
    }

    /// Consumes words from the front of `bytes` and returns the rest.
    fn put<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let (words, _) = bytes.as_chunks();
        let words = &words[..words.len().min(self.words_left)];
        self.words_left -= words.len();
        if self.target == self.stored {
            // Pieces begin at lines.
            let (lines, rest) = words.as_chunks::<LINE_WORDS>();
            self.lines.extend(lines.iter().map(|line| WordLine(line.map(u64::from_le_bytes))));
            rest.iter().for_each(|word| self.push(u64::from_le_bytes(*word)));
        } else {
            words.iter().for_each(|word| self.push_target(u64::from_le_bytes(*word)));
        }
        &bytes[size_of_val(words)..]
    }

    /// Keeps the target columns of each block.
    fn push_target(&mut self, word: u64) {
        // Blocks may have no word in a group.
        while self.column == self.stored.block_columns(self.block) {
            (self.block, self.column) = (self.block + 1, 0);
        }
        if self.column < self.target.block_columns(self.block) {
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
    /// If words are missing.
    fn finish(mut self) -> Group {
        if self.line_words > 0 {
            self.push_line();
        }
        // A line of zeros follows the last word.
        self.push_line();
        Group { lines: self.lines.finish(), shape: self.target }
    }
}
