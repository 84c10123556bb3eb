//! The range tombstones of a memtable.
//!
//! The range tombstones are in chunks, which are immutable lists, after Bentley and Saxe,
//! "Decomposable searching problems", 1980. Chunk `n` has up to `FAN_OUT^(n + 1)` range tombstones.
//! An insert rebuilds the first chunk, and merges full chunks into the next one. So each range
//! tombstone is copied at most `FAN_OUT` times per chunk. A search takes one binary search per
//! chunk.
//!
//! Readers take no lock: they load the current chunks. Without range tombstones they load one
//! integer. The first eight range tombstones are also in an array. Up to eight, a search of the
//! array costs less than loading the chunks.

use std::sync::{
    Arc, Mutex, OnceLock, PoisonError,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use arc_swap::ArcSwapOption;
use sievedb_format::{
    RangeTombstone, RangeTombstoneSource, RangeTombstones, SequenceNumber, packed_keys::head,
};

/// Growth factor from one chunk to the next: 10,000 range tombstones have four chunks.
const FAN_OUT: usize = 16;

/// Memory of a range tombstone without its keys: in the list, as two fragments, and in the array.
const OVERHEAD_BYTES: usize =
    size_of::<RangeTombstone>() + 2 * (24 + 24 + 8) + 8 + size_of::<OnceLock<Headed>>();

/// Length of the array. Its range tombstones are compared one by one, with two integers each.
const FEW: usize = 8;

/// A range tombstone with the [heads](head) of its bounds, which decide most comparisons.
#[derive(Debug)]
struct Headed {
    start: u64,
    /// `u64::MAX` if there is no upper bound.
    end: u64,
    tombstone: RangeTombstone,
}

impl Headed {
    fn new(tombstone: RangeTombstone) -> Self {
        let RangeTombstone { start, end, .. } = &tombstone;
        let end = if end.is_empty() { u64::MAX } else { head(end) };
        Self { start: head(start), end, tombstone }
    }

    #[inline]
    fn covers(&self, user_key: &[u8], key_head: u64) -> bool {
        let may_cover = self.start <= key_head && key_head <= self.end;
        let is_within = self.start < key_head && key_head < self.end;
        may_cover && (is_within || self.tombstone.covers(user_key))
    }
}

type Chunks = Vec<Option<Arc<RangeTombstones>>>;

/// A concurrent, insert-only set of range tombstones.
#[derive(Debug, Default)]
pub struct MemtableRanges {
    /// Stored after `chunks`, and loaded before them.
    len: AtomicUsize,
    /// `None` without range tombstones, which is the common case and allocates nothing.
    chunks: ArcSwapOption<Chunks>,
    /// The first range tombstones, in insertion order.
    few: OnceLock<Box<[OnceLock<Headed>; FEW]>>,
    /// Index in `few` of the range tombstone that covers the most heads.
    widest: AtomicUsize,
    /// Held during an insert.
    insert: Mutex<()>,
}

impl MemtableRanges {
    /// Returns the memory of a range tombstone, in bytes.
    pub(crate) const fn charge(start_len: usize, end_len: usize) -> usize {
        OVERHEAD_BYTES + start_len + end_len
    }

    /// Inserts a range tombstone.
    ///
    /// # Panics
    ///
    /// If its range is empty.
    pub fn insert(&self, tombstone: RangeTombstone) {
        let _inserting = self.insert.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(place) = self.few.get_or_init(Box::default).get(self.len()) {
            let set = place.set(Headed::new(tombstone.clone()));
            debug_assert!(set.is_ok(), "places are filled in turn");
            self.note_width(self.len());
        }
        let mut chunks = self.chunks.load().as_deref().cloned().unwrap_or_default();
        let mut added = vec![tombstone];
        let mut capacity = FAN_OUT;
        for place in 0.. {
            if place == chunks.len() {
                chunks.push(None);
            }
            if let Some(present) = chunks[place].take() {
                let mut both: Vec<_> = present.iter().cloned().collect();
                both.append(&mut added);
                added = both;
            }
            if added.len() <= capacity {
                let list = RangeTombstones::new(added).expect("a range of the log is not empty");
                chunks[place] = Some(Arc::new(list));
                break;
            }
            capacity = capacity.saturating_mul(FAN_OUT);
        }
        let len = chunks.iter().flatten().map(|chunk| chunk.len()).sum();
        debug_assert!(self.len() <= len, "range tombstones are never removed");
        self.chunks.store(Some(Arc::new(chunks)));
        self.len.store(len, Relaxed);
    }

    fn note_width(&self, place: usize) {
        let width = |place: usize| {
            self.few
                .get()
                .and_then(|few| few[place].get())
                .map(|one| one.end - one.start.min(one.end))
        };
        if width(place) > width(self.widest.load(Relaxed)) {
            self.widest.store(place, Relaxed);
        }
    }

    /// Returns the sequence number of one range tombstone up to `at` that covers every key with
    /// this [`head`]; 0 if none is found.
    ///
    /// Compares only the widest of the first eight range tombstones. There may be newer ones.
    #[inline]
    #[must_use]
    pub fn wide_cover(&self, key_head: u64, at: SequenceNumber) -> SequenceNumber {
        if self.is_empty() {
            return 0;
        }
        let few = self.few.get();
        match few.and_then(|few| few[self.widest.load(Relaxed) % FEW].get()) {
            Some(one)
                if one.start < key_head && key_head < one.end && one.tombstone.sequence <= at =>
            {
                one.tombstone.sequence
            }
            _ => 0,
        }
    }

    /// Returns the number of range tombstones.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.len.load(Relaxed)
    }

    /// Returns `true` if there are no range tombstones.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the current range tombstones, as lists.
    #[must_use]
    pub fn lists(&self) -> Vec<Arc<RangeTombstones>> {
        self.chunks.load().iter().flat_map(|chunks| chunks.iter().flatten().cloned()).collect()
    }

    /// Returns the largest sequence number, up to `at`, of a range tombstone that covers
    /// `user_key`.
    #[must_use]
    pub fn newest_cover(&self, user_key: &[u8], at: SequenceNumber) -> Option<SequenceNumber> {
        Some(self.newest_cover_above(user_key, at, 0)).filter(|&newest| newest > 0)
    }

    /// Returns the same as [`newest_cover`](Self::newest_cover), but `above` unless that is larger.
    ///
    /// Skips lists without a range tombstone above `above`.
    #[inline]
    #[must_use]
    pub fn newest_cover_above(
        &self,
        user_key: &[u8],
        at: SequenceNumber,
        above: SequenceNumber,
    ) -> SequenceNumber {
        if self.len() > FEW {
            return self.newest_of_many(user_key, at, above);
        }
        let mut newest = above;
        if let Some(few) = self.few.get() {
            let key_head = head(user_key);
            // An element that is not visible yet is newer than the reader's snapshot.
            for one in few.iter().map_while(OnceLock::get) {
                let sequence = one.tombstone.sequence;
                let is_newer = newest < sequence && sequence <= at;
                if is_newer && one.covers(user_key, key_head) {
                    newest = sequence;
                }
            }
        }
        newest
    }

    fn newest_of_many(
        &self,
        user_key: &[u8],
        at: SequenceNumber,
        above: SequenceNumber,
    ) -> SequenceNumber {
        let mut newest = above;
        // Newest first: the newest range tombstones are in small lists, and may decide the search.
        for list in self.chunks.load().iter().flat_map(|chunks| chunks.iter().flatten()) {
            if newest < list.newest() {
                newest = newest.max(list.newest_cover(user_key, at).unwrap_or(0));
            }
        }
        newest
    }
}

impl RangeTombstoneSource for MemtableRanges {
    #[inline]
    fn is_empty(&self) -> bool {
        self.is_empty()
    }

    fn newest_cover(&self, user_key: &[u8], at: SequenceNumber) -> Option<SequenceNumber> {
        self.newest_cover(user_key, at)
    }
}
