//! The way of a point lookup: memtables, filters, tables.
//!
//! The hash is computed once, by the caller. Nothing is locked, allocated or written to a shared
//! cache line on the way to "absent".

use bytes::Bytes;
use sievedb_format::{Corruption, Kind, SequenceNumber, Trailer};
use sievedb_sstable::{BlockCounts, FilterState};
use smallvec::SmallVec;

use crate::{
    Error, Result,
    read::view::ReadView,
    stats::{LevelCounters, ThreadCounters},
    table::{LiveTable, TableFilters},
};

/// Candidate tables that fit on the stack: level 0 rarely has more, each deeper level has one.
const CANDIDATES_INLINE: usize = 24;

/// A table that may hold the key.
#[derive(Debug, Clone, Copy)]
struct Candidate<'v> {
    level: u8,
    live: &'v LiveTable,
    filters: &'v TableFilters,
}

/// A key that is looked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lookup<'a> {
    pub(crate) key: &'a [u8],
    /// Of the key, with the store's seed.
    pub(crate) hash: u64,
    /// Newer versions are not seen.
    pub(crate) sequence: SequenceNumber,
}

impl Lookup<'_> {
    /// The value of the key, if it has one.
    pub(crate) fn get(self, view: &ReadView, counters: &ThreadCounters) -> Result<Option<Bytes>> {
        counters.lookups.add(1);
        let version = if let Some(found) = self.in_memtables(view, counters) {
            counters.found_in_memtables.add(1);
            Some(found)
        } else {
            self.in_tables(view, counters)?
        };
        let Some((trailer, value)) = version else { return Ok(None) };
        if view.has_range_tombstones()
            && view.newest_cover(self.key, self.sequence) > trailer.sequence()
        {
            return Ok(None);
        }
        Ok((trailer.kind() == Kind::Put).then_some(value))
    }

    /// Whether the key may have a value, as far as memory tells: `false` is certain.
    pub(crate) fn may_contain(self, view: &ReadView, counters: &ThreadCounters) -> bool {
        counters.lookups.add(1);
        if let Some((trailer, _)) = self.in_memtables(view, counters) {
            counters.found_in_memtables.add(1);
            return trailer.kind() == Kind::Put;
        }
        self.candidates(view).iter().any(|candidate| {
            let counters = &counters.levels[usize::from(candidate.level)];
            let maybe = self.passes(candidate.filters, counters);
            // Nobody looks whether a positive is true, so it counts neither way.
            counters.candidates.add(u64::from(!maybe));
            maybe
        })
    }

    fn in_memtables(self, view: &ReadView, counters: &ThreadCounters) -> Option<(Trailer, Bytes)> {
        for memtable in view.memtables() {
            memtable.prefetch(self.hash);
        }
        for memtable in view.memtables() {
            counters.memtable_probes.add(1);
            if !memtable.may_contain_hash(self.hash) {
                counters.memtable_negatives.add(1);
            } else if let Some(found) = memtable.get(self.key, self.sequence) {
                return Some(found);
            }
        }
        None
    }

    fn in_tables(
        self,
        view: &ReadView,
        counters: &ThreadCounters,
    ) -> Result<Option<(Trailer, Bytes)>> {
        for Candidate { level, live, filters } in self.candidates(view) {
            let counters = &counters.levels[usize::from(level)];
            counters.candidates.add(1);
            if !self.passes(filters, counters) {
                continue;
            }
            let mut blocks = BlockCounts::default();
            let found = live.get(self.key, self.sequence, &mut blocks);
            counters.add_blocks(blocks);
            if let Some((trailer, value)) = found? {
                counters.true_positives.add(1);
                check_kind(live, trailer)?;
                return Ok(Some((trailer, value)));
            }
            counters.false_positives.add(1);
        }
        Ok(None)
    }

    /// The tables that may hold the key, the newest first, their filter lines on the way to the
    /// cache.
    fn candidates(self, view: &ReadView) -> SmallVec<[Candidate<'_>; CANDIDATES_INLINE]> {
        let mut candidates = SmallVec::new();
        for (run, filters) in view.version.runs().iter().zip(view.filters.runs()) {
            if let Some(at) = run.find_index(self.key) {
                let (live, filters) = (&*run.tables()[at], &*filters[at]);
                filters.prefetch(self.hash);
                candidates.push(Candidate { level: run.level, live, filters });
            }
        }
        candidates
    }

    fn passes(self, filters: &TableFilters, counters: &LevelCounters) -> bool {
        match &*filters.point {
            FilterState::Resident(filter) => {
                let maybe = filter.may_contain_hash(self.hash);
                if !maybe {
                    counters.filter_negatives.add(1);
                }
                maybe
            }
            FilterState::Unusable(_) => {
                counters.filter_unusable.add(1);
                true
            }
            FilterState::None => true,
        }
    }
}

/// Refuses what this release cannot apply, instead of a wrong answer.
fn check_kind(live: &LiveTable, trailer: Trailer) -> Result<()> {
    match trailer.kind() {
        Kind::Put | Kind::Tombstone => Ok(()),
        kind => {
            let source = Corruption::Unsupported { what: "kind of an entry", value: kind as u64 };
            Err(Error::corrupt(&live.path, 0, source))
        }
    }
}
