//! Capacities of the block cache: whole numbers of steps.
//!
//! `quick_cache` remembers the keys of some evicted blocks (ghosts). A block that is read while its
//! key is remembered enters the hot part. On each change of capacity, `quick_cache` scales the
//! number of ghosts by the ratio of the capacities and rounds down. So small changes lose ghosts,
//! and growing restores none. A step is the capacity of one ghost, and [`way`] chooses changes that
//! lose none.

use quick_cache::{Options, OptionsBuilder};

/// Capacity of a shard per ghost: three to four blocks.
///
/// A longer list admits less popular blocks, which evict more popular ones. A shorter list takes
/// longer to admit blocks that become popular.
///
/// Misses of 1,000 lookups by Zipf's distribution with 43 % of the blocks cached, after a warm-up
/// of 16 lookups per cached block: 322 with one ghost for 8 KiB, 316 for 16 KiB, 315 for 24 KiB,
/// 316 for 32 KiB. If the most popular blocks of the warm-up stay: 312. After a change of all keys,
/// recovery takes 8 lookups per block with 16 KiB, and 10 with 32 KiB.
const STEP_BYTES: u64 = 16 << 10;

/// Minimum capacity of a shard: 64 steps, so that a step is at most 1/64 of a new cache.
const SHARD_BYTES_MIN: u64 = 1 << 20;

/// Share of the hot part in a step. Scaling it needs no rounding either.
const HOT_SHARE: f64 = 993.0 / 1024.0;

/// Capacities of a cache.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CacheSteps {
    shards: u64,
    /// Step of one shard.
    shard_step_bytes: u64,
}

impl CacheSteps {
    /// Returns the capacities of a cache created with at most `bytes` bytes for `threads` parallel
    /// threads.
    pub(crate) fn new(bytes: u64, threads: usize) -> Self {
        let shards_max = (bytes / SHARD_BYTES_MIN).max(1);
        let wanted = (4 * threads as u64).next_power_of_two();
        let shards = wanted.min(1 << shards_max.ilog2());
        // A smaller cache is one step.
        let shard_step_bytes = if bytes == 0 { STEP_BYTES } else { STEP_BYTES.min(bytes) };
        Self { shards, shard_step_bytes }
    }

    /// Returns the steps of a capacity of at most `bytes`; at least 1 unless `bytes` is 0.
    pub(crate) fn within(&self, bytes: u64) -> u64 {
        (bytes / self.bytes(1)).max(u64::from(bytes > 0))
    }

    /// Returns the capacity of `steps` steps in bytes.
    pub(crate) fn bytes(&self, steps: u64) -> u64 {
        steps.saturating_mul(self.shards * self.shard_step_bytes)
    }

    /// Returns the options of a new cache of `steps` steps.
    pub(crate) fn options(&self, steps: u64) -> Options {
        let in_memory = |number| usize::try_from(number).unwrap_or(usize::MAX);
        // Half as many ghosts: one for each step of a shard.
        let items = in_memory(2 * steps * self.shards);
        let mut options = OptionsBuilder::new();
        options.shards(in_memory(self.shards)).hot_allocation(HOT_SHARE).ghost_allocation(0.5);
        options.estimated_items_capacity(items).weight_capacity(self.bytes(steps));
        options.build().expect("both capacities are set")
    }
}

/// Returns an intermediate and a final number of steps for a change from `from` to `to`. Changing
/// to both in turn leaves one ghost per final step. Usually both are `to`.
///
/// The final number is at most `to`. The intermediate one lies between `from` and the final one.
/// Pure.
pub(crate) fn way(from: u64, to: u64) -> (u64, u64) {
    let lasts = (1..=to).rev().take(TRIED_MAX);
    let mut ways = lasts.flat_map(|last| {
        let towards = (0..=from.abs_diff(last)).take(TRIED_MAX);
        towards.map(move |n| if from < last { (last - n, last) } else { (last + n, last) })
    });
    let keeps_all = |&(by, last): &(u64, u64)| ghosts(from, by) == by && ghosts(by, last) == last;
    // Otherwise one ghost is lost.
    ways.find(keeps_all).unwrap_or((to, to))
}

/// Maximum number of final capacities tried.
///
/// Suffices for all pairs up to 400, and for all but a few of 200,000 random pairs up to 16
/// million. Of 100 pairs, 96 change directly; the others end at most 90 steps lower.
const TRIED_MAX: usize = 256;

/// Returns the ghosts that `quick_cache` keeps when its capacity changes from `from` steps with as
/// many ghosts to `to` steps. Most quotients are rounded.
fn ghosts(from: u64, to: u64) -> u64 {
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
            ("one shard", (2 << 20) - 1, 8, 1, (2 << 20) - STEP_BYTES),
            ("few shards", 6 << 20, 16, 4, 6 << 20),
            ("as many as threads need", 96 << 20, 2, 8, 96 << 20),
            ("rounded up", 96 << 20, 3, 16, 96 << 20),
        ];
        for (name, bytes, threads, shards, want) in cases {
            let steps = CacheSteps::new(bytes, threads);
            assert_eq!((steps.shards, steps.bytes(steps.within(bytes))), (shards, want), "{name}");
        }
    }

    #[test]
    fn no_ghost_is_lost_over_intermediate_steps() {
        let (mut tried, mut at_once, mut short_max, mut lossy) = (0, 0, 0, 0);
        let mut check = |from: u64, to: u64| {
            let (by, last) = way(from, to);
            assert!((from.min(last)..=from.max(last)).contains(&by), "{from} to {to} by {by}");
            assert!(last <= to && to - last <= to / 16 + 1, "{from} to {to} ends at {last}");
            if ghosts(from, by) != by || ghosts(by, last) != last {
                assert!(from.max(to) > 400 && ghosts(from, to) + 1 == to, "{from} to {to}");
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
        assert_eq!((way(49, 1), ghosts(49, 1)), ((3, 1), 0), "at once the last one would be lost");
        assert_eq!((way(9, 0), way(0, 9)), ((0, 0), (9, 9)));
    }
}
