//! A block in memory, and the search in it.

use std::{
    cmp::Ordering,
    ops::{Deref, Range},
    sync::Arc,
};

use arc_swap::Guard;
use bytes::Bytes;
use sievedb_format::{Corruption, InternalKey, Trailer};

use super::{
    BlockRole, Content, Entry, common_prefix,
    residence::{self, Residence, Slot},
    restart_keys::RestartKeys,
};
use crate::handle::BlockHandle;

/// A block in memory. A clone shares it.
#[derive(Debug, Clone)]
pub(crate) struct Block(Arc<BlockInner>);

/// What the clones of a block share.
#[derive(Debug)]
pub(crate) struct BlockInner {
    restart_keys: RestartKeys,
    content: Content,
    residence: Residence,
    /// Where it lies in the table.
    handle: BlockHandle,
    /// Of an index: one for each block below.
    slots: Box<[Slot]>,
}

/// A block for as long as a lookup looks at it.
#[derive(Debug)]
pub(crate) enum HeldBlock {
    /// Found in its slot: no reference count was written.
    InSlot(Guard<Option<Arc<BlockInner>>>),
    Own(Block),
}

impl HeldBlock {
    /// The block, to be shared.
    #[inline]
    pub(crate) fn shared(&self) -> &Arc<BlockInner> {
        match self {
            Self::InSlot(found) => found.as_ref().expect("only a slot with a block is held"),
            Self::Own(block) => &block.0,
        }
    }
}

impl Deref for HeldBlock {
    type Target = BlockInner;

    #[inline]
    fn deref(&self) -> &BlockInner {
        self.shared()
    }
}

impl Deref for Block {
    type Target = BlockInner;

    #[inline]
    fn deref(&self) -> &BlockInner {
        &self.0
    }
}

/// A value where it lies in its block, for as long as a lookup looks at it.
#[derive(Debug)]
pub struct FoundValue<'b> {
    content: &'b Content,
    place: Range<usize>,
}

impl FoundValue<'_> {
    /// Length of the value, in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.place.len()
    }

    /// Whether the value has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.place.is_empty()
    }

    /// The value, which shares the memory of its block.
    #[must_use]
    pub fn to_bytes(&self) -> Bytes {
        self.content.slice(self.place.clone())
    }

    /// The value, for as long as the lookup has its block.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        &self.content.bytes()[self.place.clone()]
    }
}

/// Where [`Block::lower_bound`] found its entry.
#[derive(Debug)]
pub(super) struct Found {
    /// The restart interval that holds the entry.
    pub(super) restart: usize,
    pub(super) entry: Entry,
    /// Whether the entry is a version of the user key that was looked for.
    is_same_user_key: bool,
}

impl Block {
    /// A block without entries.
    pub(crate) fn empty(role: BlockRole) -> Self {
        Self::new(Content::empty(role), BlockHandle { offset: 0, bytes: 0 })
    }

    /// Checks the content of the block that lies at `handle`; nothing later fails.
    ///
    /// # Errors
    ///
    /// [`Corruption`] if a field breaks the table of [`super`].
    pub(crate) fn decode(
        content: Bytes,
        role: BlockRole,
        handle: BlockHandle,
    ) -> Result<Self, Corruption> {
        Content::decode(content, role).map(|content| Self::new(content, handle))
    }

    fn new(content: Content, handle: BlockHandle) -> Self {
        let restart_keys = RestartKeys::new((0..content.restart_count()).map(|index| {
            let entry = Entry::read(content.bytes(), content.restart(index));
            &content.bytes()[entry.suffix]
        }));
        let slots = match content.role() {
            BlockRole::Index => (0..content.restart_count()).map(|_| Slot::default()).collect(),
            BlockRole::Data => Box::default(),
        };
        let residence = Residence::default();
        Self(Arc::new(BlockInner { restart_keys, content, residence, handle, slots }))
    }

    /// Lets lookups that come from `index` find the block in slot `at`, as long as the cache keeps it.
    pub(crate) fn place_in(&self, index: &Arc<BlockInner>, at: usize) {
        residence::place(&self.0, index, at);
    }

    /// What the clones share.
    pub(crate) fn shared(&self) -> &Arc<BlockInner> {
        &self.0
    }

    /// The cache has given the block up.
    pub(crate) fn evict(&self) {
        residence::evict(&self.0);
    }
}

impl BlockInner {
    /// What the entries are.
    pub(crate) fn role(&self) -> BlockRole {
        self.content().role()
    }

    /// The checked content.
    #[inline]
    pub(super) fn content(&self) -> &Content {
        &self.content
    }

    pub(super) fn residence(&self) -> &Residence {
        &self.residence
    }

    #[inline]
    pub(super) fn slot(&self, at: usize) -> &Slot {
        &self.slots[at]
    }

    /// What a lookup reads first, but for the fields of the block itself.
    pub(super) fn first_read(&self) -> [usize; 2] {
        let tail = &self.content.bytes()[self.content.entries_end()..];
        [self.restart_keys.address(), tail.as_ptr().addr()]
    }

    /// Where it lies in the table.
    pub(crate) fn handle(&self) -> BlockHandle {
        self.handle
    }

    /// The block below entry `at` of an index, if it is at hand.
    #[inline]
    pub(crate) fn below(&self, at: usize) -> Option<HeldBlock> {
        let found = self.slot(at).load();
        found.is_some().then_some(HeldBlock::InSlot(found))
    }

