//! Writes to a store and to a history at once.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use sievedb::{
    Db, Durability, Error, Keyspace, Options, Range, Snapshot, fs::MemoryFs, stats::BackgroundStats,
};

use crate::{
    history::{CrashPoint, History, WORLDS_MAX},
    model::{Change, DEFAULT, Entries, Model, Name},
    observe::{Unreadable, keyspace, observe},
    rng::Rng,
    settings::FOLDER,
};

/// The durability of writes that name none: that of [`crate::settings::small_options`].
pub const DEFAULT_DURABILITY: Durability = Durability::OsBuffer;

/// A store whose writes are written down.
///
/// Its methods panic if the store does something wrong; a call that fails is wrong too, unless
/// [`expect_failures`](Self::expect_failures) was called.
#[derive(Debug)]
pub struct Recorder {
    disk: Arc<MemoryFs>,
    options: Options,
    db: Option<Db>,
    keyspaces: BTreeMap<Name, Opened>,
    history: History,
    snapshots: Vec<HeldSnapshot>,
    ranges: Vec<HeldRange>,
    rng: Rng,
    values: u64,
    incarnations: u64,
    /// The calls that failed, if any may fail.
    failures: Option<Vec<Error>>,
    /// Whether faults are over, and if so whether the store may have become read-only.
    healed: Option<bool>,
    background: BackgroundStats,
}

/// A handle, and a number that tells keyspaces of the same name apart.
#[derive(Debug, Clone)]
struct Opened {
    handle: Keyspace,
    incarnation: u64,
}

#[derive(Debug)]
struct HeldSnapshot {
    snapshot: Snapshot,
    keyspaces: BTreeMap<Name, Opened>,
    model: Model,
}

#[derive(Debug)]
struct HeldRange {
    range: Range,
    wanted: Vec<(Bytes, Bytes)>,
}

impl Recorder {
    /// Opens a store that holds `base` on `disk`. `fs` is the disk, or something around it.
    ///
    /// # Panics
    ///
    /// If the store cannot be opened.
    #[must_use]
    pub fn new(disk: Arc<MemoryFs>, options: Options, base: Model) -> Self {
        let mut recorder = Self::closed(disk, options, base);
        recorder.open();
        recorder
    }

    /// As [`new`](Self::new), to be opened later.
    #[must_use]
    pub fn closed(disk: Arc<MemoryFs>, options: Options, base: Model) -> Self {
        Self {
            disk,
            options,
            db: None,
            keyspaces: BTreeMap::new(),
            history: History::new(base),
            snapshots: Vec::new(),
            ranges: Vec::new(),
            rng: Rng::new(7),
            values: 0,
            incarnations: 0,
            failures: None,
            healed: None,
            background: BackgroundStats::default(),
        }
    }

    /// From here on a call may fail with an I/O error, or because one came before.
    pub fn expect_failures(&mut self) {
        self.failures = Some(Vec::new());
    }

    /// The calls that failed.
    #[must_use]
    pub fn failures(&self) -> &[Error] {
        self.failures.as_deref().unwrap_or_default()
    }

    /// The writes so far.
    #[must_use]
    pub fn history(&self) -> &History {
        &self.history
    }

    /// The disk below the store.
    #[must_use]
    pub fn disk(&self) -> &Arc<MemoryFs> {
        &self.disk
    }

    /// The open store.
    ///
    /// # Panics
    ///
    /// If it is closed.
    #[must_use]
    pub fn db(&self) -> &Db {
        self.db.as_ref().expect("the store is open")
    }

