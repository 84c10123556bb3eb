//! A column group: the words of up to eight columns, in whole cache lines.

use alloc::boxed::Box;

use super::shape::GroupShape;

/// Words of a line.
pub(crate) const LINE_WORDS: usize = 8;

/// 64 bytes at a multiple of 64: a block of eight columns is one cache line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C, align(64))]
pub(crate) struct WordLine(pub(crate) [u64; LINE_WORDS]);

/// Words of the blocks, block after block, and behind the last at least a line of zeros.
///
/// So every question may read eight words of its own block and of the next, used or not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Group {
    pub(crate) lines: Box<[WordLine]>,
    pub(crate) shape: GroupShape,
}

impl Group {
    pub(crate) fn zeroed(shape: GroupShape) -> Self {
        let lines = (shape.words() as usize).div_ceil(LINE_WORDS) + 1; // They are in memory.
        Self { lines: vec![WordLine([0; LINE_WORDS]); lines].into(), shape }
    }

    /// The words of a stored group of this shape.
    pub(crate) fn from_bytes(shape: GroupShape, bytes: &[u8]) -> Self {
        let mut group = Self::zeroed(shape);
        let (words, _) = bytes.as_chunks();
        for (word, bytes) in group.lines.iter_mut().flat_map(|line| &mut line.0).zip(words) {
            *word = u64::from_le_bytes(*bytes);
        }
        group
    }

    pub(crate) fn words(&self) -> impl Iterator<Item = u64> {
        self.lines.iter().flat_map(|line| line.0)
    }

    #[inline(always)]
    pub(crate) fn word(&self, index: usize) -> u64 {
        self.lines[index / LINE_WORDS].0[index % LINE_WORDS]
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
