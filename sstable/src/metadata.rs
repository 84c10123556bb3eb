//! The metadata of a table: identity, summary, and the blocks that stay in memory while it is open.

use std::sync::Arc;

use sievedb_format::{
    Corruption, SequenceNumber, TableBounds, file_header::HEADER_BYTES,
    range_tombstone::RangeTombstones,
};

use crate::{
    block::{
        Block, BlockRole,
        zstd::{self, Dictionary},
    },
    block_reader::BlockReader,
    error::ReadError,
    filter_state::FilterHandle,
    footer::{BlockKind, Footer},
    properties::TableProperties,
    source::TableSource,
    table_expiry::TableExpiry,
};

/// Identity of a table: recorded in the manifest and repeated in the file.
///
/// A file that was renamed, copied from another store or restored from an old backup is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableIdentity {
    /// Random number of the store.
    pub store_id: u128,
    /// Number of the file, never reused within the store.
    pub file_id: u64,
    /// Random number of the table, covered by the checksum of each block.
    pub salt: u64,
    /// Seed of the store's key hash, which filters are built with.
    pub hash_seed: u64,
}

/// Description of a finished table for the manifest.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct TableSummary {
    /// Length of the file, in bytes.
    pub bytes: u64,
    /// xxh3_64 of the whole file.
    pub checksum: u64,
    /// Location of the point filter; `None` if the table has none.
    pub filter: Option<FilterHandle>,
    /// Location of the prefix filter; `None` if the table has none.
    pub prefix_filter: Option<FilterHandle>,
    /// Name of the extractor of the prefix filter; `None` if the table has none.
    pub prefix_extractor: Option<Box<str>>,
    /// Location of the range filter; `None` if the table has none.
    pub range_filter: Option<FilterHandle>,
    /// Range of the user keys, range tombstones included; empty keys in a table without entries.
    pub bounds: TableBounds,
    /// Number of entries, tombstones and range tombstones included.
    pub entries: u64,
    /// Number of tombstones, range tombstones included.
    pub tombstones: u64,
    /// Number of range tombstones.
    pub range_tombstones: u64,
    /// Smallest sequence number; 0 in a table without entries.
    pub smallest_sequence: SequenceNumber,
    /// Largest sequence number; 0 in a table without entries.
    pub largest_sequence: SequenceNumber,
    /// The entries that expire; `None` if there are none.
    pub expiry: Option<Box<TableExpiry>>,
}

/// Identity and properties of a table, read from the file alone.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct TableMetadata {
    /// Random number of the store, unchecked.
    pub store_id: u128,
    /// Random number of the table, covered by the checksum of each block.
    pub salt: u64,
    /// The properties, including the [origin](TableProperties::origin).
    pub properties: TableProperties,
}

impl TableMetadata {
    /// Reads footer and properties of the table `file_id`. Costs a few reads near the end of the
    /// file.
    ///
    /// # Errors
    ///
    /// [`ReadError`] if the source fails, or the file is not the table `file_id`. Also if footer or
    /// properties are damaged, or need a later release or another build.
    pub fn read(source: &Arc<dyn TableSource>, file_id: u64) -> Result<Self, ReadError> {
        let footer = Footer::read(&**source)?;
        if footer.file_id != file_id {
            let (what, expected, found) = ("file id", file_id, footer.file_id);
            let source = Corruption::Mismatch { what, expected, found };
            return Err(ReadError::Corrupt { offset: footer.list_offset, source });
        }
        let (_, properties) = read_properties(Arc::clone(source), &footer)?;
        Ok(Self { store_id: footer.store_id, salt: footer.salt, properties })
    }
}

/// Blocks of a table that stay in memory while it is open.
pub(crate) struct ResidentBlocks {
    pub(crate) reader: BlockReader,
    pub(crate) properties: TableProperties,
    pub(crate) top_index: Block,
    pub(crate) range_tombstones: RangeTombstones,
}

impl ResidentBlocks {
    pub(crate) fn read(source: Arc<dyn TableSource>, footer: &Footer) -> Result<Self, ReadError> {
        let (mut reader, properties) = read_properties(source, footer)?;
        reader.set_content_bytes_max(properties.content_bytes_max);
        let top_index =
            reader.read_block(footer.handle(BlockKind::DataIndex)?, BlockRole::Index)?;
        let mut range_tombstones = RangeTombstones::default();
        if footer.block(BlockKind::RangeTombstones).is_some() {
            let handle = footer.handle(BlockKind::RangeTombstones)?;
            range_tombstones = RangeTombstones::decode(&reader.read_content(handle)?)
                .map_err(ReadError::corrupt(handle.offset))?;
        }
        // If a range tombstone were missing, deleted keys would reappear.
        let expected = properties.range_tombstones();
        let found = range_tombstones.len() as u64;
        if found != expected {
            let what = "number of range tombstones";
            let source = Corruption::Mismatch { what, expected, found };
            return Err(ReadError::Corrupt { offset: footer.list_offset, source });
        }
        // A range tombstone that is too new would delete keys of other tables.
        let sequences = properties.smallest_sequence..=properties.largest_sequence;
        if let Some(other) = range_tombstones.iter().find(|it| !sequences.contains(&it.sequence)) {
            let what = "sequence number of a range tombstone";
            let source = Corruption::OutOfRange { what, value: other.sequence };
            return Err(ReadError::Corrupt { offset: footer.list_offset, source });
        }
        if footer.block(BlockKind::CompressionDictionary).is_some() {
            let handle = footer.handle(BlockKind::CompressionDictionary)?;
            let dictionary = Dictionary::decode(&reader.read_content(handle)?)
                .map_err(ReadError::corrupt(handle.offset))?;
            reader.set_dictionary(dictionary);
        }
        Ok(Self { reader, properties, top_index, range_tombstones })
    }
}

/// Reads the properties. The returned reader reads raw blocks.
fn read_properties(
    source: Arc<dyn TableSource>,
    footer: &Footer,
) -> Result<(BlockReader, TableProperties), ReadError> {
    let reader = BlockReader::new(source, footer.salt, HEADER_BYTES as u64..footer.list_offset);
    let handle = footer.handle(BlockKind::Properties)?;
    let corrupt = ReadError::corrupt(handle.offset);
    let properties = TableProperties::decode(&reader.read_content(handle)?).map_err(&corrupt)?;
    zstd::check_compression(properties.compression).map_err(&corrupt)?;
    Ok((reader, properties))
}
