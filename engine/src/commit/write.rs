//! A batch on its way through the commit pipeline.

use std::{ops::Range, sync::Arc};

use bytes::Bytes;
use sievedb_format::{Kind, SequenceNumber, Trailer};
use sievedb_memtable::Memtable;
use smallvec::SmallVec;

use crate::{read::tree::Tree, read::view::PlacedMemtable};

/// The entries of a batch, encoded for the log, and where they go.
///
/// Memtables copy keys and values: nothing keeps the payload once it is in the log.
#[derive(Debug, Clone, Default)]
pub(crate) struct Write {
    pub(crate) payload: Bytes,
    pub(crate) targets: SmallVec<[Target; 1]>,
    pub(crate) entries: SmallVec<[Entry; 1]>,
    /// Creations and drops of keyspaces in the payload. Each takes a sequence number.
    pub(crate) keyspace_changes: usize,
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

    /// Adds an entry.
    pub(crate) fn add_charge(&mut self, key_bytes: usize, value_bytes: usize) {
        self.charge_bytes += Memtable::charge(key_bytes, value_bytes);
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
        for (sequence, entry) in (first..).zip(&self.entries) {
            let placed = self.targets[entry.target].memtable.as_ref();
            let memtable = &placed.expect("a placed write has its memtables").memtable;
            let key = &self.payload[entry.key.clone()];
            let value = &self.payload[entry.value.clone()];
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
            placed.release(target.charge_bytes);
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
