//! Builds the content of a block.

use sievedb_format::{Encode, InternalKey, codec::VARINT_BYTES_MAX};

use super::{Entry, RESTART_BYTES, RESTART_INTERVAL_MAX, common_prefix};

/// Buffers that one large entry made longer than this are given back.
const KEPT_BYTES_MAX: usize = 1 << 20;

/// The fields of an entry before its suffix take no more: four varints and the kind.
const HEAD_BYTES_MAX: usize = 4 * VARINT_BYTES_MAX + 1;

/// Collects sorted entries into the content of a block; reused from block to block.
#[derive(Debug)]
pub(crate) struct BlockBuilder {
    restart_interval: usize,
    content: Vec<u8>,
    restarts: Vec<u32>,
    entries: usize,
    user_key: Vec<u8>,
}

impl BlockBuilder {
    /// Every `restart_interval`-th entry stands alone.
    pub(crate) fn new(restart_interval: usize) -> Self {
        debug_assert!((1..=RESTART_INTERVAL_MAX).contains(&restart_interval));
        Self {
            restart_interval,
            content: Vec::new(),
            restarts: Vec::new(),
            entries: 0,
            user_key: Vec::new(),
        }
    }

    /// Appends an entry, which must be behind the one before.
    pub(crate) fn add(&mut self, key: InternalKey<'_>, value: &[u8]) {
        let mut shared = 0;
        if self.entries.is_multiple_of(self.restart_interval) {
            let offset = u32::try_from(self.content.len());
            // Only the first entry of a block may reach beyond the target, which is at most 1 MiB.
            self.restarts.push(offset.expect("entries start within the target of a block"));
        } else {
            shared = common_prefix(&self.user_key, key.user_key);
        }
        let suffix = &key.user_key[shared..];
        Entry::encode_head(&mut self.content, shared, suffix.len(), key.trailer, value.len());
        self.content.put(suffix);
        self.content.put(value);
        self.user_key.truncate(shared);
        self.user_key.put(suffix);
        self.entries += 1;
    }

    /// Whether nothing was added yet.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// Bytes that [`finish`](Self::finish) would return now.
    pub(crate) fn content_bytes(&self) -> usize {
        self.content.len() + (self.restarts.len() + 1) * RESTART_BYTES
    }

    /// At most as many bytes would [`finish`](Self::finish) return after another entry.
    pub(crate) fn content_bytes_with(&self, key: InternalKey<'_>, value: &[u8]) -> usize {
        let entry = HEAD_BYTES_MAX + RESTART_BYTES + key.user_key.len() + value.len();
        self.content_bytes() + entry
    }

    /// Completes the content. Only [`reset`](Self::reset) may follow.
    pub(crate) fn finish(&mut self) -> &[u8] {
        for &restart in &self.restarts {
            self.content.put_u32(restart);
        }
        let count = u32::try_from(self.restarts.len());
        self.content.put_u32(count.expect("there are fewer restarts than bytes"));
        &self.content
    }

    /// Starts the next block.
    pub(crate) fn reset(&mut self) {
        self.content.clear();
        self.content.shrink_to(KEPT_BYTES_MAX);
        self.restarts.clear();
        self.entries = 0;
        self.user_key.clear();
    }
}
