//! What a store must contain: keyspaces, their merge operators, and values that expire.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::{Bound, RangeBounds as _},
    sync::Arc,
};

use bytes::Bytes;
use sievedb_tests::model::{KeyRange, Name, shown};

use super::{
    filter::{Version, is_filtered},
    history::Found,
    operator::Operator,
};

/// Values and operands of a key. Time decides which of them are visible.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    /// A value that expires, and when, in milliseconds of the store clock.
    expiring: Option<(Bytes, u64)>,
    /// A value that stays, or the operands over the expiring value.
    rest: Option<Rest>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Rest {
    Value(Bytes),
    Operands(Bytes),
    /// The operator refuses what was written.
    Fails,
}

/// Result of a read of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Seen {
    Value(Bytes),
    /// [`MergeFailed`](sievedb::Error::MergeFailed).
    MergeFails,
}

impl Seen {
    /// Returns the value, if a read of it succeeds.
    pub(super) fn value(&self) -> Option<&Bytes> {
        match self {
            Self::Value(value) => Some(value),
            Self::MergeFails => None,
        }
    }
}

/// An expiry that never comes.
pub(super) const NEVER: u64 = u64::MAX;

impl Entry {
    fn put(value: Bytes, expiry_ms: u64) -> Self {
        if expiry_ms == NEVER {
            return Self { expiring: None, rest: Some(Rest::Value(value)) };
        }
        Self { expiring: Some((value, expiry_ms)), rest: None }
    }

    fn merge(&mut self, operator: Operator, operand: &Bytes) {
        let join = |old: &[u8]| operator.join(old, operand).map(Bytes::from);
        self.rest = Some(match &self.rest {
            None => Rest::Operands(operand.clone()),
            Some(Rest::Value(old)) => join(old).map_or(Rest::Fails, Rest::Value),
            Some(Rest::Operands(old)) => join(old).map_or(Rest::Fails, Rest::Operands),
            Some(Rest::Fails) => Rest::Fails,
        });
    }

    /// Returns what a read at this time sees.
    pub(super) fn seen(&self, operator: Operator, now_ms: u64) -> Option<Seen> {
        let base = self.expiring.as_ref().filter(|(_, expiry_ms)| now_ms < *expiry_ms);
        let value = match (base, &self.rest) {
            (None, None) => return None,
            (_, Some(Rest::Fails)) => return Some(Seen::MergeFails),
            (Some((base, _)), None) => Some(base.clone()),
            (_, Some(Rest::Value(value))) => Some(value.clone()),
            (Some((base, _)), Some(Rest::Operands(operands))) => {
                operator.join(base, operands).map(Bytes::from)
            }
            // A single operand is read as it is by some operators, and checked by others.
            (None, Some(Rest::Operands(operands))) => {
                operator.is_valid(operands).then(|| operands.clone())
            }
        };
        Some(value.map_or(Seen::MergeFails, Seen::Value))
    }

    /// Returns when the visible value, or the part of it below its operands, expires.
    pub(super) fn expiry_ms(&self, now_ms: u64) -> Option<u64> {
        let base = self.expiring.as_ref().filter(|(_, expiry_ms)| now_ms < *expiry_ms);
        base.map(|(_, expiry_ms)| *expiry_ms)
    }
}

/// Options of a keyspace that the model knows.
#[derive(Debug, Clone, Copy)]
pub(super) struct Style {
    pub(super) operator: Operator,
    pub(super) has_filter: bool,
    pub(super) default_ttl_ms: Option<u64>,
}

/// A keyspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Space {
    /// Distinguishes keyspaces of the same name.
    pub(super) id: u64,
    pub(super) operator: Operator,
    /// Compactions remove and replace values.
    pub(super) has_filter: bool,
    /// Of values that are written without one, in milliseconds.
    pub(super) default_ttl_ms: Option<u64>,
    pub(super) entries: BTreeMap<Bytes, Entry>,
}

impl Space {
    /// Returns when a value expires that is written without a TTL.
    pub(super) fn default_expiry_ms(&self, now_ms: u64) -> u64 {
        self.default_ttl_ms.map_or(NEVER, |ttl_ms| now_ms + ttl_ms)
    }

    /// Returns whether operands may be written to a key.
    pub(super) fn merges(&self, key: &[u8]) -> bool {
        self.operator != Operator::None && !(self.has_filter && is_filtered(key))
    }

    pub(super) fn get(&self, key: &[u8], now_ms: u64) -> Option<Seen> {
        self.entries.get(key)?.seen(self.operator, now_ms)
    }

