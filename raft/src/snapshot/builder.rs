//! Builds snapshots.

use std::{fmt, marker::PhantomData};

use sievedb::Durability;

use super::{SnapshotStream, Snapshots, install::applied, used};
use crate::{
    Error, Result,
    on_thread::on_thread,
    record::{Kept, Records, SNAPSHOT, encode},
    series::Series,
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

    pub(crate) async fn build<S: Series>(&self) -> Result<(S::Meta, SnapshotStream)> {
        let (records, snapshots) = (self.records.clone(), self.snapshots.clone());
        on_thread("raft-snapshot", move || build::<S>(&records, &snapshots)).await
    }
}

fn build<S: Series>(records: &Records, snapshots: &Snapshots) -> Result<(S::Meta, SnapshotStream)> {
    let _turn = snapshots.turn();
    let linked = snapshots.free_slot::<S>(records)?;
    records.db.checkpoint(snapshots.path(linked)?)?;
    let checkpoint = snapshots.open_slot(linked)?;
    // A transfer that begins again sends the same bytes. The store appends to the log to which the
    // checkpoint has links. A checkpoint of a read-only store copies the log.
    let [current, installing] = used::<S>(records)?;
    let slot = snapshots.slots.free(&[current, installing, Some(linked)])?;
    checkpoint.checkpoint(snapshots.path(slot)?)?;
    // Read from the checkpoint itself: entries are applied while it is created.
    let meta = S::meta(applied::<S>(&checkpoint)?);
    drop(checkpoint);
    let mut batch = records.db.batch();
    batch.insert(&records.keyspace, SNAPSHOT, encode(&Kept { meta, slot })?)?;
    batch.commit(Durability::Disk)?;
    snapshots.clear_unused::<S>(records)?;
    let current = snapshots.current::<S>(records)?;
    current.ok_or_else(|| Error::Snapshot("the new snapshot is not recorded".to_owned()))
}
