//! Which keyspaces may have a flush or a compaction due: those that changed since somebody looked and found
//! nothing. So a step of background work costs the same however many keyspaces there are.

use std::{collections::BTreeSet, mem};

use sievedb_format::SequenceNumber;

/// The ids of keyspaces that are to be looked at, ascending.
#[derive(Debug, Default)]
pub(super) struct DueTrees {
    /// May have frozen memtables.
    pub(super) flush: TreeIds,
    /// May have a compaction due.
    pub(super) compact: TreeIds,
    /// Have none due, and may have one as soon as the oldest snapshot is another one.
    behind_snapshot: BTreeSet<u64>,
    oldest_snapshot: Option<SequenceNumber>,
}

impl DueTrees {
    /// Notes that these keyspaces have changed, while the oldest snapshot is this one.
    pub(super) fn note(
        &mut self,
        changed: &BTreeSet<u64>,
        oldest_snapshot: Option<SequenceNumber>,
    ) {
        self.flush.add(changed.iter().copied());
        self.compact.add(changed.iter().copied());
        if mem::replace(&mut self.oldest_snapshot, oldest_snapshot) != oldest_snapshot {
            self.compact.add(mem::take(&mut self.behind_snapshot));
        }
    }

    /// Nothing is to be compacted in the keyspace `id` until it changes or, if it is `behind_snapshot`, until
    /// the oldest snapshot noted last is gone.
    pub(super) fn compact_later(&mut self, id: u64, behind_snapshot: bool) {
        self.compact.remove(id);
        if behind_snapshot {
            self.behind_snapshot.insert(id);
        } else {
            self.behind_snapshot.remove(&id);
        }
    }
}

/// Ids of keyspaces that are gone through while some of them are taken out.
#[derive(Debug, Default)]
pub(super) struct TreeIds(BTreeSet<u64>);

impl TreeIds {
    pub(super) fn add(&mut self, ids: impl IntoIterator<Item = u64>) {
        self.0.extend(ids);
    }

    pub(super) fn remove(&mut self, id: u64) {
        self.0.remove(&id);
    }

    /// The smallest id from `from` on.
    pub(super) fn first_from(&self, from: u64) -> Option<u64> {
        self.0.range(from..).next().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(ids: &TreeIds) -> Vec<u64> {
        ids.0.iter().copied().collect()
    }

    #[test]
    fn a_keyspace_is_looked_at_until_nothing_is_due() {
        let mut due = DueTrees::default();
        due.note(&BTreeSet::from([3, 5, 9]), None);
        due.compact_later(5, false);
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
        let mut due = DueTrees::default();
        due.note(&BTreeSet::from([1, 2, 3]), Some(7));
        due.compact_later(1, true);
        due.compact_later(2, false);
        due.compact_later(3, true);
        due.note(&BTreeSet::new(), Some(7));
        assert_eq!(all(&due.compact), [], "the snapshot is still there");
        due.compact_later(3, false);
        due.note(&BTreeSet::new(), None);
        assert_eq!(all(&due.compact), [1]);
    }
}
