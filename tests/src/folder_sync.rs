//! A file system that leaves folder syncs out: a planted bug.

use std::{io, path::Path, sync::Arc};

use sievedb::fs::{AppendFile, FileLock, Fs, MemoryFs, Operation, ReadFile};

/// Which syncs of a folder are left out: those after a change of the folder that matters to...
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
    /// the folder of the store itself.
    AfterFolder,
}

impl LeftOut {
    fn is_about(self, last: &Operation) -> bool {
        let path = match last {
            Operation::Create { path } | Operation::Append { path, .. } => path,
            Operation::Rename { to, .. } => to,
            Operation::CreateFolder { .. } => return self == Self::AfterFolder,
            _ => return false,
        };
        match self {
            Self::All => true,
            Self::AfterTable => path.ends_with(".sst"),
            Self::AfterLog => path.ends_with(".log"),
            Self::AfterCurrent => path.ends_with("CURRENT"),
            Self::AfterFolder => false,
        }
    }
}

/// A file system that says it synced a folder and did not.
#[derive(Debug)]
pub struct NoFolderSync {
    disk: Arc<MemoryFs>,
    left_out: LeftOut,
}

impl NoFolderSync {
    /// Passes every call on to `disk`, without the syncs that are `left_out`.
    #[must_use]
    pub fn new(disk: Arc<MemoryFs>, left_out: LeftOut) -> Self {
        Self { disk, left_out }
    }
}

impl Fs for NoFolderSync {
    fn create_folder(&self, path: &Path) -> io::Result<()> {
        self.disk.create_folder(path)
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        self.disk.list(folder)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.disk.exists(path)
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn AppendFile>> {
        self.disk.create(path)
    }

    fn open_append(&self, path: &Path) -> io::Result<Arc<dyn AppendFile>> {
        self.disk.open_append(path)
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn ReadFile>> {
        self.disk.open(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        self.disk.unlink(path)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk.link(from, to)
    }

    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        let journal = self.disk.journal();
        let is_sync = |operation: &&Operation| matches!(operation, Operation::SyncData { .. });
        let last = journal.iter().rev().find(|operation| !is_sync(operation));
        let left_out = self.left_out == LeftOut::All
            || last.is_some_and(|operation| self.left_out.is_about(operation));
        if left_out { Ok(()) } else { self.disk.sync_folder(path) }
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        self.disk.lock(path)
    }

    fn lock_shared(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        self.disk.lock_shared(path)
    }

    fn random_u64(&self) -> io::Result<u64> {
        self.disk.random_u64()
    }
}
