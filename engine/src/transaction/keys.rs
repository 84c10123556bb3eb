//! Iterator over the keys of a transaction's range.

use std::{fmt, iter::FusedIterator};

use bytes::Bytes;

use super::TransactionRange;
use crate::Result;

/// Iterator over the keys of a [`TransactionRange`]. The transaction depends on the same part of
/// the range.
pub struct TransactionKeys<'t>(TransactionRange<'t>);

impl<'t> TransactionKeys<'t> {
    pub(super) fn new(mut range: TransactionRange<'t>) -> Self {
        range.set_keys_only();
        Self(range)
    }
}

impl Iterator for TransactionKeys<'_> {
    type Item = Result<Bytes>;

    fn next(&mut self) -> Option<Self::Item> {
        Some(self.0.next()?.map(|(key, _)| key))
    }
}

impl DoubleEndedIterator for TransactionKeys<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        Some(self.0.next_back()?.map(|(key, _)| key))
    }
}

impl FusedIterator for TransactionKeys<'_> {}

impl fmt::Debug for TransactionKeys<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TransactionKeys").field(&self.0).finish()
    }
}
