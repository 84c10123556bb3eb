//! Memory for the filters of many tables, together in huge pages.
//!
//! A probe reads any line of any filter. The filter of a 64 MiB table has less than 1 MB, too
//! little for its own huge page. A hundred filters in 4 KiB pages exceed the TLB: each probe then
//! waits for two dependent loads. So filters share chunks of 2 MiB, the size of a huge page, or a
//! multiple.
//!
//! With a hundred filters of 0.75 MB, a random probe of a ribbon takes 88 instead of 110 ns. A
//! blocked Bloom filter takes 207 instead of 324 ns. Five prefetched probes at a time take 303
//! instead of 352 and 155 instead of 173 ns for all five. (Medians of 15 rounds of CPU time, AMD
//! EPYC with 32 MiB of third-level cache, shared machine.)
//!
//! | file          | contents                                                 |
//! |---------------|----------------------------------------------------------|
//! | `chunk`       | memory maps of the system                                |
//! | `free_ranges` | choice of an address; numbers alone, no memory           |
//! | `pages`       | pages released to the system; numbers alone              |
//! | `space`       | the state of an arena: the three together                |
//! | `slice`       | the array that a filter owns, in an arena or on the heap |
//!
//! Free ranges remain between filters. If chunks and heap memory together exceed the limit, whole
//! pages of free ranges are released to the system, on Linux. On other systems they are kept and
//! count towards the limit.
//!
//! Existing crates do not fit. `offset-allocator` has a fixed space with 32-bit offsets. `rlsf`
//! keeps metadata inside the memory and never returns a block. The requirements are small:
//! allocations are few and large, and change with the set of tables.

#[cfg(feature = "std")]
mod chunk;
#[cfg(feature = "std")]
mod free_ranges;
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

pub(crate) use slice::{Slice, SliceBuilder};
#[cfg(feature = "std")]
use space::Space;

/// Size and alignment of a chunk, in bytes: a huge page of x86-64, and of ARM with 4 KiB pages. A
/// larger filter has a chunk of a multiple. Smaller under Miri, which is slow.
pub const CHUNK_BYTES: usize = if cfg!(miri) { 64 << 10 } else { 2 << 20 };

/// Alignment of allocations, in bytes: a cache line.
const ALIGNMENT: usize = 64;

/// A memory arena for the filters of a store. Clones share the arena.
///
/// A filter stays where it was loaded. Its clones and shrunk copies are in the same arena. Empty
/// chunks return to the system, except for one. Above the limit, single pages return, too.
///
/// Without the feature `std` the arena is the heap.
#[derive(Clone, Default)]
pub struct FilterArena {
    /// `None` means the heap.
    #[cfg(feature = "std")]
    space: Option<Arc<Mutex<Space>>>,
}

/// Memory use of an arena, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ArenaStats {
    /// Memory from the system: chunks without released pages, and allocations on the heap.
    pub bytes: usize,
    /// Bytes that filters use.
    pub used_bytes: usize,
    /// Number of chunks.
    pub chunks: usize,
    /// Unused bytes that cannot be released: ends of free ranges that share a page with a filter.
    /// All free ranges if pages cannot be released.
    pub unreclaimable_bytes: usize,
    /// Maximum by which another filter increases `used_bytes` and `unreclaimable_bytes` beyond its
    /// own size: the rest of its pages.
    pub rounding_bytes_max: usize,
    /// A filter up to this size needs no memory from the system: the longest free range if pages
    /// cannot be released, otherwise 0.
    pub free_range_bytes_max: usize,
}

impl FilterArena {
    /// Creates an arena without chunks.
    #[must_use]
    pub fn new() -> Self {
        Self {
            #[cfg(feature = "std")]
            space: Some(Arc::new(Mutex::new(Space::new()))),
        }
    }

    /// Returns the heap: each filter has its own allocation.
    #[must_use]
    pub fn heap() -> Self {
        Self::default()
    }

    /// Returns `true` if the arena counts its memory.
    fn counts(&self) -> bool {
        #[cfg(feature = "std")]
        return self.space.is_some();
        #[cfg(not(feature = "std"))]
        false
    }

