//! Sequence numbers of open snapshots.

use std::{collections::BTreeMap, time::Duration};

use sievedb_format::SequenceNumber;

use crate::sync::Mutex;

/// The sequence numbers of open snapshots.
#[derive(Debug, Default)]
pub(crate) struct SnapshotList {
    held: Mutex<BTreeMap<SequenceNumber, Held>>,
}

/// The snapshots at one sequence number.
#[derive(Debug)]
struct Held {
    count: usize,
    /// Time at which the first of them was taken.
    since: Duration,
}

impl SnapshotList {
    /// Adds a snapshot at the sequence number that `visible` returns, at the time `now`.
    ///
    /// Calls `visible` under the lock of [`sequences_between`](Self::sequences_between): a list
    /// without this snapshot was copied at an earlier visible sequence number.
    pub(crate) fn add(
        &self,
        now: Duration,
        visible: impl FnOnce() -> SequenceNumber,
    ) -> SequenceNumber {
        let mut held = self.held.lock();
        let sequence = visible();
        debug_assert!(held.keys().next_back().is_none_or(|&newest| newest <= sequence));
        held.entry(sequence).or_insert(Held { count: 0, since: now }).count += 1;
        sequence
    }

    /// Removes one snapshot at `sequence`. Returns the sequence number of the oldest one left.
    pub(crate) fn remove(&self, sequence: SequenceNumber) -> Option<SequenceNumber> {
        let mut held = self.held.lock();
        let of_sequence = held.get_mut(&sequence).expect("an open snapshot is listed");
        debug_assert!(of_sequence.count > 0, "an entry without a snapshot");
        of_sequence.count -= 1;
        if of_sequence.count == 0 {
            held.remove(&sequence);
        }
        held.keys().next().copied()
    }

    /// Returns the sequence number of the oldest open snapshot.
    pub(crate) fn oldest(&self) -> Option<SequenceNumber> {
        self.held.lock().keys().next().copied()
    }

    /// Returns the sequence numbers of open snapshots, ascending.
    #[cfg(test)]
    pub(crate) fn sequences(&self) -> Vec<SequenceNumber> {
        self.held.lock().keys().copied().collect()
    }

    /// Returns the sequence numbers of open snapshots, ascending, that separate entries from
    /// `first` to `last`: those from `first` on below `last`, and the oldest one if it is below
    /// `first`. The cost depends on their number alone.
    pub(crate) fn sequences_between(
        &self,
        first: SequenceNumber,
        last: SequenceNumber,
    ) -> Vec<SequenceNumber> {
        let held = self.held.lock();
        let oldest = held.keys().next().copied().filter(|&oldest| oldest < first);
        let within = held.range(first..last.max(first)).map(|(&sequence, _)| sequence);
        oldest.into_iter().chain(within).collect()
    }

    /// Returns the number of open snapshots, and the time at which the oldest was taken.
    pub(crate) fn open(&self) -> (u64, Option<Duration>) {
        let held = self.held.lock();
        let count = held.values().map(|held| held.count as u64).sum();
        (count, held.values().next().map(|held| held.since))
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;

    /// The list separates entries as all snapshots do: any two of them, and each from the oldest
    /// stripe.
    #[test]
    fn sequences_between_separate_entries_as_all_do() {
        let list = SnapshotList::default();
        for sequence in [3, 5, 5, 8, 13] {
            list.add(Duration::ZERO, || sequence);
        }
        let cases: [(u64, u64, &[u64]); 9] = [
            (1, 2, &[]),
            (1, 3, &[]),
            (1, 4, &[3]),
            (3, 8, &[3, 5]),
            (4, 9, &[3, 5, 8]),
            (6, 7, &[3]),
            (9, 13, &[3]),
            (14, 20, &[3]),
            (5, 5, &[3]),
        ];
        for (first, last, want) in cases {
            let some = list.sequences_between(first, last);
            assert_eq!(some, want, "{first} to {last}");
            let stripe = |all: &[u64], sequence| all.partition_point(|&it| it < sequence);
            let all = list.sequences();
            for (newer, older) in (first..=last).flat_map(|at| (first..=at).map(move |b| (at, b))) {
                let differ = |of: &[u64]| stripe(of, newer) != stripe(of, older);
                assert_eq!(differ(&some), differ(&all), "{newer} and {older}");
                let is_oldest = |of: &[u64]| stripe(of, older) == 0;
                assert_eq!(is_oldest(&some), is_oldest(&all), "{older}");
            }
        }
    }
}
