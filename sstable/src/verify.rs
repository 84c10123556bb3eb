//! Verification of a whole table.
//!
//! Continues after each problem, and bypasses the cache.

use std::{
    io,
    ops::{Bound, ControlFlow},
};

use bytes::Bytes;
use sievedb_format::{Corruption, InternalKey, Kind, Trailer, file_header::HEADER_BYTES};
use xxhash_rust::xxh3::Xxh3Default;

use crate::{
    block::{Block, BlockCursor, BlockHandle, BlockRole},
    error::ReadError,
    footer::{BlockKind, Footer},
    properties::TableProperties,
    source::TableSource,
    table::Table,
};

/// Length of the reads that compute a file checksum, in bytes.
const CHUNK_BYTES: usize = 256 << 10;

/// Result of a verification.
#[derive(Debug)]
#[non_exhaustive]
pub struct Verified {
    /// All problems found, in file order. If a block cannot be read, counts are not compared with
    /// the properties.
    pub problems: Vec<TableProblem>,
    /// Number of point entries read.
    pub entries: u64,
    /// Number of data blocks and index partitions read.
    pub blocks: u64,
}

/// A problem of a table.
#[derive(Debug)]
#[non_exhaustive]
pub struct TableProblem {
    /// The violation, and its approximate offset.
    pub error: ReadError,
    /// Range of the user keys that the damaged block may hold, from the separators around it;
    /// `None` if the problem is not about a block.
    pub keys: Option<(Bound<Bytes>, Bound<Bytes>)>,
    /// Length of the unreadable blocks, in bytes: the block itself, and the children of an index
    /// partition. 0 if the problem is not about a block.
    pub bytes: u64,
}

/// Returns the xxh3_64 of a whole file, which the manifest records for a table. Calls `on_bytes`
/// with the length of each read; `on_bytes` may stop the computation.
///
/// # Errors
///
/// Those of the source; [`io::ErrorKind::Interrupted`] if `on_bytes` breaks.
pub fn file_checksum(
    source: &dyn TableSource,
    on_bytes: &mut dyn FnMut(u64) -> ControlFlow<()>,
) -> io::Result<u64> {
    let (mut hasher, mut offset) = (Xxh3Default::new(), 0);
    while offset < source.len() {
        let bytes = (source.len() - offset).min(CHUNK_BYTES as u64);
        hasher.update(&source.read_at(offset, bytes as usize)?);
        offset += bytes;
        if on_bytes(bytes).is_break() {
            return Err(io::ErrorKind::Interrupted.into());
        }
    }
    Ok(hasher.digest())
}

impl Table {
    /// Reads every block and verifies its checksum, the order of its entries, their separators, and
    /// the counts in the properties. Calls `on_key` with each distinct user key of a point entry,
    /// ascending. Costs a read of the whole table.
    pub fn verify(&self, on_key: &mut dyn FnMut(&[u8])) -> Verified {
        self.verify_while(&mut |key| {
            on_key(key);
            ControlFlow::Continue(())
        })
    }

    /// Verifies the table until `on_key` breaks, and then compares no counts. Otherwise as
    /// [`verify`](Self::verify).
    pub fn verify_while(&self, on_key: &mut dyn FnMut(&[u8]) -> ControlFlow<()>) -> Verified {
        let mut walk = Walk::new(self, on_key);
        walk.index(self.top_index().clone(), self.has_partitions());
        walk.finish()
    }
}

/// Traversal of all blocks of a table.
struct Walk<'a> {
    table: &'a Table,
    on_key: &'a mut dyn FnMut(&[u8]) -> ControlFlow<()>,
    is_stopped: bool,
    verified: Verified,
    /// Statistics of the entries read.
    found: TableProperties,
    /// Key of the last entry or separator.
    last: Option<(Vec<u8>, Trailer)>,
    /// User key of the last entry.
    last_user_key: Option<Vec<u8>>,
    /// Lower bound of the user keys of the next block: the separator before it.
    keys_from: Bound<Bytes>,
    /// End of the last block traversed, as a file offset.
    walked_to: u64,
    /// End of the last data block.
    data_end: u64,
    is_complete: bool,
}

impl<'a> Walk<'a> {
    fn new(table: &'a Table, on_key: &'a mut dyn FnMut(&[u8]) -> ControlFlow<()>) -> Self {
        Self {
            table,
            on_key,
            is_stopped: false,
            verified: Verified { problems: Vec::new(), entries: 0, blocks: 0 },
            found: TableProperties::default(),
            last: None,
            last_user_key: None,
            keys_from: Bound::Included(Bytes::copy_from_slice(&table.properties().bounds.smallest)),
            walked_to: HEADER_BYTES as u64,
            data_end: 0,
            is_complete: true,
        }
    }

