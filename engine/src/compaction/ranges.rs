//! The range tombstones that a flush or a compaction keeps.
//!
//! As with the versions of a key, a reader at a snapshot sees the newest range tombstone of its
//! stripe: see [`retain`](super::retain). So the range tombstones of all inputs are cut into
//! fragments: the keys where one is the newest of its stripe. Those of a stripe are disjoint, those
//! of different stripes overlap. So `n` range tombstones have at most `2 n` fragments, also with a
//! history, in which each has a stripe of its own.
//!
//! * A version is dropped if a range tombstone of its own stripe covers it.
//! * A fragment of the oldest stripe is dropped if no deeper table overlaps it. The entries that it
//!   hides are dropped in the same merge.
//! * A table whose entries are all covered in their stripe need not be read.
//!
//! Output tables get fragments up to their end, and the next table gets the rest. So a range
//! tombstone never reaches over the bounds of its table.

use std::{collections::BTreeMap, sync::Arc};

use sievedb_format::{
    RangeTombstone, SequenceNumber, TableBounds,
    range_tombstone::{cmp_ends, ends_above},
};

use super::stripes::Stripes;
use crate::table::TableMeta;

/// The keys of a range tombstone where none of its stripe is newer.
#[derive(Debug, Clone)]
struct Fragment {
    range: RangeTombstone,
    /// It is written.
    is_kept: bool,
}

/// The fragments of the inputs of a merge, for a scan over ascending keys.
#[derive(Debug, Default)]
pub(crate) struct RangeFragments {
    /// In the order of the encoded form: by start.
    fragments: Vec<Fragment>,
    /// Indexes of those with an upper bound, by end.
    by_end: Vec<usize>,
    /// At `i`, the index of the largest end up to fragment `i`.
    reach: Vec<usize>,
    stripes: Stripes,
    /// How many of `fragments` begin at or before the last key, and of `by_end` end there.
    begun: usize,
    ended: usize,
    /// Sequence numbers of the fragments over the last key, and whether they are written.
    open: BTreeMap<SequenceNumber, bool>,
}

impl RangeFragments {
    /// Cuts `tombstones` into fragments, for the readers of `stripes`. `is_bottom` returns `true`
    /// if no older run outside of the merge may hold a key between two bounds.
    pub(crate) fn new(
        tombstones: &[RangeTombstone],
        stripes: &Stripes,
        is_bottom: impl Fn(&TableBounds) -> bool,
    ) -> Self {
        let is_kept = |range: &RangeTombstone| {
            let is_oldest = stripes.of(range.sequence) == 0;
            !is_oldest || !is_bottom(&TableBounds::of_range(&range.start, &range.end))
        };
        let fragments: Vec<_> = fragments(tombstones, stripes)
            .into_iter()
            .map(|range| Fragment { is_kept: is_kept(&range), range })
            .collect();
        let end = |at: usize| &fragments[at].range.end;
        let mut by_end: Vec<_> = (0..fragments.len()).filter(|&at| !end(at).is_empty()).collect();
        by_end.sort_by(|&left, &right| end(left).cmp(end(right)));
        let mut reach: Vec<usize> = Vec::with_capacity(fragments.len());
        for at in 0..fragments.len() {
            let before = reach.last().copied().unwrap_or(at);
            let is_longer = cmp_ends(end(before), end(at)).is_lt();
            reach.push(if is_longer { at } else { before });
        }
        let stripes = stripes.clone();
        Self { fragments, by_end, reach, stripes, begun: 0, ended: 0, open: BTreeMap::new() }
    }

    /// Returns the range tombstones to write, by start. They may overlap.
    pub(crate) fn kept(&self) -> Vec<RangeTombstone> {
        let kept = self.fragments.iter().filter(|fragment| fragment.is_kept);
        kept.map(|fragment| fragment.range.clone()).collect()
    }

    /// Returns the newest range tombstone over `user_key` that a reader at `at` sees; 0 if there is
    /// none. Keys must be given in ascending order, with repetitions allowed.
    #[inline]
    pub(super) fn cover(&mut self, user_key: &[u8], at: SequenceNumber) -> SequenceNumber {
        if self.fragments.is_empty() {
            return 0;
        }
        self.advance(user_key);
        self.open.range(..=at).next_back().map_or(0, |(&sequence, _)| sequence)
    }

    /// Returns `true` if a written range tombstone over `user_key` is older than `sequence`.
    /// Otherwise as [`cover`](Self::cover).
    pub(super) fn keeps_older(&mut self, user_key: &[u8], sequence: SequenceNumber) -> bool {
        self.advance(user_key);
        let oldest_kept = self.open.iter().find(|&(_, &is_kept)| is_kept);
        oldest_kept.is_some_and(|(&oldest, _)| oldest < sequence)
    }

    /// Opens and closes fragments up to `user_key`, in the order of their bounds: those of one
    /// sequence number may follow each other without a gap.
    fn advance(&mut self, user_key: &[u8]) {
        loop {
            let begin = self.fragments.get(self.begun);
            let begin = begin.filter(|next| *next.range.start <= *user_key);
            let end = self.by_end.get(self.ended).map(|&at| &self.fragments[at].range);
            let end = end.filter(|next| !ends_above(&next.end, user_key));
            match (begin, end) {
                (Some(begin), end) if end.is_none_or(|end| begin.range.start < end.end) => {
                    self.open.insert(begin.range.sequence, begin.is_kept);
                    self.begun += 1;
                }
                (_, Some(end)) => {
                    self.open.remove(&end.sequence);
                    self.ended += 1;
                }
                _ => return,
            }
        }
    }

