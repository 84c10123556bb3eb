//! The range tombstones that a flush or a compaction keeps.
//!
//! The range tombstones of all inputs are cut into disjoint fragments. As with the versions of a
//! key, a reader at a snapshot sees the newest range tombstone of its stripe: see
//! [`retain`](super::retain). So a fragment keeps one sequence number for each stripe.
//!
//! * A version is dropped if a range tombstone of its own stripe covers it.
//! * A fragment loses the sequence number of the oldest stripe if no deeper table overlaps it. The
//!   entries that it hides are dropped in the same merge.
//! * A table whose entries are all covered in their stripe need not be read.
//!
//! Output tables get fragments up to their end, and the next table gets the rest. So a range
//! tombstone never reaches over the bounds of its table.

use std::{collections::BTreeMap, sync::Arc};

use sievedb_format::{RangeTombstone, SequenceNumber, TableBounds, range_tombstone::ends_above};
use smallvec::SmallVec;

use super::stripes::Stripes;
use crate::table::TableMeta;

/// A range of keys with the range tombstones that cover all of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RangeFragment {
    pub(crate) start: Arc<[u8]>,
    /// End of the range, exclusive; empty for no upper bound.
    pub(crate) end: Arc<[u8]>,
    /// Newest sequence number of each stripe, descending.
    sequences: SmallVec<[SequenceNumber; 1]>,
    /// Number of `sequences` to write, counted from the first.
    kept: usize,
}

impl RangeFragment {
    /// Returns the newest sequence number up to `at`; 0 if there is none.
    fn cover(&self, at: SequenceNumber) -> SequenceNumber {
        self.sequences.iter().copied().find(|&sequence| sequence <= at).unwrap_or(0)
    }

    /// Returns the range tombstones to write.
    pub(crate) fn tombstones(&self) -> impl Iterator<Item = RangeTombstone> {
        self.sequences[..self.kept].iter().map(|&sequence| RangeTombstone {
            start: Arc::clone(&self.start),
            end: Arc::clone(&self.end),
            sequence,
        })
    }

    /// Splits the fragment at `key`, which is after its start. Returns the part before `key`.
    pub(crate) fn split_off_before(&mut self, key: &[u8]) -> Self {
        debug_assert!(*self.start < *key, "the part before the cut is empty");
        debug_assert!(ends_above(&self.end, key), "the part behind the cut is empty");
        let cut: Arc<[u8]> = key.into();
        let before = Self { end: Arc::clone(&cut), ..self.clone() };
        self.start = cut;
        before
    }
}

/// The fragments of the inputs of a merge, for a scan over ascending keys.
#[derive(Debug, Default)]
pub(crate) struct RangeFragments {
    /// Fragments in ascending order, disjoint.
    fragments: Vec<RangeFragment>,
    stripes: Stripes,
    /// Index of the first fragment that does not end before the last key.
    at: usize,
}

impl RangeFragments {
    /// Cuts `tombstones` into fragments, for the readers of `stripes`. `is_bottom` returns `true`
    /// if no older run outside of the merge may hold a key between two bounds.
    pub(crate) fn new(
        tombstones: &[RangeTombstone],
        stripes: &Stripes,
        is_bottom: impl Fn(&TableBounds) -> bool,
    ) -> Self {
        let mut fragments = fragments(tombstones, stripes);
        let oldest_stripe_end = stripes.end(0);
        for fragment in &mut fragments {
            let is_oldest = fragment.sequences.last().is_some_and(|&it| it <= oldest_stripe_end);
            if is_oldest && is_bottom(&TableBounds::of_range(&fragment.start, &fragment.end)) {
                fragment.kept -= 1;
            }
        }
        debug_assert!(fragments.iter().all(|it| it.sequences.is_sorted_by(|a, b| a > b)));
        debug_assert!(fragments.is_sorted_by(|a, b| !ends_above(&a.end, &b.start)));
        Self { fragments, stripes: stripes.clone(), at: 0 }
    }

    /// Returns the fragments with range tombstones to write, ascending.
    pub(crate) fn kept(&self) -> Vec<RangeFragment> {
        self.fragments.iter().filter(|fragment| fragment.kept > 0).cloned().collect()
    }

    /// Returns the newest range tombstone over `user_key` that a reader at `at` sees; 0 if there is
    /// none. Keys must be given in ascending order, with repetitions allowed.
    #[inline]
    pub(super) fn cover(&mut self, user_key: &[u8], at: SequenceNumber) -> SequenceNumber {
        if self.at == self.fragments.len() {
            return 0;
        }
        self.find(user_key).map_or(0, |fragment| fragment.cover(at))
    }

