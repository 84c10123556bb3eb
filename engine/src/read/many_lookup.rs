//! The way of many point lookups at once, in chunks of [`CHUNK_KEYS`].
//!
//! 1. Hash the keys of the chunk; ask the memtables' filters, their lines prefetched.
//! 2. Put what is left in key order, unless it is already. In each run the keys of a table are then
//!    neighbours, and so are those of a block.
//! 3. In each run, the newest first: find the keys of each table by steps that double, ask the
//!    table's filter for all of them with many loads in flight at once, and look the positives up,
//!    each block read once. What is found leaves the chunk.
//!
//! Buffers are kept from chunk to chunk: nothing is allocated for a key.

use std::sync::Arc;

use sievedb_filter::key_hash;
use sievedb_filter::many::{self, Probe};
use sievedb_format::{InternalKey, SequenceNumber};
use sievedb_sstable::{BlockCounts, CacheUse, FilterState};

use crate::{
    Result,
    read::answer::{Answer, Found},
    read::filter_set::FilterSet,
    read::key_order::{KeyOrder, doubling_partition_point},
    read::lookup::Lookup,
    read::tree::Tree,
    read::view::KeptView,
    stats::{LevelCounters, ThreadCounters},
    table::TableFilters,
    version::Run,
};

/// Keys looked up together.
///
/// With so many the filter lines in flight fit the cache, and what is done once for a chunk is
/// little.
pub(crate) const CHUNK_KEYS: usize = 512;

/// Fewest keys of a table that its filter is probed with in one call. Fewer do not keep the memory
/// busy: their lines are loaded ahead, together with those of other tables.
const GROUP_KEYS_MIN: usize = 16;

/// View and sequence number of a call over many keys.
#[derive(Debug)]
pub(crate) struct ManyReader<'v> {
    pub(crate) tree: &'v Tree,
    pub(crate) view: &'v KeptView,
    pub(crate) sequence: SequenceNumber,
    pub(crate) cache_use: CacheUse,
    pub(crate) hash_seed: u64,
    pub(crate) counters: &'v ThreadCounters,
}

/// Reads a keyspace at one sequence number, chunk by chunk.
#[derive(Debug)]
pub(crate) struct ManyLookup<'v> {
    pub(crate) keyspace_id: u64,
    pub(crate) view: &'v KeptView,
    pub(crate) sequence: SequenceNumber,
    pub(crate) cache_use: CacheUse,
    pub(crate) hash_seed: u64,
    pub(crate) counters: &'v ThreadCounters,
    /// Whether the view has range tombstones. One that is written later is newer than the reader.
    has_ranges: bool,
    buffers: Buffers,
}

/// Reused from chunk to chunk.
#[derive(Debug, Default)]
struct Buffers {
    /// The keys of the chunk without an answer, by their places in the chunk.
    open: Vec<u16>,
    /// Their hashes.
    hashes: Vec<u64>,
    /// What the filters of a run say of them.
    maybe: Vec<bool>,
    /// Those that a table of the run has.
    found: Vec<bool>,
    /// The tables of a run that they fall into.
    groups: Vec<Group>,
    /// Those of a table that passed its filter, by their places in `open`.
    passed: Vec<u16>,
    /// Those that their newest version does not decide, by their places in the chunk.
    more_needed: Vec<usize>,
    order: KeyOrder,
}

/// Open keys within the bounds of a table, neighbours in key order.
#[derive(Debug, Clone, Copy)]
struct Group {
    table: usize,
    first: usize,
    end: usize,
}

/// The keys of a chunk, and what is found of each.
struct Chunk<'c, 'k, A> {
    keys: &'c [&'k [u8]],
    answers: &'c mut [Option<A>],
}

impl<'v> ManyLookup<'v> {
    pub(crate) fn new(reader: &ManyReader<'v>) -> Self {
        let ManyReader { tree, view, sequence, cache_use, hash_seed, counters } = *reader;
        let (keyspace_id, buffers) = (tree.id, Buffers::default());
        let has_ranges = view.has_range_tombstones();
        Self { keyspace_id, view, sequence, cache_use, hash_seed, counters, has_ranges, buffers }
    }

    /// Puts into `answers`, all `None` now, what each of `keys` has. At most [`CHUNK_KEYS`] keys.
    pub(crate) fn find<A: Answer>(
        &mut self,
        filters: &FilterSet,
        keys: &[&[u8]],
        answers: &mut [Option<A>],
    ) -> Result<()> {
        self.counters.lookups.add(keys.len() as u64);
        let mut chunk = Chunk { keys, answers };
        self.in_memtables(&mut chunk);
        self.in_tables(filters, &mut chunk)?;
        if !self.buffers.more_needed.is_empty() {
            self.in_older(&mut chunk)?;
        }
        Ok(())
    }

