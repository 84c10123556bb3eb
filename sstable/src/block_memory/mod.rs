//! Memory of cached blocks: whole pages of the system.
//!
//! A cache on the heap cannot return memory to the system. Evicted blocks are scattered among
//! cached ones, in the arenas of all threads that read blocks. An allocator returns only contiguous
//! free memory: with a budget of 32 MiB, about 10 MiB were free and resident. So each content has
//! its own pages, which can be returned independently of their neighbours.
//! # Contents in pages
//!
//! A content has pages if it fills enough of them: see [`pages_of`]. Other contents are on the
//! heap, and so are those above 256 KiB, which the allocator maps one by one.
//!
//! * A data block fills at least 3/4 of its pages. Data blocks make up the cache, so their waste
//!   would be lost to the whole cache.
//! * An index partition fills at least half of its pages. Partitions are few and long-lived: on the
//!   heap each prevents the memory around it from being returned. Partitions of 16 KiB leave 1 to
//!   3 % of their pages unused; the last one of a table leaves half a page on average.
//!
//! So a block below 2 KiB never takes a page: blocks of tiny tables, and the partitions of 2 KiB
//! that workers with less than 1 MiB write.
//!
//! # When pages return to the system
//!
//! Pages of evicted contents are kept for reuse, up to 1/64 of the pages in use and 1 MiB. Kept
//! pages are charged to no content. Surplus pages are returned in steps of 256 pages, without a
//! lock. A dropped cache unmaps its chunks instead.
//!
//! A system that locks memory (`mlockall`) takes no page back. The pages of evicted contents then
//! stay resident until their chunk is unmapped, and are reused. If the system refuses a map, the
//! next 1,024 contents are on the heap before another map is requested.
//!
//! | module   | contents                                       |
//! |----------|------------------------------------------------|
//! | `bitmap` | free pages of a chunk                          |
//! | `chunks` | chunks, listed by their longest free run       |
//! | `pages`  | runs of contents, and runs kept for reuse      |
//! | `system` | maps chunks and returns their pages            |

mod bitmap;
mod chunks;
mod pages;
mod system;
#[cfg(all(test, target_os = "linux", not(miri)))]
mod tests;

use std::{
    fmt,
    ptr::{self, NonNull},
    slice,
    sync::{
        Arc,
        atomic::{
            AtomicPtr,
            Ordering::{Acquire, Relaxed, Release},
        },
    },
};

use chunks::Leaving;
use pages::{Pages, Run};
use system::PAGE_BYTES;

use crate::{
    block::BlockRole,
    sync::{Mutex, MutexGuard},
};

/// Maximum length of a content in pages, in bytes.
const CONTENT_BYTES_MAX: usize = 256 << 10;

/// Overhead of a content on the heap: reference count, end of the stored block, and allocator.
const HEAP_BYTES: usize = 64;

/// The longest run, in pages.
const RUN_PAGES_MAX: usize = CONTENT_BYTES_MAX / PAGE_BYTES;

/// Pages for the contents of cached blocks. Shared by the cache and all readers of its blocks.
///
/// A thread that drops a content pushes its run onto a stack, and empties the stack only if the
/// lock is free. So a content can be dropped in a forked process, where a thread that was not
/// forked may hold the lock forever. All runs are popped at once, so there is no ABA problem.
/// Source: Treiber, "Systems Programming: Coping with Parallelism", IBM 1986.
pub(crate) struct BlockMemory {
    pages: Mutex<Pages>,
    dropped: AtomicPtr<Dropped>,
}

/// The run of a dropped content. Lies in the run itself.
struct Dropped {
    run: Run,
    /// The run dropped before, or null.
    before: *mut Self,
}

impl BlockMemory {
    /// Creates memory without a page. Returns `None` if the system has other pages than 4 KiB, or
    /// does not take back single pages.
    pub(crate) fn new() -> Option<Arc<Self>> {
        system::has_pages()
            .then(|| Arc::new(Self { pages: Mutex::default(), dropped: AtomicPtr::default() }))
    }

    /// Copies the content of a block into pages, in about 100 ns for 4 KiB. Returns `None` if the
    /// content belongs on the heap or the system has no memory.
    pub(crate) fn copy(self: &Arc<Self>, content: &[u8], role: BlockRole) -> Option<Piece> {
        let pages_wanted = pages_of(content.len(), role)?;
        let mut pages = self.pages.lock();
        self.put_back_dropped(&mut pages);
        let run = pages.take(pages_wanted);
        self.return_surplus(pages);
        let piece = Piece { memory: Arc::clone(self), run: run?, bytes: content.len() };
        // SAFETY: the run is long enough for the content, and owned by this thread alone.
        unsafe {
            piece
                .run
                .first()
                .copy_from_nonoverlapping(NonNull::from(content).cast(), content.len());
        }
        Some(piece)
    }

