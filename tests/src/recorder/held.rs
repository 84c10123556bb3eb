//! Snapshots and ranges held across writes.

use std::collections::BTreeMap;

use bytes::Bytes;
use sievedb::{Error, Range, Snapshot};

use super::{Opened, Recorder};
use crate::model::{DEFAULT, Entries, Model, Name};

/// A snapshot and its expected contents.
#[derive(Debug)]
pub(super) struct HeldSnapshot {
    snapshot: Snapshot,
    keyspaces: BTreeMap<Name, Opened>,
    model: Model,
}

/// A started range and its remaining expected entries, last first.
#[derive(Debug)]
pub(super) struct HeldRange {
    range: Range,
    wanted: Vec<(Bytes, Bytes)>,
}

impl Recorder {
    /// Takes a snapshot to compare later with the current contents.
    pub fn hold_snapshot(&mut self) {
        let Some(db) = self.db.clone() else { return };
        let (keyspaces, model) = (self.keyspaces.clone(), self.history.model().clone());
        self.snapshots.push(HeldSnapshot { snapshot: db.snapshot(), keyspaces, model });
    }

    /// Returns the number of held snapshots.
    #[must_use]
    pub fn snapshots(&self) -> usize {
        self.snapshots.len()
    }

    /// Compares snapshot `number`, if it exists, with the contents when it was taken.
    ///
    /// # Panics
    ///
    /// If they differ.
    pub fn check_snapshot(&mut self, number: usize) {
        let Some(held) = self.snapshots.get(number) else { return };
        let HeldSnapshot { snapshot, keyspaces, model } = held;
        let mut error = None;
        for (name, opened) in keyspaces {
            let lives = self.keyspaces.values().any(|now| now.incarnation == opened.incarnation);
            let entries = model.entries(name).expect("it was there");
            match check_snapshot_of(snapshot, opened, entries) {
                Ok(()) => assert!(lives, "a snapshot shows the dropped keyspace {name}"),
                Err(Error::KeyspaceDropped { .. }) if !lives => {}
                Err(failed) => error = Some(failed),
            }
        }
        self.accept("read a snapshot", error.map_or(Ok(()), Err));
    }

    /// Drops snapshot `number`, if it exists.
    pub fn release_snapshot(&mut self, number: usize) {
        if number < self.snapshots.len() {
            self.snapshots.swap_remove(number);
        }
    }

    /// Starts a range over a keyspace, to finish later.
    pub fn hold_range(&mut self, name: &str) {
        let Some(handle) = self.handle(name) else { return };
        let mut range = handle.iter();
        let entries = self.history.model().entries(name).expect("a handle has its keyspace");
        let mut wanted: Vec<_> = entries.iter().map(own).rev().collect();
        let first = range.next().transpose();
        if let Some(first) = self.accept("begin to read", first) {
            assert_eq!(first, wanted.pop(), "the first entry of {name}");
            self.ranges.push(HeldRange { range, wanted });
        }
    }

    /// Returns the number of held ranges.
    #[must_use]
    pub fn ranges(&self) -> usize {
        self.ranges.len()
    }

    /// Reads the rest of range `number`, if it exists, alternately from both ends. Compares it with
    /// the contents at its start and drops it.
    ///
    /// # Panics
    ///
    /// If they differ.
    pub fn finish_range(&mut self, number: usize) {
        if number >= self.ranges.len() {
            return;
        }
        let HeldRange { mut range, mut wanted } = self.ranges.swap_remove(number);
        // Entries are in reverse order: the next one is the last.
        let mut at = 0;
        loop {
            let from_front = at % 3 != 0;
            let read = if from_front { range.next() } else { range.next_back() };
            let Some(read) = self.accept("read on", read.transpose()) else { return };
            let want = match wanted.len() {
                0 => None,
                _ if from_front => wanted.pop(),
                _ => Some(wanted.remove(0)),
            };
            assert_eq!(read, want, "entry {at} of a held range");
            if read.is_none() {
                return;
            }
            at += 1;
        }
    }

    /// Checks and drops all snapshots and ranges.
    pub fn release_all(&mut self) {
        while !self.snapshots.is_empty() {
            self.check_snapshot(0);
            self.release_snapshot(0);
        }
        while !self.ranges.is_empty() {
            self.finish_range(0);
        }
    }
}

fn check_snapshot_of(snapshot: &Snapshot, opened: &Opened, wanted: &Entries) -> Result<(), Error> {
    let name = opened.handle.name();
    let view = snapshot.keyspace(&opened.handle)?;
    let forwards = view.iter().collect::<Result<Vec<_>, _>>()?;
    let mut backwards = view.iter().rev().collect::<Result<Vec<_>, _>>()?;
    backwards.reverse();
    let starts_with_k = |(key, _): &(&Bytes, &Bytes)| key.starts_with(b"k");
    let with_k: Vec<_> = wanted.iter().filter(starts_with_k).map(own).collect();
    assert!(view.prefix("k").collect::<Result<Vec<_>, _>>()? == with_k, "a snapshot of {name}");
    let from_k: Vec<_> = wanted.range(Bytes::from("k")..).map(own).collect();
    assert!(view.range("k"..).collect::<Result<Vec<_>, _>>()? == from_k, "a snapshot of {name}");
    let wanted: Vec<_> = wanted.iter().map(own).collect();
    assert!(forwards == wanted, "a snapshot of {name} changed");
    assert!(backwards == wanted, "a snapshot of {name}, read backwards, changed");
    for (key, value) in &wanted {
        assert_eq!(view.get(key)?.as_ref(), Some(value), "a snapshot of {name} changed");
    }
    let found = view.get_many(wanted.iter().map(|(key, _)| key))?;
    assert!(
        found.iter().flatten().eq(wanted.iter().map(|(_, value)| value)),
        "a snapshot of {name}, many keys at once, changed"
    );
    if name == DEFAULT {
        for (key, value) in wanted.iter().take(3) {
            assert_eq!(snapshot.get(key)?.as_ref(), Some(value), "the default keyspace");
        }
    }
    Ok(())
}

fn own((key, value): (&Bytes, &Bytes)) -> (Bytes, Bytes) {
    (key.clone(), value.clone())
}
