//! Builds snapshots.

use std::{
    fmt, fs,
    hash::{BuildHasher as _, Hasher as _, RandomState},
    marker::PhantomData,
};

use openraft::{RaftSnapshotBuilder, Snapshot, StorageError, StorageIOError};
use sievedb::{Durability, Options};

use super::{Snapshots, install::applied};
use crate::{
    Error, Result, Types,
    record::{Meta, Records, SNAPSHOT, encode},
};

/// Builds snapshots of a state machine, which goes on meanwhile.
pub struct SnapshotBuilder<C> {
    records: Records,
    snapshots: Snapshots,
    types: PhantomData<fn() -> C>,
}

impl<C> fmt::Debug for SnapshotBuilder<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SnapshotBuilder").finish_non_exhaustive()
    }
}

impl<C: Types> SnapshotBuilder<C> {
    pub(crate) fn new(records: Records, snapshots: Snapshots) -> Self {
        Self { records, snapshots, types: PhantomData }
    }

    fn build(&self) -> Result<Snapshot<C>> {
        let _turn = self.snapshots.turn();
        let path = self.snapshots.path("new-checkpoint")?;
        super::remove(&path)?;
        self.records.db.checkpoint(&path)?;
        // The checkpoint itself says what it contains: entries are applied while it is made.
        let applied = applied::<C>(&Options::new().read_only(true).open(&path)?)?;
        let index = applied.log_id.as_ref().map_or(0, |log_id| log_id.index);
        // Two nodes never choose the same id: a transfer that changes its sender begins again.
        let random = RandomState::new().build_hasher().finish();
        let meta = Meta::<C> {
            last_log_id: applied.log_id,
            last_membership: applied.membership,
            snapshot_id: format!("{index}-{random:016x}"),
        };
        let named = self.snapshots.path(&meta.snapshot_id)?;
        fs::rename(&path, &named).map_err(Error::at(&named))?;
        self.snapshots.sync()?;
        let mut batch = self.records.db.batch();
        batch.insert(&self.records.keyspace, SNAPSHOT, encode(&meta)?)?;
        batch.commit(Durability::Disk)?;
        self.snapshots.remove_unknown::<C>(&self.records)?;
        self.snapshots
            .current(&self.records)?
            .ok_or_else(|| Error::Snapshot("it vanished while it was built".to_owned()))
    }
}

impl<C: Types> RaftSnapshotBuilder<C> for SnapshotBuilder<C> {
    async fn build_snapshot(
        &mut self,
    ) -> std::result::Result<Snapshot<C>, StorageError<C::NodeId>> {
        Ok(self.build().map_err(|error| StorageIOError::write_snapshot(None, &error))?)
    }
}
