//! What a transaction has written: keys, and ranges that it has removed.

use std::{collections::BTreeMap, ops::Bound};

use bytes::Bytes;
use sievedb_tests::model::{KeyRange, Name};

use super::model::{Change, Contents, NEVER, contains, is_empty};

/// A value, and when it expires.
pub(super) type OwnValue = (Bytes, u64);

/// The writes of a transaction.
#[derive(Debug, Clone, Default)]
pub(super) struct OwnWrites {
    /// Later than the removals of ranges. `None` is a removal.
    keys: BTreeMap<(u64, Bytes), Option<OwnValue>>,
    removed: BTreeMap<u64, Vec<Removed>>,
}

/// The first key of a range, and the first one behind it; `None` without an upper bound.
type Removed = (Bytes, Option<Bytes>);

fn behind(key: &Bytes) -> Bytes {
    [key, &b"\0"[..]].concat().into()
}

fn has((start, end): &Removed, key: &Bytes) -> bool {
    start <= key && end.as_ref().is_none_or(|end| key < end)
}

/// Returns the keys of a range, if there can be any.
fn removed(range: &KeyRange) -> Option<Removed> {
    let start = match &range.0 {
        Bound::Unbounded => Bytes::new(),
        Bound::Included(key) => key.clone(),
        Bound::Excluded(key) => behind(key),
    };
    let end = match &range.1 {
        Bound::Unbounded => None,
        Bound::Included(key) => Some(behind(key)),
        Bound::Excluded(key) => Some(key.clone()),
    };
    let is_nothing = is_empty(range) || end.as_ref().is_some_and(|end| *end <= start);
    (!is_nothing).then_some((start, end))
}

fn bounds((start, end): &Removed) -> KeyRange {
    let end = end.clone().map_or(Bound::Unbounded, Bound::Excluded);
    (Bound::Included(start.clone()), end)
}

impl OwnWrites {
    /// Returns the write to a key; `Some(None)` is a removal.
    pub(super) fn get(&self, id: u64, key: &Bytes) -> Option<Option<&OwnValue>> {
        let written = self.keys.get(&(id, key.clone())).map(Option::as_ref);
        written.or_else(|| self.is_in_removed(id, key).then_some(None))
    }

    /// Returns whether a key is in a removed range, written again or not.
    pub(super) fn is_in_removed(&self, id: u64, key: &Bytes) -> bool {
        self.removed.get(&id).is_some_and(|all| all.iter().any(|range| has(range, key)))
    }

    /// Adds a write of a value at `now_ms`. An expired one is a removal.
    pub(super) fn put(&mut self, id: u64, key: Bytes, value: Bytes, expiry_ms: u64, now_ms: u64) {
        let value = (now_ms < expiry_ms).then_some((value, expiry_ms));
        self.keys.insert((id, key), value);
    }

    pub(super) fn remove(&mut self, id: u64, key: Bytes) {
        self.keys.insert((id, key), None);
    }

    pub(super) fn remove_range(&mut self, id: u64, range: &KeyRange) {
        let Some(mut merged) = removed(range) else { return };
        self.keys.retain(|(of, key), _| *of != id || !contains(range, key));
        let all = self.removed.entry(id).or_default();
        all.retain(|(start, end)| {
            let is_before = end.as_ref().is_some_and(|end| *end < merged.0);
            let is_behind = merged.1.as_ref().is_some_and(|end| end < start);
            if is_before || is_behind {
                return true;
            }
            merged.0 = merged.0.clone().min(start.clone());
            merged.1 = merged.1.clone().zip(end.clone()).map(|(one, other)| one.max(other));
            false
        });
        all.push(merged);
        all.sort();
    }

    /// Returns the number of keys and of disjoint ranges.
    pub(super) fn len(&self) -> usize {
        self.keys.len() + self.removed.values().map(Vec::len).sum::<usize>()
    }

    /// Returns the writes to keys of a keyspace, ascending.
    pub(super) fn of(&self, id: u64) -> impl Iterator<Item = (&Bytes, Option<&OwnValue>)> {
        let from = (id, Bytes::new());
        let of_id = self.keys.range(from..).take_while(move |((of, _), _)| *of == id);
        of_id.map(|((_, key), value)| (key, value.as_ref()))
    }

    /// Returns the keyspaces that are written to, some repeatedly.
    pub(super) fn ids(&self) -> impl Iterator<Item = u64> {
        let of_ranges = self.removed.iter().filter(|(_, all)| !all.is_empty()).map(|(id, _)| *id);
        self.keys.keys().map(|(id, _)| *id).chain(of_ranges)
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = (u64, Bytes)> {
        self.keys.keys().cloned()
    }

    pub(super) fn ranges(&self) -> impl Iterator<Item = (u64, KeyRange)> {
        let all = |(id, all): (&u64, &'_ Vec<Removed>)| {
            let id = *id;
            all.iter().map(move |range| (id, bounds(range))).collect::<Vec<_>>()
        };
        self.removed.iter().flat_map(all)
    }

    /// Returns the writes to keyspaces that still exist, ranges first.
    pub(super) fn changes(&self, now: &Contents) -> Vec<Change> {
        let name = |id| now.of_id(id).map(|(name, _)| Name::clone(name));
        let ranges = self
            .ranges()
            .filter_map(|(id, range)| Some(Change::RemoveRange { keyspace: name(id)?, range }));
        let keys = self.keys.iter().filter_map(|((id, key), value)| {
            let (keyspace, key) = (name(*id)?, key.clone());
            Some(match value.clone() {
                Some((value, expiry_ms)) => Change::Put { keyspace, key, value, expiry_ms },
                None => Change::Remove { keyspace, key },
            })
        });
        ranges.chain(keys).collect()
    }
}

/// Returns when a value expires, if it does.
pub(super) fn expiry_of((_, expiry_ms): &OwnValue) -> Option<u64> {
    (*expiry_ms != NEVER).then_some(*expiry_ms)
}
