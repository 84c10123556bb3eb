//! Annotated dump of a table's bytes.

use std::{
    mem,
    ops::{ControlFlow, Range},
    sync::Arc,
};

use sievedb_filter::filter_block;
use sievedb_format::{
    Annotation, FileHeader, Trailer,
    annotation::{NextPart, printable},
    file_header::HEADER_BYTES,
};

use crate::{
    block::{
        Block, BlockCursor, BlockHandle, BlockRole,
        stored::{TRAILER_BYTES, TYPE_LZ4, TYPE_RAW, TYPE_ZSTD, TYPE_ZSTD_DICTIONARY},
    },
    block_reader::BlockReader,
    error::ReadError,
    footer::{BlockKind, Footer, FooterBlock},
    metadata::ResidentBlocks,
    properties::TableProperties,
    source::TableSource,
};

/// Describes every field of a table as text. Passes each block to `next`.
///
/// Unreadable parts are described as damaged. Parts that only an unreadable part locates are
/// missing.
pub fn describe(source: &Arc<dyn TableSource>, next: &mut NextPart<'_>) -> ControlFlow<()> {
    let mut annotation = Annotation::new();
    let header = HEADER_BYTES as u64;
    match read_header(&**source) {
        Ok(header) => header.describe(&mut annotation),
        Err(error) => annotation.field(0..header.min(source.len()), "header", damage(&error)),
    }
    let footer = match Footer::read(&**source) {
        Ok(footer) => footer,
        Err(error) => {
            let range = header.min(source.len())..source.len();
            annotation.field(range, "footer", damage(&error));
            return next(annotation);
        }
    };
    match ResidentBlocks::read(Arc::clone(source), &footer) {
        Ok(contents) => {
            next(mem::take(&mut annotation))?;
            describe_parts(&**source, &footer, &contents, next)?;
        }
        Err(error) => annotation.field(header..footer.list_offset, "blocks", damage(&error)),
    }
    footer.describe(&mut annotation);
    next(annotation)
}

fn read_header(source: &dyn TableSource) -> Result<FileHeader, ReadError> {
    let header = source.read_at(0, HEADER_BYTES)?;
    FileHeader::decode(&header).map_err(ReadError::corrupt(0))
}

fn damage(error: &ReadError) -> String {
    match error {
        ReadError::Io(source) => format!("unreadable: {source}"),
        ReadError::Corrupt { source, .. } => format!("damaged: {source}"),
    }
}

fn describe_parts(
    source: &dyn TableSource,
    footer: &Footer,
    contents: &ResidentBlocks,
    next: &mut NextPart<'_>,
) -> ControlFlow<()> {
    let ResidentBlocks { reader: blocks, properties, top_index, range_tombstones } = contents;
    let mut parts = Vec::new();
    collect_parts(blocks, properties, top_index, &mut parts);
    parts.extend(footer.blocks.iter().map(|&block| Part::Footer(block)));
    parts.sort_by_key(Part::offset);
    for part in parts {
        let annotation = &mut Annotation::new();
        annotation.rebase(part.offset());
        match part {
            Part::Block(handle, role) => describe_block(blocks, handle, role, annotation),
            Part::Footer(FooterBlock { kind, offset, bytes }) => match kind {
                BlockKind::DataIndex => {
                    let handle = BlockHandle { offset, bytes };
                    describe_block(blocks, handle, BlockRole::Index, annotation);
                }
                BlockKind::PointFilter | BlockKind::PrefixFilter | BlockKind::RangeFilter => {
                    describe_filter(source, offset, bytes, annotation);
                }
                BlockKind::CompressionDictionary => {
                    let content_bytes = bytes - TRAILER_BYTES as u64;
                    annotation.field(0..content_bytes, "compression_dictionary", "");
                    describe_trailer(bytes, TYPE_RAW, annotation);
                }
                BlockKind::Properties => {
                    properties.describe(annotation);
                    describe_trailer(bytes, TYPE_RAW, annotation);
                }
                BlockKind::RangeTombstones => {
                    range_tombstones.describe(annotation);
                    describe_trailer(bytes, TYPE_RAW, annotation);
                }
            },
        }
        next(mem::take(annotation))?;
    }
    ControlFlow::Continue(())
}

/// A part between header and footer.
#[derive(Debug, Clone, Copy)]
enum Part {
    Block(BlockHandle, BlockRole),
    Footer(FooterBlock),
}

impl Part {
    fn offset(&self) -> u64 {
        match self {
            Self::Block(handle, _) => handle.offset,
            Self::Footer(block) => block.offset,
        }
    }
}

