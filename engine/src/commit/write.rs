//! A batch in the commit pipeline.

use std::{mem, ops::Range, sync::Arc};

use bytes::Bytes;
use sievedb_format::{Kind, RangeTombstone, SequenceNumber, Trailer, range_tombstone::ends_above};
use sievedb_memtable::spare_bytes;
use sievedb_sstable::BlobReference;
use smallvec::SmallVec;

use crate::{
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

    /// Returns the places in the payload.
    pub(super) fn ranges(&mut self) -> impl Iterator<Item = &mut Range<usize>> {
        self.entries.iter_mut().flat_map(|entry| [&mut entry.key, &mut entry.value])
    }
}
