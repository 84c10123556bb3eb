//! The block cache.

use std::{
    collections::HashSet,
    num::NonZero,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread,
};

use bytes::Bytes;
use quick_cache::{Lifecycle, Weighter, sync::Cache};

use crate::{
    block::{Block, BlockInner, BlockRole},
    block_memory::{self, BlockMemory},
    cache_steps::{CacheSteps, way},
    ghost_blocks::{GhostBlocks, GhostStats},
    sync::Mutex,
    table::Table,
};

/// Key of a block: the table's number in this process, and the block's offset.
///
/// Not the file id: a file that is reopened, or restored under an old id, must not find blocks of
/// its predecessor.
pub(crate) type BlockKey = (u64, u64);

#[cfg(not(test))]
type KeyHash = quick_cache::DefaultHashBuilder;

/// Has no random seed: the evictions of a unit test do not depend on chance.
#[cfg(test)]
type KeyHash = std::hash::BuildHasherDefault<std::hash::DefaultHasher>;

/// A cache of verified, decompressed blocks, shared by tables and bounded in bytes.
///
/// Contains data blocks and index partitions; tables own top indexes and filters. Scan-resistant:
/// blocks read once do not evict blocks read often.
#[derive(Debug)]
pub struct BlockCache {
    blocks: Cache<BlockKey, Block, BlockWeight, KeyHash, BlockLife>,
    steps: CacheSteps,
    /// The capacity in `steps`. Locked while it changes.
    capacity_steps: Mutex<u64>,
    /// Pages for the contents of blocks; the heap if `None`.
    memory: Option<Arc<BlockMemory>>,
    /// `true` if the capacity is not 0.
    keeps_blocks: AtomicBool,
    /// Bytes of contents that the cache or a caller holds.
    alive_bytes: Arc<AtomicU64>,
    ghosts: Arc<GhostBlocks>,
}

/// The content of a block, or read-ahead, counted until all its holders drop it.
struct CountedContent<C: AsRef<[u8]>> {
    content: C,
    alive_bytes: Arc<AtomicU64>,
}

impl<C: AsRef<[u8]>> AsRef<[u8]> for CountedContent<C> {
    fn as_ref(&self) -> &[u8] {
        self.content.as_ref()
    }
}

impl<C: AsRef<[u8]>> Drop for CountedContent<C> {
    fn drop(&mut self) {
        self.alive_bytes.fetch_sub(self.content.as_ref().len() as u64, Relaxed);
    }
}

/// Weighs a cached block by its memory.
#[derive(Debug, Clone)]
struct BlockWeight;

/// Overhead of a cached block: 80 bytes for an entry of 40 bytes, a part of the ghosts, and their
/// places in the hash table; 64 bytes for the owner of the content; 48 bytes for reference counts
/// and the allocator.
const ENTRY_BYTES: usize = 192;

impl Weighter<BlockKey, Block> for BlockWeight {
    fn weight(&self, _: &BlockKey, block: &Block) -> u64 {
        let content_bytes = block.content_bytes();
        let rounding = block_memory::memory_bytes(content_bytes, block.role()) - content_bytes;
        (block.memory_bytes() + rounding + ENTRY_BYTES) as u64
    }
}

/// Hooks of `quick_cache`.
#[derive(Debug, Clone)]
struct BlockLife {
    ghosts: Arc<GhostBlocks>,
}

/// Evicted blocks, dropped after the lock of their shard is released.
#[derive(Debug, Default)]
struct Evicted(Vec<Block>);

impl Drop for Evicted {
    fn drop(&mut self) {
        for block in &self.0 {
            block.evict();
        }
    }
}

impl Lifecycle<BlockKey, Block> for BlockLife {
    type RequestState = Evicted;

    /// Resets the uses of a block: `quick_cache` calls this when the clock's hand passes the block.
    /// Pins no block.
    fn is_pinned(&self, _: &BlockKey, block: &Block) -> bool {
        block.forget_uses();
        false
    }

    fn on_evict(&self, evicted: &mut Evicted, key: BlockKey, block: Block) {
        self.ghosts.note_evicted(key, || BlockWeight.weight(&key, &block));
        evicted.0.push(block);
    }
}