/// Collects the data blocks and partitions below the top index.
fn collect_parts(
    blocks: &BlockReader,
    properties: &TableProperties,
    top_index: &Block,
    parts: &mut Vec<Part>,
) {
    let has_partitions = properties.index_levels == 2;
    let mut data_end = 0;
    for handle in handles(top_index.clone()) {
        if !has_partitions {
            parts.push(Part::Block(handle, BlockRole::Data));
            continue;
        }
        parts.push(Part::Block(handle, BlockRole::Index));
        if let Ok(partition) = blocks.read_block(handle, BlockRole::Index) {
            // Others could be children of many partitions.
            for data in handles(partition) {
                if data.offset >= data_end {
                    data_end = data.range().end;
                    parts.push(Part::Block(data, BlockRole::Data));
                }
            }
        }
    }
}

fn handles(index: Block) -> Vec<BlockHandle> {
    let mut cursor = BlockCursor::new(index);
    cursor.seek_to_first();
    std::iter::from_fn(|| {
        let handle = cursor.handle()?;
        cursor.next();
        Some(handle)
    })
    .collect()
}

fn describe_block(
    blocks: &BlockReader,
    handle: BlockHandle,
    role: BlockRole,
    annotation: &mut Annotation,
) {
    let bytes = handle.bytes;
    let read = || {
        let type_byte = blocks.read_stored(handle)?.type_byte;
        Ok((type_byte, blocks.read_block(handle, role)?))
    };
    let (type_byte, block) = match read() {
        Ok(found) => found,
        Err(error) => return annotation.field(0..bytes, "block", damage(&error)),
    };
    let stored_bytes = bytes - TRAILER_BYTES as u64;
    let place = |range: Range<u64>| match type_byte {
        TYPE_RAW => range,
        // Fields of compressed content have no position in the file.
        _ => 0..stored_bytes,
    };
    let name = match role {
        BlockRole::Data => "entry",
        BlockRole::Index => "separator",
    };
    let [prefix_at, ends_at, entries_at] = block.offsets().map(|at| at as u64);
    annotation.field(place(0..prefix_at), "entries", block.entries());
    annotation.field(place(prefix_at..ends_at), "prefix", printable(block.prefix()));
    annotation.field(place(ends_at..entries_at), "ends", "");
    let mut cursor = BlockCursor::new(block);
    cursor.seek_to_first();
    while let Some(key) = cursor.key() {
        let Range { start, end } = cursor.range();
        let value = match role {
            BlockRole::Data => printable(&cursor.value()),
            BlockRole::Index => cursor.handle().map_or_else(String::new, |it| it.to_string()),
        };
        let version = match key.trailer {
            Trailer::OLDEST => "behind all versions".to_owned(),
            trailer => format!("@{} {:?}", trailer.sequence(), trailer.kind()),
        };
        let meaning = format!("{} {version} -> {value}", printable(key.user_key));
        annotation.field(place(start as u64..end as u64), name, meaning);
        cursor.next();
    }
    describe_trailer(bytes, type_byte, annotation);
}

/// Describes type and checksum of a block of `bytes` bytes. The checksum was verified.
fn describe_trailer(bytes: u64, type_byte: u8, annotation: &mut Annotation) {
    let type_at = bytes - TRAILER_BYTES as u64;
    let meaning = match type_byte {
        TYPE_RAW => "raw",
        TYPE_LZ4 => "LZ4",
        TYPE_ZSTD => "zstd",
        TYPE_ZSTD_DICTIONARY => "zstd with the dictionary",
        _ => "unknown",
    };
    annotation.field(type_at..type_at + 1, "type", meaning);
    annotation.field(type_at + 1..bytes, "checksum", "ok");
}

/// Describes the filter block at `offset`, the base of the annotation.
pub(crate) fn describe_filter(
    source: &dyn TableSource,
    offset: u64,
    bytes: u64,
    annotation: &mut Annotation,
) {
    let fits = offset.checked_add(bytes).is_some_and(|end| end <= source.len());
    let length = usize::try_from(bytes).ok().filter(|_| fits);
    match length.map(|length| source.read_at(offset, length)) {
        Some(Ok(block)) => {
            // Only the manifest records the hash seed.
            for field in filter_block::describe(&block, None) {
                annotation.field(field.place, field.name, field.meaning);
            }
        }
        Some(Err(error)) => annotation.field(0..bytes, "filter", damage(&error.into())),
        None => annotation.field(0..0, "filter", format_args!("damaged: {bytes} bytes")),
    }
}
