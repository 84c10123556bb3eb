//! The blocks of a table that are in memory while it is open.

use std::{ops::Range, sync::Arc};

use sievedb_format::{Corruption, file_header::HEADER_BYTES, range_tombstone::RangeTombstones};

use crate::{
    block::{
        Block, BlockRole,
        zstd::{self, Dictionary},
    },
    block_reader::BlockReader,
    error::ReadError,
    footer::{BlockKind, Footer, FooterBlock},
    handle::BlockHandle,
    properties::TableProperties,
    source::TableSource,
};

/// What lies between header and footer, but for data and filters.
pub(crate) struct Contents {
    pub(crate) blocks: BlockReader,
    pub(crate) properties: TableProperties,
    pub(crate) top_index: Block,
    pub(crate) range_tombstones: RangeTombstones,
}

impl Contents {
    pub(crate) fn read(source: Arc<dyn TableSource>, footer: &Footer) -> Result<Self, ReadError> {
        let place: Range<u64> = HEADER_BYTES as u64..footer.list_offset;
        let mut blocks = BlockReader::new(source, footer.salt, place);
        let handle_of = |kind, what| {
            let corrupt = ReadError::corrupt(footer.list_offset);
            let found = footer.block(kind).ok_or(Corruption::Missing { what });
            found
                .and_then(|FooterBlock { offset, bytes, .. }| BlockHandle::new(offset, bytes))
                .map_err(corrupt)
        };
        let handle = handle_of(BlockKind::Properties, "block of properties")?;
        let properties = TableProperties::decode(&blocks.read_content(handle)?)
            .map_err(ReadError::corrupt(handle.offset))?;
        zstd::check_compression(properties.compression)
            .map_err(ReadError::corrupt(handle.offset))?;
        blocks.set_content_bytes_max(properties.content_bytes_max);
        let handle = handle_of(BlockKind::DataIndex, "data index")?;
        let top_index = blocks.read_block(handle, BlockRole::Index)?;
        let mut range_tombstones = RangeTombstones::default();
        if footer.block(BlockKind::RangeTombstones).is_some() {
            let handle = handle_of(BlockKind::RangeTombstones, "block of range tombstones")?;
            range_tombstones = RangeTombstones::decode(&blocks.read_content(handle)?)
                .map_err(ReadError::corrupt(handle.offset))?;
        }
        if footer.block(BlockKind::CompressionDictionary).is_some() {
            let handle = handle_of(BlockKind::CompressionDictionary, "compression dictionary")?;
            let dictionary = Dictionary::decode(&blocks.read_content(handle)?)
                .map_err(ReadError::corrupt(handle.offset))?;
            blocks.set_dictionary(dictionary);
        }
        Ok(Self { blocks, properties, top_index, range_tombstones })
    }
}
