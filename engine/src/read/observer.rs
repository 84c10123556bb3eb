//! Observers of a lookup: they compute its result from the value, and may record its steps.

use bytes::Bytes;
use sievedb_format::Trailer;
use sievedb_sstable::{BlockCounts, BlockObserver, ValueRef};

use crate::{
    Error, Result,
    table::{TableFilters, blobs::Blob},
    version::Run,
};

/// A table whose bounds contain the key.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Candidate<'v> {
    pub(crate) run: &'v Run,
    /// Index of the table in the run.
    pub(crate) index: usize,
    pub(crate) filters: &'v TableFilters,
}

/// Counts the blocks that a lookup requests from a table.
pub(crate) trait CountBlocks: BlockObserver + Default {
    fn counts(&self) -> BlockCounts;
}

impl CountBlocks for BlockCounts {
    fn counts(&self) -> Self {
        *self
    }
}

/// Records the steps of a lookup, and computes its result from the value.
pub(crate) trait Observer<V> {
    type Blocks: CountBlocks;

    /// Returns `false` if the result is the same for every value.
    fn needs_value(&self) -> bool {
        true
    }

    /// Returns `true` if the result depends on the expiry of the value, also below merge operands.
    fn needs_expiry(&self) -> bool {
        false
    }

    /// Returns the result for a value in a memtable, or for a merged value. A lookup calls this or
    /// [`value_in_block`](Self::value_in_block) at most once.
    fn value_in_memtable(&mut self, value: &[u8]) -> V;

    /// Returns the result for a value in a blob file, which it reads if it needs the value.
    fn value_in_blob_file(&mut self, blob: Blob) -> Result<V> {
        let value = if self.needs_value() { blob.read()? } else { Bytes::new() };
        Ok(self.value_in_memtable(&value))
    }

