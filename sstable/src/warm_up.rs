//! Cache warm-up after a compaction.
//!
//! The blocks that a compaction writes are not cached, so lookups of hot keys would miss. For each
//! cached block of an input, the output block with its first key is read into the cache, after the
//! old block was evicted. The cache then holds as much as before, and no other block was evicted.

use sievedb_format::{InternalKey, SEQUENCE_MAX};

use crate::{
    block::{Block, BlockRole},
    cache::{BlockCounts, CacheUse},
    error::ReadError,
    table::Table,
};

impl Table {
    /// Evicts the cached blocks of this table, and calls `on_block` with the first user key of each
    /// data block, ascending. For a table that a compaction has replaced; existing readers read its
    /// blocks again.
    ///
    /// Costs about 100 ns per block of the table. Skips blocks whose index partition is not cached:
    /// they have not been read for long.
    pub fn evict_cached(&self, mut on_block: impl FnMut(Vec<u8>)) {
        let top = self.top_index();
        if !self.has_partitions() {
            return self.evict_children(top, &mut on_block);
        }
        for at in 0..top.entries() {
            if let Some(partition) = self.evict_child(top, at, BlockRole::Index) {
                self.evict_children(&partition, &mut on_block);
            }
        }
    }

    fn evict_children(&self, index: &Block, on_block: &mut impl FnMut(Vec<u8>)) {
        let blocks =
            (0..index.entries()).filter_map(|at| self.evict_child(index, at, BlockRole::Data));
        blocks.filter_map(|block| block.first_user_key()).for_each(on_block);
    }

    fn evict_child(&self, index: &Block, at: usize, role: BlockRole) -> Option<Block> {
        let block = self.remove_cached(index.handle_at(at));
        // A damaged index may lead to a block that was checked for the other role.
        block.filter(|block| block.role() == role)
    }

    /// Reads the block that may hold `user_key` into the cache, unless it is cached.
    ///
    /// # Errors
    ///
    /// [`ReadError`] if a block cannot be read or is damaged.
    pub fn warm_up(&self, user_key: &[u8]) -> Result<(), ReadError> {
        let mut counts = BlockCounts::default();
        let target = InternalKey::seek(user_key, SEQUENCE_MAX);
        self.get_with(target, CacheUse::Fill, &mut counts, |_, _| ()).map(drop)
    }
}
