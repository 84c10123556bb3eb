//! The filter of a table is built from its keys, which are read again.

use std::sync::Arc;

use sievedb_format::{Corruption, Kind};
use sievedb_sstable::{FilterKeys, Table, TableOptions};

use crate::{
    Error, Result,
    memory::MemoryUse,
    read::tree::Tree,
    store::Store,
    table::{
        FilterRole, LiveTable,
        filter_store::BuiltFilter,
        store::{ENTRIES_CHARGED, ENTRY_BYTES},
    },
};

impl Store {
    /// The filter of all keys of a table for this role; `None` if it is not needed any more. `options` want
    /// no other filter.
    ///
    /// # Errors
    ///
    /// What reading the table fails with; [`Error::FilterTooLarge`] before that.
    pub(super) fn build_filter(
        &self,
        tree: &Tree,
        live: &LiveTable,
        role: FilterRole,
        options: &TableOptions,
    ) -> Result<Option<BuiltFilter>> {
        let charge = self.charge_build(live.table.properties().user_keys)?;
        let left = self.tables.writing_bytes_max().saturating_sub(charge.bytes());
        let buffers = self.tables.read_buffers(1, tree.options().block_bytes, left / 2);
        let identity = live.meta.identity(self.tables.store_id, self.hash_seed);
        let mut keys = FilterKeys::new(options, &identity);
        let mut cursor = Table::cursor(Arc::clone(&live.table), buffers.cursor_options());
        let (mut last, mut entries) = (None::<Vec<u8>>, 0_u64);
        cursor.seek_to_first().map_err(|error| live.error(error))?;
        while let Some(key) = cursor.key() {
            if entries.is_multiple_of(ENTRIES_CHARGED)
                && (self.background.is_shut_down() || tree.is_dropped())
            {
                return Ok(None);
            }
            entries += 1;
            if last.as_deref() != Some(key.user_key) {
                keys.add(key.user_key);
                let last = last.get_or_insert_default();
                last.clear();
                last.extend_from_slice(key.user_key);
            }
            cursor.next().map_err(|error| live.error(error))?;
        }
        // A filter over some of the keys would hide the others.
        let properties = live.table.properties();
        let expected = properties.entries() - properties.count(Kind::RangeTombstone);
        if entries != expected {
            let source =
                Corruption::Mismatch { what: "entries of the table", expected, found: entries };
            return Err(Error::corrupt(&live.path, 0, source));
        }
        Ok(match role {
            FilterRole::Point => keys.build_points().map(BuiltFilter::Point),
            FilterRole::Prefix => keys.build_prefixes().map(BuiltFilter::Prefix),
            FilterRole::Range => {
                let filter = keys.build_ranges(&live.meta.smallest, &live.meta.largest);
                filter.map(BuiltFilter::Range)
            }
        })
    }

    /// Charges what a filter over so many keys takes while it is built, if that is within the share of a
    /// worker: then all of them together are within the limit.
    fn charge_build(&self, keys: u64) -> Result<crate::memory::Charge> {
        let bytes = keys.saturating_mul(ENTRY_BYTES as u64);
        let bytes_max = self.tables.writing_bytes_max();
        match usize::try_from(bytes) {
            Ok(bytes) if bytes as u64 <= bytes_max => {
                Ok(self.tables.memory.charge(MemoryUse::Writing, bytes))
            }
            _ => Err(Error::FilterTooLarge { bytes, bytes_max }),
        }
    }
}
