//! Blocks of sorted entries with shared prefixes.

use std::{ops::Range, path::Path, sync::Arc};

use super::footer::Handle;
use crate::{
    decoder::Decoder,
    error::{Error, Result},
};

/// The last 4 bytes of a block: flags, and the number of restart points.
const HASH_INDEX: u32 = 1 << 31;
const RESERVED: u32 = 1 << 30;
/// Hint for searches.
const UNIFORM_KEYS: u32 = 1 << 29;
/// Values follow all keys.
const SEPARATE_VALUES: u32 = 1 << 28;

/// Length of a block trailer, between a block and the next.
const TRAILER: u64 = super::footer::TRAILER_BYTES as u64;

/// Encoding of the values of an index.
#[derive(Debug, Clone, Copy)]
pub(crate) struct IndexCoding {
    /// Consecutive handles are differences, without a length.
    pub(crate) is_delta: bool,
    /// The first key of the block follows its handle.
    pub(crate) has_first_keys: bool,
}

/// A decompressed block, read from front to back.
#[derive(Debug)]
pub(crate) struct Block {
    data: Vec<u8>,
    path: Arc<Path>,
    /// Offset of the block in the file.
    offset: u64,
    /// Position of the next entry.
    at: usize,
    keys_end: usize,
    restarts: Range<usize>,
    /// Position of the value section, if values are separate from keys.
    values_start: Option<usize>,
    /// Number of the next restart point at or after `at`.
    restart: usize,
    key: Vec<u8>,
    value: Range<usize>,
    /// `true` if the last key shared bytes with its predecessor.
    is_shared: bool,
}

impl Block {
    /// Returns the block `data` at `offset` of the file `path`.
    pub(crate) fn new(data: Vec<u8>, path: &Arc<Path>, offset: u64) -> Result<Self> {
        let corrupt = |reason: &str| Error::corrupt(path, offset, reason);
        let fixed = |at: usize| {
            let bytes = data.get(at..at.checked_add(4)?)?;
            Some(u32::from_le_bytes(bytes.try_into().ok()?))
        };
        let mut end =
            data.len().checked_sub(4).ok_or_else(|| corrupt("the block has no footer"))?;
        let packed = fixed(end).ok_or_else(|| corrupt("the block has no footer"))?;
        if packed & RESERVED != 0 {
            return Err(Error::unsupported(path, "block with a footer of a later release"));
        }
        let mut values_start = None;
        if packed & SEPARATE_VALUES != 0 {
            end = end.checked_sub(4).ok_or_else(|| corrupt("the block has no value section"))?;
            values_start = fixed(end).map(|at| at as usize);
        }
        if packed & HASH_INDEX != 0 {
            let count = end.checked_sub(2).and_then(|at| data.get(at..end));
            let count = count.ok_or_else(|| corrupt("the hash index is truncated"))?;
            let buckets = usize::from(u16::from_le_bytes([count[0], count[1]]));
            end = end
                .checked_sub(2 + buckets)
                .ok_or_else(|| corrupt("the hash index is longer than the block"))?;
        }
        let count = packed & !(HASH_INDEX | UNIFORM_KEYS | SEPARATE_VALUES);
        let start = (count as usize).checked_mul(4).and_then(|bytes| end.checked_sub(bytes));
        let start = start.ok_or_else(|| corrupt("the restart points are longer than the block"))?;
        let keys_end = values_start.unwrap_or(start);
        if keys_end > start {
            return Err(corrupt("the value section is outside of the block"));
        }
        Ok(Self {
            data,
            path: Arc::clone(path),
            offset,
            at: 0,
            keys_end,
            restarts: start..end,
            values_start,
            restart: 0,
            key: Vec::new(),
            value: 0..0,
            is_shared: false,
        })
    }

    pub(crate) fn key(&self) -> &[u8] {
        &self.key
    }

    pub(crate) fn value(&self) -> &[u8] {
        &self.data[self.value.clone()]
    }

    /// Returns the offset of the block in the file.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns the position of the value in the block.
    pub(crate) fn value_position(&self) -> usize {
        self.value.start
    }

