//! The chunks of an arena and what is in them.

use core::ptr::NonNull;
use std::collections::BTreeMap;

use super::{ArenaStats, CHUNK_BYTES, PIECE_BYTES, chunk::Chunk, holes::Holes};

/// As long as all pieces together are fewer bytes they stay on the heap: a store with one small filter
/// must not pay for a large page.
const HEAP_BYTES_MAX: usize = CHUNK_BYTES / 2;

/// A chunk is larger than this only for a filter that is.
const GROWN_BYTES_MAX: usize = 8 * CHUNK_BYTES;

/// Chunks in small pages have so many bytes at most: a processor knows where as many are.
const SMALL_BYTES_MAX: usize = 4 * CHUNK_BYTES;

/// The chunks of an arena and what is in them.
#[derive(Default)]
pub(super) struct Space {
    /// By their first address.
    chunks: BTreeMap<usize, Chunk>,
    holes: Holes,
    chunk_bytes: usize,
    /// Pieces outside of chunks.
    heap_bytes: usize,
    used_bytes: usize,
    /// No chunk is taken from the system beyond it.
    bytes_max: Option<usize>,
    /// Whether the first chunks come in small pages.
    begins_small: bool,
}

impl Space {
    pub(super) fn stats(&self) -> ArenaStats {
        ArenaStats {
            bytes: self.chunk_bytes + self.heap_bytes,
            used_bytes: self.used_bytes,
            chunks: self.chunks.len(),
        }
    }

    pub(super) fn set_bytes_max(&mut self, bytes_max: usize) {
        self.bytes_max = Some(bytes_max);
    }

    /// See [`FilterArena::begin_small`](super::FilterArena::begin_small).
    pub(super) fn begin_small(&mut self) {
        self.begins_small = true;
    }

    /// Makes the pages of one chunk large, and no longer takes small ones; `false` if all are.
    pub(super) fn make_large(&mut self) -> bool {
        self.begins_small = false;
        let small = self.chunks.values_mut().find(|chunk| !chunk.is_large());
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
        self.chunks.values().filter(|chunk| !chunk.is_large()).map(Chunk::bytes).sum()
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
        let Some(address) = place else {
            self.heap_bytes += bytes;
            return None;
        };
        let (base, chunk) = self.chunks.range(..=address).next_back().expect("holes lie in chunks");
        Some(chunk.at(address - base))
    }

    /// A chunk for a piece of so many bytes, if it is time for one and there is room.
    fn add_chunk(&mut self, bytes: usize) -> Option<()> {
        if self.chunks.is_empty() && self.heap_bytes + bytes < HEAP_BYTES_MAX {
            return None;
        }
        let least = bytes.checked_next_multiple_of(CHUNK_BYTES)?;
        // Two filters of 0.75 MB leave a quarter of a small chunk. An eighth of what there is already
        // keeps what is left below an eighth.
        let grown = (self.chunk_bytes / 8).min(GROWN_BYTES_MAX) / CHUNK_BYTES * CHUNK_BYTES;
        let has_room = |chunk_bytes: &usize| {
            let after = (self.chunk_bytes + self.heap_bytes).checked_add(*chunk_bytes);
            after.is_some_and(|after| self.bytes_max.is_none_or(|bytes_max| after <= bytes_max))
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
        let is_kept = chunk_bytes == CHUNK_BYTES && self.holes.whole_chunks(CHUNK_BYTES) <= 1;
        if !is_empty || is_kept {
            return (true, None);
        }
        self.holes.remove(base, chunk_bytes);
        self.chunk_bytes -= chunk_bytes;
        (true, self.chunks.remove(&base))
    }
}
