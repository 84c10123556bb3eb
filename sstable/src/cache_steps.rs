//! In which steps the block cache grows and shrinks.
//!
//! `quick_cache` remembers some blocks that it no longer has: one that is read again soon is kept
//! better than one that is read once. How many, it computes from how many it was and the ratio of
//! the capacities, rounded down, whenever its capacity changes. So any small change loses some, and
//! a small capacity nearly all; none comes back when the cache grows again. Here capacities are
//! whole numbers of steps, each of one remembered block, and change so that nothing is lost in that
//! computation.

use quick_cache::{Options, OptionsBuilder};

/// Capacity of a shard for which it remembers one block that it no longer has: some two blocks.
const STEP_BYTES: u64 = 8 << 10;

/// Smaller shards would have few steps, and no room for long blocks, such as index partitions are
/// in memory.
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
    /// Those of a cache that is created with at most `bytes` bytes, used by as many threads as run
    /// at once.
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

/// How a cache of `from` steps changes to `to`, or to a few less, so that it then remembers a block
/// for each of them: by way of how many, and how many at last. Mostly both are `to`.
///
/// The first lies between `from` and the last: the cache is never larger than it was, or may be.
/// Pure.
pub(crate) fn way(from: u64, to: u64) -> (u64, u64) {
    let lasts = (1..=to).rev().take(TRIED_MAX);
    let mut ways = lasts.flat_map(|last| {
        let towards = (0..=from.abs_diff(last)).take(TRIED_MAX);
        towards.map(move |n| if from < last { (last - n, last) } else { (last + n, last) })
    });
    let keeps_all =
        |&(by, last): &(u64, u64)| remembered(from, by) == by && remembered(by, last) == last;
    // Without one the cache remembers a block less than it could.
    ways.find(keeps_all).unwrap_or((to, to))
}

/// Enough for all pairs up to 400, and for all but a few of 200,000 random ones up to 16 million:
/// 96 of 100 go at once, and the others end 90 steps lower at most.
const TRIED_MAX: usize = 256;

/// How many blocks a cache of `from` steps that remembers as many will remember when it has `to`,
/// as `quick_cache` computes it: most quotients are rounded.
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
    fn nothing_is_lost_by_way_of_other_steps() {
        let (mut tried, mut at_once, mut short_max, mut lossy) = (0, 0, 0, 0);
        let mut check = |from: u64, to: u64| {
            let (by, last) = way(from, to);
            assert!((from.min(last)..=from.max(last)).contains(&by), "{from} to {to} by {by}");
            assert!(last <= to && to - last <= to / 16 + 1, "{from} to {to} ends at {last}");
            if remembered(from, by) != by || remembered(by, last) != last {
                assert!(from.max(to) > 400 && remembered(from, to) + 1 == to, "{from} to {to}");
                lossy += 1;
            }
            short_max = (to - last).max(short_max);
            at_once += u32::from((by, last) == (to, to));
            tried += 1;
        };
        for (from, to) in (1..400).flat_map(|from| (1..400).map(move |to| (from, to))) {
            check(from, to);
        }
        let mut random = 1_u64;
        let mut below = |bound: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            1 + (random >> 32) % bound
        };
        for _ in 0..200_000 {
            let bound = 1 << below(24);
            check(below(bound), below(bound));
        }
        assert!(at_once > tried / 20 * 19, "{at_once} of {tried}");
        assert!(lossy < 10, "{lossy} of {tried} lose a block");
        assert!(short_max <= 90, "{short_max} steps less than there may be");
        assert_eq!(
            (way(49, 1), remembered(49, 1)),
            ((3, 1), 0),
            "at once the last one would be lost"
        );
        assert_eq!((way(9, 0), way(0, 9)), ((0, 0), (9, 9)));
    }
}
