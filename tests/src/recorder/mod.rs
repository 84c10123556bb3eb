//! Writes to a store and to a history at once.

mod held;
mod opening;
mod write;

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use held::{HeldRange, HeldSnapshot};
use sievedb::{Db, Durability, Error, Keyspace, Options, stats::BackgroundStats};
use sievedb_doubles::MemoryFs;

use crate::{
    history::{History, WORLDS_MAX},
    model::{Model, Name},
    observe::{Unreadable, observe},
    rng::Rng,
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

impl Recorder {
    /// Opens a store that holds `base` on `disk`. The file system of `options` is the disk, or
    /// something around it.
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
