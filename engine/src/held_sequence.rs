//! A read point that is listed as a snapshot while it is held.

use std::{fmt, sync::Arc};

use sievedb_format::SequenceNumber;

use crate::{resolve::ReadPoint, store::open_store::OpenStore};

/// Keeps a read point, with its sequence number, in the list of snapshots.
pub(crate) struct HeldSequence {
    open: Arc<OpenStore>,
    at: ReadPoint,
    /// `false` if the store was closed, or this process is a forked child.
    is_listed: bool,
}

impl HeldSequence {
    /// Holds the newest visible sequence number, and the present time.
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
        // In a closed store and in a forked child nothing is listed: reads fail.
        let listed = store.check_open().ok().map(|()| list());
        let at = listed.unwrap_or(ReadPoint::at_time(0, 0));
        Self { open, at, is_listed: listed.is_some() }
    }

    pub(crate) fn open(&self) -> &Arc<OpenStore> {
        &self.open
    }

    pub(crate) fn sequence(&self) -> SequenceNumber {
        self.at.sequence
    }

    /// Returns the read point.
    #[inline]
    pub(crate) fn read_point(&self) -> ReadPoint {
        self.at
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
        store.scheduler.snapshot_is_gone(store.versions.snapshots().remove(self.at.sequence));
    }
}
