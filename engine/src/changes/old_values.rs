//! Values before a batch, from the history of keyspaces.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    sync::{Arc, Weak},
};

use sievedb_format::SequenceNumber;

use super::batch::{ChangeBatch, OldValue};
use crate::{
    Error, Keyspace, KeyspaceSnapshot, PointInTime, ReadOptions, Result, handle::Handle,
    handle_counts::HandleKind, store::open_store::OpenStore,
};

/// The store before a batch.
pub(super) struct OldValues {
    open: Arc<OpenStore>,
    point: PointInTime,
}

impl OldValues {
    /// Returns the store before the sequence number `first`.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`].
    pub(super) fn before(open: &Weak<OpenStore>, first: SequenceNumber) -> Result<Self> {
        let open = open.upgrade().ok_or(Error::Closed)?;
        Ok(Self { open, point: PointInTime::Sequence(first - 1) })
    }

    /// Sets the old values of the changes of `batch`.
    ///
    /// # Errors
    ///
    /// As [`Keyspace::get`].
    pub(super) fn add_to(&self, batch: &mut ChangeBatch) -> Result<()> {
        // Once for each keyspace: a snapshot reads all keyspaces.
        let mut snapshots = BTreeMap::new();
        for change in &mut batch.changes {
            let Some(key) = change.kind.key() else { continue };
            let snapshot = match snapshots.entry(change.keyspace) {
                Entry::Occupied(taken) => taken.into_mut(),
                Entry::Vacant(new) => new.insert(self.snapshot(change.keyspace)?),
            };
            let Some(snapshot) = snapshot else { continue };
            change.old_value = old_value(snapshot, key)?;
        }
        Ok(())
    }

    /// Returns the keyspace before the batch; `None` if its history begins later.
    fn snapshot(&self, keyspace: u64) -> Result<Option<KeyspaceSnapshot>> {
        let tree = self.open.store().versions.trees().of_id(keyspace).cloned();
        let Some(tree) = tree else { return Ok(None) };
        let handle = Handle::new(Arc::clone(&self.open), HandleKind::Keyspace);
        let keyspace = Keyspace::new(handle, tree, ReadOptions::new());
        match keyspace.snapshot_at(self.point) {
            Err(Error::NotInHistory { .. } | Error::KeyspaceDropped { .. }) => Ok(None),
            snapshot => snapshot.map(Some),
        }
    }
}

/// Returns the value of `key`; unknown if the keyspace was dropped meanwhile.
fn old_value(snapshot: &KeyspaceSnapshot, key: &[u8]) -> Result<OldValue> {
    match snapshot.get(key) {
        Err(Error::KeyspaceDropped { .. }) => Ok(OldValue::Unknown),
        found => Ok(found?.map_or(OldValue::Absent, OldValue::Value)),
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;
    use crate::{Options, fs::MemoryFs};

    #[test]
    fn values_of_a_dropped_keyspace_are_unknown() {
        let options = Options::new().fs(Arc::new(MemoryFs::new())).worker_threads(0);
        let db = options.open("db").expect("a new store");
        let keyspace = db.keyspace("users").expect("a new keyspace");
        keyspace.insert("key", "value").expect("there is room");
        let snapshot = db.snapshot().keyspace(&keyspace).expect("it exists");
        let found = || old_value(&snapshot, b"key").expect("it can be read");
        assert_eq!(found(), OldValue::Value("value".into()));
        db.drop_keyspace("users").expect("there is room");
        assert_eq!(found(), OldValue::Unknown);
    }
}
