//! Where everything lies: layers, buckets, blocks and column groups.
//!
//! The slots of all layers form one sequence of blocks of 64 slots. A block holds one 64-bit word
//! for each column. Blocks below [`Shape::upper`] have one column less than the others if the
//! columns are a mixture. Columns are stored in groups of at most eight, each group by itself, so
//! that what a question reads of a group is at most two cache lines' worth.

use alloc::vec::Vec;
use core::num::NonZeroU8;

use super::row::{self, WIDTH};

/// Slots of a block: the bits of a word.
pub(crate) const BLOCK_SLOTS: u64 = 64;

/// Starts that share a threshold.
pub(crate) const BUCKET_STARTS: u64 = 128;

/// Most columns of a filter.
pub const COLUMNS_MAX: u8 = 32;

/// Columns of a full group: those whose words fill a cache line.
pub(crate) const GROUP_COLUMNS: u8 = 8;

/// Most layers of a filter, the last one included. Each is about a sixteenth of the one before.
pub(crate) const LAYERS_MAX: usize = 12;

/// One system of equations. Keys that it bumps belong to the next layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Layer {
    pub(crate) seed: u64,
    pub(crate) starts: u64,
    pub(crate) first_block: u64,
    pub(crate) first_bucket: u64,
    /// Whether it bumps no key, and so has no thresholds.
    pub(crate) is_last: bool,
}

impl Layer {
    pub(crate) fn buckets(&self) -> u64 {
        self.starts.div_ceil(BUCKET_STARTS)
    }
}

/// Starts of a layer of `blocks` blocks: an equation ends within its layer.
pub(crate) fn layer_starts(blocks: u64) -> u64 {
    blocks * BLOCK_SLOTS - (WIDTH - 1)
}

/// Blocks of a layer that bumps some of `keys` keys: 15 slots for 16 keys, so that nearly every slot
/// gets a row.
pub(crate) const fn bumping_blocks(keys: u64) -> u64 {
    (keys * 15).div_ceil(16 * BLOCK_SLOTS)
}

/// A layer of so many blocks or fewer was tried with several seeds.
pub(crate) const TAIL_BLOCKS_MAX: u64 = 240;

/// The shape of a filter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Columns of the blocks from `upper` on.
    pub(crate) columns: NonZeroU8,
    /// The first block with all columns; those before have one less.
    pub(crate) upper: u64,
    pub(crate) blocks: u64,
    pub(crate) buckets: u64,
    /// Never empty; the last one, and no other, is a last one.
    pub(crate) layers: Vec<Layer>,
    /// Which seeds were taken: see [`Shape::new`].
    pub(crate) attempt: u16,
}

impl Shape {
    /// The shape of layers of these numbers of blocks, each from 1 to 2^32, without
    /// a mixture of columns.
    pub(crate) fn new(columns: NonZeroU8, layer_blocks: &[u64], attempt: u16) -> Self {
        let mut shape =
            Self { columns, upper: 0, blocks: 0, buckets: 0, layers: Vec::new(), attempt };
        for (i, &blocks) in layer_blocks.iter().enumerate() {
            let is_last = i + 1 == layer_blocks.len();
            let starts = layer_starts(blocks);
            // The high byte chose the seeds of all small layers, the low byte that of the last.
            let seed = match blocks {
                _ if is_last => attempt,
                0..=TAIL_BLOCKS_MAX => attempt & 0xff00,
                _ => 0,
            };
            shape.layers.push(Layer {
                seed: row::seed(i, seed),
                starts,
                first_block: shape.blocks,
                first_bucket: shape.buckets,
                is_last,
            });
            shape.blocks += blocks;
            if !is_last {
                shape.buckets += starts.div_ceil(BUCKET_STARTS);
            }
        }
        shape
    }

    pub(crate) fn group_count(&self) -> usize {
        usize::from(self.columns.get().div_ceil(GROUP_COLUMNS))
    }

    /// How group `group` is laid out.
    pub(crate) fn group(&self, group: usize) -> GroupShape {
        let before = group as u8 * GROUP_COLUMNS; // At most 4 groups.
        let columns = (self.columns.get() - before).min(GROUP_COLUMNS);
        let is_mixed = group + 1 == self.group_count();
        let upper = if is_mixed { self.upper } else { 0 };
        GroupShape { columns, upper, blocks: self.blocks }
    }

    /// Columns, averaged over the slots.
    pub(crate) fn average_columns(&self) -> f64 {
        f64::from(self.columns.get()) - self.upper as f64 / self.blocks as f64
    }

    /// Bytes of the thresholds: two bits a bucket.
    pub(crate) fn threshold_bytes(&self) -> u64 {
        self.buckets.div_ceil(4)
    }

    /// The bits of the last threshold byte that belong to no bucket.
    pub(crate) fn stray_threshold_bits(&self) -> u8 {
        match self.buckets % 4 {
            0 => 0,
            used => u8::MAX << (2 * used),
        }
    }

    /// Columns of a block, by the part of the sequence it lies in.
    pub(crate) fn block_columns(&self, block: u64) -> u8 {
        self.columns.get() - u8::from(block < self.upper)
    }

    /// Numbers of blocks of the layers.
    pub(crate) fn layer_blocks(&self) -> impl Iterator<Item = u64> {
        self.layers.iter().map(|layer| (layer.starts + WIDTH - 1) / BLOCK_SLOTS)
    }
}

/// How the words of a column group are laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct GroupShape {
    /// Columns of the blocks from `upper` on, 1 to 8.
    pub(crate) columns: u8,
    pub(crate) upper: u64,
    pub(crate) blocks: u64,
}

impl GroupShape {
    /// Words of the group.
    pub(crate) fn words(&self) -> u64 {
        self.first_word(self.blocks)
    }

    /// Columns of `block`, 0 to 8.
    #[inline(always)]
    pub(crate) fn block_columns(&self, block: u64) -> u8 {
        self.columns - u8::from(block < self.upper)
    }

    /// The first word of `block`, or the end of the group for its number of blocks.
    #[inline(always)]
    pub(crate) fn first_word(&self, block: u64) -> u64 {
        // Each block below `upper` is one word shorter.
        block * u64::from(self.columns) - block.min(self.upper)
    }
}

/// The first offset in a bucket that is kept, by the threshold's two bits.
///
/// 3 keeps all, 0 none. The steps between are those of Dillinger, Hübschle-Schneider, Sanders and
/// Walzer, "Fast Succinct Retrieval and Approximate Membership Using Ribbon", SEA 2022, for buckets
/// of 128 and an overload of 4/64: at a bucket's low offsets lie the slots that the bucket to the
/// left has filled already.
pub(crate) const KEPT_FROM: [u8; 4] = [128, 38, 17, 0];

/// The first offset that `threshold` keeps.
#[inline(always)]
pub(crate) fn kept_from(threshold: u8) -> u64 {
    const PACKED: u32 = u32::from_le_bytes(KEPT_FROM);
    u64::from((PACKED >> (8 * u32::from(threshold & 3))) as u8)
}
