//! Steps through the entries of a block in both directions.

use std::ops::Range;

use bytes::Bytes;
use sievedb_format::{InternalKey, Trailer};

use super::{Block, BlockRole, Entry};
use crate::handle::BlockHandle;

/// A place in a block, or none.
///
/// A step forward decodes one entry. A step backward needs the entries from the restart before, so
/// the cursor remembers those of one interval: an interval is decoded once for all its steps.
#[derive(Debug)]
pub(crate) struct BlockCursor {
    block: Block,
    /// The interval of the current entry, and the entry's number in it; `None` if unpositioned.
    place: Option<Place>,
    user_key: Vec<u8>,
    trailer: Trailer,
    value: Range<usize>,
    interval: Interval,
}

#[derive(Debug, Clone, Copy)]
struct Place {
    restart: usize,
    index: usize,
}

/// The entries of one interval.
#[derive(Debug, Default)]
struct Interval {
    /// Which one; `None` if nothing is remembered.
    restart: Option<usize>,
    /// Their user keys, one behind the other.
    user_keys: Vec<u8>,
    entries: Vec<Remembered>,
}

#[derive(Debug)]
struct Remembered {
    /// Where the user key ends in `user_keys`; it starts where the one before ends.
    user_key_end: usize,
    trailer: Trailer,
    value: Range<usize>,
}

impl BlockCursor {
    /// An unpositioned cursor.
    pub(crate) fn new(block: Block) -> Self {
        Self {
            block,
            place: None,
            user_key: Vec::new(),
            trailer: Trailer::OLDEST,
            value: 0..0,
            interval: Interval::default(),
        }
    }

    /// Goes over to another block, unpositioned, and keeps the buffers.
    pub(crate) fn enter(&mut self, block: Block) {
        self.block = block;
        self.place = None;
        self.interval.restart = None;
    }

