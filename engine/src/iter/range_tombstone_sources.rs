//! The range tombstones of a read view.

use std::sync::Arc;

use sievedb_format::{RangeTombstoneSource, SequenceNumber};

/// The range tombstones of a read view, from sources that have any.
///
/// The reader's sequence number is fixed before the list is created: a source that is empty then
/// cannot get a range tombstone that the reader sees.
#[derive(Debug, Clone, Default)]
pub(crate) struct RangeTombstoneSources(Vec<Arc<dyn RangeTombstoneSource>>);

impl RangeTombstoneSources {
    /// Collects those of `sources` that are not empty.
    pub(crate) fn new(sources: impl IntoIterator<Item = Arc<dyn RangeTombstoneSource>>) -> Self {
        Self(sources.into_iter().filter(|source| !source.is_empty()).collect())
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the sequence number of the newest range tombstone that covers `user_key` and that a
    /// reader at `at` sees; 0 if there is none.
    pub(super) fn newest_cover(&self, user_key: &[u8], at: SequenceNumber) -> SequenceNumber {
        let newest = |source: &Arc<dyn RangeTombstoneSource>| source.newest_cover(user_key, at);
        self.0.iter().filter_map(newest).max().unwrap_or(0)
    }
}
