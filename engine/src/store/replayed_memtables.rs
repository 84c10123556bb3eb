//! The memtables of a keyspace into which a log is replayed.
//!
//! A store that writes has one, which becomes the active memtable. A follower cannot flush, and
//! learns which entries its writer has flushed afterwards. So it has several small ones: most of
//! them are flushed as a whole or not at all, and the entries of one are copied.

use std::{mem, sync::Arc};

use sievedb_format::SequenceNumber;

use crate::{
    memory::{MemoryAccount, MemoryUse},
    read::view::PlacedMemtable,
};

/// A follower begins a memtable when the newest one has this part of all, or of the size at which
/// its writer freezes one. So their number grows with the logarithm of their bytes.
const ROTATED_SHARE: usize = 8;

/// Smallest such part.
const ROTATED_BYTES_MIN: usize = 1 << 10;

/// Entries that a log adds to a keyspace.
#[derive(Debug, Clone)]
pub(super) struct ReplayedMemtables {
    /// The newest first, as in views. Never empty.
    all: Vec<Arc<PlacedMemtable>>,
    /// Memory of entries of the newest one that is not charged yet.
    uncharged_bytes: usize,
}

impl ReplayedMemtables {
    /// Creates an empty memtable for `bytes` bytes.
    pub(super) fn new(bytes: usize, memory: &Arc<MemoryAccount>) -> Self {
        let all = vec![Arc::new(PlacedMemtable::new(bytes, memory))];
        Self { all, uncharged_bytes: 0 }
    }

    /// Creates the first memtable of a follower, to be [rotated](Self::rotate). The writer freezes
    /// memtables at `memtable_bytes`.
    pub(super) fn rotated(memtable_bytes: usize, memory: &Arc<MemoryAccount>) -> Self {
        Self::new(rotated_bytes(memtable_bytes, 0), memory)
    }

    /// Returns the memtables, the newest first.
    pub(super) fn all(&self) -> &[Arc<PlacedMemtable>] {
        &self.all
    }

    fn newest(&self) -> &Arc<PlacedMemtable> {
        self.all.first().expect("there is one")
    }

    /// Returns the first sequence number of all.
    pub(super) fn first_sequence(&self) -> Option<SequenceNumber> {
        self.all.last().and_then(|oldest| oldest.first_sequence())
    }

    /// Places an entry of `bytes` bytes of memory in the newest memtable, and returns that.
    pub(super) fn place(&mut self, sequence: SequenceNumber, bytes: usize) -> &PlacedMemtable {
        self.uncharged_bytes += bytes;
        let newest = self.newest();
        newest.place(sequence, sequence);
        newest.note_inserted(sequence);
        newest
    }

    /// Begins a memtable if the newest one is full for a follower, before the first entry of the
    /// batch at `batch`. A batch is never divided over two memtables. The writer freezes memtables
    /// at `memtable_bytes`.
    pub(super) fn rotate(
        &mut self,
        batch: SequenceNumber,
        memtable_bytes: usize,
        memory: &Arc<MemoryAccount>,
    ) {
        let newest = self.newest();
        let bytes = newest.memtable.memory_bytes() + self.uncharged_bytes;
        let is_begun = newest.last_sequence() >= batch;
        if is_begun || bytes < rotated_bytes(memtable_bytes, 0) {
            return;
        }
        if bytes >= rotated_bytes(memtable_bytes, self.bytes()) {
            self.begin(memtable_bytes, memory);
        }
    }

    /// Begins a memtable of a follower between two batches, unless the newest one is empty.
    pub(super) fn begin(&mut self, memtable_bytes: usize, memory: &Arc<MemoryAccount>) {
        if self.newest().first_sequence().is_none() {
            return;
        }
        let next_bytes = rotated_bytes(memtable_bytes, self.bytes());
        self.charge();
        self.newest().set_use(MemoryUse::FrozenMemtables);
        self.all.insert(0, Arc::new(PlacedMemtable::new(next_bytes, memory)));
    }

    fn bytes(&self) -> usize {
        let charged = self.all.iter().map(|placed| placed.memtable.memory_bytes());
        charged.sum::<usize>() + self.uncharged_bytes
    }

    /// Charges the memory of the entries since the last call.
    pub(super) fn charge(&mut self) {
        let bytes = mem::take(&mut self.uncharged_bytes);
        if bytes > 0 {
            self.newest().reserve(bytes);
        }
    }

