//! Runs of contents, and runs kept for reuse.

use std::{array, mem, ptr::NonNull, sync::Arc};

use super::{
    RUN_PAGES_MAX,
    chunks::{Chunks, Leaving},
    system::Map,
};

/// Used pages per free page kept.
const USED_FOR_KEPT: usize = 64;

/// Maximum number of free pages kept: 1 MiB.
const KEPT_PAGES_MAX: usize = 256;

/// Maximum number of pages returned to the system at a time.
pub(super) const LEAVING_PAGES_MAX: usize = 256;

/// Returns the maximum number of free pages kept while contents use `used` pages.
pub(super) const fn kept_pages_max(used: usize) -> usize {
    let share = used / USED_FOR_KEPT;
    if share < KEPT_PAGES_MAX { share } else { KEPT_PAGES_MAX }
}

/// Adjacent pages of one content.
#[derive(Debug, Clone, Copy)]
pub(super) struct Run {
    first: NonNull<u8>,
    pub(super) chunk: u32,
    pub(super) page: u16,
    pub(super) pages: u16,
}

// SAFETY: an address and numbers; the owner of the run decides who uses the memory.
unsafe impl Send for Run {}
// SAFETY: as above.
unsafe impl Sync for Run {}

impl Run {
    /// Describes `pages` pages of a chunk from `page` on; `first` is their address.
    pub(super) fn new(first: NonNull<u8>, chunk: usize, page: usize, pages: usize) -> Self {
        Self { first, chunk: chunk as u32, page: page as u16, pages: pages as u16 }
    }

    /// Returns the address of the first page.
    pub(super) fn first(self) -> NonNull<u8> {
        self.first
    }
}

/// Treatment of freed runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Phase {
    /// Kept for the next content, within a bound.
    #[default]
    Open,
    /// Left unchanged until the chunk is unmapped, which is imminent for most chunks.
    Closing,
    /// Returned to the system, because no content follows.
    Closed,
}

/// The chunks and the use of their pages. A page that is free in its chunk is not resident, except
/// in [`Phase::Closing`]. Runs kept for reuse are resident, and count as taken in their chunks.
pub(super) struct Pages {
    chunks: Chunks,
    phase: Phase,
    used: usize,
    /// By length, from one page on. Each list is a stack.
    kept: [Vec<Run>; RUN_PAGES_MAX],
    kept_pages: usize,
    /// Pages that are being returned to the system.
    leaving_pages: usize,
    /// `true` if the system has refused to take pages back. Free pages are then resident, too.
    is_refused: bool,
}

impl Default for Pages {
    fn default() -> Self {
        Self {
            chunks: Chunks::default(),
            phase: Phase::Open,
            used: 0,
            kept: array::from_fn(|_| Vec::new()),
            kept_pages: 0,
            leaving_pages: 0,
            is_refused: false,
        }
    }
}

impl Pages {
    /// Returns the number of resident pages; an upper bound if the system takes none back.
    pub(super) fn resident(&self) -> usize {
        match self.is_refused {
            true => self.chunks.mapped_pages(),
            false => self.used + self.kept_pages + self.leaving_pages,
        }
    }

    /// Takes a run of `pages` pages, or returns `None` if the system has no memory.
    pub(super) fn take(&mut self, pages: usize) -> Option<Run> {
        let run = match self.kept[pages - 1].pop() {
            Some(run) => {
                self.kept_pages -= pages;
                run
            }
            None => self.chunks.take(pages)?,
        };
        self.used += pages;
        Some(run)
    }

    /// Takes back an unused run.
    pub(super) fn put_back(&mut self, run: Run) {
        let pages = usize::from(run.pages);
        self.used -= pages;
        if self.phase == Phase::Closing {
            drop(self.chunks.free(run));
            return;
        }
        self.kept[pages - 1].push(run);
        self.kept_pages += pages;
    }

    /// Takes up to [`LEAVING_PAGES_MAX`] kept pages if they exceed the maximum. Long runs come
    /// first because they take the fewest calls; runs of equal length come oldest first.
    pub(super) fn take_surplus(&mut self) -> Vec<Leaving> {
        let kept_max = if self.phase == Phase::Closed { 0 } else { kept_pages_max(self.used) };
        let mut runs = Vec::new();
        if self.kept_pages <= kept_max {
            return Vec::new();
        }
        let mut room = LEAVING_PAGES_MAX;
        for pages in (1..=RUN_PAGES_MAX).rev() {
            let list = &mut self.kept[pages - 1];
            let count = list.len().min(room / pages);
            runs.extend(list.drain(..count));
            room -= count * pages;
        }
        let pages = LEAVING_PAGES_MAX - room;
        self.kept_pages -= pages;
        self.leaving_pages += pages;
        self.chunks.leave(runs)
    }

    /// Frees pages that the system took back or refused. Returns the maps that no content uses.
    pub(super) fn free(&mut self, leaving: &[Leaving], is_returned: bool) -> Vec<Arc<Map>> {
        self.is_refused |= !is_returned;
        let free = |leaving: &Leaving| {
            self.leaving_pages -= usize::from(leaving.run().pages);
            self.chunks.free(leaving.run())
        };
        leaving.iter().filter_map(free).collect()
    }

    /// Prepares for dropping most contents. Returns no pages until [`close`](Self::close).
    pub(super) fn begin_to_close(&mut self) {
        self.phase = Phase::Closing;
        let kept = self.kept.iter_mut().flat_map(mem::take);
        kept.for_each(|run| drop(self.chunks.free(run)));
        self.kept_pages = 0;
    }

    /// Ends [`Phase::Closing`]. Returns the numbers of the chunks that may remain.
    pub(super) fn close(&mut self) -> std::ops::Range<usize> {
        self.phase = Phase::Closed;
        self.chunks.numbers()
    }

    /// Takes the free pages of a chunk with remaining contents.
    pub(super) fn take_free(&mut self, chunk: usize) -> Vec<Leaving> {
        let leaving = self.chunks.leave_free(chunk);
        self.leaving_pages += leaving.iter().map(|it| usize::from(it.run().pages)).sum::<usize>();
        leaving
    }

    /// Returns the number of mapped pages.
    #[cfg(test)]
    pub(super) fn mapped(&self) -> usize {
        self.chunks.mapped_pages()
    }

    /// Returns the number of chunk searches.
    #[cfg(test)]
    pub(super) fn searches(&self) -> usize {
        self.chunks.searches
    }
}
