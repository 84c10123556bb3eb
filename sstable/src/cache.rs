//! Blocks that many readers share.

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
use quick_cache::{DefaultHashBuilder, Lifecycle, Weighter, sync::Cache};

use crate::{
    block::{Block, BlockInner, BlockRole},
    block_memory::{self, BlockMemory},
    cache_steps::{CacheSteps, way},
    ghost_blocks::{GhostBlocks, GhostStats},
    sync::Mutex,
    table::Table,
};

/// A block's key: the table's number in this process, and the block's offset.
///
/// Not the file id: a file that is reopened, or restored under an old id, must not meet the
/// blocks of its predecessor.
pub(crate) type BlockKey = (u64, u64);

/// Checked, decompressed blocks of all tables of a process, within a bound of bytes.
///
/// Resistant to scans: a block that is read once does not drive out those that are read often.
/// Keeps data blocks and index partitions; what every lookup needs (top indexes, filters) belongs
/// to the tables.
#[derive(Debug)]
pub struct BlockCache {
    blocks: Cache<BlockKey, Block, BlockWeight, DefaultHashBuilder, BlockLife>,
    steps: CacheSteps,
    /// How many of them its capacity is. Held while that changes.
    capacity_steps: Mutex<u64>,
    /// Where the contents of its blocks lie; the heap if `None`.
    memory: Option<Arc<BlockMemory>>,
    /// Its capacity is not 0.
    keeps_blocks: AtomicBool,
    /// Bytes of what was read for callers and that somebody has, be it the cache.
    alive_bytes: Arc<AtomicU64>,
    /// Keys of blocks that it evicted.
    ghosts: Arc<GhostBlocks>,
}

/// The content of a block, or what was read ahead, counted as long as anybody has a part of it.
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

/// The bytes that a cached block takes.
#[derive(Debug, Clone)]
struct BlockWeight;

/// What the cache keeps for a block besides the block: 80 bytes for an entry of 40 bytes, half of
/// one for a block that it remembers and no longer has, and their places in the hash table; 64
/// bytes for the owner of the content; 48 bytes for the counts of who shares the block, and for
/// what the allocator adds.
const ENTRY_BYTES: usize = 192;

impl Weighter<BlockKey, Block> for BlockWeight {
    fn weight(&self, _: &BlockKey, block: &Block) -> u64 {
        let content_bytes = block.content_bytes();
        let rounding = block_memory::memory_bytes(content_bytes, block.role()) - content_bytes;
        (block.memory_bytes() + rounding + ENTRY_BYTES) as u64
    }
}

/// What happens to a block while it is in the cache.
#[derive(Debug, Clone)]
struct BlockLife {
    ghosts: Arc<GhostBlocks>,
}

