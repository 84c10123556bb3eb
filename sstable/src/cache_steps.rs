//! In which steps the block cache grows and shrinks.
//!
//! `quick_cache` remembers some blocks that it no longer has: one that is read again soon is kept better than
//! one that is read once. How many, it computes from how many it was and the ratio of the capacities, rounded
//! down, whenever its capacity changes. So any small change loses some, and a small capacity nearly all; none
//! comes back when the cache grows again. Here capacities are whole numbers of steps, each of one remembered
//! block, and change so that nothing is lost in that computation.

use quick_cache::{Options, OptionsBuilder};

/// Capacity of a shard for which it remembers one block that it no longer has: some two blocks.
const STEP_BYTES: u64 = 8 << 10;

/// Smaller shards would have few steps, and no room for long blocks: an index partition of 16 KiB takes
/// up to 80 in memory.
const SHARD_BYTES_MIN: u64 = 512 << 10;

/// Of a step, so much is for blocks that were read again: a fraction that takes no rounding either.
const HOT_SHARE: f64 = 993.0 / 1024.0;

/// The capacities that a cache may have.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CacheSteps {
    shards: u64,
    /// Bytes of a step, of one shard.
    shard_step_bytes: u64,
}

impl CacheSteps {
    /// Those of a cache that is created with at most `bytes` bytes, used by as many threads as run at once.
    pub(crate) fn new(bytes: u64, threads: usize) -> Self {
        let shards_max = (bytes / SHARD_BYTES_MIN).max(1);
        let wanted = (4 * threads as u64).next_power_of_two();
        let shards = wanted.min(1 << shards_max.ilog2());
        // A cache of less is one step.
        let shard_step_bytes = if bytes == 0 { STEP_BYTES } else { STEP_BYTES.min(bytes) };
        Self { shards, shard_step_bytes }
    }

    /// The steps of a capacity of at most `bytes`, but one at least if it is not 0.
    pub(crate) fn within(&self, bytes: u64) -> u64 {
        (bytes / self.bytes(1)).max(u64::from(bytes > 0))
    }

    /// The capacity of so many steps.
    pub(crate) fn bytes(&self, steps: u64) -> u64 {
        steps.saturating_mul(self.shards * self.shard_step_bytes)
    }

    /// With which a cache of so many steps is created.
    pub(crate) fn options(&self, steps: u64) -> Options {
        let in_memory = |number| usize::try_from(number).unwrap_or(usize::MAX);
        // Half as many blocks are remembered: one for each step of a shard.
        let items = in_memory(2 * steps * self.shards);
        let mut options = OptionsBuilder::new();
        options.shards(in_memory(self.shards)).hot_allocation(HOT_SHARE).ghost_allocation(0.5);
        options.estimated_items_capacity(items).weight_capacity(self.bytes(steps));
        options.build().expect("both capacities are set")
    }
}

/// How many times as large a cache of `from` steps has to become before it changes to `to` steps, so that it then
/// remembers a block for each of them: mostly 1. Nothing is lost when a cache grows by a whole factor. Pure.
pub(crate) fn lossless_factor(from: u64, to: u64) -> u64 {
    // By an even factor it would round as by its half.
    let mut factors = (1..FACTORS_END).step_by(2);
    // Found for each pair that was ever tried, mostly at once. Without it one block would be lost.
    factors.find(|factor| remembered(factor * from, to) == to).unwrap_or(1)
}

/// Of all pairs up to 2,000 the largest is 11, and of 3 million random ones up to 16 million it is 13.
const FACTORS_END: u64 = 64;

/// How many blocks a cache of `from` steps that remembers as many will remember when it has `to`, as `quick_cache`
/// computes it: most quotients are rounded.
fn remembered(from: u64, to: u64) -> u64 {
    (from as f64 * (to as f64 / from as f64)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_within_the_bytes() {
        let cases = [
            ("nothing", 0, 8, 1, 0),
            ("less than a step", 5000, 8, 1, 5000),
            ("a small cache", 128 << 10, 8, 1, 128 << 10),
            ("one shard", (1 << 20) - 1, 8, 1, (1 << 20) - STEP_BYTES),
            ("few shards", 3 << 20, 16, 4, 3 << 20),
            ("as many as threads need", 96 << 20, 2, 8, 96 << 20),
            ("rounded up", 96 << 20, 3, 16, 96 << 20),
        ];
        for (name, bytes, threads, shards, want) in cases {
            let steps = CacheSteps::new(bytes, threads);
            assert_eq!((steps.shards, steps.bytes(steps.within(bytes))), (shards, want), "{name}");
        }
    }

    #[test]
    fn nothing_is_lost_by_way_of_a_factor() {
        let mut at_once = 0;
        for (from, to) in (1..400).flat_map(|from| (1..400).map(move |to| (from, to))) {
            let factor = lossless_factor(from, to);
            assert_eq!(remembered(from, factor * from), factor * from);
            assert_eq!(remembered(factor * from, to), to, "{from} to {to} by {factor}");
            at_once += u64::from(factor == 1);
        }
        assert_eq!((lossless_factor(49, 1), remembered(49, 1)), (3, 0));
        assert!(at_once > 399 * 399 * 9 / 10, "{at_once}");
    }
}