    /// The current key; `None` if unpositioned.
    pub(crate) fn key(&self) -> Option<InternalKey<'_>> {
        self.place.map(|_| InternalKey::new(&self.user_key, self.trailer))
    }

    /// Whether there is a current entry.
    pub(crate) fn is_positioned(&self) -> bool {
        self.place.is_some()
    }

    /// The current value, shared with the block. Only when positioned.
    pub(crate) fn value(&self) -> Bytes {
        debug_assert!(self.is_positioned());
        self.block.content().slice(self.value.clone())
    }

    /// The current value of an index, decoded; `None` if unpositioned.
    pub(crate) fn handle(&self) -> Option<BlockHandle> {
        let value = self.place.map(|_| &self.block.content().bytes()[self.value.clone()])?;
        Some(BlockHandle::decode(value).expect("Block::decode checked the handles of an index"))
    }

    /// Where the current entry ends in the content. Only when positioned.
    pub(crate) fn entry_end(&self) -> usize {
        self.value.end
    }

    /// Number of restarts.
    pub(crate) fn restarts(&self) -> usize {
        self.block.content().restart_count()
    }

    /// What the entries are.
    pub(crate) fn role(&self) -> BlockRole {
        self.block.role()
    }

    /// Leaves the entry.
    pub(crate) fn unposition(&mut self) {
        self.place = None;
    }

    /// Goes to the first entry.
    pub(crate) fn seek_to_first(&mut self) {
        if self.block.content().restart_count() == 0 {
            return self.unposition();
        }
        self.enter_interval(0);
    }

    /// Goes to the last entry.
    pub(crate) fn seek_to_last(&mut self) {
        let Some(restart) = self.block.content().restart_count().checked_sub(1) else {
            return self.unposition();
        };
        self.go_to_end_of(restart);
    }

    /// Goes to the first entry at or behind `target`.
    pub(crate) fn seek(&mut self, target: InternalKey<'_>) {
        let Some(found) = self.block.lower_bound(target) else {
            return self.unposition();
        };
        // Only now is the key put together, from its restart on.
        self.enter_interval(found.restart);
        while self.value.start < found.entry.value.start {
            self.step();
        }
    }

    /// Goes to the last entry before `target`.
    pub(crate) fn seek_before(&mut self, target: InternalKey<'_>) {
        self.seek(target);
        if self.is_positioned() {
            self.prev();
        } else {
            self.seek_to_last();
        }
    }

    /// Goes to the next entry, or leaves the block. Only when positioned.
    pub(crate) fn next(&mut self) {
        debug_assert!(self.is_positioned());
        if self.entry_end() == self.block.content().entries_end() {
            return self.unposition();
        }
        self.step();
    }

    /// Goes to the entry before, or leaves the block. Only when positioned.
    pub(crate) fn prev(&mut self) {
        let Some(Place { restart, index }) = self.place else {
            debug_assert!(false, "prev of an unpositioned cursor");
            return;
        };
        match (index.checked_sub(1), restart.checked_sub(1)) {
            (Some(index), _) => {
                self.remember(restart);
                self.recall(index);
            }
            (None, Some(restart)) => self.go_to_end_of(restart),
            (None, None) => self.unposition(),
        }
    }

    /// Goes to the first entry of an interval.
    fn enter_interval(&mut self, restart: usize) {
        let content = self.block.content();
        self.user_key.clear();
        self.apply(Entry::read(content.bytes(), content.restart(restart)));
        self.place = Some(Place { restart, index: 0 });
    }

    /// Goes to the entry behind the current one, which is not the last.
    fn step(&mut self) {
        let offset = self.entry_end();
        let place = self.place.as_mut().expect("only a positioned cursor steps");
        if offset == self.block.content().interval_end(place.restart) {
            *place = Place { restart: place.restart + 1, index: 0 };
        } else {
            place.index += 1;
        }
        self.apply(Entry::read(self.block.content().bytes(), offset));
    }

    /// Takes over an entry behind the one whose key is in `user_key`.
    fn apply(&mut self, entry: Entry) {
        self.user_key.truncate(entry.shared);
        self.user_key.extend_from_slice(&self.block.content().bytes()[entry.suffix.clone()]);
        self.trailer = entry.trailer();
        self.value = entry.value;
    }

    fn go_to_end_of(&mut self, restart: usize) {
        self.remember(restart);
        self.place = Some(Place { restart, index: 0 });
        self.recall(self.interval.entries.len() - 1);
    }

    /// Decodes an interval, unless it is the one remembered.
    fn remember(&mut self, restart: usize) {
        let interval = &mut self.interval;
        if interval.restart == Some(restart) {
            return;
        }
        interval.restart = Some(restart);
        interval.user_keys.clear();
        interval.entries.clear();
        let content = self.block.content();
        let (mut offset, end) = (content.restart(restart), content.interval_end(restart));
        let mut before = 0;
        while offset < end {
            let entry = Entry::read(content.bytes(), offset);
            let start = interval.user_keys.len();
            interval.user_keys.extend_from_within(before..before + entry.shared);
            interval.user_keys.extend_from_slice(&content.bytes()[entry.suffix.clone()]);
            let (user_key_end, trailer) = (interval.user_keys.len(), entry.trailer());
            offset = entry.value.end;
            interval.entries.push(Remembered { user_key_end, trailer, value: entry.value });
            before = start;
        }
    }

    /// Goes to entry `index` of the remembered interval, which is the current one.
    fn recall(&mut self, index: usize) {
        let Interval { user_keys, entries, .. } = &self.interval;
        let start = index.checked_sub(1).map_or(0, |before| entries[before].user_key_end);
        let Remembered { user_key_end, trailer, ref value } = entries[index];
        self.user_key.clear();
        self.user_key.extend_from_slice(&user_keys[start..user_key_end]);
        self.trailer = trailer;
        self.value = value.clone();
        self.place.as_mut().expect("only a positioned cursor recalls").index = index;
    }
}