    fn problem(&mut self, offset: u64, source: Corruption) {
        self.error(ReadError::Corrupt { offset, source });
    }

    fn error(&mut self, error: ReadError) {
        self.verified.problems.push(TableProblem { error, keys: None, bytes: 0 });
    }

    fn block(&mut self, handle: BlockHandle, role: BlockRole) -> Option<Block> {
        let read = if role == BlockRole::Data && handle.offset < self.data_end {
            // It could be the child of many partitions.
            let source = Corruption::Order { what: "blocks of a table" };
            Err(ReadError::Corrupt { offset: handle.offset, source })
        } else {
            self.table.reader().read_block(handle, role)
        };
        match read {
            Ok(block) => {
                self.verified.blocks += 1;
                Some(block)
            }
            Err(error) => {
                self.is_complete = false;
                self.error(error);
                if let Some(problem) = self.verified.problems.last_mut() {
                    // Children precede their partition.
                    let lost_from =
                        if role == BlockRole::Index { self.walked_to } else { handle.offset };
                    problem.bytes = handle.range().end.saturating_sub(lost_from);
                }
                None
            }
        }
    }

    /// Traverses the children of an index block.
    fn index(&mut self, index: Block, has_partitions: bool) {
        let mut cursor = BlockCursor::new(index);
        cursor.seek_to_first();
        while !self.is_stopped
            && let (Some(separator), Some(handle)) = (cursor.key(), cursor.handle())
        {
            let role = if has_partitions { BlockRole::Index } else { BlockRole::Data };
            let (keys_from, first) = (self.keys_from.clone(), self.verified.problems.len());
            if let Some(block) = self.block(handle, role) {
                if has_partitions {
                    self.found.index_partitions += 1;
                    self.index(block, false);
                } else {
                    self.found.data_blocks += 1;
                    self.data_end = handle.range().end;
                    self.data(block, handle.offset);
                }
            }
            self.walked_to = handle.range().end;
            self.separator(separator, handle.offset);
            self.note_keys(first, &keys_from, separator);
            cursor.next();
        }
    }

    /// Sets the range of keys, up to `separator`, of the problems from index `first` on that have
    /// none yet.
    fn note_keys(&mut self, first: usize, keys_from: &Bound<Bytes>, separator: InternalKey<'_>) {
        let user_key = Bytes::copy_from_slice(separator.user_key);
        for problem in &mut self.verified.problems[first..] {
            let bounds = &self.table.properties().bounds;
            let last = match bounds.is_unbounded() {
                true => separator.user_key,
                false => separator.user_key.min(&*bounds.largest),
            };
            let last = Bytes::copy_from_slice(last);
            problem.keys.get_or_insert_with(|| (keys_from.clone(), Bound::Included(last)));
        }
        // If the next block has older versions of the last user key, the separator is the last
        // entry itself.
        self.keys_from = match separator.trailer {
            Trailer::OLDEST => Bound::Excluded(user_key),
            _ => Bound::Included(user_key),
        };
    }

    fn data(&mut self, block: Block, offset: u64) {
        let mut cursor = BlockCursor::new(block);
        cursor.seek_to_first();
        while !self.is_stopped
            && let Some(key) = cursor.key()
        {
            if self.last().is_some_and(|last| last >= key) {
                self.problem(offset, Corruption::Order { what: "entries across blocks" });
            }
            self.count(key, cursor.value().len());
            self.set_last(key);
            cursor.next();
        }
    }

    /// Checks that all entries so far are at or before `separator`; the following must be after it.
    fn separator(&mut self, separator: InternalKey<'_>, offset: u64) {
        if self.last().is_some_and(|last| last > separator) {
            self.problem(offset, Corruption::Order { what: "separator of a block" });
        } else {
            self.set_last(separator);
        }
    }

