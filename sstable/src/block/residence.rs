//! Where a block is found without a search: the block slots of an index.
//!
//! An index block has a slot for each block below it. A lookup that comes from the index finds the
//! block there by one load, without hash, lock or reference count. The cache alone decides which
//! blocks are kept: a slot has a block only as long as the cache has it.
//!
//! # Why no block outlives its eviction in a slot
//!
//! Each block has a lock over where it is: nowhere, in one slot, or evicted for good. It is put
//! into a slot under this lock and only if it is not evicted; the cache marks it as evicted under
//! this lock, and then takes it out of the slot that it was in. So whichever comes second sees what
//! the first did, and what is evicted comes into no slot again. A slot is emptied only of the block
//! that is evicted: another reader may have put its own copy there. Nobody takes the one for the
//! other by its address: who compares has the block. A reader that found a block keeps it for as
//! long as it looks at it, as with any pointer of `arc-swap`, also after the slot, the index and
//! the table are gone.
//!
//! A block knows its index without keeping it alive, so there is no circle. An index that cannot be
//! had any more is about to be dropped with what is in its slots.
//!
//! The lock orders all that is said of one block. What a reader sees through a slot was written
//! before the slot was (`arc-swap` stores to release and loads to acquire), on every processor. The
//! counts of uses and the places to prefetch are hints: nothing follows from them.
//!
//! All schedules of a few threads are run by `schedules`.

use std::{
    mem::ManuallyDrop,
    sync::{
        Arc, Weak,
        atomic::{AtomicU8, AtomicUsize, Ordering::Relaxed},
    },
};

use sievedb_format::prefetch::{LINE_BYTES, prefetch};

use super::BlockInner;
use crate::sync::{ArcSwapOption, Guard, Mutex};

/// The cache learns of so many uses of a block between two looks at it: it counts no more.
///
/// Telling it of none would spare a load for each hit, and cost blocks read: for 1,000 hits by
/// Zipf's distribution beside short scans, with a cache of half the data, 118 instead of 82 if what
/// is hot lies side by side and 264 instead of 208 if it is scattered; without scans, or beside
/// long ones, 1 to 12 % more. Telling it of each use reads no less. `cargo run --release -p
/// sievedb-benches --example cache` takes these figures.
const USES_MAX: u8 = 2;

/// Places that a lookup reads first and that one line of the block itself does not hold. Three of
/// them, chosen to be the tags and the ends of entries, or the middle of the heads, showed no gain
/// in three rounds on a busy machine, in a build with other changes beside: no proof that they
/// cannot pay.
const PLACES: usize = 2;

/// A place for a block in the index above it.
#[derive(Debug, Default)]
pub(super) struct Slot {
    block: ManuallyDrop<ArcSwapOption<BlockInner>>,
    /// Where the parts of the block lie that are read first: to be asked for all at once, while
    /// the block itself is on its way. May be those of a block that was there before.
    places: [AtomicUsize; PLACES],
}

impl Drop for Slot {
    /// Of an empty slot nothing is dropped: `arc-swap` would look whether any thread is about to
    /// share the block that is not there, and write to a line of each thread for each slot of an
    /// index.
    fn drop(&mut self) {
        if self.block.load().is_some() {
            // SAFETY: dropped here and not used again.
            unsafe { ManuallyDrop::drop(&mut self.block) };
        }
    }
}

impl Slot {
    /// The block, if it is there.
    #[inline]
    pub(super) fn load(&self) -> Guard<Option<Arc<BlockInner>>> {
        for place in &self.places {
            prefetch(place.load(Relaxed));
        }
        let found = self.block.load();
        if let Some(block) = &*found {
            // With the two counts in front, one of which is written by who keeps the block.
            const COUNTS_BYTES: usize = 2 * size_of::<usize>();
            let first = Arc::as_ptr(block).addr() - COUNTS_BYTES;
            for line in (0..COUNTS_BYTES + size_of::<BlockInner>()).step_by(LINE_BYTES) {
                prefetch(first + line);
            }
        }
        found
    }

    /// Starts to load the slot itself.
    pub(super) fn prefetch(&self) {
        prefetch(std::ptr::from_ref(self).addr());
    }

    /// Takes `block` out, if it is the one.
    fn clear(&self, block: &Arc<BlockInner>) {
        self.block.compare_and_swap(block, None);
    }
}

/// What a block knows of its place in cache and index.
#[derive(Debug, Default)]
pub(super) struct Residence {
    /// Uses since the cache looked last, up to [`USES_MAX`].
    uses: AtomicU8,
    home: Mutex<Home>,
}

/// Where a block is found.
#[derive(Debug, Default)]
enum Home {
    /// By the cache at most.
    #[default]
    None,
    /// In the slot of this number, too.
    Slot(Weak<BlockInner>, u32),
    /// Not even by the cache, and never again.
    Evicted,
}

impl Residence {
    /// Counts a use. Whether the cache has to be told.
    #[inline]
    pub(super) fn count_use(&self) -> bool {
        let uses = self.uses.load(Relaxed);
        if uses >= USES_MAX {
            return false; // Mostly: the line is not even written.
        }
        // Of two uses at once one may be lost: they are a guess of those to come.
        self.uses.store(uses + 1, Relaxed);
        true
    }

    /// The cache looks at the block: it wants to be told of the next uses.
    pub(super) fn forget_uses(&self) {
        if self.uses.load(Relaxed) > 0 {
            self.uses.store(0, Relaxed);
        }
    }
}

/// Puts `block` into slot `at` of `index`, unless the cache has given it up.
pub(super) fn place(block: &Arc<BlockInner>, index: &Arc<BlockInner>, at: usize) {
    let mut home = block.residence().home.lock();
    match &*home {
        Home::Evicted => return,
        // The index itself was evicted and read again, and its old slots may still be in use; or it
        // is damaged and has the block twice.
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

/// Takes `block` out of its slot for good: the cache has given it up.
pub(super) fn evict(block: &Arc<BlockInner>) {
    let home = std::mem::replace(&mut *block.residence().home.lock(), Home::Evicted);
    if let Home::Slot(index, at) = home
        && let Some(index) = index.upgrade()
    {
        index.slot(at as usize).clear(block);
    }
}
