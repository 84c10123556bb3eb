//! Insertion, point lookup and memory accounting of a memtable.
//!
//! # Visibility
//!
//! A reader at sequence number `s` finds every entry up to `s`, if it loaded `s` (acquire) from a
//! value that was stored (release) after those entries were inserted:
//!
//! 1. [`insert`](Memtable::insert) allocates the filter if there is none, sets its bits, then links
//!    the node. Both writes precede the release store.
//! 2. The acquire load makes both visible: the node, and the filter's bits, although their own
//!    writes are relaxed. So the filter matches, and the search finds the node.
//!
//! The filter is written first, so that every entry in the list is also in the filter.
//!
//! Entries above `s` may be visited; readers skip them by their sequence number.
//!
//! The same holds for range tombstones, which are in a list of their own.

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
};

use bytes::Bytes;
use sievedb_filter::AtomicBlockedBloom;
use sievedb_format::{InternalKey, Kind, RangeTombstone, SequenceNumber, Trailer};

use crate::cursor::MemtableCursor;
use crate::ranges::MemtableRanges;
use crate::skiplist::SkipList;

/// The filter's bytes are the memory target divided by this number.
///
/// Entries of 100 bytes then have 12 bits each when the memtable is full: 0.4 % false positives.
const FILTER_SHARE: usize = 64;

/// Optimal from 8 to 10 bits per key, and nearly optimal up to 14, the number for large entries.
const FILTER_PROBES: u8 = 6;

/// A sorted, concurrent, insert-only map from internal keys to values, behind a filter.
pub struct Memtable {
    list: SkipList,
    /// Allocated with the first entry.
    filter: OnceLock<AtomicBlockedBloom>,
    memory_bytes_target: usize,
    reserved_bytes: AtomicUsize,
    range_tombstones: MemtableRanges,
    has_expiry: AtomicBool,
}

impl Memtable {
    /// Creates an empty memtable that its owner freezes at about `memory_bytes_target` bytes.
    ///
    /// The target sizes the filter: 1/64 of it, at least one line of 64 bytes. The filter is
    /// allocated with the first entry and never grows. A memtable may exceed its target; its
    /// false-positive rate then rises. An empty memtable has no filter and uses a few hundred
    /// bytes.
    #[must_use]
    pub fn new(memory_bytes_target: usize) -> Self {
        Self {
            filter: OnceLock::new(),
            memory_bytes_target,
            list: SkipList::new(),
            reserved_bytes: AtomicUsize::new(0),
            range_tombstones: MemtableRanges::default(),
            has_expiry: AtomicBool::new(false),
        }
    }

    /// Allocates the filter if there is none, and returns the bytes added.
    ///
    /// The filter is sized for the smaller of `memory_bytes_target` and the target passed to
    /// [`new`](Self::new).
    pub fn allocate_filter(&self, memory_bytes_target: usize) -> usize {
        if self.filter.get().is_some() {
            return 0;
        }
        let target = memory_bytes_target.min(self.memory_bytes_target);
        self.filter.get_or_init(|| new_filter(target)).memory_bytes()
    }

    /// Returns the average bytes of an entry: key, value, node and tower.
    ///
    /// Tower heights are random, and nodes are allocated in slabs. For 10,000 entries the allocator
    /// returns at least 98.5 % of the charges, and at most 100.5 % of them plus
    /// [`spare_bytes`](crate::spare_bytes).
    #[must_use]
    pub const fn charge(key_len: usize, value_len: usize) -> usize {
        SkipList::node_bytes(key_len, value_len)
    }

    /// Counts `bytes` as used and returns the bytes reserved before.
    ///
    /// Called before the entries are inserted, so that the commit pipeline can decide in sequence
    /// order whether the memtable is full.
    pub fn reserve(&self, bytes: usize) -> usize {
        self.reserved_bytes.fetch_add(bytes, Relaxed)
    }

    /// Releases `bytes` that were [reserved](Self::reserve) for entries that will not be inserted.
    /// Returns the bytes reserved before.
    pub fn release(&self, bytes: usize) -> usize {
        let before = self.reserved_bytes.fetch_sub(bytes, Relaxed);
        debug_assert!(before >= bytes, "released {bytes} of {before} reserved bytes");
        before
    }

