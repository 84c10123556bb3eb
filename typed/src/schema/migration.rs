//! A step from one version of a schema to the next: rewrites all values, in atomic batches.

use std::{ops::Bound, sync::Arc};

use sievedb::{Db, Durability, Isolation, Keyspace, TransactionOptions};

use super::{
    Step,
    record::{SchemaRecord, Stored},
};
use crate::{
    error::{Error, Result},
    transaction::{Expiry, sealed::Writes as _},
};

/// Maximum memory of a batch, in bytes. A larger value has a batch of its own.
const BATCH_BYTES: u64 = 256 << 10;

/// Folds all merge operands without storing the values. So operands of another type fail before
/// the first value is migrated.
pub(super) fn check_operands(keyspace: &Keyspace) -> Result<()> {
    if keyspace.options().get_merge_operator_name().is_some() {
        for entry in keyspace.iter() {
            entry?;
        }
    }
    Ok(())
}

/// Applies `step` to all values after [`SchemaRecord::migrated_to`], and stores the next version.
///
/// The batch that stores new values also stores the last of their keys in the record. So no value
/// is rewritten twice, even after crashes.
pub(super) fn migrate(
    db: &Db,
    keyspace: &Keyspace,
    name: &Arc<str>,
    mut record: SchemaRecord,
    step: &Step,
) -> Result<SchemaRecord> {
    let from = record.version;
    debug_assert!(from < u32::MAX, "no later version");
    // Each batch needs a new range: an old one would keep the memtables that the batches fill.
    while let Some(last) = rewrite_batch(db, keyspace, name, &record, step)? {
        debug_assert!(record.migrated_to.is_none_or(|before| before < last), "runs forwards");
        record.migrated_to = Some(last);
    }
    record.version = from + 1;
    record.migrated_to = None;
    record.write(db, keyspace)?;
    Ok(record)
}

/// Rewrites the next values. Returns the last of their keys, or `None` if there are none.
fn rewrite_batch(
    db: &Db,
    keyspace: &Keyspace,
    name: &Arc<str>,
    record: &SchemaRecord,
    step: &Step,
) -> Result<Option<Vec<u8>>> {
    let start = record.migrated_to.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
    // A transaction has a fixed clock, so a new value expires when the old one would.
    let options = TransactionOptions::new().isolation(Isolation::Snapshot).bytes_max(u64::MAX);
    let mut batch = db.begin_with(options);
    let mut last = None;
    for entry in keyspace.range::<&[u8]>((start, Bound::Unbounded)) {
        let (key, value) = entry?;
        let new = step(&key, value).map_err(|source| Error::Migration {
            keyspace: Arc::clone(name),
            from: record.version,
            key: key.clone(),
            source: source.into(),
        });
        let new = match new {
            Ok(new) => new,
            // Ends the batch before the value that failed.
            Err(error) if last.is_none() => return Err(error),
            Err(_) => break,
        };
        let bytes = new.as_ref().map_or(0, Vec::len) as u64;
        if !batch.is_empty() && batch.bytes() + bytes > BATCH_BYTES {
            break;
        }
        match new {
            Some(new) => {
                let expiry = Expiry::of(batch.ttl(keyspace, &key)?);
                batch.put(keyspace, &key, &new, expiry)?;
            }
            None => batch.remove(keyspace, &key)?,
        }
        last = Some(key.to_vec());
    }
    if let Some(last) = &last {
        let progress = SchemaRecord { migrated_to: Some(last.clone()), ..record.clone() };
        progress.write_in(&mut batch, db, keyspace)?;
        batch.commit(Durability::OsBuffer)?;
    }
    Ok(last)
}
