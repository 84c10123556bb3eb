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

/// Maximum number of entries whose cache misses are hidden. With more, lines would be evicted
/// before their use.
const PREFETCHES_MAX: usize = 8;

/// The entries of a batch, encoded for the log, and their targets.
///
/// Memtables copy keys and values: the payload is dropped once it is in the log.
#[derive(Debug, Clone, Default)]
pub(crate) struct Write {
    pub(crate) payload: Bytes,
    pub(crate) targets: SmallVec<[Target; 1]>,
    pub(crate) entries: SmallVec<[Entry; 1]>,
    /// Number of changes of keyspaces in the payload, without changes of options. Each takes a
    /// sequence number.
    pub(crate) keyspace_changes: usize,
    /// The keyspace that the change in the payload clears.
    pub(crate) clears: Option<Arc<Tree>>,
    /// The keyspace that gets ingested tables with the sequence number of the write.
    pub(crate) ingests: Option<Arc<Tree>>,
    /// References to values in blob files, with the indexes of their entries.
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

/// An entry of a batch, as ranges of its payload.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    /// Index of the keyspace in `targets`.
    pub(crate) target: usize,
    pub(crate) kind: Kind,
    pub(crate) hash: u64,
    /// Range of the key, or of the start of a range tombstone.
    pub(crate) key: Range<usize>,
    /// Range of the value, or of the end of a range tombstone.
    pub(crate) value: Range<usize>,
}

impl Entry {
    /// Returns `true` if the entry is a write to a range of keys.
    #[inline]
    pub(crate) fn is_range(&self) -> bool {
        self.kind == Kind::RangeTombstone
    }
}

impl Write {
    /// Inserts every entry into its memtable. The first entry has the sequence number `first`.
    pub(crate) fn insert(&self, first: SequenceNumber) {
        let mut next = first;
        for entries in self.entries.chunk_by(|a, b| a.target == b.target) {
            let placed = self.targets[entries[0].target].memtable.as_ref();
            let placed = placed.expect("a placed write has its memtables");
            let from = next;
            next += entries.len() as u64;
            let key = |entry: &Entry| &self.payload[entry.key.clone()];
            let value = |entry: &Entry| &self.payload[entry.value.clone()];
            let numbered = || (from..next).zip(entries);
            for (sequence, entry) in numbered().filter(|(_, entry)| entry.is_range()) {
                let tombstone = RangeTombstone::new(key(entry), value(entry), sequence);
                placed.memtable.insert_range_tombstone(tombstone);
            }
            let points = numbered().filter(|(_, entry)| !entry.is_range());
            let mut points = points.map(|(sequence, entry)| {
                if entry.kind == Kind::Tombstone {
                    placed.note_tombstone();
                }
                (entry.hash, key(entry), Trailer::new(sequence, entry.kind), value(entry))
            });
            if entries.len() > 1 {
                placed.memtable.insert_all(points);
            } else if let Some((hash, key, trailer, value)) = points.next() {
                placed.memtable.insert(hash, key, trailer, value);
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

    /// Prefetches the memory of the memtables' filters that the first entries write. The append to
    /// the log, which precedes the inserts, hides the cache misses.
    pub(crate) fn prefetch_filters(&self) {
        for entry in self.entries.iter().take(PREFETCHES_MAX) {
            if let Some(placed) = &self.targets[entry.target].memtable {
                placed.memtable.prefetch(entry.hash);
            }
        }
    }

    /// Releases the reservation in memtables after a failed write.
    pub(crate) fn release(&self) {
        for target in &self.targets {
            let placed = target.memtable.as_ref().expect("a placed write has its memtables");
            placed.release(target.charge_bytes);
        }
    }

    /// Adds references to values in blob files, with the indexes of their entries.
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

    /// Returns the write in its state before placement.
    pub(crate) fn unplaced(&self) -> Self {
        let mut write = self.clone();
        write.refer_to_none();
        for target in &mut write.targets {
            target.memtable = None;
        }
        write
    }

    /// Returns `true` if an entry is for `key`, or removes a range that contains it.
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

    /// Returns the maximum memory of the entries in memtables, in bytes.
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

    /// Returns all ranges of the payload.
    pub(super) fn ranges(&mut self) -> impl Iterator<Item = &mut Range<usize>> {
        self.entries.iter_mut().flat_map(|entry| [&mut entry.key, &mut entry.value])
    }
}
