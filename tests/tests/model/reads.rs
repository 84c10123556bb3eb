//! Reading calls.

use std::ops::Bound;

use bytes::Bytes;
use sievedb::{EntryRef, Keyspace, Range};
use sievedb_tests::model::{Entries, shown};

use super::calls::Story;

impl Story {
    pub(super) fn read(&mut self, call: &str) {
        let name = self.keyspace();
        let (key, other) = (self.key(), self.key());
        let keyspace = self.recorder.handle(&name).expect("it is there").clone();
        let entries = self.recorder.history().model().entries(&name).expect("it is there").clone();
        match call {
            "get" => {
                let got = keyspace.get(&key).expect("nothing fails");
                assert_eq!(got.as_ref(), entries.get(&key), "get {name} {}", shown(&key));
            }
            "contains_key" => {
                let contained = keyspace.contains_key(&key).expect("nothing fails");
                assert_eq!(contained, entries.contains_key(&key), "{name} {}", shown(&key));
            }
            "get_many" => {
                let keys = self.keys();
                let got = keyspace.get_many(&keys).expect("nothing fails");
                let wanted: Vec<_> = keys.iter().map(|key| entries.get(key).cloned()).collect();
                assert_eq!(got, wanted, "get_many {name} {keys:?}");
            }
            "contains_many" => {
                let keys = self.keys();
                let contained = keyspace.contains_many(&keys).expect("nothing fails");
                let wanted: Vec<_> = keys.iter().map(|key| entries.contains_key(key)).collect();
                assert_eq!(contained, wanted, "contains_many {name} {keys:?}");
            }
            "may_contain" => {
                let maybe = keyspace.may_contain(&key);
                assert!(maybe || !entries.contains_key(&key), "{name} {}", shown(&key));
            }
            "iter" => self.compare(keyspace.iter(), &entries.iter().map(own).collect::<Vec<_>>()),
            "prefix" => {
                let prefix = key.slice(..self.lots.below(key.len() + 1));
                let wanted = entries.iter().filter(|(key, _)| key.starts_with(&prefix));
                self.compare(keyspace.prefix(&prefix), &wanted.map(own).collect::<Vec<_>>());
            }
            "range" => self.range(&keyspace, &entries, key, other),
            other => panic!("{other} is no call"),
        }
    }

    /// Returns keys with repetitions, sorted or not, sometimes none.
    fn keys(&mut self) -> Vec<Bytes> {
        let count = self.lots.below(40);
        let mut keys: Vec<_> = (0..count).map(|_| self.key()).collect();
        if self.lots.chance(1, 3) {
            keys.sort_unstable();
        }
        keys
    }

    fn range(&mut self, keyspace: &Keyspace, entries: &Entries, one: Bytes, other: Bytes) {
        // A tenth of the ranges have swapped bounds, and must be empty.
        let upside_down = self.lots.chance(1, 10);
        let (low, high) = if (one > other) != upside_down { (other, one) } else { (one, other) };
        let bounds = (self.bound(low), self.bound(high));
        let inside = |key: &Bytes| {
            let above = match &bounds.0 {
                Bound::Included(low) => key >= low,
                Bound::Excluded(low) => key > low,
                Bound::Unbounded => true,
            };
            let below = match &bounds.1 {
                Bound::Included(high) => key <= high,
                Bound::Excluded(high) => key < high,
                Bound::Unbounded => true,
            };
            above && below
        };
        let wanted: Vec<_> = entries.iter().filter(|(key, _)| inside(key)).map(own).collect();
        if self.lots.chance(1, 5) {
            let keys: Vec<_> = entries.keys().filter(|key| inside(key)).cloned().collect();
            let read = keyspace.range(bounds).keys().collect::<Result<Vec<_>, _>>();
            assert_eq!(read.expect("nothing fails"), keys, "keys alone");
            return;
        }
        self.compare(keyspace.range(bounds), &wanted);
    }

    fn bound(&mut self, key: Bytes) -> Bound<Bytes> {
        match self.lots.below(5) {
            0 => Bound::Unbounded,
            1 | 2 => Bound::Excluded(key),
            _ => Bound::Included(key),
        }
    }

    /// Reads `range` forwards, backwards or alternately from both ends, sometimes only its start.
    /// Seeks in some, and writes meanwhile, which the range must not show.
    fn compare(&mut self, mut range: Range, wanted: &[(Bytes, Bytes)]) {
        let from_back_in_8 = [0, 8, self.lots.below(9)][self.lots.below(3)];
        let steps = if self.lots.chance(1, 2) { self.lots.below(20) } else { wanted.len() + 2 };
        let (seeks, lends) = (self.lots.chance(1, 3), self.lots.chance(1, 2));
        // Remaining entries, and whether an end has reported the end of the range.
        let (mut left, mut used_up) = (0..wanted.len(), false);
        for step in 0..steps {
            let from_back = self.lots.chance(from_back_in_8, 8);
            if seeks && self.lots.chance(1, 6) {
                // Half of the seeks are to present keys, so that cursors change direction.
                let near = wanted.get(self.lots.below(wanted.len() + 1));
                let key = near.map(|(key, _)| key.clone());
                let key = key.filter(|_| step % 2 == 0).unwrap_or_else(|| self.key());
                if from_back {
                    range.seek_back(&key);
                    left = 0..wanted.partition_point(|(other, _)| *other <= key);
                } else {
                    range.seek(&key);
                    left = wanted.partition_point(|(other, _)| *other < key)..wanted.len();
                }
                used_up = false;
            }
            if seeks && self.lots.chance(1, 40) {
                let change = *self.lots.pick(&[
                    "insert",
                    "remove",
                    "batch",
                    "remove range",
                    "flush keyspace",
                ]);
                self.carry_out(change);
            }
            let place = match from_back {
                _ if used_up => None,
                false => left.next(),
                true => left.next_back(),
            };
            used_up = place.is_none();
            let want = place.map(|place| wanted[place].clone());
            let read = match (lends, from_back) {
                (true, false) => {
                    range.next_ref().expect("nothing fails").map(|entry| own_ref(&entry))
                }
                (true, true) => {
                    range.next_back_ref().expect("nothing fails").map(|entry| own_ref(&entry))
                }
                (false, false) => range.next().transpose().expect("nothing fails"),
                (false, true) => range.next_back().transpose().expect("nothing fails"),
            };
            assert_eq!(read, want, "step {step} of a range, from the back: {from_back}");
        }
    }
}

fn own_ref(entry: &EntryRef<'_>) -> (Bytes, Bytes) {
    assert_eq!(entry.value(), entry.value_bytes());
    (Bytes::copy_from_slice(entry.key()), entry.value_bytes())
}

fn own((key, value): (&Bytes, &Bytes)) -> (Bytes, Bytes) {
    (key.clone(), value.clone())
}
