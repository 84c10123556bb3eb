//! The sequence numbers that open snapshots read at.

use std::collections::BTreeMap;

use sievedb_format::SequenceNumber;

use crate::sync::Mutex;

/// The sequence numbers that open snapshots read at, each with the number of its snapshots.
#[derive(Debug, Default)]
pub(crate) struct SnapshotList {
    counts: Mutex<BTreeMap<SequenceNumber, usize>>,
}

impl SnapshotList {
    /// Adds a snapshot at what `visible` returns.
    ///
    /// `visible` is read under the lock that [`sequences`](Self::sequences) takes: whoever lists
    /// the snapshots without this one did so at an earlier visible sequence number.
    pub(crate) fn add(&self, visible: impl FnOnce() -> SequenceNumber) -> SequenceNumber {
        let mut counts = self.counts.lock();
        let sequence = visible();
        *counts.entry(sequence).or_default() += 1;
        sequence
    }

    /// Removes one snapshot at `sequence`.
    pub(crate) fn remove(&self, sequence: SequenceNumber) {
        let mut counts = self.counts.lock();
        let count = counts.get_mut(&sequence).expect("an open snapshot is listed");
        *count -= 1;
        if *count == 0 {
            counts.remove(&sequence);
        }
    }

    /// The sequence number of the oldest open snapshot.
    pub(crate) fn oldest(&self) -> Option<SequenceNumber> {
        self.counts.lock().keys().next().copied()
    }

    /// The sequence numbers of open snapshots, ascending.
    pub(crate) fn sequences(&self) -> Vec<SequenceNumber> {
        self.counts.lock().keys().copied().collect()
    }
}
