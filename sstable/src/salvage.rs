//! Salvages the data blocks of a table without its footer and index.
//!
//! A stored block does not record its length; the index does. The checksum of a block covers offset
//! and length, so a block with a known start ends where the checksum matches. Blocks are contiguous
//! from the end of the file header on, so the end of one is the start of the next. After a damaged
//! block the scan tries every offset as a start.
//!
//! CRC-32 is linear: the checksum of prefix and content follows from those of the two parts. So one
//! pass over the bytes tests all ends of a block.

mod crc;
mod window;

use std::{
    collections::BTreeMap,
    io,
    ops::{Bound, Range},
    sync::Arc,
};

use bytes::Bytes;
use sievedb_format::{InternalKey, checksum::crc32, file_header::HEADER_BYTES};

use crate::{
    block::{
        Block, BlockCursor, BlockHandle, BlockRole,
        stored::{CONTENT_BYTES_MAX, Stored, TRAILER_BYTES, TYPE_ZSTD_DICTIONARY},
        zstd::Dictionary,
    },
    source::TableSource,
};

use self::{
    crc::{ONE, multiply, step},
    window::Window,
};

/// After damage, the scan finds blocks up to this length, or twice the longest block so far, in
/// bytes.
const SEARCHED_BLOCK_BYTES: u64 = 16 << 10;
/// More zeros than any block starts with, because its header has nonzero lengths.
const ZEROS: [u8; 64] = [0; 64];
/// Magic number of a zstd dictionary.
const DICTIONARY_MAGIC: [u8; 4] = 0xec30_a437_u32.to_le_bytes();
/// Maximum length of a stored dictionary.
const DICTIONARY_BYTES_MAX: u64 = 2 << 20;
/// Alignment of filters, which padding precedes.
const FILTER_ALIGN: u64 = 64;

/// Data blocks of a table whose footer or index cannot be read.
#[derive(Debug)]
pub struct SalvagedTable {
    source: Arc<dyn TableSource>,
    salt: u64,
    /// Searched when the first block needs it; then `Some(None)` if the dictionary is lost.
    dictionary: Option<Option<Dictionary>>,
    data: Vec<BlockHandle>,
    gaps: Vec<Gap>,
    entries: u64,
}

/// A range of a table file without a readable block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gap {
    /// File offsets, in bytes.
    pub range: Range<u64>,
    /// Range of the user keys that lost blocks may hold, from the blocks around the gap.
    pub keys: (Bound<Bytes>, Bound<Bytes>),
}

