//! Removal of the first or the last entry.

use std::{ops::Bound, sync::Arc};

use bytes::Bytes;

use super::Keyspace;
use crate::{
    Error, Result,
    commit::WriteEncoder,
    held_sequence::HeldSequence,
    iter::{bounds::KeyBounds, range::End},
    reader::Reader,
    validation::{read_set::ReadSet, unchanged::Unchanged},
};

impl Keyspace {
    /// Removes the entry at `end`, and returns it.
    ///
    /// Depends on the keys from the end up to the entry: the call is retried if another write adds
    /// or removes a key there.
    pub(crate) fn pop(&self, end: End) -> Result<Option<(Bytes, Bytes)>> {
        let store = self.open.accept()?;
        loop {
            let held = HeldSequence::new(Arc::clone(&self.open));
            let reader = Reader { snapshot: Some(held.read_point()), ..self.reader() };
            let mut range = reader.range(KeyBounds::ALL).read_ahead_bytes_max(0);
            let (entry, bounds) = match end {
                End::Front => (range.next(), KeyBounds::up_to as fn(&Bytes) -> KeyBounds),
                End::Back => (range.next_back(), KeyBounds::down_to as fn(&Bytes) -> KeyBounds),
            };
            drop(range);
            let Some((key, value)) = entry.transpose()? else { return Ok(None) };
            let mut set = ReadSet::default();
            set.add_range(&self.tree, bounds(&key));
            let mut write = WriteEncoder::single_remove(store.hash_seed, &self.tree, &key)?;
            let mut unchanged = match Unchanged::new(store, set, held.sequence()) {
                Ok(unchanged) => unchanged,
                Err(Error::Conflict { .. }) => continue,
                Err(error) => return Err(error),
            };
            if store.commit(&mut write, self.durability(store), &mut unchanged)?.is_some() {
                return Ok(Some((key, value)));
            }
        }
    }
}

impl KeyBounds {
    /// Returns the bounds of all keys up to `key`.
    fn up_to(key: &Bytes) -> Self {
        Self { start: Bound::Unbounded, end: Bound::Included(key.clone()) }
    }

    /// Returns the bounds of all keys from `key` on.
    fn down_to(key: &Bytes) -> Self {
        Self { start: Bound::Included(key.clone()), end: Bound::Unbounded }
    }
}