impl BlockCache {
    /// Creates a cache of at most `bytes` bytes; 0 caches nothing.
    ///
    /// There are four shards per parallel thread, of at least 1 MiB each. A block longer than a
    /// shard is not cached. The capacity is rounded down to 16 KiB per shard.
    #[must_use]
    pub fn new(bytes: u64) -> Self {
        Self::with_threads(bytes, thread::available_parallelism().map_or(1, NonZero::get))
    }

    /// Creates a cache like [`new`](Self::new), for a machine with this number of parallel threads.
    pub(crate) fn with_threads(bytes: u64, threads: usize) -> Self {
        let steps = CacheSteps::new(bytes, threads);
        let capacity_steps = steps.within(bytes);
        let hasher = KeyHash::default();
        let options = steps.options(capacity_steps);
        let ghosts = Arc::<GhostBlocks>::default();
        let life = BlockLife { ghosts: Arc::clone(&ghosts) };
        let blocks = Cache::with_options(options, BlockWeight, hasher, life);
        let capacity_steps = Mutex::new(capacity_steps);
        Self {
            blocks,
            steps,
            capacity_steps,
            memory: BlockMemory::new(),
            keeps_blocks: AtomicBool::new(bytes > 0),
            alive_bytes: Arc::default(),
            ghosts,
        }
    }

    /// Returns the capacity in bytes.
    #[must_use]
    pub fn capacity_bytes(&self) -> u64 {
        self.steps.bytes(*self.capacity_steps.lock())
    }

    /// Changes the capacity. Evicts surplus blocks before it returns.
    ///
    /// The capacity is rounded down to 16 KiB per shard, sometimes to a small multiple. It is at
    /// least 16 KiB per shard unless `bytes` is 0. So scan resistance survives any number of
    /// changes. 0 disables the cache; growing it again does not restore scan resistance.
    ///
    /// Locks each shard in turn. The number of shards does not change.
    pub fn set_capacity_bytes(&self, bytes: u64) {
        let mut capacity_steps = self.capacity_steps.lock();
        let (from, to) = (*capacity_steps, self.steps.within(bytes));
        if to == from {
            return;
        }
        let (by, to) = way(from, to);
        if to == from {
            return;
        }
        if by != to {
            self.blocks.set_capacity(self.steps.bytes(by));
        }
        self.blocks.set_capacity(self.steps.bytes(to));
        *capacity_steps = to;
        self.keeps_blocks.store(to > 0, Relaxed);
    }

    /// Sets the size of the ghost list, which estimates the reads that a cache larger by `bytes`
    /// would avoid. Default 0: no estimate. Clears the list.
    ///
    /// The list is a sample of at most 1,024 keys, for any number of bytes.
    pub fn set_ghost_bytes(&self, bytes: u64) {
        self.ghosts.set_bytes(bytes);
    }

    /// Returns the reads that a cache larger by the ghost list would have avoided so far.
    #[must_use]
    pub fn ghost_stats(&self) -> GhostStats {
        self.ghosts.stats()
    }

