//! The header of a block's content, and the positions of its entries.
//!
//! The table of fields is in [`super`].

use std::ops::Range;

use sievedb_format::{Corruption, Decoder, Encode, KEY_BYTES_MAX, Kind, SEQUENCE_MAX, Trailer};

use super::{BlockRole, stored::HANDLE_BYTES_MIN};

/// Kind byte of [`Trailer::OLDEST`].
const KIND_OLDEST: u8 = 0;

/// Kind byte of a block whose entries store their kinds themselves.
pub(super) const KIND_OF_EACH: u8 = 0xff;

/// Positions of `suffix_more` and `sequence_more` in the byte `widths`, in bits.
const SUFFIX_SHIFT: u32 = 3;
const SEQUENCE_SHIFT: u32 = 5;

/// Ends are 32-bit numbers.
const END_WIDTH_MAX: u8 = 4;

/// Positions of the parts of one entry in the content of its block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    /// The user key without the prefix of the block.
    pub(crate) suffix: Range<usize>,
    pub(crate) trailer: Trailer,
    /// The value, which ends where the next entry starts.
    pub(crate) value: Range<usize>,
}

/// Decoded header of a block: the common part of all entries, and the widths of their fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) entries: u32,
    /// Length of the shortest suffix.
    pub(super) suffix_bytes: u32,
    /// Entry `n` ends at least `(n + 1) * entry_bytes` bytes after `entries_at`.
    pub(super) entry_bytes: u32,
    pub(super) prefix_bytes: u32,
    /// The smallest sequence number.
    pub(super) sequence: u64,
    /// Position of the prefix, which the array of ends follows.
    pub(super) prefix_at: u32,
    /// Position of the first entry.
    pub(super) entries_at: u32,
    /// Kind byte of all entries, or [`KIND_OF_EACH`].
    pub(super) kind: u8,
    /// Bytes of each `end`, of each `suffix_more` and of each `sequence_more`.
    pub(super) end_width: u8,
    pub(super) suffix_width: u8,
    pub(super) sequence_width: u8,
}

/// Decoded fields before an entry's suffix.
#[derive(Debug, Clone, Copy)]
struct Head {
    suffix_bytes: usize,
    kind: u8,
    sequence: u64,
}

impl Layout {
    /// Layout of a block without entries.
    pub(super) const EMPTY: Self = Self {
        entries: 0,
        suffix_bytes: 0,
        entry_bytes: 0,
        prefix_bytes: 0,
        sequence: 0,
        prefix_at: 0,
        entries_at: 0,
        kind: 0,
        end_width: 0,
        suffix_width: 0,
        sequence_width: 0,
    };

