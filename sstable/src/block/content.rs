//! The content of a block, checked once.

use std::{cmp::Ordering, ops::Range};

use bytes::Bytes;
use sievedb_format::Corruption;

use super::{Entry, layout::Layout, search::Search, word_of};
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
    layout: Layout,
}

impl Content {
    /// Content without entries.
    pub(super) fn empty() -> Self {
        Self { bytes: Bytes::new(), layout: Layout::EMPTY }
    }

    /// Checks the bytes of a block, and collects what a search in them starts with.
    ///
    /// All checks are here, so that searches and cursors need none: entries are whole and in order,
    /// and the handles of an index can be read.
    ///
    /// # Errors
    ///
    /// [`Corruption`] if a field breaks the table of [`super`].
    pub(super) fn decode(bytes: Bytes, role: BlockRole) -> Result<(Self, Search), Corruption> {
        let layout = Layout::decode(&bytes, role)?;
        let mut search = Search::builder(layout.prefix(&bytes), layout.entries as usize, role);
        let mut start = layout.places()[2];
        let mut before: Option<(u64, Entry)> = None;
        for index in 0..layout.entries {
            let entry = layout.check_entry(&bytes, index, start, role)?;
            let suffix = &bytes[entry.suffix.clone()];
            let word = word_of(suffix);
            if let Some((word_before, before)) = before {
                // Most often a word of each decides.
                let order = word_before.cmp(&word).then_with(|| bytes[before.suffix].cmp(suffix));
                let is_behind = match order {
                    Ordering::Less => true,
                    Ordering::Equal => before.trailer > entry.trailer,
                    Ordering::Greater => false,
                };
                if !is_behind {
                    return Err(Corruption::Order { what: "block" });
                }
            }
            if role == BlockRole::Index {
                BlockHandle::decode(&bytes[entry.value.clone()])?;
            }
            search.push(suffix, word);
            start = entry.value.end;
            before = Some((word, entry));
        }
        let rest = bytes.len() - start;
        if rest > 0 {
            return Err(Corruption::Trailing { what: "block", bytes: rest as u64 });
        }
        Ok((Self { bytes, layout }, search.finish()))
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

    /// Where the parts lie.
    #[inline]
    pub(super) fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Number of entries.
    #[inline]
    pub(super) fn entries(&self) -> usize {
        self.layout.entries as usize
    }

    /// What all user keys begin with.
    pub(super) fn prefix(&self) -> &[u8] {
        self.layout.prefix(&self.bytes)
    }

    /// Entry `index`.
    #[inline]
    pub(super) fn entry(&self, index: usize) -> Entry {
        self.layout.entry(&self.bytes, index)
    }
}
