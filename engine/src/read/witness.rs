//! Who sees what a lookup does.

use sievedb_format::{Kind, Trailer};
use sievedb_sstable::{BlockCounts, BlockWatch, FoundValue};

use crate::{Error, read::answer::Answer, table::TableFilters, version::Run};

/// A table that may hold the key. Nothing of the table itself was looked at yet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Candidate<'v> {
    pub(crate) run: &'v Run,
    /// Of the table in the run.
    pub(crate) index: usize,
    pub(crate) filters: &'v TableFilters,
}

/// Counts the blocks that a lookup asks a table for, and may remember them.
pub(crate) trait CountBlocks: BlockWatch + Default {
    fn counts(&self) -> BlockCounts;
}

impl CountBlocks for BlockCounts {
    fn counts(&self) -> Self {
        *self
    }
}

/// Sees what a lookup does, step by step. What is told is what was done: there is one way of a lookup,
/// with a witness or without.
pub(crate) trait Witness<A> {
    type Blocks: CountBlocks;

    /// What the lookup answers if it finds this value in a memtable. It may be one that is not seen: a
    /// tombstone, or under a range tombstone.
    fn of_memtable(&mut self, trailer: Trailer, value: &[u8]) -> A;

    /// The same of a value in a block.
    fn of_block(&mut self, trailer: Trailer, value: &FoundValue<'_>) -> A;

    /// What the filter of memtable `number` said, counted from the newest, and what the memtable then had.
    fn memtable(&mut self, number: usize, may_contain: bool, found: Option<&(Trailer, A)>);

    /// The tables that may hold the key, the newest first.
    fn candidates(&mut self, candidates: &[Candidate<'_>]);

    /// What the filter of candidate `number` said; `true` also if there was none to ask.
    fn filter(&mut self, number: usize, may_contain: bool);

    /// What candidate `number` had.
    fn searched(&mut self, number: usize, blocks: Self::Blocks, found: Option<&(Trailer, A)>);

    /// Records that the search of candidate `number` failed.
    #[inline]
    fn failed(&mut self, number: usize, blocks: Self::Blocks, error: &Error) {
        let _ = (number, blocks, error);
    }
}

/// Nobody looks: what every lookup but an explained one has for a witness.
#[derive(Debug)]
pub(crate) struct Nobody;

impl<A: Answer> Witness<A> for Nobody {
    type Blocks = BlockCounts;

    #[inline]
    fn of_memtable(&mut self, _: Trailer, value: &[u8]) -> A {
        A::of_memtable(value)
    }

    #[inline]
    fn of_block(&mut self, _: Trailer, value: &FoundValue<'_>) -> A {
        A::of_block(value)
    }

    #[inline]
    fn memtable(&mut self, _: usize, _: bool, _: Option<&(Trailer, A)>) {}

    #[inline]
    fn candidates(&mut self, _: &[Candidate<'_>]) {}

    #[inline]
    fn filter(&mut self, _: usize, _: bool) {}

    #[inline]
    fn searched(&mut self, _: usize, _: BlockCounts, _: Option<&(Trailer, A)>) {}
}

/// Nobody looks, but the caller at the value where it lies.
#[derive(Debug)]
pub(crate) struct Taker<F>(Option<F>);

impl<F> Taker<F> {
    /// Calls `take` at most once. Only for views without range tombstones: whether one covers the value is
    /// known too late.
    pub(crate) fn new(take: F) -> Self {
        Self(Some(take))
    }

    fn take<T>(&mut self, trailer: Trailer, value: &[u8]) -> Option<T>
    where
        F: FnOnce(&[u8]) -> T,
    {
        let take = self.0.take().filter(|_| trailer.kind() == Kind::Put)?;
        Some(take(value))
    }
}

impl<T, F: FnOnce(&[u8]) -> T> Witness<Option<T>> for Taker<F> {
    type Blocks = BlockCounts;

    #[inline]
    fn of_memtable(&mut self, trailer: Trailer, value: &[u8]) -> Option<T> {
        self.take(trailer, value)
    }

    #[inline]
    fn of_block(&mut self, trailer: Trailer, value: &FoundValue<'_>) -> Option<T> {
        self.take(trailer, value.as_slice())
    }

    #[inline]
    fn memtable(&mut self, _: usize, _: bool, _: Option<&(Trailer, Option<T>)>) {}

    #[inline]
    fn candidates(&mut self, _: &[Candidate<'_>]) {}

    #[inline]
    fn filter(&mut self, _: usize, _: bool) {}

    #[inline]
    fn searched(&mut self, _: usize, _: BlockCounts, _: Option<&(Trailer, Option<T>)>) {}
}
