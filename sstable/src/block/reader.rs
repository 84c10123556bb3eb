//! A block in memory, and the search in it.

use std::{cmp::Ordering, ops::Range, sync::Arc};

use bytes::Bytes;
use sievedb_format::{Corruption, InternalKey, Trailer};

use super::{BlockRole, Content, Entry, common_prefix, restart_keys::RestartKeys};
use crate::handle::BlockHandle;

/// A block in memory. A clone shares it.
#[derive(Debug, Clone)]
pub(crate) struct Block(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    restart_keys: RestartKeys,
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
        Self::new(Content::empty(role))
    }

    /// Checks the content of a block; nothing later fails.
    ///
    /// # Errors
    ///
    /// [`Corruption`] if a field breaks the table of [`super`].
    pub(crate) fn decode(content: Bytes, role: BlockRole) -> Result<Self, Corruption> {
        Content::decode(content, role).map(Self::new)
    }

    fn new(content: Content) -> Self {
        let restart_keys = RestartKeys::new((0..content.restart_count()).map(|index| {
            let entry = Entry::read(content.bytes(), content.restart(index));
            &content.bytes()[entry.suffix]
        }));
        Self(Arc::new(Inner { restart_keys, content }))
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

    /// Bytes of memory that the block takes, a map's pages included.
    pub(crate) fn memory_bytes(&self) -> usize {
        size_of::<Inner>() + self.0.restart_keys.memory_bytes() + self.content_bytes()
    }

    /// What `take` makes of the newest version of the target's user key at or behind the target.
    pub(crate) fn get_with<T>(
        &self,
        target: InternalKey<'_>,
        take: impl FnOnce(Trailer, FoundValue<'_>) -> T,
    ) -> Option<T> {
        let found = self.lower_bound(target).filter(|found| found.is_same_user_key)?;
        let value = FoundValue { block: self, place: found.entry.value.clone() };
        Some(take(found.entry.trailer(), value))
    }

    /// The handle of the block below that holds the first entry at or behind `target`, if any.
    ///
    /// Only for indexes.
    pub(crate) fn handle_for(&self, target: InternalKey<'_>) -> Option<BlockHandle> {
        debug_assert_eq!(self.role(), BlockRole::Index);
        let value = self.lower_bound(target)?.entry.value;
        Some(
            BlockHandle::decode(&self.content().bytes()[value])
                .expect("decode checked the handles"),
        )
    }

    /// The first entry at or behind `target`.
    ///
    /// Copies nothing. Within an interval, keys are not even put together: while all entries so
    /// far are before the target, `matched`, the length of the last one's common prefix with the
    /// target, tells by `shared` alone how most of the next ones compare.
    #[inline]
    pub(super) fn lower_bound(&self, target: InternalKey<'_>) -> Option<Found> {
        let Inner { restart_keys, content } = &*self.0;
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