impl SalvagedTable {
    /// Scans a table file for data blocks that were written with `salt`.
    ///
    /// The scan ends after `entries_max` entries, at the top index, or at the offset `end`. Pass
    /// `u64::MAX` for an unknown limit.
    ///
    /// Costs a few nanoseconds per byte, and about 50 µs per byte of a damaged block that is not
    /// zero. A MiB of damage takes about a minute. Buffers 1 MiB of the file, or two blocks if they
    /// are longer, and takes 16 bytes of memory per block.
    ///
    /// # Errors
    ///
    /// Those of the source, which should return zeros for unreadable sectors.
    pub fn scan(
        source: Arc<dyn TableSource>,
        salt: u64,
        entries_max: u64,
        end: u64,
    ) -> io::Result<Self> {
        let is_truncated = end < u64::MAX && source.len() < end;
        let end = end.min(source.len());
        let (dictionary, data, gaps) = (None, Vec::new(), Vec::new());
        let mut table = Self { source, salt, dictionary, data, gaps, entries: 0 };
        let mut window = Window::new(Arc::clone(&table.source), end);
        let mut scan = Scan::default();
        let mut at = HEADER_BYTES as u64;
        while at < end && table.entries < entries_max && !scan.is_complete {
            let found = match table.block_at(&mut window, at, end)? {
                Some(handle) => Some(handle),
                None => table.search_behind(&mut window, at, scan.longest)?,
            };
            let next = found.map_or(end, |handle| handle.offset);
            if at < next {
                scan.add_lost(at..next);
            }
            let Some(handle) = found else { break };
            table.add(handle, &mut scan)?;
            at = handle.range().end;
        }
        if table.entries < entries_max && !scan.is_complete && (at < end || is_truncated) {
            // The file ends before its data, possibly at the end of a block.
            scan.add_lost(at..end);
        }
        let is_padding = |range: &Range<u64>| {
            let index = scan.index.last_key_value();
            let follows_index = index.is_some_and(|(at, bytes)| at + bytes == range.start);
            !is_truncated && follows_index && range.end - range.start < FILTER_ALIGN
        };
        if let Some(range) = scan.gap.take_if(|range| !is_padding(range)) {
            let from = scan.last_key.map_or(Bound::Unbounded, Bound::Excluded);
            table.gaps.push(Gap { range, keys: (from, Bound::Unbounded) });
        }
        if table.entries >= entries_max {
            // All entries were found: later gaps hold no data.
            let data_end = table.data.last().map_or(0, |last| last.offset);
            table.gaps.retain(|gap| gap.range.start < data_end);
        }
        Ok(table)
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
    ///
    /// # Errors
    ///
    /// Those of the source.
    pub fn into_cursor(self) -> io::Result<SalvagedCursor> {
        let mut cursor = SalvagedCursor { table: self, next_block: 0, block: None };
        cursor.skip_to_entry()?;
        Ok(cursor)
    }

    /// Finds the block that starts at `at` and ends before `end`.
    fn block_at(&self, window: &mut Window, at: u64, end: u64) -> io::Result<Option<BlockHandle>> {
        let (mut content, mut power) = (!0_u32, ONE);
        let mut from = at;
        loop {
            let bytes = window.from(from, end)?;
            for (length, trailer) in (from - at..).zip(bytes.windows(TRAILER_BYTES)) {
                let [type_byte, c0, c1, c2, c3] = *trailer else { return Ok(None) };
                if type_byte <= TYPE_ZSTD_DICTIONARY && length > 0 {
                    let want = u32::from_le_bytes([c0, c1, c2, c3]);
                    let prefix = self.prefix_checksum(at, length, type_byte);
                    if multiply(power, prefix) ^ !content == want {
                        let handle =
                            BlockHandle { offset: at, bytes: length + TRAILER_BYTES as u64 };
                        // One of 2^32 wrong ends has a matching checksum.
                        if self.stored(handle)?.is_some() {
                            return Ok(Some(handle));
                        }
                    }
                }
                content = step(content ^ u32::from(type_byte));
                power = step(power);
            }
            if bytes.len() < TRAILER_BYTES {
                return Ok(None);
            }
            from += (bytes.len() - TRAILER_BYTES + 1) as u64;
        }
    }

    /// Finds the first block that starts after `at`.
    fn search_behind(
        &mut self,
        window: &mut Window,
        at: u64,
        longest: u64,
    ) -> io::Result<Option<BlockHandle>> {
        let bytes_max = SEARCHED_BLOCK_BYTES.max(2 * longest);
        for start in at + 1..window.end() {
            window.cover(start, bytes_max.max(ZEROS.len() as u64))?;
            if window.from(start, window.end())?.starts_with(&ZEROS) {
                continue;
            }
            let Some(handle) = self.block_at(window, start, start + bytes_max)? else { continue };
            for role in [BlockRole::Data, BlockRole::Index] {
                if self.decode(handle, role)?.is_some() {
                    return Ok(Some(handle));
                }
            }
        }
        Ok(None)
    }

    /// Finds the dictionary, which is after the data: the last block with its magic number.
    fn find_dictionary(&self) -> io::Result<Option<Dictionary>> {
        let mut window = Window::new(Arc::clone(&self.source), self.source.len());
        let mut end = self.source.len();
        while end > 0 {
            let start = end.saturating_sub(DICTIONARY_BYTES_MAX);
            // The magic number may cross the border of two reads.
            let length =
                (end - start + DICTIONARY_MAGIC.len() as u64 - 1).min(window.end() - start);
            // At most 2 MiB.
            let bytes = self.source.read_at(start, length as usize)?;
            let magics = bytes.windows(DICTIONARY_MAGIC.len()).enumerate().rev();
            for (at, _) in magics.filter(|(_, bytes)| **bytes == DICTIONARY_MAGIC) {
                let at = start + at as u64;
                let Some(handle) = self.block_at(&mut window, at, at + DICTIONARY_BYTES_MAX)?
                else {
                    continue;
                };
                let Some(stored) = self.stored(handle)? else { continue };
                let content = stored.content(CONTENT_BYTES_MAX, None);
                let found = content.and_then(|content| Dictionary::decode(&content));
                if let Ok(dictionary) = found {
                    return Ok(Some(dictionary));
                }
            }
            end = start;
        }
        Ok(None)
    }

    /// Returns the checksum of the fields before the content in the checksum of a block.
    fn prefix_checksum(&self, offset: u64, length: u64, type_byte: u8) -> u32 {
        let (salt, offset, length) =
            (self.salt.to_le_bytes(), offset.to_le_bytes(), length.to_le_bytes());
        crc32(&[&salt, &offset, &length, &[type_byte]])
    }

    fn stored(&self, handle: BlockHandle) -> io::Result<Option<Stored>> {
        let Ok(length) = usize::try_from(handle.bytes) else { return Ok(None) };
        let bytes = self.source.read_at(handle.offset, length)?;
        Ok(Stored::open(bytes, self.salt, handle.offset).ok())
    }

    fn decode(&mut self, handle: BlockHandle, role: BlockRole) -> io::Result<Option<Block>> {
        let Some(stored) = self.stored(handle)? else { return Ok(None) };
        if stored.type_byte == TYPE_ZSTD_DICTIONARY && self.dictionary.is_none() {
            self.dictionary = Some(self.find_dictionary()?);
        }
        let dictionary = self.dictionary.as_ref().and_then(Option::as_ref);
        let content = stored.content(CONTENT_BYTES_MAX, dictionary);
        Ok(content.and_then(|content| Block::decode(content, role, handle)).ok())
    }

    /// Adds a block of data, index or another kind.
    fn add(&mut self, handle: BlockHandle, scan: &mut Scan) -> io::Result<()> {
        let index = self.decode(handle, BlockRole::Index)?;
        if let Some(leads_to_index) = index.and_then(|index| scan.leads_to(index, &self.data)) {
            scan.index.insert(handle.offset, handle.bytes);
            // Only a top index leads to partitions. A top index of one level looks like the first
            // partition of two levels, so the scan continues.
            scan.is_complete = leads_to_index;
            return Ok(());
        }
        let Some(block) = self.decode(handle, BlockRole::Data)? else {
            // The dictionary of the block is lost.
            scan.add_lost(handle.range());
            return Ok(());
        };
        let mut cursor = BlockCursor::new(block);
        cursor.seek_to_first();
        let Some(first) = cursor.key().map(|key| Bytes::copy_from_slice(key.user_key)) else {
            return Ok(());
        };
        if scan.last_key.as_ref().is_some_and(|last| first < last) {
            return Ok(());
        }
        if let Some(range) = scan.gap.take() {
            let from = scan.last_key.clone().map_or(Bound::Unbounded, Bound::Excluded);
            self.gaps.push(Gap { range, keys: (from, Bound::Included(first)) });
        }
        while let Some(key) = cursor.key() {
            self.entries += 1;
            scan.set_last(key.user_key);
            cursor.next();
        }
        scan.longest = scan.longest.max(handle.bytes);
        self.data.push(handle);
        Ok(())
    }
}

/// A cursor over the entries of a [`SalvagedTable`], in the order of internal keys.
#[derive(Debug)]
pub struct SalvagedCursor {
    table: SalvagedTable,
    next_block: usize,
    block: Option<BlockCursor>,
}

impl SalvagedCursor {
    /// Returns the current internal key; `None` after the last entry.
    #[must_use]
    pub fn key(&self) -> Option<InternalKey<'_>> {
        self.block.as_ref()?.key()
    }

