//! Sequence numbers and clocks of open snapshots.
//!
//! Snapshots with the same number may have different clocks. A newer number has no older clock.

use std::{collections::BTreeMap, iter, time::Duration};

use sievedb_format::SequenceNumber;

use crate::{
    compaction::readers::Readers, history_length::HistoryStart, read::view::KeptView,
    resolve::ReadPoint, sync::Mutex,
};

/// The sequence numbers of open snapshots, and the views read only by snapshots.
#[derive(Debug, Default)]
pub(crate) struct SnapshotList {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    held: BTreeMap<ReadPoint, Held>,
    /// Views from before a clear or a compaction filter removed entries. Keyed by keyspace and the
    /// first sequence number that reads a later view: that of the clear. Each view is kept while an
    /// older snapshot is open.
    older_views: BTreeMap<(u64, SequenceNumber), KeptView>,
}

impl State {
    /// Keeps the view `before` of a keyspace for the open snapshots, which are below `from`; 0 if
    /// there are none. Returns the view if no snapshot reads it.
    fn keep(&mut self, keyspace: u64, from: SequenceNumber, before: KeptView) -> Option<KeptView> {
        // Snapshots read the later view, even if it was kept for newer snapshots that were closed.
        let mut later = self.older_views.range((keyspace, from)..=(keyspace, SequenceNumber::MAX));
        if from == 0 || later.next().is_some() {
            return Some(before);
        }
        self.older_views.insert((keyspace, from), before);
        None
    }
}

/// The snapshots at one point.
#[derive(Debug)]
struct Held {
    count: usize,
    /// Time at which the first of them was opened, by the clock of the options.
    since: Duration,
}

/// Returns the first point at `sequence`.
fn first_at(sequence: SequenceNumber) -> ReadPoint {
    ReadPoint::at_time(sequence, 0)
}

impl SnapshotList {
    /// Adds a snapshot at the sequence number that `visible` returns, and at the time that `now`
    /// returns: by the clock of the options, and by the store clock in milliseconds.
    ///
    /// Calls both under the lock of [`readers_between`](Self::readers_between): a list without this
    /// snapshot was copied at an earlier visible sequence number and an earlier time.
    pub(crate) fn add(
        &self,
        now: impl FnOnce() -> (Duration, u64),
        visible: impl FnOnce() -> SequenceNumber,
    ) -> ReadPoint {
        let held = &mut self.state.lock().held;
        let sequence = visible();
        let (since, clock_ms) = now();
        let point = ReadPoint::at_time(sequence, clock_ms);
        debug_assert!(held.keys().next_back().is_none_or(|&newest| newest <= point));
        hold(held, point, since)
    }

    /// Adds a snapshot of the past at the point that `point` returns under the lock, opened at
    /// `since` by the clock of the options. Its clock is limited to those of the next older and
    /// newer snapshots.
    ///
    /// # Errors
    ///
    /// The error of `point`.
    pub(crate) fn add_past<E>(
        &self,
        since: Duration,
        point: impl FnOnce() -> Result<ReadPoint, E>,
    ) -> Result<ReadPoint, E> {
        let held = &mut self.state.lock().held;
        let point = point()?;
        let older = held.range(..first_at(point.sequence)).next_back();
        let newer = held.range(first_at(point.sequence + 1)..).next();
        let least_ms = older.map_or(0, |(older, _)| older.clock_ms());
        let most_ms = newer.map_or(u64::MAX, |(newer, _)| newer.clock_ms());
        let clock_ms = point.clock_ms().clamp(least_ms, most_ms);
        Ok(hold(held, ReadPoint::at_time(point.sequence, clock_ms), since))
    }

    /// Calls `change`. During the call, no snapshot is added and no list of readers is copied.
    pub(crate) fn exclude<T>(&self, change: impl FnOnce() -> T) -> T {
        let _held = self.state.lock();
        change()
    }

