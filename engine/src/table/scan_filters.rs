//! The filters of a table that scans ask: each is in memory whole, or not at all.
//!
//! They are apart from the point filter: no view holds them, so they come and go without a new one.

use std::sync::{Arc, OnceLock};

use sievedb_filter::{FilterArena, RangeFilter};
use sievedb_sstable::{FilterPlace, FilterState, TableIdentity, TableSource};

use crate::{
    memory::{MemoryAccount, MemoryUse},
    table::{
        ChargedFilter, TableMeta,
        filters::{reason, with_cause},
    },
};

/// The filters of a table that scans ask. Never changed: others take their place, and these are freed
/// when the last scan that asks them is done.
#[derive(Debug)]
pub(crate) struct ScanFilters {
    /// Knows the prefix of every user key that has one, by the extractor that the keyspace has now.
    pub(crate) prefix: Arc<ChargedFilter>,
    /// Answers for ranges of user keys.
    pub(crate) range: Arc<ChargedFilter<RangeFilter>>,
    files: Arc<ScanFilterFiles>,
    memory: Arc<MemoryAccount>,
}

/// Where the filters lie that scans ask.
#[derive(Debug)]
pub(crate) struct ScanFilterFiles {
    /// `None` if there is no prefix filter for the extractor that the keyspace has now.
    pub(crate) prefix: Option<StoredWhole>,
    /// `None` if there is no range filter.
    pub(crate) range: Option<StoredWhole>,
    pub(crate) meta: Arc<TableMeta>,
    pub(crate) arena: FilterArena,
}

/// A filter in a file, which is read whole or not at all.
#[derive(Debug)]
pub(crate) struct StoredWhole {
    pub(crate) source: Arc<dyn TableSource>,
    /// That of the table, with the hash seed of the filter.
    pub(crate) identity: TableIdentity,
    pub(crate) place: FilterPlace,
    /// What it takes in memory, once that is known.
    memory_bytes: OnceLock<u64>,
}

/// Which of the filters that scans ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) prefix: bool,
    pub(crate) range: bool,
}

impl StoredWhole {
    pub(crate) fn new(
        source: Arc<dyn TableSource>,
        identity: TableIdentity,
        place: FilterPlace,
    ) -> Self {
        Self { source, identity, place, memory_bytes: OnceLock::new() }
    }

    /// What it takes in memory, or may take at most: before it was read once, only its length is known,
    /// to which a range filter adds the samples of its sequence.
    fn bytes(&self) -> u64 {
        /// A prefix filter begins at a multiple of it.
        const LINE_BYTES: u64 = 64;

        let length = self.place.bytes;
        let most = length.saturating_add(length / 8).saturating_add(LINE_BYTES);
        self.memory_bytes.get().copied().unwrap_or(most)
    }

    fn note<F>(&self, state: &FilterState<F>, memory_bytes: usize) {
        if matches!(state, FilterState::Resident(_)) {
            let _ = self.memory_bytes.set(memory_bytes as u64);
        }
    }
}

impl ScanFilters {
    /// None of them is in memory yet.
    pub(crate) fn not_resident(files: ScanFilterFiles, memory: &Arc<MemoryAccount>) -> Self {
        let prefix = not_resident(files.prefix.as_ref());
        let range = not_resident(files.range.as_ref());
        Self {
            prefix: Arc::new(ChargedFilter::new(prefix, memory)),
            range: Arc::new(ChargedFilter::of_ranges(range, memory)),
            files: Arc::new(files),
            memory: Arc::clone(memory),
        }
    }

    /// The same without those that are not wanted; `None` if none of these is in memory.
    pub(crate) fn without_unwanted(&self, wanted: Wanted) -> Option<Self> {
        let drops_prefix = !wanted.prefix && self.prefix.resident().is_some();
        let drops_range = !wanted.range && self.range.resident_range().is_some();
        let memory = &self.memory;
        let prefix = drops_prefix.then(|| ChargedFilter::new(FilterState::NotResident, memory));
        let range = drops_range.then(|| ChargedFilter::of_ranges(FilterState::NotResident, memory));
        (drops_prefix || drops_range).then(|| self.with(prefix, range))
    }

