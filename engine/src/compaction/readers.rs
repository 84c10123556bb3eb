//! The readers that a flush or a compaction serves.

use sievedb_format::{SEQUENCE_MAX, SequenceNumber};

use super::stripes::Stripes;
use crate::{history_length::HistoryStart, resolve::ReadPoint};

/// One reader for each stripe of the history: the open snapshots, every sequence number in the
/// history of the keyspace, and all newer readers as one.
///
/// The clock of each is fixed. It is not ahead of that of any reader in its stripe or a newer one.
/// So a value that has expired for it has expired for all readers that may see it.
#[derive(Debug, Clone)]
pub(crate) struct Readers {
    stripes: Stripes,
    /// Store clock of the reader of each stripe, in milliseconds, ascending. The last one applies
    /// to all newer stripes.
    clocks_ms: Vec<u64>,
}

impl Readers {
    /// Returns the readers at `snapshots`, in any order with their clocks, the readers of the
    /// `history`, and the reader at `clock_ms`. No newer reader has an older clock than `clock_ms`.
    pub(crate) fn new(
        snapshots: impl IntoIterator<Item = (SequenceNumber, u64)>,
        history: Option<HistoryStart>,
        clock_ms: u64,
    ) -> Self {
        let history = history.map(|HistoryStart { sequence, clock_ms }| (sequence, clock_ms));
        let mut all: Vec<_> = snapshots.into_iter().chain(history).collect();
        all.sort_unstable();
        // The first of equal sequence numbers has the oldest clock.
        all.dedup_by_key(|&mut (sequence, _)| sequence);
        debug_assert!(all.last().is_none_or(|&(sequence, _)| sequence < SEQUENCE_MAX));
        let mut oldest_ms = match history {
            Some((_, history_ms)) => clock_ms.min(history_ms),
            None => clock_ms,
        };
        let mut clocks_ms: Vec<_> = Vec::with_capacity(all.len() + 1);
        clocks_ms.push(oldest_ms);
        for &(sequence, clock_ms) in all.iter().rev() {
            oldest_ms = oldest_ms.min(clock_ms);
            // Each sequence number of a history has its own stripe, with one clock for all. A
            // snapshot there may have an older clock than the start of the history.
            if history.is_none_or(|(from, _)| sequence <= from) {
                clocks_ms.push(oldest_ms);
            } else {
                clocks_ms[0] = oldest_ms;
            }
        }
        clocks_ms.reverse();
        let snapshots = all.into_iter().map(|(sequence, _)| sequence).collect();
        Self { stripes: Stripes::new(snapshots, history.map(|(from, _)| from)), clocks_ms }
    }

    pub(crate) fn stripes(&self) -> &Stripes {
        &self.stripes
    }

    /// Returns the stripe of a version: the number of readers that are older.
    #[inline]
    pub(crate) fn stripe_of(&self, sequence: SequenceNumber) -> usize {
        self.stripes.of(sequence)
    }

    /// Returns the newest reader of a stripe.
    #[inline]
    pub(crate) fn of_stripe(&self, stripe: usize) -> ReadPoint {
        let newest = self.clocks_ms.len() - 1;
        ReadPoint::at_time(self.stripes.end(stripe), self.clocks_ms[stripe.min(newest)])
    }
}
