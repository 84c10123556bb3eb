//! Where the walks of a cursor begin and end: see [`walk_lengths`](crate::walk_lengths).

use sievedb_format::InternalKey;

use super::TableCursor;
use crate::{cache::CacheUse, direction::Direction};

impl TableCursor {
    /// Whether a block was read from the source by the last search or since; and whether the next
    /// step of a [`seek`](Self::seek) has to, as far as the index tells.
    #[inline]
    #[must_use]
    pub fn has_missed_cache(&self) -> bool {
        self.misses || self.counts.blocks_read > self.blocks_read_before
    }

    /// This step of a [`seek`](Self::seek) is about to follow: begins to fetch what it has to read,
    /// and does not wait. Moves nothing, and searches nothing: the steps before have found the
    /// place.
    #[inline]
    pub fn advise_seek_step(&self, step: usize) {
        match step {
            2 => {
                if let ([top, _], Some(at)) = (&self.index[..], self.index[0].at()) {
                    self.table.advise_index(top.block(), at);
                }
            }
            4 => {
                let lowest = self.lowest_index();
                if let Some(at) = lowest.at() {
                    let (index, options) = (lowest.block(), &self.options);
                    self.table.advise_data(index, at, Direction::Forward, options);
                }
            }
            _ => {}
        }
    }

    /// A [`seek_before`](Self::seek_before) of `target` is about to follow: begins to fetch what it
    /// has to read, and does not wait. Moves nothing. Costs a search in the index.
    pub fn advise_seek_before(&self, target: InternalKey<'_>) {
        self.table.advise_search_before(target, &self.options);
    }

    /// A search begins.
    pub(super) fn begin_walk(&mut self) {
        self.blocks_read_before = self.counts.blocks_read;
        self.misses = false;
        self.read_ahead.set_goes_on(false);
        if self.options.cache_use != CacheUse::Background {
            self.read_ahead.begin_walk(self.table.walk_lengths());
        }
    }
}

impl Drop for TableCursor {
    fn drop(&mut self) {
        if self.options.cache_use != CacheUse::Background {
            self.read_ahead.end_walk(self.table.walk_lengths());
        }
    }
}
