//! A store in memory, with and without faults: it shows that the checker finds them.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use super::{
    history::{Key, WriteId},
    target::{Calls, Failure, Range, Result, Target},
};

/// Concurrency control of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Control {
    /// One transaction at a time.
    OneLock,
    /// A commit fails if a key or range that it read has changed.
    Serializable,
    /// A commit fails if a key that it writes has changed: the first committer wins.
    Snapshot,
    /// Fault: as `Serializable`, but ranges are not validated.
    SkipsRanges,
    /// Fault: as `Serializable`, but reads that found no value are not validated.
    SkipsAbsentKeys,
    /// Fault: a commit never fails.
    SkipsAll,
}

/// A version: its place among the commits, and its value.
type Version = (u64, Option<WriteId>);

#[derive(Debug, Default)]
struct State {
    /// Versions of each key, ascending.
    versions: BTreeMap<Key, Vec<Version>>,
    commits: u64,
}

impl State {
    /// Returns the version of `key` that a snapshot sees.
    fn at(&self, key: &str, snapshot: u64) -> Version {
        let versions = self.versions.get(key).map_or(&[][..], Vec::as_slice);
        let visible = versions.iter().rev().find(|(commit, _)| *commit <= snapshot);
        visible.copied().unwrap_or((0, None))
    }

    fn changed(&self, key: &str, snapshot: u64) -> bool {
        self.at(key, u64::MAX).0 > snapshot
    }
}

/// The store.
#[derive(Debug)]
pub struct Reference {
    control: Control,
    turn: Mutex<()>,
    state: Mutex<State>,
}

impl Reference {
    /// Creates an empty store.
    #[must_use]
    pub fn new(control: Control) -> Self {
        Self { control, turn: Mutex::default(), state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Target for Reference {
    type Transaction<'t> = Transaction<'t>;

    fn begin(&self) -> Transaction<'_> {
        let turn = (self.control == Control::OneLock)
            .then(|| self.turn.lock().unwrap_or_else(PoisonError::into_inner));
        Transaction {
            store: self,
            snapshot: self.state().commits,
            reads: Vec::new(),
            scans: Vec::new(),
            writes: BTreeMap::new(),
            _turn: turn,
        }
    }
}

/// A transaction of a [`Reference`].
#[derive(Debug)]
pub struct Transaction<'t> {
    store: &'t Reference,
    snapshot: u64,
    /// Keys read, and whether they were present.
    reads: Vec<(Key, bool)>,
    /// Ranges read.
    scans: Vec<Range>,
    writes: BTreeMap<Key, Option<WriteId>>,
    _turn: Option<MutexGuard<'t, ()>>,
}

impl Transaction<'_> {
    fn conflicts(&self, state: &State) -> bool {
        let control = self.store.control;
        let changed = |key: &Key| state.changed(key, self.snapshot);
        match control {
            Control::OneLock | Control::SkipsAll => false,
            Control::Snapshot => self.writes.keys().any(changed),
            _ => {
                let by_key = self.reads.iter().any(|(key, is_present)| {
                    let is_validated = *is_present || control != Control::SkipsAbsentKeys;
                    is_validated && changed(key)
                });
                let by_range = control != Control::SkipsRanges
                    && self.scans.iter().any(|range| {
                        let mut keys = state.versions.range(range.from.clone()..range.to.clone());
                        keys.any(|(key, _)| changed(key))
                    });
                by_key || by_range
            }
        }
    }
}

impl Calls for Transaction<'_> {
    fn get(&mut self, key: &str) -> Result<Option<WriteId>> {
        if let Some(own) = self.writes.get(key) {
            return Ok(*own);
        }
        let state = self.store.state();
        let (_, found) = state.at(key, self.snapshot);
        self.reads.push((key.into(), found.is_some()));
        Ok(found)
    }

    fn scan(&mut self, range: &Range) -> Result<Vec<(Key, WriteId)>> {
        let state = self.store.state();
        let bounds = range.from.clone()..range.to.clone();
        let keys = state.versions.range(bounds.clone()).map(|(key, _)| (key, None));
        let own = self.writes.range(bounds).map(|(key, own)| (key, Some(*own)));
        // Its own write of a key replaces that of the store.
        let mut keys: Vec<_> = keys.chain(own).collect::<BTreeMap<_, _>>().into_iter().collect();
        if range.is_descending {
            keys.reverse();
        }
        let entries = keys.into_iter().filter_map(|(key, own)| {
            let found = own.unwrap_or_else(|| state.at(key, self.snapshot).1);
            Some((key.clone(), found?))
        });
        let found: Vec<_> = entries.take(range.limit).collect();
        let mut consumed = range.clone();
        match found.last().filter(|_| found.len() == range.limit) {
            Some((last, _)) if range.is_descending => consumed.from = last.clone(),
            Some((last, _)) => consumed.to = format!("{last}\0").into(),
            None => {}
        }
        self.scans.push(consumed);
        Ok(found)
    }

    fn insert(&mut self, key: &str, id: WriteId) -> Result<()> {
        self.writes.insert(key.into(), Some(id));
        Ok(())
    }

    fn remove(&mut self, key: &str) -> Result<()> {
        self.writes.insert(key.into(), None);
        Ok(())
    }

    fn commit(self) -> Result<Option<u64>> {
        let mut state = self.store.state();
        // A transaction that only reads has its place at its snapshot.
        if self.writes.is_empty() {
            return Ok(None);
        }
        if self.conflicts(&state) {
            return Err(Failure::Conflict);
        }
        state.commits += 1;
        let commit = state.commits;
        for (key, value) in self.writes {
            state.versions.entry(key).or_default().push((commit, value));
        }
        Ok(Some(commit))
    }

    fn abort(self) {}
}
