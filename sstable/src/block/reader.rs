//! A block in memory, and the search in it.

use std::{
    cmp::Ordering,
    ops::{Deref, Range},
    sync::Arc,
};

use bytes::Bytes;
use sievedb_format::{
    Corruption, InternalKey, Trailer,
    prefetch::{LINE_BYTES, prefetch},
};

use super::{
    BlockRole, Content, Entry,
    residence::{self, Residence, Slot},
    search::Search,
};
use crate::{handle::BlockHandle, sync::Guard};

/// Entries that a lookup compares because of their tags before it searches: more have the tag only
/// if the key has many versions, or if somebody chose keys so.
const TAGGED_COMPARED_MAX: usize = 8;

/// Lines of entries that a search asks for before it compares some, and a walk up goes on with.
const FOUND_LINES: usize = 8;

/// Lines of the last entries that a walk down asks for ahead.
const LAST_LINES: usize = 8;

/// A block in memory. A clone shares it.
#[derive(Debug, Clone)]
pub(crate) struct Block(Arc<BlockInner>);

/// What the clones of a block share.
#[derive(Debug)]
pub(crate) struct BlockInner {
    search: Search,
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
    /// The block, to be kept.
    pub(crate) fn into_block(self) -> Block {
        match self {
            Self::InSlot(found) => {
                let block = Guard::into_inner(found);
                Block(block.expect("only a slot with a block is held"))
            }
            Self::Own(block) => block,
        }
    }

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
pub struct ValueRef<'b> {
    content: &'b Content,
    place: Range<usize>,
}

impl ValueRef<'_> {
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

impl Block {
    /// A block without entries.
    pub(crate) fn empty(role: BlockRole) -> Self {
        let nowhere = BlockHandle { offset: 0, bytes: 0 };
        Self::new(Content::empty(), Search::builder(b"", 0, role).finish(), nowhere)
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
        let (content, search) = Content::decode(content, role)?;
        Ok(Self::new(content, search, handle))
    }

    fn new(content: Content, search: Search, handle: BlockHandle) -> Self {
        let below = if search.role() == BlockRole::Index { content.entries() } else { 0 };
        let slots = (0..below).map(|_| Slot::default()).collect();
        let residence = Residence::default();
        Self(Arc::new(BlockInner { search, content, residence, handle, slots }))
    }

