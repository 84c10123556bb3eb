//! The way of a point lookup: memtables, filters, tables.
//!
//! The hash is computed once, by the caller. Nothing is locked, allocated or written to a shared
//! cache line on the way to "absent". The lines of all filters, of memtables and of tables, are on
//! their way to the cache before the first is tested: a key of the memtables pays for that with a
//! search in each run, and an absent one waits for memory once.

use sievedb_filter::many::{self, Probe};
use sievedb_format::{InternalKey, SequenceNumber};
use sievedb_sstable::{CacheUse, FilterState};
use smallvec::SmallVec;

use crate::{
    Result,
    read::answer::{Answer, Found},
    read::view::{KeptView, ReadView},
    read::witness::{Candidate, CountBlocks as _, Nobody, Witness},
    resolve::older::NoMergeOperator,
    stats::{LevelCounters, ThreadCounters},
    table::TableFilters,
};

/// Candidate tables that fit on the stack: level 0 rarely has more, each deeper level has one.
const CANDIDATES_INLINE: usize = 24;

type Candidates<'v> = SmallVec<[Candidate<'v>; CANDIDATES_INLINE]>;

/// A key that is looked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lookup<'a> {
    pub(crate) key: &'a [u8],
    /// Of the key, with the store's seed.
    pub(crate) hash: u64,
    /// Newer versions are not seen.
    pub(crate) sequence: SequenceNumber,
    pub(crate) cache_use: CacheUse,
}

