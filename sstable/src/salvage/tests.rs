//! Tests of salvaged tables without footer.

use std::ops::RangeBounds as _;

use sievedb_format::{Kind, Trailer};

use super::*;
use crate::{Compression, TableIdentity, TableOptions, TableWriter};

const IDENTITY: TableIdentity = TableIdentity { store_id: 1, file_id: 2, salt: 3, hash_seed: 4 };
const KEYS: u32 = 3_000;

fn table(compression: Compression, partition_bytes: usize) -> Vec<u8> {
    let options = TableOptions::new()
        .block_bytes(1 << 10)
        .index_partition_bytes(partition_bytes)
        .compression(compression);
    let mut writer = TableWriter::new(Vec::new(), IDENTITY, options).unwrap();
    for number in 0..KEYS {
        let trailer = Trailer::new(u64::from(number) + 1, Kind::Put);
        let value = number.wrapping_mul(0x9e37_79b9).to_le_bytes().repeat(4);
        writer.add(InternalKey::new(&number.to_be_bytes(), trailer), &value).unwrap();
    }
    writer.finish().unwrap().0
}

fn scan(bytes: impl Into<Bytes>, salt: u64, entries_max: u64) -> SalvagedTable {
    SalvagedTable::scan(Arc::new(bytes.into()), salt, entries_max, u64::MAX).unwrap()
}

fn keys(table: &mut SalvagedTable) -> Vec<u32> {
    let mut keys = Vec::new();
    for handle in table.data.clone() {
        let mut cursor = BlockCursor::new(table.decode(handle, BlockRole::Data).unwrap().unwrap());
        cursor.seek_to_first();
        while let Some(key) = cursor.key() {
            let number = u32::from_be_bytes(key.user_key.try_into().unwrap());
            let value = cursor.value_ref();
            assert_eq!(value, number.wrapping_mul(0x9e37_79b9).to_le_bytes().repeat(4));
            keys.push(number);
            cursor.next();
        }
    }
    keys
}

#[test]
fn n15_a_table_without_footer_keeps_every_entry() {
    for compression in [Compression::None, Compression::Lz4] {
        for partition_bytes in [1 << 10, 1 << 20] {
            let mut bytes = table(compression, partition_bytes);
            bytes.truncate(bytes.len() - 100);
            let mut found = scan(bytes, 3, u64::from(KEYS));
            assert!(keys(&mut found).into_iter().eq(0..KEYS), "{compression:?}");
            assert_eq!(found.gaps(), [], "{compression:?}");
        }
    }
}

#[test]
fn n15_a_damaged_block_in_a_table_without_footer_is_a_gap() {
    let mut bytes = table(Compression::None, 1 << 10);
    bytes.truncate(bytes.len() - 100);
    for at in [70, 9_000, 9_001, 30_000] {
        bytes[at] ^= 1;
    }
    let mut found = scan(bytes, 3, u64::from(KEYS));
    let kept = keys(&mut found);
    let gaps = &found.gaps()[..3];
    for (gap, at) in gaps.iter().zip([70, 9_000, 30_000]) {
        assert!(gap.range.contains(&at) && gap.range.end - gap.range.start < 3_000, "{gap:?}");
    }
    for key in 0..KEYS {
        let bytes = Bytes::copy_from_slice(&key.to_be_bytes());
        let is_lost = gaps.iter().any(|gap| gap.keys.contains(&bytes));
        assert!(kept.contains(&key) || is_lost, "{key}");
    }
    assert!(kept.len() > KEYS as usize - 200, "{}", kept.len());
}

#[test]
fn another_salt_matches_no_block() {
    let bytes = table(Compression::Lz4, 1 << 20).split_off(0);
    let found = scan(bytes[..5_000].to_vec(), 4, u64::MAX);
    assert_eq!((found.blocks(), found.entries(), found.gaps().len()), (0, 0, 1));
}

