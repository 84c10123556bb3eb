//! Point lookups of many keys by one call, in chunks of [`CHUNK_KEYS`].
//!
//! 1. Hash the keys of the chunk, and probe the filters of the memtables, with their lines
//!    prefetched.
//! 2. Sort the remaining keys, unless they are sorted. In each run the keys of a table are then
//!    neighbors, and so are those of a block.
//! 3. In each run, the newest first: find the keys of each table by galloping search, and probe its
//!    filter for all of them with many loads in flight. Then look up the positives, with one
//!    request for each block. Found keys leave the chunk.
//!
//! Buffers are kept from chunk to chunk: nothing is allocated for a key.

use std::sync::Arc;

use sievedb_filter::key_hash;
use sievedb_format::{InternalKey, SequenceNumber};
use sievedb_sstable::{BlockCounts, CacheUse};
use smallvec::SmallVec;

use super::{
    lookup::{Found, Lookup},
    observer::{FromValue, NoObserver},
    open_keys::{Fate, Group, OpenKeys, Passed},
    tree::Tree,
    view::{FilterSet, KeptView},
};
use crate::{
    Result,
    resolve::{ReadPoint, hides_up_to},
    stats::{LevelCounters, ThreadCounters},
    store_clock::StoreClock,
    table::TableFilters,
    version::Run,
};

/// Number of keys looked up together.
///
/// With this many, the filter lines in flight fit the cache, and the work for each chunk is small.
const CHUNK_KEYS: usize = 512;

/// Reads many keys of a keyspace, from one view at one point in time.
#[derive(Debug)]
pub(crate) struct ManyReader<'v> {
    pub(crate) tree: &'v Tree,
    pub(crate) view: &'v KeptView,
    /// Read point. Its clock is fixed if the view has entries that expire.
    pub(crate) at: ReadPoint,
    pub(crate) clock: &'v StoreClock,
    pub(crate) cache_use: CacheUse,
    pub(crate) hash_seed: u64,
    pub(crate) counters: &'v ThreadCounters,
}

/// The keys of a chunk, and the results so far.
struct Chunk<'c, 'k, V> {
    keys: &'c [&'k [u8]],
    results: &'c mut [Option<V>],
}

impl ManyReader<'_> {
    /// Looks `keys` up in chunks, and calls `take` with the result of each, in their order.
    ///
    /// Keeps no more keys than a chunk has.
    pub(crate) fn find_each<K: AsRef<[u8]>, V: FromValue>(
        &self,
        keys: impl Iterator<Item = K>,
        mut take: impl FnMut(Option<V>),
    ) -> Result<()> {
        let mut lookup = ChunkLookup::new(self);
        let mut keys = keys.fuse();
        let mut chunk = Vec::with_capacity(keys.size_hint().0.min(CHUNK_KEYS));
        let mut results = Vec::with_capacity(chunk.capacity());
        loop {
            chunk.extend(keys.by_ref().take(CHUNK_KEYS));
            if chunk.is_empty() {
                return Ok(());
            }
            results.resize_with(chunk.len(), || None);
            let bytes: SmallVec<[&[u8]; CHUNK_KEYS]> = chunk.iter().map(AsRef::as_ref).collect();
            let mut found = Chunk { keys: &bytes, results: &mut results };
            let now = self.tree.view();
            if now.version.number() == self.view.version.number() {
                lookup.find(&now.filters, &mut found)?;
            } else {
                // Filters of the version, loaded for each chunk: a filter that was replaced
                // meanwhile must not stay in memory for the whole call.
                drop(now);
                lookup.find(&FilterSet::new(&self.view.version), &mut found)?;
            }
            drop(bytes);
            chunk.clear();
            results.drain(..).for_each(&mut take);
        }
    }
}

/// Looks chunks up, one after the other.
#[derive(Debug)]
struct ChunkLookup<'r, 'v> {
    reader: &'r ManyReader<'v>,
    /// The view has range tombstones. One that is written later is newer than the reader.
    has_ranges: bool,
    keys: OpenKeys,
    /// The newest range tombstone over each key of the chunk; 0 without one, and [`UNKNOWN`] if it
    /// was not searched. Empty without range tombstones.
    covers: Vec<SequenceNumber>,
    /// Keys whose newest version does not determine the value, by their positions in the chunk.
    more_needed: Vec<usize>,
}

