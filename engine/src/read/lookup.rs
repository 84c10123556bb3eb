//! A point lookup: memtables, filters, tables.
//!
//! The caller computes the hash once. A miss takes no lock, allocates nothing and writes no shared
//! cache line. All filter lines, of memtables and of tables, are prefetched before the first probe.
//! So a miss waits for memory once, and a key in a memtable costs a search in each run.

use sievedb_filter::many::{self, Probe};
use sievedb_format::{InternalKey, RangeTombstoneSource, SequenceNumber, Trailer};
use sievedb_sstable::{CacheUse, FilterState};
use smallvec::SmallVec;

use super::{
    observer::{Candidate, CountBlocks as _, NoObserver, Observer},
    view::{KeptView, ReadView},
};
use crate::{
    Result,
    resolve::{ReadPoint, Stored, Verdict, Version, hides_up_to},
    stats::{LevelCounters, ThreadCounters},
    store_clock::StoreClock,
    table::TableFilters,
};

/// Candidate tables that fit on the stack: level 0 rarely has more, each deeper level has one.
const CANDIDATES_INLINE: usize = 24;

type Candidates<'v> = SmallVec<[Candidate<'v>; CANDIDATES_INLINE]>;

/// The newest visible version of a key, resolved.
#[derive(Debug)]
pub(crate) enum Found<V> {
    /// The key has a value.
    Value(V),
    /// The value of the key is in the blob file that the version names.
    Blob,
    /// The key has no value.
    Deleted,
    /// The version alone does not determine the value: see [`older`](super::older).
    MoreNeeded,
}

impl<V> Found<V> {
    /// Resolves the key for a reader at `at` by the version with this trailer and stored value.
    /// `clock` is read for a put with expiry, unless the clock of `at` is fixed. `cover` as in
    /// [`ReadPoint::resolve`]; `value` reads a value that is stored inline, after that many bytes.
    #[inline]
    pub(crate) fn resolve<'v>(
        at: ReadPoint,
        clock: &StoreClock,
        trailer: Trailer,
        stored: impl FnOnce() -> &'v [u8],
        cover: impl FnOnce() -> SequenceNumber,
        value: impl FnOnce(Version) -> V,
    ) -> Self {
        let Ok(version) = Version::decode(trailer, stored) else { return Self::MoreNeeded };
        let at = match version.expiry_ms() {
            Some(_) => at.with_clock(|| clock.now_ms()),
            None => at,
        };
        match at.resolve(version, cover) {
            Verdict::Value(Stored::Inline) => Self::Value(value(version)),
            Verdict::Deleted => Self::Deleted,
            Verdict::Value(Stored::Blob) => Self::Blob,
            Verdict::MoreNeeded(_) => Self::MoreNeeded,
        }
    }
}

/// A key to look up.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lookup<'a> {
    pub(crate) key: &'a [u8],
    /// Hash of the key, with the seed of the store.
    pub(crate) hash: u64,
    pub(crate) at: ReadPoint,
    /// Clock, read for a version with an expiry, unless the clock of `at` is fixed.
    pub(crate) clock: &'a StoreClock,
    pub(crate) cache_use: CacheUse,
}

impl<'a> Lookup<'a> {
    /// Returns the result of `observer` for the value of the key, if it has one.
    #[inline]
    pub(crate) fn find<V>(
        self,
        view: &ReadView,
        counters: &ThreadCounters,
        observer: &mut impl Observer<V>,
    ) -> Result<Option<V>> {
        counters.lookups.add(1);
        let probe = Probe::new(self.hash);
        let mut candidates = Candidates::new();
        let has_memtables = self.prefetch_memtables(view);
        self.collect(probe, view, &mut candidates);
        self.sample(view, &candidates, counters);
        observer.candidates(&candidates);
        // After a flush there is none; another check costs 40 instructions.
        let in_memtables =
            if has_memtables { self.in_memtables(view, counters, observer) } else { None };
        let found = if let Some(found) = in_memtables {
            counters.found_in_memtables.add(1);
            Some(found)
        } else {
            self.in_tables(probe, view, &candidates, counters, observer)?
        };
        match found {
            Some(Found::Value(value)) => Ok(Some(value)),
            None | Some(Found::Deleted) => Ok(None),
            Some(Found::Blob | Found::MoreNeeded) => self.find_older(view, counters, observer),
        }
    }

