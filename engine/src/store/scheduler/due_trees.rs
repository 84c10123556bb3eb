//! Keyspaces that may have a flush or a compaction due: those that changed since nothing was found.
//! So the cost of a step does not depend on the number of keyspaces.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::crowded::ByPrice;
use crate::{read::changed_trees::TreeIds, resolve::ReadPoint};

/// Ids of keyspaces that may have work.
#[derive(Debug, Default)]
pub(in crate::store) struct DueTrees {
    /// May have frozen memtables.
    pub(in crate::store) flush: TreeIds,
    /// May have a compaction due.
    pub(in crate::store) compact: TreeIds,
    /// Writes wait for a compaction of level 0.
    pub(in crate::store) stopped: TreeIds,
    /// The keyspaces of the last flush and of the last compaction: the next search begins behind
    /// them.
    pub(in crate::store) last_flushed: u64,
    pub(in crate::store) last_compacted: u64,
    /// May have a compaction that an idle store does.
    pub(in crate::store) idle: TreeIds,
    /// May have a merge that makes the tables fewer.
    pub(in crate::store) crowded: ByPrice,
    /// May have a compaction once the oldest snapshot reaches this point.
    behind_snapshot: BTreeMap<u64, ReadPoint>,
    /// The oldest of these points, or an older one.
    awaited_snapshot: Option<ReadPoint>,
    /// May have a compaction from this time on, when the pause of a quarantine ends.
    paused: BTreeSet<(Duration, u64)>,
    /// Time at which entries of a keyspace will have expired. One time for each keyspace, and the
    /// same by time.
    expiring: BTreeMap<u64, Duration>,
    expiring_by_time: BTreeSet<(Duration, u64)>,
}

impl DueTrees {
    /// Notes that these keyspaces have changed, while the oldest snapshot is this one.
    pub(in crate::store) fn note(
        &mut self,
        changed: &BTreeSet<u64>,
        oldest_snapshot: Option<ReadPoint>,
    ) {
        self.flush.add(changed.iter().copied());
        self.compact.add(changed.iter().copied());
        self.idle.add(changed.iter().copied());
        self.crowded.note(changed.iter().copied());
        if self.is_freed(oldest_snapshot) {
            let is_free = |awaited| oldest_snapshot.is_none_or(|oldest| awaited <= oldest);
            let freed = self.behind_snapshot.extract_if(.., |_, awaited| is_free(*awaited));
            self.compact.add(freed.map(|(id, _)| id));
            self.awaited_snapshot = self.behind_snapshot.values().copied().min();
        }
    }

    /// Returns whether a keyspace waits no longer for the oldest snapshot.
    pub(in crate::store) fn is_freed(&self, oldest_snapshot: Option<ReadPoint>) -> bool {
        let is_free = |awaited| oldest_snapshot.is_none_or(|oldest| awaited <= oldest);
        self.awaited_snapshot.is_some_and(is_free)
    }

    /// Notes that the keyspace `id` has no compaction until it changes, or the oldest snapshot
    /// reaches `awaited_snapshot`.
    pub(in crate::store) fn compact_later(&mut self, id: u64, awaited_snapshot: Option<ReadPoint>) {
        self.compact.remove(id);
        if let Some(awaited) = awaited_snapshot {
            self.behind_snapshot.insert(id, awaited);
            let least = self.awaited_snapshot.map_or(awaited, |least| least.min(awaited));
            self.awaited_snapshot = Some(least);
        } else {
            self.behind_snapshot.remove(&id);
        }
    }

    /// Notes that the keyspace `id` may have a compaction due at `time`.
    pub(in crate::store) fn look_again_at(&mut self, time: Duration, id: u64) {
        self.paused.insert((time, id));
    }

    /// Notes that the keyspace `id` may have a compaction due at `time`, and at no time noted
    /// before.
    pub(in crate::store) fn await_time(&mut self, id: u64, time: Option<Duration>) {
        let before = match time {
            Some(time) => self.expiring.insert(id, time),
            None => self.expiring.remove(&id),
        };
        if let Some(before) = before {
            self.expiring_by_time.remove(&(before, id));
        }
        self.expiring_by_time.extend(time.map(|time| (time, id)));
        debug_assert_eq!(self.expiring.len(), self.expiring_by_time.len());
    }

    /// Returns when the next pause ends, or entries of a keyspace have expired.
    pub(in crate::store) fn next_time(&self) -> Option<Duration> {
        let first = |times: &BTreeSet<(Duration, u64)>| times.first().map(|&(time, _)| time);
        first(&self.paused).into_iter().chain(first(&self.expiring_by_time)).min()
    }

