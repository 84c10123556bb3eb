//! Who is told of the tombstones that scans step over.

use std::fmt::Debug;

use crate::{read::view::PlacedMemtable, table::LiveTable};

/// Who is told of the tombstones that scans step over. Told when a scan leaves a table or memtable.
pub(crate) trait SkippedTombstones: Debug + Send + Sync {
    /// A scan stepped over so many tombstones of a table.
    fn in_table(&self, live: &LiveTable, tombstones: u64);

    /// A scan stepped over so many tombstones of a memtable.
    fn in_memtable(&self, placed: &PlacedMemtable, tombstones: u64);
}