    /// Returns `false` only if the key has no value. Reads no file.
    pub(crate) fn may_contain(self, view: &ReadView, counters: &ThreadCounters) -> bool {
        counters.lookups.add(1);
        let probe = Probe::new(self.hash);
        let mut candidates = Candidates::new();
        let has_memtables = self.prefetch_memtables(view);
        self.collect(probe, view, &mut candidates);
        self.sample(view, &candidates, counters);
        if has_memtables
            && let Some(found) = self.in_memtables::<()>(view, counters, &mut NoObserver)
        {
            counters.found_in_memtables.add(1);
            return !matches!(found, Found::Deleted);
        }
        // Not counted: positives are not verified, so the measured rate would be that of negatives
        // only.
        let mut covers = Covers::new(&self, view, &candidates);
        for candidate in &candidates {
            let mut hidden = covers.known(candidate);
            if hidden == Hidden::Nothing {
                let passes = match &*candidate.filters.point {
                    FilterState::Resident(filter) => many::may_contain(filter, probe),
                    FilterState::Unusable(_) | FilterState::NotResident | FilterState::None => true,
                };
                if !passes {
                    continue;
                }
                hidden = covers.hidden(candidate);
            }
            match hidden {
                Hidden::Nothing => return true,
                Hidden::Table => {}
                Hidden::All => return false,
            }
        }
        false
    }

    /// As [`KeptView::newest_cover`].
    #[inline]
    fn newest_cover(self, view: &KeptView, above: SequenceNumber) -> SequenceNumber {
        view.newest_cover(self.key, self.at.sequence, above)
    }

    fn in_memtables<V>(
        self,
        view: &KeptView,
        counters: &ThreadCounters,
        observer: &mut impl Observer<V>,
    ) -> Option<Found<V>> {
        let target = InternalKey::seek(self.key, self.at.sequence);
        for (number, memtable) in view.memtables_at(self.at.sequence).enumerate() {
            if !memtable.may_contain_hash(self.hash) {
                counters.memtable_negatives.add(1);
                observer.memtable_probed(number, false);
                continue;
            }
            counters.memtable_positives.add(1);
            observer.memtable_probed(number, true);
            let found = memtable.get_with(target, |trailer, value| {
                debug_assert!(trailer.sequence() <= self.at.sequence, "a version is not visible");
                observer.found_in_memtable(number, trailer, value);
                let cover = || self.newest_cover(view, trailer.sequence());
                Found::resolve(
                    self.at,
                    self.clock,
                    trailer,
                    || value,
                    cover,
                    |version| {
                        observer.expires(version.expiry_ms());
                        observer.value_in_memtable(&value[version.prefix_bytes()..])
                    },
                )
            });
            if found.is_some() {
                return found;
            }
        }
        None
    }

    /// Prefetches the filter lines of memtables. Returns `true` if there is a memtable to search.
    fn prefetch_memtables(self, view: &KeptView) -> bool {
        let mut found = false;
        view.memtables_at(self.at.sequence).for_each(|memtable| {
            memtable.prefetch(self.hash);
            found = true;
        });
        found
    }

    /// Collects the candidate tables, the newest first, and prefetches their filter lines.
    #[inline]
    fn collect<'v>(self, probe: Probe, view: &'v ReadView, candidates: &mut Candidates<'v>) {
        debug_assert_eq!(view.version.runs().len(), view.filters.runs().len());
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

