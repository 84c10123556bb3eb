//! A batch in the commit pipeline, and its encoder.

use std::{
    mem,
    ops::{Bound, Range},
    sync::Arc,
};

use bytes::Bytes;
use sievedb_filter::hash::key_hash;
use sievedb_format::{
    Encode, KEY_BYTES_MAX, Kind, RangeTombstone, SequenceNumber, Trailer, VALUE_BYTES_MAX,
    codec::varint_bytes, expiry::EXPIRY_BYTES, range_tombstone::ends_above,
};
use sievedb_memtable::{Memtable, spare_bytes};
use sievedb_sstable::BlobReference;
use smallvec::SmallVec;

use crate::{
    Error, Result,
    iter::bounds::KeyBounds,
    read::tree::Tree,
    read::view::{PlacedMemtable, REFERENCE_BYTES},
    wal::batch::BatchEncoder,
};

/// Entries of a write whose cache misses are hidden. More would be evicted before their turn.
const PREFETCHES_MAX: usize = 8;

/// The entries of a batch, encoded for the log, and their targets.
///
/// Memtables copy keys and values: the payload is dropped once it is in the log.
#[derive(Debug, Clone, Default)]
pub(crate) struct Write {
    pub(crate) payload: Bytes,
    pub(crate) targets: SmallVec<[Target; 1]>,
    pub(crate) entries: SmallVec<[Entry; 1]>,
    /// Changes of keyspaces in the payload, not of their options. Each takes a sequence number.
    pub(crate) keyspace_changes: usize,
    /// The keyspace that the change in the payload clears.
    pub(crate) clears: Option<Arc<Tree>>,
    /// The keyspace that gets ingested tables with the sequence number of the write.
    pub(crate) ingests: Option<Arc<Tree>>,
    /// Places of values that are in blob files, with the indexes of their entries.
    references: Vec<(usize, BlobReference)>,
}

/// A keyspace that a batch writes to.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub(crate) tree: Arc<Tree>,
    /// Chosen when the batch is placed.
    pub(crate) memtable: Option<Arc<PlacedMemtable>>,
    /// Memory that the entries take in the memtable.
    pub(crate) charge_bytes: usize,
}

impl Target {
    pub(crate) fn new(tree: Arc<Tree>) -> Self {
        Self { tree, memtable: None, charge_bytes: 0 }
    }
}

/// An entry of a batch, as places in its payload.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    /// Index of the keyspace in `targets`.
    pub(crate) target: usize,
    pub(crate) kind: Kind,
    pub(crate) hash: u64,
    /// The start, if the entry removes a range.
    pub(crate) key: Range<usize>,
    /// The end, if the entry removes a range.
    pub(crate) value: Range<usize>,
}

impl Entry {
    /// Returns whether the entry is a write to a range of keys.
    #[inline]
    pub(crate) fn is_range(&self) -> bool {
        self.kind == Kind::RangeTombstone
    }
}

impl Write {
    /// Inserts every entry into its memtable, the first with the sequence number `first`.
    pub(crate) fn insert(&self, first: SequenceNumber) {
        for (sequence, entry) in (first..).zip(&self.entries) {
            let placed = self.targets[entry.target].memtable.as_ref();
            let placed = placed.expect("a placed write has its memtables");
            let key = &self.payload[entry.key.clone()];
            let value = &self.payload[entry.value.clone()];
            if entry.kind == Kind::RangeTombstone {
                let tombstone = RangeTombstone::new(key, value, sequence);
                placed.memtable.insert_range_tombstone(tombstone);
                continue;
            }
            placed.memtable.insert(entry.hash, key, Trailer::new(sequence, entry.kind), value);
            if entry.kind == Kind::Tombstone {
                placed.note_tombstone();
            }
        }
        for &(index, reference) in &self.references {
            let placed = self.targets[self.entries[index].target].memtable.as_ref();
            let placed = placed.expect("a placed write has its memtables");
            placed.note_reference(first + index as u64, reference);
        }
        let last = first + self.entries.len() as u64 - 1;
        debug_assert!(last >= first || self.keyspace_changes > 0, "an empty batch is placed");
        debug_assert!(self.entries.iter().all(|entry| entry.value.end <= self.payload.len()));
        for placed in self.targets.iter().filter_map(|target| target.memtable.as_ref()) {
            placed.note_inserted(last);
        }
    }