    /// Returns the result for a value in a block.
    fn value_in_block(&mut self, value: &ValueRef<'_>) -> V;

    /// Records the expiry of the found value, in milliseconds of the store clock. Called before
    /// the value is taken.
    #[inline]
    fn expires(&mut self, expiry_ms: Option<u64>) {
        let _ = expiry_ms;
    }

    /// Records a probe of the filter of memtable `number`, counted from the newest.
    #[inline]
    fn memtable_probed(&mut self, number: usize, may_contain: bool) {
        let _ = (number, may_contain);
    }

    /// Records the newest visible version in memtable `number`, and its stored value.
    #[inline]
    fn found_in_memtable(&mut self, number: usize, trailer: Trailer, stored: &[u8]) {
        let _ = (number, trailer, stored);
    }

    /// Records the candidate tables, the newest first.
    #[inline]
    fn candidates(&mut self, candidates: &[Candidate<'_>]) {
        let _ = candidates;
    }

    /// Records a probe of the filter of candidate `number`; `true` also without a filter.
    #[inline]
    fn table_probed(&mut self, number: usize, may_contain: bool) {
        let _ = (number, may_contain);
    }

    /// Records that candidate `number` is not searched, because a range tombstone hides all its
    /// versions of the key.
    #[inline]
    fn table_covered(&mut self, number: usize) {
        let _ = number;
    }

    /// Records the newest visible version in candidate `number`, and its stored value.
    #[inline]
    fn found_in_table(&mut self, number: usize, trailer: Trailer, stored: &ValueRef<'_>) {
        let _ = (number, trailer, stored);
    }

    /// Records the blocks that the search of candidate `number` used, and its error.
    #[inline]
    fn table_searched(&mut self, number: usize, blocks: Self::Blocks, error: Option<&Error>) {
        let _ = (number, blocks, error);
    }
}

/// A result of a lookup that is computed from the value.
pub(crate) trait FromValue: Sized {
    /// `false` if the result is the same for every value.
    const NEEDS_VALUE: bool = true;

    fn from_memtable(value: &[u8]) -> Self;

    fn from_blob(blob: Blob) -> Result<Self>;

    fn from_block(value: &ValueRef<'_>) -> Self;
}

/// The value. One in a memtable is copied.
impl FromValue for Bytes {
    fn from_memtable(value: &[u8]) -> Self {
        Self::copy_from_slice(value)
    }

    fn from_blob(blob: Blob) -> Result<Self> {
        blob.read()
    }

    fn from_block(value: &ValueRef<'_>) -> Self {
        value.to_bytes()
    }
}

/// Existence only. Reads neither the value nor its reference count.
impl FromValue for () {
    const NEEDS_VALUE: bool = false;

    fn from_memtable(_: &[u8]) -> Self {}

    fn from_blob(_: Blob) -> Result<Self> {
        Ok(())
    }

    fn from_block(_: &ValueRef<'_>) -> Self {}
}

/// A value that is not read yet, if it is in a blob file.
#[derive(Debug)]
pub(crate) enum Unread {
    Value(Bytes),
    Blob(Blob),
}

impl FromValue for Unread {
    fn from_memtable(value: &[u8]) -> Self {
        Self::Value(Bytes::copy_from_slice(value))
    }

    fn from_blob(blob: Blob) -> Result<Self> {
        Ok(Self::Blob(blob))
    }

    fn from_block(value: &ValueRef<'_>) -> Self {
        Self::Value(value.to_bytes())
    }
}

/// Observes no steps. Used by all lookups except explained ones.
#[derive(Debug)]
pub(crate) struct NoObserver;

impl<V: FromValue> Observer<V> for NoObserver {
    type Blocks = BlockCounts;

    fn needs_value(&self) -> bool {
        V::NEEDS_VALUE
    }

    #[inline]
    fn value_in_memtable(&mut self, value: &[u8]) -> V {
        V::from_memtable(value)
    }

    fn value_in_blob_file(&mut self, blob: Blob) -> Result<V> {
        V::from_blob(blob)
    }

    #[inline]
    fn value_in_block(&mut self, value: &ValueRef<'_>) -> V {
        V::from_block(value)
    }
}

/// A value with its expiry, in milliseconds of the store clock; `None` if it never expires.
pub(crate) type Expiring<V> = (V, Option<u64>);

/// An observer that returns the value with its expiry.
#[derive(Debug, Default)]
pub(crate) struct ExpiryObserver {
    expiry_ms: Option<u64>,
}

impl<V: FromValue> Observer<Expiring<V>> for ExpiryObserver {
    type Blocks = BlockCounts;

    fn needs_value(&self) -> bool {
        V::NEEDS_VALUE
    }

    fn needs_expiry(&self) -> bool {
        true
    }

    fn value_in_memtable(&mut self, value: &[u8]) -> Expiring<V> {
        (V::from_memtable(value), self.expiry_ms)
    }

    fn value_in_blob_file(&mut self, blob: Blob) -> Result<Expiring<V>> {
        Ok((V::from_blob(blob)?, self.expiry_ms))
    }

    fn value_in_block(&mut self, value: &ValueRef<'_>) -> Expiring<V> {
        (V::from_block(value), self.expiry_ms)
    }

    fn expires(&mut self, expiry_ms: Option<u64>) {
        self.expiry_ms = expiry_ms;
    }
}

/// Lends the value to a closure, and observes no steps.
#[derive(Debug)]
pub(crate) struct WithValue<F>(Option<F>);

impl<F> WithValue<F> {
    /// Calls `take` with the value of the key, if it has one.
    pub(crate) fn new(take: F) -> Self {
        Self(Some(take))
    }

    #[inline]
    fn take<T>(&mut self, value: &[u8]) -> T
    where
        F: FnOnce(&[u8]) -> T,
    {
        let take = self.0.take().expect("a lookup finds one value");
        take(value)
    }
}

impl<T, F: FnOnce(&[u8]) -> T> Observer<T> for WithValue<F> {
    type Blocks = BlockCounts;

    #[inline]
    fn value_in_memtable(&mut self, value: &[u8]) -> T {
        self.take(value)
    }

    #[inline]
    fn value_in_block(&mut self, value: &ValueRef<'_>) -> T {
        self.take(value.as_slice())
    }
}
