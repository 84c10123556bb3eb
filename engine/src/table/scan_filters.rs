//! Prefix filter and range filter of a table, for scans. Each is either fully resident or absent.
//!
//! Unlike point filters they are in no view, so a change requires no new view.

use std::{
    ops::Deref,
    sync::{Arc, OnceLock},
};

use sievedb_filter::{FilterArena, RangeFilter, TableFilter};
use sievedb_sstable::{FilterHandle, FilterState, FilterUnusable, TableIdentity, TableSource};

use crate::{
    FilterRole,
    error::is_shortage,
    table::{
        ChargedFilter, LiveTable, PrefixFilterPlace, TableMeta,
        filters::{reason, with_cause},
    },
};

/// State of a missing prefix filter.
static NO_PREFIX: FilterState = FilterState::None;
/// State of a missing range filter.
static NO_RANGE: FilterState<RangeFilter> = FilterState::None;
/// Filters of a table without filters for scans.
static NO_FILTERS: ScanFilters = ScanFilters {
    prefix: None,
    range: None,
    prefix_place: None,
    range_place: None,
    prefix_file: None,
    range_file: None,
};

/// The filters of a table for scans. Immutable: successors replace them, and the last scan that
/// uses them frees them.
#[derive(Debug, Default)]
pub(crate) struct ScanFilters {
    /// Contains the prefix of every user key that has one, by the extractor with the seed of
    /// `prefix_file`: probe by [`prefix_of`](Self::prefix_of). `None` is [`FilterState::None`].
    prefix: Option<Arc<ChargedFilter>>,
    /// `None` is [`FilterState::None`].
    range: Option<Arc<ChargedFilter<RangeFilter>>>,
    /// Location of the prefix filter of any extractor.
    pub(crate) prefix_place: Option<Arc<PrefixFilterPlace>>,
    pub(crate) range_place: Option<crate::table::FilterPlace>,
    /// `None` without a readable prefix filter for the current extractor of the keyspace.
    prefix_file: Option<Arc<StoredWhole>>,
    /// `None` without a readable range filter.
    range_file: Option<Arc<StoredWhole>>,
}

/// The current filters of a table for scans. Takes no memory for a table without such filters.
#[derive(Debug)]
pub(crate) struct PresentScanFilters(pub(super) Option<Arc<ScanFilters>>);

impl Deref for PresentScanFilters {
    type Target = ScanFilters;

    fn deref(&self) -> &ScanFilters {
        self.0.as_deref().unwrap_or(&NO_FILTERS)
    }
}

/// A filter in a file, read whole.
#[derive(Debug)]
pub(crate) struct StoredWhole {
    source: Arc<dyn TableSource>,
    /// Identity of the table, with the hash seed of the filter.
    identity: TableIdentity,
    place: FilterHandle,
    /// Id of the file, unless it is the table's.
    own_file: Option<u64>,
    /// Bytes in memory, known once the filter was loaded.
    memory_bytes: OnceLock<u64>,
}

/// A filter, or the reason why its file cannot be read; `None` if there is none.
pub(crate) type FoundFile = Option<Result<StoredWhole, FilterUnusable>>;

/// A set of filters for scans.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ScanRoles {
    pub(crate) prefix: bool,
    pub(crate) range: bool,
}

impl ScanRoles {
    pub(crate) const ALL: Self = Self { prefix: true, range: true };
    pub(crate) const NONE: Self = Self { prefix: false, range: false };

    pub(crate) fn only(role: FilterRole) -> Self {
        Self { prefix: role == FilterRole::Prefix, range: role == FilterRole::Range }
    }
}

impl StoredWhole {
    /// Creates a filter at `place` of `source`: the file `own_file`, or the table's for `None`.
    pub(crate) fn new(
        source: Arc<dyn TableSource>,
        identity: TableIdentity,
        place: FilterHandle,
        own_file: Option<u64>,
    ) -> Self {
        Self { source, identity, place, own_file, memory_bytes: OnceLock::new() }
    }

