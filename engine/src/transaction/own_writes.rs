//! Uncommitted writes of a transaction, and its savepoints.

use std::{
    collections::{BTreeMap, btree_map},
    sync::Arc,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use bytes::Bytes;

use super::removed_ranges::{RemovedRange, RemovedRanges, bounds};
use crate::{
    Error, Result,
    commit::{Write, WriteEncoder},
    iter::bounds::KeyBounds,
    read::tree::Tree,
};

/// Writes to the keys of a keyspace; `None` is a removal.
pub(super) type Entries = BTreeMap<Bytes, Option<OwnValue>>;

/// A value written by the transaction. It has not expired at the transaction's clock: an expired
/// value is stored as a removal.
#[derive(Debug, Clone)]
pub(super) struct OwnValue {
    pub(super) bytes: Bytes,
    /// Expiry by the store clock, in milliseconds; `None` if it does not expire.
    pub(super) expiry_ms: Option<u64>,
}

/// Memory of an entry besides its bytes: its part of a map node that is half full.
const ENTRY_BYTES: usize = 192;
/// Memory of a step that undoes a write, besides what it keeps: the list grows by doubling.
const UNDO_BYTES: usize = 2 * size_of::<Undo>();

static NEXT_SAVEPOINT: AtomicU64 = AtomicU64::new(0);

/// A point in a transaction to which its writes can be [rolled
/// back](crate::Transaction::rollback_to).
///
/// Dropping it does not release it: the savepoint then stays set until the end of the transaction.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "without the savepoint the transaction cannot be rolled back to it"]
pub struct Savepoint(u64);

/// The writes of a transaction by keyspace.
#[derive(Debug, Default)]
pub(super) struct OwnWrites {
    keyspaces: Vec<TreeWrites>,
    /// Savepoints, oldest first.
    savepoints: Vec<SetSavepoint>,
    /// Steps that undo the writes since the first savepoint, oldest first.
    undo: Vec<Undo>,
}

/// The writes to a keyspace.
#[derive(Debug)]
pub(super) struct TreeWrites {
    tree: Arc<Tree>,
    /// Writes to keys, later than the removals of ranges.
    entries: Entries,
    removed: RemovedRanges,
}

#[derive(Debug)]
struct SetSavepoint {
    id: u64,
    /// Length of [`OwnWrites::undo`] when the savepoint was set.
    undo: usize,
}

#[derive(Debug)]
struct Undo {
    keyspace: usize,
    write: UndoWrite,
}

#[derive(Debug)]
enum UndoWrite {
    /// A write to a key; `before` is `None` if there was none.
    Set { key: Bytes, before: Option<Option<OwnValue>> },
    /// A dropped write to a key whose range was removed later.
    Dropped { key: Bytes, before: Option<OwnValue> },
    /// A removal of a range that replaced others.
    Removed { merged: RemovedRange, replaced: Vec<RemovedRange> },
}

impl UndoWrite {
    /// Returns the memory that is kept only to undo the write, in bytes.
    fn kept_bytes(&self) -> usize {
        match self {
            Self::Set { before: None, .. } => 0,
            Self::Set { key, before: Some(before) } | Self::Dropped { key, before } => {
                OwnWrites::bytes_of(key, before.as_ref())
            }
            Self::Removed { replaced, .. } => replaced.iter().map(OwnWrites::range_bytes).sum(),
        }
    }
}

impl TreeWrites {
    /// Returns the write to `key`; `Some(None)` is a removal.
    pub(super) fn get(&self, key: &[u8]) -> Option<Option<&OwnValue>> {
        let written = self.entries.get(key).map(Option::as_ref);
        written.or_else(|| self.removed.contain(key).then_some(None))
    }
}

impl OwnWrites {
    pub(super) fn is_empty(&self) -> bool {
        self.keyspaces.iter().all(|it| it.entries.is_empty() && it.removed.is_empty())
    }

    pub(super) fn len(&self) -> usize {
        self.keyspaces.iter().map(|writes| writes.entries.len() + writes.removed.len()).sum()
    }

    /// Returns the maximum memory of a write, in bytes.
    pub(super) fn bytes(key: &[u8], value: Option<&[u8]>) -> usize {
        ENTRY_BYTES + key.len() + value.map_or(0, <[u8]>::len)
    }

    fn bytes_of(key: &[u8], value: Option<&OwnValue>) -> usize {
        Self::bytes(key, value.map(|value| &*value.bytes))
    }

    /// Returns the maximum memory of a removal of a range, in bytes.
    fn range_bytes((start, end): &RemovedRange) -> usize {
        ENTRY_BYTES + start.len() + end.len()
    }

    /// Returns the writes to a keyspace.
    pub(super) fn of(&self, tree: &Arc<Tree>) -> Option<&TreeWrites> {
        self.keyspaces.iter().find(|writes| Arc::ptr_eq(&writes.tree, tree))
    }

    /// Returns `true` if nothing is written to the keyspace.
    pub(super) fn has_none(&self, tree: &Arc<Tree>) -> bool {
        self.of(tree).is_none()
    }

    /// Returns the write to `key`; `Some(None)` is a removal.
    pub(super) fn get(&self, tree: &Arc<Tree>, key: &[u8]) -> Option<Option<&OwnValue>> {
        self.of(tree)?.get(key)
    }

    /// Returns the removed ranges of a keyspace, if any.
    pub(super) fn removed(&self, tree: &Arc<Tree>) -> Option<&RemovedRanges> {
        self.of(tree).map(|writes| &writes.removed).filter(|removed| !removed.is_empty())
    }

    /// Returns the writes within `bounds`, which must not be empty.
    pub(super) fn range<'w>(
        &'w self,
        tree: &Arc<Tree>,
        bounds: &KeyBounds,
    ) -> Option<btree_map::Range<'w, Bytes, Option<OwnValue>>> {
        Some(self.of(tree)?.entries.range::<[u8], _>(bounds.as_slices()))
    }

    /// Adds a write, which replaces an earlier one to the key. Returns the memory of the replaced
    /// one, in bytes; 0 if a savepoint keeps it.
    pub(super) fn set(&mut self, tree: &Arc<Tree>, key: Bytes, value: Option<OwnValue>) -> usize {
        let keyspace = self.index(tree);
        let before = self.keyspaces[keyspace].entries.insert(key.clone(), value);
        self.note(keyspace, UndoWrite::Set { key, before })
    }

    fn index(&mut self, tree: &Arc<Tree>) -> usize {
        let known = self.keyspaces.iter().position(|writes| Arc::ptr_eq(&writes.tree, tree));
        known.unwrap_or_else(|| {
            let (entries, removed) = (Entries::new(), RemovedRanges::default());
            self.keyspaces.push(TreeWrites { tree: Arc::clone(tree), entries, removed });
            self.keyspaces.len() - 1
        })
    }

    /// Keeps the step that undoes a write, if a savepoint is set. Returns the memory that is freed
    /// otherwise, in bytes.
    fn note(&mut self, keyspace: usize, write: UndoWrite) -> usize {
        if self.savepoints.is_empty() {
            return write.kept_bytes();
        }
        self.undo.push(Undo { keyspace, write });
        0
    }

    /// Returns the memory, in bytes, of the steps that undo `writes` writes, if a savepoint is set.
    pub(super) fn undo_bytes(&self, writes: usize) -> usize {
        if self.savepoints.is_empty() { 0 } else { writes * UNDO_BYTES }
    }

    /// Returns the memory, in bytes, that [`remove_range`](Self::remove_range) of `range` takes.
    pub(super) fn remove_range_bytes(&self, tree: &Arc<Tree>, range: &RemovedRange) -> usize {
        let merged = self.removed(tree).map(|removed| removed.merge(range.clone()).0);
        let within = self.range(tree, &bounds(&range.0, &range.1));
        let dropped = within.map_or(0, Iterator::count);
        Self::range_bytes(merged.as_ref().unwrap_or(range)) + self.undo_bytes(dropped + 1)
    }

    /// Adds a removal of a range, and drops the earlier writes to its keys. Returns the memory of
    /// the replaced writes, in bytes; 0 if a savepoint keeps them.
    pub(super) fn remove_range(&mut self, tree: &Arc<Tree>, range: RemovedRange) -> usize {
        let keyspace = self.index(tree);
        let TreeWrites { entries, removed, .. } = &mut self.keyspaces[keyspace];
        let within = bounds(&range.0, &range.1);
        let keys = entries.range::<[u8], _>(within.as_slices()).map(|(key, _)| key.clone());
        let mut undo = Vec::new();
        for key in keys.collect::<Vec<_>>() {
            let before = entries.remove(&key).expect("the key was found");
            undo.push(UndoWrite::Dropped { key, before });
        }
        let (merged, replaced) = removed.merge(range);
        removed.replace(&replaced, std::slice::from_ref(&merged));
        undo.push(UndoWrite::Removed { merged, replaced });
        undo.into_iter().map(|write| self.note(keyspace, write)).sum()
    }

    pub(super) fn set_savepoint(&mut self) -> Savepoint {
        let id = NEXT_SAVEPOINT.fetch_add(1, Relaxed);
        self.savepoints.push(SetSavepoint { id, undo: self.undo.len() });
        debug_assert!(self.savepoints.is_sorted_by_key(|set| (set.id, set.undo)));
        Savepoint(id)
    }

    fn find(&self, savepoint: &Savepoint) -> Result<usize> {
        let found = self.savepoints.iter().position(|set| set.id == savepoint.0);
        found.ok_or(Error::NoSavepoint)
    }

    /// Undoes the writes since `savepoint`, which stays, and removes later savepoints. Returns the
    /// memory of the undone writes, in bytes.
    pub(super) fn rollback_to(&mut self, savepoint: &Savepoint) -> Result<usize> {
        let at = self.find(savepoint)?;
        self.savepoints.truncate(at + 1);
        let first = self.savepoints[at].undo;
        debug_assert!(first <= self.undo.len(), "the list of writes has shrunk");
        let mut bytes = self.undo_bytes(self.undo.len() - first);
        for Undo { keyspace, write } in self.undo.drain(first..).rev() {
            let TreeWrites { entries, removed, .. } = &mut self.keyspaces[keyspace];
            match write {
                UndoWrite::Set { key, before } => {
                    let undone = match before {
                        Some(before) => entries.insert(key.clone(), before),
                        None => entries.remove(&key),
                    };
                    debug_assert!(undone.is_some(), "a write that is not there is undone");
                    bytes += undone.map_or(0, |undone| Self::bytes_of(&key, undone.as_ref()));
                }
                UndoWrite::Dropped { key, before } => {
                    let replaced = entries.insert(key, before);
                    debug_assert!(replaced.is_none(), "a later write was undone before");
                }
                UndoWrite::Removed { merged, replaced } => {
                    bytes += Self::range_bytes(&merged);
                    removed.replace(&[merged], &replaced);
                }
            }
        }
        self.undo.shrink_to(2 * first);
        Ok(bytes)
    }

    /// Removes `savepoint` and later ones. Their writes stay. Returns the memory freed, in bytes.
    pub(super) fn release(&mut self, savepoint: &Savepoint) -> Result<usize> {
        let at = self.find(savepoint)?;
        self.savepoints.truncate(at);
        if at > 0 {
            return Ok(0);
        }
        let undo = std::mem::take(&mut self.undo);
        Ok(undo.iter().map(|undo| UNDO_BYTES + undo.write.kept_bytes()).sum())
    }

    /// Returns the keyspaces written to, and their keys.
    pub(super) fn keys(&self) -> impl Iterator<Item = (&Arc<Tree>, &Bytes)> {
        self.keyspaces
            .iter()
            .flat_map(|writes| writes.entries.keys().map(move |key| (&writes.tree, key)))
    }

    /// Returns the keyspaces written to, and their removed ranges.
    pub(super) fn removed_ranges(&self) -> impl Iterator<Item = (&Arc<Tree>, KeyBounds)> {
        self.keyspaces
            .iter()
            .flat_map(|writes| writes.removed.iter().map(move |range| (&writes.tree, range)))
    }

    /// Encodes the writes for a commit. For each keyspace, the ranges come first, then the keys,
    /// which are later.
    ///
    /// # Errors
    ///
    /// Those of the encoder.
    pub(super) fn encode(&self, hash_seed: u64) -> Result<Write> {
        let mut encoder = WriteEncoder::new(hash_seed, 0);
        for writes in &self.keyspaces {
            for range in writes.removed.iter() {
                encoder.remove_range(&writes.tree, &range)?;
            }
            for (key, value) in &writes.entries {
                match value {
                    Some(OwnValue { bytes, expiry_ms }) => {
                        encoder.put_value(&writes.tree, key, *expiry_ms, bytes)?;
                    }
                    None => encoder.remove(&writes.tree, key)?,
                }
            }
        }
        Ok(encoder.finish())
    }
}
