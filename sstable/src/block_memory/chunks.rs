//! Chunks of pages, listed by their longest free run.
//!
//! Each chunk is in the list for an upper bound of its longest free run. The bound is exact after a
//! failed search, so each run taken or freed causes at most one failed search of its chunk. Finding
//! a chunk reads one word. So the cost of a run does not depend on the number of chunks.

use std::sync::Arc;

use super::{
    RUN_PAGES_MAX,
    bitmap::{CHUNK_PAGES, FreePages},
    pages::Run,
    system::{Map, PAGE_BYTES},
};

/// Number of runs for which no map is requested after the system refused one. Their contents are on
/// the heap.
pub(super) const RUNS_WITHOUT_MAP: u32 = 1024;

/// A chunk.
struct Chunk {
    map: Arc<Map>,
    free: FreePages,
    /// Index of its list.
    list: usize,
    /// Index in the list.
    place: usize,
}

/// All chunks.
#[derive(Default)]
pub(super) struct Chunks {
    /// By the numbers of their runs.
    chunks: Vec<Option<Chunk>>,
    /// Number of chunks.
    count: usize,
    lists: Lists,
    /// Runs for which no map is requested.
    runs_without_map: u32,
    /// Searches in chunks, for tests.
    #[cfg(test)]
    pub(super) searches: usize,
}

/// Pages that are being returned to the system, without a lock. They count as taken.
pub(super) struct Leaving {
    run: Run,
    map: Arc<Map>,
}

impl Leaving {
    /// Returns the pages to the system. Returns `false` if the system refuses them.
    pub(super) fn give_back(&self) -> bool {
        let (page, pages) = (usize::from(self.run.page), usize::from(self.run.pages));
        // SAFETY: no content has these pages, and none takes them before `Chunks::free`.
        unsafe { self.map.give_back(page * PAGE_BYTES, pages * PAGE_BYTES) }
    }

    /// Returns the run.
    pub(super) fn run(&self) -> Run {
        self.run
    }
}

impl Chunks {
    /// Returns the number of mapped pages.
    pub(super) fn mapped_pages(&self) -> usize {
        self.count * CHUNK_PAGES
    }

    /// Returns the numbers of all chunks, including some unmapped ones.
    pub(super) fn numbers(&self) -> std::ops::Range<usize> {
        0..self.chunks.len()
    }

    /// Takes a run of `pages` pages, or returns `None` if the system has no memory.
    pub(super) fn take(&mut self, pages: usize) -> Option<Run> {
        loop {
            let number = match self.lists.with_room(pages) {
                Some(number) => number,
                None => self.add_chunk()?,
            };
            let chunk = self.chunks[number].as_mut()?;
            #[cfg(test)]
            {
                self.searches += 1;
            }
            let found = chunk.free.take(pages);
            let run =
                found.map(|page| Run::new(chunk.map.at(page * PAGE_BYTES), number, page, pages));
            self.update_list(number);
            if run.is_some() {
                return run;
            }
        }
    }

    fn add_chunk(&mut self) -> Option<usize> {
        if self.runs_without_map > 0 {
            self.runs_without_map -= 1;
            return None;
        }
        let Some(map) = Map::new(CHUNK_PAGES * PAGE_BYTES) else {
            self.runs_without_map = RUNS_WITHOUT_MAP;
            return None;
        };
        let number = self.chunks.iter().position(Option::is_none).unwrap_or(self.chunks.len());
        if number == self.chunks.len() {
            self.chunks.push(None);
        }
        let place = self.lists.push(LISTS - 1, number);
        let (map, free) = (Arc::new(map), FreePages::all());
        self.chunks[number] = Some(Chunk { map, free, list: LISTS - 1, place });
        self.count += 1;
        Some(number)
    }