    /// Returns its bytes in memory, or an upper bound before it was first loaded: its length, and
    /// the samples that a range filter adds.
    pub(crate) fn bytes(&self) -> u64 {
        /// Alignment of a prefix filter.
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

    /// Reads and verifies a prefix filter.
    pub(crate) fn check_prefix(&self) -> Result<(), FilterUnusable> {
        match self.load_prefix(&FilterArena::heap()) {
            FilterState::Unusable(reason) => Err(reason),
            FilterState::Resident(_) | FilterState::NotResident | FilterState::None => Ok(()),
        }
    }

    /// Reads and verifies the range filter of the table `meta`.
    pub(crate) fn check_range(&self, meta: &TableMeta) -> Result<(), FilterUnusable> {
        match self.load_range(meta, &FilterArena::heap()) {
            FilterState::Unusable(reason) => Err(reason),
            FilterState::Resident(_) | FilterState::NotResident | FilterState::None => Ok(()),
        }
    }

    fn load_prefix(&self, arena: &FilterArena) -> FilterState {
        let Self { source, identity, place, own_file, .. } = self;
        let state = FilterState::load(&**source, identity, *own_file, *place, arena);
        self.note(&state, state.memory_bytes());
        state
    }

    fn load_range(&self, meta: &TableMeta, arena: &FilterArena) -> FilterState<RangeFilter> {
        let Self { source, identity, place, own_file, .. } = self;
        let bounds = (&*meta.bounds.smallest, &*meta.bounds.largest);
        let state = FilterState::load_range(&**source, identity, *own_file, *place, bounds, arena);
        self.note(&state, state.range_memory_bytes());
        state
    }
}

impl ScanFilters {
    /// Returns the filters that the metadata of `live` names. None of them is resident yet.
    pub(crate) fn not_resident(live: &LiveTable, prefix: FoundFile, range: FoundFile) -> Self {
        let place = live.meta.prefix_filter.clone().map(Arc::new);
        let filters = Self::default().with_prefix_file(live, place, prefix);
        filters.with_range_file(live, live.meta.range_filter, range)
    }

    /// Returns the same filters with the prefix filter at `place`, which is not resident yet.
    /// `found` is `None` if it has another extractor than the keyspace.
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

    /// Returns the same filters with the range filter at `place`, which is not resident yet.
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

    /// Returns `true` if the table has no such filter.
    pub(super) fn is_none(&self) -> bool {
        let Self { prefix, range, prefix_place, range_place, prefix_file, range_file } = self;
        let has_prefix = prefix.is_some() || prefix_place.is_some() || prefix_file.is_some();
        let has_range = range.is_some() || range_place.is_some() || range_file.is_some();
        !has_prefix && !has_range
    }

    /// Returns the prefix filter of any extractor.
    fn prefix(&self) -> &FilterState {
        self.prefix.as_deref().map_or(&NO_PREFIX, |prefix| prefix)
    }

    /// Returns the range filter.
    pub(crate) fn range(&self) -> &FilterState<RangeFilter> {
        self.range.as_deref().map_or(&NO_RANGE, |range| range)
    }

