//! Builds the content of a block.

use sievedb_format::{Encode, InternalKey, Trailer};

use super::{
    common_prefix,
    layout::{KIND_OF_EACH, Layout, kind_byte, width},
};

/// Buffers that one large entry made longer than this are given back.
pub(super) const KEPT_BYTES_MAX: usize = 64 << 10;

/// The fields in front of the prefix take no more: five varints, three of 32 bits and one each of
/// 16 and 56, and two bytes.
const HEADER_BYTES_MAX: usize = 3 * 5 + 3 + 8 + 2;

/// Collects sorted entries into the content of a block; reused from block to block.
#[derive(Debug, Default)]
pub(crate) struct BlockBuilder {
    /// User keys, one behind the other, and values likewise.
    user_keys: Vec<u8>,
    values: Vec<u8>,
    entries: Vec<Pending>,
    shape: Shape,
    content: Vec<u8>,
}

/// An entry without its bytes.
#[derive(Debug)]
struct Pending {
    key_bytes: usize,
    value_bytes: usize,
    trailer: Trailer,
}

/// What the length of the content depends on.
#[derive(Debug, Clone, Copy, Default)]
struct Shape {
    entries: usize,
    prefix_bytes: usize,
    /// Sums over all entries.
    key_bytes: usize,
    value_bytes: usize,
    least: Extreme,
    most: Extreme,
    /// The kind byte of all entries, or [`KIND_OF_EACH`].
    kind: u8,
}

/// The least, or the most, that an entry has.
#[derive(Debug, Clone, Copy, Default)]
struct Extreme {
    key_bytes: usize,
    /// Key and value.
    bytes: usize,
    sequence: u64,
}

impl Shape {
    /// With another entry, whose user key has `prefix_bytes` in common with the first.
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

    /// The layout of such entries; their ends are at most `beyond` bytes beyond multiples of
    /// `entry_bytes`.
    fn layout(&self, entry_bytes: usize, beyond: usize) -> Layout {
        let number = |value: usize| u32::try_from(value).expect("a block is below 4 GiB");
        let Self { least, most, .. } = self;
        Layout {
            entries: number(self.entries),
            suffix_bytes: number(least.key_bytes - self.prefix_bytes),
            entry_bytes: number(entry_bytes),
            prefix_bytes: number(self.prefix_bytes),
            sequence: least.sequence,
            kind: if self.entries == 0 { KIND_OF_EACH } else { self.kind },
            end_width: width(beyond as u64),
            suffix_width: width((most.key_bytes - least.key_bytes) as u64),
            sequence_width: width(most.sequence - least.sequence),
            ..Layout::EMPTY
        }
    }

    /// The content is at most that long.
    fn content_bytes_max(&self) -> usize {
        let entries = self.key_bytes - self.entries * self.prefix_bytes + self.value_bytes;
        let head_bytes = self.layout(0, 0).head_bytes();
        let entries = self.entries * head_bytes + entries;
        // No end is farther from a multiple than the last one from the start.
        let beyond = if self.least.bytes == self.most.bytes { 0 } else { entries };
        let ends = self.entries * usize::from(width(beyond as u64));
        HEADER_BYTES_MAX + self.prefix_bytes + ends + entries
    }
}

impl BlockBuilder {
    /// An empty one.
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Appends an entry, which must be behind the one before.
    pub(crate) fn add(&mut self, key: InternalKey<'_>, value: &[u8]) {
        self.shape = self.shape_with(key, value);
        self.user_keys.put(key.user_key);
        self.values.put(value);
        let (key_bytes, value_bytes) = (key.user_key.len(), value.len());
        self.entries.push(Pending { key_bytes, value_bytes, trailer: key.trailer });
    }

    /// Whether nothing was added yet.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// [`finish`](Self::finish) would return at most as many bytes now: some dozen less, if lengths
    /// vary.
    pub(crate) fn content_bytes_max(&self) -> usize {
        self.shape.content_bytes_max()
    }

    /// The same after another entry.
    pub(crate) fn content_bytes_max_with(&self, key: InternalKey<'_>, value: &[u8]) -> usize {
        self.shape_with(key, value).content_bytes_max()
    }

    fn shape_with(&self, key: InternalKey<'_>, value: &[u8]) -> Shape {
        let first = self.entries.first().map(|first| &self.user_keys[..first.key_bytes]);
        // All between share what the first and the last share.
        let prefix_bytes = common_prefix(first.unwrap_or(key.user_key), key.user_key);
        self.shape.with(prefix_bytes, key, value)
    }

    /// Completes the content. Only [`reset`](Self::reset) may follow.
    pub(crate) fn finish(&mut self) -> &[u8] {
        let Self { user_keys, values, entries, shape, content } = self;
        let prefix_bytes = shape.prefix_bytes;
        let head_bytes = shape.layout(0, 0).head_bytes();
        let mut end = 0;
        let ends = entries.iter().map(|entry| {
            end += head_bytes + entry.key_bytes - prefix_bytes + entry.value_bytes;
            end
        });
        let ends: Vec<_> = ends.collect();
        let content_bytes_max = shape.content_bytes_max();
        let entry_bytes = (1..).zip(&ends).map(|(count, end)| end / count).min().unwrap_or(0);
        let beyond = (1..).zip(&ends).map(|(count, end)| end - count * entry_bytes);
        let layout = shape.layout(entry_bytes, beyond.max().unwrap_or(0));
        content.clear();
        // A long value has this buffer as long as itself, not up to twice as long.
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
        // What compression takes comes instead of it.
        self.values.clear();
        self.values.shrink_to(KEPT_BYTES_MAX);
        &self.content
    }

    /// Memory of the buffers.
    pub(crate) fn memory_bytes(&self) -> usize {
        let buffers = [&self.user_keys, &self.values, &self.content];
        // The ends of the entries are collected when the block is finished.
        let entry_bytes = size_of::<Pending>() + size_of::<usize>();
        buffers.into_iter().map(Vec::capacity).sum::<usize>()
            + self.entries.capacity() * entry_bytes
    }

    /// Starts the next block.
    pub(crate) fn reset(&mut self) {
        for buffer in [&mut self.user_keys, &mut self.values, &mut self.content] {
            buffer.clear();
            buffer.shrink_to(KEPT_BYTES_MAX);
        }
        self.entries.clear();
        self.shape = Shape::default();
    }
}
