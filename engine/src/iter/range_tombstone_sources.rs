//! The range tombstones of a read view.

use std::{ops::Bound, sync::Arc};

use sievedb_format::{
    RangeTombstoneSource, RangeTombstones, SequenceNumber,
    range_tombstone::{Cover, ends_above},
};

use crate::{resolve::hides_up_to, version::Version};

/// The range tombstones of a read view, from sources that have any.
///
/// The reader's sequence number is fixed before the list is created. So an empty source cannot get
/// a range tombstone that the reader sees.
#[derive(Debug, Clone, Default)]
pub(crate) struct RangeTombstoneSources {
    /// Lists of memtables, with the ranks of their sources.
    lists: Vec<(usize, Arc<RangeTombstones>)>,
    /// The tables, if any has range tombstones, and the rank of the first run.
    version: Option<(usize, Arc<Version>)>,
}

/// Keys that a range tombstone hides from a reader.
#[derive(Debug, Clone, Default)]
pub(crate) struct HiddenRange {
    /// First key.
    pub(crate) start: Vec<u8>,
    /// First key after the range; empty for no upper bound.
    pub(crate) end: Vec<u8>,
    /// Sequence number below which versions are hidden.
    pub(crate) sequence: SequenceNumber,
    /// Position of the source in the view, the newest first. All versions in later sources are
    /// older.
    pub(crate) rank: usize,
}

impl HiddenRange {
    /// Returns the upper bound.
    pub(crate) fn end_bound(&self) -> Bound<&[u8]> {
        if self.end.is_empty() { Bound::Unbounded } else { Bound::Excluded(&self.end) }
    }

    /// Returns `true` if the range contains `user_key`.
    pub(crate) fn contains(&self, user_key: &[u8]) -> bool {
        *self.start <= *user_key && ends_above(&self.end, user_key)
    }

    /// Returns `true` if the range hides all versions of its keys in a source of this rank whose
    /// sequence numbers are at most `newest`.
    pub(crate) fn hides(&self, rank: usize, newest: SequenceNumber) -> bool {
        self.rank < rank || hides_up_to(self.sequence, newest)
    }
}

impl RangeTombstoneSources {
    /// Collects the non-empty lists, each with the rank of its source, and the tables of `version`.
    /// Its first run has this rank. Ranks must ascend.
    pub(crate) fn new(
        lists: impl IntoIterator<Item = (usize, Arc<RangeTombstones>)>,
        version: Option<(usize, Arc<Version>)>,
    ) -> Self {
        let lists: Vec<_> = lists.into_iter().filter(|(_, list)| !list.is_empty()).collect();
        debug_assert!(lists.is_sorted_by_key(|&(rank, _)| rank), "newest sources first");
        let version = version.filter(|(_, version)| version.has_range_tombstones());
        Self { lists, version }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.lists.is_empty() && self.version.is_none()
    }

    /// Returns a range tombstone over `user_key` that a reader at `at` sees. Returns one older than
    /// `sequence`, or 0, if none is newer. Also returns `true` if `hidden` was replaced by a range
    /// that hides the version `sequence`.
    #[cold]
    pub(super) fn find_newer(
        &self,
        user_key: &[u8],
        (at, sequence): (SequenceNumber, SequenceNumber),
        hidden: &mut HiddenRange,
    ) -> (SequenceNumber, bool) {
        if sequence < hidden.sequence && hidden.contains(user_key) {
            return (hidden.sequence, false);
        }
        let newest = self.find_hidden(user_key, at, hidden);
        (newest, newest > sequence)
    }

    /// Fills `hidden` with the keys around `user_key` that are hidden from a reader at `at`.
    /// Returns the sequence number of the newest range tombstone that covers `user_key`; 0 if there
    /// is none.
    fn find_hidden(
        &self,
        user_key: &[u8],
        at: SequenceNumber,
        hidden: &mut HiddenRange,
    ) -> SequenceNumber {
        let in_lists = self.lists.iter().map(|(rank, list)| (*rank, list));
        let in_tables = self.version.iter().flat_map(|(rank, version)| {
            let lists = version.range_tombstones_over(user_key);
            lists.map(move |(run, list)| (rank + run, list))
        });
        let found = in_lists
            .chain(in_tables)
            .filter_map(|(rank, list)| Some((list.newest_cover(user_key, at)?, rank, list)));
        let Some((newest, rank, list)) = found.max_by_key(|&(sequence, ..)| sequence) else {
            return 0;
        };
        if let Some(Cover { start, end, sequence }) = list.cover(user_key, at) {
            hidden.start.clear();
            hidden.start.extend_from_slice(start);
            hidden.end.clear();
            hidden.end.extend_from_slice(end);
            (hidden.sequence, hidden.rank) = (sequence, rank);
        }
        debug_assert!(hidden.contains(user_key) && hidden.sequence <= newest);
        newest
    }
}