    /// Answers what memtables can, and leaves the rest open.
    fn in_memtables<A: Answer>(&mut self, chunk: &mut Chunk<'_, '_, A>) {
        let Self { view, sequence, counters, has_ranges, .. } = *self;
        let Buffers { open, hashes, more_needed, .. } = &mut self.buffers;
        hashes.clear();
        hashes.extend(chunk.keys.iter().map(|key| key_hash(key, self.hash_seed)));
        for (key, &hash) in chunk.keys.iter().zip(&*hashes) {
            if counters.sample.is_due(hash) {
                let runs = self.view.version.runs().iter();
                let tables =
                    runs.filter_map(|run| Some(run.tables()[run.find_index(key)?].meta.id));
                counters.sample.note(self.keyspace_id, tables);
            }
        }
        open.clear();
        // A chunk has fewer keys than 2^16.
        open.extend((0..chunk.keys.len()).map(|place| place as u16));
        for memtable in self.view.memtables_at(sequence) {
            for &hash in &*hashes {
                memtable.prefetch(hash);
            }
            let (mut kept, mut positives) = (0, 0);
            for at in 0..open.len() {
                let (place, hash) = (open[at], hashes[at]);
                if memtable.may_contain_hash(hash) {
                    positives += 1;
                    let key = chunk.keys[usize::from(place)];
                    let target = InternalKey::seek(key, sequence);
                    let found = memtable.get_with(target, |trailer, value| {
                        let cover =
                            || if has_ranges { view.newest_cover(key, sequence) } else { 0 };
                        Found::resolve(sequence, trailer, cover, || A::of_memtable(value))
                    });
                    if let Some(found) = found {
                        counters.found_in_memtables.add(1);
                        match found {
                            Found::Value(answer) => {
                                chunk.answers[usize::from(place)] = Some(answer);
                            }
                            Found::Deleted => {}
                            Found::MoreNeeded => more_needed.push(usize::from(place)),
                        }
                        continue;
                    }
                }
                (open[kept], hashes[kept]) = (place, hash);
                kept += 1;
            }
            counters.memtable_positives.add(positives);
            counters.memtable_negatives.add(open.len() as u64 - positives);
            open.truncate(kept);
            hashes.truncate(kept);
        }
    }

    /// Answers what the tables can, and leaves the rest open.
    fn in_tables<A: Answer>(
        &mut self,
        filters: &FilterSet,
        chunk: &mut Chunk<'_, '_, A>,
    ) -> Result<()> {
        let version = &self.view.version;
        if self.buffers.open.is_empty() || version.runs().is_empty() {
            return Ok(());
        }
        let Buffers { open, hashes, order, .. } = &mut self.buffers;
        order.sort(chunk.keys, open, hashes);
        for (run, filters) in version.runs().iter().zip(filters.runs()) {
            self.in_run(run, filters, chunk)?;
        }
        Ok(())
    }

    /// Answers the keys that need older versions.
    #[cold]
    fn in_older<A: Answer>(&mut self, chunk: &mut Chunk<'_, '_, A>) -> Result<()> {
        let Self { view, sequence, cache_use, hash_seed, counters, .. } = *self;
        for place in self.buffers.more_needed.drain(..) {
            let key = chunk.keys[place];
            let lookup = Lookup { key, hash: key_hash(key, hash_seed), sequence, cache_use };
            chunk.answers[place] = lookup.answer_by_older(view, counters)?;
        }
        Ok(())
    }

    /// Answers what the tables of a run can, and leaves the rest open.
    fn in_run<A: Answer>(
        &mut self,
        run: &Run,
        filters: &[Arc<TableFilters>],
        chunk: &mut Chunk<'_, '_, A>,
    ) -> Result<()> {
        let counters = &self.counters.levels[usize::from(run.level)];
        self.buffers.group(run, filters, chunk.keys);
        self.buffers.ask(filters, counters);
        let mut found_any = false;
        for at in 0..self.buffers.groups.len() {
            found_any |= self.in_group(run, filters, at, counters, chunk)?;
        }
        if found_any {
            self.buffers.drop_found();
        }
        Ok(())
    }

