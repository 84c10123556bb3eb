//! Merge of runs by key and sequence number.

use std::{
    cmp::Ordering,
    collections::{BinaryHeap, binary_heap::PeekMut},
};

use super::run::Run;
use crate::{error::Result, internal_key::Comparator};

/// Runs in a heap, the one with the first version on top.
#[derive(Debug, Default)]
pub(crate) struct Heads {
    heap: BinaryHeap<Head>,
}

#[derive(Debug)]
struct Head {
    run: Run,
    comparator: Comparator,
    /// Position among the runs, the newest first.
    rank: usize,
}

impl Heads {
    /// Merges the runs, ordered from the newest to the oldest.
    pub(crate) fn new(runs: Vec<Run>, comparator: Comparator) -> Self {
        let heads = runs.into_iter().enumerate();
        Self { heap: heads.map(|(rank, run)| Head { run, comparator, rank }).collect() }
    }

    /// Returns the run with the first version.
    pub(crate) fn top(&self) -> Option<&Run> {
        self.heap.peek().map(|head| &head.run)
    }

    /// Moves past the first version.
    pub(crate) fn advance(&mut self) -> Result<()> {
        if let Some(mut head) = self.heap.peek_mut()
            && !head.run.advance()?
        {
            PeekMut::pop(head);
        }
        Ok(())
    }

    /// Drops all runs.
    pub(crate) fn clear(&mut self) {
        self.heap.clear();
    }
}

impl Ord for Head {
    fn cmp(&self, other: &Self) -> Ordering {
        // A heap has its largest element on top.
        let (left, right) = (&self.run, &other.run);
        let order = self
            .comparator
            .compare_versions((right.key(), right.sequence()), (left.key(), left.sequence()));
        order.then(other.rank.cmp(&self.rank))
    }
}

impl PartialOrd for Head {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Head {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Head {}
