//! Tests of the eviction policy: misses if popular keys are scattered over all blocks.

use bytes::Bytes;
use sievedb_format::{InternalKey, Kind, Trailer};

use crate::{
    block::{Block, BlockBuilder, BlockHandle, BlockRole},
    cache::{BlockCache, CacheUse},
};

const BLOCKS: u64 = 8_000;
const KEYS: u64 = 35 * BLOCKS;
const TABLE: u64 = 7;
/// Percent of the blocks.
const CACHED: u64 = 43;
const CACHED_BLOCKS: u64 = BLOCKS * CACHED / 100;
/// Parallel threads of the machine, which give the number of shards.
const THREADS: usize = 2;
/// Number of ranks that YCSB scrambles.
const RANKS: f64 = 1e10;

fn mix(number: u64) -> u64 {
    let mixed = (number ^ number >> 31).wrapping_mul(0x7fb5_d329_728e_a185);
    (mixed ^ mixed >> 27).wrapping_mul(0x81da_def4_bc2d_d44d) ^ mixed >> 33
}

/// Lookups of keys by their popularity, through a cache.
struct Lookups {
    cache: BlockCache,
    content: Bytes,
    state: u64,
    /// Seed of the popularities of keys.
    seed: u64,
}

impl Lookups {
    fn new() -> Self {
        let mut builder = BlockBuilder::default();
        builder.add(InternalKey::new(b"key", Trailer::new(1, Kind::Put)), &[7; 4000]);
        let content = Bytes::copy_from_slice(builder.finish());
        let cache = BlockCache::with_threads(64 << 20, THREADS);
        let mut lookups = Self { cache, content, state: 1, seed: 1 };
        for number in 0..100 {
            lookups.read(number);
        }
        let block_bytes = lookups.cache.memory_bytes() / 100;
        lookups.cache = BlockCache::with_threads(CACHED_BLOCKS * block_bytes, THREADS);
        lookups
    }

    /// Returns 1 if the block was not cached.
    fn read(&mut self, number: u64) -> u64 {
        if let Some(block) = self.cache.get(TABLE, number, CacheUse::Bypass) {
            self.cache.note_use(TABLE, &block);
            return 0;
        }
        let handle = BlockHandle { offset: number, bytes: 4096 };
        let block = Block::decode(self.content.clone(), BlockRole::Data, handle);
        self.cache.insert(TABLE, number, block.expect("it was built"));
        1
    }

    /// Returns the misses per 1,000 lookups, with this many lookups per cached block.
    fn misses(&mut self, per_cached_block: u64) -> u64 {
        let lookups = per_cached_block * CACHED_BLOCKS;
        let misses: u64 = (0..lookups).map(|_| self.look_up()).sum();
        misses * 1_000 / lookups
    }

    fn look_up(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let unit = (mix(self.state) >> 11) as f64 / (1_u64 << 53) as f64;
        // Rank `r` is drawn in proportion to `1 / r`.
        let rank = (unit * RANKS.ln()).exp() as u64;
        let key = mix(rank ^ self.seed << 40) % KEYS;
        self.read(mix(key) % BLOCKS)
    }
}

/// Misses are close to the 342 of a cache of the most popular blocks, even after a scan of all
/// blocks.
#[test]
fn popular_blocks_stay() {
    let mut lookups = Lookups::new();
    lookups.misses(70);
    let before = lookups.misses(70);
    assert!(before <= 386, "{before} misses of 1,000 lookups");
    for number in 0..BLOCKS {
        lookups.read(number);
    }
    let after = lookups.misses(4);
    assert!(after <= 395, "{after} misses after a scan");
}

/// Other keys become popular: after 8 lookups for each cached block, misses are nearly as few as
/// before.
#[test]
fn blocks_that_become_popular_replace_others() {
    let mut lookups = Lookups::new();
    lookups.misses(70);
    lookups.seed = 2;
    let misses: Vec<u64> = (0..4).map(|_| lookups.misses(4)).collect();
    assert!(misses[0] > 410, "{misses:?}: the others were not cached");
    assert!(misses[2] <= 400 && misses[3] <= 396, "{misses:?}");
}