/// Not yet searched.
const UNKNOWN: SequenceNumber = SequenceNumber::MAX;

impl<'r, 'v> ChunkLookup<'r, 'v> {
    fn new(reader: &'r ManyReader<'v>) -> Self {
        let has_ranges = reader.view.has_range_tombstones();
        let (keys, covers, more_needed) = (OpenKeys::default(), Vec::new(), Vec::new());
        Self { reader, has_ranges, keys, covers, more_needed }
    }

    /// Fills the results of `chunk`, which must all be `None`.
    fn find<V: FromValue>(
        &mut self,
        filters: &FilterSet,
        chunk: &mut Chunk<'_, '_, V>,
    ) -> Result<()> {
        debug_assert!(chunk.keys.len() <= CHUNK_KEYS && chunk.keys.len() == chunk.results.len());
        debug_assert!(self.more_needed.is_empty(), "keys of the chunk before are left");
        self.reader.counters.lookups.add(chunk.keys.len() as u64);
        self.in_memtables(chunk);
        self.in_tables(filters, chunk)?;
        if !self.more_needed.is_empty() {
            self.in_older(chunk)?;
        }
        Ok(())
    }

    /// Counts the candidate tables of the keys that are in the sample.
    fn sample(&self, keys: &[&[u8]]) {
        let ManyReader { view, tree, counters, .. } = *self.reader;
        for (key, &hash) in keys.iter().zip(self.keys.hashes()) {
            if counters.sample.is_due(hash) {
                let runs = view.version.runs().iter();
                let tables =
                    runs.filter_map(|run| Some(run.tables()[run.find_index(key)?].meta.id));
                counters.sample.note(tree.id, tables);
            }
        }
    }

    /// Searches the memtables. Keys without a version there stay open.
    fn in_memtables<V: FromValue>(&mut self, chunk: &mut Chunk<'_, '_, V>) {
        let ManyReader { view, at, clock, counters, hash_seed, .. } = *self.reader;
        let has_ranges = self.has_ranges;
        self.keys.begin(chunk.keys.iter().map(|key| key_hash(key, hash_seed)));
        self.sample(chunk.keys);
        let Self { keys, more_needed, .. } = self;
        for memtable in view.memtables_at(at.sequence) {
            for &hash in keys.hashes() {
                memtable.prefetch(hash);
            }
            let (probes, mut positives) = (keys.hashes().len() as u64, 0);
            keys.retain(|place, hash| {
                if !memtable.may_contain_hash(hash) {
                    return true;
                }
                positives += 1;
                let key = chunk.keys[place];
                let target = InternalKey::seek(key, at.sequence);
                let found = memtable.get_with(target, |trailer, value| {
                    let cover = || {
                        if has_ranges {
                            view.newest_cover(key, at.sequence, trailer.sequence())
                        } else {
                            0
                        }
                    };
                    Found::resolve(
                        at,
                        clock,
                        trailer,
                        || value,
                        cover,
                        |version| V::from_memtable(&value[version.prefix_bytes()..]),
                    )
                });
                let Some(found) = found else { return true };
                counters.found_in_memtables.add(1);
                match found {
                    Found::Value(value) => chunk.results[place] = Some(value),
                    Found::Deleted => {}
                    Found::Blob | Found::MoreNeeded => more_needed.push(place),
                }
                false
            });
            counters.memtable_positives.add(positives);
            counters.memtable_negatives.add(probes - positives);
        }
    }

    /// Searches the tables for the open keys.
    fn in_tables<V: FromValue>(
        &mut self,
        filters: &FilterSet,
        chunk: &mut Chunk<'_, '_, V>,
    ) -> Result<()> {
        let version = &self.reader.view.version;
        if self.keys.hashes().is_empty() || version.runs().is_empty() {
            return Ok(());
        }
        if self.has_ranges {
            self.covers.clear();
            self.covers.resize(chunk.keys.len(), UNKNOWN);
        }
        self.keys.sort(chunk.keys);
        for (run, filters) in version.runs().iter().zip(filters.runs()) {
            self.in_run(run, filters, chunk)?;
        }
        Ok(())
    }

