//! Memory for the filters of many tables, side by side in large pages.
//!
//! A question goes to any line of any filter. The filter of a table of 64 MiB has less than 1 MB,
//! too little for a large page of its own, and a hundred of them in pages of 4 KiB need more
//! entries than a processor keeps of where its pages are: each question then waits for two loads,
//! one behind the other. So filters share chunks of 2 MiB, the size of a large page, or of a
//! multiple.
//!
//! Of a hundred filters of 0.75 MB asked at random, one question at a time, a ribbon answers in 88
//! instead of 110 ns and a blocked Bloom filter in 207 instead of 324; asked five at a time with
//! their lines prefetched, in 303 instead of 352 and 155 instead of 173 ns for all five (medians of
//! 15 rounds of CPU time, AMD EPYC with 32 MiB of third-level cache, shared with others).
//!
//! | file    | what it holds                                             |
//! |---------|-----------------------------------------------------------|
//! | `chunk` | memory from the system, and back to it                    |
//! | `holes` | where a piece goes: numbers alone, no memory              |
//! | `pages` | which pages of holes the system has back: numbers alone   |
//! | `space` | the three together                                        |
//! | `slice` | the array that a filter owns, in an arena or on the heap  |
//!
//! Between filters there are holes. Under a bound their whole pages go back to the system, on
//! Linux, as soon as chunks and what lies on the heap beside them are more together; elsewhere
//! holes stay, and count.
//!
//! Why not a crate: `offset-allocator` has a fixed space with 32-bit offsets, `rlsf` keeps its
//! notes inside of the memory that it hands out and never gives a block back. What is needed here
//! is little: pieces are few and large, and are given and taken when tables come and go.

#[cfg(feature = "std")]
mod chunk;
#[cfg(feature = "std")]
mod holes;
#[cfg(feature = "std")]
mod pages;
mod slice;
#[cfg(feature = "std")]
mod space;
#[cfg(all(test, feature = "std"))]
mod tests;

use core::ptr::NonNull;
#[cfg(feature = "std")]
use std::sync::{Arc, Mutex, PoisonError};

pub(crate) use slice::{Filling, Slice};
#[cfg(feature = "std")]
use space::Space;

/// Size and alignment of a chunk, in bytes: a large page of x86-64, and of ARM with pages of 4 KiB.
/// A larger filter has a chunk of a multiple.
pub const CHUNK_BYTES: usize = 2 << 20;

/// Pieces start at multiples of so many bytes: a cache line.
const PIECE_BYTES: usize = 64;

/// Where the filters of a store have their memory. Cheap to clone: all clones are the same arena.
///
/// A filter stays where it was read, and what is made of it by cloning or shrinking is beside it.
/// Memory goes back to the system by whole chunks, of which one that is empty is kept; and beyond a
/// bound by single pages.
///
/// Without the feature `std` it is the plain heap.
#[derive(Clone, Default)]
pub struct FilterArena {
    /// The plain heap if `None`.
    #[cfg(feature = "std")]
    space: Option<Arc<Mutex<Space>>>,
}

/// What an arena holds, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ArenaStats {
    /// What it has from the system: its chunks without the pages of holes that it gave back, and
    /// pieces on the heap.
    pub bytes: usize,
    /// What filters use of it.
    pub used_bytes: usize,
    /// Chunks.
    pub chunks: usize,
    /// What filters do not use and it cannot give back: the ends of holes, which share a page with
    /// a filter. All of the holes where pages cannot be given back.
    pub waste_bytes_min: usize,
    /// By how much a further filter may make `used_bytes` and `waste_bytes_min` more than by its
    /// own bytes: for what is left of its pages.
    pub edge_bytes_max: usize,
    /// A further filter of so many bytes takes nothing from the system: the longest hole, where
    /// pages cannot be given back, and else 0.
    pub hole_bytes_max: usize,
}

impl FilterArena {
    /// An arena without a chunk.
    #[must_use]
    pub fn new() -> Self {
        Self {
            #[cfg(feature = "std")]
            space: Some(Arc::new(Mutex::new(Space::new()))),
        }
    }

    /// The heap: each filter has memory of its own.
    #[must_use]
    pub fn heap() -> Self {
        Self::default()
    }

