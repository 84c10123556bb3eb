//! The newest placed write of each key, at the precision of slots: a hash table without keys.

use sievedb_format::SequenceNumber;

use super::Write;

/// Number of slots, of 8 bytes each. With 16 writes of one entry in flight, 1 of 256 other keys
/// shares a slot with one of them, and waits for it.
pub(crate) const SLOTS: usize = 4096;

/// Odd, so that different keyspace ids give different products.
const MIX: u64 = 0x9e37_79b9_7f4a_7c15;

/// Index of the slot of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct KeySlot(u16);

impl KeySlot {
    /// Returns the slot of the key with this hash in the keyspace with this id.
    #[inline]
    pub(crate) fn new(keyspace: u64, hash: u64) -> Self {
        let mixed = hash ^ keyspace.wrapping_mul(MIX);
        Self((mixed % SLOTS as u64) as u16)
    }
}

/// For each slot, the last sequence number placed to any of its keys.
///
/// A number at or below the visible one proves that no write to the keys of the slot is in flight.
/// A number at or below that of a reader proves that no write was placed since the read. Writes to
/// other keys of the slot cost a check, and never cause a wrong result.
#[derive(Debug)]
pub(super) struct KeySlots {
    last: Box<[SequenceNumber; SLOTS]>,
    /// Last range tombstone, clear or ingest of a keyspace, each a write to any key.
    of_all: SequenceNumber,
}

impl KeySlots {
    pub(super) fn new() -> Self {
        Self { last: Box::new([0; SLOTS]), of_all: 0 }
    }

    /// Records the keys of a write whose last sequence number is `last`.
    #[inline]
    pub(super) fn note(&mut self, write: &Write, last: SequenceNumber) {
        debug_assert!(self.of_all <= last, "writes are placed in sequence order");
        if write.clears.is_some() || write.ingests.is_some() {
            self.of_all = last;
        }
        for entry in &write.entries {
            if entry.is_range() {
                self.of_all = last;
            }
            let KeySlot(slot) = KeySlot::new(write.targets[entry.target].tree.id, entry.hash);
            let noted = &mut self.last[usize::from(slot)];
            debug_assert!(*noted <= last, "slots ascend");
            *noted = last;
        }
    }

    pub(super) fn last(&self, KeySlot(slot): KeySlot) -> SequenceNumber {
        self.last[usize::from(slot)].max(self.of_all)
    }
}
