//! Uncommitted writes of a transaction, and its savepoints.

use std::{
    collections::{BTreeMap, btree_map},
    sync::Arc,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use bytes::Bytes;

use crate::{
    Error, Result,
    commit::{Write, WriteEncoder},
    iter::bounds::KeyBounds,
    read::tree::Tree,
};

/// Writes to the keys of a keyspace; `None` is a removal.
pub(super) type Entries = BTreeMap<Bytes, Option<OwnValue>>;

/// A value that the transaction writes. It has not expired at the transaction's clock: an expired
/// value is stored as a removal.
#[derive(Debug, Clone)]
pub(super) struct OwnValue {
    pub(super) bytes: Bytes,
    /// By the store clock, in milliseconds; `None` if it does not expire.
    pub(super) expiry_ms: Option<u64>,
}

/// Memory of an entry besides its bytes: its part of a map node that is half full.
const ENTRY_BYTES: usize = 192;

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
    /// Oldest first.
    savepoints: Vec<SetSavepoint>,
    /// Entries as they were before writes since the first savepoint, oldest first.
    undo: Vec<Undo>,
}

#[derive(Debug)]
struct TreeWrites {
    tree: Arc<Tree>,
    entries: Entries,
}

#[derive(Debug)]
struct SetSavepoint {
    id: u64,
    /// Length of [`OwnWrites::undo`] when it was set.
    undo: usize,
}

#[derive(Debug)]
struct Undo {
    keyspace: usize,
    key: Bytes,
    /// `None` if there was no write to the key.
    before: Option<Option<OwnValue>>,
}

impl OwnWrites {
    pub(super) fn is_empty(&self) -> bool {
        self.keyspaces.iter().all(|writes| writes.entries.is_empty())
    }

    pub(super) fn len(&self) -> usize {
        self.keyspaces.iter().map(|writes| writes.entries.len()).sum()
    }

    /// Returns the memory of a write, in bytes, at most.
    pub(super) fn bytes(key: &[u8], value: Option<&[u8]>) -> usize {
        ENTRY_BYTES + key.len() + value.map_or(0, <[u8]>::len)
    }

    fn bytes_of(key: &[u8], value: Option<&OwnValue>) -> usize {
        Self::bytes(key, value.map(|value| &*value.bytes))
    }

    /// Returns the writes to a keyspace, if there are any.
    pub(super) fn entries(&self, tree: &Arc<Tree>) -> Option<&Entries> {
        let found = self.keyspaces.iter().find(|writes| Arc::ptr_eq(&writes.tree, tree));
        found.map(|writes| &writes.entries)
    }

    /// Returns the write to `key`; `Some(None)` is a removal.
    pub(super) fn get(&self, tree: &Arc<Tree>, key: &[u8]) -> Option<Option<&OwnValue>> {
        self.entries(tree)?.get(key).map(Option::as_ref)
    }

    /// Returns the writes within `bounds`, which must not be empty.
    pub(super) fn range<'w>(
        &'w self,
        tree: &Arc<Tree>,
        bounds: &KeyBounds,
    ) -> Option<btree_map::Range<'w, Bytes, Option<OwnValue>>> {
        Some(self.entries(tree)?.range::<[u8], _>(bounds.as_slices()))
    }

    /// Adds a write, which replaces an earlier one to the key. Returns the memory of the replaced
    /// one, in bytes; 0 if it is kept for a savepoint.
    pub(super) fn set(&mut self, tree: &Arc<Tree>, key: Bytes, value: Option<OwnValue>) -> usize {
        let known = self.keyspaces.iter().position(|writes| Arc::ptr_eq(&writes.tree, tree));
        let keyspace = known.unwrap_or_else(|| {
            self.keyspaces.push(TreeWrites { tree: Arc::clone(tree), entries: Entries::new() });
            self.keyspaces.len() - 1
        });
        let before = self.keyspaces[keyspace].entries.insert(key.clone(), value);
        if !self.savepoints.is_empty() {
            self.undo.push(Undo { keyspace, key, before });
            return 0;
        }
        before.map_or(0, |before| Self::bytes_of(&key, before.as_ref()))
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
        let mut bytes = 0;
        for Undo { keyspace, key, before } in self.undo.drain(first..).rev() {
            let entries = &mut self.keyspaces[keyspace].entries;
            let undone = match before {
                Some(before) => entries.insert(key.clone(), before),
                None => entries.remove(&key),
            };
            debug_assert!(undone.is_some(), "a write that is not there is undone");
            bytes += undone.map_or(0, |undone| Self::bytes_of(&key, undone.as_ref()));
        }
        Ok(bytes)
    }

    /// Removes `savepoint` and later ones. Their writes stay. Returns the memory freed, in bytes.
    pub(super) fn release(&mut self, savepoint: &Savepoint) -> Result<usize> {
        let at = self.find(savepoint)?;
        self.savepoints.truncate(at);
        if at > 0 {
            return Ok(0);
        }
        let replaced = self.undo.drain(..).filter_map(|undo| Some((undo.key, undo.before?)));
        Ok(replaced.map(|(key, before)| Self::bytes_of(&key, before.as_ref())).sum())
    }

    /// Returns the keyspaces written to, and their keys.
    pub(super) fn keys(&self) -> impl Iterator<Item = (&Arc<Tree>, &Bytes)> {
        self.keyspaces
            .iter()
            .flat_map(|writes| writes.entries.keys().map(move |key| (&writes.tree, key)))
    }

    /// Encodes the writes for a commit.
    ///
    /// # Errors
    ///
    /// Those of the encoder.
    pub(super) fn encode(&self, hash_seed: u64) -> Result<Write> {
        let mut encoder = WriteEncoder::new(hash_seed, 0);
        for writes in &self.keyspaces {
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
