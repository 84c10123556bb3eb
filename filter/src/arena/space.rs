//! The chunks of an arena and what is in them.

use core::ptr::NonNull;
use std::collections::BTreeMap;

use super::{
    ArenaStats, CHUNK_BYTES, PIECE_BYTES,
    chunk::{self, Chunk},
    holes::Holes,
    pages::{PageBytes, Released},
};

/// As long as all pieces together are fewer bytes they stay on the heap: a store with one small
/// filter must not pay for a large page.
const HEAP_BYTES_MAX: usize = CHUNK_BYTES / 2;

/// A chunk is larger than this only for a filter that is.
const GROWN_BYTES_MAX: usize = 8 * CHUNK_BYTES;

/// Chunks in small pages have so many bytes at most: a processor knows where as many are.
const SMALL_BYTES_MAX: usize = 4 * CHUNK_BYTES;

/// Pieces of a filter at most: the column groups of a ribbon are four, the arrays of a range filter
/// three.
const FILTER_PIECES_MAX: usize = 4;

/// The chunks of an arena and what is in them.
pub(super) struct Space {
    /// By their first address.
    chunks: BTreeMap<usize, Chunk>,
    page_bytes: PageBytes,
    holes: Holes,
    /// Pages of holes that the system has.
    released: Released,
    /// With the pages that the system has.
    chunk_bytes: usize,
    /// Pieces outside of chunks.
    heap_bytes: usize,
    used_bytes: usize,
    /// For all that there is, with what filters have beside it.
    bytes_max: usize,
    beside_bytes: usize,
    /// Of the filter that comes next.
    coming_bytes: usize,
    /// Whether the first chunks come in small pages.
    begins_small: bool,
}

impl Space {
    /// Without a chunk, and without a bound.
    pub(super) fn new() -> Self {
        let page_bytes = chunk::page_bytes();
        Self {
            chunks: BTreeMap::new(),
            page_bytes,
            holes: Holes::new(page_bytes),
            released: Released::default(),
            chunk_bytes: 0,
            heap_bytes: 0,
            used_bytes: 0,
            bytes_max: usize::MAX,
            beside_bytes: 0,
            coming_bytes: 0,
            begins_small: false,
        }
    }

    pub(super) fn stats(&self) -> ArenaStats {
        let may_have_chunks = !self.chunks.is_empty() || self.bound() >= CHUNK_BYTES;
        let edges = FILTER_PIECES_MAX * self.page_bytes.or_zero();
        let hole = self.holes.longest().saturating_sub(FILTER_PIECES_MAX * PIECE_BYTES);
        ArenaStats {
            bytes: self.bytes(),
            used_bytes: self.used_bytes,
            chunks: self.chunks.len(),
            waste_bytes_min: self.bytes_min() - self.used_bytes,
            edge_bytes_max: if may_have_chunks { edges } else { 0 },
            hole_bytes_max: if self.keeps_pages() { hole } else { 0 },
        }
    }

    /// Whether holes keep their pages.
    fn keeps_pages(&self) -> bool {
        self.page_bytes == PageBytes::default()
    }

    /// What it has from the system.
    fn bytes(&self) -> usize {
        self.chunk_bytes + self.heap_bytes - self.released.bytes()
    }

    /// What it has when all pages are given back that can be.
    fn bytes_min(&self) -> usize {
        self.chunk_bytes + self.heap_bytes - self.holes.whole_page_bytes()
    }

    /// The most that it should have.
    fn bound(&self) -> usize {
        self.bytes_max.saturating_sub(self.beside_bytes)
    }

    /// See [`FilterArena::set_bytes_max`](super::FilterArena::set_bytes_max).
    pub(super) fn set_bytes_max(&mut self, bytes_max: usize) {
        self.bytes_max = bytes_max;
        self.release();
    }

    /// See [`FilterArena::expect`](super::FilterArena::expect).
    pub(super) fn expect(&mut self, coming_bytes: usize, beside_bytes: usize) {
        (self.coming_bytes, self.beside_bytes) = (coming_bytes, beside_bytes);
        self.release();
    }

    /// See [`FilterArena::begin_small`](super::FilterArena::begin_small).
    pub(super) fn begin_small(&mut self) {
        self.begins_small = true;
    }

    /// Makes the pages of one chunk large, and no longer takes small ones; `false` if all are.
    pub(super) fn make_large(&mut self) -> bool {
        self.begins_small = false;
        let small = self.chunks.values_mut().find(|chunk| chunk.is_small());
        small.map(Chunk::make_large).is_some()
    }

    /// Bytes of pieces outside of chunks.
    #[cfg(test)]
    pub(super) fn heap_bytes(&self) -> usize {
        self.heap_bytes
    }

    /// Bytes of chunks in small pages.
    #[cfg(test)]
    pub(super) fn small_bytes(&self) -> usize {
        self.chunks.values().filter(|chunk| chunk.is_small()).map(Chunk::bytes).sum()
    }

    /// See [`FilterArena::take`](super::FilterArena::take).
    pub(super) fn take(&mut self, bytes: usize) -> Option<NonNull<u8>> {
        let rounded = bytes.checked_next_multiple_of(PIECE_BYTES)?;
        if bytes == 0 {
            return None;
        }
        self.used_bytes += bytes;
        let place = self.holes.take(rounded).or_else(|| {
            self.add_chunk(rounded)?;
            self.holes.take(rounded)
        });
        match place {
            Some(address) => self.released.take(self.page_bytes, address, rounded),
            None => self.heap_bytes += bytes,
        }
        self.release();
        let address = place?;
        let (base, chunk) = self.chunks.range(..=address).next_back().expect("holes lie in chunks");
        Some(chunk.at(address - base))
    }

