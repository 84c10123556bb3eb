//! Who sees what a lookup does.

use sievedb_format::Trailer;
use sievedb_sstable::{BlockCounts, BlockWatch};

use crate::{table::TableFilters, version::Run};

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

    /// What the filter of memtable `number` said, counted from the newest, and what the memtable then had.
    fn memtable(&mut self, number: usize, may_contain: bool, found: Option<&(Trailer, A)>);

    /// The tables that may hold the key, the newest first.
    fn candidates(&mut self, candidates: &[Candidate<'_>]);

    /// What the filter of candidate `number` said; `true` also if there was none to ask.
    fn filter(&mut self, number: usize, may_contain: bool);

    /// What candidate `number` had.
    fn searched(&mut self, number: usize, blocks: Self::Blocks, found: Option<&(Trailer, A)>);
}

/// Nobody looks: what every lookup but an explained one has for a witness.
#[derive(Debug)]
pub(crate) struct Nobody;

impl<A> Witness<A> for Nobody {
    type Blocks = BlockCounts;

    #[inline]
    fn memtable(&mut self, _: usize, _: bool, _: Option<&(Trailer, A)>) {}

    #[inline]
    fn candidates(&mut self, _: &[Candidate<'_>]) {}

    #[inline]
    fn filter(&mut self, _: usize, _: bool) {}

    #[inline]
    fn searched(&mut self, _: usize, _: BlockCounts, _: Option<&(Trailer, A)>) {}
}
