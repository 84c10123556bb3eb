//! A batch on its way through the commit pipeline.

use std::{mem, ops::Range, sync::Arc};

use bytes::Bytes;
use sievedb_format::{Kind, SequenceNumber, Trailer};
use sievedb_memtable::{Memtable, NewValue};
use smallvec::SmallVec;

use crate::{memory::BATCH_BYTES, read::tree::Tree, read::view::PlacedMemtable};

/// Memtables copy the values of a write whose entries take at most this many bytes in the log. A
/// shared buffer costs at least 120 bytes more, also for an entry of 50 bytes.
const COPIED_BYTES_MAX: usize = 256;

/// Returns whether memtables copy the values of a write whose entries take `entry_bytes` in the
/// log.
pub(crate) const fn copies_values(entry_bytes: usize) -> bool {
    entry_bytes <= COPIED_BYTES_MAX
}

/// The entries of a batch, encoded for the log, and where they go.
///
/// Values in memtables are slices of the encoded batch, except those of a small write or of a write
/// to several keyspaces: see [`Values`].
#[derive(Debug, Clone, Default)]
pub(crate) struct Write {
    pub(crate) payload: Bytes,
    pub(crate) targets: SmallVec<[Target; 1]>,
    pub(crate) entries: SmallVec<[Entry; 1]>,
    /// Memtables copy the values, and nothing keeps the payload once it is in the log.
    pub(crate) copies_values: bool,
    /// Creations and drops of keyspaces in the payload. Each takes a sequence number.
    pub(crate) keyspace_changes: usize,
}

/// A keyspace that a batch writes to.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub(crate) tree: Arc<Tree>,
    /// Chosen when the batch is placed.
    pub(crate) memtable: Option<Arc<PlacedMemtable>>,
    /// Memory that the entries take if memtables share their values.
    shared_bytes: usize,
    /// The same if memtables copy them.
    copied_bytes: usize,
    /// Bytes of the encoded entries.
    encoded_bytes: usize,
}

impl Target {
    pub(crate) fn new(tree: Arc<Tree>) -> Self {
        // Each has a buffer of its own.
        let shared_bytes = BATCH_BYTES;
        Self { tree, memtable: None, shared_bytes, copied_bytes: 0, encoded_bytes: 0 }
    }

    /// Adds an entry that takes `encoded_bytes` in the log.
    pub(crate) fn add_charge(
        &mut self,
        key_bytes: usize,
        value_bytes: usize,
        encoded_bytes: usize,
    ) {
        self.shared_bytes += charge_bytes(key_bytes, encoded_bytes);
        self.copied_bytes += Memtable::copied_charge(key_bytes, value_bytes);
        self.encoded_bytes += encoded_bytes;
    }

    /// Memory that the entries take in the memtable.
    pub(crate) fn charge_bytes(&self, copied: bool) -> usize {
        if copied { self.copied_bytes } else { self.shared_bytes }
    }

    /// Of that, the encoded batch.
    pub(crate) fn batch_bytes(&self, copied: bool) -> usize {
        if copied { 0 } else { self.encoded_bytes }
    }
}

/// An entry of a batch, as places in its payload.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    /// Index of the keyspace in `targets`.
    pub(crate) target: usize,
    pub(crate) kind: Kind,
    pub(crate) hash: u64,
    pub(crate) key: Range<usize>,
    pub(crate) value: Range<usize>,
}

impl Write {
    /// Puts every entry into its memtable, the first with the sequence number `first`.
    pub(crate) fn insert(&self, first: SequenceNumber) {
        let mut values = Values::new(self);
        for (sequence, entry) in (first..).zip(&self.entries) {
            let placed = self.targets[entry.target].memtable.as_ref();
            let memtable = &placed.expect("a placed write has its memtables").memtable;
            let key = &self.payload[entry.key.clone()];
            let value = values.next(self, entry);
            memtable.insert(entry.hash, key, Trailer::new(sequence, entry.kind), value);
        }
        let last = first + self.entries.len() as u64 - 1;
        for placed in self.targets.iter().filter_map(|target| target.memtable.as_ref()) {
            placed.note_inserted(last);
        }
    }

    /// Releases the reservation in memtables, after the write failed.
    pub(crate) fn release(&self) {
        for target in &self.targets {
            let placed = target.memtable.as_ref().expect("a placed write has its memtables");
            let copied = self.copies_values;
            placed.release(target.charge_bytes(copied), target.batch_bytes(copied));
        }
    }

    /// The same, to be placed again.
    pub(crate) fn unplaced(&self) -> Self {
        let mut write = self.clone();
        for target in &mut write.targets {
            target.memtable = None;
        }
        write
    }

    /// Whether an entry is for `key`.
    pub(crate) fn touches(&self, keyspace: u64, key: &[u8]) -> bool {
        self.entries.iter().any(|entry| {
            self.targets[entry.target].tree.id == keyspace
                && &self.payload[entry.key.clone()] == key
        })
    }
}

/// The values of a write as memtables keep them.
///
/// Values of a small write are copied into the memtable, without an allocation for each. Values of
/// a write to several keyspaces are copied into one buffer for each keyspace. Otherwise the
/// memtable of a keyspace with few entries would keep the whole batch after the others are flushed.
enum Values {
    Copied,
    InPayload,
    /// For each target its values, and how many bytes of them were handed out.
    Apart(SmallVec<[(Bytes, usize); 4]>),
}

impl Values {
    fn new(write: &Write) -> Self {
        if write.copies_values {
            return Self::Copied;
        }
        if write.targets.len() < 2 {
            return Self::InPayload;
        }
        let mut lengths: SmallVec<[usize; 4]> = SmallVec::from_elem(0, write.targets.len());
        for entry in &write.entries {
            lengths[entry.target] += entry.value.len();
        }
        let mut copies: SmallVec<[Vec<u8>; 4]> =
            lengths.into_iter().map(Vec::with_capacity).collect();
        for entry in &write.entries {
            copies[entry.target].extend_from_slice(&write.payload[entry.value.clone()]);
        }
        let shared = write.targets.iter().zip(copies).map(|(target, values)| {
            (target.tree.memory().shared_batch(values, target.encoded_bytes), 0)
        });
        Self::Apart(shared.collect())
    }

    /// That of the next entry.
    fn next<'w>(&mut self, write: &'w Write, entry: &Entry) -> NewValue<'w> {
        match self {
            Self::Copied => NewValue::Copied(&write.payload[entry.value.clone()]),
            Self::InPayload => write.payload.slice(entry.value.clone()).into(),
            Self::Apart(copies) => {
                let (values, start) = &mut copies[entry.target];
                let end = *start + entry.value.len();
                values.slice(mem::replace(start, end)..end).into()
            }
        }
    }
}

/// Memory that an entry takes in a memtable, its share of the payload included.
pub(crate) fn charge_bytes(key_bytes: usize, encoded_bytes: usize) -> usize {
    Memtable::charge(key_bytes, encoded_bytes)
}
