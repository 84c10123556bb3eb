//! An arena for the nodes of a list, freed as a whole.
//!
//! Freeing a million nodes one by one is slow, and slows later allocations. The allocator of glibc
//! keeps small free chunks separate until a large allocation, which then merges them. The merge
//! took half of the time of a scan after a flush.
//!
//! A small list has slabs on the heap. A larger list has anonymous maps, which return to the system
//! when the list is dropped, regardless of later allocations. A page of a map uses memory once it
//! is written.

use std::{
    mem::MaybeUninit,
    ptr::NonNull,
    sync::{Mutex, MutexGuard, PoisonError},
};

use memmap2::MmapMut;

type Word = MaybeUninit<u64>;

/// Granularity of allocations, in bytes.
pub(crate) const WORD_BYTES: usize = size_of::<Word>();

/// Alignment of every allocation.
pub(crate) const WORD_ALIGN: usize = align_of::<Word>();

const SLAB_WORDS_FIRST: usize = 64;

/// Maximum words of a slab that doubles the words so far.
const SLAB_WORDS_DOUBLED: usize = 128;

/// Later slabs add 1/4 of the words so far.
const SLAB_GROWTH: usize = 4;

/// Maximum words of a slab, unless one allocation is longer: 8 KiB.
const SLAB_WORDS_MAX: usize = 1 << 10;

/// Words in heap slabs, 8 KiB and at most one slab more. Later words are in maps.
const HEAP_WORDS_MAX: usize = 1 << 10;

/// Each map doubles the words so far, up to 1 MiB.
const MAP_WORDS_MAX: usize = 128 << 10;

/// Returns the maximum bytes that a memtable has allocated but not used while its entries take
/// `bytes`. At most 8 KiB.
#[must_use]
pub const fn spare_bytes(bytes: usize) -> usize {
    let few = if bytes < FIRST_SLABS_BYTES { bytes } else { FIRST_SLABS_BYTES };
    let part = bytes / SLAB_GROWTH + bytes / 16;
    let spare = if part > few { part } else { few };
    let most = SLAB_WORDS_MAX * WORD_BYTES;
    if spare < most { spare } else { most }
}

/// Maximum unused bytes in the first slabs.
const FIRST_SLABS_BYTES: usize = SLAB_WORDS_DOUBLED * WORD_BYTES;

/// Larger allocations get their own heap slab, which limits the waste at the end of shared slabs.
const SHARED_SLAB_WORDS_MAX: usize = 32;

/// A thread-safe allocator that frees all its memory on drop.
#[derive(Debug, Default)]
pub(crate) struct Arena(Mutex<Slabs>);

#[derive(Debug, Default)]
struct Slabs {
    all: Vec<Slab>,
    heap_words: usize,
    #[cfg(test)]
    map_words: usize,
    /// Allocated words of maps.
    map_words_used: usize,
    /// Unallocated words of the current slab or map.
    free: Option<NonNull<[Word]>>,
    is_free_mapped: bool,
}

// SAFETY: the free words belong to a slab that `Slabs` owns.
unsafe impl Send for Slabs {}

#[derive(Debug)]
#[expect(dead_code, reason = "kept until they are dropped")]
enum Slab {
    OnHeap(HeapSlab),
    Map(MmapMut),
}

/// A leaked box, freed on drop.
#[derive(Debug)]
struct HeapSlab(NonNull<[Word]>);

// SAFETY: it owns its memory.
unsafe impl Send for HeapSlab {}