    /// Returns the visible entries of a range, ascending.
    pub(super) fn range<'s>(
        &'s self,
        range: &KeyRange,
        now_ms: u64,
    ) -> impl DoubleEndedIterator<Item = (&'s Bytes, Seen)> + use<'s> {
        let bounds = if is_empty(range) {
            (Bound::Excluded(Bytes::new()), Bound::Included(Bytes::new()))
        } else {
            range.clone()
        };
        let entries = self.entries.range(bounds);
        entries.filter_map(move |(key, entry)| Some((key, entry.seen(self.operator, now_ms)?)))
    }

    /// Replaces what a key has.
    pub(super) fn set(&mut self, key: Bytes, version: Option<Version>) {
        match version {
            Some((Seen::Value(value), expiry_ms)) => {
                drop(self.entries.insert(key, Entry::put(value, expiry_ms.unwrap_or(NEVER))));
            }
            _ => drop(self.entries.remove(&key)),
        }
    }

    /// As [`get`](Self::get), with the expiry.
    pub(super) fn get_with_expiry(&self, key: &[u8], now_ms: u64) -> Option<(Seen, Option<u64>)> {
        let entry = self.entries.get(key)?;
        Some((entry.seen(self.operator, now_ms)?, entry.expiry_ms(now_ms)))
    }

    /// Returns all visible entries, ascending, with their expiry.
    pub(super) fn all_with_expiry(
        &self,
        now_ms: u64,
    ) -> impl Iterator<Item = (&Bytes, (Seen, Option<u64>))> {
        self.entries.iter().filter_map(move |(key, entry)| {
            Some((key, (entry.seen(self.operator, now_ms)?, entry.expiry_ms(now_ms))))
        })
    }

    /// Returns all visible entries, ascending.
    pub(super) fn all(&self, now_ms: u64) -> impl DoubleEndedIterator<Item = (&Bytes, Seen)> {
        let entries = self.entries.iter();
        entries.filter_map(move |(key, entry)| Some((key, entry.seen(self.operator, now_ms)?)))
    }
}

/// Returns whether no key can be within `range`.
pub(super) fn is_empty(range: &KeyRange) -> bool {
    use Bound::{Excluded, Included, Unbounded};
    match range {
        (Unbounded, Excluded(end)) => end.is_empty(),
        (Included(start), Included(end)) => start > end,
        (Included(start) | Excluded(start), Excluded(end)) | (Excluded(start), Included(end)) => {
            start >= end
        }
        (_, Unbounded) | (Unbounded, Included(_)) => false,
    }
}

/// Returns the range of the keys with a prefix.
pub(super) fn prefix_range(prefix: &[u8]) -> KeyRange {
    let mut end = prefix.to_vec();
    while end.last() == Some(&0xff) {
        end.pop();
    }
    let start = Bound::Included(Bytes::copy_from_slice(prefix));
    let Some(last) = end.last_mut() else { return (start, Bound::Unbounded) };
    *last += 1;
    (start, Bound::Excluded(end.into()))
}

/// A change of a write.
#[derive(Debug, Clone)]
pub(super) enum Change {
    Put { keyspace: Name, key: Bytes, value: Bytes, expiry_ms: u64 },
    Remove { keyspace: Name, key: Bytes },
    Merge { keyspace: Name, key: Bytes, operand: Bytes },
    RemoveRange { keyspace: Name, range: KeyRange },
    Create { keyspace: Name, id: u64, style: Style },
    Clear { keyspace: Name },
    Rename { keyspace: Name, to: Name },
    Drop { keyspace: Name },
}

impl Change {
    /// Returns `true` if the store writes nothing for it.
    pub(super) fn is_nothing(&self) -> bool {
        let Self::RemoveRange { range, .. } = self else { return false };
        // No key is between a key and the one with a zero byte more.
        let has_no_room = |start: &Bytes, end: &Bytes| *end <= [start, &b"\0"[..]].concat();
        is_empty(range)
            || matches!(range, (Bound::Excluded(start), Bound::Excluded(end))
                if has_no_room(start, end))
    }

    /// Describes the change in a few words.
    pub(super) fn text(&self) -> String {
        match self {
            Self::Put { keyspace, key, value, expiry_ms: NEVER } => {
                format!("put {keyspace} {} = {}", shown(key), shown(value))
            }
            Self::Put { keyspace, key, value, expiry_ms } => {
                format!("put {keyspace} {} = {} until {expiry_ms}", shown(key), shown(value))
            }
            Self::Remove { keyspace, key } => format!("remove {keyspace} {}", shown(key)),
            Self::Merge { keyspace, key, operand } => {
                format!("merge {keyspace} {} + {}", shown(key), shown(operand))
            }
            Self::RemoveRange { keyspace, range } => format!("remove {keyspace} {range:?}"),
            Self::Create { keyspace, style, .. } => format!("create {keyspace} {style:?}"),
            Self::Clear { keyspace } => format!("clear {keyspace}"),
            Self::Rename { keyspace, to } => format!("rename {keyspace} to {to}"),
            Self::Drop { keyspace } => format!("drop {keyspace}"),
        }
    }
}