    /// Returns the prefix filter for an extractor whose hashes have this seed. For another
    /// extractor the filter would reject present keys.
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
            // There may be a filter of another extractor.
            FilterState::None if self.prefix_place.is_some() => PrefixAnswer::Unusable,
            FilterState::None => PrefixAnswer::None,
        }
    }

    /// Returns `true` if the prefix filter is for an extractor whose hashes have this seed or, for
    /// `None`, if there is no prefix filter.
    pub(crate) fn is_for(&self, hash_seed: Option<u64>) -> bool {
        self.prefix_file.as_ref().map(|file| file.identity.hash_seed) == hash_seed
    }

    /// Returns `true` if the prefix filter is resident.
    pub(crate) fn has_prefix(&self) -> bool {
        self.prefix().resident().is_some()
    }

    /// Returns the same filters with only `kept` resident; `None` if no other filter is.
    pub(crate) fn without_others(&self, kept: ScanRoles) -> Option<Self> {
        let drops_prefix = |it: &&Arc<ChargedFilter>| !kept.prefix && it.resident().is_some();
        let drops_range = |it: &&Arc<ChargedFilter<_>>| !kept.range && it.resident().is_some();
        let prefix = self.prefix.as_ref().filter(drops_prefix);
        let prefix = prefix.map(|it| ChargedFilter::new(FilterState::NotResident, it.account()));
        let range = self.range.as_ref().filter(drops_range);
        let range =
            range.map(|it| ChargedFilter::of_ranges(FilterState::NotResident, it.account()));
        (prefix.is_some() || range.is_some()).then(|| self.with(prefix, range))
    }

    /// Returns the same filters with `roles` loaded, as far as `has_room` for their bytes; `None`
    /// if none was read. Also returns `true` unless one had no room, or could not be read for a
    /// [shortage](is_shortage), which is no damage. A damaged filter is not read again.
    pub(crate) fn loaded(
        &self,
        live: &LiveTable,
        roles: ScanRoles,
        mut has_room: impl FnMut(u64) -> bool,
    ) -> (Option<Self>, bool) {
        let mut may_load = |file: &&StoredWhole| has_room(file.bytes());
        let memory = live.memory();
        let arena = memory.filter_arena();
        let absent_prefix = self.absent_prefix().filter(|_| roles.prefix);
        let prefix = absent_prefix.filter(&mut may_load).map(|file| file.load_prefix(arena));
        let prefix = prefix.filter(|state| !lacks_means(state));
        let prefix = prefix.map(|state| ChargedFilter::new(state, memory));
        let absent_range = self.absent_range().filter(|_| roles.range);
        let range = absent_range.filter(may_load).map(|file| file.load_range(&live.meta, arena));
        let range = range.filter(|state| !lacks_means(state));
        let range = range.map(|state| ChargedFilter::of_ranges(state, memory));
        let is_all = prefix.is_some() >= absent_prefix.is_some()
            && range.is_some() >= absent_range.is_some();
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

    /// Returns a copy that shares the filters.
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

    /// Returns `true` if all usable filters are resident.
    pub(crate) fn is_whole(&self) -> bool {
        self.absent_prefix().is_none() && self.absent_range().is_none()
    }

    /// Returns the bytes in memory of `roles`, loaded or not, without unusable filters.
    pub(crate) fn bytes_of(&self, roles: ScanRoles) -> u64 {
        let prefix = if roles.prefix { self.prefix_bytes() } else { 0 };
        prefix + if roles.range { self.range_bytes() } else { 0 }
    }

    /// Returns the bytes in memory of the prefix filter, loaded or not; 0 if it is unusable.
    pub(crate) fn prefix_bytes(&self) -> u64 {
        let stored = self.absent_prefix().map(StoredWhole::bytes);
        stored.unwrap_or(self.prefix().memory_bytes() as u64)
    }

    /// Returns the bytes in memory of the range filter, loaded or not; 0 if it is unusable.
    pub(crate) fn range_bytes(&self) -> u64 {
        let stored = self.absent_range().map(StoredWhole::bytes);
        stored.unwrap_or(self.range().range_memory_bytes() as u64)
    }

    /// Returns the resident bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.prefix().memory_bytes() + self.range().range_memory_bytes()
    }

    /// Returns the reason why one of the filters is unusable, if any.
    pub(crate) fn unusable(&self) -> Option<String> {
        reason(self.prefix()).or(reason(self.range())).map(with_cause)
    }

    /// Returns `true` if the prefix filter of the current extractor is unusable.
    pub(crate) fn is_prefix_unusable(&self) -> bool {
        reason(self.prefix()).is_some()
    }

    /// Returns `true` if the range filter is unusable.
    pub(crate) fn is_range_unusable(&self) -> bool {
        reason(self.range()).is_some()
    }
}

/// Usability of a prefix filter for a scan.
#[derive(Debug)]
pub(crate) enum PrefixAnswer<'a> {
    Ask(&'a TableFilter),
    /// The filter is damaged, or of another extractor.
    Unusable,
    /// There is no filter, or memory has no room for it.
    None,
}

/// Returns `true` if the filter could not be read for a [shortage](is_shortage).
fn lacks_means<F>(filter: &FilterState<F>) -> bool {
    matches!(reason(filter), Some(FilterUnusable::Io(error)) if is_shortage(error))
}

/// Returns the file and the state of a filter that is not resident yet. Both are `None` if there is
/// no filter.
fn not_resident<F>(found: FoundFile) -> (Option<Arc<StoredWhole>>, Option<FilterState<F>>) {
    match found {
        Some(Ok(file)) => (Some(Arc::new(file)), Some(FilterState::NotResident)),
        Some(Err(reason)) => (None, Some(FilterState::Unusable(reason))),
        None => (None, None),
    }
}
