//! Calls that read.

use std::ops::Bound;

use bytes::Bytes;
use sievedb::{Keyspace, Range};
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
            "iter" => self.compare(keyspace.iter(), entries.iter().map(own).collect()),
            "prefix" => {
                let prefix = key.slice(..self.lots.below(key.len() + 1));
                let wanted = entries.iter().filter(|(key, _)| key.starts_with(&prefix));
                self.compare(keyspace.prefix(&prefix), wanted.map(own).collect());
            }
            "range" => self.range(&keyspace, &entries, key, other),
            other => panic!("{other} is no call"),
        }
    }

    /// Keys in any order, with repetitions; sometimes in order, sometimes none.
    fn keys(&mut self) -> Vec<Bytes> {
        let count = self.lots.below(40);
        let mut keys: Vec<_> = (0..count).map(|_| self.key()).collect();
        if self.lots.chance(1, 3) {
            keys.sort_unstable();
        }
        keys
    }

    fn range(&mut self, keyspace: &Keyspace, entries: &Entries, one: Bytes, other: Bytes) {
        // One in a few ranges is upside down, and must be empty.
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
        let wanted = entries.iter().filter(|(key, _)| inside(key)).map(own).collect();
        if self.lots.chance(1, 5) {
            let keys: Vec<_> = entries.keys().filter(|key| inside(key)).cloned().collect();
            let read = keyspace.range(bounds).keys().collect::<Result<Vec<_>, _>>();
            assert_eq!(read.expect("nothing fails"), keys, "keys alone");
            return;
        }
        self.compare(keyspace.range(bounds), wanted);
    }

    fn bound(&mut self, key: Bytes) -> Bound<Bytes> {
        match self.lots.below(5) {
            0 => Bound::Unbounded,
            1 | 2 => Bound::Excluded(key),
            _ => Bound::Included(key),
        }
    }

    /// Reads `range` forwards, backwards or from both ends in turn; sometimes only its beginning.
    fn compare(&mut self, mut range: Range, wanted: Vec<(Bytes, Bytes)>) {
        let from_back_in_8 = [0, 8, self.lots.below(9)][self.lots.below(3)];
        let steps = if self.lots.chance(1, 2) { self.lots.below(20) } else { wanted.len() + 2 };
        let mut wanted = wanted.into_iter();
        for step in 0..steps {
            let from_back = self.lots.chance(from_back_in_8, 8);
            let read = if from_back { range.next_back() } else { range.next() };
            let want = if from_back { wanted.next_back() } else { wanted.next() };
            let read = read.transpose().expect("nothing fails");
            assert_eq!(read, want, "step {step} of a range, from the back: {from_back}");
        }
    }
}

fn own((key, value): (&Bytes, &Bytes)) -> (Bytes, Bytes) {
    (key.clone(), value.clone())
}
