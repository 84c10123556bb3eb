//! The content of a block, checked once, and the search in it.

use std::{cmp::Ordering, ops::Range};

use bytes::{Buf, Bytes};
use sievedb_format::{Corruption, Decoder, InternalKey, Trailer};

use super::{Entry, RESTART_BYTES, RESTART_INTERVAL_MAX, common_prefix};
use crate::handle::BlockHandle;

/// What the entries of a block are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BlockRole {
    /// Versions of keys and their values.
    Data,
    /// Separators and the handles of the blocks below.
    Index,
}

/// The checked content of a block. A clone shares the bytes.
#[derive(Debug, Clone)]
pub(crate) struct Block {
    content: Bytes,
    /// Where the entries end and the restart offsets start.
    entries_end: u32,
    restart_count: u32,
    role: BlockRole,
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
    pub(crate) const fn empty(role: BlockRole) -> Self {
        const CONTENT: &[u8] = &0_u32.to_le_bytes();
        let content = Bytes::from_static(CONTENT);
        Self { content, entries_end: 0, restart_count: 0, role }
    }

    /// Checks content.
    ///
    /// All checks are here, so that searches and cursors need none: entries are whole and in order,
    /// restarts lead to entries, and the handles of an index can be read.
    ///
    /// # Errors
    ///
    /// [`Corruption`] if a field breaks the table of [`super`].
    pub(crate) fn decode(content: Bytes, role: BlockRole) -> Result<Self, Corruption> {
        let what = "restart offsets";
        let truncated = |need| Corruption::Truncated {
            what,
            need,
            have: content.len().try_into().unwrap_or(0),
        };
        let Some((rest, count)) = content.split_last_chunk::<RESTART_BYTES>() else {
            return Err(truncated(RESTART_BYTES as u64));
        };
        let restart_count = u32::from_le_bytes(*count);
        let restarts_bytes = (restart_count as usize).saturating_mul(RESTART_BYTES);
        let Some(entries_end) = rest.len().checked_sub(restarts_bytes) else {
            return Err(truncated((restarts_bytes + RESTART_BYTES) as u64));
        };
        let entries_end = u32::try_from(entries_end)
            .map_err(|_| Corruption::OutOfRange { what: "block", value: entries_end as u64 })?;
        let block = Self { content, entries_end, restart_count, role };
        block.check_entries()?;
        Ok(block)
    }

    fn check_entries(&self) -> Result<(), Corruption> {
        let mut decoder = Decoder::new(&self.content[..self.entries_end as usize]);
        let mut restarts = 0;
        let mut in_interval = 0;
        let mut user_key = Vec::new();
        let mut trailer = None;
        while !decoder.is_empty() {
            let is_restart =
                restarts < self.restart_count() && decoder.offset() == self.restart(restarts);
            let entry = Entry::decode(&mut decoder, self.role)?;
            let suffix = &self.content[entry.suffix.clone()];
            if is_restart {
                restarts += 1;
                in_interval = 0;
                if entry.shared > 0 {
                    let (what, value) = ("shared bytes at a restart", entry.shared as u64);
                    return Err(Corruption::OutOfRange { what, value });
                }
            }
            in_interval += 1;
            if restarts == 0 || in_interval > RESTART_INTERVAL_MAX {
                return Err(Corruption::Missing { what: "restart of a block" });
            }
            if let Some(trailer) = trailer {
                let Some(rest) = user_key.get(entry.shared..) else {
                    let (what, value) = ("shared bytes of a key", entry.shared as u64);
                    return Err(Corruption::OutOfRange { what, value });
                };
                let version_order = trailer > entry.trailer();
                let is_behind = match rest.cmp(suffix) {
                    Ordering::Less => is_restart || rest.first() != suffix.first(),
                    Ordering::Equal => version_order && (is_restart || suffix.is_empty()),
                    Ordering::Greater => false,
                };
                if !is_behind {
                    return Err(Corruption::Order { what: "block" });
                }
            }
            trailer = Some(entry.trailer());
            user_key.truncate(entry.shared);
            user_key.extend_from_slice(suffix);
            if self.role == BlockRole::Index {
                BlockHandle::decode(&self.content[entry.value])?;
            }
        }
        if restarts < self.restart_count() {
            let value = self.restart(restarts) as u64;
            return Err(Corruption::OutOfRange { what: "restart offset", value });
        }
        Ok(())
    }

