//! Where everything lies: layers, buckets, blocks and column groups.
//!
//! The slots of all layers form one sequence of blocks of 64 slots. A block holds one 64-bit word
//! for each column. Blocks below [`Shape::upper`] have one column less than the others if the
//! columns are a mixture. Columns are stored in groups of at most eight, each group by itself, so
//! that what a question reads of a group is at most two cache lines' worth.

use alloc::vec::Vec;
use core::num::NonZeroU8;

use super::row::{Source, WIDTH};

/// Slots of a block: the bits of a word.
pub(crate) const BLOCK_SLOTS: u64 = 64;

/// Starts that share a threshold.
pub(crate) const BUCKET_STARTS: u64 = 128;

/// Most columns of a filter.
pub const COLUMNS_MAX: u8 = 32;

/// Columns of a full group: those whose words fill a cache line.
pub(crate) const GROUP_COLUMNS: u8 = 8;

/// Most layers of a filter, the last one included. Each is a thirteenth of the one before, or less.
pub(crate) const LAYERS_MAX: usize = 12;

/// One system of equations. Keys that it bumps belong to the next layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Layer {
    pub(crate) source: Source,
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

/// Starts of a layer of `blocks` blocks, an odd number: [`row`] wants one.
///
/// An equation may end in the next layer: the first keys of that take the slots that the last ones
/// of this have left. Only behind the last layer there is none.
pub(crate) fn layer_starts(blocks: u64, is_last: bool) -> u64 {
    blocks * BLOCK_SLOTS - if is_last { WIDTH - 1 } else { 1 }
}

/// Blocks of a layer that bumps some of `keys` keys: 12 slots for 13 keys, so that nearly every
/// slot gets a row, and 17 for 18 in large layers, for which a block more is nothing.
///
/// A question waits longest for a bumped key. With 12 for 13 two of 10,000 slots stay empty, with
/// 15 for 16 three, with 17 for 18 four, with 19 for 20 six: too many. Of filters of 100,000 keys
/// one in ten takes a block more than it need with 12 for 13, two in ten with 13 for 14, four with
/// 15 for 16.
pub(crate) fn bumping_blocks(keys: u64) -> u64 {
    let all = if keys < LARGE_KEYS { 13 } else { 18 };
    (keys * (all - 1)).div_ceil(all * BLOCK_SLOTS)
}

/// Fewest keys of a large layer.
const LARGE_KEYS: u64 = 500_000;

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
        // The high byte chose the seed of the last layer but one, both that of the last.
        let attempt_of = |layer| match layer_blocks.len() - layer {
            1 => attempt,
            2 => attempt & 0xff00,
            _ => 0,
        };
        let starts_of = |layer| layer_starts(layer_blocks[layer], layer + 1 == layer_blocks.len());
        for (i, &blocks) in layer_blocks.iter().enumerate() {
            let is_last = i + 1 == layer_blocks.len();
            let starts = starts_of(i);
            shape.layers.push(Layer {
                source: Source::new(i, attempt_of(i), attempt_of(0), starts_of(0)),
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

    /// The same with those of the last layer, which are in memory only.
    pub(crate) fn all_threshold_bytes(&self) -> u64 {
        let last = self.layers.last().map_or(0, Layer::buckets);
        (self.buckets + last).div_ceil(4)
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
/// 3 keeps all, 0 none: at a bucket's low offsets lie the slots that the bucket to the left has
/// filled already. The steps between leave the fewest slots of 100,000 empty, 21 on average; those
/// of Dillinger, Hübschle-Schneider, Sanders and Walzer, "Fast Succinct Retrieval and Approximate
/// Membership Using Ribbon", SEA 2022, for an overload of 4/64, 38 and 17, leave 32.
pub(crate) const KEPT_FROM: [u8; 4] = [128, 42, 20, 0];

/// The first offset that `threshold` keeps.
#[inline(always)]
pub(crate) fn kept_from(threshold: u8) -> u64 {
    const PACKED: u32 = u32::from_le_bytes(KEPT_FROM);
    u64::from((PACKED >> (8 * u32::from(threshold & 3))) as u8)
}

/// Whether a start, counted from a multiple of four buckets, lies in its bucket before the first
/// that its threshold keeps, which is one of the four in `thresholds`.
#[inline(always)]
pub(crate) fn is_bumped_at(start: u64, thresholds: u8) -> bool {
    /// Starts that share a byte of thresholds.
    const STARTS: usize = 4 * BUCKET_STARTS as usize;

    /// For each of the starts the bits of its threshold, and behind those the least threshold, at
    /// these bits, that keeps it: the fewest instructions.
    static KEPT: [[u8; STARTS]; 2] = {
        let mut kept = [[0; STARTS]; 2];
        let mut start = 0;
        while start < STARTS {
            let shift = start / BUCKET_STARTS as usize * 2;
            let mut least = 0;
            while start as u64 % BUCKET_STARTS < KEPT_FROM[least] as u64 {
                least += 1;
            }
            kept[0][start] = 3 << shift;
            kept[1][start] = (least as u8) << shift;
            start += 1;
        }
        kept
    };
    let start = start as usize % STARTS;
    thresholds & KEPT[0][start] < KEPT[1][start]
}
