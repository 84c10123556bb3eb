//! Memory of cached blocks: whole pages of the system.
//!
//! A cache on the heap cannot give memory back. Blocks that are evicted lie scattered between those
//! that stay, in the arenas of all threads that ever read one, and an allocator returns only what is
//! free in one piece. With a budget of 32 MiB some 10 MiB were free and resident. So each block
//! has pages of its own, and a page can be given back whatever lies beside it.
//!
//! | file     | what it holds                                       |
//! |----------|-----------------------------------------------------|
//! | `bitmap` | which pages of a chunk are free: numbers alone       |
//! | `pages`  | chunks, and the runs of pages that are kept for reuse |
//! | `system` | maps chunks and returns their pages                  |

mod bitmap;
mod pages;
mod system;

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

use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};

use pages::{Pages, Run};
use system::PAGE_BYTES;

/// The longest content that lies in pages, in bytes. A longer one lies on the heap, where the
/// allocator maps it by itself.
const CONTENT_BYTES_MAX: usize = 256 << 10;

/// Of its pages a content may leave 1 in so many unused; else it lies on the heap.
const UNUSED_SHARE: usize = 4;

/// Pages for the contents of cached blocks. Shared by the cache and by all who still read one of
/// its blocks.
///
/// Whoever drops a content never waits: its run goes onto a stack, which is emptied by whoever has
/// the lock. So a content can be dropped in a forked process, where the lock may be held for ever by
/// a thread that is not there. Treiber, "Systems Programming: Coping with Parallelism", IBM 1986; as
/// all are taken at once, no pointer is compared that was reused.
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

    /// Copies `content` into pages. Returns `None` if it belongs on the heap or the system has no
    /// memory.
    ///
    /// Takes some 100 ns for a block of 4 KiB.
    pub(crate) fn copy(self: &Arc<Self>, content: &[u8]) -> Option<Bytes> {
        let run = self.pages().take(pages_of(content.len())?)?;
        let piece = Piece { memory: Arc::clone(self), run, bytes: content.len() };
        // SAFETY: the run has room for the content, and nobody else has it.
        unsafe {
            piece
                .run
                .first()
                .copy_from_nonoverlapping(NonNull::from(content).cast(), content.len());
        }
        Some(Bytes::from_owner(piece))
    }

    /// Bytes that it has from the system, at most 1/32 and 128 KiB more than blocks use.
    pub(crate) fn resident_bytes(&self) -> usize {
        self.pages().resident() * PAGE_BYTES
    }

    fn pages(&self) -> MutexGuard<'_, Pages> {
        let mut pages = self.pages.lock();
        self.put_back_dropped(&mut pages);
        pages
    }

    fn put_back_dropped(&self, pages: &mut Pages) {
        let mut next = self.dropped.swap(ptr::null_mut(), Acquire);
        while !next.is_null() {
            // SAFETY: it was written before it was pushed, and its run is taken until it is put back.
            let Dropped { run, before } = unsafe { next.read() };
            pages.put_back(run);
            next = before;
        }
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
pub(crate) fn memory_bytes(bytes: usize) -> usize {
    match pages_of(bytes) {
        Some(pages) if system::has_pages() => pages * PAGE_BYTES,
        _ => bytes,
    }
}

/// Returns how many pages a content takes, or `None` if it belongs on the heap.
fn pages_of(bytes: usize) -> Option<usize> {
    let pages = bytes.div_ceil(PAGE_BYTES);
    let unused = pages * PAGE_BYTES - bytes;
    let fits =
        bytes > 0 && bytes <= CONTENT_BYTES_MAX && unused * UNUSED_SHARE <= pages * PAGE_BYTES;
    fits.then_some(pages)
}

/// A content in pages. Returns them when it is dropped.
struct Piece {
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
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{ptr, thread};

    use super::*;

    #[test]
    fn a_content_that_would_waste_its_pages_belongs_on_the_heap() {
        let cases = [
            (0, None),
            (1, None),
            (3071, None),
            (3072, Some(1)),
            (4096, Some(1)),
            (4097, None),
            (6143, None),
            (6144, Some(2)),
            (16 << 10, Some(4)),
            (256 << 10, Some(64)),
            ((256 << 10) + 1, None),
        ];
        for (bytes, pages) in cases {
            assert_eq!(pages_of(bytes), pages, "{bytes}");
        }
    }

    /// Whatever is taken and put back, by any number of threads, each content stays what it was.
    #[test]
    fn contents_do_not_disturb_each_other() {
        let Some(memory) = BlockMemory::new() else { return };
        let seed = std::env::var("SIEVE_SEED").ok().and_then(|seed| seed.parse().ok());
        let seed: u64 = seed.unwrap_or_else(rand_seed);
        eprintln!("SIEVE_SEED={seed}");
        thread::scope(|scope| {
            for thread in 0..4_u64 {
                let memory = &memory;
                scope.spawn(move || {
                    let mut state =
                        seed.wrapping_add(thread).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
                    let mut held: Vec<(u8, Bytes)> = Vec::new();
                    for step in 0..20_000_u32 {
                        state ^= state << 13;
                        state ^= state >> 7;
                        state ^= state << 17;
                        let pages = 1 + (state >> 8) as usize % 20;
                        if held.len() > 300 || state % 3 == 0 && !held.is_empty() {
                            let (fill, content) =
                                held.swap_remove((state >> 32) as usize % held.len());
                            assert!(content.iter().all(|&byte| byte == fill), "step {step}");
                        } else {
                            let fill = state as u8;
                            let content = vec![fill; pages * PAGE_BYTES - 100];
                            held.push((fill, memory.copy(&content).expect("there is memory")));
                        }
                    }
                    assert!(
                        held.iter().all(|(fill, content)| content.iter().all(|byte| byte == fill))
                    );
                });
            }
        });
        let left = memory.resident_bytes();
        assert!(left <= pages::KEPT_MIN * PAGE_BYTES, "{left} bytes of no content");
    }

    fn rand_seed() -> u64 {
        use std::hash::{BuildHasher as _, RandomState};
        RandomState::new().hash_one(0)
    }

    /// As in a forked process, where the thread that had the lock is not there.
    #[test]
    fn a_content_is_dropped_while_the_lock_is_held() {
        let Some(memory) = BlockMemory::new() else { return };
        let held: Vec<_> = (0..100).filter_map(|_| memory.copy(&[7; PAGE_BYTES])).collect();
        let pages = memory.pages.lock();
        drop(held);
        assert_eq!(pages.resident(), 100);
        drop(pages);
        assert!(memory.resident_bytes() <= pages::KEPT_MIN * PAGE_BYTES);
    }

    /// A cache that shrinks returns memory, whichever blocks it evicts.
    #[test]
    fn pages_of_scattered_blocks_return_to_the_system() {
        let Some(memory) = BlockMemory::new() else { return };
        let content = vec![7; PAGE_BYTES];
        let mut held: Vec<Bytes> = (0..4_096).filter_map(|_| memory.copy(&content)).collect();
        assert_eq!(memory.resident_bytes(), 4_096 * PAGE_BYTES);
        let places: Vec<usize> =
            held.iter().map(|block| block.as_ptr().expose_provenance()).collect();
        let mut at = 0..;
        held.retain(|_| at.next().is_some_and(|at: usize| at.is_multiple_of(2)));
        let resident_bytes = memory.resident_bytes();
        let kept_bytes_max = content.len() * held.len() / 32 + pages::KEPT_MIN * PAGE_BYTES;
        assert!(resident_bytes <= held.len() * PAGE_BYTES + kept_bytes_max, "{resident_bytes}");
        let is_zero = |&&place: &&usize| {
            // SAFETY: its chunk is mapped, as blocks of it are held; nobody writes meanwhile.
            unsafe { ptr::with_exposed_provenance::<u8>(place + PAGE_BYTES - 1).read() == 0 }
        };
        let returned = places.iter().skip(1).step_by(2).filter(is_zero).count();
        assert_eq!(resident_bytes, (places.len() - returned) * PAGE_BYTES);
        assert!(held.iter().all(|block| *block == content));
    }
}
