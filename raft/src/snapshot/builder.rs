//! Builds snapshots.

use std::{fmt, marker::PhantomData};

use sievedb::Durability;

use super::{SnapshotStream, Snapshots, install::applied};
use crate::{
    Error, Result,
    line::Line,
    record::{Kept, Records, SNAPSHOT, encode},
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

impl<C> SnapshotBuilder<C> {
    pub(crate) fn new(records: Records, snapshots: Snapshots) -> Self {
        Self { records, snapshots, types: PhantomData }
    }

    pub(crate) fn build<L: Line>(&self) -> Result<(L::Meta, SnapshotStream)> {
        let _turn = self.snapshots.turn();
        let slot = self.snapshots.free_slot::<L>(&self.records)?;
        self.records.db.checkpoint(self.snapshots.path(slot)?)?;
        // Read from the checkpoint itself: entries are applied while it is created.
        let meta = L::meta(applied::<L>(&self.snapshots.open_slot(slot)?)?);
        let mut batch = self.records.db.batch();
        batch.insert(&self.records.keyspace, SNAPSHOT, encode(&Kept { meta, slot })?)?;
        batch.commit(Durability::Disk)?;
        self.snapshots.clear_unused::<L>(&self.records)?;
        self.snapshots
            .current::<L>(&self.records)?
            .ok_or_else(|| Error::Snapshot("it vanished while it was built".to_owned()))
    }
}
