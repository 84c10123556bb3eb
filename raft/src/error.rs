//! Errors of log, state machine and snapshots.

use std::{
    error, fmt, io,
    path::{Path, PathBuf},
};

/// The result of a call of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of this crate. openraft's errors contain it as their source.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The store failed.
    Store(sievedb::Error),
    /// A value in the store, or the header of a snapshot, cannot be decoded.
    Encoding(postcard::Error),
    /// postcard cannot encode and decode an entry, which was not appended: see
    /// [`Application::Request`](crate::Application::Request).
    Entry {
        /// The index of the entry.
        index: u64,
        /// Error of postcard.
        source: postcard::Error,
    },
    /// A file or directory of snapshots could not be used.
    Io {
        /// The file or directory.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// A thread that builds or installs a snapshot cannot be started.
    Thread(io::Error),
    /// A snapshot is incomplete, or differs from its metadata.
    Snapshot(String),
    /// Entries are neither in the log nor in the state machine: a crash of an earlier version of
    /// this crate has lost a snapshot. Remove the node from the cluster, and add a new node.
    Incomplete {
        /// The index of the last entry that was purged from the log.
        purged: u64,
        /// The index of the last entry in the state machine.
        applied: Option<u64>,
    },
    /// Another release series of openraft has written the store. Contains its name, such as `0.9`.
    ReleaseSeries(String),
    /// The log and the state machine of this [`Db`](sievedb::Db) are in use: drop all of their
    /// handles first, also each [`SnapshotReceiver`](crate::SnapshotReceiver) and
    /// [`SnapshotStream`](crate::SnapshotStream).
    InUse,
    /// Another store uses the directory of snapshots: choose one for each store.
    DirectoryInUse(PathBuf),
    /// openraft passed an entry that is already applied.
    AlreadyApplied {
        /// The index of the entry.
        index: u64,
        /// The index of the last entry in the state machine.
        applied: u64,
    },
    /// A thread that builds or installs a snapshot has panicked. Contains the message.
    Panicked(String),
}

impl Error {
    /// Returns a function that converts an I/O error of the file `path`.
    pub(crate) fn at(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { path, source }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store(_) => f.write_str("the store failed"),
            Self::Encoding(_) => f.write_str("a record of the log or a snapshot is damaged"),
            Self::Entry { index, .. } => {
                write!(f, "postcard cannot encode and decode entry {index}; ")?;
                f.write_str("use a request type that Application::Request permits")
            }
            Self::Io { path, source } if source.kind() == io::ErrorKind::NotFound => {
                write!(f, "{} is missing; restart this node, or if its store ", path.display())?;
                f.write_str("is missing, too, remove the node and add a new one")
            }
            Self::Io { path, .. } => {
                write!(f, "cannot use {}; check its permissions and free space", path.display())
            }
            Self::Thread(_) => f.write_str("cannot start a thread for a snapshot"),
            Self::Snapshot(what) => write!(f, "snapshot refused: {what}"),
            Self::Incomplete { purged, applied } => {
                let next = applied.map_or(0, |applied| applied + 1);
                write!(f, "the entries from {next} to {purged} are lost; ")?;
                f.write_str("remove this node, and add a new one")
            }
            Self::ReleaseSeries(series) => {
                write!(f, "the log was written by openraft {series}; ")?;
                f.write_str("open it with that release series")
            }
            Self::InUse => {
                f.write_str("the log of the store is in use; drop its handles: those of Raft, ")?;
                f.write_str("the SnapshotReceiver and all snapshot streams")
            }
            Self::DirectoryInUse(path) => {
                write!(f, "another store uses the snapshots in {}; ", path.display())?;
                f.write_str("choose another directory")
            }
            Self::AlreadyApplied { index, applied } => {
                write!(f, "cannot apply entry {index}: the entries up to {applied} are applied")
            }
            Self::Panicked(message) => write!(f, "snapshot thread panicked: {message}"),
        }
    }
}

impl error::Error for Error {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        match self {
            Self::Store(source) => Some(source),
            Self::Encoding(source) | Self::Entry { source, .. } => Some(source),
            Self::Io { source, .. } | Self::Thread(source) => Some(source),
            Self::Snapshot(_)
            | Self::Incomplete { .. }
            | Self::ReleaseSeries(_)
            | Self::InUse
            | Self::DirectoryInUse(_)
            | Self::AlreadyApplied { .. }
            | Self::Panicked(_) => None,
        }
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        Self::other(error)
    }
}

impl From<sievedb::Error> for Error {
    fn from(error: sievedb::Error) -> Self {
        Self::Store(error)
    }
}

impl From<postcard::Error> for Error {
    fn from(error: postcard::Error) -> Self {
        Self::Encoding(error)
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::Error;

    #[test]
    fn an_io_error_names_the_file_and_the_remedy() {
        let text = |kind: io::ErrorKind| Error::at("snapshots/0".as_ref())(kind.into()).to_string();
        let expected = "cannot use snapshots/0; check its permissions and free space";
        assert_eq!(text(io::ErrorKind::PermissionDenied), expected);
        let missing = text(io::ErrorKind::NotFound);
        assert!(missing.starts_with("snapshots/0 is missing; restart this node"), "{missing}");
    }
}
