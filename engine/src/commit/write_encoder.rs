//! Encodes a batch for the log.

use std::{
    mem,
    ops::{Bound, Range},
    sync::Arc,
};

use sievedb_filter::hash::key_hash;
use sievedb_format::{
    Encode, KEY_BYTES_MAX, Kind, VALUE_BYTES_MAX, codec::varint_bytes, expiry::EXPIRY_BYTES,
};
use sievedb_memtable::Memtable;

use super::write::{Entry, Target, Write};
use crate::{Error, Result, iter::bounds::KeyBounds, read::tree::Tree, wal::batch::BatchEncoder};

/// Encodes writes for the log, and records the positions of their keys and values.
#[derive(Debug)]
pub(crate) struct WriteEncoder {
    hash_seed: u64,
    encoder: BatchEncoder,
    /// Ranges count from the first entry until [`finish`](Self::finish).
    write: Write,
}

impl WriteEncoder {
    /// Creates an empty batch with room for `bytes` bytes.
    pub(crate) fn new(hash_seed: u64, bytes: usize) -> Self {
        Self { hash_seed, encoder: BatchEncoder::with_capacity(bytes), write: Write::default() }
    }

    /// Encodes one value. It expires at `expiry_ms` of the store clock, if set.
    #[inline]
    pub(crate) fn single_value(
        hash_seed: u64,
        tree: &Arc<Tree>,
        key: &[u8],
        expiry_ms: Option<u64>,
        value: &[u8],
    ) -> Result<Write> {
        match expiry_ms {
            None => Self::single_put(hash_seed, tree, Kind::Put, key, value),
            Some(expiry_ms) => Self::single_put_expiring(hash_seed, tree, key, expiry_ms, value),
        }
    }

    /// Encodes one version with a value, in a buffer of the right size.
    pub(crate) fn single_put(
        hash_seed: u64,
        tree: &Arc<Tree>,
        kind: Kind,
        key: &[u8],
        value: &[u8],
    ) -> Result<Write> {
        let bytes = BatchEncoder::put_bytes(tree.id, key.len(), value.len());
        let mut encoder = Self::new(hash_seed, bytes);
        encoder.put(tree, kind, key, value)?;
        Ok(encoder.finish())
    }

    /// Encodes one put that expires, in a buffer of the right size.
    fn single_put_expiring(
        hash_seed: u64,
        tree: &Arc<Tree>,
        key: &[u8],
        expiry_ms: u64,
        value: &[u8],
    ) -> Result<Write> {
        let bytes = BatchEncoder::put_bytes(tree.id, key.len(), EXPIRY_BYTES + value.len());
        let mut encoder = Self::new(hash_seed, bytes);
        encoder.put_expiring(tree, key, expiry_ms, value)?;
        Ok(encoder.finish())
    }

    /// Encodes one removal.
    pub(crate) fn single_remove(hash_seed: u64, tree: &Arc<Tree>, key: &[u8]) -> Result<Write> {
        let mut encoder = Self::new(hash_seed, BatchEncoder::remove_bytes(tree.id, key.len()));
        encoder.remove(tree, key)?;
        Ok(encoder.finish())
    }

    /// Encodes the removal of the keys within `bounds`; `None` if there are none.
    pub(crate) fn single_remove_range(
        hash_seed: u64,
        tree: &Arc<Tree>,
        bounds: &KeyBounds,
    ) -> Result<Option<Write>> {
        let mut encoder = Self::new(hash_seed, 0);
        encoder.remove_range(tree, bounds)?;
        Ok((encoder.len() > 0).then(|| encoder.finish()))
    }

    /// Returns the number of entries.
    pub(crate) fn len(&self) -> usize {
        self.write.entries.len()
    }

    /// Returns the keyspaces of the entries.
    pub(crate) fn trees(&self) -> Vec<Arc<Tree>> {
        self.write.targets.iter().map(|target| Arc::clone(&target.tree)).collect()
    }

    /// Returns the memory that the entries take in memtables, in bytes.
    pub(crate) fn charge_bytes(&self) -> u64 {
        self.write.charge_bytes()
    }

    /// Undoes [`finish`](Self::finish) for a write that failed. Copies the entries.
    pub(crate) fn resume(hash_seed: u64, mut write: Write) -> Self {
        let payload = mem::take(&mut write.payload);
        let encoder = BatchEncoder::resume(&payload, write.entries.len() as u64);
        let count_bytes = payload.len() - encoder.entry_bytes();
        for range in write.ranges() {
            *range = range.start - count_bytes..range.end - count_bytes;
        }
        Self { hash_seed, encoder, write }
    }

