//! The stored value of a [`PutWithExpiry`](crate::Kind::PutWithExpiry).
//!
//! Log, memtables and tables store the same bytes:
//!
//! | offset | bytes | field       | meaning                                                    |
//! |--------|-------|-------------|------------------------------------------------------------|
//! | 0      | 8     | `expiry_ms` | first millisecond of the store clock without the value     |
//! | 8      | rest  | `value`     | the value, at most [`VALUE_BYTES_MAX`] bytes               |

use crate::{Corruption, VALUE_BYTES_MAX};

/// Length of the expiry before a value, in bytes.
pub const EXPIRY_BYTES: usize = size_of::<u64>();

/// Maximum length of a stored value, with its expiry, in bytes.
pub const STORED_VALUE_BYTES_MAX: usize = VALUE_BYTES_MAX + EXPIRY_BYTES;

/// Splits a stored value into its expiry, in milliseconds of the store clock, and the value.
///
/// # Errors
///
/// [`Corruption::Truncated`] if it is too short for an expiry.
#[inline]
pub fn split_expiry(stored: &[u8]) -> Result<(u64, &[u8]), Corruption> {
    match stored.split_first_chunk() {
        Some((&expiry_ms, value)) => Ok((u64::from_le_bytes(expiry_ms), value)),
        None => {
            let (need, have) = (EXPIRY_BYTES as u64, stored.len() as u64);
            Err(Corruption::Truncated { what: "expiry of an entry", need, have })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_the_expiry_precedes_the_value() {
        let stored = [0x15, 0xcd, 0x5b, 7, 0, 0, 0, 1, b'v'];
        assert_eq!(split_expiry(&stored), Ok((0x0100_0000_075b_cd15, &b"v"[..])));
        assert_eq!(split_expiry(&stored[..8]), Ok((0x0100_0000_075b_cd15, &b""[..])));
        for bytes in 0..EXPIRY_BYTES {
            let (need, have) = (8, bytes as u64);
            let want = Corruption::Truncated { what: "expiry of an entry", need, have };
            assert_eq!(split_expiry(&stored[..bytes]), Err(want));
        }
    }
}
