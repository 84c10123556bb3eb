//! What a cursor reads, and how.

use std::ops::{Bound, Range};

use bytes::Bytes;
use sievedb_format::{InternalKey, SEQUENCE_MAX, Trailer};

use crate::{block::BlockInner, cache::CacheUse, read_ahead::READ_AHEAD_BYTES_MAX};

/// What a cursor reads, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CursorOptions {
    /// What reading a block does to the cache. Default [`CacheUse::Fill`].
    pub cache_use: CacheUse,
    /// Most bytes that are read at once, in bytes, if that is more than a block. A scan reads what
    /// the last two had in common, 32 KiB of it at the most, or two blocks one by one, and twice as
    /// much with each read then. Default 0: always one block.
    pub read_ahead_bytes_max: usize,
    /// Whether the first read is as large already: for whoever reads a whole table. Default
    /// `false`.
    pub reads_all: bool,
    /// Whether blocks whose bytes are damaged are passed over, as if they were empty: for whoever
    /// saves what can be read. An older version of a key that was in one is met then. Default
    /// `false`.
    pub skip_damaged: bool,
    /// The first user key to be met. Default unbounded.
    pub start: Bound<Bytes>,
    /// The last user key to be met. Default unbounded.
    pub end: Bound<Bytes>,
}

impl Default for CursorOptions {
    fn default() -> Self {
        Self {
            cache_use: CacheUse::default(),
            read_ahead_bytes_max: 0,
            reads_all: false,
            skip_damaged: false,
            start: Bound::Unbounded,
            end: Bound::Unbounded,
        }
    }
}

impl CursorOptions {
    /// For whoever reads a whole table, once, and accounts for what that takes: nothing is kept in
    /// the cache or counted as pinned, and much is read at once.
    #[must_use]
    pub fn whole_table() -> Self {
        Self {
            cache_use: CacheUse::Background,
            read_ahead_bytes_max: READ_AHEAD_BYTES_MAX,
            reads_all: true,
            ..Self::default()
        }
    }
}

impl CursorOptions {
    /// What of `place`, where blocks below `index` lie, may have keys within the bounds.
    pub(crate) fn within_bounds(&self, index: &BlockInner, mut place: Range<u64>) -> Range<u64> {
        let block_of = |target| Some(index.handle_at(index.position(target)?).place());
        if let Bound::Included(start) | Bound::Excluded(start) = &self.start
            && let Some(first) = block_of(InternalKey::seek(start, SEQUENCE_MAX))
        {
            place.start = place.start.max(first.start);
        }
        if let Bound::Included(end) | Bound::Excluded(end) = &self.end
            && let Some(last) = block_of(InternalKey::new(end, Trailer::OLDEST))
        {
            place.end = place.end.min(last.end);
        }
        place
    }
}

impl From<CacheUse> for CursorOptions {
    fn from(cache_use: CacheUse) -> Self {
        Self { cache_use, ..Self::default() }
    }
}
