//! Reads a table that no manifest describes.

use std::sync::Arc;

use sievedb_format::{Corruption, file_header::HEADER_BYTES};

use crate::{
    block::zstd::check_compression,
    block_reader::BlockReader,
    error::ReadError,
    footer::{BlockKind, Footer},
    handle::BlockHandle,
    properties::TableProperties,
    source::TableSource,
};

/// Identity and properties of a table, read from its file alone.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct TableMetadata {
    /// Random number of the store, unchecked.
    pub store_id: u128,
    /// Random number that every block checksum of the table covers.
    pub salt: u64,
    /// The properties, with the [origin](TableProperties::origin).
    pub properties: TableProperties,
}

impl TableMetadata {
    /// Reads footer and properties of the table `file_id`: a few reads at the end of the file.
    ///
    /// # Errors
    ///
    /// [`ReadError`] if the source fails, if footer or properties are damaged or need a later
    /// release or another build, or if the file is not the table `file_id`.
    pub fn read(source: &Arc<dyn TableSource>, file_id: u64) -> Result<Self, ReadError> {
        let footer = Footer::read(&**source)?;
        let Footer { store_id, salt, list_offset, .. } = footer;
        if footer.file_id != file_id {
            let (what, expected, found) = ("file id", file_id, footer.file_id);
            let source = Corruption::Mismatch { what, expected, found };
            return Err(ReadError::Corrupt { offset: list_offset, source });
        }
        let corrupt = ReadError::corrupt(list_offset);
        let missing = Corruption::Missing { what: "block of properties" };
        let place = footer.block(BlockKind::Properties).ok_or(missing).map_err(&corrupt)?;
        let handle = BlockHandle::new(place.offset, place.bytes).map_err(&corrupt)?;
        let blocks = BlockReader::new(Arc::clone(source), salt, HEADER_BYTES as u64..list_offset);
        let properties = TableProperties::decode(&blocks.read_content(handle)?)
            .map_err(ReadError::corrupt(handle.offset))?;
        check_compression(properties.compression).map_err(ReadError::corrupt(handle.offset))?;
        Ok(Self { store_id, salt, properties })
    }
}
