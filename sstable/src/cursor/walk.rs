//! Where the walks of a cursor begin and end: see [`walk_lengths`](crate::walk_lengths).

use sievedb_format::InternalKey;

use super::TableCursor;
use crate::{cache::CacheUse, direction::Direction};

impl TableCursor {
    /// Whether a block was read from the source by the last search or since.
    #[inline]
    #[must_use]
    pub fn has_read(&self) -> bool {
        self.counts.blocks_read > self.blocks_read_before
    }

    /// A [`seek`](Self::seek) of `target` is about to follow: begins to fetch what it has to read, and does
    /// not wait. Moves nothing. Costs a search in the index.
    pub fn will_seek(&self, target: InternalKey<'_>) {
        self.table.announce_search(target, Direction::Forward, &self.options);
    }

    /// As [`will_seek`](Self::will_seek), before a [`seek_before`](Self::seek_before).
    pub fn will_seek_before(&self, target: InternalKey<'_>) {
        self.table.announce_search(target, Direction::Backward, &self.options);
    }

    /// A search begins.
    pub(super) fn begin_walk(&mut self) {
        self.blocks_read_before = self.counts.blocks_read;
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