/// Blocks that the cache has given up, to be let go of when its lock is released.
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

    /// Asked whenever the hand of the clock passes a block: from then on its uses count again. No
    /// block is pinned.
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
    /// Holds at most `bytes` bytes of blocks; 0 keeps nothing.
    ///
    /// It has four shards for each thread that can run at once, but none of less than 512 KiB. A
    /// block longer than a shard is not kept. The capacity is rounded down to 8 KiB for each shard.
    #[must_use]
    pub fn new(bytes: u64) -> Self {
        let threads = thread::available_parallelism().map_or(1, NonZero::get);
        let steps = CacheSteps::new(bytes, threads);
        let capacity_steps = steps.within(bytes);
        let hasher = DefaultHashBuilder::default();
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

    /// The most bytes that it holds.
    #[must_use]
    pub fn capacity_bytes(&self) -> u64 {
        self.steps.bytes(*self.capacity_steps.lock())
    }

    /// Changes the most bytes that it holds. Blocks that are too much go at once.
    ///
    /// The capacity is rounded down to 8 KiB for each shard, sometimes to a few times that, and up
    /// to it if it is not
    /// 0. So the cache tells blocks that are read again from others as well as before, however
    ///    often it shrinks and
    /// grows. With 0 it keeps nothing, and loses that for good.
    ///
    /// Locks each shard in turn. There are as many as [`new`](Self::new) has made.
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

    /// Changes the memory of evicted blocks whose keys are kept in a ghost list, to estimate what a
    /// cache with so many bytes more would spare. Default 0: nothing is estimated. Empties the
    /// list.
    ///
    /// The list is a sample of at most 1,024 keys, for any number of bytes.
    pub fn set_ghost_bytes(&self, bytes: u64) {
        self.ghosts.set_bytes(bytes);
    }

    /// Returns what a cache larger by the ghost list would have spared so far.
    #[must_use]
    pub fn ghost_stats(&self) -> GhostStats {
        self.ghosts.stats()
    }

    /// Bytes of the blocks that it holds now, with what it takes to find them. Blocks that users
    /// pin by their values, and that were driven out since, are not among them.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        self.blocks.weight()
    }

    /// Bytes of what was read for callers and that only they have now, not the cache: blocks of
    /// values that they hold, of cursors, and of lookups in flight, and what cursors have read
    /// ahead. Blocks of a mapped file are counted too; what is read for [`CacheUse::Background`] is
    /// not.
    ///
    /// Looks at every block of the cache: 0.1 ms for a thousand. Approximate while others read.
    #[must_use]
    pub fn pinned_bytes(&self) -> u64 {
        let cached: u64 = self.blocks.iter().map(|(_, block)| block.content_bytes() as u64).sum();
        self.alive_bytes.load(Relaxed).saturating_sub(cached)
    }

    /// The same content, counted for [`pinned_bytes`](Self::pinned_bytes).
    pub(crate) fn counted(&self, content: impl AsRef<[u8]> + Send + 'static) -> Bytes {
        self.alive_bytes.fetch_add(content.as_ref().len() as u64, Relaxed);
        let alive_bytes = Arc::clone(&self.alive_bytes);
        Bytes::from_owner(CountedContent { content, alive_bytes })
    }

    /// Copies the content of a block into pages, [counted](Self::counted). Returns `None` if it
    /// belongs on the heap, or the cache keeps nothing.
    pub(crate) fn copy_in_pages(&self, content: &[u8], role: BlockRole) -> Option<Bytes> {
        let memory = self.memory.as_ref().filter(|_| self.keeps_blocks.load(Relaxed))?;
        memory.copy(content, role).map(|piece| self.counted(piece))
    }

    /// Bytes of the pages that contents of blocks lie in, with those that are kept for the next
    /// contents: blocks in the cache, and those that only callers still hold. They come from the
    /// system and not from the allocator. Contents on the heap are not among them: most blocks of
    /// less than 3 KiB, blocks of more than 256 KiB, and all where pages are not of 4 KiB or the
    /// system is not Linux.
    ///
    /// If the system takes no pages back (`mlockall`), all pages that are mapped.
    #[must_use]
    pub fn page_bytes(&self) -> u64 {
        self.memory.as_ref().map_or(0, |memory| memory.resident_bytes() as u64)
    }

    /// Number of blocks that it holds now.
    #[must_use]
    pub fn len(&self) -> usize {
        self.blocks.len()
    }

    /// Whether it holds no block.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// The block at `offset` of the table with this number, if it is there.
    #[inline]
    pub(crate) fn get(&self, table: u64, offset: u64, cache_use: CacheUse) -> Option<Block> {
        match cache_use {
            CacheUse::Fill => self.blocks.get(&(table, offset)),
            CacheUse::Bypass | CacheUse::Background => self.blocks.peek(&(table, offset)),
        }
    }

    /// A lookup found the block in its slot.
    #[inline]
    pub(crate) fn note_use(&self, table: u64, block: &BlockInner) {
        if block.count_use() {
            self.tell_use(table, block.handle().offset);
        }
    }

    #[cold]
    fn tell_use(&self, table: u64, offset: u64) {
        self.blocks.get(&(table, offset));
    }

    /// Gives a block up, if it is there.
    pub(crate) fn remove(&self, table: u64, offset: u64) -> Option<Block> {
        let (_, block) = self.blocks.remove(&(table, offset))?;
        block.evict();
        Some(block)
    }

    /// Evicts all blocks of these tables. For tables that are not read any more; of others, blocks
    /// may enter again at once.
    ///
    /// Visits every block of the cache.
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

    /// Keeps a block that was read from its table.
    pub(crate) fn insert(&self, table: u64, offset: u64, block: Block) {
        self.ghosts.note_read((table, offset), block.handle().bytes);
        self.blocks.insert((table, offset), block);
    }
}

