//! Snapshots, kept beside writes and compared later.

use std::{collections::BTreeMap, time::Duration};

use bytes::Bytes;
use sievedb::{Error, Keyspace, KeyspaceSnapshot, Snapshot, TimeToLive};
use sievedb_tests::model::shown;

use super::{
    model::{Contents, Seen, Space},
    reads::seen,
    story::Story,
};

/// A snapshot, and what it must show.
pub(super) struct HeldSnapshot {
    snapshot: Snapshot,
    contents: Contents,
    now_ms: u64,
    handles: BTreeMap<u64, Keyspace>,
}

impl Story {
    pub(super) fn hold_snapshot(&mut self) {
        if self.snapshots.len() == 4 {
            let at = self.lots.below(4);
            self.snapshots.swap_remove(at);
            return;
        }
        self.note(|| "hold a snapshot".to_owned());
        self.snapshots.push(HeldSnapshot {
            snapshot: self.db().snapshot(),
            contents: self.history.now().clone(),
            now_ms: self.now_ms(),
            handles: self.handles.clone(),
        });
    }

    /// Reads one key of a snapshot.
    pub(super) fn read_snapshot(&mut self) {
        if self.snapshots.is_empty() {
            return;
        }
        let at = self.lots.below(self.snapshots.len());
        let (key, lot) = (self.key(), self.lots.below(6));
        self.note(|| format!("read a snapshot {}", shown(&key)));
        let held = &self.snapshots[at];
        let spaces = &held.contents.spaces;
        let (name, space) = spaces.iter().nth(self.lots.below(spaces.len())).expect("below");
        let view = held.snapshot.keyspace(&held.handles[&space.id]).expect("the same store");
        let wanted = space.get(&key, held.now_ms);
        let checked = match lot {
            0 => view.contains_key(&key).map(|found| assert_eq!(found, wanted.is_some())),
            1 => {
                assert!(view.may_contain(&key) || wanted.is_none() || self.is_dropped(space.id));
                return;
            }
            2 if wanted != Some(Seen::MergeFails) => view.ttl(&key).map(|ttl| {
                let wanted = wanted.map(|_| match space.entries[&key].expiry_ms(held.now_ms) {
                    None => TimeToLive::Unlimited,
                    Some(expiry_ms) => {
                        TimeToLive::Remaining(Duration::from_millis(expiry_ms - held.now_ms))
                    }
                });
                assert_eq!(ttl, wanted, "ttl by a snapshot of {name} {}", shown(&key));
            }),
            _ => seen(view.get(&key)).map(|got| {
                assert_eq!(got, wanted, "a snapshot of {name} {}", shown(&key));
            }),
        };
        let id = space.id;
        self.of_snapshot(id, checked);
    }

    fn is_dropped(&self, id: u64) -> bool {
        self.history.now().of_id(id).is_none()
    }

    fn of_snapshot(&mut self, id: u64, checked: Result<(), Error>) {
        match checked {
            Err(Error::KeyspaceDropped { .. }) if self.is_dropped(id) => {}
            Ok(()) => assert!(!self.is_dropped(id), "a snapshot shows a dropped keyspace"),
            Err(error) => self.tolerate("read a snapshot", &error),
        }
    }

    /// Compares a key of all snapshots, and of the transactions that have not written it.
    pub(super) fn check_held(&mut self, id: u64, key: &Bytes) {
        let all = 0..self.snapshots.len();
        let checked: Vec<_> = all.filter_map(|at| self.check_key(at, id, key)).collect();
        for result in checked {
            self.of_snapshot(id, result);
        }
        for open in &self.transactions {
            open.check_unwritten(id, key);
        }
    }

    fn check_key(&self, at: usize, id: u64, key: &Bytes) -> Option<Result<(), Error>> {
        let held = &self.snapshots[at];
        let (name, space) = held.contents.of_id(id)?;
        let view = held.snapshot.keyspace(&held.handles[&id]).expect("the same store");
        let wanted = space.get(key, held.now_ms);
        Some(seen(view.get(key)).map(|got| {
            assert_eq!(got, wanted, "a snapshot of {name}, filtered {}", shown(key));
        }))
    }

    /// Compares all of a snapshot.
    pub(super) fn check_snapshot(&mut self) {
        if self.snapshots.is_empty() {
            return;
        }
        let at = self.lots.below(self.snapshots.len());
        self.note(|| "check a snapshot".to_owned());
        let spaces: Vec<_> = self.snapshots[at].contents.spaces.values().cloned().collect();
        for space in spaces {
            let held = &self.snapshots[at];
            let view = held.snapshot.keyspace(&held.handles[&space.id]).expect("the same store");
            let checked = compare(&view, &space, held.now_ms);
            // A dropped keyspace may be one that was empty: nothing was read.
            self.of_snapshot(space.id, checked);
        }
    }
}

fn compare(view: &KeyspaceSnapshot, space: &Space, now_ms: u64) -> Result<(), Error> {
    let wanted: Vec<_> = space.all(now_ms).collect();
    for (key, seen_then) in &wanted {
        let got = seen(view.get(key))?;
        assert_eq!(got.as_ref(), Some(seen_then), "a snapshot, {}", shown(key));
    }
    if wanted.iter().any(|(_, seen)| *seen == Seen::MergeFails) {
        return view.first().map(drop).or_else(|error| match error {
            Error::MergeFailed { .. } => Ok(()),
            error => Err(error),
        });
    }
    let is_wanted =
        |(key, value), (wanted, seen): &(&_, Seen)| key == **wanted && seen.value() == Some(&value);
    let forwards = view.iter().collect::<Result<Vec<_>, _>>()?;
    let backwards = view.iter().rev().collect::<Result<Vec<_>, _>>()?;
    assert_eq!(forwards.len(), wanted.len(), "entries of a snapshot");
    assert_eq!(backwards.len(), wanted.len(), "entries of a snapshot, from the back");
    for (entry, wanted) in forwards.into_iter().zip(&wanted) {
        assert!(is_wanted(entry, wanted), "a snapshot");
    }
    for (entry, wanted) in backwards.into_iter().zip(wanted.iter().rev()) {
        assert!(is_wanted(entry, wanted), "a snapshot from the back");
    }
    Ok(())
}
