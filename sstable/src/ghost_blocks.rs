//! Ghost list of a block cache: keys of the most recently evicted blocks.
//!
//! A block read while its key is in the list would have stayed in a larger cache. The list samples
//! one of `one_in` keys by hash, and each sampled key counts `one_in` times. Other keys cost one
//! hash and no lock.
//!
//! Source: Waldspurger, Park, Garthwaite and Ahmad, "Efficient MRC Construction with SHARDS", FAST
//! 2015: a sample by hash keeps all reads of a key, or none.

use std::{
    collections::{HashMap, VecDeque},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use crate::{cache::BlockKey, sync::Mutex};

/// Approximate length of the list if blocks take [`BLOCK_BYTES`].
const KEYS: u64 = 256;

/// Usual memory of a cached block.
const BLOCK_BYTES: u64 = 4 << 10;

/// Maximum length of the list, at about 100 bytes per key.
const KEYS_MAX: usize = 1 << 10;

/// Reads that a larger block cache would have avoided. See
/// [`BlockCache::set_ghost_bytes`](crate::BlockCache::set_ghost_bytes).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GhostStats {
    /// Estimated bytes that a cache larger by the ghost list would not have read from tables.
    pub spared_bytes: u64,
    /// Sampled reads behind the estimate.
    pub samples: u64,
}

/// The ghost list. Empty until its size is set.
#[derive(Debug, Default)]
pub(crate) struct GhostBlocks {
    /// A power of two; 0 disables the list.
    one_in: AtomicU64,
    list: Mutex<List>,
    spared_bytes: AtomicU64,
    samples: AtomicU64,
}

#[derive(Debug, Default)]
struct List {
    /// Memory of the evicted blocks that the list represents.
    bytes_max: u64,
    /// Estimated memory of all blocks evicted so far.
    evicted_bytes: u64,
    /// Keys in order of eviction, with `evicted_bytes` after it. May include keys that are no
    /// longer in the map.
    order: VecDeque<(u64, BlockKey)>,
    evicted_at: HashMap<BlockKey, u64>,
}

impl List {
    /// Drops keys evicted at least `bytes_max` bytes ago, and the oldest beyond [`KEYS_MAX`].
    fn trim(&mut self) {
        while let Some(&(at, key)) = self.order.front()
            && (self.evicted_bytes - at >= self.bytes_max || self.order.len() > KEYS_MAX)
        {
            self.order.pop_front();
            if self.evicted_at.get(&key) == Some(&at) {
                self.evicted_at.remove(&key);
            }
        }
    }
}

impl GhostBlocks {
    /// Sets the memory of the evicted blocks that the list represents, and clears the list; 0
    /// disables it.
    pub(crate) fn set_bytes(&self, bytes: u64) {
        let one_in = (bytes / BLOCK_BYTES).div_ceil(KEYS).max(1).next_power_of_two();
        let mut list = self.list.lock();
        *list = List { bytes_max: bytes, ..List::default() };
        self.one_in.store(if bytes > 0 { one_in } else { 0 }, Relaxed);
    }

    /// Records the eviction of a block that took `bytes()` bytes.
    pub(crate) fn note_evicted(&self, key: BlockKey, bytes: impl FnOnce() -> u64) {
        let Some(one_in) = self.sampled(key) else { return };
        let mut list = self.list.lock();
        list.evicted_bytes += bytes().saturating_mul(one_in);
        let at = list.evicted_bytes;
        list.order.push_back((at, key));
        list.evicted_at.insert(key, at);
        list.trim();
    }

    /// Records a cache miss that read `bytes` bytes from a table.
    pub(crate) fn note_read(&self, key: BlockKey, bytes: u64) {
        let Some(one_in) = self.sampled(key) else { return };
        if self.list.lock().evicted_at.remove(&key).is_some() {
            self.spared_bytes.fetch_add(bytes.saturating_mul(one_in), Relaxed);
            self.samples.fetch_add(1, Relaxed);
        }
    }

    /// Returns the counts so far.
    pub(crate) fn stats(&self) -> GhostStats {
        GhostStats {
            spared_bytes: self.spared_bytes.load(Relaxed),
            samples: self.samples.load(Relaxed),
        }
    }