    /// Returns the memory use; zeros for [`heap`](Self::heap), which does not count.
    #[must_use]
    pub fn stats(&self) -> ArenaStats {
        #[cfg(feature = "std")]
        if let Some(stats) = self.with_space(|space| space.stats()) {
            return stats;
        }
        ArenaStats::default()
    }

    /// Limits [`ArenaStats::bytes`] plus the memory [outside](Self::announce) of the arena.
    ///
    /// Above the limit, no chunk is added, new filters are on the heap, and pages of free ranges
    /// are released. A filter's allocation never fails because of the limit. The limit holds as
    /// long as [`used_bytes`](ArenaStats::used_bytes) plus
    /// [`unreclaimable_bytes`](ArenaStats::unreclaimable_bytes) is within it.
    ///
    /// Releasing costs some microseconds per free range, here and at each later allocation. An
    /// allocation in released pages gets new ones. A chunk with released pages keeps small pages
    /// from then on.
    pub fn set_bytes_max(&self, bytes_max: usize) {
        #[cfg(feature = "std")]
        self.with_space(|space| space.set_bytes_max(bytes_max));
        #[cfg(not(feature = "std"))]
        let _ = bytes_max;
    }

    /// Announces the size of the next filter and the bytes that all filters then use outside of the
    /// arena. Both count towards the limit.
    pub fn announce(&self, pending_bytes: usize, outside_bytes: usize) {
        #[cfg(feature = "std")]
        self.with_space(|space| space.announce(pending_bytes, outside_bytes));
        #[cfg(not(feature = "std"))]
        let _ = (pending_bytes, outside_bytes);
    }

    /// Uses small pages for the first chunks, up to 8 MiB, until
    /// [`use_huge_pages`](Self::use_huge_pages). Shortens the time until the first filters are
    /// loaded.
    ///
    /// A virtual machine may have returned free huge pages to its host. The host then faults in 512
    /// small pages for each of them: 6 MB of filters took 2 to 22 ms. Free small pages are rarely
    /// returned: with small pages they took 3 to 5 ms. If no page was returned, small pages took
    /// 3 ms and huge pages 2 ms.
    pub fn start_with_small_pages(&self) {
        #[cfg(feature = "std")]
        self.with_space(Space::start_with_small_pages);
    }

    /// Converts all chunks to huge pages, except those with released pages, and allocates only huge
    /// ones from now on.
    ///
    /// Costs 0.2 ms per chunk in small pages, or 6 ms if the machine gets the memory from its host.
    /// Probes and allocations may wait that long.
    pub fn use_huge_pages(&self) {
        #[cfg(feature = "std")]
        while self.with_space(Space::use_huge_pages).unwrap_or(false) {}
    }

    #[cfg(feature = "std")]
    fn with_space<T>(&self, act: impl FnOnce(&mut Space) -> T) -> Option<T> {
        let space = self.space.as_ref()?;
        // A panic under the lock can only come from a bug of this module.
        Some(act(&mut space.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    /// Allocates `bytes` uninitialized bytes aligned to 64; `None` if they belong on the heap,
    /// where they are counted.
    fn allocate(&self, bytes: usize) -> Option<NonNull<u8>> {
        #[cfg(feature = "std")]
        return self.with_space(|space| space.allocate(bytes))?;
        #[cfg(not(feature = "std"))]
        {
            let _ = bytes;
            None
        }
    }

    /// Frees memory that [`allocate`](Self::allocate) returned. Returns `false` if it is on the
    /// heap.
    fn deallocate(&self, first: NonNull<u8>, bytes: usize) -> bool {
        #[cfg(feature = "std")]
        if let Some((is_ours, empty)) = self.with_space(|space| space.deallocate(first, bytes)) {
            // Unmapped outside of the lock.
            drop(empty);
            return is_ours;
        }
        let _ = (first, bytes);
        false
    }
}

/// Prints the statistics.
impl core::fmt::Debug for FilterArena {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_tuple("FilterArena").field(&self.stats()).finish()
    }
}
