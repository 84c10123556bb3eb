//! What can be wrong with the bytes of a filter.

use core::{error, fmt};

/// Why the bytes of a filter were refused. Whoever refuses a filter must take it for "maybe".
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each variant's doc names its fields")]
pub enum DecodeError {
    /// `what` needs `need` bytes and only `have` are there.
    Truncated { what: &'static str, need: u64, have: u64 },
    /// `what` holds `value`, which its format forbids.
    OutOfRange { what: &'static str, value: u64 },
    /// The checksum of `what` is `computed`; `stored` was written.
    Checksum { what: &'static str, stored: u64, computed: u64 },
    /// `what` should be `expected`, as told by the table it belongs to, and is `found`.
    Mismatch { what: &'static str, expected: u64, found: u64 },
    /// `what` is `value`, which this release does not know.
    Unsupported { what: &'static str, value: u64 },
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated { what, need, have } => {
                write!(f, "{what} needs {need} bytes and {have} are there")
            }
            Self::OutOfRange { what, value } => write!(f, "{what} must not be {value}"),
            Self::Checksum { what, stored, computed } => {
                write!(f, "the checksum of {what} is {computed:#x}, {stored:#x} was stored")
            }
            Self::Mismatch { what, expected, found } => {
                write!(f, "{what} is {found:#x}, {expected:#x} was expected")
            }
            Self::Unsupported { what, value } => {
                write!(f, "{what} {value} is not known to this release")
            }
        }
    }
}

impl error::Error for DecodeError {}