    /// Returns the number of keys that this key represents, if it is sampled.
    fn sampled(&self, (table, offset): BlockKey) -> Option<u64> {
        let one_in = self.one_in.load(Relaxed);
        // Fibonacci hashing, twice: low bits of block offsets are far from uniform.
        let mixed = (table ^ offset.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let hash = (mixed ^ mixed >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        (one_in > 0 && hash & (one_in - 1) == 0).then_some(one_in)
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const BLOCK: u64 = 4 << 10;

    fn ghosts(bytes: u64) -> GhostBlocks {
        let ghosts = GhostBlocks::default();
        ghosts.set_bytes(bytes);
        ghosts
    }

    /// A cache of a fixed number of blocks that evicts the oldest.
    struct Fifo {
        blocks: VecDeque<BlockKey>,
        blocks_max: usize,
        ghosts: GhostBlocks,
        read_bytes: u64,
    }

    impl Fifo {
        fn new(blocks_max: usize, ghosts: GhostBlocks) -> Self {
            Self { blocks: VecDeque::new(), blocks_max, ghosts, read_bytes: 0 }
        }

        fn read(&mut self, key: BlockKey) {
            if self.blocks.contains(&key) {
                return;
            }
            self.read_bytes += BLOCK / 2;
            self.ghosts.note_read(key, BLOCK / 2);
            self.blocks.push_back(key);
            if self.blocks.len() > self.blocks_max {
                let evicted = self.blocks.pop_front().expect("it is not empty");
                self.ghosts.note_evicted(evicted, || BLOCK);
            }
        }
    }

    /// The estimate matches the savings of a cache larger by the list, at any sampling rate.
    #[test]
    fn the_list_counts_the_reads_that_a_larger_cache_avoids() {
        for (list_blocks, one_in) in [(256, 1), (512, 2), (1_024, 4)] {
            let bytes = list_blocks * BLOCK;
            let mut cache = Fifo::new(1_000, ghosts(bytes));
            let mut larger = Fifo::new(1_000 + list_blocks as usize, GhostBlocks::default());
            let mut state = 1_u64;
            for _ in 0..100_000 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                // Skewed to small numbers.
                let block = ((state >> 33) % 6_000).min((state >> 40) % 6_000);
                cache.read((7, block * 4_321));
                larger.read((7, block * 4_321));
            }
            assert_eq!(cache.ghosts.one_in.load(Relaxed), one_in);
            let spared = (cache.read_bytes - larger.read_bytes) as f64;
            let estimated = cache.ghosts.stats().spared_bytes as f64;
            assert!((0.8..1.25).contains(&(estimated / spared)), "{estimated} of {spared}");
        }
    }

    #[test]
    fn blocks_evicted_longer_ago_do_not_count() {
        let ghosts = ghosts(MIB);
        let blocks = MIB / BLOCK;
        for offset in 0..=blocks {
            ghosts.note_evicted((1, offset), || BLOCK);
        }
        ghosts.note_read((1, 0), 100);
        assert_eq!(ghosts.stats(), GhostStats::default(), "evicted too long ago");
        ghosts.note_read((2, 5), 100);
        assert_eq!(ghosts.stats(), GhostStats::default(), "a block of another table");
        ghosts.note_read((1, 5), 100);
        assert_eq!(ghosts.stats(), GhostStats { spared_bytes: 100, samples: 1 });
        ghosts.note_read((1, 5), 100);
        assert_eq!(ghosts.stats().samples, 1, "it was not evicted again");
        // Evicted twice: the later eviction counts.
        ghosts.note_evicted((1, 9), || BLOCK);
        for offset in 1_000..1_000 + blocks - 10 {
            ghosts.note_evicted((1, offset), || BLOCK);
        }
        ghosts.note_read((1, 9), 100);
        assert_eq!(ghosts.stats().samples, 2);
    }

    /// Scans count only if cache and list together can hold all their blocks.
    #[test]
    fn scans_count_only_if_a_larger_cache_holds_them() {
        let repeated = |blocks: u64| {
            let mut cache = Fifo::new(256, ghosts(MIB));
            for _ in 0..4 {
                (0..blocks).for_each(|block| cache.read((1, block)));
            }
            cache.ghosts.stats().samples
        };
        assert_eq!(repeated(256), 0, "the cache holds them");
        assert_eq!(repeated(500), 3 * 500, "the list holds the rest");
        assert_eq!(repeated(520), 0, "too many for both");
    }

    #[test]
    fn the_list_is_bounded() {
        for bytes in [1, BLOCK, MIB, 100 * MIB, 1 << 40] {
            let ghosts = ghosts(bytes);
            for offset in 0..200_000 {
                ghosts.note_evicted((1, offset), || 1);
                ghosts.note_evicted((1, offset % 100), || 1);
            }
            let list = ghosts.list.lock();
            assert!(list.order.len() <= KEYS_MAX && list.evicted_at.len() <= list.order.len());
        }
        let none = ghosts(0);
        none.note_evicted((1, 1), || BLOCK);
        none.note_read((1, 1), BLOCK);
        assert_eq!(none.stats(), GhostStats::default());
    }
}