    /// Counts a use of the block. Whether the cache has to be told.
    #[inline]
    pub(crate) fn count_use(&self) -> bool {
        self.residence.count_use()
    }

    /// The cache wants to be told of the next uses.
    pub(crate) fn forget_uses(&self) {
        self.residence.forget_uses();
    }

    /// Length of the content.
    pub(crate) fn content_bytes(&self) -> usize {
        self.content().bytes().len()
    }

    /// Bytes of memory that the block takes, a map's pages included.
    pub(crate) fn memory_bytes(&self) -> usize {
        size_of::<BlockInner>()
            + self.restart_keys.memory_bytes()
            + size_of_val(&*self.slots)
            + self.content_bytes()
    }

    /// What `take` makes of the newest version of the target's user key at or behind the target.
    pub(crate) fn get_with<T>(
        &self,
        target: InternalKey<'_>,
        take: impl FnOnce(Trailer, FoundValue<'_>) -> T,
    ) -> Option<T> {
        let found = self.lower_bound(target).filter(|found| found.is_same_user_key)?;
        let value = FoundValue { content: &self.content, place: found.entry.value.clone() };
        Some(take(found.entry.trailer(), value))
    }

    /// The handle of the block below that holds the first entry at or behind `target`, if any.
    ///
    /// Only for indexes.
    pub(crate) fn handle_for(&self, target: InternalKey<'_>) -> Option<BlockHandle> {
        self.position(target).map(|at| self.handle_at(at))
    }

    /// Number of the entry of the block below that holds the first entry at or behind `target`, if any.
    ///
    /// Only for indexes, each entry of which is a restart.
    #[inline]
    pub(crate) fn position(&self, target: InternalKey<'_>) -> Option<usize> {
        debug_assert_eq!(self.role(), BlockRole::Index);
        let bytes = self.content.bytes();
        let Range { start: mut before, end: mut behind } =
            self.restart_keys.narrow(target.user_key);
        while before < behind {
            let middle = before.midpoint(behind);
            let entry = Entry::read(bytes, self.content.restart(middle));
            if is_before(&bytes[entry.suffix.clone()], &entry, target) {
                before = middle + 1;
            } else {
                behind = middle;
            }
        }
        (before < self.slots.len()).then_some(before)
    }

    /// The handle of the block below entry `at` of an index.
    pub(crate) fn handle_at(&self, at: usize) -> BlockHandle {
        let entry = Entry::read(self.content.bytes(), self.content.restart(at));
        BlockHandle::decode(&self.content.bytes()[entry.value]).expect("decode checked the handles")
    }

    /// The first entry at or behind `target`.
    ///
    /// Copies nothing. Within an interval, keys are not even put together: while all entries so
    /// far are before the target, `matched`, the length of the last one's common prefix with the
    /// target, tells by `shared` alone how most of the next ones compare.
    #[inline]
    pub(super) fn lower_bound(&self, target: InternalKey<'_>) -> Option<Found> {
        let Self { restart_keys, content, .. } = self;
        let bytes = content.bytes();
        let Range { start: mut before, end: mut behind } = restart_keys.narrow(target.user_key);
        while before < behind {
            let middle = before.midpoint(behind);
            let entry = Entry::read(bytes, content.restart(middle));
            if is_before(&bytes[entry.suffix.clone()], &entry, target) {
                before = middle + 1;
            } else {
                behind = middle;
            }
        }
        // `before` is now the number of restarts before the target.
        if before > 0 {
            let (restart, mut matched) = (before - 1, 0);
            let mut offset = content.restart(restart);
            let end = content.interval_end(restart);
            while offset < end {
                let entry = Entry::read(bytes, offset);
                let is_behind = |is_same_user_key| {
                    Some(Found { restart, entry: entry.clone(), is_same_user_key })
                };
                match entry.shared.cmp(&matched) {
                    // It differs from the target where the one before does.
                    Ordering::Greater => {}
                    // It is above the one before within the prefix of the target.
                    Ordering::Less => return is_behind(false),
                    Ordering::Equal => {
                        let suffix = &bytes[entry.suffix.clone()];
                        let rest = &target.user_key[matched..];
                        let common = common_prefix(suffix, rest);
                        if common == rest.len() {
                            if common < suffix.len() {
                                return is_behind(false);
                            }
                            if entry.trailer() <= target.trailer {
                                return is_behind(true);
                            }
                        } else if common < suffix.len() && suffix[common] > rest[common] {
                            return is_behind(false);
                        }
                        matched += common;
                    }
                }
                offset = entry.value.end;
            }
        }
        if before == content.restart_count() {
            return None;
        }
        let entry = Entry::read(bytes, content.restart(before));
        let is_same_user_key = bytes[entry.suffix.clone()] == *target.user_key;
        Some(Found { restart: before, entry, is_same_user_key })
    }
}

/// Whether an entry at a restart, whose `suffix` is its user key, is before `target`.
#[inline]
fn is_before(suffix: &[u8], entry: &Entry, target: InternalKey<'_>) -> bool {
    match suffix.cmp(target.user_key) {
        Ordering::Less => true,
        Ordering::Equal => entry.trailer() > target.trailer,
        Ordering::Greater => false,
    }
}