    /// Lets lookups that come from `index` find the block in slot `at`, as long as the cache keeps
    /// it.
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
        self.search.role()
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
        [self.search.address(), self.content.bytes().as_ptr().addr()]
    }

    /// Starts to load the last entries, which a walk down reads first: the processor's own guess
    /// begins only with the second or third line of a block.
    pub(crate) fn prefetch_last(&self) {
        let end = self.content.bytes().as_ptr_range().end.addr();
        (1..=LAST_LINES).for_each(|line| prefetch(end.wrapping_sub(line * LINE_BYTES)));
    }

    /// Starts to load the entries that a search for `user_key` compares, and those behind them.
    pub(crate) fn prefetch_found(&self, user_key: &[u8]) {
        let Ok(suffix) = self.suffix(user_key) else { return };
        let first = self.search.narrow(suffix, self.entries()).start;
        let bytes = self.content.bytes();
        let start = self.content.layout().start(bytes, first);
        let address = bytes.as_ptr().addr() + start;
        (0..FOUND_LINES).for_each(|line| prefetch(address + line * LINE_BYTES));
    }

    /// Starts to load the slot of entry `at` of an index.
    pub(crate) fn prefetch_slot(&self, at: usize) {
        self.slot(at).prefetch();
    }

    /// Starts to load what a search in the block below entry `at` of an index reads first. Whether
    /// the block is in its slot.
    pub(crate) fn prefetch_below(&self, at: usize) -> bool {
        self.slot(at).load().is_some()
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

    /// Where prefix, ends of entries, and entries start in the content.
    pub(crate) fn places(&self) -> [usize; 3] {
        self.content().layout().places()
    }

    /// What all user keys begin with.
    pub(crate) fn prefix(&self) -> &[u8] {
        self.content().prefix()
    }

    /// The first user key, if there is one.
    pub(crate) fn first_user_key(&self) -> Option<Vec<u8>> {
        let first = (self.entries() > 0).then(|| self.content.entry(0))?;
        Some([self.prefix(), &self.content.bytes()[first.suffix]].concat())
    }

    /// Number of entries.
    #[inline]
    pub(crate) fn entries(&self) -> usize {
        self.content().entries()
    }

    /// Bytes of memory that the block takes, a map's pages included.
    pub(crate) fn memory_bytes(&self) -> usize {
        size_of::<BlockInner>()
            + self.search.memory_bytes()
            + size_of_val(&*self.slots)
            + self.content_bytes()
    }

    /// What `take` makes of the newest version of the target's user key at or behind the target.
    pub(crate) fn get_with<T>(
        &self,
        target: InternalKey<'_>,
        take: impl FnOnce(Trailer, ValueRef<'_>) -> T,
    ) -> Option<T> {
        let entry = self.find(target)?;
        let value = ValueRef { content: &self.content, place: entry.value };
        Some(take(entry.trailer, value))
    }

    /// The handle of the block below that holds the first entry at or behind `target`, if any.
    ///
    /// Only for indexes.
    #[cfg(test)]
    pub(crate) fn handle_for(&self, target: InternalKey<'_>) -> Option<BlockHandle> {
        self.position(target).map(|at| self.handle_at(at))
    }

    /// Number of the entry whose block below holds the first entry at or behind `target`, if any.
    ///
    /// Only for indexes.
    #[inline]
    pub(crate) fn position(&self, target: InternalKey<'_>) -> Option<usize> {
        debug_assert_eq!(self.role(), BlockRole::Index);
        Some(self.lower_bound(target)).filter(|at| *at < self.entries())
    }

    /// The handle of the block below entry `at` of an index.
    pub(crate) fn handle_at(&self, at: usize) -> BlockHandle {
        let value = self.content.entry(at).value;
        BlockHandle::decode(&self.content.bytes()[value]).expect("decode checked the handles")
    }

    /// How the user key of entry `at` compares with `user_key`.
    pub(crate) fn compare_user_key(&self, at: usize, user_key: &[u8]) -> Ordering {
        match self.suffix(user_key) {
            Ok(suffix) => self.content.bytes()[self.content.entry(at).suffix].cmp(suffix),
            Err(order) => order.reverse(),
        }
    }

    /// The newest version of the target's user key at or behind the target.
    #[inline]
    fn find(&self, target: InternalKey<'_>) -> Option<Entry> {
        let Self { search, content, .. } = self;
        let suffix = self.suffix(target.user_key).ok()?;
        let is_same = |entry: &Entry| content.bytes()[entry.suffix.clone()] == *suffix;
        let is_visible = |entry: &Entry| entry.trailer <= target.trailer;
        if search.has_tags() {
            let mut tagged = search.tagged(suffix).take_while(|index| *index < content.entries());
            for index in tagged.by_ref().take(TAGGED_COMPARED_MAX) {
                let entry = content.entry(index);
                if is_same(&entry) && is_visible(&entry) {
                    return Some(entry);
                }
            }
            tagged.next()?;
        }
        let index = self.lower_bound(target);
        let entry = (index < content.entries()).then(|| content.entry(index))?;
        is_same(&entry).then_some(entry)
    }

    /// Number of the first entry at or behind `target`: that of entries if there is none.
    #[inline]
    pub(super) fn lower_bound(&self, target: InternalKey<'_>) -> usize {
        let Self { search, content, .. } = self;
        let suffix = match self.suffix(target.user_key) {
            Ok(suffix) => suffix,
            Err(Ordering::Greater) => return content.entries(),
            Err(_) => return 0,
        };
        let Range { start: mut before, end: mut behind } = search.narrow(suffix, content.entries());
        while before < behind {
            let middle = before.midpoint(behind);
            let entry = content.entry(middle);
            let is_before = match content.bytes()[entry.suffix].cmp(suffix) {
                Ordering::Less => true,
                Ordering::Equal => entry.trailer > target.trailer,
                Ordering::Greater => false,
            };
            if is_before {
                before = middle + 1;
            } else {
                behind = middle;
            }
        }
        before
    }

    /// What follows the prefix of all entries in a user key, or how one compares with all entries.
    #[inline]
    fn suffix<'k>(&self, user_key: &'k [u8]) -> Result<&'k [u8], Ordering> {
        let Self { search, content, .. } = self;
        let prefix = search.prefix().unwrap_or_else(|| content.prefix());
        // A user key that ends within the prefix is before all that go on.
        user_key.strip_prefix(prefix).ok_or_else(|| user_key.cmp(prefix))
    }
}
