//! Errors of the stored forms of filters.

use core::{error, fmt};

/// The bytes of a filter are invalid. The caller must treat the filter as matching every key.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each variant's doc names its fields")]
pub enum DecodeError {
    /// `what` needs `need` bytes, but only `have` exist.
    Truncated { what: &'static str, need: u64, have: u64 },
    /// `what` is `value`, which the format forbids.
    OutOfRange { what: &'static str, value: u64 },
    /// The checksum of `what` is `computed`, not `stored`.
    Checksum { what: &'static str, stored: u64, computed: u64 },
    /// `what` is `found`; the table that the filter belongs to requires `expected`.
    Mismatch { what: &'static str, expected: u64, found: u64 },
    /// `what` is `value`, which this release does not support.
    Unsupported { what: &'static str, value: u64 },
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated { what, need, have } => {
                write!(f, "{what} is truncated: {need} bytes needed, {have} found")
            }
            Self::OutOfRange { what, value } => write!(f, "{what} is out of range: {value}"),
            Self::Checksum { what, stored, computed } => {
                write!(f, "checksum mismatch of {what}: stored {stored:#x}, computed {computed:#x}")
            }
            Self::Mismatch { what, expected, found } => {
                write!(f, "{what} is {found:#x}, expected {expected:#x}")
            }
            Self::Unsupported { what, value } => {
                write!(f, "{what} {value} is not supported by this release")
            }
        }
    }
}

impl error::Error for DecodeError {}