impl Drop for HeapSlab {
    fn drop(&mut self) {
        // SAFETY: the pointer came from one leaked box, and no reference into it outlives the
        // arena.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

impl Arena {
    /// Returns `words` uninitialized words that no other call returns, valid as long as the arena.
    pub(crate) fn allocate(&self, words: usize) -> NonNull<u64> {
        debug_assert!(words > 0, "an allocation has at least one word");
        let mut slabs = self.slabs();
        if slabs.free.is_none_or(|free| free.len() < words) {
            if words > SHARED_SLAB_WORDS_MAX && !slabs.uses_map(words) {
                return slabs.add_heap_slab(words).cast();
            }
            slabs.refill(words);
        }
        if slabs.is_free_mapped {
            slabs.map_words_used += words;
        }
        let free = slabs.free.expect("refill leaves a slab with room");
        debug_assert!(free.cast::<u64>().is_aligned(), "slabs begin at a word");
        debug_assert!(free.len() >= words, "{} words left for {words}", free.len());
        // SAFETY: `free` has at least `words` words, within one slab.
        let rest = unsafe { free.cast::<Word>().add(words) };
        slabs.free = Some(NonNull::slice_from_raw_parts(rest, free.len() - words));
        free.cast()
    }

    pub(crate) fn mapped_bytes(&self) -> usize {
        self.slabs().map_words_used * WORD_BYTES
    }

    fn slabs(&self) -> MutexGuard<'_, Slabs> {
        // A panic under the lock can only be a failed allocation, which leaves the slabs
        // consistent.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Slabs {
    fn uses_map(&self, words: usize) -> bool {
        // Miri does not support maps.
        !cfg!(miri) && self.heap_words + words > HEAP_WORDS_MAX
    }

    /// Starts a slab or map with space for `words` words.
    ///
    /// The rest of the current slab or map stays unused. In a map, most of the rest was never
    /// written and uses no memory.
    fn refill(&mut self, words: usize) {
        let words_so_far = self.heap_words + self.map_words_used;
        if self.uses_map(words) {
            let map_words = words_so_far.clamp(HEAP_WORDS_MAX, MAP_WORDS_MAX).max(words);
            self.free = self.add_map(map_words);
            self.is_free_mapped = self.free.is_some();
        }
        if !self.uses_map(words) || self.free.is_none() {
            let slab = words_so_far.min(SLAB_WORDS_DOUBLED).max(words_so_far / SLAB_GROWTH);
            let slab = slab.clamp(SLAB_WORDS_FIRST, SLAB_WORDS_MAX).max(words);
            self.free = Some(self.add_heap_slab(slab));
            self.is_free_mapped = false;
        }
    }

    /// Maps `words` words; `None` if the system refuses.
    fn add_map(&mut self, words: usize) -> Option<NonNull<[Word]>> {
        let mut map = MmapMut::map_anon(words * WORD_BYTES).ok()?;
        #[cfg(target_os = "linux")]
        {
            // A huge page would make all of its pages resident. Systems without huge pages return
            // an error.
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

    fn add_heap_slab(&mut self, words: usize) -> NonNull<[Word]> {
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

    /// Allocates each of `sizes` and returns the address ranges.
    fn allocate_all(arena: &Arena, sizes: impl Iterator<Item = usize>) -> Vec<(usize, usize)> {
        let range = |words| {
            let start = arena.allocate(words).addr().get();
            assert!(start.is_multiple_of(WORD_BYTES));
            (start, start + words * WORD_BYTES)
        };
        sizes.map(range).collect()
    }

    fn assert_disjoint(allocations: impl IntoIterator<Item = (usize, usize)>) {
        let allocations: BTreeMap<usize, usize> = allocations.into_iter().collect();
        let ends = allocations.values();
        assert!(ends.zip(allocations.keys().skip(1)).all(|(end, next)| end <= next));
    }

    #[test]
    fn allocations_of_all_sizes_do_not_overlap() {
        let arena = Arena::default();
        let sizes = (1..if cfg!(miri) { 500 } else { 2_000 })
            .map(|n| if n % 100 == 0 { n * 10 } else { n % 29 + 1 });
        assert_disjoint(allocate_all(&arena, sizes));
    }

    #[test]
    fn allocations_of_several_threads_do_not_overlap() {
        const EACH: usize = if cfg!(miri) { 200 } else { 5_000 };
        let arena = Arena::default();
        let sizes = || (0..EACH).map(|at| at % 9 + 1);
        let allocations: Vec<_> = thread::scope(|scope| {
            let threads = [(); 4].map(|()| scope.spawn(|| allocate_all(&arena, sizes())));
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(allocations.len(), 4 * EACH);
        assert_disjoint(allocations);
    }

    #[test]
    fn unused_bytes_stay_within_spare_bytes() {
        for words in [1, 8, 11, 13, 25, 30, 32, 200] {
            let arena = Arena::default();
            for allocations in 1..if cfg!(miri) { 500 } else { 20_000 } {
                arena.allocate(words);
                let used = words * allocations;
                // The end of a slab may be too short for an allocation.
                let bound = used + spare_bytes(used * WORD_BYTES) / WORD_BYTES + used / 16;
                let bound = (bound + SLAB_WORDS_FIRST / 2).max(SLAB_WORDS_FIRST);
                let slabs = arena.slabs();
                let allocated = slabs.heap_words + slabs.map_words_used;
                assert!(
                    allocated <= bound,
                    "{allocated} for {allocations} allocations of {words}: {bound}"
                );
                let heap_words_max = HEAP_WORDS_MAX + SLAB_WORDS_MAX;
                assert!(slabs.heap_words <= heap_words_max || cfg!(miri));
            }
        }
    }

    /// Allocations longer than a map, among short ones.
    #[test]
    fn long_allocations_have_maps_of_their_own() {
        let arena = Arena::default();
        let sizes = (0..60).map(|n| if n % 3 == 0 { MAP_WORDS_MAX * 2 } else { 5 });
        assert_disjoint(allocate_all(&arena, sizes));
        let used = arena.mapped_bytes();
        let mapped = arena.slabs().map_words * WORD_BYTES;
        assert!(cfg!(miri) || used > 0 && mapped < used * 2, "{mapped} mapped for {used}");
    }
}
