//! A table whose index was forged together with its checksum.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::sync::Arc;

use bytes::Bytes;
use sievedb_format::{Annotation, Corruption, InternalKey, Kind, Trailer};

use crate::{
    BlockCache, Compression, ReadError, Table, TableIdentity, TableOptions, TableSource,
    TableWriter,
    block::{BlockCursor, BlockHandle, BlockRole, stored::Sealer},
    describe,
};

const IDENTITY: TableIdentity = TableIdentity { store_id: 1, file_id: 2, salt: 3, hash_seed: 4 };
const KEYS: u64 = 4_000;

fn open(bytes: &[u8]) -> Arc<Table> {
    let source = Arc::new(Bytes::copy_from_slice(bytes));
    let cache = Arc::new(BlockCache::new(1 << 20));
    Arc::new(Table::open(source, IDENTITY, bytes.len() as u64, cache).unwrap())
}

/// Returns a table with many partitions.
fn built() -> Vec<u8> {
    let options = TableOptions::new()
        .block_bytes(1 << 10)
        .index_partition_bytes(1 << 10)
        .compression(Compression::None);
    let mut writer = TableWriter::new(Vec::new(), IDENTITY, options).unwrap();
    for number in 0..KEYS {
        let key = number.to_be_bytes();
        let key = InternalKey::new(&key, Trailer::new(5, Kind::Put));
        writer.add(key, &[7; 100]).unwrap();
    }
    writer.finish().unwrap().0
}

fn children(table: &Table, at: usize) -> (BlockHandle, Vec<BlockHandle>) {
    let handle = table.top_index().handle_at(at);
    let partition = table.reader().read_block(handle, BlockRole::Index).unwrap();
    let mut cursor = BlockCursor::new(partition);
    cursor.seek_to_first();
    let mut handles = Vec::new();
    while let Some(child) = cursor.handle() {
        handles.push(child);
        cursor.next();
    }
    (handle, handles)
}

/// Returns `bytes` with the first child of the second partition replaced by a child of the first
/// one, and that child.
fn forged(bytes: &[u8]) -> (Vec<u8>, BlockHandle) {
    let table = open(bytes);
    let ((_, first), (place, second)) = (children(&table, 0), children(&table, 1));
    let encoded = |handle: BlockHandle| {
        let mut bytes = Vec::new();
        handle.encode(&mut bytes);
        bytes
    };
    let (other, own) = (first[first.len() - 2], second[0]);
    let (new, old) = (encoded(other), encoded(own));
    assert_eq!(new.len(), old.len(), "{other} and {own} are as long");
    let mut content = table.reader().read_content(place).unwrap().to_vec();
    let at = content.windows(old.len()).position(|it| it == old).unwrap();
    content[at..at + new.len()].copy_from_slice(&new);
    let sealer = Sealer::new(IDENTITY.salt, Compression::None);
    let (content, trailer) = sealer.seal_raw(place.offset, &content);
    let mut forged = bytes.to_vec();
    let range = place.offset as usize..place.range().end as usize;
    forged[range].copy_from_slice(&[content, &trailer].concat());
    (forged, other)
}

fn is_out_of_order(error: &ReadError) -> bool {
    let what = "blocks of a table";
    matches!(error, ReadError::Corrupt { source: Corruption::Order { what: found }, .. }
        if *found == what)
}

#[test]
fn a_block_of_two_partitions_is_read_once() {
    let good = built();
    let (forged, twice) = forged(&good);
    let all = open(&good).verify(&mut |_| ());
    assert!(all.problems.is_empty() && all.entries == KEYS, "{all:?}");
    let found = open(&forged).verify(&mut |_| ());
    assert_eq!(found.blocks, all.blocks - 1);
    assert!(is_out_of_order(&found.problems[0].error), "{:?}", found.problems);

    let source = Arc::new(Bytes::from(forged)) as Arc<dyn TableSource>;
    let text = Annotation::of_parts(|next| describe(&source, next)).1.to_string();
    let place = format!("{:08x}", twice.offset);
    assert_eq!(text.lines().filter(|line| line.starts_with(&place)).count(), 1, "{text}");
}

#[test]
fn scans_in_both_directions_end_at_a_block_that_is_out_of_order() {
    let (forged, _) = forged(&built());
    let table = open(&forged);
    for backward in [false, true] {
        let mut cursor = Arc::clone(&table).cursor(crate::CacheUse::Fill);
        let mut moved = if backward { cursor.seek_to_last() } else { cursor.seek_to_first() };
        let mut last: Option<Vec<u8>> = None;
        while moved.is_ok()
            && let Some(key) = cursor.key()
        {
            let key = key.user_key.to_vec();
            let is_after = last.replace(key.clone()).is_none_or(|last| (last > key) == backward);
            assert!(is_after, "{key:?}, {backward}");
            moved = if backward { cursor.prev() } else { cursor.next() };
        }
        assert!(moved.is_err_and(|error| is_out_of_order(&error)), "{backward}");
    }
}
