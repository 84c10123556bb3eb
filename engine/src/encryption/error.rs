//! Errors of encrypted files. `Error::io` converts them into typed errors with the path.

use std::{error, fmt, io};

use sievedb_format::Corruption;

use super::keys::KeyError;

/// The cause of an [`io::Error`] of an encrypted file.
#[derive(Debug, Clone)]
pub(crate) enum EncryptionError {
    /// The file is not encrypted.
    Plain,
    /// The key `id` is not available.
    NoKey { id: u64, source: KeyError },
    /// The key `id` is not the one that encrypted the file.
    WrongKey { id: u64 },
    /// The stored bytes of the logical `offset` are damaged.
    Corrupt { offset: u64, source: Corruption },
}

impl EncryptionError {
    pub(super) fn corrupt(offset: u64, source: Corruption) -> io::Error {
        Self::Corrupt { offset, source }.into()
    }
}

impl From<EncryptionError> for io::Error {
    fn from(error: EncryptionError) -> Self {
        Self::new(io::ErrorKind::InvalidData, error)
    }
}

impl fmt::Display for EncryptionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain => write!(f, "the file is not encrypted"),
            Self::NoKey { id, .. } => write!(f, "the root key {id} is missing"),
            Self::WrongKey { id } => write!(f, "the root key {id} is wrong"),
            Self::Corrupt { offset, .. } => write!(f, "damaged near byte {offset}"),
        }
    }
}

impl error::Error for EncryptionError {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        match self {
            Self::Plain | Self::WrongKey { .. } => None,
            Self::NoKey { source, .. } => Some(source),
            Self::Corrupt { source, .. } => Some(source),
        }
    }
}
