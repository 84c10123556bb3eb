//! Reads the data blocks of a table without its footer and index.
//!
//! A stored block has no length of its own; the index has it. But its checksum covers offset and
//! length. So a block that starts at a known offset ends where the checksum is right. Blocks follow
//! each other without gaps from the end of the file header on, so each block gives the start of the
//! next one. Behind a damaged block the scan tries each offset as a start.
//!
//! CRC-32 is linear: the checksum of prefix and content is computed from those of the two parts, so
//! one pass over the bytes tests all ends of a block.

use std::{collections::BTreeMap, ops::Bound, ops::Range};

use bytes::Bytes;
use sievedb_format::{
    InternalKey, KEY_BYTES_MAX, VALUE_BYTES_MAX, checksum::crc32, file_header::HEADER_BYTES,
};

use crate::{
    block::{
        Block, BlockCursor, BlockRole,
        stored::{Stored, TRAILER_BYTES, TYPE_ZSTD_DICTIONARY},
        zstd::Dictionary,
    },
    handle::BlockHandle,
};

/// The polynomial of CRC-32, reflected.
const POLYNOMIAL: u32 = 0xedb8_8320;
/// The polynomial 1, reflected.
const ONE: u32 = 1 << 31;
/// Behind damage, the scan looks only for blocks that are no longer than this, or than twice the
/// longest block so far.
const SEARCHED_BLOCK_BYTES: usize = 16 << 10;
/// No block begins with so many zeros: its content says how long its parts are.
const ZEROS: [u8; 64] = [0; 64];
/// What a dictionary of zstd begins with.
const DICTIONARY_MAGIC: [u8; 4] = 0xec30_a437_u32.to_le_bytes();
/// No dictionary is longer, with what protects it.
const DICTIONARY_BYTES_MAX: usize = 2 << 20;
/// Zeros up to a multiple of this lie between the top index and a filter.
const FILTER_ALIGN: u64 = 64;
/// No block of entries is longer: it ends with the entry that exceeds the largest block size.
const CONTENT_BYTES_MAX: u64 = (KEY_BYTES_MAX + VALUE_BYTES_MAX + (2 << 20)) as u64;

/// The data blocks of a table whose footer or index cannot be read. Keeps the whole file in memory.
#[derive(Debug)]
pub struct RescannedTable {
    file: Bytes,
    salt: u64,
    dictionary: Option<Dictionary>,
    data: Vec<BlockHandle>,
    gaps: Vec<Gap>,
    entries: u64,
}

/// A part of a table file in which no block can be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gap {
    /// Offsets in the file, in bytes.
    pub place: Range<u64>,
    /// Range of the user keys that the lost blocks may have held, by the blocks around them.
    pub keys: (Bound<Bytes>, Bound<Bytes>),
}

impl RescannedTable {
    /// Scans the bytes of a table file for data blocks that were written with `salt`.
    ///
    /// The scan ends after `entries_max` entries, at the top index, or at the offset `end`. Pass
    /// `u64::MAX` for a limit that is not known. Costs some nanoseconds for each byte, and some 50
    /// µs for each byte of a damaged block, except for zeros: a MiB of other damage takes about a
    /// minute.
    #[must_use]
    pub fn scan(file: &Bytes, salt: u64, entries_max: u64, end: u64) -> Self {
        let end = usize::try_from(end).unwrap_or(usize::MAX).min(file.len());
        let mut table = Self {
            file: file.clone(),
            salt,
            dictionary: None,
            data: Vec::new(),
            gaps: Vec::new(),
            entries: 0,
        };
        table.dictionary = table.find_dictionary();
        table.file.truncate(end);
        let mut scan = Scan::default();
        let mut at = HEADER_BYTES;
        while at < end && table.entries < entries_max && !scan.is_complete {
            let found = match table.block_at(at, end) {
                Some(handle) => Some(handle),
                None => table.search_behind(at, scan.longest),
            };
            let next = found.map_or(end, |handle| handle.offset as usize);
            if at < next {
                scan.lost(at as u64..next as u64);
            }
            let Some(handle) = found else { break };
            table.add(handle, &mut scan);
            at = (handle.offset + handle.bytes) as usize;
        }
        if table.entries < entries_max && !scan.is_complete && at < end {
            // The file ends after a block, and before the last data block.
            scan.lost(at as u64..end as u64);
        }
        let is_padding = |place: &Range<u64>| {
            let index = scan.index.last_key_value();
            let follows_index = index.is_some_and(|(at, bytes)| at + bytes == place.start);
            follows_index && place.end - place.start < FILTER_ALIGN
        };
        if let Some(place) = scan.gap.take_if(|place| !is_padding(place)) {
            let from = scan.last_key.map_or(Bound::Unbounded, Bound::Excluded);
            table.gaps.push(Gap { place, keys: (from, Bound::Unbounded) });
        }
        if table.entries >= entries_max {
            // Bytes behind the last entry are not data.
            let data_end = table.data.last().map_or(0, |last| last.offset);
            table.gaps.retain(|gap| gap.place.start < data_end);
        }
        table
    }

