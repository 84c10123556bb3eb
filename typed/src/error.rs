//! Errors of typed keyspaces.

use std::{error, fmt, sync::Arc};

use sievedb::Bytes;

use crate::{codec::CodecError, key::KeyError};

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of a typed keyspace.
///
/// As for [`sievedb::Error`], the message omits the cause, which [`source`](error::Error::source)
/// returns.
#[derive(Debug, Clone)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each variant's doc names its fields")]
pub enum Error {
    /// The engine failed.
    Engine(sievedb::Error),
    /// The stored `key` of `keyspace` is not a key of the expected type.
    Key { keyspace: Arc<str>, key: Bytes, source: KeyError },
    /// The value of `key` in `keyspace` is not a value of the expected type.
    Value { keyspace: Arc<str>, key: Bytes, source: Arc<dyn error::Error + Send + Sync> },
    /// The codec cannot encode a value for `keyspace`. Nothing was changed.
    Encode { keyspace: Arc<str>, source: Arc<dyn error::Error + Send + Sync> },
    /// The entries of `keyspace` have the schema name and version `stored`; the caller expects
    /// `expected`. No entry was changed.
    ///
    /// If the names are the same and the stored version is lower, a
    /// [migration](crate::Schema::migrate) from that version is missing.
    SchemaMismatch { keyspace: Arc<str>, stored: (String, u32), expected: (String, u32) },
    /// A migration of `keyspace` from version `from` was interrupted, and the caller expects that
    /// version. An open with a later version completes the migration.
    MigrationUnfinished { keyspace: Arc<str>, from: u32 },
    /// The keyspace has entries, but no stored schema: they were not written by a typed keyspace.
    /// [`Schema::adopt_untyped`](crate::Schema::adopt_untyped) accepts them.
    NoSchema { keyspace: Arc<str> },
    /// The migration from version `from` failed at `key`. The entries before it are migrated. The
    /// next [`open`](crate::TypedKeyspace::open) continues at `key`.
    Migration {
        keyspace: Arc<str>,
        from: u32,
        key: Bytes,
        source: Arc<dyn error::Error + Send + Sync>,
    },
    /// The stored schema of `keyspace` cannot be decoded: it is that of an index instead of data or
    /// the reverse, or a later release of this crate or another application wrote it.
    SchemaRecord { keyspace: Arc<str>, source: KeyError },
    /// The `index` has an entry for `key`, which has no value. A write to the data did not use its
    /// [`Indexed`](crate::Indexed), or a [compaction filter](sievedb::CompactionFilter) or
    /// [`Fifo`](sievedb::Fifo) compaction removed the value.
    /// [`Indexed::rebuild`](crate::Indexed::rebuild) corrects the index.
    StaleIndex { index: Arc<str>, key: Bytes },
    /// A snapshot has no complete `index`: it is older than the index or its last build, or was
    /// taken meanwhile.
    IncompleteIndex { index: Arc<str> },
    /// [`Indexed::index`](crate::Indexed::index) was called twice with the name `index`.
    DuplicateIndex { index: Arc<str> },
    /// An open of [`SCHEMA_KEYSPACE`](crate::SCHEMA_KEYSPACE), which stores only schemas.
    ReservedName { keyspace: Arc<str> },
}

impl Error {
    /// Returns the error of the engine; `None` for other errors.
    #[must_use]
    pub fn engine(&self) -> Option<&sievedb::Error> {
        match self {
            Self::Engine(error) => Some(error),
            _ => None,
        }
    }

    pub(crate) fn value(keyspace: &Arc<str>, key: &[u8], source: CodecError) -> Self {
        let key = Bytes::copy_from_slice(key);
        Self::Value { keyspace: Arc::clone(keyspace), key, source: source.into() }
    }

    pub(crate) fn encode(keyspace: &Arc<str>, source: CodecError) -> Self {
        Self::Encode { keyspace: Arc::clone(keyspace), source: source.into() }
    }
}

impl From<sievedb::Error> for Error {
    fn from(error: sievedb::Error) -> Self {
        Self::Engine(error)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Engine(error) => error.fmt(f),
            Self::Key { keyspace, key, .. } => write!(
                f,
                "the keyspace {keyspace:?} has a key of another type: {}",
                key.escape_ascii()
            ),
            Self::Value { keyspace, key, .. } => write!(
                f,
                "the value in the keyspace {keyspace:?} under the key {} has another type",
                key.escape_ascii()
            ),
            Self::Encode { keyspace, .. } => {
                write!(f, "cannot encode a value for the keyspace {keyspace:?}")
            }
            Self::SchemaMismatch { keyspace, stored, expected } => write!(
                f,
                "the keyspace {keyspace:?} has the schema {:?} version {}, expected {:?} version \
                 {}; use the type that wrote it, or add migrations",
                stored.0, stored.1, expected.0, expected.1
            ),
            Self::MigrationUnfinished { keyspace, from } => write!(
                f,
                "a migration of the keyspace {keyspace:?} from version {from} was interrupted; \
                 open it with the later version to complete the migration"
            ),
            Self::NoSchema { keyspace } => write!(
                f,
                "the keyspace {keyspace:?} has entries without a schema; if they have the expected \
                 types, use Schema::adopt_untyped"
            ),
            Self::Migration { keyspace, from, key, .. } => write!(
                f,
                "cannot migrate the keyspace {keyspace:?} from version {from} at the key {}",
                key.escape_ascii()
            ),
            Self::SchemaRecord { keyspace, .. } => write!(
                f,
                "the stored schema of the keyspace {keyspace:?} is of another kind or release; use \
                 another name, or the release that wrote it"
            ),
            Self::StaleIndex { index, key } => write!(
                f,
                "the index {index:?} has an entry for the absent key {}; call Indexed::rebuild",
                key.escape_ascii()
            ),
            Self::IncompleteIndex { index } => write!(
                f,
                "the snapshot has no complete index {index:?}; take one after the index is built"
            ),
            Self::DuplicateIndex { index } => {
                write!(
                    f,
                    "the index {index:?} was added twice; use another name, or clone the first"
                )
            }
            Self::ReservedName { keyspace } => {
                write!(f, "the keyspace {keyspace:?} is reserved for schemas; use another name")
            }
        }
    }
}

impl error::Error for Error {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        match self {
            // The message is already that of the engine's error.
            Self::Engine(error) => error.source(),
            Self::Key { source, .. } | Self::SchemaRecord { source, .. } => Some(source),
            Self::Value { source, .. }
            | Self::Encode { source, .. }
            | Self::Migration { source, .. } => Some(&**source),
            _ => None,
        }
    }
}