    /// Looks up those keys of a group that passed the filter. Tells whether one was found.
    fn in_group<A: Answer>(
        &mut self,
        run: &Run,
        filters: &[Arc<TableFilters>],
        group: usize,
        counters: &LevelCounters,
        chunk: &mut Chunk<'_, '_, A>,
    ) -> Result<bool> {
        let Self { view, sequence, cache_use, has_ranges, .. } = *self;
        let Buffers { open, maybe, found, groups, passed, more_needed, .. } = &mut self.buffers;
        let Group { table, first, end } = groups[group];
        passed.clear();
        // Places in `open`, which has fewer than 2^16.
        passed.extend((first..end).filter(|&at| maybe[at]).map(|at| at as u16));
        if passed.is_empty() {
            return Ok(false);
        }
        let live = &run.tables()[table];
        let place_of = |at: u16| usize::from(open[usize::from(at)]);
        let keys = passed.iter().map(|&at| chunk.keys[place_of(at)]);
        let mut blocks = BlockCounts::default();
        let mut count = 0;
        let read = live.table.get_many_with(
            &keys,
            sequence,
            cache_use,
            &mut blocks,
            |n, trailer, value| {
                let (at, place) = (usize::from(passed[n]), place_of(passed[n]));
                count += 1;
                found[at] = true;
                let key = chunk.keys[place];
                let cover = || if has_ranges { view.newest_cover(key, sequence) } else { 0 };
                match Found::resolve(sequence, trailer, cover, || A::of_block(&value)) {
                    Found::Value(answer) => chunk.answers[place] = Some(answer),
                    Found::Deleted => {}
                    Found::MoreNeeded => more_needed.push(place),
                }
            },
        );
        counters.add_blocks(blocks);
        let in_vain = if read.is_ok() { passed.len() as u64 - count } else { 0 };
        counters.add_searches(count, in_vain, filters[table].point.expected_fpr);
        read.map_err(|error| live.error(error))?;
        Ok(count > 0)
    }
}

impl Buffers {
    /// Divides the open keys among the tables of a run.
    fn group(&mut self, run: &Run, filters: &[Arc<TableFilters>], keys: &[&[u8]]) {
        let Self { open, hashes, groups, .. } = self;
        groups.clear();
        let key_at = |at: u16| keys[usize::from(at)];
        let mut at = 0;
        while let Some(&place) = open.get(at) {
            let Some(table) = run.first_not_before(key_at(place)) else { break };
            let meta = &run.tables()[table].meta;
            let is_before = |&at: &u16| meta.bounds.starts_above(key_at(at));
            let first = at + doubling_partition_point(&open[at..], is_before);
            let is_within = |&at: &u16| !meta.bounds.ends_below(key_at(at));
            let end = first + doubling_partition_point(&open[first..], is_within);
            if end - first < GROUP_KEYS_MIN {
                for &hash in &hashes[first..end] {
                    filters[table].prefetch(Probe::new(hash));
                }
            }
            if first < end {
                groups.push(Group { table, first, end });
            }
            at = end;
        }
    }

    /// Asks the filters of a run.
    fn ask(&mut self, filters: &[Arc<TableFilters>], counters: &LevelCounters) {
        let Self { open, hashes, maybe, found, groups, .. } = self;
        found.clear();
        found.resize(open.len(), false);
        // Outside of all groups nobody looks.
        maybe.resize(open.len(), true);
        for &Group { table, first, end } in &*groups {
            let (hashes, maybe) = (&hashes[first..end], &mut maybe[first..end]);
            let keys = hashes.len();
            match &*filters[table].point {
                FilterState::Resident(filter) => {
                    if keys < GROUP_KEYS_MIN {
                        for (&hash, maybe) in hashes.iter().zip(&mut *maybe) {
                            *maybe = many::may_contain(filter, Probe::new(hash));
                        }
                    } else {
                        filter.may_contain_hashes(hashes, maybe);
                    }
                    let negatives = maybe.iter().filter(|maybe| !**maybe).count();
                    let expected_fpr = filters[table].point.expected_fpr.unwrap_or(1.0);
                    counters.add_negatives(negatives as u64, expected_fpr);
                }
                FilterState::Unusable(_) => {
                    maybe.fill(true);
                    counters.filter_unusable.add(keys as u64);
                }
                FilterState::NotResident => {
                    maybe.fill(true);
                    counters.filter_not_resident.add(keys as u64);
                }
                FilterState::None => maybe.fill(true),
            }
        }
    }

    /// Closes the keys that were found.
    fn drop_found(&mut self) {
        let Self { open, hashes, found, .. } = self;
        let mut kept = 0;
        for at in 0..open.len() {
            (open[kept], hashes[kept]) = (open[at], hashes[at]);
            kept += usize::from(!found[at]);
        }
        open.truncate(kept);
        hashes.truncate(kept);
    }
}
