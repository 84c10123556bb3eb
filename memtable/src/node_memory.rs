//! Memory of the nodes of a list, which is freed as a whole.
//!
//! A million nodes that are freed one by one cost whoever allocates next as much as the thread that frees
//! them: glibc keeps small pieces apart until somebody wants a large one, and then joins them. Measured, a
//! scan that read blocks after a flush spent half of its time with that.

use std::{
    mem::MaybeUninit,
    ptr::NonNull,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// What the memory consists of.
type Word = MaybeUninit<u64>;

/// Bytes of a word: everything in the memory begins at a multiple of them.
pub(crate) const WORD_BYTES: usize = size_of::<Word>();

/// What addresses in the memory are multiples of.
pub(crate) const WORD_ALIGN: usize = align_of::<Word>();

/// Words of the first slab.
const SLAB_WORDS_FIRST: usize = 64;

/// Each slab has as many words as all before it, up to this number.
const SLAB_WORDS_DOUBLED: usize = 128;

/// Each later slab has 1/4 of the words so far...
const SLAB_GROWTH: usize = 4;

/// ...up to this number of words. Above it, a slab has 1 in [`SLAB_SHARE`] of all words.
const SLAB_WORDS_MIN: usize = 1 << 10;

/// Returns the most bytes that a memtable may have allocated and not used while its entries take
/// `bytes`: at most 8 KiB. A larger unused part is less than 1/256 of the memtable, and not
/// counted.
#[must_use]
pub const fn spare_bytes(bytes: usize) -> usize {
    let few = if bytes < FEW_BYTES { bytes } else { FEW_BYTES };
    let part = bytes / SLAB_GROWTH + bytes / 16;
    let spare = if part > few { part } else { few };
    let most = SLAB_WORDS_MIN * WORD_BYTES;
    if spare < most { spare } else { most }
}

/// Unused bytes of the first slabs, at most.
const FEW_BYTES: usize = SLAB_WORDS_DOUBLED * WORD_BYTES;

/// At most one word in so many is allocated and not used yet.
const SLAB_SHARE: usize = 256;

/// What takes more words than these is a slab by itself: so little is lost at the end of each slab.
const PIECE_WORDS_MAX: usize = 32;

/// Memory that is taken piece by piece, by any number of threads, and freed as a whole.
#[derive(Debug, Default)]
pub(crate) struct NodeMemory(Mutex<Slabs>);

#[derive(Debug, Default)]
struct Slabs {
    /// From boxes, to which they return when the memory is dropped.
    all: Vec<NonNull<[Word]>>,
    words: usize,
    /// The words of one slab that nobody has taken.
    free: Option<NonNull<[Word]>>,
}

// SAFETY: the pointers are those of boxes that the slabs own.
unsafe impl Send for Slabs {}

/// Bytes that a piece of so many bytes takes besides its own: if it is a slab, its place in the list of slabs, which
/// doubles when it is full.
pub(crate) const fn more_bytes(bytes: usize) -> usize {
    if bytes > PIECE_WORDS_MAX * WORD_BYTES { size_of::<NonNull<[Word]>>() * 3 / 2 } else { 0 }
}

impl NodeMemory {
    /// So many words, not initialized, that nobody else has. They live as long as the memory.
    pub(crate) fn take(&self, words: usize) -> NonNull<u64> {
        let mut slabs = self.slabs();
        if slabs.free.is_none_or(|free| free.len() < words) {
            let slab = slabs.words.min(SLAB_WORDS_DOUBLED).max(slabs.words / SLAB_GROWTH);
            let slab = slab.clamp(SLAB_WORDS_FIRST, SLAB_WORDS_MIN.max(slabs.words / SLAB_SHARE));
            if words > PIECE_WORDS_MAX {
                return slabs.add(words).cast();
            }
            slabs.free = Some(slabs.add(slab));
        }
        let free = slabs.free.expect("there is a slab with room");
        // SAFETY: the free words are at least as many, within one slab.
        let behind = unsafe { free.cast::<Word>().add(words) };
        slabs.free = Some(NonNull::slice_from_raw_parts(behind, free.len() - words));
        free.cast()
    }

    fn slabs(&self) -> MutexGuard<'_, Slabs> {
        // Whoever panicked here had no memory: what is there is whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Slabs {
    /// Allocates a slab.
    fn add(&mut self, words: usize) -> NonNull<[Word]> {
        let slab = NonNull::from(Box::leak(Box::<[u64]>::new_uninit_slice(words)));
        self.all.push(slab);
        self.words += words;
        slab
    }
}

impl Drop for Slabs {
    fn drop(&mut self) {
        for slab in self.all.drain(..) {
            // SAFETY: it came from a box, once, and nobody uses what lies in it any more.
            drop(unsafe { Box::from_raw(slab.as_ptr()) });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, thread};

    use super::*;

    /// Takes pieces of `sizes` and returns where each lies.
    fn take(memory: &NodeMemory, sizes: impl Iterator<Item = usize>) -> Vec<(usize, usize)> {
        let piece = |words| {
            let start = memory.take(words).addr().get();
            assert!(start.is_multiple_of(WORD_BYTES));
            (start, start + words * WORD_BYTES)
        };
        sizes.map(piece).collect()
    }

    fn assert_apart(pieces: impl IntoIterator<Item = (usize, usize)>) {
        let pieces: BTreeMap<usize, usize> = pieces.into_iter().collect();
        let ends = pieces.values();
        assert!(ends.zip(pieces.keys().skip(1)).all(|(end, next)| end <= next));
    }

    #[test]
    fn pieces_of_all_sizes_lie_apart() {
        let memory = NodeMemory::default();
        let sizes = (1..2_000).map(|n| if n % 100 == 0 { n * 10 } else { n % 29 + 1 });
        assert_apart(take(&memory, sizes));
    }

    #[test]
    fn pieces_of_several_threads_lie_apart() {
        let memory = NodeMemory::default();
        let sizes = || (0..5_000).map(|at| at % 9 + 1);
        let pieces: Vec<_> = thread::scope(|scope| {
            let threads = [(); 4].map(|()| scope.spawn(|| take(&memory, sizes())));
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(pieces.len(), 20_000);
        assert_apart(pieces);
    }

    #[test]
    fn little_is_allocated_that_is_not_used() {
        for words in [1, 8, 11, 13, 25, 30, 32, 200] {
            let memory = NodeMemory::default();
            for pieces in 1..20_000 {
                memory.take(words);
                let used = words * pieces;
                // The end of a slab may be too short for a piece.
                let bound = used + spare_bytes(used * WORD_BYTES) / WORD_BYTES + used / 16;
                let bound = (bound + SLAB_WORDS_FIRST / 2).max(SLAB_WORDS_FIRST);
                let allocated = memory.slabs().words;
                assert!(allocated <= bound, "{allocated} for {pieces} pieces of {words}: {bound}");
            }
        }
    }
}
