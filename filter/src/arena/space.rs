//! The state of an arena: its chunks, free ranges and heap allocations.

use core::ptr::NonNull;
use std::collections::BTreeMap;

use super::{
    ALIGNMENT, ArenaStats, CHUNK_BYTES,
    chunk::{self, Chunk},
    free_ranges::FreeRanges,
    pages::{PageBytes, Released},
};

/// Minimum bytes of all allocations before the first chunk, so that one small filter does not cost
/// a huge page.
const HEAP_BYTES_MAX: usize = CHUNK_BYTES / 2;

/// Maximum size of a chunk, except for a larger filter.
const GROWN_BYTES_MAX: usize = 8 * CHUNK_BYTES;

/// Maximum bytes of chunks in small pages, which the TLB covers.
const SMALL_BYTES_MAX: usize = 4 * CHUNK_BYTES;

/// Maximum allocations per filter: a ribbon has up to four column groups, a range filter three
/// arrays.
const FILTER_ALLOCATIONS_MAX: usize = 4;

/// Chunks, free ranges and heap allocations of an arena.
pub(super) struct Space {
    /// By address.
    chunks: BTreeMap<usize, Chunk>,
    page_bytes: PageBytes,
    free: FreeRanges,
    /// Released pages of free ranges.
    released: Released,
    /// Includes released pages.
    chunk_bytes: usize,
    /// Allocations outside of chunks.
    heap_bytes: usize,
    used_bytes: usize,
    /// Limit on the bytes from the system plus `outside_bytes`.
    bytes_max: usize,
    outside_bytes: usize,
    /// Size of the next filter.
    pending_bytes: usize,
    /// `true` if the first chunks get small pages.
    starts_small: bool,
}

impl Space {
    /// Creates a space without chunks or limit.
    pub(super) fn new() -> Self {
        let page_bytes = chunk::page_bytes();
        Self {
            chunks: BTreeMap::new(),
            page_bytes,
            free: FreeRanges::new(page_bytes),
            released: Released::default(),
            chunk_bytes: 0,
            heap_bytes: 0,
            used_bytes: 0,
            bytes_max: usize::MAX,
            outside_bytes: 0,
            pending_bytes: 0,
            starts_small: false,
        }
    }

    pub(super) fn stats(&self) -> ArenaStats {
        let may_have_chunks = !self.chunks.is_empty() || self.bound() >= CHUNK_BYTES;
        let edges = FILTER_ALLOCATIONS_MAX * self.page_bytes.or_zero();
        let hole = self.free.longest().saturating_sub(FILTER_ALLOCATIONS_MAX * ALIGNMENT);
        ArenaStats {
            bytes: self.bytes(),
            used_bytes: self.used_bytes,
            chunks: self.chunks.len(),
            unreclaimable_bytes: self.bytes_min() - self.used_bytes,
            rounding_bytes_max: if may_have_chunks { edges } else { 0 },
            free_range_bytes_max: if self.cannot_release_pages() { hole } else { 0 },
        }
    }

    fn cannot_release_pages(&self) -> bool {
        self.page_bytes == PageBytes::default()
    }

    /// Returns the bytes from the system.
    fn bytes(&self) -> usize {
        self.chunk_bytes + self.heap_bytes - self.released.bytes()
    }

    /// Returns the bytes if all releasable pages were released.
    fn bytes_min(&self) -> usize {
        self.chunk_bytes + self.heap_bytes - self.free.whole_page_bytes()
    }

    /// Returns the limit on [`bytes`](Self::bytes).
    fn bound(&self) -> usize {
        self.bytes_max.saturating_sub(self.outside_bytes)
    }

    /// Implements [`FilterArena::set_bytes_max`](super::FilterArena::set_bytes_max).
    pub(super) fn set_bytes_max(&mut self, bytes_max: usize) {
        self.bytes_max = bytes_max;
        self.release();
    }

    /// Implements [`FilterArena::announce`](super::FilterArena::announce).
    pub(super) fn announce(&mut self, pending_bytes: usize, outside_bytes: usize) {
        (self.pending_bytes, self.outside_bytes) = (pending_bytes, outside_bytes);
        self.release();
    }

    /// Implements
    /// [`FilterArena::start_with_small_pages`](super::FilterArena::start_with_small_pages).
    pub(super) fn start_with_small_pages(&mut self) {
        self.starts_small = true;
    }

    /// Converts one chunk to huge pages, and stops allocating small ones; `false` if none is left.
    pub(super) fn use_huge_pages(&mut self) -> bool {
        self.starts_small = false;
        let small = self.chunks.values_mut().find(|chunk| chunk.is_small());
        small.map(Chunk::use_huge_pages).is_some()
    }

    /// Returns the bytes outside of chunks.
    #[cfg(test)]
    pub(super) fn heap_bytes(&self) -> usize {
        self.heap_bytes
    }

    /// Returns the bytes of chunks in small pages.
    #[cfg(test)]
    pub(super) fn small_bytes(&self) -> usize {
        self.chunks.values().filter(|chunk| chunk.is_small()).map(Chunk::bytes).sum()
    }

    /// Implements [`FilterArena::allocate`](super::FilterArena::allocate).
    pub(super) fn allocate(&mut self, bytes: usize) -> Option<NonNull<u8>> {
        let rounded = bytes.checked_next_multiple_of(ALIGNMENT)?;
        if bytes == 0 {
            return None;
        }
        self.used_bytes += bytes;
        let place = self.free.allocate(rounded).or_else(|| {
            self.add_chunk(rounded)?;
            self.free.allocate(rounded)
        });
        match place {
            Some(address) => self.released.remove(self.page_bytes, address, rounded),
            None => self.heap_bytes += bytes,
        }
        self.release();
        let address = place?;
        let (base, chunk) =
            self.chunks.range(..=address).next_back().expect("a free range is in a chunk");
        debug_assert!(address.is_multiple_of(ALIGNMENT), "{address:#x} is not aligned");
        debug_assert!(address - base + rounded <= chunk.bytes(), "an allocation spans two chunks");
        Some(chunk.at(address - base))
    }

