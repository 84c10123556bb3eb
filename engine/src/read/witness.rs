//! Who sees what a lookup does.

use sievedb_format::Trailer;
use sievedb_sstable::{BlockCounts, BlockObserver, ValueRef};

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
pub(crate) trait CountBlocks: BlockObserver + Default {
    fn counts(&self) -> BlockCounts;
}

impl CountBlocks for BlockCounts {
    fn counts(&self) -> Self {
        *self
    }
}

/// Sees what a lookup does, step by step. What is told is what was done: there is one way of a
/// lookup, with a witness or without.
pub(crate) trait Witness<A> {
    type Blocks: CountBlocks;

    /// Returns the answer for the value of the key, which lies in a memtable or was merged. This or
    /// [`of_block`](Self::of_block) is called at most once.
    fn of_memtable(&mut self, value: &[u8]) -> A;

    /// Returns the answer for the value of the key, which lies in a block.
    fn of_block(&mut self, value: &ValueRef<'_>) -> A;

    /// Records the verdict of the filter of memtable `number`, counted from the newest.
    #[inline]
    fn memtable(&mut self, number: usize, may_contain: bool) {
        let _ = (number, may_contain);
    }

    /// Records the newest visible version in memtable `number`, and the length of its value.
    #[inline]
    fn found_in_memtable(&mut self, number: usize, trailer: Trailer, value_bytes: usize) {
        let _ = (number, trailer, value_bytes);
    }

    /// Records the tables that may hold the key, the newest first.
    #[inline]
    fn candidates(&mut self, candidates: &[Candidate<'_>]) {
        let _ = candidates;
    }

    /// Records the verdict of the filter of candidate `number`; `true` also without a filter.
    #[inline]
    fn filter(&mut self, number: usize, may_contain: bool) {
        let _ = (number, may_contain);
    }

    /// Records the newest visible version in candidate `number`, and the length of its value.
    #[inline]
    fn found_in_table(&mut self, number: usize, trailer: Trailer, value_bytes: usize) {
        let _ = (number, trailer, value_bytes);
    }

    /// Records the blocks that the search of candidate `number` used.
    #[inline]
    fn searched(&mut self, number: usize, blocks: Self::Blocks) {
        let _ = (number, blocks);
    }

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
    fn of_memtable(&mut self, value: &[u8]) -> A {
        A::of_memtable(value)
    }

    #[inline]
    fn of_block(&mut self, value: &ValueRef<'_>) -> A {
        A::of_block(value)
    }
}

/// Passes the value to a closure where it lies.
#[derive(Debug)]
pub(crate) struct Taker<F>(Option<F>);

impl<F> Taker<F> {
    /// Calls `take` with the value of the key, if it has one.
    pub(crate) fn new(take: F) -> Self {
        Self(Some(take))
    }

    #[inline]
    fn take<T>(&mut self, value: &[u8]) -> T
    where
        F: FnOnce(&[u8]) -> T,
    {
        let take = self.0.take().expect("a lookup answers once");
        take(value)
    }
}

impl<T, F: FnOnce(&[u8]) -> T> Witness<T> for Taker<F> {
    type Blocks = BlockCounts;

    #[inline]
    fn of_memtable(&mut self, value: &[u8]) -> T {
        self.take(value)
    }

    #[inline]
    fn of_block(&mut self, value: &ValueRef<'_>) -> T {
        self.take(value.as_slice())
    }
}
