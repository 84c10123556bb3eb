//! Checksums of blocks, records and blobs.

use std::path::Path;

use xxhash_rust::{xxh3::xxh3_64, xxh32::xxh32, xxh64::xxh64};

use crate::error::{Error, Result};

/// Added to a masked CRC-32C.
const MASK: u32 = 0xa282_ead8;

/// Multiplier of the last byte, which XXH3 checksums mix in afterwards.
const LAST_BYTE_PRIME: u32 = 0x6b90_83d9;

/// Algorithm that a table names in its footer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChecksumKind {
    None,
    Crc32c,
    XxHash,
    XxHash64,
    Xxh3,
}

impl ChecksumKind {
    pub(crate) fn from_number(number: u8, path: &Path) -> Result<Self> {
        Ok(match number {
            0 => Self::None,
            1 => Self::Crc32c,
            2 => Self::XxHash,
            3 => Self::XxHash64,
            4 => Self::Xxh3,
            _ => return Err(Error::unsupported(path, format!("checksum type {number}"))),
        })
    }

    /// Returns the number of the algorithm in footers.
    pub(crate) fn number(self) -> u8 {
        match self {
            Self::None => 0,
            Self::Crc32c => 1,
            Self::XxHash => 2,
            Self::XxHash64 => 3,
            Self::Xxh3 => 4,
        }
    }

    /// Returns the checksum of `bytes`, whose last byte is the compression type of a block.
    pub(crate) fn of(self, bytes: &[u8]) -> u32 {
        match self {
            Self::None => 0,
            Self::Crc32c => masked_crc32c(&[bytes]),
            Self::XxHash => xxh32(bytes, 0),
            Self::XxHash64 => low(xxh64(bytes, 0)),
            Self::Xxh3 => match bytes.split_last() {
                Some((last, head)) => {
                    low(xxh3_64(head)) ^ u32::from(*last).wrapping_mul(LAST_BYTE_PRIME)
                }
                None => 0,
            },
        }
    }
}

/// Number added to the checksum of a block at `offset`, so that a misplaced block is detected.
/// Tables before format version 6 have the base 0.
pub(crate) fn context(base: u32, offset: u64) -> u32 {
    match base {
        0 => 0,
        base => base ^ low(offset).wrapping_add(low(offset >> 32)),
    }
}

/// Returns the masked CRC-32C of the concatenated `parts`.
pub(crate) fn masked_crc32c(parts: &[&[u8]]) -> u32 {
    let crc = parts.iter().fold(0, |crc, part| crc32c::crc32c_append(crc, part));
    crc.rotate_right(15).wrapping_add(MASK)
}

fn low(number: u64) -> u32 {
    number as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_checksums() {
        // CRC-32C of 32 zeros, from RFC 3720.
        assert_eq!(crc32c::crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(masked_crc32c(&[&[0; 16], &[0; 16]]), masked_crc32c(&[&[0; 32]]));
        assert_eq!(ChecksumKind::Xxh3.of(&[]), 0);
        for number in 0..=4 {
            let kind = ChecksumKind::from_number(number, Path::new("file")).unwrap();
            assert_eq!(kind.number(), number);
        }
        assert_eq!(context(0, 99), 0);
        assert_eq!(context(1, (1 << 32) | 2), 1 ^ 3);
    }
}
