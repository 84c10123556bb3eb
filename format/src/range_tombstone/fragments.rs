//! Disjoint ranges with the newest sequence number of each.

use std::{collections::BinaryHeap, sync::Arc};

use super::{Cover, RangeTombstone, ends_above};
use crate::{PackedKeys, SequenceNumber};

/// Maximum number of fragments that a cover extends over in each direction.
const EXTENT_MAX: usize = 64;

/// Disjoint ranges in ascending order, each with its newest sequence number.
///
/// `n` range tombstones have at most `2n` fragments.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Fragments {
    /// Each fragment ends at the start of the next one; the last one has no end.
    starts: Vec<Fragment>,
    /// `starts`, packed for searches.
    packed: PackedKeys,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Fragment {
    start: Arc<[u8]>,
    /// 0 for a gap.
    newest: SequenceNumber,
}

impl Fragments {
    /// Returns the fragments of `sorted`, which must be sorted by start.
    pub(super) fn new(sorted: &[RangeTombstone]) -> Self {
        let mut ends: Vec<&Arc<[u8]>> = sorted.iter().map(|one| &one.end).collect();
        ends.retain(|end| !end.is_empty());
        ends.sort();
        let mut ends = ends.into_iter().peekable();
        let mut opened = sorted.iter().peekable();
        // Ranges that have begun, newest first. An ended range is removed once it is at the front.
        let mut open: BinaryHeap<(SequenceNumber, &Arc<[u8]>)> = BinaryHeap::new();
        let mut starts: Vec<Fragment> = Vec::with_capacity(sorted.len() + 1);
        loop {
            let key = match (opened.peek().map(|one| &one.start), ends.peek().copied()) {
                (Some(start), Some(end)) => start.min(end),
                (Some(key), None) | (None, Some(key)) => key,
                (None, None) => break,
            };
            while ends.next_if(|end| *end == key).is_some() {}
            while let Some(one) = opened.next_if(|one| one.start == *key) {
                open.push((one.sequence, &one.end));
            }
            while open.peek().is_some_and(|(_, end)| !ends_above(end, key)) {
                open.pop();
            }
            let newest = open.peek().map_or(0, |&(newest, _)| newest);
            if starts.last().map_or(0, |last| last.newest) != newest {
                starts.push(Fragment { start: Arc::clone(key), newest });
            }
        }
        starts.shrink_to_fit();
        debug_assert!(starts.is_sorted_by(|a, b| a.start < b.start), "fragments ascend");
        debug_assert!(starts.first().is_none_or(|first| first.newest > 0), "begins with a gap");
        let packed = PackedKeys::new(starts.iter().map(|one| &*one.start));
        Self { starts, packed }
    }

    /// Returns the fragment that holds `user_key`, and its sequence number; `None` for a gap.
    #[inline]
    pub(super) fn find(&self, user_key: &[u8]) -> Option<(usize, SequenceNumber)> {
        let at = self.packed.last_at_or_below(user_key, |at| &self.starts[at].start)?;
        let newest = self.starts[at].newest;
        (newest > 0).then_some((at, newest))
    }

    /// Returns a range of fragments around `at` without gaps, all visible to a reader at
    /// `sequence`.
    pub(super) fn around(&self, at: usize, sequence: SequenceNumber) -> Cover<'_> {
        let is_seen = |index: &usize| (1..=sequence).contains(&self.starts[*index].newest);
        let first = (at.saturating_sub(EXTENT_MAX)..at).rev().take_while(is_seen).last();
        let first = first.unwrap_or(at);
        let behind = at + 1..self.starts.len().min(at + EXTENT_MAX);
        let last = behind.take_while(is_seen).last().unwrap_or(at);
        let fragments = &self.starts[first..=last];
        let oldest = fragments.iter().map(|one| one.newest).min();
        debug_assert!(oldest.is_some_and(|oldest| oldest > 0), "a cover extends over a gap");
        Cover {
            start: &fragments[0].start,
            end: self.starts.get(last + 1).map_or(&[], |next| &*next.start),
            sequence: oldest.unwrap_or(0),
        }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.starts.capacity() * size_of::<Fragment>() + self.packed.memory_bytes()
    }
}
