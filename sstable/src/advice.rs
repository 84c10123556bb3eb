//! Tells the source what a search is about to read.
//!
//! A search in several tables waits for one read after the other. Announced before the first of
//! them, the reads are in flight at once: with four tables that are not in memory it took half the
//! time, and half the CPU time too, since a thread that does not wait need not be woken. Where the
//! system has the blocks at hand, an announcement costs 0.4 us.

use std::{slice, sync::Arc};

use sievedb_format::InternalKey;

use crate::{
    block::{BlockInner, BlockRole, HeldBlock},
    cache::CacheUse,
    cursor_options::CursorOptions,
    direction::Direction,
    read_ahead::first_read_bytes,
    table::Table,
};

impl Table {
    /// Announces what a [`seek_before`](crate::TableCursor::seek_before) of `target`, by a cursor
    /// with these options, reads first, if that is in no cache. Reads nothing and counts as no use
    /// of a block. Costs a search in the index, or in two levels of it.
    pub(crate) fn advise_search_before(&self, target: InternalKey<'_>, options: &CursorOptions) {
        let top = self.top_index().shared();
        let Some(at) = top.position(target) else { return };
        if !self.has_partitions() {
            return self.advise_data(top, at, Direction::Backward, options);
        }
        let cache_use = CacheUse::Bypass;
        let held = self.at_hand(top, at, BlockRole::Index, cache_use).map(HeldBlock::into_block);
        let held = held.or_else(|| self.cached(top.handle_at(at), BlockRole::Index, cache_use));
        let Some(partition) = held else { return self.advise_index(top, at) };
        if let Some(below) = partition.shared().position(target) {
            self.advise_data(partition.shared(), below, Direction::Backward, options);
        }
    }

    /// Announces the index partition below entry `at` of `top`, if that is in no cache. Counts as
    /// no use.
    pub(crate) fn advise_index(&self, top: &Arc<BlockInner>, at: usize) {
        if !self.is_cached(top, at, BlockRole::Index) {
            self.advise_read(slice::from_ref(&top.handle_at(at).place()));
        }
    }

    /// Announces the data block below entry `at` of `index`, if that is in no cache, and what a
    /// cursor with these options that begins a walk there reads with it. Counts as no use.
    pub(crate) fn advise_data(
        &self,
        index: &Arc<BlockInner>,
        at: usize,
        direction: Direction,
        options: &CursorOptions,
    ) {
        if self.is_cached(index, at, BlockRole::Data) {
            return;
        }
        let window =
            first_read_bytes(self.walk_lengths().expected(), options.read_ahead_bytes_max as u64);
        let place = options.within_bounds(index, direction.neighbours(index, at, window));
        // It is empty behind a bound. A damaged index may lead anywhere: the read that follows
        // tells.
        let single = index.handle_at(at).bytes;
        if !place.is_empty() && place.end - place.start <= window.max(single) {
            self.advise_read(slice::from_ref(&place));
        }
    }

    fn is_cached(&self, index: &Arc<BlockInner>, at: usize, role: BlockRole) -> bool {
        let cache_use = CacheUse::Bypass;
        self.at_hand(index, at, role, cache_use).is_some()
            || self.cached(index.handle_at(at), role, cache_use).is_some()
    }
}
