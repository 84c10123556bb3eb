//! Writes to a store and to a history.

mod checkpoint;
mod expiry;
mod held;
mod opening;
mod past;
mod stream;
mod transaction;
mod write;

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
pub use expiry::TTL;
use held::{HeldRange, HeldSnapshot};
use sievedb::{Db, Durability, Error, Keyspace, Options, stats::BackgroundStats};
use sievedb_doubles::MemoryFs;

use crate::{
    history::{History, WORLDS_MAX},
    model::{Model, Name},
    observe::{Unreadable, observe},
    rng::Rng,
};

/// Default durability of writes, as in [`crate::settings::small_options`].
pub const DEFAULT_DURABILITY: Durability = Durability::OsBuffer;

/// A store with a record of its writes.
///
/// Methods panic if the store returns a wrong result. Failing calls are wrong too, unless
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
    /// Jumps of the wall clock.
    jumps: u32,
    /// Failed calls, if calls may fail.
    failures: Option<Vec<Error>>,
    /// Set once faults are over: whether the store may have become read-only.
    healed: Option<bool>,
    background: BackgroundStats,
}

/// A handle with a number that distinguishes keyspaces of the same name.
#[derive(Debug, Clone)]
struct Opened {
    handle: Keyspace,
    incarnation: u64,
}

impl Recorder {
    /// Opens a store with contents `base` on `disk`. The file system of `options` is the disk or a
    /// layer on it.
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

    /// As [`new`](Self::new), but does not open the store.
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
            jumps: 0,
            failures: None,
            healed: None,
            background: BackgroundStats::default(),
        }
    }

    /// Allows calls to fail with an I/O error or as a consequence of one.
    pub fn expect_failures(&mut self) {
        self.failures = Some(Vec::new());
    }

    /// Returns the failed calls.
    #[must_use]
    pub fn failures(&self) -> &[Error] {
        self.failures.as_deref().unwrap_or_default()
    }

    /// Returns the writes so far.
    #[must_use]
    pub fn history(&self) -> &History {
        &self.history
    }

    /// Returns the disk of the store.
    #[must_use]
    pub fn disk(&self) -> &Arc<MemoryFs> {
        &self.disk
    }

    /// Returns the open store.
    ///
    /// # Panics
    ///
    /// If it is closed.
    #[must_use]
    pub fn db(&self) -> &Db {
        self.db.as_ref().expect("the store is open")
    }

    /// Returns whether the store is open.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.db.is_some()
    }

    /// Returns the handle of a keyspace, if it exists.
    #[must_use]
    pub fn handle(&self, name: &str) -> Option<&Keyspace> {
        self.keyspaces.get(name).map(|opened| &opened.handle)
    }

    /// Returns the random numbers of the script.
    pub fn rng(&mut self) -> &mut Rng {
        &mut self.rng
    }

    /// Returns a unique value of about `bytes` bytes.
    pub fn new_value(&mut self, bytes: usize) -> Bytes {
        self.values += 1;
        let mut value = format!("v{}.", self.values).into_bytes();
        let missing = bytes.saturating_sub(value.len());
        if missing > 0 {
            self.rng.fill(&mut value, missing);
        }
        value.into()
    }

    /// Starts value numbers at `first`, to differ from those of another recorder.
    pub fn number_values_from(&mut self, first: u64) {
        self.values = first;
    }

    /// Forbids further failures, except refused writes if `read_only`. The history keeps earlier
    /// failures.
    pub fn expect_no_failures(&mut self, read_only: bool) {
        self.healed = Some(read_only);
    }

    /// Compares the whole store with the history.
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

    /// Returns the store if it is open and the failed writes can still be tracked.
    fn writable(&self) -> Option<Db> {
        self.db.clone().filter(|_| self.history.worlds() <= WORLDS_MAX / 2)
    }

    /// Returns the result of a call, or `None` if it failed as allowed.
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