    /// Returns the parts of the file in which data was lost, in file order.
    #[must_use]
    pub fn gaps(&self) -> &[Gap] {
        &self.gaps
    }

    /// Returns the number of data blocks found.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.data.len() as u64
    }

    /// Returns the number of entries found.
    #[must_use]
    pub fn entries(&self) -> u64 {
        self.entries
    }

    /// Returns a cursor at the first entry.
    #[must_use]
    pub fn into_cursor(self) -> RescannedCursor {
        let mut cursor = RescannedCursor { table: self, next_block: 0, block: None };
        cursor.skip_to_entry();
        cursor
    }

    /// The block that starts at `at` and ends before `end`.
    fn block_at(&self, at: usize, end: usize) -> Option<BlockHandle> {
        let bytes = &self.file[at..end.min(self.file.len())];
        let (mut content, mut power) = (!0_u32, ONE);
        for (length, trailer) in bytes.windows(TRAILER_BYTES).enumerate() {
            let [type_byte, c0, c1, c2, c3] = *trailer else { return None };
            if type_byte <= TYPE_ZSTD_DICTIONARY && length > 0 {
                let want = u32::from_le_bytes([c0, c1, c2, c3]);
                let prefix = self.prefix_checksum(at as u64, length as u64, type_byte);
                if multiply(power, prefix) ^ !content == want {
                    let bytes = (length + TRAILER_BYTES) as u64;
                    let handle = BlockHandle { offset: at as u64, bytes };
                    // One in 2^32 wrong ends passes by chance.
                    if self.stored(handle).is_some() {
                        return Some(handle);
                    }
                }
            }
            content = step(content ^ u32::from(type_byte));
            power = step(power);
        }
        None
    }

    /// The first block that starts behind `at`.
    fn search_behind(&self, at: usize, longest: usize) -> Option<BlockHandle> {
        let bytes_max = SEARCHED_BLOCK_BYTES.max(2 * longest);
        let starts = (at + 1..self.file.len()).filter(|&at| !self.file[at..].starts_with(&ZEROS));
        let mut blocks = starts.filter_map(|start| self.block_at(start, start + bytes_max));
        blocks.find(|&handle| {
            [BlockRole::Data, BlockRole::Index]
                .iter()
                .any(|&role| self.decode(handle, role).is_some())
        })
    }

    /// The dictionary, which lies behind the data: the last block that begins like one.
    fn find_dictionary(&self) -> Option<Dictionary> {
        let magics = self.file.windows(DICTIONARY_MAGIC.len()).enumerate().rev();
        let mut starts = magics.filter(|(_, bytes)| **bytes == DICTIONARY_MAGIC).map(|(at, _)| at);
        starts.find_map(|at| {
            let handle = self.block_at(at, at + DICTIONARY_BYTES_MAX)?;
            let content = self.stored(handle)?.content(CONTENT_BYTES_MAX, None).ok()?;
            Dictionary::decode(&content).ok()
        })
    }

    /// The checksum of what precedes the content in the checksum of a block.
    fn prefix_checksum(&self, offset: u64, length: u64, type_byte: u8) -> u32 {
        let (salt, offset, length) =
            (self.salt.to_le_bytes(), offset.to_le_bytes(), length.to_le_bytes());
        crc32(&[&salt, &offset, &length, &[type_byte]])
    }

    fn stored(&self, handle: BlockHandle) -> Option<Stored> {
        let place = handle.offset as usize..(handle.offset + handle.bytes) as usize;
        Stored::open(self.file.slice(place), self.salt, handle.offset).ok()
    }

    fn decode(&self, handle: BlockHandle, role: BlockRole) -> Option<Block> {
        let content =
            self.stored(handle)?.content(CONTENT_BYTES_MAX, self.dictionary.as_ref()).ok()?;
        Block::decode(content, role, handle).ok()
    }

    /// Adds a block that was found: of data, of the index, or of something else.
    fn add(&mut self, handle: BlockHandle, scan: &mut Scan) {
        let index = self.decode(handle, BlockRole::Index);
        if let Some(leads_to_index) = index.and_then(|index| scan.leads_to(index)) {
            scan.index.insert(handle.offset, handle.bytes);
            // Two levels: the top index leads to partitions. One level: it leads to the first data
            // block, and so does the first partition; then the scan meets the top index later.
            scan.is_complete = leads_to_index;
            return;
        }
        let Some(block) = self.decode(handle, BlockRole::Data) else {
            // Compressed with a dictionary that is lost.
            return scan.lost(handle.place());
        };
        let mut cursor = BlockCursor::new(block);
        cursor.seek_to_first();
        let Some(first) = cursor.key().map(|key| Bytes::copy_from_slice(key.user_key)) else {
            return;
        };
        if scan.last_key.as_ref().is_some_and(|last| first < last) {
            return;
        }
        if let Some(place) = scan.gap.take() {
            let from = scan.last_key.clone().map_or(Bound::Unbounded, Bound::Excluded);
            self.gaps.push(Gap { place, keys: (from, Bound::Included(first)) });
        }
        while let Some(key) = cursor.key() {
            self.entries += 1;
            scan.set_last(key.user_key);
            cursor.next();
        }
        scan.longest = scan.longest.max(handle.bytes as usize);
        scan.data.insert(handle.offset, handle.bytes);
        self.data.push(handle);
    }
}

