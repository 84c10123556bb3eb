//! A block in memory, and the search in it.

use std::{cmp::Ordering, ops::Range, sync::Arc};

use bytes::Bytes;
use sievedb_format::{Corruption, InternalKey, Trailer};

use super::{BlockRole, Content, Entry, search::Search};
use crate::handle::BlockHandle;

/// Entries that a lookup compares because of their tags before it searches: more have the tag only if
/// the key has many versions, or if somebody chose keys so.
const TAGGED_COMPARED_MAX: usize = 8;

/// A block in memory. A clone shares it.
#[derive(Debug, Clone)]
pub(crate) struct Block(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    search: Search,
    content: Content,
}

/// A value where it lies in its block, for as long as a lookup looks at it.
#[derive(Debug)]
pub struct FoundValue<'b> {
    block: &'b Block,
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
        self.block.content().slice(self.place.clone())
    }
}

impl Block {
    /// A block without entries.
    pub(crate) fn empty(role: BlockRole) -> Self {
        Self(Arc::new(Inner { search: Search::default(), content: Content::empty(role) }))
    }

    /// Checks the content of a block; nothing later fails.
    ///
    /// # Errors
    ///
    /// [`Corruption`] if a field breaks the table of [`super`].
    pub(crate) fn decode(content: Bytes, role: BlockRole) -> Result<Self, Corruption> {
        let (content, search) = Content::decode(content, role)?;
        Ok(Self(Arc::new(Inner { search, content })))
    }

    /// What the entries are.
    pub(crate) fn role(&self) -> BlockRole {
        self.content().role()
    }

    /// The checked content.
    #[inline]
    pub(super) fn content(&self) -> &Content {
        &self.0.content
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

    /// Number of entries.
    #[inline]
    pub(crate) fn entries(&self) -> usize {
        self.content().entries()
    }

    /// Bytes of memory that the block takes, a map's pages included.
    pub(crate) fn memory_bytes(&self) -> usize {
        size_of::<Inner>() + self.0.search.memory_bytes() + self.content_bytes()
    }

    /// What `take` makes of the newest version of the target's user key at or behind the target.
    pub(crate) fn get_with<T>(
        &self,
        target: InternalKey<'_>,
        take: impl FnOnce(Trailer, FoundValue<'_>) -> T,
    ) -> Option<T> {
        let entry = self.find(target)?;
        let value = FoundValue { block: self, place: entry.value };
        Some(take(entry.trailer, value))
    }

    /// The handle of the block below that holds the first entry at or behind `target`, if any.
    ///
    /// Only for indexes.
    pub(crate) fn handle_for(&self, target: InternalKey<'_>) -> Option<BlockHandle> {
        debug_assert_eq!(self.role(), BlockRole::Index);
        let content = self.content();
        let index = self.lower_bound(target);
        let value = (index < content.entries()).then(|| content.entry(index).value)?;
        Some(BlockHandle::decode(&content.bytes()[value]).expect("decode checked the handles"))
    }

    /// The newest version of the target's user key at or behind the target.
    #[inline]
    fn find(&self, target: InternalKey<'_>) -> Option<Entry> {
        let Inner { search, content } = &*self.0;
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
        let Inner { search, content } = &*self.0;
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
        let Inner { search, content } = &*self.0;
        let prefix = search.prefix().unwrap_or_else(|| content.prefix());
        // A user key that ends within the prefix is before all that go on.
        user_key.strip_prefix(prefix).ok_or_else(|| user_key.cmp(prefix))
    }
}
