//! Cached blocks of a mapped table.
//!
//! Uncompressed ones are slices of the map. In the cache they would keep the map, and with it the
//! disk space of a deleted file, until their eviction.

use std::sync::atomic::Ordering;

use super::Table;
use crate::{
    block::BlockRole,
    cache::{BlockCounts, CacheUse},
};

impl Table {
    /// Evicts the blocks of the table from the cache when the table is dropped, if its source is
    /// mapped. For a table whose file will be deleted.
    pub fn evict_when_dropped(&self) {
        self.evicts.store(true, Ordering::Relaxed);
    }

    /// Evicts the child of entry `at` of the top index, with its own children. Returns `false` if a
    /// partition cannot be read.
    fn evict_child(&self, at: usize) -> bool {
        let (top, cache_use) = (self.top_index.shared(), CacheUse::Background);
        if self.has_partitions() {
            let counts = &mut BlockCounts::default();
            let Ok(partition) = self.child(top, at, BlockRole::Index, cache_use, counts) else {
                return false;
            };
            for at in 0..partition.entries() {
                self.cache.remove(self.number, partition.handle_at(at).offset);
            }
        }
        self.cache.remove(self.number, top.handle_at(at).offset);
        true
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        let evicts = *self.evicts.get_mut() && self.source().is_mapped();
        if evicts && !self.cache.is_empty() {
            let is_complete = (0..self.top_index.entries()).all(|at| self.evict_child(at));
            if !is_complete {
                // Visits every cached block.
                self.cache.remove_blocks_of([&*self]);
            }
        }
    }
}