    /// Removes the memtables whose entries are all at or below `flushed`. Replaces one that is
    /// partly flushed by the result of `rest` for a memtable of that many bytes. Returns `false` if
    /// nothing is left.
    pub(super) fn leave_flushed(
        &mut self,
        flushed: SequenceNumber,
        memtable_bytes: usize,
        rest: impl FnOnce(&PlacedMemtable, usize) -> Arc<PlacedMemtable>,
    ) -> bool {
        debug_assert_eq!(self.uncharged_bytes, 0, "its entries are visible");
        let bytes = rotated_bytes(memtable_bytes, self.bytes());
        self.all.retain(|placed| placed.last_sequence() > flushed);
        let is_last = self.all.len() == 1;
        if let Some(oldest) = self.all.last_mut()
            && oldest.first_sequence().is_some_and(|first| first <= flushed)
        {
            *oldest = rest(oldest, bytes);
            if !is_last {
                oldest.set_use(MemoryUse::FrozenMemtables);
            }
        }
        !self.all.is_empty()
    }
}

/// Returns the size of a full memtable of a follower, whose writer freezes memtables at
/// `memtable_bytes`, if all have `bytes` bytes.
fn rotated_bytes(memtable_bytes: usize, bytes: usize) -> usize {
    (memtable_bytes.max(bytes) / ROTATED_SHARE).max(ROTATED_BYTES_MIN)
}

#[cfg(test)]
mod tests {
    use sievedb_format::{Kind, Trailer};
    use sievedb_memtable::Memtable;

    use super::*;

    const MEMTABLE_BYTES: usize = 64 << 10;

    /// Places batches of two entries, until `batches` are there.
    fn fill(memtables: &mut ReplayedMemtables, batches: u64, memory: &Arc<MemoryAccount>) {
        for batch in (1..2 * batches).step_by(2) {
            memtables.rotate(batch, MEMTABLE_BYTES, memory);
            for sequence in [batch, batch + 1] {
                // As for another entry of the batch.
                memtables.rotate(batch, MEMTABLE_BYTES, memory);
                let placed = memtables.place(sequence, Memtable::charge(8, 100));
                let trailer = Trailer::new(sequence, Kind::Put);
                placed.memtable.insert(sequence, &sequence.to_be_bytes(), trailer, &[7; 100]);
            }
        }
        memtables.charge();
    }

    fn places(memtables: &ReplayedMemtables) -> Vec<(u64, u64)> {
        let place = |it: &Arc<PlacedMemtable>| (it.first_sequence().unwrap(), it.last_sequence());
        memtables.all().iter().map(place).collect()
    }

    #[test]
    fn memtables_are_rotated_between_batches_and_charged() {
        let memory = Arc::<MemoryAccount>::default();
        let mut memtables = ReplayedMemtables::rotated(MEMTABLE_BYTES, &memory);
        fill(&mut memtables, 200, &memory);
        let all = places(&memtables);
        assert!((4..=9).contains(&all.len()), "{} memtables", all.len());
        assert!(all.is_sorted_by(|newer, older| newer.0 == older.1 + 1), "{all:?}");
        assert!(all.iter().all(|(first, last)| first % 2 == 1 && last % 2 == 0), "{all:?}");
        assert_eq!(memtables.first_sequence(), Some(1));
        let least = 400 * Memtable::charge(8, 100) as u64;
        assert!(memory.memtable_bytes() >= least);
        let frozen = memory.bytes(MemoryUse::FrozenMemtables);
        assert!(frozen >= least * 3 / 4 && frozen < memory.memtable_bytes(), "{frozen}");
        drop(memtables);
        assert_eq!(memory.memtable_bytes(), 0);
    }

    #[test]
    fn their_number_grows_slowly_with_their_bytes() {
        let memory = Arc::<MemoryAccount>::default();
        let mut memtables = ReplayedMemtables::rotated(MEMTABLE_BYTES, &memory);
        fill(&mut memtables, 40 * 200, &memory);
        let number = memtables.all().len();
        assert!((16..50).contains(&number), "{number} memtables of 40 times the size");
    }

    #[test]
    fn flushed_memtables_are_removed_and_one_is_replaced() {
        let memory = Arc::<MemoryAccount>::default();
        let mut memtables = ReplayedMemtables::rotated(MEMTABLE_BYTES, &memory);
        fill(&mut memtables, 200, &memory);
        let all = places(&memtables);
        let (first, last) = all[all.len() - 2];
        let new = |first, last| {
            let placed = PlacedMemtable::new(1 << 10, &memory);
            placed.place(first, last);
            Arc::new(placed)
        };
        let mut left = memtables.clone();
        let is_left = left.leave_flushed(first - 1, MEMTABLE_BYTES, |_, _| panic!("none"));
        assert!(is_left);
        assert_eq!(places(&left), all[..all.len() - 1]);
        let rest = |placed: &PlacedMemtable, _: usize| {
            assert_eq!(placed.first_sequence(), Some(first));
            new(first + 2, last)
        };
        assert!(left.leave_flushed(first + 1, MEMTABLE_BYTES, rest));
        assert_eq!(places(&left)[..all.len() - 2], all[..all.len() - 2]);
        assert_eq!(left.first_sequence(), Some(first + 2));
        assert!(!memtables.leave_flushed(400, MEMTABLE_BYTES, |_, _| panic!("none")));
    }
}
