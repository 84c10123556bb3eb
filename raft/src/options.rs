//! Options of the store of a node.

use std::path::Path;

use sievedb::Db;

use crate::{
    Application, LogStore, PlantedBug, Result, StateMachine,
    claim::Claim,
    record::{Records, VOTE},
    series::Series,
    snapshot::Snapshots,
};

/// Options of the store of a node.
#[derive(Debug, Clone, Default)]
#[must_use = "options do nothing until `open`"]
pub struct Options {
    pub(crate) store: sievedb::Options,
    #[cfg(feature = "planted-bugs")]
    bug: Option<PlantedBug>,
}

impl Options {
    /// Returns options for a store that was opened with the options `store`.
    ///
    /// Snapshots use the same file system, encryption keys, merge operators and prefix functions.
    /// They are opened read-only, also with [`create_new`](sievedb::Options::create_new).
    pub fn new(store: sievedb::Options) -> Self {
        Self {
            store,
            #[cfg(feature = "planted-bugs")]
            bug: None,
        }
    }

    /// Plants a bug, to show that a test catches it.
    #[cfg(feature = "planted-bugs")]
    #[doc(hidden)]
    pub fn planted_bug(mut self, bug: PlantedBug) -> Self {
        self.bug = Some(bug);
        self
    }

    /// Returns the log and the state machine of the release series `S` in `db`.
    pub(crate) fn open_series<S: Series<Request = A::Request>, C, A: Application>(
        &self,
        db: &Db,
        snapshots: &Path,
        application: A,
    ) -> Result<(LogStore<C>, StateMachine<C, A>)> {
        let records = Records::open(db)?;
        let claim = Claim::new(&records)?;
        records.check_series::<S>()?;
        if self.has_bug(PlantedBug::ForgetVote) {
            records.keyspace.remove(VOTE)?;
        }
        let snapshots = Snapshots::open::<S>(snapshots, self, &records, &claim)?;
        let log = LogStore::new(records.clone(), self.bug(), claim);
        Ok((log, StateMachine::open::<S>(records, snapshots, application)?))
    }

    #[cfg(feature = "planted-bugs")]
    const fn bug(&self) -> Option<PlantedBug> {
        self.bug
    }

    #[cfg(not(feature = "planted-bugs"))]
    const fn bug(&self) -> Option<PlantedBug> {
        None
    }

    pub(crate) fn has_bug(&self, bug: PlantedBug) -> bool {
        self.bug() == Some(bug)
    }
}