    /// Returns the resident bytes: those of contents, and at most 1/64 and 1 MiB more, unless the
    /// system takes no pages back.
    pub(crate) fn resident_bytes(&self) -> usize {
        let mut pages = self.pages.lock();
        self.put_back_dropped(&mut pages);
        let resident = pages.resident();
        self.return_surplus(pages);
        resident * PAGE_BYTES
    }

    /// Calls `drop_contents`, which drops all contents except those that callers hold. Returns
    /// their memory to the system, mostly by unmapping it. No content may be copied afterwards.
    pub(crate) fn close(&self, drop_contents: impl FnOnce()) {
        self.pages.lock().begin_to_close();
        drop_contents();
        let mut pages = self.pages.lock();
        self.put_back_dropped(&mut pages);
        let chunks = pages.close();
        drop(pages);
        for chunk in chunks {
            let leaving = self.pages.lock().take_free(chunk);
            self.return_pages(&leaving);
        }
    }

    fn put_back_dropped(&self, pages: &mut Pages) {
        let mut next = self.dropped.swap(ptr::null_mut(), Acquire);
        while !next.is_null() {
            // SAFETY: the value was written before it was pushed, and its run stays taken until
            // `put_back`.
            let Dropped { run, before } = unsafe { next.read() };
            pages.put_back(run);
            next = before;
        }
    }

    /// Unlocks the pages, and returns surplus kept pages to the system.
    fn return_surplus<'m>(&'m self, mut pages: MutexGuard<'m, Pages>) {
        loop {
            let leaving = pages.take_surplus();
            drop(pages);
            if leaving.is_empty() {
                return;
            }
            self.return_pages(&leaving);
            pages = self.pages.lock();
        }
    }

    /// Returns pages to the system. Holds no lock during these calls.
    fn return_pages(&self, leaving: &[Leaving]) {
        // Tries each run; `all` would stop at the first refusal.
        let refused = leaving.iter().filter(|leaving| !leaving.give_back()).count();
        let unused = self.pages.lock().free(leaving, refused == 0);
        drop(unused);
    }
}

impl fmt::Debug for BlockMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockMemory")
            .field("resident_bytes", &self.resident_bytes())
            .finish_non_exhaustive()
    }
}

/// Returns the memory of a content of `bytes` bytes, in bytes.
pub(crate) fn memory_bytes(bytes: usize, role: BlockRole) -> usize {
    match pages_of(bytes, role) {
        Some(pages) if system::has_pages() => pages * PAGE_BYTES,
        _ => bytes + HEAP_BYTES,
    }
}

/// Returns the number of pages of a content, or `None` if it belongs on the heap.
fn pages_of(bytes: usize, role: BlockRole) -> Option<usize> {
    // Minimum quarters of its pages that it fills.
    let quarters_min = match role {
        BlockRole::Data => 3,
        BlockRole::Index => 2,
    };
    let pages = bytes.div_ceil(PAGE_BYTES);
    let is_used = 4 * bytes >= quarters_min * pages * PAGE_BYTES;
    (bytes > 0 && bytes <= CONTENT_BYTES_MAX && is_used).then_some(pages)
}

/// A content in pages. Returns the pages on drop.
pub(crate) struct Piece {
    memory: Arc<BlockMemory>,
    run: Run,
    bytes: usize,
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: `copy` wrote these bytes, and no thread writes there until the piece is dropped.
        // The chunk stays mapped while one of its runs is taken.
        unsafe { slice::from_raw_parts(self.run.first().as_ptr(), self.bytes) }
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        let place = self.run.first().cast::<Dropped>().as_ptr();
        let mut before = self.memory.dropped.load(Relaxed);
        loop {
            // SAFETY: a page is large enough and aligned, and no thread reads the content any more.
            unsafe { place.write(Dropped { run: self.run, before }) };
            let pushed = self.memory.dropped.compare_exchange_weak(before, place, Release, Relaxed);
            match pushed {
                Ok(_) => break,
                Err(found) => before = found,
            }
        }
        if let Some(mut pages) = self.memory.pages.try_lock() {
            self.memory.put_back_dropped(&mut pages);
            self.memory.return_surplus(pages);
        }
    }
}
