//! Writes one by one: loads, new values, removals.

use std::slice;

use sievedb_workload::random::Permutation;

use super::{model::Model, operations::Operations};
use crate::{
    contestant::Engine,
    failure::Result,
    keys::{Entry, Keys},
};

/// Kind of writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    /// All keys in random order.
    Load,
    /// As many keys in ascending order.
    LoadAscending,
    /// New values of present keys, each at most once, in random order.
    Overwrite,
    /// Removals of present keys, in random order.
    Delete,
}

/// Writes of one thread.
#[derive(Debug)]
pub(crate) struct Changes<'a, E> {
    change: Change,
    engine: &'a E,
    model: &'a mut Model,
    order: Permutation,
    keys: u64,
    /// Changes made or prepared.
    count: u64,
    entries: Vec<Entry>,
}

impl<'a, E: Engine> Changes<'a, E> {
    /// Creates changes of a store of `keys` keys, in the order of `seed`.
    pub(crate) fn new(
        change: Change,
        engine: &'a E,
        model: &'a mut Model,
        keys: u64,
        seed: u64,
    ) -> Self {
        let order = Permutation::new(keys, seed);
        Self { change, engine, model, order, keys, count: 0, entries: Vec::new() }
    }

    /// Returns the number of changes made.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    fn entry(&mut self, number: u64) -> Entry {
        let model = &mut self.model;
        match self.change {
            Change::Load => (model.key(number), model.value(number)),
            Change::LoadAscending => {
                let key = Keys::ascending(number);
                (key, model.loaded(&key))
            }
            Change::Overwrite => model.change(self.order.at(number)),
            Change::Delete => (model.remove(self.order.at(number)), [0; _]),
        }
    }
}

impl<E: Engine> Operations for Changes<'_, E> {
    const CHUNK: usize = 256;

    fn prepare(&mut self) -> Result<usize> {
        let end = self.keys.min(self.count + Self::CHUNK as u64);
        self.entries.clear();
        for number in self.count..end {
            let entry = self.entry(number);
            self.entries.push(entry);
        }
        self.count = end;
        Ok(self.entries.len())
    }

    fn operate(&mut self, index: usize) -> Result<()> {
        let entry = &self.entries[index];
        match self.change {
            Change::Delete => self.engine.remove(slice::from_ref(&entry.0)),
            _ => self.engine.write(slice::from_ref(entry)),
        }
    }

    /// Checks nothing: the store is read after the last change.
    fn check(&mut self) -> Result<()> {
        Ok(())
    }
}
