//! A sequence number of a reader, listed while it is held.

use std::{fmt, sync::Arc};

use sievedb_format::SequenceNumber;

use crate::{resolve::ReadPoint, store::open_store::OpenStore};

/// Keeps a sequence number in the list of snapshots.
pub(crate) struct HeldSequence {
    open: Arc<OpenStore>,
    sequence: SequenceNumber,
    /// `false` if the store was closed, or this process is a forked child.
    is_listed: bool,
}

impl HeldSequence {
    /// Holds the newest visible sequence number.
    pub(crate) fn new(open: Arc<OpenStore>) -> Self {
        let store = open.store();
        let list = || {
            let now = store.options.clock.now();
            store.versions.snapshots().add(now, || store.writer.visible())
        };
        // In a closed store and in a forked child its reads are refused, and nothing is listed.
        let listed = store.check_open().ok().map(|()| list());
        Self { open, sequence: listed.unwrap_or(0), is_listed: listed.is_some() }
    }

    pub(crate) fn open(&self) -> &Arc<OpenStore> {
        &self.open
    }

    pub(crate) fn sequence(&self) -> SequenceNumber {
        self.sequence
    }

    /// Returns the point at which its holders read.
    #[inline]
    pub(crate) fn read_point(&self) -> ReadPoint {
        ReadPoint::new(self.sequence)
    }
}

impl fmt::Debug for HeldSequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HeldSequence").field(&self.sequence).finish()
    }
}

impl Drop for HeldSequence {
    fn drop(&mut self) {
        let store = self.open.store();
        if !self.is_listed || store.is_forked() {
            return;
        }
        store.scheduler.snapshot_is_gone(store.versions.snapshots().remove(self.sequence));
    }
}
