//! What was done to a [`MemoryFs`](super::MemoryFs), in order, and when it became durable.

use std::{fmt, ops::Range, sync::Arc};

use super::{
    disk::{NameId, Node},
    disk_file::File,
};

/// One operation of the journal, for reading. Paths are as [`MemoryFs`](super::MemoryFs) keeps
/// them; of a file's data operations, `path` is the name that it was created under.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    /// A folder came to be; one operation for each missing parent.
    CreateFolder { path: Arc<str> },
    /// An empty file came to be.
    Create { path: Arc<str> },
    /// The file grew by `bytes`, its place in the file.
    Append { path: Arc<str>, bytes: Range<usize> },
    /// The file became `file_bytes` long by zeros, which appends will fill.
    Reserve { path: Arc<str>, file_bytes: usize },
    /// The appends and reservations of the file before this became durable.
    SyncData { path: Arc<str> },
    /// A file changed its name.
    Rename { from: Arc<str>, to: Arc<str> },
    /// A name went.
    Unlink { path: Arc<str> },
    /// A file got another name.
    Link { from: Arc<str>, to: Arc<str> },
    /// The changes to the folder's entries before this became durable.
    SyncFolder { path: Arc<str> },
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CreateFolder { path } => write!(f, "create_dir {path}"),
            Self::Create { path } => write!(f, "create {path}"),
            Self::Append { path, bytes } => write!(f, "append {path} {bytes:?}"),
            Self::Reserve { path, file_bytes } => write!(f, "reserve {path} ..{file_bytes}"),
            Self::SyncData { path } => write!(f, "sync_data {path}"),
            Self::Rename { from, to } => write!(f, "rename {from} -> {to}"),
            Self::Unlink { path } => write!(f, "unlink {path}"),
            Self::Link { from, to } => write!(f, "link {from} -> {to}"),
            Self::SyncFolder { path } => write!(f, "sync_dir {path:?}"),
        }
    }
}

/// An operation in the form that a crash replays: names are numbers, and an entry says which node
/// it points to, so that it can be kept while the operation that made the node's first entry is
/// lost.
#[derive(Debug)]
pub(super) enum Change {
    /// `name` points to `node`.
    Enter { name: NameId, node: Node, linked_from: Option<NameId> },
    /// `to` points to `node`, and `from` to nothing, in one step.
    Rename { from: NameId, to: NameId, node: Node },
    /// `name` points to nothing.
    Leave { name: NameId },
    /// `file` grew by its bytes at `bytes`.
    Append { file: Arc<File>, bytes: Range<usize> },
    /// `file` became `file_bytes` long.
    Reserve { file: Arc<File>, file_bytes: usize },
    /// A sync of a file.
    SyncData { file: Arc<File> },
    /// A sync of a folder.
    SyncFolder { folder: NameId },
}

impl Change {
    /// Whether this makes other operations durable, and is nothing that could be lost itself.
    pub(super) fn is_sync(&self) -> bool {
        matches!(self, Self::SyncData { .. } | Self::SyncFolder { .. })
    }
}

/// A line of the journal.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) change: Change,
    /// Index of the sync that made this durable; [`NEVER`] if there was none.
    pub(super) synced_by: usize,
}

const NEVER: usize = usize::MAX;

impl Record {
    pub(super) fn new(change: Change) -> Self {
        Self { change, synced_by: NEVER }
    }

    /// Whether a crash after the first `at` operations, this among them, can lose it.
    pub(super) fn is_unsynced(&self, at: usize) -> bool {
        self.synced_by >= at && !self.change.is_sync()
    }
}