    /// Removes one snapshot at `point`. Returns the point of the oldest remaining one.
    pub(crate) fn remove(&self, point: ReadPoint) -> Option<ReadPoint> {
        let mut state = self.state.lock();
        let State { held, older_views } = &mut *state;
        let of_point = held.get_mut(&point).expect("an open snapshot is listed");
        debug_assert!(of_point.count > 0, "an entry without a snapshot");
        of_point.count -= 1;
        if of_point.count == 0 {
            held.remove(&point);
        }
        let oldest = held.keys().next().copied();
        let mut before = (0, 0);
        let is_unseen = |&(keyspace, later): &(u64, SequenceNumber), _: &mut KeptView| {
            // Older snapshots read an older view.
            let from = if before.0 == keyspace { before.1 } else { 0 };
            before = (keyspace, later);
            held.range(first_at(from)..first_at(later)).next().is_none()
        };
        let unseen: Vec<_> = older_views.extract_if(.., is_unseen).collect();
        drop(state);
        // Dropped without the lock: the tables and memtables of the views may have no other reader.
        drop(unseen);
        oldest
    }

    /// Calls `clear`, which makes the clear of a keyspace at `sequence` visible and returns the
    /// previous view. Keeps that view for the open snapshots, and returns it. No snapshot is added
    /// meanwhile.
    pub(crate) fn keep_before_clear(
        &self,
        keyspace: u64,
        sequence: SequenceNumber,
        clear: impl FnOnce() -> KeptView,
    ) -> KeptView {
        let mut state = self.state.lock();
        debug_assert!(state.held.keys().all(|held| held.sequence < sequence), "visible too early");
        let before = clear();
        debug_assert!(before.cleared < sequence, "clears ascend");
        if state.held.range(first_at(before.cleared)..).next().is_some() {
            state.older_views.insert((keyspace, sequence), before.clone());
        }
        before
    }

    /// Calls `install`, which makes tables visible from which a compaction filter removed values.
    /// The removed values have sequence numbers above `newest`, that of the newest snapshot at that
    /// time. `install` gets the number below which snapshots read the previous view, 0 if there are
    /// none, and returns that view. Keeps the view for snapshots taken since. No snapshot is added
    /// meanwhile.
    pub(crate) fn keep_before_filter(
        &self,
        keyspace: u64,
        newest: Option<SequenceNumber>,
        install: impl FnOnce(SequenceNumber) -> KeptView,
    ) {
        let mut state = self.state.lock();
        let last = state.held.keys().next_back().map(|last| last.sequence);
        let from = last.filter(|_| last > newest).map_or(0, |last| last + 1);
        let before = install(from);
        let unseen = state.keep(keyspace, from, before);
        drop(state);
        drop(unseen);
    }

    /// Calls `refresh`, which makes a later point of another process's history visible, with its
    /// tables. `refresh` gets the number below which snapshots read the replaced views, 0 if there
    /// are none, and returns the views with their keyspaces. Keeps the views for the open
    /// snapshots. No snapshot is added meanwhile.
    pub(crate) fn keep_before_refresh(
        &self,
        refresh: impl FnOnce(SequenceNumber) -> Vec<(u64, KeptView)>,
    ) {
        let mut state = self.state.lock();
        let from = state.held.keys().next_back().map_or(0, |last| last.sequence + 1);
        let mut unseen = Vec::new();
        for (keyspace, before) in refresh(from) {
            unseen.extend(state.keep(keyspace, from, before));
        }
        drop(state);
        // Dropped without the lock: the tables and memtables of the views may have no other reader.
        drop(unseen);
    }

    /// Returns the view of a keyspace for the snapshot at `at`, if the snapshot must not read the
    /// current view.
    #[cold]
    pub(crate) fn older_view(&self, keyspace: u64, at: SequenceNumber) -> Option<KeptView> {
        let state = self.state.lock();
        let mut held = state.held.range(first_at(at)..first_at(at + 1));
        debug_assert!(held.next().is_some(), "an open snapshot is listed");
        let later = state.older_views.range((keyspace, at + 1)..=(keyspace, SequenceNumber::MAX));
        later.map(|(_, view)| view.clone()).next()
    }

    /// Drops the views of a dropped keyspace.
    pub(crate) fn forget_keyspace(&self, keyspace: u64) {
        let of_keyspace = (keyspace, 0)..=(keyspace, SequenceNumber::MAX);
        let mut state = self.state.lock();
        let unseen: Vec<_> = state.older_views.extract_if(of_keyspace, |_, _| true).collect();
        drop(state);
        drop(unseen);
    }

    /// Returns the point of the oldest open snapshot.
    pub(crate) fn oldest(&self) -> Option<ReadPoint> {
        self.state.lock().held.keys().next().copied()
    }

    /// Returns the sequence number of the newest open snapshot.
    pub(crate) fn newest(&self) -> Option<SequenceNumber> {
        self.state.lock().held.keys().next_back().map(|newest| newest.sequence)
    }

