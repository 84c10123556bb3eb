//! Estimates of the keys and bytes of a keyspace, from counters and indexes.

use std::{ops::Bound, sync::Arc};

use sievedb_format::{InternalKey, SEQUENCE_MAX, packed_keys::head};

use crate::{
    Result,
    iter::bounds::{KeyBounds, is_above, is_below},
    read::view::{KeptView, PlacedMemtable},
    table::LiveTable,
    version::Run,
};

impl KeptView {
    /// Returns the number of values minus that of tombstones. The result is exact if each key was
    /// written once, or once and then removed.
    pub(crate) fn approximate_len(&self) -> u64 {
        let of_memtables = self.placed_memtables().map(|placed| {
            let tombstones = placed.tombstones();
            ((placed.memtable.entries() as u64).saturating_sub(tombstones), tombstones)
        });
        let of_tables = self.version.tables().map(|(_, _, live)| {
            // Range tombstones are among the tombstones of a table, but remove no single key.
            let (entries, tombstones) = (live.meta.entries, live.meta.tombstones);
            let of_keys = tombstones.saturating_sub(live.meta.range_tombstones);
            (entries.saturating_sub(tombstones), of_keys)
        });
        let add = |(values, gone), (more, tombstones)| (values + more, gone + tombstones);
        let (values, tombstones) = of_memtables.chain(of_tables).fold((0_u64, 0_u64), add);
        values.saturating_sub(tombstones)
    }

    /// Returns the bytes of tables and memtables within the bounds.
    ///
    /// # Errors
    ///
    /// Errors of reading a partition of an index.
    pub(crate) fn approximate_bytes(&self, bounds: &KeyBounds) -> Result<u64> {
        if bounds.is_empty() {
            return Ok(0);
        }
        let in_memtables: u64 = self.placed_memtables().map(|it| memtable_bytes(it, bounds)).sum();
        let in_runs = self.version.runs().iter().map(|run| run_bytes(run, bounds));
        Ok(in_memtables + in_runs.sum::<Result<u64>>()?)
    }
}

fn run_bytes(run: &Run, bounds: &KeyBounds) -> Result<u64> {
    let (start, end) = bounds.as_slices();
    let first = key_of(start).map_or(Some(0), |start| run.first_not_before(start));
    let Some(first) = first else { return Ok(0) };
    let within = run.tables()[first..].iter();
    let within = within.take_while(|live| is_below(&live.meta.bounds.smallest, end));
    within.map(|live| table_bytes(live, bounds)).sum()
}

/// Returns the bytes of a table that overlaps the bounds: all of them, or by its index.
fn table_bytes(live: &LiveTable, bounds: &KeyBounds) -> Result<u64> {
    let (start, end) = bounds.as_slices();
    let before = |key| {
        let before = live.table.bytes_before(InternalKey::seek(key, SEQUENCE_MAX));
        before.map_err(|error| live.error(error))
    };
    let from = match key_of(start) {
        Some(key) if !is_above(&live.meta.bounds.smallest, start) => before(key)?,
        _ => 0,
    };
    let to = match key_of(end) {
        Some(key) if !live.meta.bounds.stays_below(end) => before(key)?,
        _ => live.meta.bytes,
    };
    debug_assert!(to <= live.meta.bytes, "{to} of {} bytes", live.meta.bytes);
    Ok(to.saturating_sub(from))
}

/// Returns the bytes of a memtable within the bounds. Assumes that its keys are spread evenly
/// between the first and the last one.
fn memtable_bytes(placed: &PlacedMemtable, bounds: &KeyBounds) -> u64 {
    let mut cursor = Arc::clone(&placed.memtable).cursor();
    cursor.seek_to_first();
    let Some(first) = cursor.key().map(|key| key.user_key.to_vec()) else { return 0 };
    cursor.seek_to_last();
    let Some(last) = cursor.key().map(|key| key.user_key.to_vec()) else { return 0 };
    let (start, end) = bounds.as_slices();
    let common = first.iter().zip(&last).take_while(|(a, b)| a == b).count();
    let place = |key: &[u8]| head(&key[common.min(key.len())..]) as f64;
    let (low, high) = (place(&first), place(&last));
    let share_before = |key: &[u8]| {
        if key <= &*first {
            0.0
        } else if key > &*last {
            1.0
        } else {
            // Equal heads: the keys differ after them.
            (place(key) - low) / (high - low).max(1.0)
        }
    };
    let from = if is_above(&first, start) { 0.0 } else { key_of(start).map_or(0.0, share_before) };
    let to = if is_below(&last, end) { 1.0 } else { key_of(end).map_or(1.0, share_before) };
    ((to - from).max(0.0) * placed.memtable.memory_bytes() as f64) as u64
}

fn key_of(bound: Bound<&[u8]>) -> Option<&[u8]> {
    match bound {
        Bound::Included(key) | Bound::Excluded(key) => Some(key),
        Bound::Unbounded => None,
    }
}
