//! Views of a keyspace: its memtables and its version at one point in time.

use std::{
    collections::{BTreeMap, BTreeSet},
    iter,
    mem::ManuallyDrop,
    ops::Deref,
    sync::Arc,
};

use sievedb_format::{SequenceNumber, packed_keys::head};
use sievedb_memtable::{Memtable, spare_bytes};
use sievedb_sstable::BlobReference;

use crate::{
    compaction::tombstones::is_paid,
    fold::OperatorCell,
    memory::{Charge, MemoryAccount, MemoryUse},
    resolve::ReadPoint,
    store_clock::StoreClock,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    table::TableFilters,
    version::{Run, Version},
};

/// Minimum number of skipped entries that causes a flush of a memtable. A flush takes milliseconds
/// for syncs, and stepping over this many tombstones takes 8 ms.
const SKIPPED_MIN: u64 = 1 << 17;

/// Memory of a blob reference: nodes of the map may be half empty.
pub(crate) const REFERENCE_BYTES: usize = 128;

/// A memtable and the sequence numbers placed for it, including those not inserted yet.
#[derive(Debug)]
pub(crate) struct PlacedMemtable {
    /// Moved out by the drop.
    pub(crate) memtable: ManuallyDrop<Arc<Memtable>>,
    first_sequence: AtomicU64,
    last_sequence: AtomicU64,
    last_inserted: AtomicU64,
    tombstones: AtomicU64,
    /// Tombstones that scans skipped, and merge operands of keys with many that reads applied.
    skipped: AtomicU64,
    /// References to values in blob files, by sequence number.
    references: Mutex<BTreeMap<SequenceNumber, BlobReference>>,
    charge: ManuallyDrop<Charge>,
}

impl PlacedMemtable {
    /// Creates an empty memtable that should be frozen at `memtable_bytes`. While it is empty, its
    /// memory is that of the keyspace: no flush frees it, so writes must not wait for it.
    pub(crate) fn new(memtable_bytes: usize, memory: &Arc<MemoryAccount>) -> Self {
        Self {
            charge: ManuallyDrop::new(memory.charge(MemoryUse::Memtables, 0)),
            memtable: ManuallyDrop::new(Arc::new(Memtable::new(memtable_bytes))),
            first_sequence: AtomicU64::new(0),
            last_sequence: AtomicU64::new(0),
            last_inserted: AtomicU64::new(0),
            tombstones: AtomicU64::new(0),
            skipped: AtomicU64::new(0),
            references: Mutex::default(),
        }
    }

    /// Charges the bytes of entries to insert.
    pub(crate) fn reserve(&self, bytes: usize) {
        let before = self.memtable.reserve(bytes);
        self.charge.grow(bytes + spare_bytes(before + bytes) - spare_bytes(before));
    }

    /// Releases a [reservation](Self::reserve) whose write failed: no entry is inserted.
    pub(crate) fn release(&self, bytes: usize) {
        let before = self.memtable.release(bytes);
        self.charge.shrink(bytes + spare_bytes(before) - spare_bytes(before - bytes));
    }

    /// Changes the use that the memory is charged to.
    pub(crate) fn set_use(&self, what: MemoryUse) {
        self.charge.move_to(what);
    }

    /// Places the sequence numbers from `first` to `last` here. Called in sequence order, under the
    /// placement lock.
    pub(crate) fn place(&self, first: SequenceNumber, last: SequenceNumber) {
        debug_assert!(0 < first && first <= last, "{first} to {last}");
        debug_assert!(self.last_sequence() < first, "{first} after {}", self.last_sequence());
        if self.first_sequence.load(Relaxed) == 0 {
            let target = self.charge.account().begin_memtable();
            let filter_bytes =
                self.memtable.allocate_filter(usize::try_from(target).unwrap_or(usize::MAX));
            self.charge.grow(filter_bytes);
            self.first_sequence.store(first, Relaxed);
        }
        self.last_sequence.store(last, Relaxed);
    }

    /// Returns the first sequence number placed here.
    pub(crate) fn first_sequence(&self) -> Option<SequenceNumber> {
        Some(self.first_sequence.load(Relaxed)).filter(|&first| first > 0)
    }

    /// Returns `true` if a reader at `sequence` may see an entry.
    #[inline]
    pub(crate) fn is_seen_at(&self, sequence: SequenceNumber) -> bool {
        self.first_sequence().is_some_and(|first| first <= sequence)
    }

    /// Returns the last sequence number placed here; 0 if there is none.
    pub(crate) fn last_sequence(&self) -> SequenceNumber {
        self.last_sequence.load(Relaxed)
    }

    /// Records that a write that ends with `last` was inserted.
    pub(crate) fn note_inserted(&self, last: SequenceNumber) {
        debug_assert!(self.first_sequence().is_some_and(|first| first <= last));
        debug_assert!(last <= self.last_sequence(), "{last} was not placed");
        self.last_inserted.fetch_max(last, Relaxed);
    }

