//! A file system that skips directory syncs: a planted bug.

use std::{io, path::Path, sync::Arc};

use sievedb::fs::Fs;
use sievedb_doubles::{MemoryFs, Operation};

use crate::layer::{Layer, Layered};

/// Skipped syncs of a directory: those after a change of...
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeftOut {
    /// any file.
    All,
    /// a table.
    AfterTable,
    /// a log segment.
    AfterLog,
    /// the pointer to the manifest.
    AfterCurrent,
    /// the directory of the store itself.
    AfterDir,
}

impl LeftOut {
    fn is_about(self, last: &Operation) -> bool {
        let path = match last {
            Operation::Create { path } | Operation::Append { path, .. } => path,
            Operation::Rename { to, .. } => to,
            Operation::CreateDir { .. } => return self == Self::AfterDir,
            _ => return false,
        };
        match self {
            Self::All => true,
            Self::AfterTable => path.ends_with(".sst"),
            Self::AfterLog => path.ends_with(".log"),
            Self::AfterCurrent => path.ends_with("CURRENT"),
            Self::AfterDir => false,
        }
    }
}

/// A file system that reports directory syncs as successful and skips them.
pub type NoDirSync = Layered<NoDirSyncs>;

/// The layer of [`NoDirSync`].
#[derive(Debug)]
pub struct NoDirSyncs {
    disk: Arc<MemoryFs>,
    left_out: LeftOut,
}

impl NoDirSync {
    /// Passes every call to `disk` except the syncs of `left_out`.
    #[must_use]
    pub fn new(disk: Arc<MemoryFs>, left_out: LeftOut) -> Self {
        Self(NoDirSyncs { disk, left_out })
    }
}

impl Layer for NoDirSyncs {
    fn inner(&self) -> &dyn Fs {
        &*self.disk
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        let journal = self.disk.journal();
        let is_sync = |operation: &&Operation| matches!(operation, Operation::SyncData { .. });
        let last = journal.iter().rev().find(|operation| !is_sync(operation));
        let left_out = self.left_out == LeftOut::All
            || last.is_some_and(|operation| self.left_out.is_about(operation));
        if left_out { Ok(()) } else { self.disk.sync_dir(path) }
    }
}
