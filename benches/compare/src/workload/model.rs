//! Model of a store's contents, to verify answers.

use crate::{
    case::Workload,
    keys::{Entry, Key, Keys, Value},
    settings::Settings,
    task::Task,
};

/// Expected contents of a store. Built before the store is opened, so that its memory is not
/// attributed to the engine.
#[derive(Debug)]
pub(crate) struct Model {
    keys: Keys,
    /// Number of changes of each key; empty if the workload changes none.
    versions: Vec<u16>,
    /// All keys in order; empty if the workload has no short scans.
    sorted: Vec<Key>,
}

/// The version of a removed key.
const REMOVED: u16 = u16::MAX;

impl Model {
    /// Creates the contents after `load`, with the parts that the workload of `task` needs.
    pub(crate) fn of(task: &Task) -> Self {
        let Settings { keys: count, seed, .. } = task.settings;
        let keys = Keys::new(seed);
        let (mut versions, mut sorted) = (Vec::new(), Vec::new());
        match task.case.workload {
            Workload::ShortScan | Workload::YcsbE => {
                sorted.extend((0..count).map(|index| keys.present(index)));
                sorted.sort_unstable();
            }
            Workload::Overwrite | Workload::Delete | Workload::YcsbA | Workload::YcsbB => {
                versions = vec![0; usize::try_from(count).expect("a list of keys fits")];
            }
            Workload::YcsbF => {
                versions = vec![0; usize::try_from(count).expect("a list of keys fits")];
            }
            _ => {}
        }
        Self { keys, versions, sorted }
    }

    /// Returns stored key number `index`, which may be removed.
    pub(crate) fn key(&self, index: u64) -> Key {
        self.keys.present(index)
    }

    /// Returns the current value of key number `index`.
    pub(crate) fn value(&self, index: u64) -> Value {
        self.keys.value_of_version(&self.key(index), self.version(index).into())
    }

    /// Changes the value of key number `index`. Returns the new entry.
    pub(crate) fn change(&mut self, index: u64) -> Entry {
        if let Some(version) = self.version_mut(index) {
            // Wraps around: old values recur.
            *version = (*version + 1) % REMOVED;
        }
        (self.key(index), self.value(index))
    }

    /// Removes and returns key number `index`.
    pub(crate) fn remove(&mut self, index: u64) -> Key {
        if let Some(version) = self.version_mut(index) {
            *version = REMOVED;
        }
        self.key(index)
    }

    /// Returns the present entries of keys number 0 to `count - 1`.
    pub(crate) fn entries(&self, count: u64) -> impl Iterator<Item = Entry> {
        let present = move |index: &u64| self.version(*index) != REMOVED;
        (0..count).filter(present).map(|index| (self.key(index), self.value(index)))
    }

    /// Returns the loaded keys from `key` on, in order.
    pub(crate) fn keys_from(&self, key: &Key) -> impl Iterator<Item = &Key> {
        self.sorted[self.sorted.partition_point(|other| other < key)..].iter()
    }

    /// Returns the value that `key` was loaded with.
    pub(crate) fn loaded(&self, key: &Key) -> Value {
        self.keys.value(key)
    }

    fn version(&self, index: u64) -> u16 {
        let index = usize::try_from(index).unwrap_or(usize::MAX);
        self.versions.get(index).copied().unwrap_or(0)
    }

    fn version_mut(&mut self, index: u64) -> Option<&mut u16> {
        self.versions.get_mut(usize::try_from(index).ok()?)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::{case::Case, contestant::Contestant, settings};

    fn model(workload: Workload) -> Model {
        let settings = Settings { keys: 100, ..settings::small() };
        let case = Case::cached(workload);
        Model::of(&Task::new(Contestant::Sievedb, case, 0, Path::new("f"), &settings))
    }

    #[test]
    fn model_reflects_changes_and_removals() {
        let mut model = model(Workload::YcsbA);
        let loaded = model.value(7);
        let (key, changed) = model.change(7);
        assert_eq!((key, changed), (model.key(7), model.value(7)));
        assert_ne!(changed, loaded);
        assert_eq!(model.entries(100).count(), 100);
        assert_eq!(model.remove(8), model.key(8));
        assert!(model.entries(100).all(|(key, _)| key != model.key(8)));
        assert_eq!(model.entries(100).count(), 99);
        // Inserts follow the loaded keys.
        assert_eq!(model.entries(103).count(), 102);
    }

    #[test]
    fn scan_returns_keys_in_order_from_a_start() {
        let model = model(Workload::ShortScan);
        let key = model.key(42);
        let from: Vec<&Key> = model.keys_from(&key).collect();
        assert_eq!(*from[0], key);
        assert!(from.is_sorted());
        let below = (0..100).filter(|&index| model.key(index) < key).count();
        assert_eq!(from.len(), 100 - below);
    }
}
