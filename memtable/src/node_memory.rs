//! Memory of the nodes of a list, which is freed as a whole.
//!
//! A million nodes that are freed one by one cost whoever allocates next as much as the thread that
//! frees them: glibc keeps small pieces apart until somebody wants a large one, and then joins
//! them. Measured, a scan that read blocks after a flush spent half of its time with that.
//!
//! A small list has slabs on the heap. A larger one has maps, which return to the system when the
//! list is dropped, whatever was allocated since. A page of a map takes memory once it is written.

use std::{
    mem::MaybeUninit,
    ptr::NonNull,
    sync::{Mutex, MutexGuard, PoisonError},
};

use memmap2::MmapMut;

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

/// ...up to this number of words, 8 KiB.
const SLAB_WORDS_MAX: usize = 1 << 10;

/// Slabs on the heap have so many words in all, 8 KiB, and the last one more: the rest lies in
/// maps.
const HEAP_WORDS_MAX: usize = 1 << 10;

/// Each map has as many words as all before it, up to this number, 1 MiB.
const MAP_WORDS_MAX: usize = 128 << 10;

/// Returns the most bytes that a memtable may have allocated and not used while its entries take
/// `bytes`: at most 8 KiB.
#[must_use]
pub const fn spare_bytes(bytes: usize) -> usize {
    let few = if bytes < FEW_BYTES { bytes } else { FEW_BYTES };
    let part = bytes / SLAB_GROWTH + bytes / 16;
    let spare = if part > few { part } else { few };
    let most = SLAB_WORDS_MAX * WORD_BYTES;
    if spare < most { spare } else { most }
}

/// Unused bytes of the first slabs, at most.
const FEW_BYTES: usize = SLAB_WORDS_DOUBLED * WORD_BYTES;

/// What takes more words than these is a slab by itself, on the heap: so little is lost at the end
/// of each slab.
const PIECE_WORDS_MAX: usize = 32;

/// Memory that is taken piece by piece, by any number of threads, and freed as a whole.
#[derive(Debug, Default)]
pub(crate) struct NodeMemory(Mutex<Slabs>);

#[derive(Debug, Default)]
struct Slabs {
    all: Vec<Slab>,
    /// Words of slabs on the heap.
    heap_words: usize,
    /// Words of all maps.
    #[cfg(test)]
    map_words: usize,
    /// Words of maps that were taken.
    map_words_taken: usize,
    /// The words of one slab or map that nobody has taken.
    free: Option<NonNull<[Word]>>,
    /// Whether they are those of a map.
    is_free_mapped: bool,
}

// SAFETY: the free words are those of a slab that the slabs own.
unsafe impl Send for Slabs {}

/// A slab, which is freed when it is dropped.
#[derive(Debug)]
#[expect(dead_code, reason = "kept until they are dropped")]
enum Slab {
    OnHeap(HeapSlab),
    Map(MmapMut),
}

/// From a box, to which it returns.
#[derive(Debug)]
struct HeapSlab(NonNull<[Word]>);

// SAFETY: it owns its memory.
unsafe impl Send for HeapSlab {}

impl Drop for HeapSlab {
    fn drop(&mut self) {
        // SAFETY: it came from a box, once, and nobody uses what lies in it any more.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

impl NodeMemory {
    /// So many words, not initialized, that nobody else has. They live as long as the memory.
    pub(crate) fn take(&self, words: usize) -> NonNull<u64> {
        let mut slabs = self.slabs();
        if slabs.free.is_none_or(|free| free.len() < words) {
            if words > PIECE_WORDS_MAX && !slabs.wants_map(words) {
                return slabs.add_on_heap(words).cast();
            }
            slabs.refill(words);
        }
        if slabs.is_free_mapped {
            slabs.map_words_taken += words;
        }
        let free = slabs.free.expect("there is a slab with room");
        // SAFETY: the free words are at least as many, within one slab.
        let behind = unsafe { free.cast::<Word>().add(words) };
        slabs.free = Some(NonNull::slice_from_raw_parts(behind, free.len() - words));
        free.cast()
    }

    /// Returns how many bytes lie in maps.
    pub(crate) fn mapped_bytes(&self) -> usize {
        self.slabs().map_words_taken * WORD_BYTES
    }

    fn slabs(&self) -> MutexGuard<'_, Slabs> {
        // Whoever panicked here had no memory: what is there is whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Slabs {
    /// Returns whether the next `words` words belong into a map.
    fn wants_map(&self, words: usize) -> bool {
        // Miri has no maps.
        !cfg!(miri) && self.heap_words + words > HEAP_WORDS_MAX
    }

    /// Gets room for `words` words. What is left of the slab before is given up: of a map it mostly
    /// was never written, and takes no memory.
    fn refill(&mut self, words: usize) {
        let so_far = self.heap_words + self.map_words_taken;
        if self.wants_map(words) {
            let map_words = so_far.clamp(HEAP_WORDS_MAX, MAP_WORDS_MAX).max(words);
            self.free = self.add_map(map_words);
            self.is_free_mapped = self.free.is_some();
        }
        if !self.wants_map(words) || self.free.is_none() {
            let slab = so_far.min(SLAB_WORDS_DOUBLED).max(so_far / SLAB_GROWTH);
            let slab = slab.clamp(SLAB_WORDS_FIRST, SLAB_WORDS_MAX).max(words);
            self.free = Some(self.add_on_heap(slab));
            self.is_free_mapped = false;
        }
    }

    /// Maps `words` words, or returns `None` if the system refuses.
    fn add_map(&mut self, words: usize) -> Option<NonNull<[Word]>> {
        let mut map = MmapMut::map_anon(words * WORD_BYTES).ok()?;
        #[cfg(target_os = "linux")]
        {
            // A large page would have all of its small ones. A system without large pages refuses.
            let _ = map.advise(memmap2::Advice::NoHugePage);
        }
        let first = NonNull::new(map.as_mut_ptr())?.cast::<Word>();
        self.all.push(Slab::Map(map));
        #[cfg(test)]
        {
            self.map_words += words;
        }
        Some(NonNull::slice_from_raw_parts(first, words))
    }

    /// Allocates a slab on the heap.
    fn add_on_heap(&mut self, words: usize) -> NonNull<[Word]> {
        let slab = NonNull::from(Box::leak(Box::<[u64]>::new_uninit_slice(words)));
        self.all.push(Slab::OnHeap(HeapSlab(slab)));
        self.heap_words += words;
        slab
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
                let slabs = memory.slabs();
                let allocated = slabs.heap_words + slabs.map_words_taken;
                assert!(allocated <= bound, "{allocated} for {pieces} pieces of {words}: {bound}");
                let heap_words_max = HEAP_WORDS_MAX + SLAB_WORDS_MAX;
                assert!(slabs.heap_words <= heap_words_max || cfg!(miri));
            }
        }
    }

    /// Pieces that are longer than a map, among short ones.
    #[test]
    fn long_pieces_have_maps_of_their_own() {
        let memory = NodeMemory::default();
        let sizes = (0..60).map(|n| if n % 3 == 0 { MAP_WORDS_MAX * 2 } else { 5 });
        assert_apart(take(&memory, sizes));
        let used = memory.mapped_bytes();
        let mapped = memory.slabs().map_words * WORD_BYTES;
        assert!(cfg!(miri) || used > 0 && mapped < used * 2, "{mapped} mapped for {used}");
    }
}
