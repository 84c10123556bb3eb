//! Insertion, point lookup and accounting of a memtable.
//!
//! # What a reader may rely on
//!
//! A reader at sequence number `s` finds every entry up to `s`, provided that it learned `s` from a
//! value that was published (release store, acquire load) after those entries were inserted. Then:
//!
//! 1. [`insert`](Memtable::insert) makes the filter if there is none, writes its bits and then the
//!    skiplist's node, both before it returns, and so before the publication.
//! 2. The reader's acquire load makes everything before the publication visible to it: the bits,
//!    though they are relaxed, and the node. So the filter says "maybe" and the search finds the
//!    node.
//!
//! The filter comes first, so that an entry never is in the list with its bits still missing: also
//! a reader that meets an entry by another way, ahead of its publication, is not told two things.
//!
//! Entries above `s` may or may not be met; readers pass over them by their sequence number.

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use bytes::Bytes;
use sievedb_filter::AtomicBlockedBloom;
use sievedb_format::{
    InternalKey, SequenceNumber, Trailer,
    range_tombstone::{RangeTombstoneSource, RangeTombstones},
};

use crate::cursor::MemtableCursor;
use crate::skiplist::SkipList;

/// One byte in so many is the filter's.
///
/// Entries of 100 bytes then have 12 bits each when the memtable is full: 0.4 % false positives.
const FILTER_SHARE: usize = 64;

/// Best from 8 to 10 bits per key, and close to it up to 14: large entries leave more.
const FILTER_PROBES: u8 = 6;

/// A sorted, concurrent, insert-only map from internal keys to values, behind a filter.
pub struct Memtable {
    list: SkipList,
    /// From the first entry on.
    filter: OnceLock<AtomicBlockedBloom>,
    memory_bytes_target: usize,
    reserved_bytes: AtomicUsize,
    range_tombstones: RangeTombstones,
}

impl Memtable {
    /// An empty memtable that is meant to be frozen at `memory_bytes_target` bytes.
    ///
    /// The target sizes the filter, with the first entry and for good: 1/64 of it, at least one
    /// line of 64 bytes. A memtable may outgrow its target; its filter then errs more often. As
    /// long as it is empty it has none and takes some hundred bytes.
    #[must_use]
    pub fn new(memory_bytes_target: usize) -> Self {
        Self {
            filter: OnceLock::new(),
            memory_bytes_target,
            list: SkipList::new(),
            reserved_bytes: AtomicUsize::new(0),
            range_tombstones: RangeTombstones::default(),
        }
    }

    /// Allocates the filter, for a memtable of at most `memory_bytes_target` bytes and of the
    /// target that it was made with, unless it has one. Returns how many bytes more it takes.
    pub fn begin(&self, memory_bytes_target: usize) -> usize {
        if self.filter.get().is_some() {
            return 0;
        }
        let target = memory_bytes_target.min(self.memory_bytes_target);
        self.filter.get_or_init(|| new_filter(target)).memory_bytes()
    }

    /// Bytes that an entry takes: key, value, node and tower.
    ///
    /// Heights of towers are random, so this is an average. Nodes get memory by the slab: over
    /// 10,000 entries the allocator returns at least 98.5 % of this, and at most 100.5 % of this
    /// and of [`spare_bytes`](crate::spare_bytes).
    #[must_use]
    pub const fn charge(key_len: usize, value_len: usize) -> usize {
        SkipList::node_bytes(key_len, value_len)
    }

    /// Counts `bytes` as used, before the entries they are for are inserted.
    ///
    /// So that whoever places a write can decide, in sequence order, that the memtable is full.
    /// Returns what was reserved before.
    pub fn reserve(&self, bytes: usize) -> usize {
        self.reserved_bytes.fetch_add(bytes, Relaxed)
    }

    /// Releases `bytes` that were [reserved](Self::reserve) for entries that will not be inserted.
    /// Returns the bytes that were reserved before the call.
    pub fn release(&self, bytes: usize) -> usize {
        self.reserved_bytes.fetch_sub(bytes, Relaxed)
    }