    /// Returns the current value; empty after the last entry.
    #[must_use]
    pub fn value(&self) -> &[u8] {
        let block = self.block.as_ref().filter(|block| block.key().is_some());
        block.map_or(&[], BlockCursor::value_ref)
    }

    /// Moves to the next entry.
    ///
    /// # Errors
    ///
    /// Those of the source.
    pub fn advance(&mut self) -> io::Result<()> {
        if let Some(block) = &mut self.block {
            block.next();
        }
        self.skip_to_entry()
    }

    fn skip_to_entry(&mut self) -> io::Result<()> {
        while self.key().is_none() {
            let Some(&handle) = self.table.data.get(self.next_block) else { return Ok(()) };
            self.next_block += 1;
            self.block = self.table.decode(handle, BlockRole::Data)?.map(|block| {
                let mut cursor = BlockCursor::new(block);
                cursor.seek_to_first();
                cursor
            });
        }
        Ok(())
    }
}

/// State of a scan.
#[derive(Debug, Default)]
struct Scan {
    /// Lengths of the index blocks found, by offset.
    index: BTreeMap<u64, u64>,
    /// User key of the last entry.
    last_key: Option<Bytes>,
    /// Range after the last data block that may have held data.
    gap: Option<Range<u64>>,
    longest: u64,
    /// `true` if the top index was found.
    is_complete: bool,
}

impl Scan {
    fn add_lost(&mut self, range: Range<u64>) {
        let start = self.gap.as_ref().map_or(range.start, |gap| gap.start);
        self.gap = Some(start..range.end);
    }

    fn set_last(&mut self, user_key: &[u8]) {
        if self.last_key.as_deref() != Some(user_key) {
            self.last_key = Some(Bytes::copy_from_slice(user_key));
        }
    }

    /// Returns `true` if `index` leads to other index blocks, and `false` if it leads to blocks of
    /// `data` only. Returns `None` if it leads to neither, and so is not an index.
    fn leads_to(&self, index: Block, data: &[BlockHandle]) -> Option<bool> {
        let mut cursor = BlockCursor::new(index);
        cursor.seek_to_first();
        let (mut to_data, mut to_index) = (0_u64, 0_u64);
        while let Some(BlockHandle { offset, bytes }) = cursor.handle() {
            to_data += u64::from(data.binary_search(&BlockHandle { offset, bytes }).is_ok());
            to_index += u64::from(self.index.get(&offset) == Some(&bytes));
            cursor.next();
        }
        (to_data + to_index > 0).then_some(to_index > 0)
    }
}

#[cfg(test)]
mod tests;
