//! Borders of the tables that a merge writes.

use std::{iter::Peekable, sync::Arc, vec};

use sievedb_format::TableBounds;

use super::levels::Levels;
use crate::table::TableMeta;

/// Minimum size of a table that ends at a border, in percent of
/// [`table_bytes`](crate::KeyspaceOptions::table_bytes).
const BORDER_PER_CENT: u64 = 50;
/// Size at which a table always ends, in percent of the same.
const LARGEST_PER_CENT: u64 = 150;

/// The ends of the tables in the level below an output.
///
/// A table that ends where one of the next level does is later merged with fewer tables of that
/// level. RocksDB aligns its outputs alike since 7.8 (`Align Compaction Output File`, 2022).
#[derive(Debug, Clone)]
pub(crate) struct Borders {
    /// Last keys of the tables of the next level that the merge has not passed, ascending.
    ends: Peekable<vec::IntoIter<Arc<[u8]>>>,
    /// The size at which a table may end at a border, if there is one.
    border_bytes: u64,
    largest_bytes: u64,
}

impl Borders {
    /// Returns the borders of a merge of `bounds` into `output_level`, with the target table size
    /// `table_bytes`.
    pub(crate) fn of_merge(
        levels: &Levels<'_>,
        output_level: u8,
        bounds: &TableBounds,
        table_bytes: u64,
    ) -> Self {
        // Level 0 is merged as a whole, and the last level has no level below.
        let below: &[&TableMeta] = match output_level {
            level if level == 0 || level >= levels.last() => &[],
            level => levels.overlap(level + 1, bounds),
        };
        Self::new(below, table_bytes)
    }

    /// Returns the borders of tables without a level below, as of a flush.
    pub(crate) fn none(table_bytes: u64) -> Self {
        Self::new(&[], table_bytes)
    }

    fn new(below: &[&TableMeta], table_bytes: u64) -> Self {
        let ends: Vec<_> = below.iter().map(|table| Arc::clone(&table.bounds.largest)).collect();
        let largest_bytes = if ends.is_empty() { table_bytes } else { largest_bytes(table_bytes) };
        Self {
            ends: ends.into_iter().peekable(),
            border_bytes: part(table_bytes, BORDER_PER_CENT),
            largest_bytes,
        }
    }

    /// Returns `true` if a table of `bytes` bytes ends before `key`. Called for each key,
    /// ascending.
    pub(crate) fn is_end(&mut self, bytes: u64, key: &[u8]) -> bool {
        let mut is_border = false;
        while self.ends.next_if(|end| **end < *key).is_some() {
            is_border = true;
        }
        bytes >= self.largest_bytes || is_border && bytes >= self.border_bytes
    }
}

/// Returns the size at which a table always ends, in bytes, with the target `table_bytes`.
pub(crate) fn largest_bytes(table_bytes: u64) -> u64 {
    part(table_bytes, LARGEST_PER_CENT)
}

fn part(table_bytes: u64, per_cent: u64) -> u64 {
    (table_bytes / 100).saturating_mul(per_cent).max(1)
}
