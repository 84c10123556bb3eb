//! Runs that contents have, and those that are kept for reuse.

use std::{array, mem, ptr::NonNull, sync::Arc};

use super::{
    RUN_PAGES_MAX,
    chunks::{Chunks, Leaving},
    system::Map,
};

/// For so many pages that contents have, one free page is kept.
const USED_FOR_KEPT: usize = 64;

/// At most so many free pages are kept: 1 MiB.
const KEPT_PAGES_MAX: usize = 256;

/// At most so many pages are returned to the system at a time.
pub(super) const LEAVING_PAGES_MAX: usize = 256;

/// Returns how many free pages may be kept while contents have `used` pages.
pub(super) const fn kept_pages_max(used: usize) -> usize {
    let share = used / USED_FOR_KEPT;
    if share < KEPT_PAGES_MAX { share } else { KEPT_PAGES_MAX }
}

/// Pages side by side that one content has.
#[derive(Debug, Clone, Copy)]
pub(super) struct Run {
    first: NonNull<u8>,
    pub(super) chunk: u32,
    pub(super) page: u16,
    pub(super) pages: u16,
}

// SAFETY: an address and numbers; who has the run decides who uses the memory.
unsafe impl Send for Run {}
// SAFETY: as above.
unsafe impl Sync for Run {}

impl Run {
    /// Describes `pages` pages of a chunk, from `page` on, which begins at `first`.
    pub(super) fn new(first: NonNull<u8>, chunk: usize, page: usize, pages: usize) -> Self {
        Self { first, chunk: chunk as u32, page: page as u16, pages: pages as u16 }
    }

    /// Returns where it begins.
    pub(super) fn first(self) -> NonNull<u8> {
        self.first
    }
}

/// What happens to a run that is put back.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Phase {
    /// It is kept for the next content, within a bound.
    #[default]
    Open,
    /// It stays as it is until its chunk is unmapped: most are about to be.
    Closing,
    /// It returns to the system: no content follows.
    Closed,
}

/// The chunks and who has their pages. A page that is free in its chunk is not resident, except in
/// [`Phase::Closing`]. Runs that are kept for reuse are, and count as taken in their chunks.
pub(super) struct Pages {
    chunks: Chunks,
    phase: Phase,
    used: usize,
    /// By their lengths, from one page on; each list last in, first out.
    kept: [Vec<Run>; RUN_PAGES_MAX],
    kept_pages: usize,
    /// Pages that are being returned to the system.
    leaving_pages: usize,
    /// The system has refused to take pages back: free pages are resident, too.
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
    /// Returns how many pages it has from the system; an upper bound if that takes none back.
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

    /// Takes back a run that nobody uses any more.
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

    /// Takes up to [`LEAVING_PAGES_MAX`] of the kept pages if they are too many: of long runs
    /// first, as they take the fewest calls, and of each length those that were kept longest.
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

    /// Makes pages free that were returned to the system, or refused by it. Returns the maps that
    /// no content uses.
    pub(super) fn free(&mut self, leaving: &[Leaving], is_returned: bool) -> Vec<Arc<Map>> {
        self.is_refused |= !is_returned;
        let free = |leaving: &Leaving| {
            self.leaving_pages -= usize::from(leaving.run().pages);
            self.chunks.free(leaving.run())
        };
        leaving.iter().filter_map(free).collect()
    }

    /// Prepares for the end of most contents: returns no pages until [`close`](Self::close).
    pub(super) fn begin_to_close(&mut self) {
        self.phase = Phase::Closing;
        let kept = self.kept.iter_mut().flat_map(mem::take);
        kept.for_each(|run| drop(self.chunks.free(run)));
        self.kept_pages = 0;
    }

    /// Ends [`Phase::Closing`]. Returns the numbers of the chunks that may be left.
    pub(super) fn close(&mut self) -> std::ops::Range<usize> {
        self.phase = Phase::Closed;
        self.chunks.numbers()
    }

    /// Takes the free pages of a chunk that contents are left in.
    pub(super) fn take_free(&mut self, chunk: usize) -> Vec<Leaving> {
        let leaving = self.chunks.leave_free(chunk);
        self.leaving_pages += leaving.iter().map(|it| usize::from(it.run().pages)).sum::<usize>();
        leaving
    }

    /// Returns how many pages are mapped.
    #[cfg(test)]
    pub(super) fn mapped(&self) -> usize {
        self.chunks.mapped_pages()
    }

    /// Returns how often chunks were searched.
    #[cfg(test)]
    pub(super) fn searches(&self) -> usize {
        self.chunks.searches
    }
}
