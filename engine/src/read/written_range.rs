//! The first key of a range that was written after a reader's sequence number.

use std::{ops::Bound, path::Path, sync::Arc};

use bytes::Bytes;
use sievedb_format::{InternalKey, SEQUENCE_MAX, SequenceNumber, Trailer};
use sievedb_sstable::{CacheUse, CursorOptions};

use super::{
    source::{ScanOptions, Source},
    view::KeptView,
};
use crate::{
    Result,
    iter::{
        bounds::{KeyBounds, is_below},
        cursor::Cursor,
    },
};

/// Returns the first key within `bounds` that has a version after `after` in `view`, or that a
/// later range tombstone covers. `directory` is that of the store. `at` is the visible sequence
/// number, loaded after the view. The result is exact while a snapshot at `after` is open.
///
/// Scans the range in memtables and tables that have later entries. With later range tombstones it
/// also scans the other ones, for keys that these cover.
///
/// # Errors
///
/// Errors of reading a table.
pub(crate) fn first_written(
    view: &KeptView,
    bounds: &Arc<KeyBounds>,
    (after, at): (SequenceNumber, SequenceNumber),
    directory: &Arc<Path>,
) -> Result<Option<Bytes>> {
    let scan = ScanOptions {
        cursor: CursorOptions { cache_use: CacheUse::Bypass, ..CursorOptions::default() },
        bounds: Arc::clone(bounds),
        skipped: None,
    };
    let has_ranges = view.has_range_tombstones_after(after);
    let is_searched = |newest: SequenceNumber| newest > after || has_ranges;
    let newer = view.placed_memtables().filter(|placed| is_searched(placed.last_sequence()));
    let memtables = newer.map(|placed| Source::memtable(placed, 0, directory, &scan));
    let runs = view.version.runs().iter().filter_map(|run| {
        let newer = run.tables().iter().filter(|live| is_searched(live.meta.largest_sequence));
        let tables: Vec<_> = newer.cloned().collect();
        (!tables.is_empty()).then(|| Source::tables(tables, &scan))
    });
    let is_covered = |key: &[u8]| has_ranges && view.newest_cover(key, at, after) > 0;
    let mut first = None;
    for mut source in memtables.chain(runs) {
        search(&mut source, bounds, (after, at), is_covered, &mut first)?;
    }
    Ok(first)
}

/// Replaces `first` if `source` has a smaller key with a version after `after`, up to `at`.
fn search(
    source: &mut Source,
    bounds: &KeyBounds,
    (after, at): (SequenceNumber, SequenceNumber),
    is_covered: impl Fn(&[u8]) -> bool,
    first: &mut Option<Bytes>,
) -> Result<()> {
    let (start, end) = bounds.as_slices();
    match start {
        Bound::Included(key) => source.seek(InternalKey::seek(key, SEQUENCE_MAX))?,
        Bound::Excluded(key) => source.seek(InternalKey::new(key, Trailer::OLDEST))?,
        Bound::Unbounded => source.seek_to_first()?,
    }
    while let Some(key) = source.key() {
        let is_before_first = first.as_ref().is_none_or(|first| key.user_key < &**first);
        if !is_below(key.user_key, end) || !is_before_first {
            break;
        }
        let is_later = (after + 1..=at).contains(&key.trailer.sequence());
        if is_later || is_covered(key.user_key) {
            *first = Some(Bytes::copy_from_slice(key.user_key));
            break;
        }
        source.next()?;
    }
    Ok(())
}
