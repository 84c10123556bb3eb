//! Keys with versions: user key, sequence number and type of the value.

use std::{cmp::Ordering, path::Path};

use crate::error::{Error, Result};

/// Largest sequence number.
pub(crate) const SEQUENCE_MAX: u64 = (1 << 56) - 1;

/// Type of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ValueType {
    Deletion,
    SingleDeletion,
    Value,
    Merge,
    /// The value is a reference into a blob file.
    BlobIndex,
    /// The value is a set of named columns.
    WideColumns,
    /// The value ends with 8 bytes, the time of the write.
    TimedValue,
}

impl ValueType {
    /// Type of range deletions, which tables store in a block of their own.
    pub(crate) const RANGE_DELETION: u8 = 0x0f;

    /// Returns the type of an entry in a table.
    pub(crate) fn from_number(number: u8, path: &Path) -> Result<Self> {
        Ok(match number {
            0x00 => Self::Deletion,
            0x01 => Self::Value,
            0x02 => Self::Merge,
            0x07 => Self::SingleDeletion,
            0x11 => Self::BlobIndex,
            0x16 => Self::WideColumns,
            0x18 => Self::TimedValue,
            0x14 => return Err(Error::unsupported(path, "user-defined timestamps")),
            _ => return Err(Error::unsupported(path, format!("entry of type {number:#04x}"))),
        })
    }
}

/// Splits an internal key into user key, sequence number and type.
pub(crate) fn split_internal_key(key: &[u8]) -> Option<(&[u8], u64, u8)> {
    let (user, trailer) = key.split_last_chunk::<8>()?;
    let trailer = u64::from_le_bytes(*trailer);
    Some((user, trailer >> 8, trailer as u8))
}

/// Order of the user keys of a column family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Comparator {
    #[default]
    Bytewise,
    ReverseBytewise,
}

impl Comparator {
    pub(crate) const BYTEWISE: &str = "leveldb.BytewiseComparator";
    const REVERSE_BYTEWISE: &str = "rocksdb.ReverseBytewiseComparator";

    pub(crate) fn from_name(name: &str, path: &Path) -> Result<Self> {
        match name {
            Self::BYTEWISE => Ok(Self::Bytewise),
            Self::REVERSE_BYTEWISE => Ok(Self::ReverseBytewise),
            _ => Err(Error::unsupported(path, format!("comparator {name:?}"))),
        }
    }

    pub(crate) fn compare(self, left: &[u8], right: &[u8]) -> Ordering {
        match self {
            Self::Bytewise => left.cmp(right),
            Self::ReverseBytewise => right.cmp(left),
        }
    }

    /// Compares user keys. For equal user keys, the larger sequence number sorts first.
    pub(crate) fn compare_versions(self, left: (&[u8], u64), right: (&[u8], u64)) -> Ordering {
        self.compare(left.0, right.0).then(right.1.cmp(&left.1))
    }
}