    /// Whether it counts what it holds.
    fn counts(&self) -> bool {
        #[cfg(feature = "std")]
        return self.space.is_some();
        #[cfg(not(feature = "std"))]
        false
    }

    /// What it holds at present; zeros for [`heap`](Self::heap), which does not count.
    #[must_use]
    pub fn stats(&self) -> ArenaStats {
        #[cfg(feature = "std")]
        if let Some(stats) = self.with_space(|space| space.stats()) {
            return stats;
        }
        ArenaStats::default()
    }

    /// Bounds [`ArenaStats::bytes`] together with what filters have [beside it](Self::expect):
    /// takes no chunk from the system that makes them more than this, what needs one goes to the
    /// heap, with as many bytes as it has, and pages of holes go back to the system. Never refuses
    /// memory to a filter: they are within the bound as long as
    /// [`used_bytes`](ArenaStats::used_bytes) and [`waste_bytes_min`](ArenaStats::waste_bytes_min)
    /// are.
    ///
    /// Takes some microseconds for each hole whose pages go back, here and whenever a filter comes;
    /// a filter that comes there gets new pages then. A chunk that gave back pages is in small ones
    /// from then on.
    pub fn set_bytes_max(&self, bytes_max: usize) {
        #[cfg(feature = "std")]
        self.with_space(|space| space.set_bytes_max(bytes_max));
        #[cfg(not(feature = "std"))]
        let _ = bytes_max;
    }

    /// Tells of the next filter: what it takes, and what all filters then have outside of the
    /// arena, in bytes, to be within the bound, too.
    pub fn expect(&self, coming_bytes: usize, beside_bytes: usize) {
        #[cfg(feature = "std")]
        self.with_space(|space| space.expect(coming_bytes, beside_bytes));
        #[cfg(not(feature = "std"))]
        let _ = (coming_bytes, beside_bytes);
    }

    /// Takes its first chunks from the system, 8 MiB at most, in small pages, until
    /// [`make_large`](Self::make_large) is called: for whoever waits for its first filters.
    ///
    /// A virtual machine may have given the memory of free large pages back to its host, and gets
    /// 512 small ones for each, one after the other, when it is written to: 6 MB of filters were
    /// seen to take 2 to 22 ms. Free small pages are rarely given back: 3 to 5 ms, and 3 instead of
    /// 2 where nothing was.
    pub fn begin_small(&self) {
        #[cfg(feature = "std")]
        self.with_space(Space::begin_small);
    }

    /// Makes all pages large, but in chunks that gave back single ones, and takes none but large
    /// ones from now on. Takes 0.2 ms for each chunk that is in small pages, and 6 where the
    /// machine must have the memory from its host: whoever asks its filters, or needs memory for
    /// one, waits as long at most.
    pub fn make_large(&self) {
        #[cfg(feature = "std")]
        while self.with_space(Space::make_large).unwrap_or(false) {}
    }

    #[cfg(feature = "std")]
    fn with_space<T>(&self, act: impl FnOnce(&mut Space) -> T) -> Option<T> {
        let space = self.space.as_ref()?;
        // Nothing panics while it holds the lock but for a bug of ours.
        Some(act(&mut space.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    /// Memory for `bytes` bytes at a multiple of 64, not initialised; `None` if they belong on the
    /// heap, where they are counted.
    fn take(&self, bytes: usize) -> Option<NonNull<u8>> {
        #[cfg(feature = "std")]
        return self.with_space(|space| space.take(bytes))?;
        #[cfg(not(feature = "std"))]
        {
            let _ = bytes;
            None
        }
    }

    /// Takes back what [`take`](Self::take) gave; `false` if it lies on the heap.
    fn give_back(&self, first: NonNull<u8>, bytes: usize) -> bool {
        #[cfg(feature = "std")]
        if let Some((is_ours, empty)) = self.with_space(|space| space.give_back(first, bytes)) {
            // Back to the system, outside of the lock.
            drop(empty);
            return is_ours;
        }
        let _ = (first, bytes);
        false
    }
}

/// Shows the bytes, not the places.
impl core::fmt::Debug for FilterArena {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_tuple("FilterArena").field(&self.stats()).finish()
    }
}
