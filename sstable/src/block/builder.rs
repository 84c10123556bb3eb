//! The builder of a block's content.

use sievedb_format::{Encode, InternalKey, Trailer};

use super::layout::{KIND_OF_EACH, Layout, kind_byte, width};

/// Capacity that buffers keep between blocks, in bytes. Bounds the memory after a large entry.
pub(super) const KEPT_BYTES_MAX: usize = 64 << 10;

/// Fields before the prefix: varints of 32 bits (three), 16 and 56 bits, and two bytes.
const HEADER_BYTES_MAX: usize = 3 * 5 + 3 + 8 + 2;

/// Encodes sorted entries as the content of a block. Reused from block to block.
#[derive(Debug, Default)]
pub(crate) struct BlockBuilder {
    /// User keys and values, concatenated.
    user_keys: Vec<u8>,
    values: Vec<u8>,
    entries: Vec<Pending>,
    shape: Shape,
    /// Upper bound of the length of the content behind the header, by `shape`.
    body_bytes_max: usize,
    content: Vec<u8>,
}

/// An entry whose bytes are in the buffers.
#[derive(Debug)]
struct Pending {
    key_bytes: usize,
    value_bytes: usize,
    trailer: Trailer,
}

/// Statistics that determine the length of the content.
#[derive(Debug, Clone, Copy, Default)]
struct Shape {
    entries: usize,
    prefix_bytes: usize,
    /// Sums over all entries.
    key_bytes: usize,
    value_bytes: usize,
    least: Extreme,
    most: Extreme,
    /// Kind byte of all entries, or [`KIND_OF_EACH`].
    kind: u8,
}

/// Minimum or maximum over all entries.
#[derive(Debug, Clone, Copy, Default)]
struct Extreme {
    key_bytes: usize,
    /// Key and value.
    bytes: usize,
    sequence: u64,
}

impl Shape {
    /// Adds an entry whose user key shares `prefix_bytes` bytes with the first user key.
    fn with(mut self, prefix_bytes: usize, key: InternalKey<'_>, value: &[u8]) -> Self {
        let key_bytes = key.user_key.len();
        let bytes = key_bytes + value.len();
        let this = Extreme { key_bytes, bytes, sequence: key.trailer.sequence() };
        if self.entries == 0 {
            (self.prefix_bytes, self.least, self.most) = (prefix_bytes, this, this);
            self.kind = kind_byte(key.trailer);
        }
        self.entries += 1;
        self.prefix_bytes = self.prefix_bytes.min(prefix_bytes);
        self.key_bytes += key_bytes;
        self.value_bytes += value.len();
        for (least, most, this) in [
            (&mut self.least.key_bytes, &mut self.most.key_bytes, this.key_bytes),
            (&mut self.least.bytes, &mut self.most.bytes, this.bytes),
        ] {
            *least = this.min(*least);
            *most = this.max(*most);
        }
        self.least.sequence = this.sequence.min(self.least.sequence);
        self.most.sequence = this.sequence.max(self.most.sequence);
        if self.kind != kind_byte(key.trailer) {
            self.kind = KIND_OF_EACH;
        }
        self
    }

    /// Returns the layout in which no field `end` exceeds `end_max`.
    fn layout(&self, entry_bytes: usize, end_max: usize) -> Layout {
        let number = |value: usize| u32::try_from(value).expect("a block is below 4 GiB");
        let Self { least, most, .. } = self;
        Layout {
            entries: number(self.entries),
            suffix_bytes: number(least.key_bytes - self.prefix_bytes),
            entry_bytes: number(entry_bytes),
            prefix_bytes: number(self.prefix_bytes),
            sequence: least.sequence,
            kind: if self.entries == 0 { KIND_OF_EACH } else { self.kind },
            end_width: width(end_max as u64),
            suffix_width: width((most.key_bytes - least.key_bytes) as u64),
            sequence_width: width(most.sequence - least.sequence),
            ..Layout::EMPTY
        }
    }

    /// Returns an upper bound of the length of the content behind the header.
    fn body_bytes_max(&self) -> usize {
        let entries = self.key_bytes - self.entries * self.prefix_bytes + self.value_bytes;
        let head_bytes = self.layout(0, 0).head_bytes();
        let entries = self.entries * head_bytes + entries;
        // No field `end` exceeds the length of all entries.
        let end_max = if self.least.bytes == self.most.bytes { 0 } else { entries };
        let ends = self.entries * usize::from(width(end_max as u64));
        self.prefix_bytes + ends + entries
    }
}

impl BlockBuilder {
    /// Appends an entry. Entries must be in ascending order.
    pub(crate) fn add(&mut self, key: InternalKey<'_>, value: &[u8]) {
        let is_added = self.add_within(key, value, usize::MAX);
        debug_assert!(is_added, "no content is that long");
    }