    pub(crate) fn corrupt(&self, reason: &str) -> Error {
        Error::corrupt(&self.path, self.offset, reason)
    }

    /// Moves to the next entry. Returns `false` at the end.
    pub(crate) fn advance(&mut self) -> Result<bool> {
        self.advance_to(true)
    }

    /// Moves to the next entry of an index. Returns its handle, or `None` at the end.
    ///
    /// `previous` is the handle of the previous entry.
    pub(crate) fn advance_index(
        &mut self,
        coding: IndexCoding,
        previous: Option<Handle>,
    ) -> Result<Option<Handle>> {
        if !self.advance_to(!coding.is_delta)? {
            return Ok(None);
        }
        if !coding.is_delta {
            let value = &self.data[self.value.clone()];
            let mut decoder = Decoder::new(value, &self.path, self.offset);
            return Handle::decode(&mut decoder).map(Some);
        }
        let values_end =
            if self.values_start.is_some() { self.restarts.start } else { self.keys_end };
        let bytes = self.data.get(self.value.start..values_end).unwrap_or_default();
        let mut decoder = Decoder::new(bytes, &self.path, self.offset);
        let handle = match previous.filter(|_| self.is_shared) {
            None if self.is_shared => {
                return Err(decoder.corrupt("the first handle is a difference"));
            }
            None => Handle::decode(&mut decoder)?,
            Some(previous) => {
                let difference = decoder.zigzag64("block handle")?;
                let size = previous.size.checked_add_signed(difference);
                let offset = previous.offset.checked_add(previous.size);
                match (size, offset.and_then(|end| end.checked_add(TRAILER))) {
                    (Some(size), Some(offset)) => Handle { offset, size },
                    _ => return Err(decoder.corrupt("a block handle is out of range")),
                }
            }
        };
        if coding.has_first_keys {
            decoder.prefixed("first key")?;
        }
        self.value.end = values_end - decoder.len();
        if self.values_start.is_none() {
            self.at = self.value.end;
        }
        Ok(Some(handle))
    }

    /// Moves to the next entry. `is_sized`: the length of the value is stored.
    fn advance_to(&mut self, is_sized: bool) -> Result<bool> {
        if self.at >= self.keys_end {
            return Ok(false);
        }
        let is_restart = self.is_restart();
        let mut decoder = Decoder::new(&self.data[self.at..self.keys_end], &self.path, self.offset);
        let shared = decoder.varint32("shared length")? as usize;
        let unshared = decoder.varint32("key length")? as usize;
        let len = if is_sized { decoder.varint32("value length")? as usize } else { 0 };
        let value_offset = match self.values_start.filter(|_| is_restart) {
            Some(_) => Some(decoder.varint32("value offset")? as usize),
            None => None,
        };
        if shared > self.key.len() {
            return Err(decoder.corrupt("a key shares more bytes than its predecessor has"));
        }
        let suffix = decoder.bytes(unshared, "key")?;
        let mut at = self.keys_end - decoder.len();
        self.key.truncate(shared);
        self.key.extend_from_slice(suffix);
        self.is_shared = shared > 0;
        let (start, limit) = match (self.values_start, value_offset) {
            (None, _) => (at, self.keys_end),
            (Some(values), Some(offset)) => (values.saturating_add(offset), self.restarts.start),
            (Some(_), None) => (self.value.end, self.restarts.start),
        };
        match start.checked_add(len) {
            Some(end) if end <= limit => self.value = start..end,
            _ => return Err(self.corrupt("a value is longer than the block")),
        }
        if self.values_start.is_none() {
            at = self.value.end;
        }
        self.at = at;
        Ok(true)
    }

    /// Returns `true` if the entry at the position is a restart point.
    fn is_restart(&mut self) -> bool {
        while let Some(bytes) = self.data[self.restarts.clone()].get(4 * self.restart..)
            && let Some(bytes) = bytes.first_chunk()
        {
            let restart = u32::from_le_bytes(*bytes) as usize;
            if restart >= self.at {
                return restart == self.at;
            }
            self.restart += 1;
        }
        false
    }
}