    /// The same with those that are wanted, read from their files if `has_room` says so of their bytes,
    /// and whether there was room for all; no filters if none is to be read. What turns out to be damaged
    /// is not read again.
    pub(crate) fn loaded(
        &self,
        wanted: Wanted,
        mut has_room: impl FnMut(u64) -> bool,
    ) -> (Option<Self>, bool) {
        let mut is_all = true;
        let mut may_load = |file: &StoredWhole| {
            let fits = has_room(file.bytes());
            is_all &= fits;
            fits
        };
        let prefix = self.absent_prefix().filter(|_| wanted.prefix).filter(|it| may_load(it));
        let prefix = prefix.map(|file| {
            let _buffer = self.memory.charge(MemoryUse::Writing, file.place.bytes as usize);
            let (identity, place) = (&file.identity, Some(file.place));
            let state = FilterState::load(&*file.source, identity, place, &self.files.arena);
            file.note(&state, state.memory_bytes());
            ChargedFilter::new(state, &self.memory)
        });
        let range = self.absent_range().filter(|_| wanted.range).filter(|it| may_load(it));
        let range = range.map(|file| {
            let _buffer = self.memory.charge(MemoryUse::Writing, file.place.bytes as usize);
            let (identity, place) = (&file.identity, Some(file.place));
            let bounds = (&*self.files.meta.smallest, &*self.files.meta.largest);
            let state = FilterState::load_range(&*file.source, identity, place, bounds);
            file.note(&state, state.range_memory_bytes());
            ChargedFilter::of_ranges(state, &self.memory)
        });
        let is_changed = prefix.is_some() || range.is_some();
        (is_changed.then(|| self.with(prefix, range)), is_all)
    }

    fn with(
        &self,
        prefix: Option<ChargedFilter>,
        range: Option<ChargedFilter<RangeFilter>>,
    ) -> Self {
        Self {
            prefix: prefix.map_or_else(|| Arc::clone(&self.prefix), Arc::new),
            range: range.map_or_else(|| Arc::clone(&self.range), Arc::new),
            files: Arc::clone(&self.files),
            memory: Arc::clone(&self.memory),
        }
    }

    fn absent_prefix(&self) -> Option<&StoredWhole> {
        let is_absent = matches!(**self.prefix, FilterState::NotResident);
        self.files.prefix.as_ref().filter(|_| is_absent)
    }

    fn absent_range(&self) -> Option<&StoredWhole> {
        let is_absent = matches!(**self.range, FilterState::NotResident);
        self.files.range.as_ref().filter(|_| is_absent)
    }

    /// Whether all of them are in memory that can be.
    pub(crate) fn is_whole(&self) -> bool {
        self.absent_prefix().is_none() && self.absent_range().is_none()
    }

    /// Bytes of the prefix filter in memory, whether it is there now or not; 0 if there is none that can
    /// be used.
    pub(crate) fn prefix_bytes(&self) -> u64 {
        let stored = self.absent_prefix().map(StoredWhole::bytes);
        stored.unwrap_or(self.prefix.memory_bytes() as u64)
    }

    /// The same for the range filter.
    pub(crate) fn range_bytes(&self) -> u64 {
        let stored = self.absent_range().map(StoredWhole::bytes);
        stored.unwrap_or(self.range.range_memory_bytes() as u64)
    }

    /// Bytes of memory that they take now.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.prefix.memory_bytes() + self.range.range_memory_bytes()
    }

    /// Why one of them cannot be used.
    pub(crate) fn unusable(&self) -> Option<String> {
        reason(&self.prefix).or(reason(&self.range)).map(with_cause)
    }
}

fn not_resident<F>(stored: Option<&StoredWhole>) -> FilterState<F> {
    if stored.is_some() { FilterState::NotResident } else { FilterState::None }
}