    /// Appends an entry, unless the content has others and might then exceed `bytes_max` bytes.
    /// Returns whether it was appended. Otherwise as [`add`](Self::add).
    #[must_use]
    pub(crate) fn add_within(
        &mut self,
        key: InternalKey<'_>,
        value: &[u8],
        bytes_max: usize,
    ) -> bool {
        debug_assert!(self.last_key().is_none_or(|last| last < key), "entries must ascend");
        debug_assert_eq!(self.shape.entries, self.entries.len());
        let shape = self.shape_with(key, value);
        let body_bytes_max = shape.body_bytes_max();
        if HEADER_BYTES_MAX + body_bytes_max > bytes_max && !self.is_empty() {
            return false;
        }
        (self.shape, self.body_bytes_max) = (shape, body_bytes_max);
        self.user_keys.put(key.user_key);
        self.values.put(value);
        let (key_bytes, value_bytes) = (key.user_key.len(), value.len());
        self.entries.push(Pending { key_bytes, value_bytes, trailer: key.trailer });
        debug_assert_eq!(self.shape.key_bytes, self.user_keys.len());
        true
    }

    fn last_key(&self) -> Option<InternalKey<'_>> {
        let last = self.entries.last()?;
        let start = self.user_keys.len() - last.key_bytes;
        Some(InternalKey::new(&self.user_keys[start..], last.trailer))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns an upper bound of the bytes that [`finish`](Self::finish) returns, exact to a few
    /// dozen.
    pub(crate) const fn content_bytes_max(&self) -> usize {
        HEADER_BYTES_MAX + self.body_bytes_max
    }

    fn shape_with(&self, key: InternalKey<'_>, value: &[u8]) -> Shape {
        let first = self.entries.first().map(|first| &self.user_keys[..first.key_bytes]);
        // In sorted keys, the prefix common to first and last is common to all.
        let prefix_bytes = common_prefix(first.unwrap_or(key.user_key), key.user_key);
        self.shape.with(prefix_bytes, key, value)
    }

    /// Encodes the content. Call [`reset`](Self::reset) before the next block.
    pub(crate) fn finish(&mut self) -> &[u8] {
        let content_bytes_max = self.content_bytes_max();
        debug_assert_eq!(self.values.len(), self.shape.value_bytes);
        let Self { user_keys, values, entries, shape, content, .. } = self;
        let prefix_bytes = shape.prefix_bytes;
        let head_bytes = shape.layout(0, 0).head_bytes();
        let mut end = 0;
        let ends = entries.iter().map(|entry| {
            end += head_bytes + entry.key_bytes - prefix_bytes + entry.value_bytes;
            end
        });
        let ends: Vec<_> = ends.collect();
        let entry_bytes = (1..).zip(&ends).map(|(count, end)| end / count).min().unwrap_or(0);
        let end_fields = (1..).zip(&ends).map(|(count, end)| end - count * entry_bytes);
        let layout = shape.layout(entry_bytes, end_fields.max().unwrap_or(0));
        content.clear();
        // Exact: a long value must not double the buffer.
        content.reserve_exact(content_bytes_max);
        layout.encode(content);
        content.put(&user_keys[..prefix_bytes]);
        for (index, end) in ends.into_iter().enumerate() {
            layout.encode_end(content, index, end);
        }
        let (mut user_keys, mut values) = (&user_keys[..], &values[..]);
        for entry in &*entries {
            let (user_key, value);
            (user_key, user_keys) = user_keys.split_at(entry.key_bytes);
            (value, values) = values.split_at(entry.value_bytes);
            let suffix = &user_key[prefix_bytes..];
            layout.encode_head(content, suffix.len(), entry.trailer);
            content.put(suffix);
            content.put(value);
        }
        debug_assert!(content.len() <= content_bytes_max);
        // Frees memory for the compressor.
        self.values.clear();
        self.values.shrink_to(KEPT_BYTES_MAX);
        &self.content
    }

    /// Returns the memory of the buffers, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        let buffers = [&self.user_keys, &self.values, &self.content];
        // `finish` collects the ends of the entries.
        let entry_bytes = size_of::<Pending>() + size_of::<usize>();
        buffers.into_iter().map(Vec::capacity).sum::<usize>()
            + self.entries.capacity() * entry_bytes
    }

    /// Clears the entries for the next block.
    pub(crate) fn reset(&mut self) {
        for buffer in [&mut self.user_keys, &mut self.values, &mut self.content] {
            buffer.clear();
            buffer.shrink_to(KEPT_BYTES_MAX);
        }
        self.entries.clear();
        self.shape = Shape::default();
        self.body_bytes_max = 0;
        debug_assert!(self.is_empty() && self.user_keys.is_empty());
    }
}

/// Returns the length of the longest common prefix, in bytes.
#[inline]
pub(crate) fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    let (a_words, _) = a.as_chunks::<8>();
    let (b_words, _) = b.as_chunks::<8>();
    let mut len = 0;
    for (a, b) in a_words.iter().zip(b_words) {
        let differing = u64::from_le_bytes(*a) ^ u64::from_le_bytes(*b);
        if differing != 0 {
            return len + differing.trailing_zeros() as usize / 8;
        }
        len += 8;
    }
    len + a[len..].iter().zip(&b[len..]).take_while(|(a, b)| a == b).count()
}