    /// Prefetches what the memtables' filters write for the first entries. The append to the log,
    /// which precedes the inserts, hides the cache misses.
    pub(crate) fn prefetch_filters(&self) {
        for entry in self.entries.iter().take(PREFETCHES_MAX) {
            if let Some(placed) = &self.targets[entry.target].memtable {
                placed.memtable.prefetch(entry.hash);
            }
        }
    }

    /// Releases the reservation in memtables after the write failed.
    pub(crate) fn release(&self) {
        for target in &self.targets {
            let placed = target.memtable.as_ref().expect("a placed write has its memtables");
            placed.release(target.charge_bytes);
        }
    }

    /// Adds the places of values in blob files, with the indexes of their entries.
    pub(crate) fn refer_to(&mut self, references: Vec<(usize, BlobReference)>) {
        for &(index, _) in &references {
            self.targets[self.entries[index].target].charge_bytes += REFERENCE_BYTES;
        }
        self.references = references;
    }

    /// Undoes [`refer_to`](Self::refer_to).
    pub(crate) fn refer_to_none(&mut self) {
        for (index, _) in mem::take(&mut self.references) {
            self.targets[self.entries[index].target].charge_bytes -= REFERENCE_BYTES;
        }
    }

    /// Returns the write as it was before it was placed.
    pub(crate) fn unplaced(&self) -> Self {
        let mut write = self.clone();
        write.refer_to_none();
        for target in &mut write.targets {
            target.memtable = None;
        }
        write
    }

    /// Returns whether an entry is for `key`, or removes a range that contains it.
    pub(crate) fn touches(&self, keyspace: u64, key: &[u8]) -> bool {
        self.entries.iter().any(|entry| {
            let start = &self.payload[entry.key.clone()];
            self.targets[entry.target].tree.id == keyspace
                && match entry.kind {
                    Kind::RangeTombstone => {
                        start <= key && ends_above(&self.payload[entry.value.clone()], key)
                    }
                    _ => start == key,
                }
        })
    }
}
impl Write {
    /// Returns the memory that the entries take in memtables, at most, in bytes.
    pub(crate) fn charge_bytes(&self) -> u64 {
        let bytes = self.targets.iter().map(|target| target.charge_bytes);
        bytes.map(|bytes| (bytes + spare_bytes(bytes)) as u64).sum()
    }

    /// Creates a write of this number of `keyspace_changes`, without entries for memtables.
    pub(crate) fn record(keyspace_changes: usize, encode: impl FnOnce(&mut BatchEncoder)) -> Self {
        let mut encoder = BatchEncoder::new();
        encode(&mut encoder);
        Self { payload: encoder.finish(), keyspace_changes, ..Self::default() }
    }

    /// Creates a write to `tree` without entries.
    pub(crate) fn to(tree: &Arc<Tree>) -> Self {
        Self { targets: [Target::new(Arc::clone(tree))].into(), ..Self::default() }
    }

    /// Creates the record of a clear of `tree`.
    pub(crate) fn clear(tree: &Arc<Tree>) -> Self {
        let record = Self::record(1, |batch| batch.clear_keyspace(tree.id));
        Self { clears: Some(Arc::clone(tree)), ..record }
    }

    /// Creates the record of an ingest into `tree` of tables with these ids, ascending.
    pub(crate) fn ingest(tree: &Arc<Tree>, tables: &[u64]) -> Self {
        let record = Self::record(1, |batch| batch.ingest(tree.id, tables));
        Self { ingests: Some(Arc::clone(tree)), ..record }
    }

    fn ranges(&mut self) -> impl Iterator<Item = &mut Range<usize>> {
        self.entries.iter_mut().flat_map(|entry| [&mut entry.key, &mut entry.value])
    }
}

/// Encodes writes for the log, and notes where their keys and values lie.
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

    /// Encodes one value, which expires at `expiry_ms` of the store clock, if it does.
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

    /// Adds a value, which expires at `expiry_ms` of the store clock, if it does.
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

/// Returns kind and stored form of a value, which expires at `expiry_ms` of the store clock, if it
/// does. `buffer` holds the form of one that does.
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