    /// Returns `true` if no reader needs an entry of `table` within `keys`, because range
    /// tombstones of their stripe cover them all.
    pub(crate) fn hides(&self, table: &TableMeta, keys: &TableBounds) -> bool {
        if self.fragments.is_empty() {
            return false;
        }
        let TableMeta { smallest_sequence, largest_sequence, .. } = table;
        let bounds = table.bounds.intersection(keys);
        // Newer than all entries, and seen by each reader that sees one.
        let stripe_end = self.stripes.end(self.stripes.of(*smallest_sequence));
        let hides =
            |range: &RangeTombstone| (largest_sequence + 1..=stripe_end).contains(&range.sequence);
        let end_up_to = |at: &usize| &self.fragments[*at].range.end;
        let first = self.reach.partition_point(|at| !ends_above(end_up_to(at), &bounds.smallest));
        let mut reached: &[u8] = &bounds.smallest;
        for Fragment { range, .. } in &self.fragments[first..] {
            if *range.start > *reached {
                return false;
            }
            if !hides(range) || !ends_above(&range.end, reached) {
                continue;
            }
            let ends_behind = match bounds.is_unbounded() {
                true => range.end.is_empty(),
                false => bounds.ends_below(&range.end) || range.end.is_empty(),
            };
            if ends_behind {
                return true;
            }
            reached = &range.end;
        }
        false
    }
}

/// Returns the parts of `tombstones` within `keys`, which have an inclusive start and an exclusive
/// end.
pub(crate) fn cut<'t>(
    tombstones: impl IntoIterator<Item = &'t RangeTombstone>,
    keys: &TableBounds,
) -> Vec<RangeTombstone> {
    let cut_one = |one: &RangeTombstone| {
        let cut = TableBounds {
            smallest: Arc::clone(&one.start),
            largest: Arc::clone(&one.end),
            largest_excluded: true,
            ..TableBounds::default()
        };
        let TableBounds { smallest: start, largest: end, .. } = cut.intersection(keys);
        let is_within = ends_above(&end, &start);
        is_within.then_some(RangeTombstone { start, end, sequence: one.sequence })
    };
    tombstones.into_iter().filter_map(cut_one).collect()
}

/// Returns the fragments of `tombstones`, by start.
fn fragments(tombstones: &[RangeTombstone], stripes: &Stripes) -> Vec<RangeTombstone> {
    let mut starts: Vec<&RangeTombstone> = tombstones.iter().collect();
    starts.sort_unstable_by(|a, b| a.start.cmp(&b.start));
    let mut ends = starts.clone();
    ends.retain(|one| !one.end.is_empty());
    ends.sort_unstable_by(|a, b| a.end.cmp(&b.end));
    let (mut starts, mut ends) = (starts.into_iter().peekable(), ends.into_iter().peekable());
    // Open count of each sequence number: the tables of a run repeat cut range tombstones.
    let mut open: BTreeMap<SequenceNumber, usize> = BTreeMap::new();
    // The newest of each stripe that is open, and its start.
    let mut newest: BTreeMap<usize, (SequenceNumber, Arc<[u8]>)> = BTreeMap::new();
    let (mut fragments, mut changed) = (Vec::new(), Vec::new());
    loop {
        let key = match (starts.peek().map(|one| &one.start), ends.peek().map(|one| &one.end)) {
            (Some(start), Some(end)) => start.min(end),
            (Some(key), None) | (None, Some(key)) => key,
            (None, None) => break,
        };
        let key = Arc::clone(key);
        while let Some(one) = ends.next_if(|one| one.end == key) {
            let count = open.get_mut(&one.sequence).expect("a range begins before it ends");
            *count -= 1;
            if *count == 0 {
                open.remove(&one.sequence);
            }
            changed.push(stripes.of(one.sequence));
        }
        while let Some(one) = starts.next_if(|one| one.start == key) {
            *open.entry(one.sequence).or_default() += 1;
            changed.push(stripes.of(one.sequence));
        }
        for stripe in changed.drain(..) {
            let up_to_end = open.range(..=stripes.end(stripe)).next_back();
            let now = up_to_end.map(|(&it, _)| it).filter(|&it| stripes.of(it) == stripe);
            if newest.get(&stripe).map(|(sequence, _)| *sequence) == now {
                continue;
            }
            if let Some((sequence, start)) = newest.remove(&stripe) {
                fragments.push(RangeTombstone { start, end: Arc::clone(&key), sequence });
            }
            newest.extend(now.map(|sequence| (stripe, (sequence, Arc::clone(&key)))));
        }
    }
    let unbounded = newest.into_values();
    fragments.extend(unbounded.map(|(sequence, start)| RangeTombstone {
        start,
        end: Arc::default(),
        sequence,
    }));
    fragments.sort();
    fragments
}
