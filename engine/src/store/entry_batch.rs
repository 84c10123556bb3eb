//! Entries of an ingest, until a thread writes them into a table.

use crate::{
    keyspace_options::KeyspaceOptions,
    table::{cache_room::ShareTaken, store::TableStore},
};

/// First allocation of a batch, in bytes.
const BATCH_BYTES_FIRST: usize = 4 << 10;

/// Entries in ascending order, in one buffer: for each the lengths of key and value, and both.
#[derive(Debug)]
pub(super) struct EntryBatch {
    pub(super) bytes: Vec<u8>,
    pub(super) taken: ShareTaken,
}

impl EntryBatch {
    pub(super) const HEAD_BYTES: usize = 2 * size_of::<u32>();

    /// Returns the maximum length of a batch for the tables of a keyspace with these options.
    pub(super) fn bytes_max(options: &KeyspaceOptions, tables: &TableStore) -> usize {
        // A buffer that grows is copied: both take memory.
        let bytes = options.table_bytes.min(tables.writing_bytes_max() / 2);
        usize::try_from(bytes).unwrap_or(usize::MAX)
    }

    pub(super) fn new(tables: &TableStore) -> Self {
        Self { bytes: Vec::new(), taken: tables.worker_share().take(0) }
    }

    /// Returns at most `bytes_max`, as the share of this batch allows: the limit of writing may
    /// have grown since it was taken.
    pub(super) fn within_share(&self, bytes_max: usize) -> usize {
        let of_share = self.taken.share().bytes_max() / 2;
        usize::try_from(of_share).map_or(bytes_max, |of_share| of_share.min(bytes_max))
    }

    pub(super) fn add(&mut self, key: &[u8], value: &[u8], bytes_max: usize) {
        let bytes_max = self.within_share(bytes_max);
        let bytes = self.bytes.len() + Self::HEAD_BYTES + key.len() + value.len();
        let before = self.bytes.capacity();
        if bytes > before {
            let capacity = bytes.max((2 * before).clamp(BATCH_BYTES_FIRST, bytes_max));
            self.taken.set((before + capacity) as u64);
            self.bytes.reserve_exact(capacity - self.bytes.len());
            self.taken.set(self.bytes.capacity() as u64);
        }
        for part in [key, value] {
            let length = u32::try_from(part.len()).expect("keys and values are shorter");
            self.bytes.extend_from_slice(&length.to_le_bytes());
        }
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let mut rest = &*self.bytes;
        std::iter::from_fn(move || {
            let (key_bytes, behind) = rest.split_first_chunk()?;
            let (value_bytes, behind) = behind.split_first_chunk()?;
            let length = |bytes: &[u8; 4]| u32::from_le_bytes(*bytes) as usize;
            let (key, behind) = behind.split_at_checked(length(key_bytes))?;
            let (value, behind) = behind.split_at_checked(length(value_bytes))?;
            rest = behind;
            Some((key, value))
        })
    }
}