    /// Looks up the keys whose older versions are needed.
    #[cold]
    fn in_older<V: FromValue>(&mut self, chunk: &mut Chunk<'_, '_, V>) -> Result<()> {
        let ManyReader { view, at, clock, cache_use, hash_seed, counters, .. } = *self.reader;
        for place in self.more_needed.drain(..) {
            let key = chunk.keys[place];
            let hash = key_hash(key, hash_seed);
            let lookup = Lookup { key, hash, at, clock, cache_use };
            chunk.results[place] = lookup.find_older(view, counters, &mut NoObserver)?;
        }
        Ok(())
    }

    /// Searches the tables of a run for the open keys.
    fn in_run<V: FromValue>(
        &mut self,
        run: &Run,
        filters: &[Arc<TableFilters>],
        chunk: &mut Chunk<'_, '_, V>,
    ) -> Result<()> {
        let counters = &self.reader.counters.levels[usize::from(run.level)];
        self.keys.group(run, filters, chunk.keys);
        self.keys.probe(filters, counters);
        let mut found_any = false;
        for at in 0..self.keys.groups().len() {
            found_any |= self.in_group(run, filters, at, counters, chunk)?;
        }
        if found_any {
            self.keys.drop_found();
        }
        Ok(())
    }

    /// Looks up the keys of a group that passed the filter. Returns `true` if one was found.
    fn in_group<V: FromValue>(
        &mut self,
        run: &Run,
        filters: &[Arc<TableFilters>],
        group: usize,
        counters: &LevelCounters,
        chunk: &mut Chunk<'_, '_, V>,
    ) -> Result<bool> {
        let ManyReader { view, at, clock, cache_use, .. } = *self.reader;
        let Self { has_ranges, ref mut keys, ref mut covers, ref mut more_needed, .. } = *self;
        let Group { table, .. } = keys.groups()[group];
        let live = &run.tables()[table];
        let mut any_closed = false;
        if has_ranges {
            if !live.meta.has_points() {
                return Ok(false);
            }
            let (largest, newest) = (live.meta.largest_sequence, run.newest());
            // As in a lookup of one key.
            keys.decide(group, |place| {
                let key = chunk.keys[place];
                let mut cover = covers[place];
                if cover == UNKNOWN {
                    cover = view.wide_cover(key, at.sequence);
                    if !hides_up_to(cover, largest) {
                        cover = view.search_cover(key, at.sequence, 0);
                        covers[place] = cover;
                    }
                }
                if !hides_up_to(cover, largest) {
                    return Fate::Searched;
                }
                let is_closed = hides_up_to(cover, newest);
                any_closed |= is_closed;
                if is_closed { Fate::Found } else { Fate::Open }
            });
        }
        let (passed, is_found) = keys.passed(group);
        if passed.is_empty() {
            return Ok(any_closed);
        }
        let sorted = passed.iter().map(|passed| chunk.keys[passed.place]);
        let mut blocks = BlockCounts::default();
        let mut count = 0;
        let read = live.table.get_many_with(
            &sorted,
            at.sequence,
            cache_use,
            &mut blocks,
            |n, trailer, value| {
                let Passed { index, place } = passed[n];
                count += 1;
                is_found[index] = true;
                let cover = || covers.get(place).copied().unwrap_or(0);
                let found = Found::resolve(
                    at,
                    clock,
                    trailer,
                    || value.as_slice(),
                    cover,
                    |it| V::from_block(&value.after(it.prefix_bytes())),
                );
                match found {
                    Found::Value(value) => chunk.results[place] = Some(value),
                    Found::Deleted => {}
                    Found::Blob | Found::MoreNeeded => more_needed.push(place),
                }
            },
        );
        counters.add_blocks(blocks);
        let false_positives = if read.is_ok() { passed.len() as u64 - count } else { 0 };
        counters.add_searches(count, false_positives, filters[table].point.expected_fpr);
        read.map_err(|error| live.error(error))?;
        Ok(any_closed || count > 0)
    }
}
