//! Properties of an exported table.

use std::collections::BTreeMap;

use super::block::{BlockBuilder, put_varint64};
use crate::internal_key::Comparator;

/// Id of the column family of a table that any column family may ingest.
const ANY_FAMILY: u64 = i32::MAX as u64;

/// Version of `SstFileWriter`'s format whose tables have a global sequence number.
const EXTERNAL_VERSION: u32 = 2;

/// Counts that a table stores in its properties.
#[derive(Debug, Clone, Default)]
pub(super) struct Counts {
    pub(super) entries: u64,
    /// Bytes of the keys with their sequence numbers.
    pub(super) key_bytes: u64,
    pub(super) value_bytes: u64,
    pub(super) data_blocks: u64,
    /// Bytes of the data blocks with their trailers.
    pub(super) data_bytes: u64,
    pub(super) index_bytes: u64,
}

/// Returns the properties block of a table.
pub(super) fn block(counts: &Counts, family: &str, is_compressed: bool) -> Vec<u8> {
    let mut properties = BTreeMap::new();
    let numbers = [
        ("rocksdb.column.family.id", ANY_FAMILY),
        ("rocksdb.data.size", counts.data_bytes),
        ("rocksdb.deleted.keys", 0),
        ("rocksdb.filter.size", 0),
        ("rocksdb.fixed.key.length", 0),
        ("rocksdb.format.version", 0),
        ("rocksdb.index.key.is.user.key", 1),
        ("rocksdb.index.size", counts.index_bytes),
        ("rocksdb.index.value.is.delta.encoded", 0),
        ("rocksdb.merge.operands", 0),
        ("rocksdb.num.data.blocks", counts.data_blocks),
        ("rocksdb.num.entries", counts.entries),
        ("rocksdb.num.filter_entries", 0),
        ("rocksdb.num.range-deletions", 0),
        ("rocksdb.raw.key.size", counts.key_bytes),
        ("rocksdb.raw.value.size", counts.value_bytes),
    ];
    for (name, number) in numbers {
        let mut value = Vec::new();
        put_varint64(&mut value, number);
        properties.insert(name, value);
    }
    let texts = [
        ("rocksdb.block.based.table.prefix.filtering", "0"),
        ("rocksdb.block.based.table.whole.key.filtering", "0"),
        ("rocksdb.column.family.name", family),
        ("rocksdb.comparator", Comparator::BYTEWISE),
        ("rocksdb.compression", if is_compressed { "LZ4" } else { "NoCompression" }),
        ("rocksdb.merge.operator", "nullptr"),
        ("rocksdb.prefix.extractor.name", "nullptr"),
        ("rocksdb.property.collectors", "[]"),
    ];
    properties.extend(texts.map(|(name, text)| (name, text.as_bytes().to_vec())));
    // One block, binary search.
    properties.insert("rocksdb.block.based.table.index.type", 0_u32.to_le_bytes().to_vec());
    let version = EXTERNAL_VERSION.to_le_bytes().to_vec();
    properties.insert("rocksdb.external_sst_file.version", version);
    // Ingestion may replace it in place.
    properties.insert("rocksdb.external_sst_file.global_seqno", 0_u64.to_le_bytes().to_vec());
    // Each key is stored whole, so a reader finds it from any restart point.
    let mut block = BlockBuilder::new(1);
    properties.iter().for_each(|(name, value)| block.add(name.as_bytes(), value));
    block.finish()
}
