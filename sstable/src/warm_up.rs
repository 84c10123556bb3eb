//! What the cache has of a table, for the tables that take its place.
//!
//! A compaction writes blocks that nobody has read yet: every lookup of a key that was hot before
//! would miss the cache. So the old blocks are taken out of it, and for each of them the new block
//! with its first key is read in. There is then as much in the cache as before, and nothing else
//! was driven out.

use sievedb_format::{InternalKey, SEQUENCE_MAX};

use crate::{
    block::{Block, BlockRole},
    cache::{BlockCounts, CacheUse},
    error::ReadError,
    table::Table,
};

impl Table {
    /// Takes the blocks of this table out of the cache, and calls `on_block` with the first user
    /// key of each data block, ascending. For a table that is of no use to new readers; those that
    /// still have it read its blocks anew.
    ///
    /// Costs some 100 ns for each block of the table, in the cache or not. Blocks whose index
    /// partition is not in the cache are left there: nobody has asked for them for long.
    pub fn give_up_cached(&self, mut on_block: impl FnMut(Vec<u8>)) {
        let top = self.top_index();
        if !self.has_partitions() {
            return self.give_up_below(top, &mut on_block);
        }
        for at in 0..top.entries() {
            if let Some(partition) = self.give_up(top, at, BlockRole::Index) {
                self.give_up_below(&partition, &mut on_block);
            }
        }
    }

    fn give_up_below(&self, index: &Block, on_block: &mut impl FnMut(Vec<u8>)) {
        let blocks = (0..index.entries()).filter_map(|at| self.give_up(index, at, BlockRole::Data));
        blocks.filter_map(|block| block.first_user_key()).for_each(on_block);
    }

    fn give_up(&self, index: &Block, at: usize, role: BlockRole) -> Option<Block> {
        let block = self.remove_cached(index.handle_at(at));
        // A damaged index could lead to a block that was checked as something else.
        block.filter(|block| block.role() == role)
    }

    /// Reads the block that may hold `user_key` into the cache, if it is not there.
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
