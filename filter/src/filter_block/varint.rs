//! Varints, as everywhere in SieveDB: groups of seven bits, lowest first; the top bit of a byte
//! marks that more follow.

use alloc::vec::Vec;

use crate::decode_error::DecodeError;

/// Maximum bytes of a varint.
const BYTES_MAX: usize = 10;

/// Appends `value`.
pub(super) fn put(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80); // The low seven bits.
        value >>= 7;
    }
    bytes.push(value as u8);
}

/// Reads a varint from the front of `bytes`.
///
/// # Errors
///
/// [`DecodeError`] if it is truncated, exceeds 64 bits, or is not the shortest form.
pub(super) fn take(bytes: &mut &[u8], what: &'static str) -> Result<u64, DecodeError> {
    let mut value = 0_u64;
    for (i, &byte) in bytes.iter().take(BYTES_MAX).enumerate() {
        let group = u64::from(byte & 0x7f);
        let shift = 7 * i as u32; // At most 63.
        if group.leading_zeros() < shift || (byte == 0 && i > 0) {
            return Err(DecodeError::OutOfRange { what, value: byte.into() });
        }
        value |= group << shift;
        if byte < 0x80 {
            *bytes = &bytes[i + 1..];
            return Ok(value);
        }
    }
    let have = bytes.len() as u64;
    Err(DecodeError::Truncated { what, need: have + 1, have })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_round_trip() {
        for bits in 0..64 {
            for value in [(1_u64 << bits) - 1, 1 << bits, u64::MAX >> bits] {
                let mut bytes = Vec::new();
                put(&mut bytes, value);
                let mut rest = bytes.as_slice();
                assert_eq!(take(&mut rest, "n"), Ok(value));
                assert!(rest.is_empty(), "{value}");
                for cut in 0..bytes.len() {
                    assert!(take(&mut &bytes[..cut], "n").is_err(), "{value}, {cut} bytes");
                }
            }
        }
    }

    #[test]
    fn malformed_varints_are_rejected() {
        let cases: [(&str, &[u8]); 4] = [
            ("zero in two bytes", &[0x80, 0]),
            ("one in three bytes", &[0x81, 0x80, 0]),
            ("65 bits", &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2]),
            ("no end", &[0x80; 12]),
        ];
        for (name, bytes) in cases {
            assert!(take(&mut &*bytes, "n").is_err(), "{name}");
        }
    }
}