    /// Whether the store is open.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.db.is_some()
    }

    /// The handle of a keyspace, if there is one of this name.
    #[must_use]
    pub fn handle(&self, name: &str) -> Option<&Keyspace> {
        self.keyspaces.get(name).map(|opened| &opened.handle)
    }

    /// Random numbers for the script.
    pub fn rng(&mut self) -> &mut Rng {
        &mut self.rng
    }

    /// A value of about `bytes` bytes that was never used before.
    pub fn new_value(&mut self, bytes: usize) -> Bytes {
        self.values += 1;
        let mut value = format!("v{}.", self.values).into_bytes();
        let missing = bytes.saturating_sub(value.len());
        if missing > 0 {
            self.rng.fill(&mut value, missing);
        }
        value.into()
    }

    /// Begins the values of this recorder with number `first`, so that they differ from those of
    /// another one.
    pub fn number_values_from(&mut self, first: u64) {
        self.values = first;
    }

    // Writes.

    /// Stores a new value of `bytes` bytes.
    pub fn insert(&mut self, keyspace: &str, key: impl Into<Bytes>, bytes: usize) {
        self.insert_with(keyspace, key, bytes, DEFAULT_DURABILITY);
    }

    /// As [`insert`](Self::insert), with a durability.
    pub fn insert_with(
        &mut self,
        keyspace: &str,
        key: impl Into<Bytes>,
        bytes: usize,
        durability: Durability,
    ) {
        let value = self.new_value(bytes);
        let change = Change::Put { keyspace: keyspace.into(), key: key.into(), value };
        self.write(vec![change], durability);
    }

    /// Removes a key.
    pub fn remove(&mut self, keyspace: &str, key: impl Into<Bytes>) {
        self.remove_with(keyspace, key, DEFAULT_DURABILITY);
    }

    /// As [`remove`](Self::remove), with a durability.
    pub fn remove_with(&mut self, keyspace: &str, key: impl Into<Bytes>, durability: Durability) {
        let change = Change::Remove { keyspace: keyspace.into(), key: key.into() };
        self.write(vec![change], durability);
    }

    /// Stores new values of `bytes` bytes under keys of any keyspaces, in one batch.
    pub fn batch(&mut self, keys: &[(&str, &str)], bytes: usize, durability: Durability) {
        let changes = keys.iter().map(|&(keyspace, key)| {
            let value = self.new_value(bytes);
            Change::Put { keyspace: keyspace.into(), key: key.to_owned().into(), value }
        });
        let changes = changes.collect();
        self.write(changes, durability);
    }

    /// Makes `changes`, puts and removals, in one write.
    pub fn write(&mut self, changes: Vec<Change>, durability: Durability) {
        let Some(db) = self.writable() else { return };
        if changes.iter().any(|change| !self.keyspaces.contains_key(change.keyspace())) {
            // Its creation failed.
            return;
        }
        let began = self.disk.operations();
        let written = self.carry_out(&db, &changes, durability);
        if self.accept("write", written).is_some() {
            self.history.add(changes, began);
            self.history.acknowledge(durability, self.disk.operations());
        } else {
            self.history.add_failed(changes, began);
        }
    }

    fn carry_out(&self, db: &Db, changes: &[Change], durability: Durability) -> Result<(), Error> {
        let handle = |name: &Name| &self.keyspaces[name].handle;
        match changes {
            [Change::Put { keyspace, key, value }] if durability == DEFAULT_DURABILITY => {
                return handle(keyspace).insert(key, value);
            }
            [Change::Remove { keyspace, key }] if durability == DEFAULT_DURABILITY => {
                return handle(keyspace).remove(key);
            }
            _ => {}
        }
        let mut batch = db.batch();
        for change in changes {
            match change {
                Change::Put { keyspace, key, value } => {
                    batch.insert(handle(keyspace), key, value)?;
                }
                Change::Remove { keyspace, key } => batch.remove(handle(keyspace), key)?,
                other => panic!("{other} is not for a batch"),
            }
        }
        batch.commit(durability)
    }

    /// Creates a keyspace, if it is not there; durable.
    pub fn create(&mut self, name: &str) {
        let Some(db) = self.writable() else { return };
        if self.keyspaces.contains_key(name) {
            return;
        }
        let changes = vec![Change::Create { keyspace: name.into() }];
        let began = self.disk.operations();
        let created = db.keyspace(name);
        if let Some(handle) = self.accept("create keyspace", created) {
            self.incarnations += 1;
            let opened = Opened { handle, incarnation: self.incarnations };
            self.keyspaces.insert(name.into(), opened);
            self.history.add(changes, began);
            self.history.acknowledge(Durability::Disk, self.disk.operations());
        } else {
            self.history.add_failed(changes, began);
        }
    }

    /// Drops a keyspace, if it is there; durable.
    pub fn drop_keyspace(&mut self, name: &str) {
        let Some(db) = self.writable() else { return };
        if !self.keyspaces.contains_key(name) {
            return;
        }
        let changes = vec![Change::Drop { keyspace: name.into() }];
        let began = self.disk.operations();
        let dropped = db.drop_keyspace(name);
        if let Some(was_there) = self.accept("drop keyspace", dropped) {
            assert!(was_there, "the keyspace {name} should have been there");
            let old = self.keyspaces.remove(name).expect("it was just seen");
            let answer = old.handle.get("any");
            assert!(matches!(answer, Err(Error::KeyspaceDropped { .. })), "{answer:?}");
            self.history.add(changes, began);
            self.history.acknowledge(Durability::Disk, self.disk.operations());
        } else {
            self.history.add_failed(changes, began);
        }
    }

    // Other calls.

    /// Brings everything so far to `durability`.
    pub fn persist(&mut self, durability: Durability) {
        let Some(db) = self.db.clone() else { return };
        if self.accept("persist", db.persist(durability)).is_some() {
            self.history.acknowledge(durability, self.disk.operations());
        }
    }

    /// Flushes all keyspaces.
    pub fn flush(&mut self) {
        let Some(db) = self.db.clone() else { return };
        self.accept("flush", db.flush());
    }

    /// Flushes one keyspace.
    pub fn flush_keyspace(&mut self, name: &str) {
        if let Some(handle) = self.handle(name).cloned() {
            self.accept("flush", handle.flush());
        }
    }

    /// Compacts all keyspaces.
    pub fn compact(&mut self) {
        let Some(db) = self.db.clone() else { return };
        self.accept("compact", db.compact());
    }

    /// Compacts one keyspace.
    pub fn compact_keyspace(&mut self, name: &str) {
        if let Some(handle) = self.handle(name).cloned() {
            self.accept("compact", handle.compact());
        }
    }

    /// Takes a snapshot, to be compared later with what the store holds now.
    pub fn hold_snapshot(&mut self) {
        let Some(db) = self.db.clone() else { return };
        let (keyspaces, model) = (self.keyspaces.clone(), self.history.model().clone());
        self.snapshots.push(HeldSnapshot { snapshot: db.snapshot(), keyspaces, model });
    }

    /// Number of snapshots that are held.
    #[must_use]
    pub fn snapshots(&self) -> usize {
        self.snapshots.len()
    }

    /// Compares a snapshot, if there is one of this number, with what the store held when it was
    /// taken.
    ///
    /// # Panics
    ///
    /// If they differ.
    pub fn check_snapshot(&mut self, number: usize) {
        let Some(held) = self.snapshots.get(number) else { return };
        let HeldSnapshot { snapshot, keyspaces, model } = held;
        let mut error = None;
        for (name, opened) in keyspaces {
            let lives =
                self.keyspaces.get(name).map(|now| now.incarnation) == Some(opened.incarnation);
            let entries = model.entries(name).expect("it was there");
            match check_snapshot_of(snapshot, opened, entries) {
                Ok(()) => assert!(lives, "a snapshot shows the dropped keyspace {name}"),
                Err(Error::KeyspaceDropped { .. }) if !lives => {}
                Err(failed) => error = Some(failed),
            }
        }
        self.accept("read a snapshot", error.map_or(Ok(()), Err));
    }

    /// Lets a snapshot go, if there is one of this number.
    pub fn release_snapshot(&mut self, number: usize) {
        if number < self.snapshots.len() {
            self.snapshots.swap_remove(number);
        }
    }

    /// Begins to read a keyspace, to read on later and compare with what it holds now.
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

    /// Number of ranges that are held.
    #[must_use]
    pub fn ranges(&self) -> usize {
        self.ranges.len()
    }

    /// Reads the rest of a held range, if there is one of this number, from both ends in turn, compares it with what the keyspace
    /// held when it was begun, and lets it go.
    ///
    /// # Panics
    ///
    /// If they differ.
    pub fn finish_range(&mut self, number: usize) {
        if number >= self.ranges.len() {
            return;
        }
        let HeldRange { mut range, mut wanted } = self.ranges.swap_remove(number);
        // Back to front so far: the next one is the last.
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

    /// Lets all snapshots and ranges go, after a look at them.
    pub fn release_all(&mut self) {
        while !self.snapshots.is_empty() {
            self.check_snapshot(0);
            self.release_snapshot(0);
        }
        while !self.ranges.is_empty() {
            self.finish_range(0);
        }
    }

    // Opening and closing.

    /// Opens the store.
    pub fn open(&mut self) {
        let opened = self.options.clone().open(FOLDER);
        let Some(db) = self.accept("open", opened) else { return };
        for name in db.keyspaces() {
            let handle = keyspace(&db, &name);
            let Some(handle) = self.accept("open a keyspace", handle) else { return };
            self.incarnations += 1;
            let opened = Opened { handle, incarnation: self.incarnations };
            self.keyspaces.insert(name.into(), opened);
        }
        self.db = Some(db);
    }

    /// Closes the store by letting all handles go. All that was acknowledged is durable then, if
    /// nothing failed.
    pub fn close(&mut self) {
        if self.db.is_none() {
            return;
        }
        self.release_all();
        self.let_go();
        // Nobody is told of a call that fails while the last handle goes.
        if self.failures.is_none() {
            self.history.acknowledge(Durability::Disk, self.disk.operations());
        }
    }

    /// What flushes and compactions did before the store was last closed.
    #[must_use]
    pub fn background(&self) -> BackgroundStats {
        self.background
    }

    fn let_go(&mut self) {
        if let Some(db) = &self.db {
            self.background = db.stats().background;
        }
        self.snapshots.clear();
        self.ranges.clear();
        self.keyspaces.clear();
        self.db = None;
    }

    /// Closes the store and opens it again.
    ///
    /// # Panics
    ///
    /// If what it then holds is not what it held, or could hold after failures.
    pub fn reopen(&mut self) {
        self.close();
        self.open();
        let Some(found) = self.observe() else { return };
        let exact = self.failures.is_none();
        let survives = if exact { Durability::Memory } else { Durability::Disk };
        let here = CrashPoint { at: usize::MAX, survives };
        if let Err(text) = self.history.check(&found, here) {
            panic!("after the store was opened again: {text}");
        }
        if !exact {
            // What is lost and which of the failed writes are there is settled now.
            self.history.restart(found);
        }
    }

    /// Opens the store on `disk`, which a crash left of a store with `history`, and begins a new
    /// history with what it holds. That must be legal after `crash`.
    ///
    /// # Errors
    ///
    /// Why the store cannot be read or is in no legal state.
    ///
    /// # Panics
    ///
    /// If the store cannot be opened.
    pub fn recover(
        disk: Arc<MemoryFs>,
        options: Options,
        history: &History,
        crash: CrashPoint,
    ) -> Result<Self, String> {
        let mut recorder = Self::closed(disk, options, Model::nothing());
        recorder.open();
        let found = observe(recorder.db(), history.keys()).map_err(|error| error.to_string())?;
        history.check(&found, crash)?;
        recorder.history.know_keys_of(history);
        recorder.history.restart(found);
        Ok(recorder)
    }

    /// As [`recover`](Self::recover), in place of this store, with the numbers and lots that come
    /// next.
    ///
    /// # Errors
    ///
    /// As [`recover`](Self::recover).
    pub fn go_on_after(
        &mut self,
        crashed: Arc<MemoryFs>,
        options: Options,
        crash: CrashPoint,
    ) -> Result<(), String> {
        self.let_go();
        let next = Self::recover(crashed, options, &self.history, crash)?;
        let (rng, values) = (self.rng.clone(), self.values);
        *self = Self { rng, values, ..next };
        Ok(())
    }

    // Looks.

    /// From here on nothing may fail any more, except that writes may be refused if `read_only`.
    /// What failed so far stays in the history.
    pub fn expect_no_failures(&mut self, read_only: bool) {
        self.healed = Some(read_only);
    }

    /// Compares all of the store with the history.
    ///
    /// # Panics
    ///
    /// If they differ.
    pub fn check(&mut self) {
        let Some(found) = self.observe() else { return };
        let wanted = self.history.model();
        assert!(
            found == *wanted,
            "the open store after {} writes:\n{}",
            self.history.len(),
            found.difference(wanted, 12)
        );
    }

    fn observe(&mut self) -> Option<Model> {
        let db = self.db.clone()?;
        match observe(&db, self.history.keys()) {
            Ok(found) => Some(found),
            Err(Unreadable::Error(error)) => self.accept("read", Err(error)),
            Err(other) => panic!("{other}"),
        }
    }

    /// The store, unless it is closed, or so many writes failed that no more can be followed.
    fn writable(&self) -> Option<Db> {
        self.db.clone().filter(|_| self.history.worlds() <= WORLDS_MAX / 2)
    }

    /// The result of a call; `None` if it failed as expected.
    fn accept<T>(&mut self, what: &str, result: Result<T, Error>) -> Option<T> {
        let error = match result {
            Ok(value) => return Some(value),
            Err(error) => error,
        };
        let expected = match (&error, self.healed) {
            (Error::Io { .. } | Error::ReadOnly { .. }, None) => self.failures.is_some(),
            (Error::ReadOnly { .. }, Some(read_only)) => read_only,
            _ => false,
        };
        assert!(expected, "cannot {what}: {error:?}");
        self.failures.as_mut().expect("failures are expected").push(error);
        None
    }
}

fn check_snapshot_of(snapshot: &Snapshot, opened: &Opened, wanted: &Entries) -> Result<(), Error> {
    let name = opened.handle.name();
    let view = snapshot.keyspace(&opened.handle)?;
    let forwards = view.iter().collect::<Result<Vec<_>, _>>()?;
    let mut backwards = view.iter().rev().collect::<Result<Vec<_>, _>>()?;
    backwards.reverse();
    let wanted: Vec<_> = wanted.iter().map(own).collect();
    assert!(forwards == wanted, "a snapshot of {name} changed");
    assert!(backwards == wanted, "a snapshot of {name}, read backwards, changed");
    for (key, value) in &wanted {
        assert_eq!(view.get(key)?.as_ref(), Some(value), "a snapshot of {name} changed");
    }
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