    /// Returns the bytes of cached blocks and their bookkeeping. Evicted blocks that callers still
    /// hold through values are excluded.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        self.blocks.weight()
    }

    /// Returns the bytes that callers hold and the cache does not: blocks of their values, of
    /// cursors and of lookups in flight, and read-ahead. Includes blocks of mapped files; excludes
    /// [`CacheUse::Background`].
    ///
    /// Visits every cached block: 0.1 ms per 1,000. Approximate while other threads read.
    #[must_use]
    pub fn pinned_bytes(&self) -> u64 {
        let cached: u64 = self.blocks.iter().map(|(_, block)| block.content_bytes() as u64).sum();
        self.alive_bytes.load(Relaxed).saturating_sub(cached)
    }

    /// Counts a content for [`pinned_bytes`](Self::pinned_bytes).
    pub(crate) fn counted(&self, content: impl AsRef<[u8]> + Send + 'static) -> Bytes {
        self.alive_bytes.fetch_add(content.as_ref().len() as u64, Relaxed);
        let alive_bytes = Arc::clone(&self.alive_bytes);
        Bytes::from_owner(CountedContent { content, alive_bytes })
    }

    /// Copies the content of a block into pages, [counted](Self::counted). Returns `None` if it
    /// belongs on the heap or the capacity is 0.
    pub(crate) fn copy_in_pages(&self, content: &[u8], role: BlockRole) -> Option<Bytes> {
        let memory = self.memory.as_ref().filter(|_| self.keeps_blocks.load(Relaxed))?;
        memory.copy(content, role).map(|piece| self.counted(piece))
    }

    /// Returns the bytes of pages with contents of blocks, cached or held by callers, and of pages
    /// kept for reuse. They come from the system, not from the allocator.
    ///
    /// Excludes contents on the heap: most blocks below 3 KiB, and blocks above 256 KiB. On systems
    /// other than Linux with pages of 4 KiB, all contents are on the heap. If the system takes no
    /// pages back (`mlockall`), returns the bytes of all mapped pages.
    #[must_use]
    pub fn page_bytes(&self) -> u64 {
        self.memory.as_ref().map_or(0, |memory| memory.resident_bytes() as u64)
    }

    /// Returns the number of cached blocks.
    #[must_use]
    pub fn len(&self) -> usize {
        self.blocks.len()
    }

    /// Returns `true` if no block is cached.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Returns the block at `offset` of the table with this number, if it is cached.
    #[inline]
    pub(crate) fn get(&self, table: u64, offset: u64, cache_use: CacheUse) -> Option<Block> {
        match cache_use {
            CacheUse::Fill => self.blocks.get(&(table, offset)),
            CacheUse::Bypass | CacheUse::Background => self.blocks.peek(&(table, offset)),
        }
    }

    /// Records a hit on a block found in its slot.
    #[inline]
    pub(crate) fn note_use(&self, table: u64, block: &BlockInner) {
        if block.count_use() {
            self.report_use(table, block.handle().offset);
        }
    }

    #[cold]
    fn report_use(&self, table: u64, offset: u64) {
        self.blocks.get(&(table, offset));
    }

    /// Evicts a block, if it is cached.
    pub(crate) fn remove(&self, table: u64, offset: u64) -> Option<Block> {
        let (_, block) = self.blocks.remove(&(table, offset))?;
        block.evict();
        Some(block)
    }

    /// Evicts all blocks of these tables. Later reads may cache blocks again.
    ///
    /// Visits every cached block.
    pub fn remove_blocks_of<'t>(&self, tables: impl IntoIterator<Item = &'t Table>) {
        let numbers: HashSet<u64> = tables.into_iter().map(Table::number).collect();
        if numbers.is_empty() {
            return;
        }
        let keys = self.blocks.iter().map(|(key, _)| key);
        let keys: Vec<_> = keys.filter(|(table, _)| numbers.contains(table)).collect();
        for (table, offset) in keys {
            self.remove(table, offset);
        }
    }

    /// Caches a block that was read from its table.
    pub(crate) fn insert(&self, table: u64, offset: u64, block: Block) {
        self.ghosts.note_read((table, offset), block.handle().bytes);
        self.blocks.insert((table, offset), block);
    }
}

impl Drop for BlockCache {
    /// Drops the blocks. No table remains, because tables keep their cache alive.
    fn drop(&mut self) {
        if let Some(memory) = &self.memory {
            memory.close(|| self.blocks.clear());
        }
    }
}

/// Effect of a read on the block cache.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum CacheUse {
    /// Reads from the cache, and caches blocks read from the table.
    #[default]
    Fill,
    /// Reads from the cache, but caches no block and records no use.
    Bypass,
    /// As [`Bypass`](Self::Bypass), and blocks do not count as pinned. For compactions and other
    /// readers of whole tables, which charge their own buffers.
    Background,
}

/// A listener for the block requests of a lookup.
pub trait BlockObserver {
    /// Reports a block requested from the cache.
    fn on_request(&mut self, block: BlockRequest);

    /// Reports a cache miss of the last request: `bytes` bytes were read from the source.
    fn on_read(&mut self, bytes: u64);
}

/// A block that a lookup requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockRequest {
    /// Offset in the table.
    pub offset: u64,
    /// Length in the table.
    pub bytes: u64,
    /// `true` for an index partition, `false` for a data block.
    pub is_index: bool,
}

