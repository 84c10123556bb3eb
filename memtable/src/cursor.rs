//! Walking over the entries of a memtable in both directions.
//!
//! A node of the skiplist can be held only inside an epoch pin, and a pin that lasts as long as a
//! cursor would hold back the memory of every other user of the epoch. So a cursor takes entries in
//! batches: it pins, copies the keys of some entries and the handles of their values, and unpins. The
//! batch of a forward walk grows from 4 entries to 64, so that neither a short nor a long scan
//! pays for the other.

use std::{mem, ops::Bound, sync::Arc};

use bytes::Bytes;
use crossbeam_epoch as epoch;
use sievedb_format::{InternalKey, Trailer};

use crate::key::AsInternalKey as _;
use crate::memtable::Memtable;

/// Entries taken by a seek: a search costs as much as five steps or more.
const BATCH_ENTRIES_MIN: usize = 4;

/// Most entries taken at once.
const BATCH_ENTRIES_MAX: usize = 64;

/// A batch ends with the entry that brings its keys to so many bytes: long keys must not be copied in
/// great numbers.
const BATCH_KEY_BYTES: usize = 16 << 10;

/// A position among the entries of a memtable, which it keeps alive.
///
/// Sees every entry that was inserted before its last seek. Entries that came later may be missed or
/// met; see [what a reader may rely on](crate::memtable#what-a-reader-may-rely-on).
#[derive(Debug)]
pub struct MemtableCursor {
    memtable: Arc<Memtable>,
    batch: Batch,
    /// Memory of an earlier batch, to be used again.
    spare: Batch,
    /// The entry of `batch` that the cursor stands on; behind its end if it is not positioned.
    position: usize,
    direction: Direction,
    entries_wanted: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    Forward,
    Backward,
}

/// Entries that follow each other in the direction of the cursor.
#[derive(Debug, Default)]
struct Batch {
    /// User keys, one behind the other.
    keys: Vec<u8>,
    entries: Vec<BatchEntry>,
}

#[derive(Debug)]
struct BatchEntry {
    /// Where the user key ends in `keys`; it starts where the one before ends.
    key_end: usize,
    trailer: Trailer,
    value: Bytes,
}

impl Batch {
    fn clear(&mut self) {
        self.keys.clear();
        self.entries.clear();
    }

    fn push(&mut self, key: InternalKey<'_>, value: Bytes) {
        self.keys.extend_from_slice(key.user_key);
        let entry = BatchEntry { key_end: self.keys.len(), trailer: key.trailer, value };
        self.entries.push(entry);
    }

    fn key(&self, position: usize) -> Option<InternalKey<'_>> {
        let entry = self.entries.get(position)?;
        let start = if position == 0 { 0 } else { self.entries[position - 1].key_end };
        Some(InternalKey::new(&self.keys[start..entry.key_end], entry.trailer))
    }
}

impl MemtableCursor {
    pub(crate) fn new(memtable: Arc<Memtable>) -> Self {
        Self {
            memtable,
            batch: Batch::default(),
            spare: Batch::default(),
            position: 0,
            direction: Direction::Forward,
            entries_wanted: BATCH_ENTRIES_MIN,
        }
    }

    /// Moves to the first entry.
    pub fn seek_to_first(&mut self) {
        self.seek_within(Direction::Forward, Bound::Unbounded);
    }

    /// Moves to the last entry.
    pub fn seek_to_last(&mut self) {
        self.seek_within(Direction::Backward, Bound::Unbounded);
    }

    /// Moves to the first entry at or behind `target`.
    pub fn seek(&mut self, target: InternalKey<'_>) {
        self.seek_within(Direction::Forward, Bound::Included(target));
    }

    /// Moves to the last entry before `target`.
    pub fn seek_before(&mut self, target: InternalKey<'_>) {
        self.seek_within(Direction::Backward, Bound::Excluded(target));
    }

    /// Moves to the entry that follows; behind the last one the cursor is not positioned any more.
    ///
    /// # Panics
    ///
    /// If the cursor is not positioned.
    pub fn next(&mut self) {
        self.step(Direction::Forward);
    }

    /// Moves to the entry before; before the first one the cursor is not positioned any more.
    ///
    /// A search of the skiplist, whose nodes know only their successors: several times the cost of
    /// [`next`](Self::next).
    ///
    /// # Panics
    ///
    /// If the cursor is not positioned.
    pub fn prev(&mut self) {
        self.step(Direction::Backward);
    }

    /// The key of the current entry; `None` if the cursor is not positioned.
    #[must_use]
    pub fn key(&self) -> Option<InternalKey<'_>> {
        self.batch.key(self.position)
    }

    /// The value of the current entry, without a copy.
    ///
    /// # Panics
    ///
    /// If the cursor is not positioned.
    #[must_use]
    pub fn value(&self) -> Bytes {
        self.batch.entries.get(self.position).expect("the cursor is positioned").value.clone()
    }

    /// The value of the current entry where it lies.
    ///
    /// # Panics
    ///
    /// If the cursor is not positioned.
    #[must_use]
    pub fn value_ref(&self) -> &[u8] {
        &self.batch.entries.get(self.position).expect("the cursor is positioned").value
    }

    fn seek_within(&mut self, direction: Direction, bound: Bound<InternalKey<'_>>) {
        self.entries_wanted = BATCH_ENTRIES_MIN;
        self.direction = direction;
        self.batch.clear();
        self.fill(bound);
    }

    fn step(&mut self, direction: Direction) {
        assert!(self.position < self.batch.entries.len(), "the cursor is positioned");
        if direction == self.direction {
            self.position += 1;
            if self.position < self.batch.entries.len() {
                return;
            }
            self.position -= 1;
        } else {
            self.direction = direction;
            self.entries_wanted = BATCH_ENTRIES_MIN;
        }
        let left = mem::replace(&mut self.batch, mem::take(&mut self.spare));
        let key = left.key(self.position).expect("the cursor was positioned in it");
        self.fill(Bound::Excluded(key));
        self.spare = left;
        self.spare.clear();
    }

    /// Takes entries from `bound` on into the batch, which is empty, and moves to the first of them.
    fn fill(&mut self, bound: Bound<InternalKey<'_>>) {
        let guard = &epoch::pin();
        match self.direction {
            Direction::Forward => {
                let mut following = self.memtable.lower_bound(bound, guard);
                while let Some(entry) = following {
                    self.batch.push(entry.key().internal_key(), entry.value().clone());
                    let entries = self.batch.entries.len();
                    if entries == self.entries_wanted || self.batch.keys.len() >= BATCH_KEY_BYTES {
                        break;
                    }
                    following = entry.next();
                }
                self.entries_wanted = (self.entries_wanted * 4).min(BATCH_ENTRIES_MAX);
            }
            // One by one: a step back is a search anyway, so a larger batch would save nothing.
            Direction::Backward => {
                if let Some(entry) = self.memtable.upper_bound(bound, guard) {
                    self.batch.push(entry.key().internal_key(), entry.value().clone());
                }
            }
        }
        self.position = 0;
    }
}
