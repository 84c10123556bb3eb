//! The filter of a table is built from its keys, which are read again.

use std::sync::Arc;

use sievedb_format::Corruption;
use sievedb_sstable::{FilterKeys, Table, TableOptions};

use crate::{
    Error, FilterRole, Result,
    read::tree::Tree,
    store::Store,
    table::{
        LiveTable,
        cache_room::ShareTaken,
        filter_store::BuiltFilter,
        read_buffers::{ReadBuffers, RunBuffers},
        room::{ENTRIES_CHARGED, ENTRY_BYTES},
    },
};

impl Store {
    /// The filter of all keys of a table for this role, and what is taken for it and its bytes of a
    /// worker's share; `None` if it is not needed any more. `options` want no other filter.
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
    ) -> Result<Option<(BuiltFilter, ShareTaken)>> {
        let mut taken = self.take_build(live.table.properties().user_keys)?;
        let left = taken.share().bytes_max().saturating_sub(taken.bytes());
        let run = RunBuffers::of(live.table.properties());
        let buffers = ReadBuffers::take(taken.share(), &[run], left / 2);
        let identity = live.meta.identity(self.tables.store_id, self.hash_seed);
        let mut keys = FilterKeys::new(options, &identity);
        let mut cursor = Table::cursor(Arc::clone(&live.table), buffers.cursor_options());
        let (mut last, mut entries) = (None::<Vec<u8>>, 0_u64);
        cursor.seek_to_first().map_err(|error| live.error(error))?;
        while let Some(key) = cursor.key() {
            if entries.is_multiple_of(ENTRIES_CHARGED)
                && (self.scheduler.is_shut_down() || tree.is_dropped())
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
        let expected = properties.points();
        if entries != expected {
            let source =
                Corruption::Mismatch { what: "entries of the table", expected, found: entries };
            return Err(Error::corrupt(&*live.path, 0, source));
        }
        drop((cursor, buffers));
        let is_closing = || self.tables.is_closing();
        let built = match role {
            FilterRole::Point => keys.build_points(&is_closing).map(BuiltFilter::Point),
            FilterRole::Prefix => keys.build_prefixes(&is_closing).map(BuiltFilter::Prefix),
            FilterRole::Range => {
                let bounds = &live.meta.bounds;
                let filter = keys.build_ranges(&bounds.smallest, &bounds.largest);
                filter.map(BuiltFilter::Range)
            }
        };
        Ok(built.map(|filter| {
            taken.set(2 * filter.memory_bytes() as u64);
            (filter, taken)
        }))
    }

    /// Takes what a filter over so many keys takes while it is built, if that is within the share
    /// of a worker: then all of them together are within the limit.
    fn take_build(&self, keys: u64) -> Result<ShareTaken> {
        let share = self.tables.worker_share();
        let (bytes, bytes_max) = (keys.saturating_mul(ENTRY_BYTES as u64), share.bytes_max());
        if bytes > bytes_max {
            return Err(Error::FilterTooLarge { bytes, bytes_max });
        }
        Ok(share.take(bytes))
    }
}
