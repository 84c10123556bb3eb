//! An entry of a range, lent.

use std::fmt;

use bytes::Bytes;

use crate::{
    iter::{merge::MergeCursor, visible::VisibleCursor},
    read::source::Source,
};

/// An entry of a [`Range`](crate::Range), where it lies: good until the range is used again.
pub struct EntryRef<'r> {
    key: &'r [u8],
    cursor: &'r VisibleCursor<MergeCursor<Source>>,
}

impl<'r> EntryRef<'r> {
    /// The entry under `cursor`, which is positioned.
    #[inline]
    pub(crate) fn new(cursor: &'r VisibleCursor<MergeCursor<Source>>) -> Self {
        let key = cursor.key().expect("the cursor of an end stands at an entry");
        Self { key, cursor }
    }

    /// The key.
    #[inline]
    #[must_use]
    pub fn key(&self) -> &'r [u8] {
        self.key
    }

    /// The value. Found only now.
    #[inline]
    #[must_use]
    pub fn value(&self) -> &'r [u8] {
        self.cursor.value_ref()
    }

    /// The value, to be kept: it shares the memory of its block.
    #[must_use]
    pub fn value_bytes(&self) -> Bytes {
        self.cursor.value()
    }
}

impl fmt::Debug for EntryRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (key, value) = (self.key.escape_ascii().to_string(), self.value().escape_ascii());
        f.debug_struct("EntryRef").field("key", &key).field("value", &value.to_string()).finish()
    }
}
