//! Errors of invalid stored bytes.

use std::{error, fmt};

/// Stored bytes are invalid.
///
/// A decoder reports the field. The code that opened the file adds its path and the offset.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each variant's doc names its fields")]
pub enum Corruption {
    /// `what` needs `need` bytes, but only `have` exist.
    Truncated { what: &'static str, need: u64, have: u64 },
    /// `bytes` bytes follow the end of `what`.
    Trailing { what: &'static str, bytes: u64 },
    /// `what` is `value`, which the format forbids.
    OutOfRange { what: &'static str, value: u64 },
    /// The checksum of `what` is `computed`, not `stored`.
    Checksum { what: &'static str, stored: u64, computed: u64 },
    /// `what` is `found`; the reference to it requires `expected`.
    Mismatch { what: &'static str, expected: u64, found: u64 },
    /// `what` begins with `found` (little-endian) instead of its magic number.
    Magic { what: &'static str, found: u64 },
    /// `what` has version or kind `value`, which this release does not support.
    Unsupported { what: &'static str, value: u64 },
    /// `what` is not sorted.
    Order { what: &'static str },
    /// `what` is required but missing.
    Missing { what: &'static str },
    /// `what` fails authentication: it was changed, or encrypted for another place.
    NotAuthentic { what: &'static str },
    /// The file is encrypted. The bytes may be valid.
    Encrypted,
    /// `what` needs the feature `feature`, which this build lacks. The bytes are valid.
    NeedsFeature { what: &'static str, feature: &'static str },
}

impl fmt::Display for Corruption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated { what, need, have } => {
                write!(f, "{what} is truncated: {need} bytes needed, {have} found")
            }
            Self::Trailing { what, bytes } => write!(f, "{bytes} bytes follow the end of {what}"),
            Self::OutOfRange { what, value } => write!(f, "{what} is out of range: {value}"),
            Self::Checksum { what, stored, computed } => {
                write!(f, "checksum mismatch of {what}: stored {stored:#x}, computed {computed:#x}")
            }
            Self::Mismatch { what, expected, found } => {
                write!(f, "{what} is {found}, expected {expected}")
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
                write!(f, "{what} {value} is not supported by this release")
            }
            Self::Order { what } => write!(f, "{what} is not sorted"),
            Self::Missing { what } => write!(f, "{what} is missing"),
            Self::NotAuthentic { what } => write!(f, "{what} fails authentication"),
            Self::Encrypted => write!(f, "the file is encrypted"),
            Self::NeedsFeature { what, feature } => {
                write!(f, "{what} needs the feature {feature}; rebuild with it")
            }
        }
    }
}

impl error::Error for Corruption {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_magic_number_is_shown_as_text_if_printable() {
        let magic = |bytes: &[u8; 8]| {
            Corruption::Magic { what: "table", found: u64::from_le_bytes(*bytes) }.to_string()
        };
        let not = "not a SieveDB table: its magic number is ";
        assert_eq!(magic(b"SieveLog"), format!("{not}\"SieveLog\""));
        assert_eq!(magic(b"\x01\0\0\0\0\0\0\0"), format!("{not}0x0000000000000001"));
    }
}
