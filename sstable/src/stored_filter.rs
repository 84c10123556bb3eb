//! The filter of a table as its file has it, to be brought into memory whole or in part.

use std::{ops::Range, slice, sync::Arc};

use bytes::Bytes;
use sievedb_filter::{
    Expected, FilterArena, FilterKind, RangeFilter, TableFilter,
    filter_block::{PIECE_BYTES, TRAILER_BYTES_MAX, Trailer},
};

use crate::{
    filter_file::check_header,
    filter_state::{FilterPlace, FilterUnusable},
    identity::TableIdentity,
    source::TableSource,
    tail::TableTail,
};

/// The filter of a table as its file has it: what it is, and what any part of it takes in memory.
#[derive(Debug)]
pub struct StoredFilter {
    source: Arc<dyn TableSource>,
    place: FilterPlace,
    trailer: Trailer,
    arena: FilterArena,
}

impl StoredFilter {
    /// Reads the trailer of the filter at `place` of `source`, for the table with this identity: at
    /// most [`TRAILER_BYTES_MAX`] bytes. What is loaded gets its memory from `arena`.
    ///
    /// # Errors
    ///
    /// [`FilterUnusable`]. Damage of the columns is not found here, but when they are loaded.
    pub fn open(
        source: Arc<dyn TableSource>,
        identity: &TableIdentity,
        place: FilterPlace,
        arena: &FilterArena,
    ) -> Result<Self, FilterUnusable> {
        let trailer = read_trailer(&*source, identity, place)?;
        Ok(Self { source, place, trailer, arena: arena.clone() })
    }

    /// The same of a table whose end was read already: no read at all if the trailer lies in it.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    pub fn open_with_tail(
        end: &TableTail,
        identity: &TableIdentity,
        place: FilterPlace,
        arena: &FilterArena,
    ) -> Result<Self, FilterUnusable> {
        let trailer = read_trailer(end, identity, place)?;
        Ok(Self { source: Arc::clone(end.source()), place, trailer, arena: arena.clone() })
    }

    /// The same for the file `file_id` that holds nothing but this filter.
    ///
    /// # Errors
    ///
    /// [`FilterUnusable`].
    pub fn open_file(
        source: Arc<dyn TableSource>,
        identity: &TableIdentity,
        file_id: u64,
        place: FilterPlace,
        arena: &FilterArena,
    ) -> Result<Self, FilterUnusable> {
        check_header(&*source, identity.store_id, file_id)?;
        Self::open(source, identity, place, arena)
    }

    /// Reads the first `columns` columns of a ribbon, all if there are not as many, and any other
    /// filter whole. Column groups that are not needed are not read. Beside the filter no more of
    /// the file is in memory than [`PIECE_BYTES`].
    ///
    /// # Errors
    ///
    /// [`FilterUnusable`].
    pub fn load(&self, columns: f64) -> Result<TableFilter, FilterUnusable> {
        load(&*self.source, self.place, &self.trailer, columns, &self.arena)
    }

    /// Whether all of it is good. Reads it, into memory that nobody counts with the filters that
    /// are asked.
    ///
    /// # Errors
    ///
    /// [`FilterUnusable`].
    pub fn check(&self) -> Result<(), FilterUnusable> {
        let Self { source, place, trailer, .. } = self;
        load(&**source, *place, trailer, f64::INFINITY, &FilterArena::heap()).map(drop)
    }

    /// What the filter is.
    #[must_use]
    pub fn kind(&self) -> FilterKind {
        self.trailer.kind()
    }

    /// Columns of a ribbon, on average over its slots; `None` for a filter that is loaded whole or
    /// not at all.
    #[must_use]
    pub fn columns(&self) -> Option<f64> {
        self.trailer.columns()
    }

    /// Bytes in memory of what [`load`](Self::load) makes of so many columns.
    #[must_use]
    pub fn memory_bytes(&self, columns: f64) -> u64 {
        self.trailer.memory_bytes(columns)
    }
}

/// Reads the trailer of the filter at `place` of `source`, for the table with this identity.
pub(crate) fn read_trailer(
    source: &dyn TableSource,
    identity: &TableIdentity,
    place: FilterPlace,
) -> Result<Trailer, FilterUnusable> {
    let length = place.length_in(source)?;
    let tail_bytes = length.min(TRAILER_BYTES_MAX);
    let from = place.offset + (length - tail_bytes) as u64;
    let tail = source.read_at(from, tail_bytes).map_err(FilterUnusable::Io)?;
    place.check(&tail)?;
    let TableIdentity { hash_seed, salt, .. } = *identity;
    Ok(Trailer::read(&tail, place.bytes, Expected { hash_seed, salt })?)
}

/// Reads the filter at `place` of `source`, which has this trailer, as [`StoredFilter::load`].
pub(crate) fn load(
    source: &dyn TableSource,
    place: FilterPlace,
    trailer: &Trailer,
    columns: f64,
    arena: &FilterArena,
) -> Result<TableFilter, FilterUnusable> {
    trailer.load_in(columns, arena, pieces(source, place, trailer.front_bytes(columns)))
}

/// The same of a range filter.
pub(crate) fn load_range(
    source: &dyn TableSource,
    place: FilterPlace,
    trailer: &Trailer,
    arena: &FilterArena,
) -> Result<RangeFilter, FilterUnusable> {
    trailer.load_range_in(arena, pieces(source, place, place.bytes))
}

/// What reads a piece of the block at `place`, the first `front_bytes` of which are about to be
/// read.
fn pieces(
    source: &dyn TableSource,
    place: FilterPlace,
    front_bytes: u64,
) -> impl FnMut(Range<u64>) -> Result<Bytes, FilterUnusable> {
    // The block was held against the file before its trailer was read: nothing overflows.
    if front_bytes > PIECE_BYTES && !source.is_mapped() {
        let front = place.offset..place.offset + front_bytes;
        source.advise_read(slice::from_ref(&front));
    }
    move |piece| {
        let bytes = (piece.end - piece.start) as usize; // Those of a piece at most.
        source.read_at(place.offset + piece.start, bytes).map_err(FilterUnusable::Io)
    }
}