    /// Notes the keyspaces whose pauses have ended at `now`, and those with entries that expired.
    pub(in crate::store) fn end_pauses(&mut self, now: Duration) {
        let ended = self.paused.extract_if(.., |&(time, _)| time <= now);
        for (_, id) in ended {
            self.compact.add([id]);
            self.idle.add([id]);
            self.crowded.note([id]);
        }
        while let Some(&(time, id)) = self.expiring_by_time.first()
            && time <= now
        {
            self.await_time(id, None);
            self.compact.add([id]);
        }
    }

    /// Returns the point that the oldest snapshot must reach for a compaction to be due, or an
    /// older one.
    pub(in crate::store) fn awaited_snapshot(&self) -> Option<ReadPoint> {
        self.awaited_snapshot
    }
}

#[cfg(test)]
mod tests {
    use std::iter;

    use super::*;

    fn all(ids: &TreeIds) -> Vec<u64> {
        let mut from = 0;
        iter::from_fn(|| {
            let id = ids.first_from(from)?;
            from = id + 1;
            Some(id)
        })
        .collect()
    }

    #[test]
    fn a_keyspace_is_looked_at_until_nothing_is_due() {
        let mut due = DueTrees::default();
        due.note(&BTreeSet::from([3, 5, 9]), None);
        due.compact_later(5, None);
        due.flush.remove(3);
        assert_eq!((all(&due.flush), all(&due.compact)), (vec![5, 9], vec![3, 9]));
        assert_eq!(
            [0, 4, 9, 10].map(|from| due.compact.first_from(from)),
            [Some(3), Some(9), Some(9), None]
        );
        due.note(&BTreeSet::from([5]), None);
        assert_eq!((all(&due.flush), all(&due.compact)), (vec![5, 9], vec![3, 5, 9]));
    }

    #[test]
    fn what_waits_for_a_snapshot_is_looked_at_when_it_goes() {
        let at = |sequence| Some(ReadPoint::at_time(sequence, 50));
        let mut due = DueTrees::default();
        due.note(&BTreeSet::from([1, 2, 3]), at(7));
        due.compact_later(1, at(9));
        due.compact_later(2, None);
        due.compact_later(3, at(8));
        due.compact_later(4, at(12));
        assert_eq!(due.awaited_snapshot(), at(8));
        due.note(&BTreeSet::new(), at(7));
        assert_eq!(all(&due.compact), [], "the snapshot is still there");
        due.compact_later(3, None);
        assert!(!due.is_freed(at(7)) && due.is_freed(at(9)));
        due.note(&BTreeSet::new(), at(9));
        assert_eq!(due.awaited_snapshot(), at(12));
        assert_eq!(all(&due.compact), [1]);
        due.note(&BTreeSet::new(), None);
        assert_eq!((all(&due.compact), due.awaited_snapshot()), (vec![1, 4], None));
        due.compact_later(1, at(9).map(ReadPoint::successor));
        let is_freed = [49, 50, 51].map(|ms| due.is_freed(Some(ReadPoint::at_time(9, ms))));
        assert_eq!(is_freed, [false, false, true], "the same number, later");
    }

    #[test]
    fn n7_a_keyspace_is_looked_at_when_a_pause_ends() {
        let mut due = DueTrees::default();
        let seconds = Duration::from_secs;
        due.look_again_at(seconds(20), 1);
        due.look_again_at(seconds(10), 2);
        due.look_again_at(seconds(10), 3);
        due.end_pauses(seconds(9));
        assert_eq!((all(&due.compact), due.next_time()), (vec![], Some(seconds(10))));
        due.end_pauses(seconds(10));
        assert_eq!((all(&due.compact), due.next_time()), (vec![2, 3], Some(seconds(20))));
        due.end_pauses(seconds(25));
        assert_eq!((all(&due.idle), due.next_time()), (vec![1, 2, 3], None));
    }
    #[test]
    fn a_keyspace_has_one_time_at_which_entries_expire() {
        let mut due = DueTrees::default();
        let seconds = Duration::from_secs;
        due.await_time(1, Some(seconds(10)));
        due.await_time(1, Some(seconds(30)));
        due.await_time(2, Some(seconds(20)));
        due.await_time(3, Some(seconds(5)));
        due.await_time(3, None);
        assert_eq!(due.next_time(), Some(seconds(20)));
        due.end_pauses(seconds(20));
        assert_eq!((all(&due.compact), due.next_time()), (vec![2], Some(seconds(30))));
        due.end_pauses(seconds(40));
        assert_eq!((all(&due.compact), due.next_time()), (vec![1, 2], None));
    }
}
