//! The writes of a test, and the legal states after a crash.
//!
//! A legal state is that of a prefix of the history. It includes all writes whose acknowledged
//! durability the crash must not break, and no write that had not started.
//!
//! A failed write may be present or absent: each one doubles the number of possible worlds.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
};

use bytes::Bytes;
use sievedb::Durability;

use crate::model::{Change, Entries, Model, Name};
use crate::stream::Received;

/// All keys ever written, by keyspace.
pub type Universe = BTreeMap<Name, BTreeSet<Bytes>>;

/// Maximum number of possible worlds.
pub const WORLDS_MAX: usize = 64;

/// The writes of a test.
#[derive(Debug, Clone)]
pub struct History {
    base: Model,
    /// Possible contents. The first is that of the open store: without failed writes.
    worlds: Vec<Model>,
    writes: Vec<Write>,
    /// Digests of the states after each number of writes.
    states: Vec<(usize, u128)>,
    acknowledged: Vec<Acknowledged>,
    keys: Universe,
    pasts: Vec<Past>,
    received: Option<Received>,
}

/// The contents of a keyspace at a sequence number of the store.
#[derive(Debug, Clone)]
pub struct Past {
    /// The sequence number.
    pub sequence: u64,
    /// The keyspace.
    pub keyspace: Name,
    /// Its contents.
    pub entries: Entries,
}

#[derive(Debug, Clone)]
struct Write {
    changes: Vec<Change>,
    /// Number of disk operations at the start of the write.
    began: usize,
    failed: bool,
}

/// The first `writes` writes were acknowledged with `durability` by disk operation `at`.
#[derive(Debug, Clone)]
struct Acknowledged {
    at: usize,
    writes: usize,
    durability: Durability,
}

/// A crash, for a history.
#[derive(Debug, Clone, Copy)]
pub struct CrashPoint {
    /// Number of disk operations before the crash.
    pub at: usize,
    /// Weakest durability that survives the crash.
    pub survives: Durability,
}

impl History {
    /// Starts with a store that durably holds `base`.
    #[must_use]
    pub fn new(base: Model) -> Self {
        let mut keys = Universe::new();
        for (name, entries) in base.keyspaces() {
            keys.insert(name.clone(), entries.keys().cloned().collect());
        }
        Self {
            states: vec![(0, base.digest())],
            worlds: vec![base.clone()],
            base,
            writes: Vec::new(),
            acknowledged: Vec::new(),
            keys,
            pasts: Vec::new(),
            received: None,
        }
    }

    /// Notes what `keyspace` contains at the sequence number `sequence`.
    pub fn note_past(&mut self, sequence: u64, keyspace: &str) {
        if let Some((keyspace, entries)) = self.model().keyspaces().get_key_value(keyspace) {
            let (keyspace, entries) = (keyspace.clone(), entries.clone());
            self.pasts.push(Past { sequence, keyspace, entries });
        }
    }

    /// Sets what a reader of the change stream has received.
    pub fn set_received(&mut self, received: Option<Received>) {
        self.received = received;
    }

    /// Returns what a reader of the change stream has received, if there is one.
    #[must_use]
    pub fn received(&self) -> Option<&Received> {
        self.received.as_ref()
    }

    /// Returns the contents that were noted.
    #[must_use]
    pub fn pasts(&self) -> &[Past] {
        &self.pasts
    }

    /// Forgets contents behind `sequence`: a crash took these writes back.
    pub fn forget_pasts_behind(&mut self, sequence: u64) {
        self.pasts.retain(|past| past.sequence <= sequence);
    }

    /// Restarts with a store that durably holds `base`. Keeps the known keys.
    pub fn restart(&mut self, mut base: Model) {
        base.know_expiring_of(self.model());
        let mut old = std::mem::replace(self, Self::new(base));
        self.received = old.received.take();
        self.know_keys_of(&old);
    }

    /// Adds the known keys of `other`.
    pub fn know_keys_of(&mut self, other: &Self) {
        self.pasts.clone_from(&other.pasts);
        for (name, more) in &other.keys {
            self.keys.entry(name.clone()).or_default().extend(more.iter().cloned());
        }
    }

    /// Returns the contents of the open store.
    #[must_use]
    pub fn model(&self) -> &Model {
        &self.worlds[0]
    }

    /// Returns all keys ever written.
    #[must_use]
    pub fn keys(&self) -> &Universe {
        &self.keys
    }