impl Drop for BlockCache {
    /// No table is left: tables share the cache.
    fn drop(&mut self) {
        if let Some(memory) = &self.memory {
            memory.close(|| self.blocks.clear());
        }
    }
}

/// What reading a block does to the cache.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum CacheUse {
    /// Blocks that were read are kept.
    #[default]
    Fill,
    /// Blocks that are there are used, and nothing is kept or counted as used.
    Bypass,
    /// As [`Bypass`](Self::Bypass), and what is read does not count as pinned: for compactions and
    /// other readers of whole tables, who account for their buffers.
    Background,
}

/// Who is told of each block that a lookup asks for.
pub trait BlockObserver {
    /// A block was asked of the cache.
    fn on_request(&mut self, block: BlockRequest);

    /// The block that was asked for last was not in the cache: so many bytes were read from the
    /// source.
    fn on_read(&mut self, bytes: u64);
}

/// A block that a lookup asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockRequest {
    /// Where it starts in the table.
    pub offset: u64,
    /// Its length in the table.
    pub bytes: u64,
    /// Whether it is an index partition, and not a data block.
    pub is_index: bool,
}

/// What lookups asked for and what they really read. The caller's: nothing here is shared.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BlockCounts {
    /// Data blocks asked of the cache.
    pub data_block_requests: u64,
    /// Index partitions asked of the cache; the top index is resident and not counted.
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

    /// The cache asks [`BlockLife::is_pinned`] when its clock passes a block, and only then learns
    /// of new uses: a release of `quick_cache` that asked no more would forget which blocks are in
    /// use.
    #[test]
    fn uses_are_told_again_after_each_round_of_the_clock() {
        let cache = BlockCache::new(1 << 20);
        let used = block(1);
        cache.insert(7, 1, used.clone());
        let told = |count| (0..count).filter(|_| used.count_use()).count();
        assert_eq!(told(10), 2, "then it is known to be in use");
        used.forget_uses();
        let mut rounds = 0;
        for offset in 2..20_000 {
            let other = block(offset);
            cache.insert(7, offset, other.clone());
            // Else the clock has nothing to do: blocks that were read once go without it.
            cache.note_use(7, &other);
            for _ in 0..3 {
                if used.count_use() {
                    rounds += 1;
                    cache.get(7, 1, CacheUse::Fill);
                }
            }
            assert!(cache.memory_bytes() <= 1 << 20);
        }
        assert!(cache.get(7, 1, CacheUse::Bypass).is_some(), "what is in use stays");
        assert!(rounds > 10, "{rounds}");
    }

    /// A block that is read again soon after it was driven out is kept better from then on, also in
    /// a cache that has shrunk and grown many times.
    #[test]
    fn blocks_read_again_stay_however_often_the_cache_has_shrunk() {
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
            // The first ones take the room of those that are read again.
            (0..5_000).for_each(|_| insert_other());
            cache.insert(7, 1, block(1));
            while cache.get(7, 1, CacheUse::Bypass).is_some() {
                insert_other();
            }
            // Of its shard, a few later.
            (0..32).for_each(|_| insert_other());
            cache.insert(7, 1, block(1));
            (0..5_000).for_each(|_| insert_other());
            assert!(cache.get(7, 1, CacheUse::Bypass).is_some(), "{name}");
        }
    }
}