/// The keyspaces of a store. A copy is cheap.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Contents {
    pub(super) spaces: BTreeMap<Name, Arc<Space>>,
}

impl Contents {
    pub(super) fn space(&self, name: &str) -> Option<&Arc<Space>> {
        self.spaces.get(name)
    }

    /// Returns the keyspace with this id and its name.
    pub(super) fn of_id(&self, id: u64) -> Option<(&Name, &Arc<Space>)> {
        self.spaces.iter().find(|(_, space)| space.id == id)
    }

    /// Drops what has expired.
    pub(super) fn forget_expired(&mut self, now_ms: u64) {
        for space in self.spaces.values_mut() {
            Arc::make_mut(space).entries.retain(|_, entry| {
                entry.expiring.take_if(|(_, expiry_ms)| now_ms >= *expiry_ms);
                entry.expiring.is_some() || entry.rest.is_some()
            });
        }
    }

    /// Takes the values over that a compaction filter has left.
    pub(super) fn adopt(&mut self, found: &Found, now_ms: u64) {
        for (name, found) in found {
            let Some(space) = self.entries(name).filter(|space| space.has_filter) else { continue };
            let wanted: Vec<_> =
                space.all_with_expiry(now_ms).map(|(key, _)| key.clone()).collect();
            for key in wanted {
                let at = found.binary_search_by(|(other, _)| other.cmp(&key));
                let left = at.ok().map(|at| found[at].1.clone());
                if left != space.get_with_expiry(&key, now_ms) {
                    space.set(key, left);
                }
            }
        }
    }

    /// Returns the keys whose entries differ between states with the same keyspaces.
    pub(super) fn differing_keys(&self, other: &Self) -> Vec<(Name, Bytes)> {
        let mut differing = Vec::new();
        for ((name, one), (_, other)) in self.spaces.iter().zip(&other.spaces) {
            if Arc::ptr_eq(one, other) {
                continue;
            }
            let keys: BTreeSet<_> = one.entries.keys().chain(other.entries.keys()).collect();
            let differs = |key: &&&Bytes| one.entries.get(**key) != other.entries.get(**key);
            differing.extend(keys.iter().filter(differs).map(|&key| (name.clone(), key.clone())));
        }
        differing
    }

    pub(super) fn entries(&mut self, name: &Name) -> Option<&mut Space> {
        self.spaces.get_mut(name).map(Arc::make_mut)
    }

    /// Applies a change. One to a missing keyspace has no effect.
    pub(super) fn apply(&mut self, change: &Change) {
        match change {
            Change::Put { keyspace, key, value, expiry_ms } => {
                let Some(space) = self.entries(keyspace) else { return };
                space.entries.insert(key.clone(), Entry::put(value.clone(), *expiry_ms));
            }
            Change::Remove { keyspace, key } => {
                let Some(space) = self.entries(keyspace) else { return };
                space.entries.remove(key);
            }
            Change::Merge { keyspace, key, operand } => {
                let Some(space) = self.entries(keyspace) else { return };
                let nothing = Entry { expiring: None, rest: None };
                let entry = space.entries.entry(key.clone()).or_insert(nothing);
                entry.merge(space.operator, operand);
            }
            Change::RemoveRange { keyspace, range } => {
                let Some(space) = self.entries(keyspace) else { return };
                if !is_empty(range) {
                    space.entries.extract_if(range.clone(), |_, _| true).for_each(drop);
                }
            }
            Change::Create { keyspace, id, style } => {
                let Style { operator, has_filter, default_ttl_ms } = *style;
                let (id, entries) = (*id, BTreeMap::new());
                let space = Space { id, operator, has_filter, default_ttl_ms, entries };
                self.spaces.insert(keyspace.clone(), Arc::new(space));
            }
            Change::Clear { keyspace } => {
                let Some(space) = self.entries(keyspace) else { return };
                space.entries.clear();
            }
            Change::Rename { keyspace, to } => {
                let Some(space) = self.spaces.remove(keyspace) else { return };
                self.spaces.insert(to.clone(), space);
            }
            Change::Drop { keyspace } => drop(self.spaces.remove(keyspace)),
        }
    }
}

/// Returns whether `range` has `key`.
pub(super) fn contains(range: &KeyRange, key: &Bytes) -> bool {
    !is_empty(range) && range.contains(key)
}