    /// Appends the header, without prefix and ends.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.put_varint(self.entries.into());
        let suffix_width = self.suffix_width << SUFFIX_SHIFT;
        out.put_u8(self.end_width | suffix_width | self.sequence_width << SEQUENCE_SHIFT);
        out.put_u8(self.kind);
        out.put_varint(self.entry_bytes.into());
        out.put_varint(self.suffix_bytes.into());
        out.put_varint(self.sequence);
        out.put_varint(self.prefix_bytes.into());
    }

    /// Appends the field `end` of entry `index`, which ends `end` bytes after `entries_at`.
    pub(super) fn encode_end(&self, out: &mut Vec<u8>, index: usize, end: usize) {
        let least = (index + 1) * self.entry_bytes as usize;
        debug_assert!(least <= end, "entry_bytes is the minimum over all entries");
        put_field(out, (end - least) as u64, self.end_width);
    }

    /// Appends the fields before an entry's suffix.
    pub(super) fn encode_head(&self, out: &mut Vec<u8>, suffix_bytes: usize, trailer: Trailer) {
        debug_assert!(self.kind == KIND_OF_EACH || self.kind == kind_byte(trailer));
        debug_assert!(trailer.sequence() >= self.sequence);
        let suffix_bytes = suffix_bytes as u64 - u64::from(self.suffix_bytes);
        put_field(out, suffix_bytes, self.suffix_width);
        if self.kind == KIND_OF_EACH {
            out.put_u8(kind_byte(trailer));
        }
        put_field(out, trailer.sequence() - self.sequence, self.sequence_width);
    }

    /// Decodes the header of `content`. Entries are checked by
    /// [`check_entry`](Self::check_entry).
    ///
    /// # Errors
    ///
    /// [`Corruption`] if the content is truncated or a field violates the table in [`super`].
    pub(super) fn decode(content: &[u8], role: BlockRole) -> Result<Self, Corruption> {
        let number = |value: u64, what| {
            u32::try_from(value).map_err(|_| Corruption::OutOfRange { what, value })
        };
        let content_bytes = number(content.len() as u64, "bytes of a block")?;
        let mut decoder = Decoder::new(content);
        let entries = number(decoder.varint("entries of a block")?, "entries of a block")?;
        // Entries are distinct, so only one can have no bytes.
        if entries > content_bytes {
            let what = "entries of a block";
            return Err(Corruption::OutOfRange { what, value: entries.into() });
        }
        let widths = decoder.u8("widths of a block")?;
        let end_width = widths & 7;
        if end_width > END_WIDTH_MAX {
            let what = "widths of a block";
            return Err(Corruption::OutOfRange { what, value: widths.into() });
        }
        let kind = decoder.u8("kind of an entry")?;
        if kind != KIND_OF_EACH {
            check_kind(kind, role)?;
        }
        let what = "bytes of an entry";
        let entry_bytes = number(decoder.varint(what)?, what)?;
        let suffix_bytes = key_part(decoder.varint("bytes of a suffix")?)?;
        let sequence = decoder.varint("sequence number of a block")?;
        if sequence > SEQUENCE_MAX {
            let what = "sequence number of a block";
            return Err(Corruption::OutOfRange { what, value: sequence });
        }
        let prefix_bytes = key_part(decoder.varint("prefix of a block")?)?;
        let prefix_at = decoder.offset() as u32; // At most `content_bytes`.
        decoder.take("prefix of a block", prefix_bytes as usize)?;
        let ends_bytes = u64::from(entries) * u64::from(end_width);
        decoder.take("ends of entries", number(ends_bytes, "ends of entries")? as usize)?;
        let entries_at = decoder.offset() as u32;
        let layout = Self {
            entries,
            suffix_bytes,
            entry_bytes,
            prefix_bytes,
            sequence,
            prefix_at,
            entries_at,
            kind,
            end_width,
            suffix_width: widths >> SUFFIX_SHIFT & 3,
            sequence_width: widths >> SEQUENCE_SHIFT,
        };
        // Bounds the slots of an index, which are allocated before the entries are checked.
        let entry_bytes_min = (layout.head_bytes() + HANDLE_BYTES_MIN) as u64;
        let have = u64::from(content_bytes - entries_at);
        if role == BlockRole::Index && u64::from(entries) * entry_bytes_min > have {
            let what = "entries of a block";
            return Err(Corruption::OutOfRange { what, value: entries.into() });
        }
        Ok(layout)
    }

    /// Sets the sequence number of every entry of a data block to `sequence`.
    ///
    /// # Errors
    ///
    /// [`Corruption`] if the stored sequence numbers differ.
    pub(super) fn replace_sequence(&mut self, sequence: u64) -> Result<(), Corruption> {
        if self.sequence_width > 0 {
            let (what, value) = ("width of an ingested sequence number", self.sequence_width);
            return Err(Corruption::OutOfRange { what, value: value.into() });
        }
        self.sequence = sequence;
        Ok(())
    }

    /// Decodes and checks entry `index`, which starts at `start`. Does not check the order.
    ///
    /// # Errors
    ///
    /// [`Corruption`] if it exceeds the content or a field violates the table in [`super`].
    #[inline]
    pub(super) fn check_entry(
        &self,
        content: &[u8],
        index: u32,
        start: usize,
        role: BlockRole,
    ) -> Result<Entry, Corruption> {
        // Cannot overflow: products and sums of 32-bit numbers.
        let least = (u64::from(index) + 1) * u64::from(self.entry_bytes);
        let end = u64::from(self.entries_at) + least + self.end_field(content, index as usize);
        let have = content.len() as u64;
        if end > have {
            return Err(Corruption::Truncated { what: "entries of a block", need: end, have });
        }
        let end = end as usize;
        if end < start || end - start < self.head_bytes() {
            return Err(Corruption::OutOfRange { what: "end of an entry", value: end as u64 });
        }
        let head = self.head(content, start);
        let suffix_end = start + self.head_bytes() + head.suffix_bytes;
        if suffix_end > end {
            let (need, have) = (suffix_end as u64, end as u64);
            return Err(Corruption::Truncated { what: "suffix of a key", need, have });
        }
        let key_bytes = self.prefix_bytes as usize + head.suffix_bytes;
        if key_bytes > KEY_BYTES_MAX {
            let value = key_bytes as u64;
            return Err(Corruption::OutOfRange { what: "bytes of a key", value });
        }
        let Head { kind, sequence, .. } = head;
        if self.kind == KIND_OF_EACH {
            check_kind(kind, role)?;
        }
        if sequence > SEQUENCE_MAX || (kind == KIND_OLDEST && sequence > 0) {
            let what = "sequence number of an entry";
            return Err(Corruption::OutOfRange { what, value: sequence });
        }
        Ok(self.entry_of(head, start, end))
    }

    /// Returns the common prefix of all user keys.
    pub(super) fn prefix<'c>(&self, content: &'c [u8]) -> &'c [u8] {
        &content[self.prefix_at as usize..][..self.prefix_bytes as usize]
    }

    /// Returns the positions of prefix, ends and entries.
    pub(super) fn offsets(&self) -> [usize; 3] {
        let prefix_at = self.prefix_at as usize;
        [prefix_at, prefix_at + self.prefix_bytes as usize, self.entries_at as usize]
    }

    /// Decodes entry `index` of checked content.
    #[inline]
    pub(super) fn entry(&self, content: &[u8], index: usize) -> Entry {
        self.entry_between(content, self.start(content, index), self.end(content, index))
    }

    #[inline]
    pub(super) fn start(&self, content: &[u8], index: usize) -> usize {
        match index.checked_sub(1) {
            Some(before) => self.end(content, before),
            None => self.entries_at as usize,
        }
    }

    #[inline]
    pub(super) fn end(&self, content: &[u8], index: usize) -> usize {
        let least = (index + 1) * self.entry_bytes as usize;
        self.entries_at as usize + least + self.end_field(content, index) as usize
    }

    /// Decodes the entry from `start` to `end`.
    #[inline]
    pub(super) fn entry_between(&self, content: &[u8], start: usize, end: usize) -> Entry {
        self.entry_of(self.head(content, start), start, end)
    }

    #[inline]
    fn entry_of(&self, head: Head, start: usize, end: usize) -> Entry {
        let suffix_at = start + self.head_bytes();
        let value_at = suffix_at + head.suffix_bytes;
        Entry {
            suffix: suffix_at..value_at,
            trailer: Trailer::from_number(head.sequence << 8 | u64::from(head.kind)),
            value: value_at..end,
        }
    }

    /// Decodes the fields before the suffix, with one load if they take at most 8 bytes.
    #[inline]
    fn head(&self, content: &[u8], start: usize) -> Head {
        let word = word_at(content, start);
        let suffix_bytes = self.suffix_bytes as usize + (word & mask(self.suffix_width)) as usize;
        let mut rest = word >> (8 * self.suffix_width);
        if self.head_bytes() > size_of::<u64>() {
            rest = word_at(content, start + usize::from(self.suffix_width));
        }
        let mut kind = self.kind;
        if kind == KIND_OF_EACH {
            kind = rest as u8;
            rest >>= 8;
        }
        Head { suffix_bytes, kind, sequence: self.sequence + (rest & mask(self.sequence_width)) }
    }

    #[inline]
    fn end_field(&self, content: &[u8], index: usize) -> u64 {
        let ends_at = self.prefix_at as usize + self.prefix_bytes as usize;
        let at = ends_at + index * usize::from(self.end_width);
        word_at(content, at) & mask(self.end_width)
    }

    /// Returns the length of the fields before each suffix, in bytes.
    #[inline]
    pub(super) fn head_bytes(&self) -> usize {
        let kind_width = u8::from(self.kind == KIND_OF_EACH);
        usize::from(self.suffix_width + kind_width + self.sequence_width)
    }
}

