//! What a reader sees of a keyspace: its memtables and its version.

use std::{mem::ManuallyDrop, ops::Deref, sync::Arc};

use sievedb_format::{RangeTombstoneSource, SequenceNumber};
use sievedb_memtable::{Memtable, spare_bytes};

use crate::{
    memory::{Charge, MemoryAccount, MemoryUse},
    read::filter_set::FilterSet,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    version::Version,
};

/// A memtable and the sequence numbers of what was placed for it, inserted already or not.
#[derive(Debug)]
pub(crate) struct PlacedMemtable {
    /// Taken by the drop.
    pub(crate) memtable: ManuallyDrop<Arc<Memtable>>,
    first_sequence: AtomicU64,
    last_sequence: AtomicU64,
    last_inserted: AtomicU64,
    /// Tombstones that scans stepped over.
    skipped: AtomicU64,
    charge: ManuallyDrop<Charge>,
}

impl PlacedMemtable {
    /// An empty memtable that is to be frozen at `memtable_bytes`.
    pub(crate) fn new(memtable_bytes: usize, memory: &Arc<MemoryAccount>) -> Self {
        let memtable = Arc::new(Memtable::new(memtable_bytes));
        Self {
            charge: ManuallyDrop::new(memory.charge(MemoryUse::Memtables, memtable.memory_bytes())),
            memtable: ManuallyDrop::new(memtable),
            first_sequence: AtomicU64::new(0),
            last_sequence: AtomicU64::new(0),
            last_inserted: AtomicU64::new(0),
            skipped: AtomicU64::new(0),
        }
    }

    /// Charges the bytes of entries that were placed here.
    pub(crate) fn reserve(&self, bytes: usize) {
        let before = self.memtable.reserve(bytes);
        self.charge.grow(bytes + spare_bytes(before + bytes) - spare_bytes(before));
    }

    /// Releases a [reservation](Self::reserve) whose write failed: no entry is inserted.
    pub(crate) fn release(&self, bytes: usize) {
        let before = self.memtable.release(bytes);
        self.charge.shrink(bytes + spare_bytes(before) - spare_bytes(before - bytes));
    }

    /// The memory is used for `what` from now on.
    pub(crate) fn set_use(&self, what: MemoryUse) {
        self.charge.move_to(what);
    }

    /// Notes that the writes from `first` to `last` go here. Called in sequence order, under the
    /// placement lock.
    pub(crate) fn place(&self, first: SequenceNumber, last: SequenceNumber) {
        if self.first_sequence.load(Relaxed) == 0 {
            let target = self.charge.account().begin_memtable();
            let filter_bytes =
                self.memtable.allocate_filter(usize::try_from(target).unwrap_or(usize::MAX));
            self.charge.grow(filter_bytes);
            self.first_sequence.store(first, Relaxed);
        }
        self.last_sequence.store(last, Relaxed);
    }

    /// The first sequence number placed here, or `None` if none was.
    pub(crate) fn first_sequence(&self) -> Option<SequenceNumber> {
        Some(self.first_sequence.load(Relaxed)).filter(|&first| first > 0)
    }

    /// The last sequence number placed here; 0 if none was.
    pub(crate) fn last_sequence(&self) -> SequenceNumber {
        self.last_sequence.load(Relaxed)
    }

    /// Notes that a write that ends with `last` was inserted.
    pub(crate) fn note_inserted(&self, last: SequenceNumber) {
        self.last_inserted.fetch_max(last, Relaxed);
    }

    /// The last sequence number of what was inserted; 0 if nothing was. What failed and was placed
    /// behind it may still come back from the log.
    pub(crate) fn last_inserted(&self) -> SequenceNumber {
        self.last_inserted.load(Relaxed)
    }

    /// Tombstones that scans stepped over so far.
    pub(crate) fn skipped(&self) -> u64 {
        self.skipped.load(Relaxed)
    }

    /// Notes that a scan stepped over so many tombstones more. Returns how many it were before.
    pub(crate) fn add_skipped(&self, tombstones: u64) -> u64 {
        self.skipped.fetch_add(tombstones, Relaxed)
    }
}

impl Drop for PlacedMemtable {
    fn drop(&mut self) {
        let account = Arc::clone(self.charge.account());
        // SAFETY: taken once, here, and not used again.
        let memtable = unsafe { ManuallyDrop::take(&mut self.memtable) };
        // SAFETY: as above.
        let charge = unsafe { ManuallyDrop::take(&mut self.charge) };
        if self.first_sequence().is_some() {
            account.end_memtable();
            // The last reader may be a lookup. The charge is dropped after the memtable.
            account.free((memtable, charge));
        }
    }
}