/// Requests and reads of lookups. Owned by the caller, not shared.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BlockCounts {
    /// Data blocks requested from the cache.
    pub data_block_requests: u64,
    /// Index partitions requested from the cache. Excludes the top index, which is resident.
    pub index_block_requests: u64,
    /// Blocks read from the source.
    pub blocks_read: u64,
    /// Bytes read from the source.
    pub bytes_read: u64,
}

impl BlockObserver for BlockCounts {
    fn on_request(&mut self, block: BlockRequest) {
        self.data_block_requests += u64::from(!block.is_index);
        self.index_block_requests += u64::from(block.is_index);
    }

    fn on_read(&mut self, bytes: u64) {
        self.blocks_read += 1;
        self.bytes_read += bytes;
    }
}

#[cfg(test)]
mod tests {
    use sievedb_format::{InternalKey, Kind, Trailer};

    use super::*;
    use crate::block::{BlockBuilder, BlockHandle, BlockRole};

    fn block(offset: u64) -> Block {
        let mut builder = BlockBuilder::default();
        builder.add(InternalKey::new(b"key", Trailer::new(1, Kind::Put)), &[7; 4000]);
        let content = Bytes::copy_from_slice(builder.finish());
        Block::decode(content, BlockRole::Data, BlockHandle { offset, bytes: 4096 }).unwrap()
    }

    /// `quick_cache` calls [`BlockLife::is_pinned`] when its clock passes a block; only then are
    /// new uses reported. A release of `quick_cache` without these calls would evict blocks in use.
    #[test]
    fn uses_are_reported_again_after_each_round_of_the_clock() {
        let cache = BlockCache::new(1 << 20);
        let used = block(1);
        cache.insert(7, 1, used.clone());
        let reported = |count| (0..count).filter(|_| used.count_use()).count();
        assert_eq!(reported(10), 2, "then it is known to be in use");
        used.forget_uses();
        let mut rounds = 0;
        for offset in 2..20_000 {
            let other = block(offset);
            cache.insert(7, offset, other.clone());
            // The clock advances only for used blocks; blocks read once are evicted without it.
            cache.note_use(7, &other);
            for _ in 0..3 {
                if used.count_use() {
                    rounds += 1;
                    cache.get(7, 1, CacheUse::Fill);
                }
            }
            assert!(cache.memory_bytes() <= 1 << 20);
        }
        assert!(cache.get(7, 1, CacheUse::Bypass).is_some(), "a block in use stays");
        assert!(rounds > 10, "{rounds}");
    }

    /// A block read again soon after its eviction enters the hot part, even if the cache has shrunk
    /// and grown many times.
    #[test]
    fn scan_resistance_survives_changes_of_the_capacity() {
        const BYTES: u64 = 4 << 20;
        type Cycle = fn(&BlockCache, u64);
        let cycles: [(&str, Cycle); 4] = [
            ("as it was", |_, _| ()),
            ("to the least and back", |cache, _| cache.set_capacity_bytes(BYTES / 64)),
            ("step by step", |cache, _| {
                (1..64).rev().chain(1..64).for_each(|n| cache.set_capacity_bytes(BYTES / 64 * n));
            }),
            ("to any", |cache, n| cache.set_capacity_bytes(n * 7_777_777 % (2 * BYTES) + 1)),
        ];
        for (name, cycle) in cycles {
            let cache = BlockCache::new(BYTES);
            for n in 0..50 {
                cycle(&cache, n);
                cache.set_capacity_bytes(BYTES);
            }
            assert_eq!(cache.capacity_bytes(), BYTES);
            let mut others = 2..;
            let mut insert_other = || {
                let offset = others.next().expect("there are more");
                cache.insert(7, offset, block(offset));
            };
            // The first blocks fill the hot part.
            (0..5_000).for_each(|_| insert_other());
            cache.insert(7, 1, block(1));
            while cache.get(7, 1, CacheUse::Bypass).is_some() {
                insert_other();
            }
            // Evicts a few more blocks of its shard.
            (0..16).for_each(|_| insert_other());
            cache.insert(7, 1, block(1));
            (0..5_000).for_each(|_| insert_other());
            assert!(cache.get(7, 1, CacheUse::Bypass).is_some(), "{name}");
        }
    }
}
