//! Iterator over the keys of a range.

use std::{fmt, iter::FusedIterator};

use bytes::Bytes;

use super::Range;
use crate::{Result, iter::range::End};

/// Iterator over the keys of a [`Range`].
pub struct Keys(Range);

impl Keys {
    pub(super) fn new(mut range: Range) -> Self {
        range.set_keys_only();
        Self(range)
    }

    /// Returns the next key, borrowed, or `None` at the end.
    ///
    /// # Errors
    ///
    /// As [`Range::next_ref`].
    #[inline]
    pub fn next_ref(&mut self) -> Result<Option<&[u8]>> {
        Ok(self.0.next_ref()?.map(|entry| entry.key()))
    }

    /// Returns the next key from the back, borrowed, or `None` at the end.
    ///
    /// # Errors
    ///
    /// As [`Range::next_ref`].
    #[inline]
    pub fn next_back_ref(&mut self) -> Result<Option<&[u8]>> {
        Ok(self.0.next_back_ref()?.map(|entry| entry.key()))
    }

    /// Repositions the front, as [`Range::seek`] does.
    pub fn seek(&mut self, key: impl AsRef<[u8]>) {
        self.0.seek(key);
    }

    /// Repositions the back, as [`Range::seek_back`] does.
    pub fn seek_back(&mut self, key: impl AsRef<[u8]>) {
        self.0.seek_back(key);
    }

    /// Refreshes the keys, as [`Range::refresh`] does.
    ///
    /// # Errors
    ///
    /// As [`Range::refresh`].
    pub fn refresh(&mut self) -> Result<()> {
        self.0.refresh()
    }
}

impl Iterator for Keys {
    type Item = Result<Bytes>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.key(End::Front)
    }
}

impl DoubleEndedIterator for Keys {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.0.key(End::Back)
    }
}

impl FusedIterator for Keys {}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keys").finish_non_exhaustive()
    }
}