#[test]
fn n15_a_table_truncated_after_a_block_has_a_gap() {
    let bytes = table(Compression::None, 1 << 20);
    let whole = scan(bytes.clone(), 3, u64::from(KEYS));
    for block in &whole.data[..whole.data.len() - 1] {
        let cut = Bytes::copy_from_slice(&bytes[..block.range().end as usize]);
        let len = bytes.len() as u64;
        let mut found = SalvagedTable::scan(Arc::new(cut), 3, u64::from(KEYS), len).unwrap();
        assert_eq!(found.gaps().len(), 1, "{block:?}");
        let gap = found.gaps()[0].clone();
        let last = keys(&mut found).last().unwrap().to_be_bytes();
        let from = Bound::Excluded(Bytes::copy_from_slice(&last));
        assert_eq!(gap.keys, (from, Bound::Unbounded));
    }
}

#[test]
fn n15_blocks_after_long_damage_are_found() {
    let mut bytes = table(Compression::None, 1 << 20);
    let end = bytes.len() - 30_000;
    bytes.truncate(bytes.len() - 100);
    // Zeroes a range longer than any block, as lost sectors would, before the last blocks.
    let file: Bytes = bytes.clone().into();
    let found = scan(file, 3, u64::from(KEYS));
    let last = found.data.iter().rfind(|handle| (handle.offset as usize) < end).unwrap();
    bytes[5_000..last.offset as usize].fill(0);
    let mut found = scan(bytes, 3, u64::from(KEYS));
    let gap = &found.gaps()[0].range;
    assert!(gap.start < 5_000 && gap.end == last.offset, "{gap:?}");
    assert_eq!(keys(&mut found).last(), Some(&(KEYS - 1)));
}

#[cfg(feature = "zstd")]
#[test]
fn n15_blocks_with_a_dictionary_are_read_without_the_footer() {
    let compression = Compression::Zstd { level: 3, dictionary_bytes: 1 << 10 };
    let options = TableOptions::new().block_bytes(1 << 10).compression(compression);
    let mut writer = TableWriter::new(Vec::new(), IDENTITY, options).unwrap();
    for number in 0..KEYS {
        let trailer = Trailer::new(u64::from(number) + 1, Kind::Put);
        let value = format!("a value like others, with the number {number} in it");
        let key = number.to_be_bytes();
        writer.add(InternalKey::new(&key, trailer), value.as_bytes()).unwrap();
    }
    let mut bytes = writer.finish().unwrap().0;
    bytes.truncate(bytes.len() - 100);
    let found = scan(bytes, 3, u64::from(KEYS));
    assert!(matches!(found.dictionary, Some(Some(_))));
    assert_eq!((found.entries(), found.gaps()), (u64::from(KEYS), &[][..]));
}

/// A file of `len` bytes: a table and zeros. Records the longest read.
#[derive(Debug)]
struct Long {
    table: Bytes,
    len: u64,
    longest_read: std::sync::atomic::AtomicUsize,
}

impl TableSource for Long {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, bytes: usize) -> io::Result<Bytes> {
        self.longest_read.fetch_max(bytes, std::sync::atomic::Ordering::Relaxed);
        let mut read = vec![0; bytes];
        let from = (offset as usize).min(self.table.len());
        let copied = &self.table[from..self.table.len().min(from + bytes)];
        read[..copied.len()].copy_from_slice(copied);
        Ok(read.into())
    }
}

#[test]
fn n15_a_long_table_is_read_in_pieces() {
    let mut bytes = table(Compression::None, 1 << 20);
    bytes.truncate(bytes.len() - 100);
    bytes[9_000] ^= 1;
    let source = Arc::new(Long { table: bytes.into(), len: 8 << 20, longest_read: 0.into() });
    let found = SalvagedTable::scan(source.clone(), 3, u64::MAX, u64::MAX).unwrap();
    assert!(found.entries() > u64::from(KEYS) - 100, "{}", found.entries());
    let longest = source.longest_read.load(std::sync::atomic::Ordering::Relaxed);
    assert!(longest <= 1 << 20, "{longest} bytes at a time");
}