    fn last(&self) -> Option<InternalKey<'_>> {
        self.last.as_ref().map(|(user_key, trailer)| InternalKey::new(user_key, *trailer))
    }

    fn set_last(&mut self, key: InternalKey<'_>) {
        let (user_key, trailer) = self.last.get_or_insert_with(|| (Vec::new(), key.trailer));
        user_key.clear();
        user_key.extend_from_slice(key.user_key);
        *trailer = key.trailer;
    }

    fn count(&mut self, key: InternalKey<'_>, value_bytes: usize) {
        let (sequence, kind) = (key.trailer.sequence(), key.trailer.kind());
        let is_first = self.verified.entries == 0;
        self.verified.entries += 1;
        let found = &mut self.found;
        found.add_entry(kind, sequence);
        found.key_bytes += key.user_key.len() as u64;
        found.value_bytes += value_bytes as u64;
        if is_first {
            found.bounds.smallest = key.user_key.into();
        }
        if self.last_user_key.as_deref() != Some(key.user_key) {
            found.user_keys += 1;
            let last = self.last_user_key.get_or_insert_default();
            last.clear();
            last.extend_from_slice(key.user_key);
            self.is_stopped = (self.on_key)(key.user_key).is_break();
        }
    }

    /// Compares the statistics with the properties.
    fn finish(mut self) -> Verified {
        if self.is_complete && !self.is_stopped {
            let footer = Footer::read(&**self.table.source());
            let block = footer.ok().and_then(|footer| footer.block(BlockKind::Properties));
            let offset = block.map_or(0, |block| block.offset);
            for source in self.differences() {
                self.problem(offset, source);
            }
        }
        self.verified
    }

    fn differences(&self) -> Vec<Corruption> {
        let (recorded, found) = (self.table.properties(), &self.found);
        let mut numbers = vec![
            ("user_keys", recorded.user_keys, found.user_keys),
            ("key_bytes", recorded.key_bytes, found.key_bytes),
            ("value_bytes", recorded.value_bytes, found.value_bytes),
            ("data_blocks", recorded.data_blocks, found.data_blocks),
            ("index_partitions", recorded.index_partitions, found.index_partitions),
        ];
        let points = Kind::ALL.into_iter().filter(|&kind| kind != Kind::RangeTombstone);
        numbers.extend(points.map(|kind| ("counts", recorded.count(kind), found.count(kind))));
        let mut differences: Vec<_> = numbers
            .into_iter()
            .filter(|(_, recorded, found)| recorded != found)
            .map(|(what, expected, found)| Corruption::Mismatch { what, expected, found })
            .collect();
        // Range tombstones may widen the bounds.
        let largest = self.last_user_key.as_deref().unwrap_or_default();
        let is_within = found.user_keys == 0
            || recorded.bounds.holds(&found.bounds.smallest) && recorded.bounds.holds(largest);
        if !is_within {
            differences.push(Corruption::Order { what: "bounds of the properties" });
        }
        let sequences = recorded.smallest_sequence..=recorded.largest_sequence;
        let is_within = found.user_keys == 0
            || sequences.contains(&found.smallest_sequence)
                && sequences.contains(&found.largest_sequence);
        if !is_within {
            differences.push(Corruption::Order { what: "sequence numbers of the properties" });
        }
        differences
    }
}

#[cfg(test)]
mod tests {
    use std::{ops::RangeBounds as _, sync::Arc};

    use super::*;
    use crate::{BlockCache, CursorOptions, TableIdentity, TableOptions, TableWriter};

    const IDENTITY: TableIdentity =
        TableIdentity { store_id: 1, file_id: 2, salt: 3, hash_seed: 4 };

    /// A table with two levels of index, and its file.
    fn table() -> (Vec<u8>, u64) {
        let options = TableOptions::new().block_bytes(1 << 10).index_partition_bytes(1 << 10);
        let mut writer = TableWriter::new(Vec::new(), IDENTITY, options).unwrap();
        for number in 0..3_000_u32 {
            for sequence in [number * 2 + 2, number * 2 + 1] {
                let trailer = Trailer::new(sequence.into(), Kind::Put);
                let user_key = [&[7; 40][..], &number.to_be_bytes()].concat();
                let value = number.wrapping_mul(0x9e37_79b9).to_le_bytes();
                writer.add(InternalKey::new(&user_key, trailer), &value).unwrap();
            }
        }
        let (bytes, summary) = writer.finish().unwrap();
        (bytes, summary.checksum)
    }

    fn open(bytes: &[u8]) -> Result<Table, ReadError> {
        let (source, cache) = (Bytes::copy_from_slice(bytes), Arc::new(BlockCache::new(0)));
        Table::open(Arc::new(source), IDENTITY, bytes.len() as u64, cache)
    }