impl Lookup<'_> {
    /// Returns the answer of `witness` for the value of the key, if there is one.
    #[inline]
    pub(crate) fn find<A>(
        self,
        view: &ReadView,
        counters: &ThreadCounters,
        witness: &mut impl Witness<A>,
    ) -> Result<Option<A>> {
        counters.lookups.add(1);
        let probe = Probe::new(self.hash);
        let mut candidates = Candidates::new();
        let has_memtables = self.prefetch_memtables(view);
        self.collect(probe, view, &mut candidates);
        self.sample(view, &candidates, counters);
        witness.candidates(&candidates);
        // After a flush there is none, and to find that out once more takes 40 instructions.
        let in_memtables =
            if has_memtables { self.in_memtables(view, counters, witness) } else { None };
        let found = if let Some(found) = in_memtables {
            counters.found_in_memtables.add(1);
            Some(found)
        } else {
            self.in_tables(probe, view, &candidates, counters, witness)?
        };
        match found {
            Some(Found::Value(answer)) => Ok(Some(answer)),
            None | Some(Found::Deleted) => Ok(None),
            Some(Found::MoreNeeded) => {
                let value = self.find_older(view, counters, &NoMergeOperator)?;
                Ok(value.map(|value| witness.of_memtable(&value)))
            }
        }
    }

    /// As [`find`](Self::find), for a key that the tables of the view do not have.
    pub(crate) fn find_in_memtables<A: Answer>(
        self,
        view: &KeptView,
        counters: &ThreadCounters,
    ) -> Result<Option<A>> {
        counters.lookups.add(1);
        let Some(found) = self.in_memtables(view, counters, &mut Nobody) else { return Ok(None) };
        counters.found_in_memtables.add(1);
        match found {
            Found::Value(answer) => Ok(Some(answer)),
            Found::Deleted => Ok(None),
            Found::MoreNeeded => self.answer_by_older(view, counters),
        }
    }

    /// Whether the key may have a value, as far as memory tells: `false` is certain.
    pub(crate) fn may_contain(self, view: &ReadView, counters: &ThreadCounters) -> bool {
        counters.lookups.add(1);
        let probe = Probe::new(self.hash);
        let mut candidates = Candidates::new();
        let has_memtables = self.prefetch_memtables(view);
        self.collect(probe, view, &mut candidates);
        self.sample(view, &candidates, counters);
        if has_memtables && let Some(found) = self.in_memtables::<()>(view, counters, &mut Nobody) {
            counters.found_in_memtables.add(1);
            return !matches!(found, Found::Deleted);
        }
        // Nobody looks whether a positive is true: what filters say here is not counted, or the
        // measured rate would be that of negatives alone.
        candidates.iter().any(|candidate| match &*candidate.filters.point {
            FilterState::Resident(filter) => many::may_contain(filter, probe),
            FilterState::Unusable(_) | FilterState::NotResident | FilterState::None => true,
        })
    }

    /// What the newest version of the key in a memtable says, if there is one.
    fn in_memtables<A>(
        self,
        view: &KeptView,
        counters: &ThreadCounters,
        witness: &mut impl Witness<A>,
    ) -> Option<Found<A>> {
        let target = InternalKey::seek(self.key, self.sequence);
        for (number, memtable) in view.memtables_at(self.sequence).enumerate() {
            if !memtable.may_contain_hash(self.hash) {
                counters.memtable_negatives.add(1);
                witness.memtable(number, false);
                continue;
            }
            counters.memtable_positives.add(1);
            witness.memtable(number, true);
            let found = memtable.get_with(target, |trailer, value| {
                witness.found_in_memtable(number, trailer, value.len());
                let cover = || view.newest_cover(self.key, self.sequence);
                Found::resolve(self.sequence, trailer, cover, || witness.of_memtable(value))
            });
            if found.is_some() {
                return found;
            }
        }
        None
    }

    /// Starts to load what [`in_memtables`](Self::in_memtables) will read of filters. Whether there
    /// is a memtable to ask at all.
    fn prefetch_memtables(self, view: &KeptView) -> bool {
        let mut found = false;
        for memtable in view.memtables_at(self.sequence) {
            memtable.prefetch(self.hash);
            found = true;
        }
        found
    }

    /// The tables that may hold the key, the newest first, their filter lines on the way to the
    /// cache.
    #[inline]
    fn collect<'v>(self, probe: Probe, view: &'v ReadView, candidates: &mut Candidates<'v>) {
        for (run, filters) in view.version.runs().iter().zip(view.filters.runs()) {
            if let Some(index) = run.find_index(self.key) {
                let filters = &*filters[index];
                filters.prefetch(probe);
                candidates.push(Candidate { run, index, filters });
            }
        }
    }

    /// Counts the candidates, if this lookup is in the sample.
    #[inline]
    fn sample(self, view: &ReadView, candidates: &[Candidate<'_>], counters: &ThreadCounters) {
        if counters.sample.is_due(self.hash) {
            let id = |candidate: &Candidate<'_>| candidate.run.tables()[candidate.index].meta.id;
            counters.sample.note(view.keyspace_id, candidates.iter().map(id));
        }
    }

    fn in_tables<A>(
        self,
        probe: Probe,
        view: &KeptView,
        candidates: &[Candidate<'_>],
        counters: &ThreadCounters,
        witness: &mut impl Witness<A>,
    ) -> Result<Option<Found<A>>> {
        for (number, candidate) in candidates.iter().enumerate() {
            let counters = &counters.levels[usize::from(candidate.run.level)];
            let passes = passes(candidate.filters, probe, counters);
            witness.filter(number, passes);
            if passes {
                let found = self.in_table(view, number, candidate, counters, witness)?;
                if found.is_some() {
                    return Ok(found);
                }
            }
        }
        Ok(None)
    }

    /// Not inlined: most lookups of absent keys come to no table.
    #[inline(never)]
    fn in_table<A, W: Witness<A>>(
        self,
        view: &KeptView,
        number: usize,
        candidate: &Candidate<'_>,
        counters: &LevelCounters,
        witness: &mut W,
    ) -> Result<Option<Found<A>>> {
        let live = &*candidate.run.tables()[candidate.index];
        let mut blocks = W::Blocks::default();
        let target = InternalKey::seek(self.key, self.sequence);
        let found = live.table.get_with(target, self.cache_use, &mut blocks, |trailer, value| {
            witness.found_in_table(number, trailer, value.len());
            let cover = || view.newest_cover(self.key, self.sequence);
            Found::resolve(self.sequence, trailer, cover, || witness.of_block(&value))
        });
        counters.add_blocks(blocks.counts());
        let found = match found {
            Ok(found) => found,
            Err(error) => {
                let error = live.error(error);
                witness.failed(number, blocks, &error);
                return Err(error);
            }
        };
        let is_found = u64::from(found.is_some());
        counters.add_searches(is_found, 1 - is_found, candidate.filters.point.expected_fpr);
        witness.searched(number, blocks);
        Ok(found)
    }
}

#[inline]
fn passes(filters: &TableFilters, probe: Probe, counters: &LevelCounters) -> bool {
    match &*filters.point {
        FilterState::Resident(filter) => {
            let maybe = many::may_contain(filter, probe);
            if !maybe {
                counters.add_negatives(1, filters.point.expected_fpr.unwrap_or(1.0));
            }
            maybe
        }
        FilterState::Unusable(_) => {
            counters.filter_unusable.add(1);
            true
        }
        FilterState::NotResident => {
            counters.filter_not_resident.add(1);
            true
        }
        FilterState::None => true,
    }
}
