//! Installs a snapshot: its entries replace those of the application's keyspaces.
//!
//! The store records the installation before it begins, and removes the record by the commit that
//! ends it. After a crash in between, the next open begins the installation again.

use sievedb::{Db, Durability, Keyspace};

use super::Snapshots;
use crate::{
    Error, PlantedBug, Result,
    commit_limit::CommitLimit,
    record::{APPLIED, INSTALLING, Kept, Records, SNAPSHOT, encode},
    series::{AppliedOf, Series},
};

/// Returns what the state machine in `db` contains.
pub(super) fn applied<S: Series>(db: &Db) -> Result<AppliedOf<S>> {
    let records = Records::open(db)?;
    records.check_series::<S>()?;
    Ok(records.read(APPLIED)?.unwrap_or_default())
}

/// Checks that the checkpoint `source` is complete, and contains what `meta` describes.
pub(super) fn check<S: Series>(source: &Db, meta: &S::Meta) -> Result<()> {
    if applied::<S>(source)?.log_id.as_ref() != S::last_log_id(meta) {
        return Err(Error::Snapshot(format!("{meta:?} contains other entries")));
    }
    let report = source.verify()?;
    let damaged = report.problems.first().map(|problem| &problem.message);
    match damaged.or(report.torn_tails.first().map(|tail| &tail.message)) {
        Some(message) => Err(Error::Snapshot(message.clone())),
        None => Ok(()),
    }
}

/// Replaces the contents of `keyspaces` by those of the received snapshot `kept`, which becomes
/// the current one. Purges the log up to it.
pub(crate) fn install<S: Series>(
    records: &Records,
    snapshots: &Snapshots,
    keyspaces: &[Keyspace],
    kept: &Kept<S::Meta>,
) -> Result<()> {
    let source = snapshots.open_slot(kept.slot)?;
    let applied = applied::<S>(&source)?;
    for keyspace in keyspaces {
        keyspace.clear()?;
        let omitted = usize::from(snapshots.options().has_bug(PlantedBug::OmitEntryOfSnapshot));
        copy(&source, keyspace, &records.db, omitted)?;
    }
    let mut batch = records.db.batch();
    batch.insert(&records.keyspace, APPLIED, encode(&applied)?)?;
    batch.insert(&records.keyspace, SNAPSHOT, encode(kept)?)?;
    batch.remove(&records.keyspace, INSTALLING)?;
    records.commit_installation::<S>(batch, applied.log_id.as_ref())?;
    snapshots.clear_unused::<S>(records)
}

/// Copies the entries of the keyspace in `source` that has the name of `target`, without the first
/// `omitted` ones.
fn copy(source: &Db, target: &Keyspace, db: &Db, omitted: usize) -> Result<()> {
    if !source.keyspace_exists(&target.name())? {
        return Ok(());
    }
    let from = source.open_keyspace(&target.name())?;
    let limit = CommitLimit::default();
    let mut batch = db.batch();
    let mut entries = from.iter();
    for _ in 0..omitted {
        entries.next_ref()?;
    }
    while let Some(entry) = entries.next_ref()? {
        if limit.is_exceeded_by(batch.bytes() + entry.value().len() as u64, db) {
            batch.commit(Durability::OsBuffer)?;
        }
        batch.insert(target, entry.key(), entry.value())?;
    }
    batch.commit(Durability::OsBuffer)?;
    Ok(())
}
