//! The filters of a table that scans ask: each is in memory whole, or not at all.
//!
//! They are apart from the point filter: no view holds them, so they come and go without a new one.

use std::{
    ops::Deref,
    sync::{Arc, OnceLock},
};

use sievedb_filter::{FilterArena, RangeFilter, TableFilter};
use sievedb_sstable::{FilterHandle, FilterState, FilterUnusable, TableIdentity, TableSource};

use crate::table::{
    ChargedFilter, LiveTable, PrefixFilterPlace, TableMeta,
    filters::{reason, with_cause},
};

/// Prefix filter of a table that has none.
static NO_PREFIX: FilterState = FilterState::None;
/// Range filter of a table that has none.
static NO_RANGE: FilterState<RangeFilter> = FilterState::None;
/// Filters of a table that has none for scans.
static NO_FILTERS: ScanFilters = ScanFilters {
    prefix: None,
    range: None,
    prefix_place: None,
    range_place: None,
    prefix_file: None,
    range_file: None,
};

/// The filters of a table that scans ask. Never changed: others take their place, and these are
/// freed when the last scan that asks them is done.
#[derive(Debug, Default)]
pub(crate) struct ScanFilters {
    /// Knows the prefix of every user key that has one, by the extractor with the seed of
    /// `prefix_file`: ask [`prefix_of`](Self::prefix_of). `None` is [`FilterState::None`].
    prefix: Option<Arc<ChargedFilter>>,
    /// Answers for ranges of user keys. `None` is [`FilterState::None`].
    range: Option<Arc<ChargedFilter<RangeFilter>>>,
    /// Where the prefix filter lies, whatever its extractor is; `None` if there is none.
    pub(crate) prefix_place: Option<Arc<PrefixFilterPlace>>,
    /// Where the range filter lies; `None` if there is none.
    pub(crate) range_place: Option<crate::table::FilterPlace>,
    /// `None` if there is no prefix filter for the extractor that the keyspace has now, or it
    /// cannot be read.
    prefix_file: Option<Arc<StoredWhole>>,
    /// `None` if there is no range filter, or it cannot be read.
    range_file: Option<Arc<StoredWhole>>,
}

/// The present filters of a table that scans probe. Takes no memory for a table without such
/// filters.
#[derive(Debug)]
pub(crate) struct PresentScanFilters(pub(super) Option<Arc<ScanFilters>>);

impl Deref for PresentScanFilters {
    type Target = ScanFilters;

    fn deref(&self) -> &ScanFilters {
        self.0.as_deref().unwrap_or(&NO_FILTERS)
    }
}

/// A filter in a file, which is read whole or not at all.
#[derive(Debug)]
pub(crate) struct StoredWhole {
    source: Arc<dyn TableSource>,
    /// That of the table, with the hash seed of the filter.
    identity: TableIdentity,
    place: FilterHandle,
    /// The number of the file, if it is not the table's.
    own_file: Option<u64>,
    /// What it takes in memory, once that is known.
    memory_bytes: OnceLock<u64>,
}

/// A filter as it was found, or why its file cannot be read; `None` if there is none.
pub(crate) type FoundFile = Option<Result<StoredWhole, FilterUnusable>>;

/// Which of the filters that scans ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) prefix: bool,
    pub(crate) range: bool,
}

impl StoredWhole {
    /// The filter at `place` of `source`, which is the file `own_file`, or the table's for `None`.
    pub(crate) fn new(
        source: Arc<dyn TableSource>,
        identity: TableIdentity,
        place: FilterHandle,
        own_file: Option<u64>,
    ) -> Self {
        Self { source, identity, place, own_file, memory_bytes: OnceLock::new() }
    }

    /// What it takes in memory, or may take at most: before it was read once, only its length is
    /// known, to which a range filter adds the samples of its sequence.
    pub(crate) fn bytes(&self) -> u64 {
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

    /// Whether it is a good prefix filter. Reads it.
    pub(crate) fn check_prefix(&self) -> Result<(), FilterUnusable> {
        match self.load_prefix(&FilterArena::heap()) {
            FilterState::Unusable(reason) => Err(reason),
            FilterState::Resident(_) | FilterState::NotResident | FilterState::None => Ok(()),
        }
    }

    /// Whether it is a good range filter of the table `meta`. Reads it.
    pub(crate) fn check_range(&self, meta: &TableMeta) -> Result<(), FilterUnusable> {
        match self.load_range(meta, &FilterArena::heap()) {
            FilterState::Unusable(reason) => Err(reason),
            FilterState::Resident(_) | FilterState::NotResident | FilterState::None => Ok(()),
        }
    }

    fn load_prefix(&self, arena: &FilterArena) -> FilterState {
        let Self { source, identity, place, own_file, .. } = self;
        let state = match own_file {
            Some(id) => FilterState::load_file(&**source, identity, *id, *place, arena),
            None => FilterState::load(&**source, identity, Some(*place), arena),
        };
        self.note(&state, state.memory_bytes());
        state
    }

    fn load_range(&self, meta: &TableMeta, arena: &FilterArena) -> FilterState<RangeFilter> {
        let Self { source, identity, place, own_file, .. } = self;
        let (source, bounds) = (&**source, (&*meta.bounds.smallest, &*meta.bounds.largest));
        let state = match own_file {
            Some(id) => FilterState::load_range_file(source, identity, *id, *place, bounds, arena),
            None => FilterState::load_range(source, identity, Some(*place), bounds, arena),
        };
        self.note(&state, state.range_memory_bytes());
        state
    }
}

impl ScanFilters {
    /// Returns the filters that the metadata of `live` names. None of them is in memory yet.
    pub(crate) fn not_resident(live: &LiveTable, prefix: FoundFile, range: FoundFile) -> Self {
        let place = live.meta.prefix_filter.clone().map(Arc::new);
        let filters = Self::default().with_prefix_file(live, place, prefix);
        filters.with_range_file(live, live.meta.range_filter, range)
    }