/// A cursor over the entries of a [`RescannedTable`], in the order of internal keys.
#[derive(Debug)]
pub struct RescannedCursor {
    table: RescannedTable,
    next_block: usize,
    block: Option<BlockCursor>,
}

impl RescannedCursor {
    /// Returns the current internal key; `None` behind the last one.
    #[must_use]
    pub fn key(&self) -> Option<InternalKey<'_>> {
        self.block.as_ref()?.key()
    }

    /// Returns the current value; empty behind the last entry.
    #[must_use]
    pub fn value(&self) -> &[u8] {
        let block = self.block.as_ref().filter(|block| block.key().is_some());
        block.map_or(&[], BlockCursor::value_ref)
    }

    /// Moves to the next entry.
    pub fn next(&mut self) {
        if let Some(block) = &mut self.block {
            block.next();
        }
        self.skip_to_entry();
    }

    fn skip_to_entry(&mut self) {
        while self.key().is_none() {
            let Some(&handle) = self.table.data.get(self.next_block) else { return };
            self.next_block += 1;
            self.block = self.table.decode(handle, BlockRole::Data).map(|block| {
                let mut cursor = BlockCursor::new(block);
                cursor.seek_to_first();
                cursor
            });
        }
    }
}

/// How far a scan has come.
#[derive(Debug, Default)]
struct Scan {
    /// Lengths of the data blocks found, by their offsets.
    data: BTreeMap<u64, u64>,
    /// Lengths of the index blocks found, by their offsets.
    index: BTreeMap<u64, u64>,
    /// The user key of the last entry.
    last_key: Option<Bytes>,
    /// Bytes behind the last data block in which data may have been.
    gap: Option<Range<u64>>,
    longest: usize,
    /// Whether the top index was met.
    is_complete: bool,
}

impl Scan {
    fn lost(&mut self, place: Range<u64>) {
        let start = self.gap.as_ref().map_or(place.start, |gap| gap.start);
        self.gap = Some(start..place.end);
    }

    fn set_last(&mut self, user_key: &[u8]) {
        if self.last_key.as_deref() != Some(user_key) {
            self.last_key = Some(Bytes::copy_from_slice(user_key));
        }
    }

    /// Whether the entries of `index` lead to other index blocks, or to data blocks; `None` if they
    /// lead to no block that was found, so that it is no index.
    fn leads_to(&self, index: Block) -> Option<bool> {
        let mut cursor = BlockCursor::new(index);
        cursor.seek_to_first();
        let (mut to_data, mut to_index) = (0_u64, 0_u64);
        while let Some(BlockHandle { offset, bytes }) = cursor.handle() {
            to_data += u64::from(self.data.get(&offset) == Some(&bytes));
            to_index += u64::from(self.index.get(&offset) == Some(&bytes));
            cursor.next();
        }
        (to_data + to_index > 0).then_some(to_index > 0)
    }
}

/// Multiplies a reflected polynomial by x^8, modulo the CRC's, or feeds a byte that was added to a
/// state.
fn step(value: u32) -> u32 {
    TABLE[(value & 0xff) as usize] ^ (value >> 8)
}

const TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut at = 0;
    while at < table.len() {
        let mut value = at as u32;
        let mut bit = 0;
        while bit < 8 {
            value = if value & 1 == 1 { (value >> 1) ^ POLYNOMIAL } else { value >> 1 };
            bit += 1;
        }
        table[at] = value;
        at += 1;
    }
    table
};

/// The product of two reflected polynomials modulo the CRC's.
fn multiply(a: u32, mut b: u32) -> u32 {
    let mut product = 0;
    let mut bit = ONE;
    while bit > 0 {
        if a & bit > 0 {
            product ^= b;
        }
        bit >>= 1;
        b = if b & 1 == 1 { (b >> 1) ^ POLYNOMIAL } else { b >> 1 };
    }
    product
}

#[cfg(test)]
mod tests;
