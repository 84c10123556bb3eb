//! The sequence numbers that open snapshots read at.

use std::{collections::BTreeMap, time::Duration};

use sievedb_format::SequenceNumber;

use crate::sync::Mutex;

/// The sequence numbers that open snapshots read at, each with its snapshots.
#[derive(Debug, Default)]
pub(crate) struct SnapshotList {
    held: Mutex<BTreeMap<SequenceNumber, Held>>,
}

/// The snapshots at one sequence number.
#[derive(Debug)]
struct Held {
    count: usize,
    /// When the first of them was taken.
    since: Duration,
}

impl SnapshotList {
    /// Adds a snapshot at what `visible` returns; `now` is the time.
    ///
    /// `visible` is read under the lock that [`sequences`](Self::sequences) takes: whoever lists
    /// the snapshots without this one did so at an earlier visible sequence number.
    pub(crate) fn add(
        &self,
        now: Duration,
        visible: impl FnOnce() -> SequenceNumber,
    ) -> SequenceNumber {
        let mut held = self.held.lock();
        let sequence = visible();
        held.entry(sequence).or_insert(Held { count: 0, since: now }).count += 1;
        sequence
    }

    /// Removes one snapshot at `sequence`.
    pub(crate) fn remove(&self, sequence: SequenceNumber) {
        let mut held = self.held.lock();
        let of_sequence = held.get_mut(&sequence).expect("an open snapshot is listed");
        of_sequence.count -= 1;
        if of_sequence.count == 0 {
            held.remove(&sequence);
        }
    }

    /// The sequence number of the oldest open snapshot.
    pub(crate) fn oldest(&self) -> Option<SequenceNumber> {
        self.held.lock().keys().next().copied()
    }

    /// The sequence numbers of open snapshots, ascending.
    pub(crate) fn sequences(&self) -> Vec<SequenceNumber> {
        self.held.lock().keys().copied().collect()
    }

    /// How many snapshots are open, and since when the oldest one is.
    pub(crate) fn open(&self) -> (u64, Option<Duration>) {
        let held = self.held.lock();
        let count = held.values().map(|held| held.count as u64).sum();
        (count, held.values().next().map(|held| held.since))
    }
}
