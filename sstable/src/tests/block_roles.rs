//! Roles of cached blocks.

use std::sync::Arc;

use bytes::Bytes;
use sievedb_format::{InternalKey, Kind, Trailer};

use crate::{
    BlockCache, BlockCounts, CacheUse, ReadError, Table, TableIdentity, TableOptions, TableWriter,
    block::BlockRole,
};

#[test]
fn a_cached_block_is_not_returned_for_another_role() {
    let identity = TableIdentity { store_id: 1, file_id: 2, salt: 3, hash_seed: 4 };
    let mut writer = TableWriter::new(Vec::new(), identity, TableOptions::new()).unwrap();
    let key = InternalKey::new(b"key", Trailer::new(5, Kind::Put));
    writer.add(key, b"not the handle of a block").unwrap();
    let (bytes, summary) = writer.finish().unwrap();
    let source = Arc::new(Bytes::from(bytes));
    let cache = Arc::new(BlockCache::new(1 << 20));
    let table = Table::open(source, identity, summary.bytes, cache).unwrap();
    let index = table.top_index();
    let at = index.position(key).unwrap();
    let mut counts = BlockCounts::default();
    let mut read = |role| table.child(index.shared(), at, role, CacheUse::Fill, &mut counts);
    assert!(read(BlockRole::Data).is_ok());
    assert!(matches!(read(BlockRole::Index), Err(ReadError::Corrupt { .. })));
    assert!(read(BlockRole::Data).is_ok());
}
