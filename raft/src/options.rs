//! Options of the store of a node.

use std::path::Path;

use sievedb::Db;

use crate::{
    Application, LogStore, PlantedBug, Result, StateMachine, Types, record::Records,
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
    /// Snapshots are files on their file system. They are opened read-only with the same keys of
    /// encryption, merge operators and prefix functions.
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

    /// Returns the log and the state machine in `db`. Both are empty in a new store.
    ///
    /// Snapshots are kept in the directory `snapshots`, which is created. If it is on the file
    /// system of the store, a snapshot takes hard links, otherwise a copy. A snapshot whose
    /// installation was interrupted is installed now.
    ///
    /// # Errors
    ///
    /// [`Error::Io`](crate::Error::Io) if the directory cannot be used,
    /// [`Error::Store`](crate::Error::Store) if the store fails, and
    /// [`Error::Snapshot`](crate::Error::Snapshot) if the interrupted snapshot is damaged.
    pub fn open<C: Types, A: Application<C>>(
        &self,
        db: &Db,
        snapshots: impl AsRef<Path>,
        application: A,
    ) -> Result<(LogStore<C>, StateMachine<C, A>)> {
        let records = Records::open(db)?;
        if self.has_bug(PlantedBug::ForgetVote) {
            records.keyspace.remove(crate::record::VOTE)?;
        }
        let snapshots = Snapshots::open::<C>(snapshots.as_ref(), self, &records)?;
        let log = LogStore::new(records.clone(), self.clone());
        Ok((log, StateMachine::open(records, snapshots, application)?))
    }

    #[cfg(feature = "planted-bugs")]
    pub(crate) fn has_bug(&self, bug: PlantedBug) -> bool {
        self.bug == Some(bug)
    }

    #[cfg(not(feature = "planted-bugs"))]
    pub(crate) const fn has_bug(&self, _: PlantedBug) -> bool {
        false
    }
}
