//! Chunks of pages, and the runs that are kept for reuse.

use std::{mem, ptr::NonNull};

use super::{
    bitmap::{CHUNK_PAGES, FreePages},
    system::{Map, PAGE_BYTES},
};

/// At least so many free pages are kept.
pub(super) const KEPT_MIN: usize = 32;

/// At most so many free pages are kept: what returns them holds the lock for some 0.3 ms.
const KEPT_MAX: usize = 1024;

/// Between the two, one free page is kept for so many that are used.
const KEPT_SHARE: usize = 32;

/// Longer runs are not kept.
const KEPT_RUN_PAGES_MAX: usize = 16;

/// Pages side by side that one content has.
#[derive(Debug, Clone, Copy)]
pub(super) struct Run {
    first: NonNull<u8>,
    chunk: u32,
    page: u16,
    pages: u16,
}

// SAFETY: an address and numbers; who has the run decides who uses the memory.
unsafe impl Send for Run {}
// SAFETY: as above.
unsafe impl Sync for Run {}

impl Run {
    /// Returns where it begins.
    pub(super) fn first(self) -> NonNull<u8> {
        self.first
    }
}

struct Chunk {
    map: Map,
    free: FreePages,
}

/// The chunks and what is free in them. A page that is free in its chunk is not resident; runs
/// that are kept for reuse are, and count as taken in their chunks.
#[derive(Default)]
pub(super) struct Pages {
    /// By the numbers of their runs.
    chunks: Vec<Option<Chunk>>,
    /// The chunk to look into first.
    next: usize,
    /// Pages that are free in all chunks.
    free: usize,
    used: usize,
    /// By their lengths, from one page on; each list last in, first out.
    kept: [Vec<Run>; KEPT_RUN_PAGES_MAX],
    kept_pages: usize,
}

impl Pages {
    /// Returns how many pages it has from the system.
    pub(super) fn resident(&self) -> usize {
        self.used + self.kept_pages
    }

    /// Returns a run of `pages` pages, or `None` if the system has no memory.
    pub(super) fn take(&mut self, pages: usize) -> Option<Run> {
        let run = match self.kept.get_mut(pages - 1).and_then(Vec::pop) {
            Some(run) => {
                self.kept_pages -= pages;
                run
            }
            None => self.take_from_chunk(pages)?,
        };
        self.used += pages;
        Some(run)
    }

    fn take_from_chunk(&mut self, pages: usize) -> Option<Run> {
        let chunks = self.chunks.len();
        let found = (self.free >= pages).then(|| {
            (self.next..chunks).chain(0..self.next).find_map(|number| {
                let page = self.chunks[number].as_mut()?.free.take(pages)?;
                Some((number, page))
            })
        });
        let (number, page) = match found.flatten() {
            Some(found) => found,
            None => {
                let number = self.add_chunk()?;
                let chunk = self.chunks[number].as_mut()?;
                (number, chunk.free.take(pages)?)
            }
        };
        self.next = number;
        self.free -= pages;
        let first = self.chunks[number].as_ref()?.map.at(page * PAGE_BYTES);
        Some(Run { first, chunk: number as u32, page: page as u16, pages: pages as u16 })
    }

    fn add_chunk(&mut self) -> Option<usize> {
        let chunk = Chunk { map: Map::new(CHUNK_PAGES * PAGE_BYTES)?, free: FreePages::all() };
        self.free += CHUNK_PAGES;
        let number = self.chunks.iter().position(Option::is_none).unwrap_or(self.chunks.len());
        if number == self.chunks.len() {
            self.chunks.push(None);
        }
        self.chunks[number] = Some(chunk);
        Some(number)
    }

    /// Takes back a run that nobody uses any more.
    pub(super) fn put_back(&mut self, run: Run) {
        let pages = usize::from(run.pages);
        self.used -= pages;
        let Some(kept) = self.kept.get_mut(pages - 1) else {
            return self.release(&mut [run]);
        };
        kept.push(run);
        self.kept_pages += pages;
        if self.kept_pages > (self.used / KEPT_SHARE).clamp(KEPT_MIN, KEPT_MAX) {
            let mut all: Vec<Run> = self.kept.iter_mut().flat_map(mem::take).collect();
            self.kept_pages = 0;
            self.release(&mut all);
        }
    }

    /// Returns the pages of runs to the system, those side by side in one call, and chunks that
    /// nobody uses.
    fn release(&mut self, runs: &mut [Run]) {
        runs.sort_unstable_by_key(|run| (run.chunk, run.page));
        let is_beside = |a: &Run, b: &Run| a.chunk == b.chunk && a.page + a.pages == b.page;
        for beside in runs.chunk_by(is_beside) {
            let (number, page) = (beside[0].chunk as usize, usize::from(beside[0].page));
            let pages = beside.iter().map(|run| usize::from(run.pages)).sum();
            let slot = &mut self.chunks[number];
            let Some(chunk) = slot else { continue };
            chunk.free.put_back(page, pages);
            self.free += pages;
            if chunk.free.count() == CHUNK_PAGES {
                *slot = None;
                self.free -= CHUNK_PAGES;
            } else {
                // SAFETY: nobody has these pages: they were put back.
                unsafe { chunk.map.give_back(page * PAGE_BYTES, pages * PAGE_BYTES) };
            }
        }
    }
}
