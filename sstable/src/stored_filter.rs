//! The filter of a table as its file has it, to be brought into memory whole or in part.

use std::sync::Arc;

use sievedb_filter::{
    Expected, FilterArena, FilterKind, TableFilter,
    filter_block::{TRAILER_BYTES_MAX, Trailer},
};

use crate::{
    end::TableEnd,
    filter_file::check_header,
    filter_state::{FilterPlace, FilterUnusable},
    identity::TableIdentity,
    source::TableSource,
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
    /// Reads the trailer of the filter at `place` of `source`, for the table with this identity: at most
    /// [`TRAILER_BYTES_MAX`] bytes. What is loaded gets its memory from `arena`.
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
    pub fn open_with_end(
        end: &TableEnd,
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
    /// filter whole. Column groups that are not needed are not read.
    ///
    /// # Errors
    ///
    /// [`FilterUnusable`].
    pub fn load(&self, columns: f64) -> Result<TableFilter, FilterUnusable> {
        // Held against the file when it was opened.
        let front_bytes = self.trailer.front_bytes(columns) as usize;
        let front = self.source.read_at(self.place.offset, front_bytes);
        let front = front.map_err(FilterUnusable::Io)?;
        self.trailer.decode_in(&front, columns, &self.arena).map_err(FilterUnusable::Refused)
    }

    /// What the filter is.
    #[must_use]
    pub fn kind(&self) -> FilterKind {
        self.trailer.kind()
    }

    /// Columns of a ribbon, on average over its slots; `None` for a filter that is loaded whole or not
    /// at all.
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

fn read_trailer(
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
    let trailer = Trailer::read(&tail, place.bytes, Expected { hash_seed, salt });
    trailer.map_err(FilterUnusable::Refused)
}
