//! The in-memory filter of a table that lookups probe.

use std::{
    error::Error as _,
    ops::Deref,
    sync::{Arc, OnceLock},
};

use sievedb_filter::{
    FilterKind, RangeFilter, TableFilter,
    many::{self, Probe},
};
use sievedb_sstable::{FilterState, FilterUnusable, StoredFilter};

use crate::{
    error::is_shortage,
    memory::{Charge, MemoryAccount, MemoryUse},
    table::FilterPlace,
};

/// Filters of a table in memory, for lookups. Immutable: successors replace them, and the last
/// lookup that began with them frees them.
#[derive(Debug)]
pub(crate) struct TableFilters {
    /// Contains the user key of every entry.
    pub(crate) point: ChargedFilter,
    /// Location of the point filter, as in the manifest; `None` if there is none.
    pub(crate) place: Option<FilterPlace>,
    /// The point filter in its file; `None` if there is none, or its trailer is damaged.
    stored: Option<Arc<Stored>>,
}

/// A filter in its file.
#[derive(Debug)]
struct Stored {
    filter: StoredFilter,
    /// Reason for the first failed read of its columns. Reads are not retried.
    damage: OnceLock<Box<str>>,
}

/// A filter with accounted memory, for its lifetime: by its arena, and by a charge for the part
/// outside of the arena.
#[derive(Debug)]
pub(crate) struct ChargedFilter<F = TableFilter> {
    state: FilterState<F>,
    charge: Charge,
    /// Expected false-positive rate of a point filter, from 0 to 1; `None` if it is not resident.
    /// Stored, because each probe counts it and some filters compute it.
    pub(crate) expected_fpr: Option<f64>,
}

impl ChargedFilter {
    pub(crate) fn new(state: FilterState, memory: &Arc<MemoryAccount>) -> Self {
        let beside_bytes = |it: &TableFilter| it.memory_bytes() - it.arena_bytes();
        let charge = memory.charge(MemoryUse::Filters, state.resident().map_or(0, beside_bytes));
        let expected_fpr = state.resident().map(TableFilter::expected_fpr);
        Self { state, charge, expected_fpr }
    }
}

impl ChargedFilter<RangeFilter> {
    pub(crate) fn of_ranges(state: FilterState<RangeFilter>, memory: &Arc<MemoryAccount>) -> Self {
        let beside_bytes = |it: &RangeFilter| it.memory_bytes() - it.arena_bytes();
        let bytes = state.resident().map_or(0, beside_bytes);
        let charge = memory.charge(MemoryUse::Filters, bytes);
        Self { state, charge, expected_fpr: None }
    }
}

impl<F> ChargedFilter<F> {
    /// Returns the account that the filter is charged to.
    pub(super) fn account(&self) -> &Arc<MemoryAccount> {
        self.charge.account()
    }
}

impl<F> Deref for ChargedFilter<F> {
    type Target = FilterState<F>;

    fn deref(&self) -> &FilterState<F> {
        &self.state
    }
}

impl TableFilters {
    /// Creates the filters of a table whose point filter is not resident yet.
    pub(crate) fn point_not_resident(
        place: Option<FilterPlace>,
        stored: Result<Option<StoredFilter>, FilterUnusable>,
        memory: &Arc<MemoryAccount>,
    ) -> Self {
        let (stored, state) = match stored {
            Ok(Some(filter)) => {
                let stored = Stored { filter, damage: OnceLock::new() };
                (Some(Arc::new(stored)), FilterState::NotResident)
            }
            Ok(None) => (None, FilterState::None),
            Err(reason) => (None, FilterState::Unusable(reason)),
        };
        let point = ChargedFilter::new(state, memory);
        Self { point, place, stored }
    }

    /// Returns the same filters with another resident point filter.
    fn with_point(&self, point: FilterState) -> Self {
        let point = ChargedFilter::new(point, self.point.account());
        Self { point, place: self.place, stored: self.stored.clone() }
    }

    /// Returns the same filters with the point filter of a file at `place`, which is not resident
    /// yet.
    pub(crate) fn rebuilt(&self, place: FilterPlace, filter: StoredFilter) -> Self {
        let stored = Some(Arc::new(Stored { filter, damage: OnceLock::new() }));
        Self { place: Some(place), stored, ..self.dropped() }
    }

    /// Returns the same filters without a point filter.
    pub(crate) fn without_point(&self) -> Self {
        Self { place: None, stored: None, ..self.with_point(FilterState::None) }
    }

    /// Returns the same filters without a resident point filter.
    pub(crate) fn dropped(&self) -> Self {
        self.with_point(FilterState::NotResident)
    }