    /// Returns the last sequence number inserted; 0 if there is none. Failed writes that were
    /// placed after it may still reappear from the log.
    pub(crate) fn last_inserted(&self) -> SequenceNumber {
        self.last_inserted.load(Relaxed)
    }

    /// Records that the value of an entry is also in a blob file. The reference is charged as
    /// [`REFERENCE_BYTES`] in addition to the entry.
    pub(crate) fn note_reference(&self, sequence: SequenceNumber, reference: BlobReference) {
        self.references.lock().insert(sequence, reference);
    }

    /// Returns the reference to the value with this sequence number in a blob file.
    pub(crate) fn reference(&self, sequence: SequenceNumber) -> Option<BlobReference> {
        self.references.lock().get(&sequence).copied()
    }

    /// Returns the ids of the blob files that also have values of entries.
    pub(crate) fn referenced_files(&self) -> BTreeSet<u64> {
        self.references.lock().values().map(|reference| reference.file_id).collect()
    }

    /// Counts a tombstone that was inserted.
    pub(crate) fn note_tombstone(&self) {
        self.tombstones.fetch_add(1, Relaxed);
    }

    /// Returns the tombstones inserted so far, for estimates.
    pub(crate) fn tombstones(&self) -> u64 {
        self.tombstones.load(Relaxed)
    }

    /// Returns the tombstones and operands that reads have paid for so far.
    fn skipped(&self) -> u64 {
        self.skipped.load(Relaxed)
    }

    /// Adds skipped tombstones or merge operands. Returns `true` if they made a flush due.
    pub(crate) fn add_skipped(&self, entries: u64) -> bool {
        let before = self.skipped.fetch_add(entries, Relaxed);
        !self.is_due_after(before) && self.is_due_after(before + entries)
    }

    /// Returns `true` if a flush is due: reads have skipped enough entries to pay for the flush or
    /// compaction that removes them.
    pub(crate) fn is_flush_due(&self) -> bool {
        self.is_due_after(self.skipped())
    }

    fn is_due_after(&self, skipped: u64) -> bool {
        skipped >= SKIPPED_MIN && is_paid(skipped, self.memtable.entries() as u64)
    }