    /// Frees a run. If all pages of its chunk are free, removes the chunk and returns its map.
    pub(super) fn free(&mut self, run: Run) -> Option<Arc<Map>> {
        let number = run.chunk as usize;
        let chunk = self.chunks.get_mut(number)?.as_mut()?;
        chunk.free.put_back(run.page.into(), run.pages.into());
        if chunk.free.count() < CHUNK_PAGES {
            self.update_list(number);
            return None;
        }
        let Chunk { map, list, place, .. } = self.chunks[number].take()?;
        self.remove_from_list(list, place);
        self.count -= 1;
        Some(map)
    }

    /// Prepares runs to be returned to the system. Joins adjacent ones.
    pub(super) fn leave(&self, mut runs: Vec<Run>) -> Vec<Leaving> {
        runs.sort_unstable_by_key(|run| (run.chunk, run.page));
        let is_beside = |a: &Run, b: &Run| a.chunk == b.chunk && a.page + a.pages == b.page;
        let joined = runs.chunk_by(is_beside).filter_map(|beside| {
            let map = Arc::clone(&self.chunks[beside[0].chunk as usize].as_ref()?.map);
            let mut run = beside[0];
            run.pages = beside.iter().map(|run| run.pages).sum();
            Some(Leaving { run, map })
        });
        joined.collect()
    }

    /// Takes all free pages of a chunk, to be returned to the system.
    pub(super) fn leave_free(&mut self, number: usize) -> Vec<Leaving> {
        let mut leaving = Vec::new();
        let Some(chunk) = &mut self.chunks[number] else { return leaving };
        while let Some(pages) = chunk.free.next_run(0).map(|run| run.len()) {
            let Some(page) = chunk.free.take(pages) else { break };
            let run = Run::new(chunk.map.at(page * PAGE_BYTES), number, page, pages);
            leaving.push(Leaving { run, map: Arc::clone(&chunk.map) });
        }
        self.update_list(number);
        leaving
    }

    /// Moves a chunk to the list of its longest free run.
    fn update_list(&mut self, number: usize) {
        let Some(chunk) = &mut self.chunks[number] else { return };
        let (from, place) = (chunk.list, chunk.place);
        let to = chunk.free.longest_max().min(LISTS - 1);
        if to == from {
            return;
        }
        chunk.list = to;
        chunk.place = self.lists.push(to, number);
        self.remove_from_list(from, place);
    }

    fn remove_from_list(&mut self, list: usize, place: usize) {
        let moved = self.lists.remove(list, place);
        if let Some(chunk) = moved.and_then(|moved| self.chunks[moved].as_mut()) {
            chunk.place = place;
        }
    }
}

/// One list per run length, and one for chunks without a free page.
const LISTS: usize = RUN_PAGES_MAX + 1;

/// Numbers of chunks by the upper bound of their longest free run. The last list includes chunks
/// with longer runs.
struct Lists {
    lists: [Vec<usize>; LISTS],
    /// One bit per list, set if it has a chunk. Bit 0 is the list of one page.
    filled: u64,
}

impl Default for Lists {
    fn default() -> Self {
        Self { lists: std::array::from_fn(|_| Vec::new()), filled: 0 }
    }
}

impl Lists {
    /// Returns a chunk from the first non-empty list of at least `pages` pages.
    fn with_room(&self, pages: usize) -> Option<usize> {
        let filled = self.filled >> (pages - 1);
        let list = pages.checked_add(filled.trailing_zeros() as usize)?;
        self.lists.get(list)?.last().copied()
    }

    /// Appends a chunk, and returns its place.
    fn push(&mut self, list: usize, chunk: usize) -> usize {
        self.lists[list].push(chunk);
        self.set_filled(list);
        self.lists[list].len() - 1
    }

    /// Removes the chunk at `place`, and returns the chunk that replaced it.
    fn remove(&mut self, list: usize, place: usize) -> Option<usize> {
        self.lists[list].swap_remove(place);
        self.set_filled(list);
        self.lists[list].get(place).copied()
    }

    fn set_filled(&mut self, list: usize) {
        if let Some(bit) = list.checked_sub(1) {
            let is_filled = u64::from(!self.lists[list].is_empty());
            self.filled = self.filled & !(1 << bit) | is_filled << bit;
        }
    }
}
