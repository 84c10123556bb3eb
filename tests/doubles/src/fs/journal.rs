//! Operations of a [`MemoryFs`](super::MemoryFs) in order, and the syncs that cover them.

use std::{fmt, ops::Range, sync::Arc};

use super::{
    disk::{NameId, Node},
    disk_file::File,
};

/// An operation of the journal. Paths are normalised; data operations have the path at creation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    /// A directory was created; one operation for each missing parent.
    CreateDir { path: Arc<str> },
    /// An empty file was created.
    Create { path: Arc<str> },
    /// The file grew by the range `bytes`.
    Append { path: Arc<str>, bytes: Range<usize> },
    /// The file became `file_bytes` long by zeros, which appends will replace.
    Reserve { path: Arc<str>, file_bytes: usize },
    /// Earlier appends and reservations of the file became durable.
    SyncData { path: Arc<str> },
    /// A file was renamed.
    Rename { from: Arc<str>, to: Arc<str> },
    /// A name was removed.
    Unlink { path: Arc<str> },
    /// A file got a second name.
    Link { from: Arc<str>, to: Arc<str> },
    /// Earlier changes of the directory's entries became durable.
    SyncDir { path: Arc<str> },
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CreateDir { path } => write!(f, "create_dir {path}"),
            Self::Create { path } => write!(f, "create {path}"),
            Self::Append { path, bytes } => write!(f, "append {path} {bytes:?}"),
            Self::Reserve { path, file_bytes } => write!(f, "reserve {path} ..{file_bytes}"),
            Self::SyncData { path } => write!(f, "sync_data {path}"),
            Self::Rename { from, to } => write!(f, "rename {from} -> {to}"),
            Self::Unlink { path } => write!(f, "unlink {path}"),
            Self::Link { from, to } => write!(f, "link {from} -> {to}"),
            Self::SyncDir { path } => write!(f, "sync_dir {path:?}"),
        }
    }
}

/// An operation for replay. Names are numbers. An entry has its node, so that it can be kept while
/// the operation that created the node is lost.
#[derive(Debug)]
pub(super) enum Change {
    /// `name` points to `node`.
    Enter { name: NameId, node: Node, linked_from: Option<NameId> },
    /// `to` points to `node` and `from` to nothing, atomically.
    Rename { from: NameId, to: NameId, node: Node },
    /// `name` points to nothing.
    Leave { name: NameId },
    /// `file` grew by the range `bytes`.
    Append { file: Arc<File>, bytes: Range<usize> },
    /// `file` became `file_bytes` long.
    Reserve { file: Arc<File>, file_bytes: usize },
    /// A sync of a file.
    SyncData { file: Arc<File> },
    /// A sync of a directory.
    SyncDir { dir: NameId },
}

impl Change {
    /// Returns whether this is a sync, which cannot be lost.
    pub(super) fn is_sync(&self) -> bool {
        matches!(self, Self::SyncData { .. } | Self::SyncDir { .. })
    }
}

/// An entry of the journal.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) change: Change,
    /// Index of the sync that made this durable, or [`NEVER`].
    pub(super) synced_by: usize,
}

const NEVER: usize = usize::MAX;

impl Record {
    pub(super) fn new(change: Change) -> Self {
        Self { change, synced_by: NEVER }
    }

    /// Returns whether a crash after the first `at` operations, including this one, can lose it.
    pub(super) fn is_unsynced(&self, at: usize) -> bool {
        self.synced_by >= at && !self.change.is_sync()
    }
}
