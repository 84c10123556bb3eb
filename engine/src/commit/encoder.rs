//! Encodes writes for the log.

use std::{mem, ops::Range, sync::Arc};

use sievedb_filter::hash::key_hash;
use sievedb_format::{KEY_BYTES_MAX, Kind, VALUE_BYTES_MAX, codec::varint_bytes};

use super::{Entry, Target, Write};
use crate::{Error, Result, read::tree::Tree, wal::batch::BatchEncoder};

/// Encodes writes for the log, and notes where their keys and values lie.
#[derive(Debug)]
pub(crate) struct WriteEncoder {
    hash_seed: u64,
    encoder: BatchEncoder,
    /// Ranges count from the first entry until [`finish`](Self::finish).
    write: Write,
}

impl WriteEncoder {
    /// An empty batch with room for `bytes` bytes.
    pub(crate) fn new(hash_seed: u64, bytes: usize) -> Self {
        Self { hash_seed, encoder: BatchEncoder::with_capacity(bytes), write: Write::default() }
    }

    /// One put, in a buffer of the right size.
    pub(crate) fn single_put(
        hash_seed: u64,
        tree: &Arc<Tree>,
        key: &[u8],
        value: &[u8],
    ) -> Result<Write> {
        let bytes = BatchEncoder::put_bytes(tree.id, key.len(), value.len());
        let mut encoder = Self::new(hash_seed, bytes);
        encoder.put(tree, key, value)?;
        Ok(encoder.finish())
    }

    /// One removal.
    pub(crate) fn single_remove(hash_seed: u64, tree: &Arc<Tree>, key: &[u8]) -> Result<Write> {
        let mut encoder = Self::new(hash_seed, BatchEncoder::remove_bytes(tree.id, key.len()));
        encoder.remove(tree, key)?;
        Ok(encoder.finish())
    }

    /// Returns the number of entries.
    pub(crate) fn len(&self) -> usize {
        self.write.entries.len()
    }

    /// Returns the memory that the entries take in memtables, in bytes.
    pub(crate) fn charge_bytes(&self) -> u64 {
        self.write.charge_bytes()
    }

    /// The opposite of [`finish`](Self::finish), for a write that was not made. Copies the entries.
    pub(crate) fn resume(hash_seed: u64, mut write: Write) -> Self {
        let payload = mem::take(&mut write.payload);
        let encoder = BatchEncoder::resume(&payload, write.entries.len() as u64);
        let count_bytes = payload.len() - encoder.entry_bytes();
        for range in write.ranges() {
            *range = range.start - count_bytes..range.end - count_bytes;
        }
        Self { hash_seed, encoder, write }
    }

    pub(crate) fn put(&mut self, tree: &Arc<Tree>, key: &[u8], value: &[u8]) -> Result<()> {
        check_key(key)?;
        if value.len() > VALUE_BYTES_MAX {
            let (bytes, bytes_max) = (value.len(), VALUE_BYTES_MAX);
            return Err(Error::ValueTooLong { bytes, bytes_max });
        }
        self.encoder.put(tree.id, key, value);
        let end = self.encoder.entry_bytes();
        let value = end - value.len()..end;
        let key_end = value.start - varint_bytes(value.len() as u64);
        self.add(tree, Kind::Put, key, key_end, value);
        Ok(())
    }

    pub(crate) fn remove(&mut self, tree: &Arc<Tree>, key: &[u8]) -> Result<()> {
        check_key(key)?;
        self.encoder.remove(tree.id, key);
        let end = self.encoder.entry_bytes();
        self.add(tree, Kind::Tombstone, key, end, end..end);
        Ok(())
    }

    fn add(
        &mut self,
        tree: &Arc<Tree>,
        kind: Kind,
        key: &[u8],
        key_end: usize,
        value: Range<usize>,
    ) {
        let Write { targets, entries, .. } = &mut self.write;
        let known = targets.iter().rposition(|target| Arc::ptr_eq(&target.tree, tree));
        let target = known.unwrap_or_else(|| {
            let tree = Arc::clone(tree);
            targets.push(Target::new(tree));
            targets.len() - 1
        });
        targets[target].add_charge(key.len(), value.len());
        let hash = key_hash(key, self.hash_seed);
        entries.push(Entry { target, kind, hash, key: key_end - key.len()..key_end, value });
    }

    /// The write, ready to be committed.
    pub(crate) fn finish(self) -> Write {
        let Self { encoder, mut write, .. } = self;
        let entry_bytes = encoder.entry_bytes();
        write.payload = encoder.finish();
        let count_bytes = write.payload.len() - entry_bytes;
        for range in write.ranges() {
            *range = range.start + count_bytes..range.end + count_bytes;
        }
        write
    }
}

impl Write {
    /// Creates a write of this number of `keyspace_changes`, without entries for memtables.
    pub(crate) fn record(keyspace_changes: usize, encode: impl FnOnce(&mut BatchEncoder)) -> Self {
        let mut encoder = BatchEncoder::new();
        encode(&mut encoder);
        Self { payload: encoder.finish(), keyspace_changes, ..Self::default() }
    }

    /// Where keys and values lie.
    fn ranges(&mut self) -> impl Iterator<Item = &mut Range<usize>> {
        self.entries.iter_mut().flat_map(|entry| [&mut entry.key, &mut entry.value])
    }
}

fn check_key(key: &[u8]) -> Result<()> {
    if key.len() <= KEY_BYTES_MAX {
        return Ok(());
    }
    Err(Error::KeyTooLong { bytes: key.len(), bytes_max: KEY_BYTES_MAX })
}