    /// A chunk for a piece of so many bytes, if it is time for one and there is room.
    fn add_chunk(&mut self, bytes: usize) -> Option<()> {
        if self.chunks.is_empty() && self.heap_bytes + bytes < HEAP_BYTES_MAX {
            return None;
        }
        let least = bytes.checked_next_multiple_of(CHUNK_BYTES)?;
        // Two filters of 0.75 MB leave a quarter of a small chunk. An eighth of what there is
        // already keeps what is left below an eighth.
        let grown = (self.chunk_bytes / 8).min(GROWN_BYTES_MAX) / CHUNK_BYTES * CHUNK_BYTES;
        // Its first piece must not take a chunk that leaves the others no room, unless the chunk
        // can shrink again.
        let others = if self.keeps_pages() { self.coming_bytes } else { 0 };
        let has_room = |chunk_bytes: &usize| {
            let after = self.bytes().saturating_add(others).checked_add(*chunk_bytes);
            after.is_some_and(|after| after <= self.bound())
        };
        let chunk_bytes = [grown.max(least), least].into_iter().find(has_room)?;
        let mut chunk = Chunk::new(chunk_bytes)?;
        if !self.begins_small || self.chunk_bytes + chunk_bytes > SMALL_BYTES_MAX {
            chunk.ask_large();
        }
        let base = chunk.at(0).addr().get();
        self.chunk_bytes += chunk_bytes;
        self.chunks.insert(base, chunk);
        self.holes.add(base, chunk_bytes);
        Some(())
    }

    /// Whether the piece lies in a chunk, and the chunk if it is not needed any more.
    pub(super) fn give_back(&mut self, first: NonNull<u8>, bytes: usize) -> (bool, Option<Chunk>) {
        self.used_bytes -= bytes;
        let address = first.addr().get();
        let chunk = self.chunks.range(..=address).next_back();
        let Some((&base, chunk)) = chunk.filter(|(base, chunk)| address - **base < chunk.bytes())
        else {
            self.heap_bytes -= bytes;
            return (false, None);
        };
        let chunk_bytes = chunk.bytes();
        let hole =
            self.holes.give_back(address, bytes.next_multiple_of(PIECE_BYTES), base, chunk_bytes);
        // One of the usual size is kept: the next table comes soon.
        let is_empty = hole == chunk_bytes;
        let is_kept = chunk_bytes == CHUNK_BYTES
            && self.empty_chunks().nth(1).is_none()
            && self.bytes() <= self.bound();
        if is_empty && !is_kept {
            return (true, self.remove_empty(base));
        }
        self.release();
        (true, None)
    }

    /// Chunks of the usual size that are one hole.
    fn empty_chunks(&self) -> impl Iterator<Item = usize> {
        // A larger chunk may have a hole of as many bytes.
        let is_chunk =
            |base: &usize| self.chunks.get(base).is_some_and(|chunk| chunk.bytes() == CHUNK_BYTES);
        self.holes.of_bytes(CHUNK_BYTES).filter(is_chunk)
    }

    /// Takes out a chunk that is one hole.
    fn remove_empty(&mut self, base: usize) -> Option<Chunk> {
        let chunk = self.chunks.remove(&base)?;
        self.holes.remove(base, chunk.bytes());
        self.released.take(self.page_bytes, base, chunk.bytes());
        self.chunk_bytes -= chunk.bytes();
        Some(chunk)
    }

    /// Gives back what is beyond the bound, as far as holes have it: an empty chunk, then pages, of
    /// the longest holes first, so that few chunks lose their large pages.
    fn release(&mut self) {
        if self.bytes() <= self.bound() {
            return;
        }
        let empty = self.empty_chunks().next();
        drop(empty.and_then(|base| self.remove_empty(base)));
        let beyond = self.bytes().saturating_sub(self.bound());
        if !self.release_pages(beyond) {
            self.keep_pages();
        }
    }

    /// Gives back so many bytes in pages, as far as holes have them. Whether the system has taken
    /// them.
    fn release_pages(&mut self, mut beyond: usize) -> bool {
        let mut left = self.holes.whole_page_bytes() - self.released.bytes();
        for (first, bytes) in self.holes.longest_first() {
            let pages = self.page_bytes.within(first, bytes);
            loop {
                if beyond == 0 || left == 0 {
                    return true;
                }
                let Some(gap) = self.released.last_gap(pages.clone()) else { break };
                // The last ones: pieces come to the beginning of a hole.
                let start = gap.end - self.page_bytes.rounded(beyond).min(gap.len());
                let chunk = self.chunks.range_mut(..=start).next_back();
                let (base, chunk) = chunk.expect("holes lie in chunks");
                let part = start..gap.end;
                // SAFETY: whole pages of a hole: nobody has a piece there.
                if !unsafe { chunk.give_back_pages(start - base, part.len()) } {
                    return false;
                }
                beyond = beyond.saturating_sub(part.len());
                left -= part.len();
                self.released.add(part);
            }
        }
        true
    }

    /// The system refuses to take pages: it is not asked again, and all of them count from now on.
    pub(super) fn keep_pages(&mut self) {
        self.page_bytes = PageBytes::default();
        self.holes.keep_pages();
        self.released = Released::default();
    }
}