    /// Returns the bytes of the filter and of all reservations.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let filter = self.filter.get().map_or(0, AtomicBlockedBloom::memory_bytes);
        size_of::<Self>() + filter + self.reserved_bytes.load(Relaxed)
    }

    /// Returns `true` if the memtable takes at least the memory passed to [`new`](Self::new).
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.memory_bytes() >= self.memory_bytes_target
    }

    /// Returns the bytes of entries in anonymous memory maps: all but the first 8 KiB, which are on
    /// the heap.
    #[must_use]
    pub fn mapped_bytes(&self) -> usize {
        self.list.mapped_bytes()
    }

    /// Inserts a copy of an entry. `hash` is the [key hash](sievedb_filter::key_hash) of
    /// `user_key`.
    ///
    /// Any number of threads may insert concurrently. No two entries may have the same key and
    /// trailer: a lookup would find the later entry, and a scan both.
    ///
    /// # Panics
    ///
    /// If the key or the value has more than `u32::MAX` bytes.
    pub fn insert(&self, hash: u64, user_key: &[u8], trailer: Trailer, value: &[u8]) {
        if trailer.kind() == Kind::PutWithExpiry {
            self.has_expiry.store(true, Relaxed);
        }
        // Before the list: see the module documentation.
        let filter = self.filter.get_or_init(|| new_filter(self.memory_bytes_target));
        filter.insert_hash(hash);
        debug_assert!(self.may_contain_hash(hash), "the filter precedes the list");
        let key = InternalKey::new(user_key, trailer);
        self.list.insert(key, value);
        debug_assert_eq!(self.list.lower_bound(key).map(|node| node.key()), Some(key));
    }

    /// Inserts copies of entries: key hash, user key, trailer and value of each. Faster than calls
    /// of [`insert`](Self::insert), because cache misses overlap.
    ///
    /// # Panics
    ///
    /// As [`insert`](Self::insert).
    pub fn insert_all<'k>(
        &self,
        entries: impl IntoIterator<Item = (u64, &'k [u8], Trailer, &'k [u8])>,
    ) {
        let filter = self.filter.get_or_init(|| new_filter(self.memory_bytes_target));
        self.list.insert_all(entries.into_iter().map(|(hash, user_key, trailer, value)| {
            if trailer.kind() == Kind::PutWithExpiry {
                self.has_expiry.store(true, Relaxed);
            }
            // Before the list: see the module documentation.
            filter.insert_hash(hash);
            (InternalKey::new(user_key, trailer), value)
        }));
    }

    /// Returns the bytes of a range tombstone with these bounds.
    #[must_use]
    pub const fn range_tombstone_charge(start_len: usize, end_len: usize) -> usize {
        MemtableRanges::charge(start_len, end_len)
    }

    /// Inserts a range tombstone.
    ///
    /// Any number of threads may insert concurrently; a lock serializes them. The amortized cost of
    /// `n` inserts is `O(log n)` each.
    ///
    /// # Panics
    ///
    /// If its range is empty.
    pub fn insert_range_tombstone(&self, tombstone: RangeTombstone) {
        self.range_tombstones.insert(tombstone);
    }

    /// Returns `false` only if the memtable has no entry for keys with this hash.
    ///
    /// Reads one cache line; allocates and writes nothing.
    #[inline]
    #[must_use]
    pub fn may_contain_hash(&self, hash: u64) -> bool {
        self.filter.get().is_some_and(|filter| filter.may_contain_hash(hash))
    }

    /// Prefetches the cache line that [`may_contain_hash`](Self::may_contain_hash) reads.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        if let Some(filter) = self.filter.get() {
            filter.prefetch(hash);
        }
    }

    /// Returns the newest version of `user_key` at `sequence` or below, of any kind.
    ///
    /// Does not probe the filter. Copies the value; writes no shared memory.
    #[must_use]
    pub fn get(&self, user_key: &[u8], sequence: SequenceNumber) -> Option<(Trailer, Bytes)> {
        let target = InternalKey::seek(user_key, sequence);
        self.get_with(target, |trailer, value| (trailer, Bytes::copy_from_slice(value)))
    }

    /// Passes the first version at or after `target` that has its user key to `take`, without a
    /// copy of the value, and returns the result.
    ///
    /// Use [`InternalKey::seek`] as `target` for the newest visible version, and [`Trailer::older`]
    /// of a version for the next older one.
    pub fn get_with<T>(
        &self,
        target: InternalKey<'_>,
        take: impl FnOnce(Trailer, &[u8]) -> T,
    ) -> Option<T> {
        let node = self.list.lower_bound(target)?;
        let found = node.key();
        (found.user_key == target.user_key).then(|| take(found.trailer, node.value()))
    }

    /// Returns the number of entries, counting every version. Approximate during inserts.
    #[must_use]
    pub fn entries(&self) -> usize {
        self.list.len()
    }

    /// Returns `true` if there are neither entries nor range tombstones.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.list.first().is_none() && self.range_tombstones.is_empty()
    }

    /// Returns `true` if an entry expires. A reader that sees such an entry gets `true`.
    #[must_use]
    pub fn has_expiry(&self) -> bool {
        self.has_expiry.load(Relaxed)
    }

    /// Returns the range tombstones, which the filter does not cover.
    #[must_use]
    pub fn range_tombstones(&self) -> &MemtableRanges {
        &self.range_tombstones
    }

    /// Creates an unpositioned cursor over all entries. It keeps the memtable alive.
    #[must_use]
    pub fn cursor(self: Arc<Self>) -> MemtableCursor {
        MemtableCursor::new(self)
    }

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