impl RangeTombstoneSource for PlacedMemtable {
    fn is_empty(&self) -> bool {
        self.memtable.range_tombstones().is_empty()
    }

    fn newest_cover(&self, user_key: &[u8], at: SequenceNumber) -> Option<SequenceNumber> {
        self.memtable.range_tombstones().newest_cover(user_key, at)
    }
}

/// The memtables and tables of a keyspace at one moment.
#[derive(Debug, Clone)]
pub(crate) struct KeptView {
    /// Takes the writes.
    pub(crate) active: Arc<PlacedMemtable>,
    /// Memtables that wait for their flush, the newest first.
    pub(crate) frozen: Vec<Arc<PlacedMemtable>>,
    /// The tables.
    pub(crate) version: Arc<Version>,
}

/// What a lookup sees of a keyspace. Never changed: a new one takes its place.
///
/// Whoever reads for longer takes the [`KeptView`] out of it, which keeps no filter in memory.
#[derive(Debug)]
pub(crate) struct ReadView {
    kept: KeptView,
    pub(crate) keyspace_id: u64,
    /// Of the tables.
    pub(crate) filters: FilterSet,
}

impl ReadView {
    /// What is seen of these memtables and tables, with the present filters.
    pub(crate) fn new(keyspace_id: u64, kept: KeptView) -> Self {
        Self { filters: FilterSet::of(&kept.version), keyspace_id, kept }
    }

    /// The memtables and tables, to be kept.
    pub(crate) fn kept(&self) -> &KeptView {
        &self.kept
    }
}

impl Deref for ReadView {
    type Target = KeptView;

    fn deref(&self) -> &KeptView {
        &self.kept
    }
}

impl KeptView {
    /// The memtables, the newest first.
    pub(crate) fn placed_memtables(&self) -> impl Iterator<Item = &Arc<PlacedMemtable>> {
        [&self.active].into_iter().chain(&self.frozen)
    }

    /// The memtables, the newest first.
    pub(crate) fn memtables(&self) -> impl Iterator<Item = &Arc<Memtable>> {
        self.placed_memtables().map(|placed| &*placed.memtable)
    }

    /// The memtables in which a point lookup at `sequence` can find something, the newest first. An
    /// empty one, as after each flush, costs a lookup not even a line of its filter.
    pub(crate) fn memtables_at(
        &self,
        sequence: SequenceNumber,
    ) -> impl Iterator<Item = &Arc<Memtable>> {
        self.placed_memtables_at(sequence).map(|placed| &*placed.memtable)
    }

    /// The memtables in which a reader at `sequence` can find something, the newest first.
    pub(crate) fn placed_memtables_at(
        &self,
        sequence: SequenceNumber,
    ) -> impl Iterator<Item = &Arc<PlacedMemtable>> {
        // What is visible at `sequence` was placed before, and whoever knows the number sees that
        // too.
        let is_seen = move |placed: &&Arc<PlacedMemtable>| {
            placed.first_sequence().is_some_and(|first| first <= sequence)
        };
        self.placed_memtables().filter(is_seen)
    }

    /// Whether any memtable or table has range tombstones.
    pub(crate) fn has_range_tombstones(&self) -> bool {
        self.version.has_range_tombstones()
            || self.memtables().any(|memtable| !memtable.range_tombstones().is_empty())
    }

    /// The newest range tombstone at or below `sequence` that covers `key`; 0 if there is none.
    #[inline]
    pub(crate) fn newest_cover(&self, key: &[u8], sequence: SequenceNumber) -> SequenceNumber {
        if self.has_range_tombstones() { self.search_cover(key, sequence) } else { 0 }
    }

    #[cold]
    fn search_cover(&self, key: &[u8], sequence: SequenceNumber) -> SequenceNumber {
        let in_memtables = self
            .memtables()
            .map(|memtable| memtable.range_tombstones().newest_cover(key, sequence));
        let tables = self.version.runs().iter().filter_map(|run| run.find(key));
        let in_tables =
            tables.map(|live| live.table.range_tombstones().newest_cover(key, sequence));
        in_memtables.chain(in_tables).flatten().max().unwrap_or(0)
    }
}
