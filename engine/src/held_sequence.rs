//! A read point listed as a snapshot while it is held.

use std::{collections::BTreeMap, fmt, sync::Arc};

use sievedb_format::SequenceNumber;

use crate::{
    PointInTime, Result, read::tree::Tree, resolve::ReadPoint, store::open_store::OpenStore,
};

/// Keeps a read point, with its sequence number, in the list of snapshots.
pub(crate) struct HeldSequence {
    open: Arc<OpenStore>,
    at: ReadPoint,
    /// Ids of the keyspaces with the versions of this point. Each has the clock of its readers, in
    /// milliseconds, which is not behind that of `at`. `None` for all keyspaces.
    kept_in: Option<BTreeMap<u64, u64>>,
    /// `false` if the store was closed, or this process is a forked child.
    is_listed: bool,
}

impl HeldSequence {
    /// Holds the newest visible sequence number, and the current time.
    pub(crate) fn new(open: Arc<OpenStore>) -> Self {
        let store = open.store();
        let list = || {
            let versions = &store.versions;
            let time = || {
                let now = store.options.clock.now();
                (now, versions.clock().at_ms(now))
            };
            versions.snapshots().add(time, || store.writer.visible())
        };
        // In a closed store and in a forked child, nothing is listed, and reads fail.
        let listed = store.check_open().ok().map(|()| list());
        let at = listed.unwrap_or(ReadPoint::at_time(0, 0));
        Self { open, at, kept_in: None, is_listed: listed.is_some() }
    }

    /// Holds a point in the past, for the keyspaces that have it in their history. Returns `None`
    /// if `keyspace` does not have it.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`](crate::Error::Closed), [`Error::ForkedChild`](crate::Error::ForkedChild).
    pub(crate) fn of_past(
        open: Arc<OpenStore>,
        point: PointInTime,
        keyspace: &Tree,
    ) -> Result<Option<Self>> {
        let store = open.accept()?;
        let now = store.options.clock.now();
        let mut kept_in = BTreeMap::new();
        // The lock of the snapshots is taken after that of the trees.
        let trees: Vec<_> = store.versions.trees().values().cloned().collect();
        let held = store.versions.snapshots().add_past(now, || {
            let past = store.past_point(point).ok_or(())?;
            for tree in &trees {
                if let Some(least_ms) = store.clock_in_history(tree, past) {
                    kept_in.insert(tree.id, past.at.clock_ms().max(least_ms));
                }
            }
            kept_in.contains_key(&keyspace.id).then_some(past.at).ok_or(())
        });
        let Ok(at) = held else { return Ok(None) };
        // The list may have moved it to the clock of an older snapshot, which compactions use.
        kept_in.values_mut().for_each(|ms| *ms = at.clock_ms().max(*ms));
        Ok(Some(Self { open, at, kept_in: Some(kept_in), is_listed: true }))
    }

    /// Rejects a keyspace that lacks versions of this point.
    ///
    /// # Errors
    ///
    /// [`Error::NotInHistory`](crate::Error::NotInHistory).
    pub(crate) fn check_kept_in(&self, tree: &Tree) -> Result<()> {
        if self.kept_in.as_ref().is_none_or(|kept_in| kept_in.contains_key(&tree.id)) {
            return Ok(());
        }
        Err(self.open.store().not_in_history(tree, self.at.sequence.into()))
    }

    pub(crate) fn open(&self) -> &Arc<OpenStore> {
        &self.open
    }

    pub(crate) fn sequence(&self) -> SequenceNumber {
        self.at.sequence
    }

    /// Returns the read point of a snapshot at the current point in time.
    #[inline]
    pub(crate) fn read_point(&self) -> ReadPoint {
        debug_assert!(self.kept_in.is_none(), "each keyspace has its own clock of the past");
        self.at
    }

    /// Returns the read point of the keyspace with this id.
    #[inline]
    pub(crate) fn read_point_in(&self, keyspace_id: u64) -> ReadPoint {
        let clock_ms = self.kept_in.as_ref().and_then(|kept_in| kept_in.get(&keyspace_id));
        clock_ms.map_or(self.at, |&clock_ms| ReadPoint::at_time(self.at.sequence, clock_ms))
    }
}

impl fmt::Debug for HeldSequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HeldSequence").field(&self.at.sequence).finish()
    }
}

impl Drop for HeldSequence {
    fn drop(&mut self) {
        let store = self.open.store();
        if !self.is_listed || store.is_forked() {
            return;
        }
        store.scheduler.snapshot_is_gone(store.versions.snapshots().remove(self.at));
    }
}