fn key_part(bytes: u64) -> Result<u32, Corruption> {
    match u32::try_from(bytes) {
        Ok(bytes) if bytes as usize <= KEY_BYTES_MAX => Ok(bytes),
        _ => Err(Corruption::OutOfRange { what: "bytes of a key", value: bytes }),
    }
}

/// Returns the number of bytes that represent every number up to `value`.
pub(super) fn width(value: u64) -> u8 {
    (u64::BITS - value.leading_zeros()).div_ceil(8) as u8 // At most 8.
}

pub(super) fn kind_byte(trailer: Trailer) -> u8 {
    if trailer == Trailer::OLDEST { KIND_OLDEST } else { trailer.kind() as u8 }
}

fn check_kind(kind: u8, role: BlockRole) -> Result<(), Corruption> {
    let is_oldest = role == BlockRole::Index && kind == KIND_OLDEST;
    // Range tombstones have a separate block: as a point entry, one would shadow a single key.
    if !is_oldest && Kind::decode(kind)? == Kind::RangeTombstone {
        return Err(Corruption::OutOfRange { what: "kind of an entry", value: kind.into() });
    }
    Ok(())
}

fn put_field(out: &mut Vec<u8>, value: u64, width: u8) {
    out.put(&value.to_le_bytes()[..usize::from(width)]);
}

/// Returns a mask of the low `width` bytes, at most 7.
#[inline]
fn mask(width: u8) -> u64 {
    (1 << (8 * width)) - 1
}

/// Loads 8 bytes at `at`, zero-extended beyond the end of the content.
#[inline]
fn word_at(content: &[u8], at: usize) -> u64 {
    let rest = &content[at..];
    match rest.first_chunk() {
        Some(bytes) => u64::from_le_bytes(*bytes),
        None => last_word(rest),
    }
}

#[cold]
fn last_word(rest: &[u8]) -> u64 {
    let mut bytes = [0; size_of::<u64>()];
    bytes[..rest.len()].copy_from_slice(rest);
    u64::from_le_bytes(bytes)
}