    /// Returns the sequence numbers of open snapshots, ascending.
    #[cfg(test)]
    pub(crate) fn sequences(&self) -> Vec<SequenceNumber> {
        let mut all: Vec<_> = self.state.lock().held.keys().map(|held| held.sequence).collect();
        all.dedup();
        all
    }

    /// Returns the readers of entries from `first` to `last`, for a merge that read the store clock
    /// at `clock_ms` before this call. `history` returns the start of the keyspace's history. No
    /// snapshot is added meanwhile.
    ///
    /// The snapshots that separate the entries are those from `first` on below `last`, and the
    /// oldest one if it is below `first`. The cost depends only on their number.
    pub(crate) fn readers_between(
        &self,
        first: SequenceNumber,
        last: SequenceNumber,
        clock_ms: u64,
        history: impl FnOnce() -> Option<HistoryStart>,
    ) -> Readers {
        let held = &self.state.lock().held;
        let last = last.max(first);
        let of = |(held, _): (&ReadPoint, &Held)| (held.sequence, held.clock_ms());
        let oldest = held.iter().next().map(of).filter(|&(oldest, _)| oldest < first);
        let within = held.range(first_at(first)..first_at(last)).map(of);
        // The snapshot sees the same entries as newer readers, at an older time.
        let newer = held.range(first_at(last)..).next().map(|(newer, _)| newer.clock_ms());
        let clock_ms = iter::chain([clock_ms], newer).min().unwrap_or(clock_ms);
        Readers::new(oldest.into_iter().chain(within), history(), clock_ms)
    }

    /// Returns the number of open snapshots, and the time at which the oldest was taken.
    pub(crate) fn open(&self) -> (u64, Option<Duration>) {
        let held = &self.state.lock().held;
        let count = held.values().map(|held| held.count as u64).sum();
        (count, held.values().map(|held| held.since).min())
    }
}

/// Counts one more snapshot at `point`, taken at `since`.
fn hold(held: &mut BTreeMap<ReadPoint, Held>, point: ReadPoint, since: Duration) -> ReadPoint {
    held.entry(point).or_insert(Held { count: 0, since }).count += 1;
    debug_assert!(held.keys().is_sorted_by_key(|held| held.clock_ms()), "clocks ascend");
    point
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use sievedb_format::SEQUENCE_MAX;

    use super::*;

    /// The list separates entries as all snapshots do: any two of them, and each from the oldest
    /// stripe.
    #[test]
    fn readers_between_separate_entries_as_all_do() {
        let list = SnapshotList::default();
        for sequence in [3, 5, 5, 8, 13] {
            list.add(|| (Duration::ZERO, 0), || sequence);
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
            let readers = list.readers_between(first, last, 0, || None);
            let some: Vec<_> = (0..readers.stripe_of(SEQUENCE_MAX))
                .map(|stripe| readers.of_stripe(stripe).sequence)
                .collect();
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

    #[test]
    fn snapshots_with_one_number_have_their_own_clocks() {
        let list = SnapshotList::default();
        let add = |sequence, clock_ms| list.add(|| (Duration::ZERO, clock_ms), || sequence);
        let (first, second, third) = (add(5, 10), add(5, 20), add(5, 30));
        assert_eq!(list.remove(second), Some(first));
        assert_eq!((list.remove(first), list.open().0), (Some(third), 1));
        let readers = list.readers_between(1, 9, 50, || None);
        assert_eq!(readers.of_stripe(0), third);
        assert_eq!(list.remove(third), None);
    }

    #[test]
    fn the_newest_readers_of_a_merge_include_a_newer_snapshot() {
        let list = SnapshotList::default();
        for (sequence, clock_ms) in [(3, 10), (8, 20), (8, 30), (13, 40)] {
            list.add(|| (Duration::ZERO, clock_ms), || sequence);
        }
        let cases: [(u64, u64, &[u64]); 4] =
            [(1, 2, &[10]), (4, 8, &[10, 20]), (4, 9, &[10, 20, 40]), (9, 20, &[10, 40, 50])];
        for (first, last, want) in cases {
            let readers = list.readers_between(first, last, 50, || None);
            for (stripe, &clock_ms) in want.iter().enumerate() {
                let reader = readers.of_stripe(stripe);
                let want = ReadPoint::at_time(reader.sequence, clock_ms);
                assert_eq!(reader, want, "{first} to {last}: {stripe}");
            }
        }
    }
}
