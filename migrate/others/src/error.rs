//! Errors of a migration.

use std::{
    error, fmt,
    path::{Path, PathBuf},
};

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of a migration. No store was created, unless [`Output`](Self::Output) says so.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The path has no database of the engine.
    NotDatabase {
        /// Name of the engine.
        engine: &'static str,
        /// Path of the source.
        path: PathBuf,
    },
    /// The engine cannot open or read the source.
    Source {
        /// Name of the engine.
        engine: &'static str,
        /// Error of its crate.
        source: Box<dyn error::Error + Send + Sync>,
    },
    /// A keyspace of the source cannot be copied.
    Unsupported {
        /// Name of the keyspace.
        name: String,
        /// Reason, and what to do.
        reason: String,
    },
    /// The new store cannot be written or read.
    Store(sievedb::Error),
    /// The directory of the new store cannot be created. Or the store is complete, but cannot be
    /// renamed to its final name, or the new name cannot be synced.
    Output(sievedb_migrate::Error),
    /// A keyspace of the new store differs from the source.
    Differs {
        /// Name of the keyspace.
        name: String,
    },
}

impl Error {
    /// Wraps an error of the crate of `engine`.
    pub(crate) fn of(engine: &'static str) -> impl Fn(Box<dyn error::Error + Send + Sync>) -> Self {
        move |source| Self::Source { engine, source }
    }

    /// Returns an error unless `file` exists.
    pub(crate) fn check(engine: &'static str, path: &Path, file: &Path) -> Result<()> {
        match file.exists() {
            true => Ok(()),
            false => Err(Self::NotDatabase { engine, path: path.to_owned() }),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotDatabase { engine, path } => {
                write!(f, "not a database of {engine}: {}", path.display())
            }
            Self::Source { engine, .. } => write!(f, "{engine} cannot read the source"),
            Self::Unsupported { name, reason } => write!(f, "cannot copy {name:?}: {reason}"),
            Self::Store(error) => write!(f, "{error}"),
            Self::Output(error) => write!(f, "{error}"),
            Self::Differs { name } => {
                write!(f, "the keyspace {name:?} differs from the source; the copy was deleted")
            }
        }
    }
}

impl error::Error for Error {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        match self {
            Self::Source { source, .. } => Some(&**source),
            Self::Store(error) => error.source(),
            Self::Output(error) => error.source(),
            _ => None,
        }
    }
}

impl From<sievedb::Error> for Error {
    fn from(error: sievedb::Error) -> Self {
        Self::Store(error)
    }
}

impl From<sievedb_migrate::Error> for Error {
    fn from(error: sievedb_migrate::Error) -> Self {
        Self::Output(error)
    }
}
