//! Values before a batch, from the history of keyspaces.

use std::sync::{Arc, Weak};

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
        for change in &mut batch.changes {
            let Some(key) = change.kind.key() else { continue };
            let Some(snapshot) = self.snapshot(change.keyspace)? else { continue };
            change.old_value = snapshot.get(key)?.map_or(OldValue::Absent, OldValue::Value);
        }
        Ok(())
    }

    /// Returns the keyspace before the batch; `None` if its history does not reach back so far.
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