    /// Returns the same filters with `columns` columns of the point filter, copied from the
    /// resident ones. Returns `None` if no ribbon is resident.
    pub(crate) fn shrunk(&self, columns: f64) -> Option<Self> {
        let Some(TableFilter::Ribbon(ribbon)) = self.point.resident() else { return None };
        Some(self.with_point(FilterState::Resident(ribbon.shrunk_to(columns).into())))
    }

    /// Returns the same filters with `columns` columns of the point filter, or all of another
    /// filter, read from its file.
    ///
    /// If that fails, [`damage`](Self::damage) reports the reason from then on, and reads are not
    /// retried. A resident filter then stays, and the result is `None`. So it is after a
    /// [shortage](is_shortage), which is no damage.
    pub(crate) fn loaded(&self, columns: f64) -> Option<Self> {
        let stored = self.stored.as_ref().filter(|stored| stored.damage.get().is_none())?;
        match stored.filter.load(columns) {
            Ok(filter) => Some(self.with_point(FilterState::Resident(filter))),
            Err(FilterUnusable::Io(error)) if is_shortage(&error) => None,
            Err(reason) => {
                let _ = stored.damage.set(reason.to_string().into());
                // The resident filter was verified and stays.
                let is_resident = self.point.resident().is_some();
                (!is_resident).then(|| self.with_point(FilterState::Unusable(reason)))
            }
        }
    }

    /// Returns the point filter in its file, unless a read of it has failed.
    fn stored(&self) -> Option<&StoredFilter> {
        let stored = self.stored.as_ref().filter(|stored| stored.damage.get().is_none());
        stored.map(|stored| &stored.filter)
    }

    /// Returns the kind and, for a ribbon, the maximum number of columns that can be resident.
    pub(crate) fn available(&self) -> Option<(FilterKind, Option<f64>)> {
        match (self.stored(), self.point.resident()) {
            (Some(stored), _) => Some((stored.kind(), stored.columns())),
            (None, Some(filter)) => Some((filter.kind(), self.resident_columns())),
            (None, None) => None,
        }
    }

    /// Returns `true` if the whole available point filter is resident.
    pub(crate) fn is_whole(&self) -> bool {
        self.memory_bytes_at(f64::INFINITY) <= self.point.memory_bytes() as u64
    }

    /// Returns the resident columns of a ribbon.
    pub(crate) fn resident_columns(&self) -> Option<f64> {
        match self.point.resident()? {
            TableFilter::Ribbon(ribbon) => Some(ribbon.columns()),
            _ => None,
        }
    }

    /// Returns the memory in bytes of `columns` columns of the point filter, or of all of another
    /// filter.
    pub(crate) fn memory_bytes_at(&self, columns: f64) -> u64 {
        match (self.stored(), self.point.resident()) {
            (Some(stored), _) => stored.memory_bytes(columns),
            (None, Some(TableFilter::Ribbon(ribbon))) => ribbon.memory_bytes_at(columns) as u64,
            (None, Some(filter)) => filter.memory_bytes() as u64,
            (None, None) => 0,
        }
    }

    /// Prefetches the cache lines of the point filter that a probe will read.
    #[inline]
    pub(crate) fn prefetch(&self, probe: Probe) {
        if let FilterState::Resident(filter) = &*self.point {
            many::prefetch(filter, probe);
        }
    }

    /// Returns the reason why the point filter, or a part of it, is unusable.
    pub(crate) fn unusable(&self) -> Option<String> {
        let reason = reason(&self.point).map(with_cause);
        reason.or_else(|| self.damage().map(str::to_owned))
    }

    /// Returns `true` if the point filter, or a part of it, is unusable.
    pub(crate) fn is_point_unusable(&self) -> bool {
        matches!(*self.point, FilterState::Unusable(_)) || self.damage().is_some()
    }

    /// Returns the reason why columns of the point filter could not be read from its file, if any.
    pub(crate) fn damage(&self) -> Option<&str> {
        self.stored.as_ref().and_then(|stored| stored.damage.get()).map(|reason| &**reason)
    }

    /// Returns the bytes of memory of the point filter.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.point.memory_bytes()
    }
}

/// Returns the reason why a filter is unusable, if it is.
pub(crate) fn reason<F>(filter: &FilterState<F>) -> Option<&FilterUnusable> {
    match filter {
        FilterState::Unusable(reason) => Some(reason),
        FilterState::Resident(_) | FilterState::NotResident | FilterState::None => None,
    }
}

/// Formats the reason why a filter is unusable, with the cause.
pub(crate) fn with_cause(reason: &FilterUnusable) -> String {
    reason.source().map_or_else(|| reason.to_string(), |cause| format!("{reason}: {cause}"))
}
