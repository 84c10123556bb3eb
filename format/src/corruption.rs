//! What can be wrong with stored bytes.

use std::{error, fmt};

/// Why bytes were refused.
///
/// A decoder knows the field; whoever opened the file adds its path and the offset.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each variant's doc names its fields")]
pub enum Corruption {
    /// `what` needs `need` bytes and only `have` are there.
    Truncated { what: &'static str, need: u64, have: u64 },
    /// `bytes` bytes follow the end of `what`.
    Trailing { what: &'static str, bytes: u64 },
    /// `what` holds `value`, which its format forbids.
    OutOfRange { what: &'static str, value: u64 },
    /// The checksum of `what` is `computed`; `stored` was written.
    Checksum { what: &'static str, stored: u64, computed: u64 },
    /// `what` should be `expected`, as told by the place that refers to it, and is `found`.
    Mismatch { what: &'static str, expected: u64, found: u64 },
    /// `what` does not begin with its magic number but with `found`, whose bytes are in
    /// little-endian order.
    Magic { what: &'static str, found: u64 },
    /// `what` has version or kind `value`, which this release does not know.
    Unsupported { what: &'static str, value: u64 },
    /// `what` is not in order.
    Order { what: &'static str },
    /// `what` must be there and is not.
    Missing { what: &'static str },
    /// `what` needs the feature `feature`, which this build is without. Nothing is damaged.
    NeedsFeature { what: &'static str, feature: &'static str },
}

impl fmt::Display for Corruption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated { what, need, have } => {
                write!(f, "{what} needs {need} bytes and {have} are there")
            }
            Self::Trailing { what, bytes } => write!(f, "{bytes} bytes follow the end of {what}"),
            Self::OutOfRange { what, value } => write!(f, "{what} must not be {value}"),
            Self::Checksum { what, stored, computed } => {
                write!(
                    f,
                    "{what} has another checksum ({computed:#x}) than when it was written ({stored:#x})"
                )
            }
            Self::Mismatch { what, expected, found } => {
                write!(f, "{what} is {found}, {expected} was expected")
            }
            Self::Magic { what, found } => {
                write!(f, "not a SieveDB {what}: its magic number is ")?;
                match str::from_utf8(&found.to_le_bytes()) {
                    Ok(text) if text.bytes().all(|byte| byte.is_ascii_graphic()) => {
                        write!(f, "{text:?}")
                    }
                    _ => write!(f, "{found:#018x}"),
                }
            }
            Self::Unsupported { what, value } => {
                write!(f, "{what} {value} is not known to this release")
            }
            Self::Order { what } => write!(f, "{what} is not in order"),
            Self::Missing { what } => write!(f, "{what} is missing"),
            Self::NeedsFeature { what, feature } => {
                write!(f, "{what} needs the feature {feature}, which this build is without")
            }
        }
    }
}

impl error::Error for Corruption {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_magic_number_is_shown_as_what_it_is() {
        let magic = |bytes: &[u8; 8]| {
            Corruption::Magic { what: "table", found: u64::from_le_bytes(*bytes) }.to_string()
        };
        let not = "not a SieveDB table: its magic number is ";
        assert_eq!(magic(b"SieveLog"), format!("{not}\"SieveLog\""));
        assert_eq!(magic(b"\x01\0\0\0\0\0\0\0"), format!("{not}0x0000000000000001"));
    }
}
