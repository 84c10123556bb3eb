//! The segments of an open log: how much of each is durable, and which are open.

use std::{path::PathBuf, sync::Arc};

use sievedb_format::SequenceNumber;

use super::LogHost;
use crate::{Error, Result, error::SYNC, fs::AppendFile};

/// Size of the log, and syncs so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct LogSize {
    /// Number of segments.
    pub(crate) segments: u64,
    /// Length of all segments, in bytes.
    pub(crate) bytes: u64,
    /// Syncs of segments since the store was opened.
    pub(crate) syncs: u64,
}

/// A segment that the manifest names.
#[derive(Debug)]
pub(super) struct Segment {
    pub(super) id: u64,
    pub(super) path: PathBuf,
    pub(super) bytes: u64,
    pub(super) last_sequence: SequenceNumber,
    /// Handle for its sync. `None` once the segment is finished and synced as a whole.
    pub(super) file: Option<Arc<dyn AppendFile>>,
    pub(super) synced_bytes: u64,
}

impl Segment {
    /// Returns the present state of the segment, or `None` if it is synced as a whole.
    pub(super) fn unsynced(&self) -> Option<Unsynced> {
        let file = self.file.as_ref().filter(|_| self.synced_bytes < self.bytes)?;
        let (path, file) = (self.path.clone(), Arc::clone(file));
        Some(Unsynced { id: self.id, bytes: self.bytes, path, file })
    }

    /// Closes the file of a finished segment once all of it is synced: a process has few
    /// descriptors, and the log may have thousands of segments.
    pub(super) fn close_if_synced(&mut self) {
        if self.synced_bytes >= self.bytes {
            self.file = None;
        }
    }
}

/// A segment as it was when a sync of it began.
pub(super) struct Unsynced {
    pub(super) id: u64,
    pub(super) bytes: u64,
    pub(super) path: PathBuf,
    pub(super) file: Arc<dyn AppendFile>,
}

impl Unsynced {
    /// Syncs the segment up to `bytes`. A failure makes the store read-only.
    pub(super) fn sync(&self, host: &impl LogHost) -> Result<()> {
        let synced = self.file.sync_data();
        synced.map_err(|error| host.poison(Error::io(SYNC, &self.path, error)))
    }
}