    /// Bytes of the filter and of all that was reserved.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let filter = self.filter.get().map_or(0, AtomicBlockedBloom::memory_bytes);
        size_of::<Self>() + filter + self.reserved_bytes.load(Relaxed)
    }

    /// Returns how many bytes of entries lie in maps of the system, and not on the heap: all but
    /// the first 8 KiB.
    #[must_use]
    pub fn mapped_bytes(&self) -> usize {
        self.list.mapped_bytes()
    }

    /// Copies an entry into the memtable. `hash` is the key hash of `user_key`. Key and value have
    /// at most `u32::MAX` bytes each.
    ///
    /// Any number of threads may insert at once. No two entries may have the same key and trailer:
    /// a lookup would find the later one, and a walk both.
    pub fn insert(&self, hash: u64, user_key: &[u8], trailer: Trailer, value: &[u8]) {
        // Before the list: see the module.
        self.filter.get_or_init(|| new_filter(self.memory_bytes_target)).insert_hash(hash);
        self.list.insert(InternalKey::new(user_key, trailer), value);
    }

    /// Returns `false` only if the memtable has no entry for keys with this hash. A few
    /// nanoseconds; allocates nothing and writes nothing.
    #[inline]
    #[must_use]
    pub fn may_contain_hash(&self, hash: u64) -> bool {
        self.filter.get().is_some_and(|filter| filter.may_contain_hash(hash))
    }

    /// Starts to load what [`may_contain_hash`](Self::may_contain_hash) will read.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        if let Some(filter) = self.filter.get() {
            filter.prefetch(hash);
        }
    }

    /// The newest version of `user_key` at `sequence` or below, whatever it does to the key.
    ///
    /// Does not probe the filter. Copies the value; writes no shared memory.
    #[must_use]
    pub fn get(&self, user_key: &[u8], sequence: SequenceNumber) -> Option<(Trailer, Bytes)> {
        let target = InternalKey::seek(user_key, sequence);
        self.get_with(target, |trailer, value| (trailer, Bytes::copy_from_slice(value)))
    }

    /// Returns what `take` makes of the newest version of the target's user key at or behind
    /// `target`.
    ///
    /// Finds any version: [`InternalKey::seek`] is the target for the newest one that a reader
    /// sees, and [`Trailer::older`] of a version leads to the next older one.
    pub fn get_with<T>(
        &self,
        target: InternalKey<'_>,
        take: impl FnOnce(Trailer, &[u8]) -> T,
    ) -> Option<T> {
        let node = self.list.at_or_behind(target)?;
        let found = node.key();
        (found.user_key == target.user_key).then(|| take(found.trailer, node.value()))
    }

    /// Number of entries: each version of a key is one. Approximate while others insert.
    #[must_use]
    pub fn entries(&self) -> usize {
        self.list.len()
    }

    /// Whether there are neither entries nor range tombstones.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.list.first().is_none() && self.range_tombstones.is_empty()
    }

    /// Returns the range tombstones, which the filter does not cover. None are written yet.
    #[must_use]
    pub fn range_tombstones(&self) -> &dyn RangeTombstoneSource {
        &self.range_tombstones
    }

    /// A cursor over all entries, not positioned yet. It keeps the memtable alive.
    #[must_use]
    pub fn cursor(self: Arc<Self>) -> MemtableCursor {
        MemtableCursor::new(self)
    }

    /// The entries.
    pub(crate) fn list(&self) -> &SkipList {
        &self.list
    }
}

impl std::fmt::Debug for Memtable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Memtable")
            .field("entries", &self.entries())
            .field("memory_bytes", &self.memory_bytes())
            .finish_non_exhaustive()
    }
}

fn new_filter(memory_bytes_target: usize) -> AtomicBlockedBloom {
    AtomicBlockedBloom::with_bytes(memory_bytes_target / FILTER_SHARE, FILTER_PROBES)
}
