//! The layout: layers, buckets, blocks and column groups.
//!
//! The slots of all layers form one sequence of blocks of 64 slots. A block holds one 64-bit word
//! per column. If the columns are mixed, blocks below [`Shape::upper`] have one column less.
//! Columns are stored in groups of at most eight, so that a probe reads at most two adjacent cache
//! lines per group.

use alloc::vec::Vec;
use core::num::NonZeroU8;

use super::row::{Source, WIDTH};

/// Slots of a block: the bits of a word.
pub(crate) const BLOCK_SLOTS: u64 = 64;

/// Starts that share a threshold.
pub(crate) const BUCKET_STARTS: u64 = 128;

/// Maximum number of columns.
pub const COLUMNS_MAX: u8 = 32;

/// Columns of a full group: their words fill a cache line.
pub(crate) const GROUP_COLUMNS: u8 = 8;

/// Maximum number of layers, including the last. Each is at most a thirteenth of the previous one.
pub(crate) const LAYERS_MAX: usize = 12;

/// One system of equations. Keys that it bumps belong to the next layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Layer {
    pub(crate) source: Source,
    pub(crate) starts: u64,
    pub(crate) first_block: u64,
    pub(crate) first_bucket: u64,
    /// The last layer bumps no key and has no stored thresholds.
    pub(crate) is_last: bool,
}

impl Layer {
    pub(crate) fn buckets(&self) -> u64 {
        self.starts.div_ceil(BUCKET_STARTS)
    }
}

/// Returns the starts of a layer of `blocks` blocks, an odd number as [`row`] requires.
///
/// Equations may end in the next layer, whose first slots the last keys of this one use. After the
/// last layer there are no slots.
pub(crate) fn layer_starts(blocks: u64, is_last: bool) -> u64 {
    blocks * BLOCK_SLOTS - if is_last { WIDTH - 1 } else { 1 }
}

/// Returns the blocks of a layer that bumps some of `keys` keys: 12 slots per 13 keys, so that
/// nearly every slot gets a row. Large layers, where another block hardly matters, have 17 per 18.
///
/// Bumped keys are the largest cost of a probe. Of 10,000 slots, two stay empty with 12 per 13,
/// three with 15 per 16, four with 17 per 18, and six, too many, with 19 per 20. Of ten filters of
/// 100,000 keys, one has a block more than necessary with 12 per 13, two with 13 per 14, and four
/// with 15 per 16.
pub(crate) fn bumping_blocks(keys: u64) -> u64 {
    let all = if keys < LARGE_KEYS { 13 } else { 18 };
    (keys * (all - 1)).div_ceil(all * BLOCK_SLOTS)
}

/// Minimum keys of a large layer.
const LARGE_KEYS: u64 = 500_000;

/// The shape of a filter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Columns of the blocks from `upper` on.
    pub(crate) columns: NonZeroU8,
    /// First block with all columns; earlier ones have one less.
    pub(crate) upper: u64,
    pub(crate) blocks: u64,
    pub(crate) buckets: u64,
    /// Never empty. Only the last one has `is_last`.
    pub(crate) layers: Vec<Layer>,
    /// Selects the seeds: see [`Shape::new`].
    pub(crate) attempt: u16,
}

impl Shape {
    /// Returns the shape of layers with these numbers of blocks, each from 1 to 2^32, without mixed
    /// columns.
    pub(crate) fn new(columns: NonZeroU8, layer_blocks: &[u64], attempt: u16) -> Self {
        let mut shape =
            Self { columns, upper: 0, blocks: 0, buckets: 0, layers: Vec::new(), attempt };
        // The high byte selected the seed of the last layer but one, both bytes that of the last.
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

    /// Returns the layout of group `group`.
    pub(crate) fn group(&self, group: usize) -> GroupShape {
        let before = group as u8 * GROUP_COLUMNS; // At most 4 groups.
        let columns = (self.columns.get() - before).min(GROUP_COLUMNS);
        let is_mixed = group + 1 == self.group_count();
        let upper = if is_mixed { self.upper } else { 0 };
        GroupShape { columns, upper, blocks: self.blocks }
    }

    /// Returns the number of columns, averaged over the slots.
    pub(crate) fn average_columns(&self) -> f64 {
        f64::from(self.columns.get()) - self.upper as f64 / self.blocks as f64
    }

    /// Returns the bytes of the stored thresholds: two bits per bucket.
    pub(crate) fn threshold_bytes(&self) -> u64 {
        self.buckets.div_ceil(4)
    }

    /// Returns the bytes of the thresholds in memory, which include the last layer.
    pub(crate) fn all_threshold_bytes(&self) -> u64 {
        let last = self.layers.last().map_or(0, Layer::buckets);
        (self.buckets + last).div_ceil(4)
    }

    /// Returns the bits of the last threshold byte that belong to no bucket.
    pub(crate) fn stray_threshold_bits(&self) -> u8 {
        match self.buckets % 4 {
            0 => 0,
            used => u8::MAX << (2 * used),
        }
    }

    /// Returns the columns of a block.
    pub(crate) fn block_columns(&self, block: u64) -> u8 {
        self.columns.get() - u8::from(block < self.upper)
    }

    /// Returns the number of blocks of each layer.
    pub(crate) fn layer_blocks(&self) -> impl Iterator<Item = u64> {
        self.layers.iter().map(|layer| (layer.starts + WIDTH - 1) / BLOCK_SLOTS)
    }
}

/// The layout of a column group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct GroupShape {
    /// Columns of the blocks from `upper` on, 1 to 8.
    pub(crate) columns: u8,
    pub(crate) upper: u64,
    pub(crate) blocks: u64,
}

impl GroupShape {
    /// Returns the words of the group.
    pub(crate) fn words(&self) -> u64 {
        self.first_word(self.blocks)
    }

    /// Returns the columns of `block`, 0 to 8.
    #[inline(always)]
    pub(crate) fn block_columns(&self, block: u64) -> u8 {
        self.columns - u8::from(block < self.upper)
    }

    /// Returns the index of the first word of `block`, or the length of the group for its number of
    /// blocks.
    #[inline(always)]
    pub(crate) fn first_word(&self, block: u64) -> u64 {
        // Each block below `upper` is one word shorter.
        block * u64::from(self.columns) - block.min(self.upper)
    }
}

/// First offset of a bucket that is kept, by threshold.
///
/// 3 keeps all, 0 none. Low offsets of a bucket conflict with keys of the bucket before. These
/// steps leave the fewest of 100,000 slots empty, 21 on average. The published steps for an
/// overload of 4/64, 38 and 17, leave 32: Dillinger, Hübschle-Schneider, Sanders and Walzer, "Fast
/// Succinct Retrieval and Approximate Membership Using Ribbon", SEA 2022.
pub(crate) const KEPT_FROM: [u8; 4] = [128, 42, 20, 0];

/// Returns the first offset that `threshold` keeps.
#[inline(always)]
pub(crate) fn kept_from(threshold: u8) -> u64 {
    const PACKED: u32 = u32::from_le_bytes(KEPT_FROM);
    u64::from((PACKED >> (8 * u32::from(threshold & 3))) as u8)
}

/// Returns `true` if a key is bumped. `start` counts from a multiple of four buckets, whose
/// thresholds `thresholds` holds.
#[inline(always)]
pub(crate) fn is_bumped_at(start: u64, thresholds: u8) -> bool {
    /// Starts that share a byte of thresholds.
    const STARTS: usize = 4 * BUCKET_STARTS as usize;

    /// By start: the mask of its threshold, and the smallest masked threshold that keeps it. The
    /// fewest instructions.
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
