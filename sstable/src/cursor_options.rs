//! Options of a table cursor.

use std::ops::{Bound, Range};

use bytes::Bytes;
use sievedb_format::{InternalKey, SEQUENCE_MAX, Trailer};

use crate::{block::BlockInner, cache::CacheUse, read_ahead::READ_AHEAD_BYTES_MAX};

/// Options of a [`TableCursor`](crate::TableCursor).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CursorOptions {
    /// Effect of reads on the block cache. Default [`CacheUse::Fill`].
    pub cache_use: CacheUse,
    /// Maximum length of one read, in bytes, if longer than a block. The first read of a scan is as
    /// long as the shorter of the last two scans of the table, at most 32 KiB. After two single
    /// blocks each read doubles in length. From 0 to 64 MiB, larger values are clamped. Default 0:
    /// reads single blocks.
    pub read_ahead_bytes_max: usize,
    /// Makes all reads as long as `read_ahead_bytes_max`, for scans of whole tables. Default
    /// `false`.
    pub reads_all: bool,
    /// Skips damaged blocks as if they were empty, to salvage the rest. Older versions of lost
    /// entries may then be visible. Default `false`.
    pub skip_damaged: bool,
    /// Lower bound of the user keys. Default unbounded.
    pub start: Bound<Bytes>,
    /// Upper bound of the user keys. Default unbounded.
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
    /// Returns options to scan a whole table once: long reads that bypass the cache. The caller
    /// charges the buffers.
    #[must_use]
    pub fn whole_table() -> Self {
        Self {
            cache_use: CacheUse::Background,
            read_ahead_bytes_max: READ_AHEAD_BYTES_MAX,
            reads_all: true,
            ..Self::default()
        }
    }

    /// Shrinks `range`, which covers children of `index`, to those that may have keys within the
    /// bounds.
    pub(crate) fn within_bounds(&self, index: &BlockInner, mut range: Range<u64>) -> Range<u64> {
        let block_of = |target| Some(index.handle_at(index.position(target)?).range());
        if let Bound::Included(start) | Bound::Excluded(start) = &self.start
            && let Some(first) = block_of(InternalKey::seek(start, SEQUENCE_MAX))
        {
            range.start = range.start.max(first.start);
        }
        if let Bound::Included(end) | Bound::Excluded(end) = &self.end
            && let Some(last) = block_of(InternalKey::new(end, Trailer::OLDEST))
        {
            range.end = range.end.min(last.end);
        }
        range
    }
}

impl From<CacheUse> for CursorOptions {
    fn from(cache_use: CacheUse) -> Self {
        Self { cache_use, ..Self::default() }
    }
}
