//! Memory of cached blocks: whole pages of the system.
//!
//! A cache on the heap cannot give memory back. Blocks that are evicted lie scattered between those
//! that stay, in the arenas of all threads that ever read one, and an allocator returns only what
//! is free in one piece. With a budget of 32 MiB some 10 MiB were free and resident. So each
//! content has pages of its own, and a page can be given back whatever lies beside it.
//!
//! # Which contents lie in pages
//!
//! A content has pages if it uses enough of them: see [`pages_of`]. Others lie on the heap, and so
//! do contents longer than 256 KiB, which the allocator maps one by one.
//!
//! * A data block uses 3/4 of its pages at least. The cache consists of data blocks: what one
//!   wastes would be lost to the whole cache.
//! * An index partition uses half of its pages at least. There are few partitions, and they live
//!   long: on the heap each keeps memory around it from being returned. Partitions of 16 KiB leave
//!   1 to 3 % of their pages unused; the last one of a table leaves half a page on average.
//!
//! So a block of less than 2 KiB never takes a page: those of tiny tables, and the partitions of
//! 2 KiB that workers with less than 1 MiB write.
//!
//! # When pages return to the system
//!
//! Pages of evicted contents are kept for the next ones, up to 1/64 of the pages that contents have
//! and at most 1 MiB. No content is charged for them. More are returned in steps of 256 pages, and
//! no lock is held meanwhile. A cache that is dropped returns no pages: it unmaps its chunks.
//!
//! A system that locks memory (`mlockall`) takes no page back. Then the pages of evicted contents
//! stay resident until their chunk is unmapped, and are reused. If the system refuses a map,
//! contents lie on the heap until it is asked again, after 1,024 of them.
//!
//! | file     | what it holds                                        |
//! |----------|------------------------------------------------------|
//! | `bitmap` | which pages of a chunk are free: numbers alone       |
//! | `chunks` | maps, and which of them have room                    |
//! | `pages`  | the runs of contents, and those kept for reuse       |
//! | `system` | maps chunks and returns their pages                  |

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

use parking_lot::{Mutex, MutexGuard};

use chunks::Leaving;
use pages::{Pages, Run};
use system::PAGE_BYTES;

use crate::block::BlockRole;

/// The longest content that lies in pages, in bytes.
const CONTENT_BYTES_MAX: usize = 256 << 10;

/// What a content on the heap takes besides its bytes: the count of who shares them, the end of the
/// stored block, and what the allocator adds.
const HEAP_BYTES: usize = 64;

/// The longest run, in pages.
const RUN_PAGES_MAX: usize = CONTENT_BYTES_MAX / PAGE_BYTES;

/// Pages for the contents of cached blocks. Shared by the cache and by all who still read one of
/// its blocks.
///
/// A thread that drops a content pushes its run onto a stack, and empties the stack only if the
/// lock is free. So a content can be dropped in a forked process, where a thread that is not there
/// may hold the lock forever. Treiber, "Systems Programming: Coping with Parallelism", IBM 1986; as
/// all runs are taken at once, no pointer is compared that was reused.
pub(crate) struct BlockMemory {
    pages: Mutex<Pages>,
    dropped: AtomicPtr<Dropped>,
}

/// A run of a content that was dropped. Lies in the run itself.
struct Dropped {
    run: Run,
    /// The one that was dropped before, or null.
    before: *mut Self,
}

impl BlockMemory {
    /// Creates memory without a page, or returns `None` where the system has no pages of 4 KiB that
    /// it takes back.
    pub(crate) fn new() -> Option<Arc<Self>> {
        system::has_pages()
            .then(|| Arc::new(Self { pages: Mutex::default(), dropped: AtomicPtr::default() }))
    }

    /// Copies the content of a block into pages. Returns `None` if it belongs on the heap or the
    /// system has no memory.
    ///
    /// Takes some 100 ns for a block of 4 KiB.
    pub(crate) fn copy(self: &Arc<Self>, content: &[u8], role: BlockRole) -> Option<Piece> {
        let pages_wanted = pages_of(content.len(), role)?;
        let mut pages = self.pages.lock();
        self.put_back_dropped(&mut pages);
        let run = pages.take(pages_wanted);
        self.return_surplus(pages);
        let piece = Piece { memory: Arc::clone(self), run: run?, bytes: content.len() };
        // SAFETY: the run has room for the content, and nobody else has it.
        unsafe {
            piece
                .run
                .first()
                .copy_from_nonoverlapping(NonNull::from(content).cast(), content.len());
        }
        Some(piece)
    }

    /// Returns the bytes that it has from the system: those of contents, and at most 1/64 and 1 MiB
    /// more, unless the system takes no pages back.
    pub(crate) fn resident_bytes(&self) -> usize {
        let mut pages = self.pages.lock();
        self.put_back_dropped(&mut pages);
        let resident = pages.resident();
        self.return_surplus(pages);
        resident * PAGE_BYTES
    }

    /// Calls `drop_contents`, which drops all contents but those that callers hold, and returns the
    /// memory of these to the system: mostly by unmapping it. No content may be copied afterwards.
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
            // SAFETY: it was written before it was pushed, and its run is taken until it is put
            // back.
            let Dropped { run, before } = unsafe { next.read() };
            pages.put_back(run);
            next = before;
        }
    }

    /// Unlocks the pages, and returns to the system what is kept too much of.
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
        // All are tried: `all` would stop at the first that is refused.
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

/// Returns how many bytes of memory a content of `bytes` bytes takes.
pub(crate) fn memory_bytes(bytes: usize, role: BlockRole) -> usize {
    match pages_of(bytes, role) {
        Some(pages) if system::has_pages() => pages * PAGE_BYTES,
        _ => bytes + HEAP_BYTES,
    }
}

/// Returns how many pages a content takes, or `None` if it belongs on the heap.
fn pages_of(bytes: usize, role: BlockRole) -> Option<usize> {
    // Of four quarters of its pages it uses so many at least.
    let quarters_min = match role {
        BlockRole::Data => 3,
        BlockRole::Index => 2,
    };
    let pages = bytes.div_ceil(PAGE_BYTES);
    let is_used = 4 * bytes >= quarters_min * pages * PAGE_BYTES;
    (bytes > 0 && bytes <= CONTENT_BYTES_MAX && is_used).then_some(pages)
}

/// A content in pages. Returns them when it is dropped.
pub(crate) struct Piece {
    memory: Arc<BlockMemory>,
    run: Run,
    bytes: usize,
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: `copy` has written so many bytes, and nobody writes there until the piece is
        // dropped. The chunk is mapped as long as one of its runs is taken.
        unsafe { slice::from_raw_parts(self.run.first().as_ptr(), self.bytes) }
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        let place = self.run.first().cast::<Dropped>().as_ptr();
        let mut before = self.memory.dropped.load(Relaxed);
        loop {
            // SAFETY: a page has room and is aligned for it, and nobody reads the content any more.
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
