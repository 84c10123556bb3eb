//! A borrowed entry of a range.

use std::fmt;

use bytes::Bytes;

use crate::{
    iter::{merge::MergeCursor, visible::VisibleCursor},
    read::source::Source,
};

/// A borrowed entry of a [`Range`](crate::Range), valid until the next use of the range.
pub struct EntryRef<'r> {
    key: &'r [u8],
    cursor: &'r VisibleCursor<MergeCursor<Source>>,
}

impl<'r> EntryRef<'r> {
    /// Returns the entry under `cursor`, which is positioned.
    #[inline]
    pub(crate) fn new(cursor: &'r VisibleCursor<MergeCursor<Source>>) -> Self {
        let key = cursor.key().expect("the cursor of an end stands at an entry");
        Self { key, cursor }
    }

    /// Returns the key.
    #[inline]
    #[must_use]
    pub fn key(&self) -> &'r [u8] {
        self.key
    }

    /// Returns the value. It is located at this call.
    #[inline]
    #[must_use]
    pub fn value(&self) -> &'r [u8] {
        self.cursor.value_ref()
    }

    /// Returns the value, owned: it keeps its block in memory.
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
