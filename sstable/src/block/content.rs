//! The content of a block, checked once.

use std::{cmp::Ordering, ops::Range};

use bytes::Bytes;
use sievedb_format::{Corruption, Decoder};

use super::{Entry, RESTART_BYTES, RESTART_INTERVAL_MAX};
use crate::handle::BlockHandle;

/// What the entries of a block are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BlockRole {
    /// Versions of keys and their values.
    Data,
    /// Separators and the handles of the blocks below.
    Index,
}

/// The content of a block that was found to be in order.
#[derive(Debug)]
pub(super) struct Content {
    bytes: Bytes,
    /// Where the entries end and the restart offsets start.
    entries_end: u32,
    restart_count: u32,
    role: BlockRole,
}

impl Content {
    /// Content without entries.
    pub(super) fn empty(role: BlockRole) -> Self {
        let bytes = Bytes::from_static(&[0; RESTART_BYTES]);
        Self { bytes, entries_end: 0, restart_count: 0, role }
    }

    /// Checks the bytes of a block.
    ///
    /// All checks are here, so that searches and cursors need none: entries are whole and in order,
    /// restarts lead to entries, and the handles of an index can be read.
    ///
    /// # Errors
    ///
    /// [`Corruption`] if a field breaks the table of [`super`].
    pub(super) fn decode(bytes: Bytes, role: BlockRole) -> Result<Self, Corruption> {
        let have = bytes.len() as u64;
        let truncated = |need| Corruption::Truncated { what: "restart offsets", need, have };
        let Some((rest, count)) = bytes.split_last_chunk::<RESTART_BYTES>() else {
            return Err(truncated(RESTART_BYTES as u64));
        };
        let restart_count = u32::from_le_bytes(*count);
        let restarts_bytes = (restart_count as usize).saturating_mul(RESTART_BYTES);
        let Some(entries_end) = rest.len().checked_sub(restarts_bytes) else {
            return Err(truncated(restarts_bytes.saturating_add(RESTART_BYTES) as u64));
        };
        let entries_end = u32::try_from(entries_end)
            .map_err(|_| Corruption::OutOfRange { what: "bytes of a block", value: have })?;
        let content = Self { bytes, entries_end, restart_count, role };
        content.check_entries()?;
        Ok(content)
    }

    fn check_entries(&self) -> Result<(), Corruption> {
        let mut decoder = Decoder::new(&self.bytes[..self.entries_end as usize]);
        let mut restarts = 0;
        let mut in_interval = 0;
        let mut user_key = Vec::new();
        let mut trailer = None;
        while !decoder.is_empty() {
            let is_restart =
                restarts < self.restart_count() && decoder.offset() == self.restart(restarts);
            let entry = Entry::decode(&mut decoder, self.role)?;
            let suffix = &self.bytes[entry.suffix.clone()];
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
                BlockHandle::decode(&self.bytes[entry.value])?;
            }
        }
        if restarts < self.restart_count() {
            let value = self.restart(restarts) as u64;
            return Err(Corruption::OutOfRange { what: "restart offset", value });
        }
        Ok(())
    }

    /// What the entries are.
    pub(super) fn role(&self) -> BlockRole {
        self.role
    }

    /// All bytes.
    #[inline]
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The bytes of a value, shared.
    pub(super) fn slice(&self, value: Range<usize>) -> Bytes {
        self.bytes.slice(value)
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
        let bytes = self.bytes[at..].first_chunk().expect("decode counted the restarts");
        u32::from_le_bytes(*bytes) as usize
    }

    /// Where the interval of restart `index` ends.
    #[inline]
    pub(super) fn interval_end(&self, index: usize) -> usize {
        if index + 1 < self.restart_count() { self.restart(index + 1) } else { self.entries_end() }
    }
}
