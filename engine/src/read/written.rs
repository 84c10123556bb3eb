//! Search for writes to a key after a reader's sequence number, for conditions of writes.

use sievedb_filter::many::{self, Probe};
use sievedb_format::{InternalKey, SequenceNumber};
use sievedb_sstable::{BlockCounts, CacheUse, FilterState};

use super::view::{KeptView, ReadView};
use crate::{Result, stats::ThreadCounters};

/// State of the store at a read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReadMark {
    pub(crate) sequence: SequenceNumber,
    /// Number of the version whose tables were read.
    pub(crate) version: u64,
}

/// A key, and the sequence number at which it was read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReadKey<'a> {
    pub(crate) key: &'a [u8],
    /// Hash of the key, with the seed of the store.
    pub(crate) hash: u64,
    /// Sequence number: later versions change the key.
    pub(crate) after: SequenceNumber,
}

impl ReadKey<'_> {
    /// Returns `true` if memtables have a later version of the key, up to `at`. Reads no file.
    pub(crate) fn is_written_in_memtables(self, view: &KeptView, at: SequenceNumber) -> bool {
        if view.cleared > self.after {
            // Every key was removed.
            return true;
        }
        let target = InternalKey::seek(self.key, at);
        let newer = view.placed_memtables().filter(|placed| placed.last_sequence() > self.after);
        for placed in newer {
            let memtable = &placed.memtable;
            let cover = memtable.range_tombstones().newest_cover(self.key, at);
            if cover.is_some_and(|cover| cover > self.after) {
                return true;
            }
            if !memtable.may_contain_hash(self.hash) {
                continue;
            }
            let newest = memtable.get_with(target, |trailer, _| trailer.sequence());
            if newest.is_some_and(|newest| newest > self.after) {
                return true;
            }
        }
        false
    }

    /// Returns `true` if memtables or tables have a later version of the key, up to `at`: the
    /// visible sequence number, loaded after the view was taken. The result is exact while a
    /// snapshot at `after` is open. Without one, compactions drop tombstones and sequence numbers.
    ///
    /// Searches only tables with later entries, after their filters.
    ///
    /// # Errors
    ///
    /// Errors of reading a table.
    pub(crate) fn is_written(
        self,
        view: &ReadView,
        at: SequenceNumber,
        counters: &ThreadCounters,
    ) -> Result<bool> {
        if self.is_written_in_memtables(view, at) {
            return Ok(true);
        }
        if view.newest_cover(self.key, at, self.after) > 0 {
            return Ok(true);
        }
        let probe = Probe::new(self.hash);
        let target = InternalKey::seek(self.key, at);
        for (run, filters) in view.version.runs().iter().zip(view.filters.runs()) {
            let Some(index) = run.find_index(self.key) else { continue };
            let live = &run.tables()[index];
            if live.meta.largest_sequence <= self.after {
                continue;
            }
            if let FilterState::Resident(filter) = &*filters[index].point
                && !many::may_contain(filter, probe)
            {
                continue;
            }
            let mut blocks = BlockCounts::default();
            let newest = live
                .table
                .get_with(target, CacheUse::Fill, &mut blocks, |trailer, _| trailer.sequence());
            counters.levels[usize::from(run.level)].add_blocks(blocks);
            if let Some(newest) = newest.map_err(|error| live.error(error))? {
                // Later runs have older versions.
                return Ok(newest > self.after);
            }
        }
        Ok(false)
    }
}
