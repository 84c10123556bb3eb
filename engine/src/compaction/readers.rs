//! The readers that a flush or a compaction must serve.

use sievedb_format::{SEQUENCE_MAX, SequenceNumber};

use crate::resolve::ReadPoint;

/// One reader for each stripe of the history: the open snapshots, and all newer readers as one.
///
/// The clock of each is fixed. It is not ahead of that of any reader in its stripe or a newer one:
/// what has expired for it has expired for all that may see it.
#[derive(Debug, Clone)]
pub(crate) struct Readers {
    /// Ascending. The last one is for the newest readers.
    points: Vec<ReadPoint>,
}

impl Readers {
    /// Returns the readers at `snapshots`, sequence numbers and clocks in any order, and at
    /// `clock_ms`. No newer reader has an older clock than that.
    pub(crate) fn new(
        snapshots: impl IntoIterator<Item = (SequenceNumber, u64)>,
        clock_ms: u64,
    ) -> Self {
        let mut all: Vec<_> = snapshots.into_iter().collect();
        all.sort_unstable();
        // The first of equal sequence numbers has the oldest clock.
        all.dedup_by_key(|&mut (sequence, _)| sequence);
        debug_assert!(all.last().is_none_or(|&(sequence, _)| sequence < SEQUENCE_MAX));
        all.push((SEQUENCE_MAX, clock_ms));
        let mut oldest = u64::MAX;
        for (_, clock_ms) in all.iter_mut().rev() {
            oldest = oldest.min(*clock_ms);
            *clock_ms = oldest;
        }
        let points = all.into_iter().map(|(sequence, ms)| ReadPoint::at_time(sequence, ms));
        Self { points: points.collect() }
    }

    /// Returns the sequence numbers of the snapshots, ascending.
    pub(crate) fn snapshots(&self) -> Vec<SequenceNumber> {
        let newest = self.points.len().saturating_sub(1);
        self.points[..newest].iter().map(|reader| reader.sequence).collect()
    }

    /// Returns the stripe of a version: the number of readers that are older.
    #[inline]
    pub(crate) fn stripe_of(&self, sequence: SequenceNumber) -> usize {
        self.points.partition_point(|reader| reader.sequence < sequence)
    }

    /// Returns the newest reader of a stripe.
    #[inline]
    pub(crate) fn of_stripe(&self, stripe: usize) -> ReadPoint {
        self.points[stripe]
    }
}