    /// Returns `true` if a written range tombstone over `user_key` is older than `sequence`.
    /// Otherwise as [`cover`](Self::cover).
    pub(super) fn keeps_older(&mut self, user_key: &[u8], sequence: SequenceNumber) -> bool {
        let kept = |fragment: &RangeFragment| fragment.sequences[..fragment.kept].last().copied();
        self.find(user_key).and_then(kept).is_some_and(|oldest| oldest < sequence)
    }

    fn find(&mut self, user_key: &[u8]) -> Option<&RangeFragment> {
        let is_behind = |fragment: &&RangeFragment| !ends_above(&fragment.end, user_key);
        self.at += self.fragments[self.at..].iter().take_while(is_behind).count();
        self.fragments.get(self.at).filter(|fragment| *fragment.start <= *user_key)
    }

    /// Returns `true` if no reader needs an entry of `table`, because range tombstones of their
    /// stripe cover them all.
    pub(crate) fn hides(&self, table: &TableMeta) -> bool {
        let TableMeta { bounds, smallest_sequence, largest_sequence, .. } = table;
        let stripe = |sequence| self.stripes.of(sequence);
        let hides = |fragment: &RangeFragment| {
            let newer = |&&cover: &&SequenceNumber| cover > *largest_sequence;
            let oldest_newer = fragment.sequences.iter().take_while(newer).last();
            oldest_newer.is_some_and(|&cover| stripe(cover) == stripe(*smallest_sequence))
        };
        let first = self.fragments.partition_point(|it| !ends_above(&it.end, &bounds.smallest));
        let mut reached: &[u8] = &bounds.smallest;
        for fragment in &self.fragments[first..] {
            if *fragment.start > *reached || !hides(fragment) {
                return false;
            }
            let ends_behind = match bounds.is_unbounded() {
                true => fragment.end.is_empty(),
                false => bounds.ends_below(&fragment.end) || fragment.end.is_empty(),
            };
            if ends_behind {
                return true;
            }
            reached = &fragment.end;
        }
        false
    }
}

/// Returns disjoint ranges with the newest sequence number of each stripe.
fn fragments(tombstones: &[RangeTombstone], stripes: &Stripes) -> Vec<RangeFragment> {
    let mut starts: Vec<&RangeTombstone> = tombstones.iter().collect();
    starts.sort_unstable_by(|a, b| a.start.cmp(&b.start));
    let mut ends = starts.clone();
    ends.retain(|one| !one.end.is_empty());
    ends.sort_unstable_by(|a, b| a.end.cmp(&b.end));
    let (mut starts, mut ends) = (starts.into_iter().peekable(), ends.into_iter().peekable());
    // Open count of each sequence number: the tables of a run repeat cut range tombstones.
    let mut open: BTreeMap<SequenceNumber, usize> = BTreeMap::new();
    let mut fragments: Vec<RangeFragment> = Vec::new();
    // The start of the fragment that is open.
    let mut from: Option<Arc<[u8]>> = None;
    loop {
        let key = match (starts.peek().map(|one| &one.start), ends.peek().map(|one| &one.end)) {
            (Some(start), Some(end)) => start.min(end),
            (Some(key), None) | (None, Some(key)) => key,
            (None, None) => break,
        };
        let key = Arc::clone(key);
        if let Some(start) = from.replace(Arc::clone(&key)) {
            push(&mut fragments, start, Arc::clone(&key), &open, stripes);
        }
        while let Some(one) = ends.next_if(|one| one.end == key) {
            let count = open.get_mut(&one.sequence).expect("a range begins before it ends");
            *count -= 1;
            if *count == 0 {
                open.remove(&one.sequence);
            }
        }
        while let Some(one) = starts.next_if(|one| one.start == key) {
            *open.entry(one.sequence).or_default() += 1;
        }
    }
    if let Some(start) = from {
        push(&mut fragments, start, Arc::default(), &open, stripes);
    }
    fragments
}

/// Adds a fragment from `start` to `end`, unless no range tombstone is open. Extends the last one
/// if it has the same sequence numbers.
fn push(
    fragments: &mut Vec<RangeFragment>,
    start: Arc<[u8]>,
    end: Arc<[u8]>,
    open: &BTreeMap<SequenceNumber, usize>,
    stripes: &Stripes,
) {
    let mut sequences = SmallVec::new();
    let mut newest = open.last_key_value().map(|(&newest, _)| newest);
    while let Some(sequence) = newest {
        sequences.push(sequence);
        let older = stripes.newest_below(sequence);
        newest = older.and_then(|older| open.range(..=older).next_back()).map(|(&it, _)| it);
    }
    if sequences.is_empty() {
        return;
    }
    match fragments.last_mut() {
        Some(last) if last.end == start && last.sequences == sequences => last.end = end,
        _ => {
            let kept = sequences.len();
            fragments.push(RangeFragment { start, end, sequences, kept });
        }
    }
}