    /// What the entries are.
    pub(crate) fn role(&self) -> BlockRole {
        self.role
    }

    /// The checked bytes.
    #[inline]
    pub(super) fn content(&self) -> &[u8] {
        &self.content
    }

    /// Length of the content.
    pub(crate) fn content_bytes(&self) -> usize {
        self.content.len()
    }

    /// Where the entries end.
    #[inline]
    pub(super) fn entries_end(&self) -> usize {
        self.entries_end as usize
    }

    /// Number of restarts.
    #[inline]
    pub(super) fn restart_count(&self) -> usize {
        self.restart_count as usize
    }

    /// Offset of the entry at restart `index`.
    #[inline]
    pub(super) fn restart(&self, index: usize) -> usize {
        let at = self.entries_end() + index * RESTART_BYTES;
        let bytes = self.content[at..].first_chunk().expect("decode counted the restarts");
        u32::from_le_bytes(*bytes) as usize
    }

    /// Where the interval of restart `index` ends.
    #[inline]
    pub(super) fn interval_end(&self, index: usize) -> usize {
        if index + 1 < self.restart_count() { self.restart(index + 1) } else { self.entries_end() }
    }

    /// The bytes of a value, shared.
    pub(super) fn slice(&self, value: Range<usize>) -> Bytes {
        self.content.slice(value)
    }

    /// The newest version of the target's user key at or behind the target, with its value.
    ///
    /// Takes the block, so that the value takes over its reference count.
    pub(crate) fn get(self, target: InternalKey<'_>) -> Option<(Trailer, Bytes)> {
        let found = self.lower_bound(target).filter(|found| found.is_same_user_key)?;
        let mut value = self.content;
        value.truncate(found.entry.value.end);
        value.advance(found.entry.value.start);
        Some((found.entry.trailer(), value))
    }

    /// The handle of the block below that holds the first entry at or behind `target`, if any.
    ///
    /// Only for indexes.
    pub(crate) fn handle_for(&self, target: InternalKey<'_>) -> Option<BlockHandle> {
        debug_assert_eq!(self.role, BlockRole::Index);
        let value = self.lower_bound(target)?.entry.value;
        Some(BlockHandle::decode(&self.content[value]).expect("decode checked the handles"))
    }

    /// The first entry at or behind `target`.
    ///
    /// Copies nothing. Within an interval, keys are not even put together: while all entries so
    /// far are before the target, `matched`, the length of the last one's common prefix with the
    /// target, tells by `shared` alone how most of the next ones compare.
    #[inline]
    pub(super) fn lower_bound(&self, target: InternalKey<'_>) -> Option<Found> {
        let content = self.content();
        let (mut before, mut behind) = (0, self.restart_count());
        while before < behind {
            let middle = before.midpoint(behind);
            let entry = Entry::read(content, self.restart(middle));
            if is_before(&content[entry.suffix.clone()], &entry, target) {
                before = middle + 1;
            } else {
                behind = middle;
            }
        }
        // `before` is now the number of restarts before the target.
        if before > 0 {
            let (restart, mut matched) = (before - 1, 0);
            let mut offset = self.restart(restart);
            let end = self.interval_end(restart);
            while offset < end {
                let entry = Entry::read(content, offset);
                let is_behind = |is_same_user_key| {
                    Some(Found { restart, entry: entry.clone(), is_same_user_key })
                };
                match entry.shared.cmp(&matched) {
                    // It differs from the target where the one before does.
                    Ordering::Greater => {}
                    // It is above the one before within the prefix of the target.
                    Ordering::Less => return is_behind(false),
                    Ordering::Equal => {
                        let suffix = &content[entry.suffix.clone()];
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
        if before == self.restart_count() {
            return None;
        }
        let entry = Entry::read(content, self.restart(before));
        let is_same_user_key = content[entry.suffix.clone()] == *target.user_key;
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
