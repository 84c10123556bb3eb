//! Builds snapshots.

use std::{
    fmt,
    hash::{BuildHasher as _, Hasher as _, RandomState},
    marker::PhantomData,
};

use openraft::{RaftSnapshotBuilder, Snapshot, StorageError, StorageIOError};
use sievedb::Durability;

use super::{Snapshots, install::applied};
use crate::{
    Error, Result, Types,
    record::{Kept, Meta, Records, SNAPSHOT, encode},
};

/// Builds snapshots of a state machine, which continues meanwhile.
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
        let slot = self.snapshots.free_slot::<C>(&self.records)?;
        self.records.db.checkpoint(self.snapshots.path(slot)?)?;
        // The checkpoint itself says what it contains: entries are applied while it is made.
        let applied = applied::<C>(&self.snapshots.open_slot(slot)?)?;
        let index = applied.log_id.as_ref().map_or(0, |log_id| log_id.index);
        // Two nodes never choose the same id: a transfer that changes its sender begins again.
        let random = RandomState::new().build_hasher().finish();
        let meta = Meta::<C> {
            last_log_id: applied.log_id,
            last_membership: applied.membership,
            snapshot_id: format!("{index}-{random:016x}"),
        };
        let mut batch = self.records.db.batch();
        let kept = encode(&Kept::<C> { meta, slot })?;
        batch.insert(&self.records.keyspace, SNAPSHOT, kept)?;
        batch.commit(Durability::Disk)?;
        self.snapshots.clear_unused::<C>(&self.records)?;
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