    /// The same with the prefix filter at `place`, which is not in memory yet. `found` is `None` if
    /// the extractor of the keyspace is another one.
    pub(crate) fn with_prefix_file(
        &self,
        live: &LiveTable,
        place: Option<Arc<PrefixFilterPlace>>,
        found: FoundFile,
    ) -> Self {
        let (prefix_file, state) = not_resident(found);
        let prefix = state.map(|state| Arc::new(ChargedFilter::new(state, live.memory())));
        Self { prefix, prefix_place: place, prefix_file, ..self.copy() }
    }

    /// The same with the range filter at `place`, which is not in memory yet.
    pub(crate) fn with_range_file(
        &self,
        live: &LiveTable,
        place: Option<crate::table::FilterPlace>,
        found: FoundFile,
    ) -> Self {
        let (range_file, state) = not_resident(found);
        let range = state.map(|state| Arc::new(ChargedFilter::of_ranges(state, live.memory())));
        Self { range, range_place: place, range_file, ..self.copy() }
    }

    /// Returns whether the table has no such filter.
    pub(super) fn is_none(&self) -> bool {
        let Self { prefix, range, prefix_place, range_place, prefix_file, range_file } = self;
        let has_prefix = prefix.is_some() || prefix_place.is_some() || prefix_file.is_some();
        let has_range = range.is_some() || range_place.is_some() || range_file.is_some();
        !has_prefix && !has_range
    }

    /// Returns the prefix filter, whatever its extractor is.
    fn prefix(&self) -> &FilterState {
        self.prefix.as_deref().map_or(&NO_PREFIX, |prefix| prefix)
    }

    /// Returns the range filter.
    pub(crate) fn range(&self) -> &FilterState<RangeFilter> {
        self.range.as_deref().map_or(&NO_RANGE, |range| range)
    }

    /// The prefix filter, for an extractor whose hashes have this seed: to any other one this
    /// filter would say "no" about keys that the table has.
    pub(crate) fn prefix_of(&self, hash_seed: u64) -> PrefixAnswer<'_> {
        let is_other =
            self.prefix_file.as_ref().is_some_and(|it| it.identity.hash_seed != hash_seed);
        match self.prefix() {
            FilterState::Resident(_) | FilterState::NotResident if is_other => {
                PrefixAnswer::Unusable
            }
            FilterState::Resident(filter) => PrefixAnswer::Ask(filter),
            FilterState::NotResident => PrefixAnswer::None,
            FilterState::Unusable(_) => PrefixAnswer::Unusable,
            // There may be one of another extractor.
            FilterState::None if self.prefix_place.is_some() => PrefixAnswer::Unusable,
            FilterState::None => PrefixAnswer::None,
        }
    }

    /// Whether its prefix filter is ready for an extractor whose hashes have this seed, or there is
    /// none for `None`.
    pub(crate) fn is_for(&self, hash_seed: Option<u64>) -> bool {
        self.prefix_file.as_ref().map(|file| file.identity.hash_seed) == hash_seed
    }

    /// Whether the prefix filter is in memory.
    pub(crate) fn has_prefix(&self) -> bool {
        self.prefix().resident().is_some()
    }

    /// The same without those that are not wanted; `None` if none of these is in memory.
    pub(crate) fn without_unwanted(&self, wanted: Wanted) -> Option<Self> {
        let is_prefix_unwanted =
            |it: &&Arc<ChargedFilter>| !wanted.prefix && it.resident().is_some();
        let is_range_unwanted =
            |it: &&Arc<ChargedFilter<_>>| !wanted.range && it.resident().is_some();
        let prefix = self.prefix.as_ref().filter(is_prefix_unwanted);
        let prefix = prefix.map(|it| ChargedFilter::new(FilterState::NotResident, it.account()));
        let range = self.range.as_ref().filter(is_range_unwanted);
        let range =
            range.map(|it| ChargedFilter::of_ranges(FilterState::NotResident, it.account()));
        (prefix.is_some() || range.is_some()).then(|| self.with(prefix, range))
    }