    #[inline]
    fn in_tables<V>(
        self,
        probe: Probe,
        view: &KeptView,
        candidates: &[Candidate<'_>],
        counters: &ThreadCounters,
        observer: &mut impl Observer<V>,
    ) -> Result<Option<Found<V>>> {
        if view.has_range_tombstones() {
            return self.in_tables_with_ranges(probe, view, candidates, counters, observer);
        }
        for (number, candidate) in candidates.iter().enumerate() {
            if self.passes(probe, number, candidate, counters, observer) {
                let found = self.in_table(0, number, candidate, counters, observer)?;
                if found.is_some() {
                    return Ok(found);
                }
            }
        }
        Ok(None)
    }

    /// Probes the filter of a candidate.
    #[inline]
    fn passes<V>(
        self,
        probe: Probe,
        number: usize,
        candidate: &Candidate<'_>,
        counters: &ThreadCounters,
        observer: &mut impl Observer<V>,
    ) -> bool {
        let counters = &counters.levels[usize::from(candidate.run.level)];
        let passes = passes(candidate.filters, probe, counters);
        observer.table_probed(number, passes);
        passes
    }

    /// As [`in_tables`](Self::in_tables), in a view with range tombstones. Not inlined: other views
    /// pay for one branch.
    #[inline(never)]
    fn in_tables_with_ranges<V>(
        self,
        probe: Probe,
        view: &KeptView,
        candidates: &[Candidate<'_>],
        counters: &ThreadCounters,
        observer: &mut impl Observer<V>,
    ) -> Result<Option<Found<V>>> {
        let mut covers = Covers::new(&self, view, candidates);
        for (number, candidate) in candidates.iter().enumerate() {
            let mut hidden = covers.known(candidate);
            if hidden == Hidden::Nothing {
                if !self.passes(probe, number, candidate, counters, observer) {
                    continue;
                }
                hidden = covers.hidden(candidate);
            }
            match hidden {
                Hidden::Nothing => {}
                Hidden::Table => {
                    observer.table_covered(number);
                    continue;
                }
                Hidden::All => {
                    (number..candidates.len()).for_each(|at| observer.table_covered(at));
                    return Ok(Some(Found::Deleted));
                }
            }
            let found = self.in_table(covers.newest, number, candidate, counters, observer)?;
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// Not inlined: most lookups of absent keys search no table.
    #[inline(never)]
    fn in_table<V, O: Observer<V>>(
        self,
        cover: SequenceNumber,
        number: usize,
        candidate: &Candidate<'_>,
        counters: &ThreadCounters,
        observer: &mut O,
    ) -> Result<Option<Found<V>>> {
        let counters = &counters.levels[usize::from(candidate.run.level)];
        let live = &*candidate.run.tables()[candidate.index];
        let mut blocks = O::Blocks::default();
        let target = InternalKey::seek(self.key, self.at.sequence);
        let mut reference = None;
        let found = live.table.get_with(target, self.cache_use, &mut blocks, |trailer, value| {
            debug_assert!(trailer.sequence() <= self.at.sequence, "a version is not visible");
            observer.found_in_table(number, trailer, &value);
            let found = Found::resolve(
                self.at,
                self.clock,
                trailer,
                || value.as_slice(),
                || cover,
                |version| {
                    observer.expires(version.expiry_ms());
                    observer.value_in_block(&value.after(version.prefix_bytes()))
                },
            );
            if matches!(found, Found::Blob) {
                reference = Some(value.to_bytes());
            }
            found
        });
        counters.add_blocks(blocks.counts());
        let found = found.map_err(|error| live.error(error));
        observer.table_searched(number, blocks, found.as_ref().err());
        let found = found?;
        let is_found = u64::from(found.is_some());
        counters.add_searches(is_found, 1 - is_found, candidate.filters.point.expected_fpr);
        let Some(reference) = reference else { return Ok(found) };
        observer.expires(None);
        let value = observer.value_in_blob_file(live.blob(&reference)?)?;
        Ok(Some(Found::Value(value)))
    }
}

/// The newest range tombstone over the key of a lookup.
///
/// It is searched when a table may have the key: most misses need no search. A wide range tombstone
/// is compared first: a key that it deletes needs no filter, and a deleted key needs no block.
#[derive(Debug)]
struct Covers<'v> {
    lookup: &'v Lookup<'v>,
    view: &'v KeptView,
    candidates: &'v [Candidate<'v>],
    /// Newest sequence number; 0 if there is none above `above`. Before the search, that of a wide
    /// range tombstone.
    newest: SequenceNumber,
    /// Sequence number up to which range tombstones were not searched.
    above: SequenceNumber,
}

impl<'v> Covers<'v> {
    #[inline]
    fn new(lookup: &'v Lookup<'v>, view: &'v KeptView, candidates: &'v [Candidate<'v>]) -> Self {
        let has_ranges = view.has_range_tombstones();
        let newest = if has_ranges { view.wide_cover(lookup.key, lookup.at.sequence) } else { 0 };
        Self { lookup, view, candidates, newest, above: SequenceNumber::MAX }
    }

    fn search(&mut self, above: SequenceNumber) {
        let &Lookup { key, at, .. } = self.lookup;
        let mut newest = self.view.newest_cover_in_memtables(key, at.sequence, above);
        for Candidate { run, index, .. } in self.candidates {
            if run.newest_range_tombstone() > newest {
                let list = run.tables()[*index].table.range_tombstones();
                newest = newest.max(list.newest_cover(key, at.sequence).unwrap_or(0));
            }
        }
        self.above = above;
        self.newest = if newest > above { newest } else { 0 };
    }

    /// Returns the part of this table and of older ones that the newest range tombstone hides.
    /// Searches for it if one may hide a version in the table.
    #[inline]
    fn hidden(&mut self, candidate: &Candidate<'_>) -> Hidden {
        let run = candidate.run;
        if run.has_range_tombstones() && !run.tables()[candidate.index].meta.has_points() {
            return Hidden::Table;
        }
        if run.oldest() < self.above && self.view.has_range_tombstones() {
            self.search(run.oldest());
        }
        self.known(candidate)
    }

    /// Returns the part that the range tombstone found so far hides.
    #[inline]
    fn known(&self, candidate: &Candidate<'_>) -> Hidden {
        let run = candidate.run;
        let meta = || &run.tables()[candidate.index].meta;
        if self.newest == 0 {
            Hidden::Nothing
        } else if hides_up_to(self.newest, run.newest()) {
            Hidden::All
        } else if hides_up_to(self.newest, meta().largest_sequence) {
            Hidden::Table
        } else {
            Hidden::Nothing
        }
    }
}

/// Sources of a key whose versions are hidden.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hidden {
    Nothing,
    Table,
    /// The table and all tables in the runs below.
    All,
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