    /// Returns the number of writes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.writes.len()
    }

    /// Returns whether no write was made.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }

    /// Returns the number of possible states.
    #[must_use]
    pub fn worlds(&self) -> usize {
        self.worlds.len()
    }

    /// Adds a visible write that started after `began` disk operations.
    pub fn add(&mut self, changes: Vec<Change>, began: usize) {
        self.know(&changes);
        for world in &mut self.worlds {
            changes.iter().for_each(|change| world.apply(change));
        }
        self.writes.push(Write { changes, began, failed: false });
        self.note_states();
    }

    /// Adds a failed write: it is not visible, and may be present after the store is reopened.
    pub fn add_failed(&mut self, changes: Vec<Change>, began: usize) {
        self.know(&changes);
        for at in 0..self.worlds.len() {
            let mut world = self.worlds[at].clone();
            changes.iter().for_each(|change| world.apply(change));
            if self.worlds.iter().all(|other| other.digest() != world.digest()) {
                self.worlds.push(world);
            }
        }
        self.writes.push(Write { changes, began, failed: true });
        self.note_states();
    }

    /// Adds changes that a crash may undo, together and without later writes: the clock was set
    /// forward, and no edit of the manifest has stored it.
    pub fn add_revocable(&mut self, changes: Vec<Change>, began: usize) {
        let before = self.worlds.clone();
        self.add(changes, began);
        for world in before {
            if self.worlds.iter().all(|other| other.digest() != world.digest()) {
                self.worlds.push(world);
            }
        }
        self.note_states();
    }

    /// Ends the other worlds of revocable changes. No write has failed.
    ///
    /// # Panics
    ///
    /// If a write has failed.
    pub fn settle(&mut self) {
        assert!(self.writes.iter().all(|write| !write.failed), "a failed write stays possible");
        self.worlds.truncate(1);
    }

    fn know(&mut self, changes: &[Change]) {
        for change in changes {
            let keys = self.keys.entry(change.keyspace().clone()).or_default();
            if let Change::Put { key, .. }
            | Change::PutExpiring { key, .. }
            | Change::Remove { key, .. }
            | Change::Merge { key, .. } = change
            {
                keys.insert(key.clone());
            }
            if let Change::Rename { to, .. } = change {
                let keys = keys.clone();
                self.keys.entry(to.clone()).or_default().extend(keys);
            }
        }
    }

    fn note_states(&mut self) {
        let writes = self.writes.len();
        self.states.extend(self.worlds.iter().map(|world| (writes, world.digest())));
    }

    /// Marks all writes as acknowledged with `durability` by disk operation `at`.
    pub fn acknowledge(&mut self, durability: Durability, at: usize) {
        let writes = self.writes.len();
        self.acknowledged.push(Acknowledged { at, writes, durability });
    }

    /// Returns the number of writes that must survive `crash`.
    #[must_use]
    pub fn required(&self, crash: CrashPoint) -> usize {
        let counts = |it: &&Acknowledged| it.at <= crash.at && it.durability >= crash.survives;
        self.acknowledged.iter().filter(counts).map(|it| it.writes).max().unwrap_or(0)
    }

    /// Returns the number of writes started before `crash`.
    #[must_use]
    pub fn begun(&self, crash: CrashPoint) -> usize {
        self.writes.partition_point(|write| write.began < crash.at)
    }

    /// Checks that `crash` may leave `found`.
    ///
    /// # Errors
    ///
    /// Why it may not.
    pub fn check(&self, found: &Model, crash: CrashPoint) -> Result<(), String> {
        let (required, begun) = (self.required(crash), self.begun(crash));
        let digest = found.digest();
        let legal = |&(writes, state): &(usize, u128)| {
            state == digest && (required..=begun.max(required)).contains(&writes)
        };
        if self.states.iter().rev().any(legal) {
            return Ok(());
        }
        let mut text = format!(
            "not a legal state: of {} writes, {required} had to survive and {begun} had begun\n",
            self.writes.len()
        );
        if let Some((writes, _)) = self.states.iter().rev().find(|(_, state)| *state == digest) {
            writeln!(text, "it is the state after {writes} writes").expect("a string takes all");
        }
        for writes in [required, begun] {
            writeln!(text, "compared with {writes} writes:").expect("a string takes all");
            text += &found.difference(&self.after(writes), 12);
        }
        text += "the writes around:\n";
        let first = required.saturating_sub(3);
        for (number, write) in self.writes.iter().enumerate().skip(first).take(12) {
            let changes: Vec<_> = write.changes.iter().take(6).map(ToString::to_string).collect();
            let failed = if write.failed { " FAILED" } else { "" };
            let Write { began, changes: all, .. } = write;
            writeln!(
                text,
                "    {number} from operation {began}{failed}, {} changes: {}",
                all.len(),
                changes.join("; ")
            )
            .expect("a string takes all");
        }
        Err(text)
    }

    /// Returns the state after the first `writes` writes, without failed ones.
    fn after(&self, writes: usize) -> Model {
        let mut model = self.base.clone();
        let done = self.writes[..writes.min(self.writes.len())].iter().filter(|it| !it.failed);
        done.flat_map(|write| &write.changes).for_each(|change| model.apply(change));
        model
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::DEFAULT;

    fn put(key: &'static str, value: &'static str) -> Vec<Change> {
        vec![Change::Put { keyspace: DEFAULT.into(), key: key.into(), value: value.into() }]
    }

    fn state(writes: &[Vec<Change>]) -> Model {
        let mut model = Model::default();
        writes.iter().flatten().for_each(|change| model.apply(change));
        model
    }

    fn at(at: usize, survives: Durability) -> CrashPoint {
        CrashPoint { at, survives }
    }

    #[test]
    fn legal_states_are_prefixes_from_acknowledged_to_started() {
        let writes = [put("a", "1"), put("b", "2"), put("c", "3")];
        let mut history = History::new(Model::default());
        history.add(writes[0].clone(), 10);
        history.acknowledge(Durability::Disk, 12);
        history.add(writes[1].clone(), 12);
        history.acknowledge(Durability::OsBuffer, 13);
        history.add(writes[2].clone(), 13);
        let cases = [
            ("before all", 10, Durability::Disk, 0..=0),
            ("under way", 11, Durability::Disk, 0..=1),
            ("acknowledged", 12, Durability::Disk, 1..=1),
            ("second under way", 13, Durability::Disk, 1..=2),
            ("second acknowledged, power cut", 14, Durability::Disk, 1..=3),
            ("second acknowledged, kill", 14, Durability::OsBuffer, 2..=3),
        ];
        for (name, operations, survives, legal) in cases {
            for count in 0..=3 {
                let checked = history.check(&state(&writes[..count]), at(operations, survives));
                assert_eq!(checked.is_ok(), legal.contains(&count), "{name}, {count} writes");
            }
            let hole = state(&[writes[1].clone()]);
            assert!(history.check(&hole, at(operations, survives)).is_err(), "{name}, hole");
        }
    }

    #[test]
    fn revocable_changes_are_undone_together_until_they_are_settled() {
        let expiring = |key: &'static str, value: &'static str| {
            let (keyspace, key, value) = (DEFAULT.into(), key.into(), value.into());
            vec![Change::PutExpiring { keyspace, key, value, by_default: false }]
        };
        let expire = vec![Change::Expire { keyspace: DEFAULT.into() }];
        let (a, b) = (expiring("a", "1"), expiring("b", "2"));
        let mut history = History::new(Model::default());
        history.add(a.clone(), 0);
        history.add(b.clone(), 1);
        history.add_revocable(expire, 2);
        history.add(put("c", "3"), 3);
        history.acknowledge(Durability::Disk, 9);
        let crash = at(9, Durability::Disk);
        assert_eq!(*history.model(), state(&[put("c", "3")]));
        assert!(history.check(&state(&[put("c", "3")]), crash).is_ok());
        assert!(history.check(&state(&[a.clone(), b, put("c", "3")]), crash).is_ok());
        assert!(history.check(&state(&[a.clone(), put("c", "3")]), crash).is_err(), "half of it");
        history.settle();
        history.add(put("d", "4"), 10);
        history.acknowledge(Durability::Disk, 11);
        let crash = at(11, Durability::Disk);
        assert!(history.check(&state(&[put("c", "3"), put("d", "4")]), crash).is_ok());
        assert!(history.check(&state(&[a, put("c", "3"), put("d", "4")]), crash).is_err());
    }

    #[test]
    fn failed_write_may_be_present_or_absent() {
        let writes = [put("a", "1"), put("b", "2")];
        let mut history = History::new(Model::default());
        history.add_failed(writes[0].clone(), 0);
        history.add(writes[1].clone(), 5);
        history.acknowledge(Durability::Disk, 9);
        assert_eq!(*history.model(), state(&writes[1..]));
        let crash = at(9, Durability::Disk);
        assert!(history.check(&state(&writes), crash).is_ok());
        assert!(history.check(&state(&writes[1..]), crash).is_ok());
        assert!(history.check(&state(&writes[..1]), crash).is_err());
        assert!(history.check(&state(&[]), crash).is_err());
    }
}