    /// The same with those that are wanted, read from their files if `has_room` says so of their
    /// bytes, and whether there was room for all; no filters if none is to be read. What turns out
    /// to be damaged is not read again.
    pub(crate) fn loaded(
        &self,
        live: &LiveTable,
        wanted: Wanted,
        mut has_room: impl FnMut(u64) -> bool,
    ) -> (Option<Self>, bool) {
        let mut is_all = true;
        let mut may_load = |file: &StoredWhole| {
            let fits = has_room(file.bytes());
            is_all &= fits;
            fits
        };
        let memory = live.memory();
        let arena = memory.filter_arena();
        let prefix = self.absent_prefix().filter(|_| wanted.prefix).filter(|it| may_load(it));
        let prefix = prefix.map(|file| ChargedFilter::new(file.load_prefix(arena), memory));
        let range = self.absent_range().filter(|_| wanted.range).filter(|it| may_load(it));
        let range =
            range.map(|file| ChargedFilter::of_ranges(file.load_range(&live.meta, arena), memory));
        let is_changed = prefix.is_some() || range.is_some();
        (is_changed.then(|| self.with(prefix, range)), is_all)
    }

    fn with(
        &self,
        prefix: Option<ChargedFilter>,
        range: Option<ChargedFilter<RangeFilter>>,
    ) -> Self {
        let present = self.copy();
        Self {
            prefix: prefix.map(Arc::new).or(present.prefix),
            range: range.map(Arc::new).or(present.range),
            ..present
        }
    }

    /// Returns the same filters, which are shared.
    fn copy(&self) -> Self {
        let Self { prefix, range, prefix_place, range_place, prefix_file, range_file } = self;
        Self {
            prefix: prefix.clone(),
            range: range.clone(),
            prefix_place: prefix_place.clone(),
            range_place: *range_place,
            prefix_file: prefix_file.clone(),
            range_file: range_file.clone(),
        }
    }

    fn absent_prefix(&self) -> Option<&StoredWhole> {
        let is_absent = matches!(self.prefix(), FilterState::NotResident);
        self.prefix_file.as_deref().filter(|_| is_absent)
    }

    fn absent_range(&self) -> Option<&StoredWhole> {
        let is_absent = matches!(self.range(), FilterState::NotResident);
        self.range_file.as_deref().filter(|_| is_absent)
    }

    /// Whether all of them are in memory that can be.
    pub(crate) fn is_whole(&self) -> bool {
        self.absent_prefix().is_none() && self.absent_range().is_none()
    }

    /// Bytes of the prefix filter in memory, whether it is there now or not; 0 if there is none
    /// that can be used.
    pub(crate) fn prefix_bytes(&self) -> u64 {
        let stored = self.absent_prefix().map(StoredWhole::bytes);
        stored.unwrap_or(self.prefix().memory_bytes() as u64)
    }

    /// The same for the range filter.
    pub(crate) fn range_bytes(&self) -> u64 {
        let stored = self.absent_range().map(StoredWhole::bytes);
        stored.unwrap_or(self.range().range_memory_bytes() as u64)
    }

    /// Bytes of memory that they take now.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.prefix().memory_bytes() + self.range().range_memory_bytes()
    }

    /// Why one of them cannot be used.
    pub(crate) fn unusable(&self) -> Option<String> {
        reason(self.prefix()).or(reason(self.range())).map(with_cause)
    }

    /// Whether there is a prefix filter, of the present extractor, that cannot be used.
    pub(crate) fn is_prefix_unusable(&self) -> bool {
        reason(self.prefix()).is_some()
    }

    /// Whether there is a range filter that cannot be used.
    pub(crate) fn is_range_unusable(&self) -> bool {
        reason(self.range()).is_some()
    }
}

/// What a prefix filter can do for a scan.
#[derive(Debug)]
pub(crate) enum PrefixAnswer<'a> {
    Ask(&'a TableFilter),
    /// It is damaged, or of another extractor.
    Unusable,
    /// There is none, or memory has no room for it.
    None,
}

/// Returns the file and the state of a filter that is not in memory yet. Both are `None` if there
/// is no filter.
fn not_resident<F>(found: FoundFile) -> (Option<Arc<StoredWhole>>, Option<FilterState<F>>) {
    match found {
        Some(Ok(file)) => (Some(Arc::new(file)), Some(FilterState::NotResident)),
        Some(Err(reason)) => (None, Some(FilterState::Unusable(reason))),
        None => (None, None),
    }
}
