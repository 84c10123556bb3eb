//! A filter in its file, which can be loaded whole or in part.

use std::{ops::Range, slice, sync::Arc};

use bytes::Bytes;
use sievedb_filter::{
    Expected, FilterArena, FilterKind, RangeFilter, TableFilter,
    filter_block::{PIECE_BYTES, TRAILER_BYTES_MAX, Trailer},
};

use crate::{
    filter_file::check_header,
    filter_state::{FilterHandle, FilterUnusable},
    metadata::TableIdentity,
    source::TableSource,
    tail::TableTail,
};

/// A filter in its file. Its trailer is in memory.
#[derive(Debug)]
pub struct StoredFilter {
    source: Arc<dyn TableSource>,
    handle: FilterHandle,
    trailer: Trailer,
    arena: FilterArena,
}

impl StoredFilter {
    /// Reads the trailer of the filter at `handle` of `source`, for the table `identity`. Reads at
    /// most [`TRAILER_BYTES_MAX`] bytes. Later loads allocate from `arena`.
    ///
    /// # Errors
    ///
    /// [`FilterUnusable`]. Damaged columns are detected only when they are loaded.
    pub fn open(
        source: Arc<dyn TableSource>,
        identity: &TableIdentity,
        handle: FilterHandle,
        arena: &FilterArena,
    ) -> Result<Self, FilterUnusable> {
        let trailer = read_trailer(&*source, identity, handle)?;
        Ok(Self { source, handle, trailer, arena: arena.clone() })
    }

    /// Opens a filter of a table whose tail is in memory. Reads nothing if the tail includes the
    /// trailer.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    pub fn open_with_tail(
        tail: &TableTail,
        identity: &TableIdentity,
        handle: FilterHandle,
        arena: &FilterArena,
    ) -> Result<Self, FilterUnusable> {
        let trailer = read_trailer(tail, identity, handle)?;
        Ok(Self { source: Arc::clone(tail.source()), handle, trailer, arena: arena.clone() })
    }

    /// Opens the filter file `file_id`.
    ///
    /// # Errors
    ///
    /// [`FilterUnusable`].
    pub fn open_file(
        source: Arc<dyn TableSource>,
        identity: &TableIdentity,
        file_id: u64,
        handle: FilterHandle,
        arena: &FilterArena,
    ) -> Result<Self, FilterUnusable> {
        check_header(&*source, identity.store_id, file_id)?;
        Self::open(source, identity, handle, arena)
    }

    /// Loads the first `columns` columns of a ribbon filter, or all if it has fewer. Loads any
    /// other filter whole. Reads only the column groups needed, in pieces of [`PIECE_BYTES`].
    ///
    /// # Errors
    ///
    /// [`FilterUnusable`].
    pub fn load(&self, columns: f64) -> Result<TableFilter, FilterUnusable> {
        load(&*self.source, self.handle, &self.trailer, columns, &self.arena)
    }

    /// Reads and verifies the whole filter, in memory that is not charged to the filter budget.
    ///
    /// # Errors
    ///
    /// [`FilterUnusable`].
    pub fn check(&self) -> Result<(), FilterUnusable> {
        let Self { source, handle, trailer, .. } = self;
        load(&**source, *handle, trailer, f64::INFINITY, &FilterArena::heap()).map(drop)
    }

    /// Returns the kind of the filter.
    #[must_use]
    pub fn kind(&self) -> FilterKind {
        self.trailer.kind()
    }

    /// Returns the average number of columns of a ribbon filter; `None` for other kinds, which are
    /// loaded whole.
    #[must_use]
    pub fn columns(&self) -> Option<f64> {
        self.trailer.columns()
    }

    /// Returns the memory of the filter that [`load`](Self::load) returns, in bytes.
    #[must_use]
    pub fn memory_bytes(&self, columns: f64) -> u64 {
        self.trailer.memory_bytes(columns)
    }
}

/// Reads the trailer of the filter at `handle` of `source`, for the table `identity`.
pub(crate) fn read_trailer(
    source: &dyn TableSource,
    identity: &TableIdentity,
    handle: FilterHandle,
) -> Result<Trailer, FilterUnusable> {
    let length = handle.length_in(source)?;
    let tail_bytes = length.min(TRAILER_BYTES_MAX);
    let from = handle.offset + (length - tail_bytes) as u64;
    let tail = source.read_at(from, tail_bytes).map_err(FilterUnusable::Io)?;
    handle.check(&tail)?;
    let TableIdentity { hash_seed, salt, .. } = *identity;
    Ok(Trailer::read(&tail, handle.bytes, Expected { hash_seed, salt })?)
}

/// Loads the filter at `handle` of `source` as [`StoredFilter::load`].
pub(crate) fn load(
    source: &dyn TableSource,
    handle: FilterHandle,
    trailer: &Trailer,
    columns: f64,
    arena: &FilterArena,
) -> Result<TableFilter, FilterUnusable> {
    trailer.load_in(columns, arena, pieces(source, handle, trailer.front_bytes(columns)))
}

/// Loads the range filter at `handle` of `source`.
pub(crate) fn load_range(
    source: &dyn TableSource,
    handle: FilterHandle,
    trailer: &Trailer,
    arena: &FilterArena,
) -> Result<RangeFilter, FilterUnusable> {
    trailer.load_range_in(arena, pieces(source, handle, handle.bytes))
}

/// Returns a function that reads a piece of the block at `handle`. Advises the source of the first
/// `front_bytes` bytes.
fn pieces(
    source: &dyn TableSource,
    handle: FilterHandle,
    front_bytes: u64,
) -> impl FnMut(Range<u64>) -> Result<Bytes, FilterUnusable> {
    // Cannot overflow: `read_trailer` checked the location.
    if front_bytes > PIECE_BYTES && !source.is_mapped() {
        let front = handle.offset..handle.offset + front_bytes;
        source.advise_read(slice::from_ref(&front));
    }
    move |piece| {
        let bytes = (piece.end - piece.start) as usize; // At most `PIECE_BYTES`.
        source.read_at(handle.offset + piece.start, bytes).map_err(FilterUnusable::Io)
    }
}