    /// Records that a lookup applied `operands` merge operands from here, of a key with many.
    pub(crate) fn note_operands(&self, operands: u64) {
        if self.add_skipped(operands) {
            self.charge.account().note_long_merges();
        }
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

/// The memtables and tables of a keyspace at one point in time.
#[derive(Debug, Clone)]
pub(crate) struct KeptView {
    /// Memtable that receives writes.
    pub(crate) active: Arc<PlacedMemtable>,
    /// Memtables to flush, the newest first.
    pub(crate) frozen: Vec<Arc<PlacedMemtable>>,
    pub(crate) version: Arc<Version>,
    /// The merge operator of the keyspace, shared by all views.
    pub(crate) operator: OperatorCell,
    /// Sequence number of the last clear of the keyspace; 0 if there was none since the store was
    /// opened. The view has only later entries.
    pub(crate) cleared: SequenceNumber,
    /// Snapshots at smaller sequence numbers read an older view, which the list of snapshots keeps.
    /// This view lacks some of their entries, because of a clear or a compaction filter.
    pub(crate) snapshots_from: SequenceNumber,
    /// Newest sequence number of the tables that a FIFO compaction removed with their entries. The
    /// view may lack writes that are later than a snapshot below this number.
    pub(crate) unlinked_to: SequenceNumber,
}

/// The view of lookups, with filters. Immutable: changes replace it.
///
/// Longer readers copy its [`KeptView`], which keeps no filter in memory.
#[derive(Debug)]
pub(crate) struct ReadView {
    kept: KeptView,
    pub(crate) keyspace_id: u64,
    pub(crate) filters: FilterSet,
}

impl ReadView {
    /// Creates a view with the current filters of the tables.
    pub(crate) fn new(keyspace_id: u64, kept: KeptView) -> Self {
        Self { filters: FilterSet::new(&kept.version), keyspace_id, kept }
    }

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

/// The filters of all tables of a version.
///
/// A lookup finds them without a reference count, because its view keeps them. Longer readers keep
/// only the tables, so that no replaced filter stays in memory.
#[derive(Debug, Default)]
pub(crate) struct FilterSet {
    runs: Vec<Box<[Arc<TableFilters>]>>,
}

impl FilterSet {
    /// Collects the current filters of the tables of `version`.
    pub(crate) fn new(version: &Version) -> Self {
        let of_run = |run: &Run| run.tables().iter().map(|table| table.filters()).collect();
        Self { runs: version.runs().iter().map(of_run).collect() }
    }

    /// Returns the filters of the tables of each run, in the order of the version.
    pub(crate) fn runs(&self) -> &[Box<[Arc<TableFilters>]>] {
        &self.runs
    }
}

impl KeptView {
    /// Returns the memtables, the newest first.
    pub(crate) fn placed_memtables(&self) -> impl Iterator<Item = &Arc<PlacedMemtable>> {
        iter::once(&self.active).chain(&self.frozen)
    }

    /// Returns the memtables, the newest first.
    pub(crate) fn memtables(&self) -> impl Iterator<Item = &Arc<Memtable>> {
        self.placed_memtables().map(|placed| &*placed.memtable)
    }

    /// Returns the memtables that may have versions visible at `sequence`, the newest first. So an
    /// empty memtable, as after each flush, costs a lookup no line of its filter.
    pub(crate) fn memtables_at(
        &self,
        sequence: SequenceNumber,
    ) -> impl Iterator<Item = &Arc<Memtable>> {
        self.placed_memtables_at(sequence).map(|placed| &*placed.memtable)
    }

    /// As [`memtables_at`](Self::memtables_at), with their sequence numbers.
    pub(crate) fn placed_memtables_at(
        &self,
        sequence: SequenceNumber,
    ) -> impl Iterator<Item = &Arc<PlacedMemtable>> {
        // Versions visible at `sequence` were placed before, and a reader that knows the number
        // sees their placement too.
        self.placed_memtables().filter(move |placed| placed.is_seen_at(sequence))
    }

    /// Returns the rank of the first run among the sources of the view: memtables and runs, the
    /// newest first.
    pub(crate) fn first_run_rank(&self) -> usize {
        1 + self.frozen.len()
    }

    /// Returns `at` with a fixed clock, if an entry that it may see expires. Otherwise reads no
    /// clock.
    #[inline]
    pub(crate) fn fix_clock(&self, at: ReadPoint, clock: &StoreClock) -> ReadPoint {
        if self.has_expiry() { at.with_clock(|| clock.now_ms()) } else { at }
    }

    /// Returns `true` if any memtable or table has entries that expire.
    pub(crate) fn has_expiry(&self) -> bool {
        self.version.has_expiry() || self.memtables().any(|memtable| memtable.has_expiry())
    }

    /// Returns `true` if any memtable or table has range tombstones.
    #[inline]
    pub(crate) fn has_range_tombstones(&self) -> bool {
        let has_some =
            |placed: &Arc<PlacedMemtable>| !placed.memtable.range_tombstones().is_empty();
        self.version.has_range_tombstones()
            || has_some(&self.active)
            || self.frozen.iter().any(has_some)
    }

    /// Returns `true` if a memtable or table may have a range tombstone after `after`.
    pub(crate) fn has_range_tombstones_after(&self, after: SequenceNumber) -> bool {
        let has_some = |placed: &Arc<PlacedMemtable>| {
            placed.last_sequence() > after && !placed.memtable.range_tombstones().is_empty()
        };
        self.placed_memtables().any(has_some)
            || self.version.runs().iter().any(|run| run.newest_range_tombstone() > after)
    }

    /// Returns the sequence number of the newest range tombstone that covers `key` and that a
    /// reader at `sequence` sees; 0 if it is not larger than `above`, or if there is none.
    #[inline]
    pub(crate) fn newest_cover(
        &self,
        key: &[u8],
        sequence: SequenceNumber,
        above: SequenceNumber,
    ) -> SequenceNumber {
        if self.has_range_tombstones() { self.search_cover(key, sequence, above) } else { 0 }
    }

    /// Returns the sequence number of a range tombstone over a large part of the key space that
    /// covers `key` and that a reader at `sequence` sees; 0 if none is found. Newer ones may exist.
    /// Compares one range tombstone of each memtable, and one of all tables.
    #[inline]
    pub(super) fn wide_cover(&self, key: &[u8], sequence: SequenceNumber) -> SequenceNumber {
        let key_head = head(key);
        let of_tables = match self.version.widest_range_tombstone() {
            Some(one) if one.covers_head(key_head) && one.sequence() <= sequence => one.sequence(),
            _ => 0,
        };
        self.memtables_at(sequence).fold(of_tables, |newest, memtable| {
            newest.max(memtable.range_tombstones().wide_cover(key_head, sequence))
        })
    }

    /// As [`newest_cover`](Self::newest_cover), for a view with range tombstones.
    #[inline(never)]
    pub(super) fn search_cover(
        &self,
        key: &[u8],
        sequence: SequenceNumber,
        above: SequenceNumber,
    ) -> SequenceNumber {
        let newest = self.newest_cover_in_memtables(key, sequence, above);
        let newest = self.version.newest_cover(key, sequence, newest);
        if newest > above { newest } else { 0 }
    }

    /// Returns the sequence number of the newest range tombstone of a memtable that covers `key`
    /// and that a reader at `sequence` sees, if it is larger than `above`; else `above`.
    #[inline]
    pub(crate) fn newest_cover_in_memtables(
        &self,
        key: &[u8],
        sequence: SequenceNumber,
        above: SequenceNumber,
    ) -> SequenceNumber {
        let mut newest = above;
        for placed in self.placed_memtables_at(sequence) {
            if placed.last_sequence() <= newest {
                break;
            }
            newest = placed.memtable.range_tombstones().newest_cover_above(key, sequence, newest);
        }
        newest
    }
}
