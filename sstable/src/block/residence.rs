//! Block slots of an index: blocks found without a search.
//!
//! An index block has a slot for each block below it. A lookup from the index finds the block by
//! one load, without hash, lock or reference count. A slot has a block only while the cache has it.
//!
//! # Why no block outlives its eviction in a slot
//!
//! A lock of the block protects its state: in no slot, in one slot, or evicted. A block enters a
//! slot under this lock, unless it is evicted. Eviction sets the state under this lock, then clears
//! the slot. So an evicted block enters no slot again.
//!
//! A slot is cleared only if it has the evicted block: another reader may have put its own copy
//! there. The comparison by address is safe, because the caller holds the block. A reader's block
//! outlives the slot, the index and the table, as with any `arc-swap` pointer.
//!
//! A block has a weak reference to its index, so there is no cycle. If the upgrade fails, the index
//! is being dropped with its slots.
//!
//! `arc-swap` stores with release and loads with acquire: a reader of a slot sees a complete block.
//! Counts of uses and places to prefetch are hints.
//!
//! `schedules` runs all schedules of a few threads.

use std::{
    mem::ManuallyDrop,
    sync::{
        Arc, Weak,
        atomic::{AtomicU8, AtomicUsize, Ordering::Relaxed},
    },
};

use sievedb_filter::{LINE_BYTES, prefetch::prefetch};

use super::BlockInner;
use crate::sync::{ArcSwapOption, Guard, Mutex};

/// Uses of a block that are reported to the cache per round of its clock.
///
/// Without reports a hit would save one load, but misses would increase. Blocks read per 1,000
/// Zipfian hits during short scans, with a cache of half the data: 118 instead of 82 if popular
/// keys are adjacent, 264 instead of 208 if they are scattered. Without scans, or during long ones,
/// 1 to 12 % more. Reporting each use saves no reads. Measured by
/// `cargo run --release -p sievedb-benches --example cache`.
const USES_MAX: u8 = 2;

/// Places outside the block itself that a lookup reads first.
const PLACES: usize = 2;

/// The place of a block in the index above it.
#[derive(Debug, Default)]
pub(super) struct Slot {
    block: ManuallyDrop<ArcSwapOption<BlockInner>>,
    /// Addresses in the block that are read first, prefetched together with the block. May be those
    /// of the previous block in this slot.
    places: [AtomicUsize; PLACES],
}

impl Drop for Slot {
    /// Skips an empty slot: `arc-swap` would write to a line of each thread for each slot.
    fn drop(&mut self) {
        if self.block.load().is_some() {
            // SAFETY: the field is dropped here and not used again.
            unsafe { ManuallyDrop::drop(&mut self.block) };
        }
    }
}

impl Slot {
    /// Returns the block, if the slot has one.
    #[inline]
    pub(super) fn load(&self) -> Guard<Option<Arc<BlockInner>>> {
        for place in &self.places {
            prefetch(place.load(Relaxed));
        }
        let found = self.block.load();
        if let Some(block) = &*found {
            // Includes the two reference counts in front.
            const COUNTS_BYTES: usize = 2 * size_of::<usize>();
            let first = Arc::as_ptr(block).addr() - COUNTS_BYTES;
            for line in (0..COUNTS_BYTES + size_of::<BlockInner>()).step_by(LINE_BYTES) {
                prefetch(first + line);
            }
        }
        found
    }

    /// Prefetches the slot itself.
    pub(super) fn prefetch(&self) {
        prefetch(std::ptr::from_ref(self).addr());
    }

    /// Removes `block`, if the slot has it.
    fn clear(&self, block: &Arc<BlockInner>) {
        self.block.compare_and_swap(block, None);
    }
}

/// Place of a block in cache and index.
#[derive(Debug, Default)]
pub(super) struct Residence {
    /// Uses in this round of the cache's clock, up to [`USES_MAX`].
    uses: AtomicU8,
    home: Mutex<Home>,
}

/// Location of a block.
#[derive(Debug, Default)]
enum Home {
    /// In no slot.
    #[default]
    None,
    /// In this slot of this index.
    Slot(Weak<BlockInner>, u32),
    /// Evicted permanently.
    Evicted,
}

impl Residence {
    /// Counts a use. Returns `true` if it must be reported to the cache.
    #[inline]
    pub(super) fn count_use(&self) -> bool {
        let uses = self.uses.load(Relaxed);
        if uses >= USES_MAX {
            return false; // The usual case, which does not write the line.
        }
        // Concurrent uses may be lost, because the count is only a hint.
        self.uses.store(uses + 1, Relaxed);
        true
    }

    /// Starts a new round: the next uses are reported again.
    pub(super) fn forget_uses(&self) {
        if self.uses.load(Relaxed) > 0 {
            self.uses.store(0, Relaxed);
        }
    }
}

/// Puts `block` into slot `at` of `index`, unless the cache has evicted it.
pub(super) fn place(block: &Arc<BlockInner>, index: &Arc<BlockInner>, at: usize) {
    let mut home = block.residence().home.lock();
    match &*home {
        Home::Evicted => return,
        // The index was evicted and read again while its old slots are in use, or is corrupt and
        // has the block twice.
        Home::Slot(before, number) => {
            let number = *number as usize;
            let is_same = |before: &Arc<_>| number == at && Arc::ptr_eq(before, index);
            if let Some(before) = before.upgrade().filter(|before| !is_same(before)) {
                before.slot(number).clear(block);
            }
        }
        Home::None => {}
    }
    let slot = index.slot(at);
    for (place, first) in slot.places.iter().zip(block.first_read()) {
        place.store(first, Relaxed);
    }
    slot.block.store(Some(Arc::clone(block)));
    // An index has fewer than 2^32 entries.
    *home = Home::Slot(Arc::downgrade(index), at as u32);
}

/// Removes `block` from its slot permanently, after its eviction from the cache.
pub(super) fn evict(block: &Arc<BlockInner>) {
    let home = std::mem::replace(&mut *block.residence().home.lock(), Home::Evicted);
    if let Home::Slot(index, at) = home
        && let Some(index) = index.upgrade()
    {
        index.slot(at as usize).clear(block);
    }
}
