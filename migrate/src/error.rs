//! Errors of reading and writing directories.

use std::{
    error, fmt, io,
    path::{Path, PathBuf},
    sync::Arc,
};

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of reading or writing a directory.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused an operation.
    Io {
        /// Operation that failed, as a verb: "open", "read".
        op: &'static str,
        /// File or directory.
        path: PathBuf,
        /// Error of the operating system.
        source: Arc<io::Error>,
    },
    /// A file is damaged.
    Corrupt {
        /// Damaged file.
        path: PathBuf,
        /// Byte offset of the damaged block or record in the file.
        offset: u64,
        /// Description of the damage.
        reason: String,
    },
    /// A file needs a feature of RocksDB that this crate does not read.
    Unsupported {
        /// File that needs the feature.
        path: PathBuf,
        /// Name of the feature, and what to do.
        feature: String,
    },
    /// The directory contains no RocksDB database.
    NotRocksDb {
        /// Directory.
        path: PathBuf,
    },
    /// Another process has the database open.
    Locked {
        /// Directory of the database.
        path: PathBuf,
        /// Id of the process, if the operating system names it.
        process: Option<u32>,
    },
    /// The database has no column family of this name.
    NoColumnFamily {
        /// Name of the column family.
        name: String,
    },
    /// A file or directory exists that an export would create.
    Exists {
        /// File or directory.
        path: PathBuf,
    },
    /// An empty directory cannot be replaced, for example because it is a mount point.
    NotReplaceable {
        /// Directory.
        path: PathBuf,
        /// Error of the operating system.
        source: Arc<io::Error>,
    },
    /// A complete directory did not get its final name.
    NotRenamed {
        /// Present path of the directory.
        partial: PathBuf,
        /// Final path.
        path: PathBuf,
        /// Error of the rename.
        source: Box<Self>,
    },
    /// A key is not greater than the last one of its column family.
    KeyOrder {
        /// The key.
        key: Vec<u8>,
    },
    /// An entry is larger than [`ENTRY_BYTES_MAX`](crate::export::ENTRY_BYTES_MAX).
    EntryTooLarge {
        /// Bytes of key and value.
        bytes: u64,
    },
}

impl Error {
    pub(crate) fn io(op: &'static str, path: &Path, source: io::Error) -> Self {
        Self::Io { op, path: path.to_owned(), source: Arc::new(source) }
    }

    pub(crate) fn corrupt(path: &Path, offset: u64, reason: impl Into<String>) -> Self {
        Self::Corrupt { path: path.to_owned(), offset, reason: reason.into() }
    }

    pub(crate) fn unsupported(path: &Path, feature: impl Into<String>) -> Self {
        Self::Unsupported { path: path.to_owned(), feature: feature.into() }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { op, path, .. } => write!(f, "cannot {op} {}", path.display()),
            Self::Corrupt { path, offset, reason } => {
                write!(f, "{} is corrupt at byte {offset}: {reason}", path.display())
            }
            Self::Unsupported { path, feature } => {
                write!(f, "{} cannot be read: {feature}", path.display())
            }
            Self::NotRocksDb { path } => write!(
                f,
                "not a RocksDB directory: {} has no file CURRENT that names a manifest",
                path.display()
            ),
            Self::Locked { path, process } => {
                let holder = process.map(|id| format!(" {id}")).unwrap_or_default();
                write!(f, "{} is open in the process{holder}; close it there", path.display())
            }
            Self::NoColumnFamily { name } => write!(f, "no column family {name:?}"),
            Self::Exists { path } => {
                let path = path.display();
                write!(f, "{path} exists; use another name, or delete it if no process writes it")
            }
            Self::NotReplaceable { path, .. } => write!(
                f,
                "the directory {path} cannot be replaced; name a new directory, such as {path}/new",
                path = path.display()
            ),
            Self::NotRenamed { partial, path, .. } => {
                let (partial, path) = (partial.display(), path.display());
                write!(f, "{partial} is complete but cannot be renamed to {path}; rename it")
            }
            Self::KeyOrder { key } => {
                write!(f, "the key {} is not greater than the last one", key.escape_ascii())
            }
            Self::EntryTooLarge { bytes } => {
                write!(f, "an entry has {bytes} bytes, and tables take up to 1 GiB")
            }
        }
    }
}

impl error::Error for Error {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        match self {
            Self::Io { source, .. } | Self::NotReplaceable { source, .. } => Some(&**source),
            Self::NotRenamed { source, .. } => Some(&**source),
            _ => None,
        }
    }
}