    /// Adds a chunk for an allocation of `bytes`, if the thresholds and the limit permit.
    fn add_chunk(&mut self, bytes: usize) -> Option<()> {
        if self.chunks.is_empty() && self.heap_bytes + bytes < HEAP_BYTES_MAX {
            return None;
        }
        let least = bytes.checked_next_multiple_of(CHUNK_BYTES)?;
        // Two filters of 0.75 MB leave a quarter of a 2 MiB chunk unused. Growing by an eighth
        // keeps the unused part below an eighth.
        let grown = (self.chunk_bytes / 8).min(GROWN_BYTES_MAX) / CHUNK_BYTES * CHUNK_BYTES;
        // If pages cannot be released, the chunk must leave room for the pending filter.
        let others = if self.cannot_release_pages() { self.pending_bytes } else { 0 };
        let has_room = |chunk_bytes: &usize| {
            let after = self.bytes().saturating_add(others).checked_add(*chunk_bytes);
            after.is_some_and(|after| after <= self.bound())
        };
        let chunk_bytes = [grown.max(least), least].into_iter().find(has_room)?;
        let mut chunk = Chunk::new(chunk_bytes)?;
        if !self.starts_small || self.chunk_bytes + chunk_bytes > SMALL_BYTES_MAX {
            chunk.advise_huge();
        }
        debug_assert!(chunk_bytes >= bytes, "the chunk has room for the allocation");
        let base = chunk.at(0).addr().get();
        self.chunk_bytes += chunk_bytes;
        self.chunks.insert(base, chunk);
        self.free.add(base, chunk_bytes);
        Some(())
    }

    /// Returns `true` if the allocation is in a chunk, and that chunk if it is no longer needed.
    pub(super) fn deallocate(&mut self, first: NonNull<u8>, bytes: usize) -> (bool, Option<Chunk>) {
        debug_assert!(self.used_bytes >= bytes, "freed {bytes} of {} bytes", self.used_bytes);
        self.used_bytes -= bytes;
        let address = first.addr().get();
        let chunk = self.chunks.range(..=address).next_back();
        let Some((&base, chunk)) = chunk.filter(|(base, chunk)| address - **base < chunk.bytes())
        else {
            debug_assert!(self.heap_bytes >= bytes, "freed {bytes} of {} bytes", self.heap_bytes);
            self.heap_bytes -= bytes;
            return (false, None);
        };
        let chunk_bytes = chunk.bytes();
        let hole =
            self.free.deallocate(address, bytes.next_multiple_of(ALIGNMENT), base, chunk_bytes);
        // Keeps one empty chunk of the usual size for the next table.
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

    /// Returns the empty chunks of the usual size.
    fn empty_chunks(&self) -> impl Iterator<Item = usize> {
        // A larger chunk may have a free range of this length.
        let is_chunk =
            |base: &usize| self.chunks.get(base).is_some_and(|chunk| chunk.bytes() == CHUNK_BYTES);
        self.free.of_bytes(CHUNK_BYTES).filter(is_chunk)
    }

    /// Removes an empty chunk.
    fn remove_empty(&mut self, base: usize) -> Option<Chunk> {
        let chunk = self.chunks.remove(&base)?;
        self.free.remove(base, chunk.bytes());
        self.released.remove(self.page_bytes, base, chunk.bytes());
        debug_assert!(self.chunk_bytes >= chunk.bytes());
        self.chunk_bytes -= chunk.bytes();
        Some(chunk)
    }

    /// Releases memory above the limit: an empty chunk, then pages of the longest free ranges, so
    /// that few chunks lose huge pages.
    fn release(&mut self) {
        if self.bytes() <= self.bound() {
            return;
        }
        let empty = self.empty_chunks().next();
        drop(empty.and_then(|base| self.remove_empty(base)));
        let excess = self.bytes().saturating_sub(self.bound());
        if !self.release_pages(excess) {
            self.stop_releasing_pages();
        }
    }

    /// Releases up to `excess` bytes of pages. Returns `false` if the system refuses.
    fn release_pages(&mut self, mut excess: usize) -> bool {
        let mut left = self.free.whole_page_bytes() - self.released.bytes();
        for (first, bytes) in self.free.longest_first() {
            let pages = self.page_bytes.within(first, bytes);
            loop {
                if excess == 0 || left == 0 {
                    return true;
                }
                let Some(gap) = self.released.last_gap(pages.clone()) else { break };
                // The last pages first: new allocations are placed at the start of a range.
                let start = gap.end - self.page_bytes.rounded(excess).min(gap.len());
                let chunk = self.chunks.range_mut(..=start).next_back();
                let (base, chunk) = chunk.expect("a free range is in a chunk");
                let part = start..gap.end;
                // SAFETY: whole pages of a free range, in which nothing is allocated.
                if !unsafe { chunk.release_pages_at(start - base, part.len()) } {
                    return false;
                }
                excess = excess.saturating_sub(part.len());
                left -= part.len();
                self.released.add(part);
            }
        }
        true
    }

    /// Stops releasing pages after the system refused. All of them count from now on.
    pub(super) fn stop_releasing_pages(&mut self) {
        self.page_bytes = PageBytes::default();
        self.free.stop_releasing_pages();
        self.released = Released::default();
    }
}