    #[test]
    fn an_intact_table_has_no_problem() {
        let (bytes, checksum) = table();
        let (mut keys, mut seen) = (0_u32, 0);
        let verified = open(&bytes).unwrap().verify(&mut |key| {
            assert_eq!(key[40..], keys.to_be_bytes());
            keys += 1;
        });
        assert!(verified.problems.is_empty(), "{:?}", verified.problems);
        assert_eq!((keys, verified.entries), (3_000, 6_000));
        assert!(verified.blocks > 30, "{}", verified.blocks);
        let found = file_checksum(&Bytes::from(bytes.clone()), &mut |bytes| {
            seen += bytes;
            ControlFlow::Continue(())
        });
        assert_eq!((found.unwrap(), seen), (checksum, bytes.len() as u64));
    }

    #[test]
    fn n11_verify_stops_when_the_callback_breaks() {
        let (bytes, _) = table();
        let mut keys = 0;
        let verified = open(&bytes).unwrap().verify_while(&mut |_| {
            keys += 1;
            if keys == 1_000 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        assert_eq!((keys, verified.entries, verified.problems.len()), (1_000, 1_999, 0));
    }

    #[test]
    fn every_damaged_block_is_listed() {
        let (mut bytes, _) = table();
        let table = open(&bytes).unwrap();
        let mut offsets = vec![64, 5_000, 20_000];
        for &at in &offsets {
            bytes[at + 3] ^= 1;
        }
        drop(table);
        let verified = open(&bytes).unwrap().verify(&mut |_| ());
        assert_eq!(verified.problems.len(), 3, "{:?}", verified.problems);
        for TableProblem { error, keys, bytes } in verified.problems {
            assert!((1..3_000).contains(&bytes), "{bytes} bytes");
            let ReadError::Corrupt { offset, .. } = error else { panic!("{error:?}") };
            let damaged = offsets.remove(0) as u64;
            assert!(offset <= damaged + 3 && damaged < offset + 2_000, "{offset} for {damaged}");
            assert!(keys.is_some(), "{error:?}");
        }
    }

    #[test]
    fn a_damaged_block_is_named_by_its_keys() {
        let (mut bytes, _) = table();
        let number = |key: &[u8]| u32::from_be_bytes(key[40..].try_into().unwrap());
        // All keys, to find those in damaged blocks.
        let mut good = Vec::new();
        open(&bytes).unwrap().verify(&mut |key| good.push(number(key)));
        for at in [67, 5_003, 20_003] {
            bytes[at] ^= 1;
        }
        let mut read = Vec::new();
        let verified = open(&bytes).unwrap().verify(&mut |key| read.push(number(key)));
        let ranges: Vec<_> = verified.problems.iter().map(|it| it.keys.clone().unwrap()).collect();
        let is_in = |key: u32| {
            let key = [&[7; 40][..], &key.to_be_bytes()].concat();
            ranges.iter().any(|range| range.contains(&Bytes::from(key.clone())))
        };
        let mut lost: Vec<u32> = good.iter().copied().filter(|&key| is_in(key)).collect();
        for key in &read {
            // A key at an edge may have versions on both sides.
            lost.retain(|lost| lost != key);
        }
        let missing: Vec<u32> = good.iter().copied().filter(|key| !read.contains(key)).collect();
        assert!(!missing.is_empty() && lost == missing, "{lost:?} for {missing:?}");
        let named = good.iter().filter(|&&key| is_in(key)).count();
        assert!(named <= missing.len() + 2 * ranges.len(), "{named} for {}", missing.len());

        let table = Arc::new(open(&bytes).unwrap());
        let skipping = CursorOptions { skip_damaged: true, ..CursorOptions::default() };
        let mut cursor = table.cursor(skipping);
        let mut found = Vec::new();
        cursor.seek_to_first().unwrap();
        while let Some(key) = cursor.key() {
            found.push((number(key.user_key), key.trailer.sequence()));
            cursor.next().unwrap();
        }
        assert_eq!(found.len() as u64, verified.entries);
        let mut backwards = Vec::new();
        cursor.seek_to_last().unwrap();
        while let Some(key) = cursor.key() {
            backwards.push((number(key.user_key), key.trailer.sequence()));
            cursor.prev().unwrap();
        }
        backwards.reverse();
        assert_eq!(found, backwards);
        // A seek into a damaged block moves to the next block.
        for &key in &missing {
            let user_key = [&[7; 40][..], &key.to_be_bytes()].concat();
            cursor
                .seek(InternalKey::new(&user_key, Trailer::new(u64::MAX >> 8, Kind::Put)))
                .unwrap();
            let next = found.iter().find(|(other, _)| *other > key);
            let next_found =
                cursor.key().map(|found| (number(found.user_key), found.trailer.sequence()));
            assert_eq!(next_found.as_ref(), next, "{key}");
        }
    }
}