    /// Adds a version of `key` of a kind that has a value.
    pub(crate) fn put(
        &mut self,
        tree: &Arc<Tree>,
        kind: Kind,
        key: &[u8],
        value: &[u8],
    ) -> Result<()> {
        check_entry(key, value)?;
        self.encoder.put(tree.id, kind, key, value);
        let end = self.encoder.entry_bytes();
        let value = end - value.len()..end;
        let key_end = value.start - varint_bytes(value.len() as u64);
        self.add(tree, kind, key, key_end, value);
        Ok(())
    }

    /// Adds a value. It expires at `expiry_ms` of the store clock, if set.
    pub(crate) fn put_value(
        &mut self,
        tree: &Arc<Tree>,
        key: &[u8],
        expiry_ms: Option<u64>,
        value: &[u8],
    ) -> Result<()> {
        match expiry_ms {
            None => self.put(tree, Kind::Put, key, value),
            Some(expiry_ms) => self.put_expiring(tree, key, expiry_ms, value),
        }
    }

    /// Adds a put of `value` that expires at `expiry_ms` of the store clock.
    fn put_expiring(
        &mut self,
        tree: &Arc<Tree>,
        key: &[u8],
        expiry_ms: u64,
        value: &[u8],
    ) -> Result<()> {
        check_entry(key, value)?;
        self.encoder.put_expiring(tree.id, key, expiry_ms, value);
        let end = self.encoder.entry_bytes();
        let stored = end - value.len() - EXPIRY_BYTES..end;
        let key_end = stored.start - varint_bytes(stored.len() as u64);
        self.add(tree, Kind::PutWithExpiry, key, key_end, stored);
        Ok(())
    }

    pub(crate) fn remove(&mut self, tree: &Arc<Tree>, key: &[u8]) -> Result<()> {
        check_key(key)?;
        self.encoder.remove(tree.id, key);
        let end = self.encoder.entry_bytes();
        self.add(tree, Kind::Tombstone, key, end, end..end);
        Ok(())
    }

    /// Adds the removal of the keys within `bounds`, unless there are none.
    pub(crate) fn remove_range(&mut self, tree: &Arc<Tree>, bounds: &KeyBounds) -> Result<()> {
        let (start, end) = bounds.as_slices();
        for bound in [start, end] {
            if let Bound::Included(key) | Bound::Excluded(key) = bound {
                check_key(key)?;
            }
        }
        let Some((start, end)) = bounds.as_range_tombstone() else { return Ok(()) };
        self.encoder.remove_range(tree.id, &start, &end);
        let behind = self.encoder.entry_bytes();
        let end = behind - end.len()..behind;
        let start_end = end.start - varint_bytes(end.len() as u64);
        self.add(tree, Kind::RangeTombstone, &start, start_end, end);
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
        targets[target].charge_bytes += match kind {
            Kind::RangeTombstone => Memtable::range_tombstone_charge(key.len(), value.len()),
            _ => Memtable::charge(key.len(), value.len()),
        };
        let hash = key_hash(key, self.hash_seed);
        entries.push(Entry { target, kind, hash, key: key_end - key.len()..key_end, value });
    }

    /// Returns the write to commit.
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

/// Returns kind and stored form of a value. It expires at `expiry_ms` of the store clock, if set;
/// `buffer` then holds the stored form.
pub(crate) fn stored_value<'a>(
    expiry_ms: Option<u64>,
    value: &'a [u8],
    buffer: &'a mut Vec<u8>,
) -> (Kind, &'a [u8]) {
    let Some(expiry_ms) = expiry_ms else { return (Kind::Put, value) };
    buffer.clear();
    buffer.reserve(EXPIRY_BYTES + value.len());
    buffer.put_u64(expiry_ms);
    buffer.put(value);
    (Kind::PutWithExpiry, buffer)
}

/// Refuses an entry that is too long.
///
/// # Errors
///
/// [`Error::KeyTooLong`], [`Error::ValueTooLong`].
pub(crate) fn check_entry(key: &[u8], value: &[u8]) -> Result<()> {
    check_lengths(key, value.len())
}

/// As [`check_entry`], for a value of this length.
///
/// # Errors
///
/// [`Error::KeyTooLong`], [`Error::ValueTooLong`].
pub(crate) fn check_lengths(key: &[u8], bytes: usize) -> Result<()> {
    check_key(key)?;
    if bytes > VALUE_BYTES_MAX {
        return Err(Error::ValueTooLong { bytes, bytes_max: VALUE_BYTES_MAX });
    }
    Ok(())
}

fn check_key(key: &[u8]) -> Result<()> {
    if key.len() <= KEY_BYTES_MAX {
        return Ok(());
    }
    Err(Error::KeyTooLong { bytes: key.len(), bytes_max: KEY_BYTES_MAX })
}
