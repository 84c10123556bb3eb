//! Checksums: CRC-32 (IEEE 802.3).
//!
//! Each checksum also covers the position of its bytes, so misplaced bytes fail the check.

/// Returns the CRC-32 over the concatenation of `parts`.
#[must_use]
pub fn crc32(parts: &[&[u8]]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    for part in parts {
        hasher.update(part);
    }
    hasher.finalize()
}

/// Returns the checksum of a block, over salt, offset, length, type byte and content.
///
/// `salt` is the table's random number and `offset` the block's file offset. A block that was moved
/// within its table, or copied from another table, fails the check.
#[must_use]
pub fn block(salt: u64, offset: u64, type_byte: u8, content: &[u8]) -> u32 {
    let mut place = [0; 25];
    place[..8].copy_from_slice(&salt.to_le_bytes());
    place[8..16].copy_from_slice(&offset.to_le_bytes());
    place[16..24].copy_from_slice(&(content.len() as u64).to_le_bytes());
    place[24] = type_byte;
    crc32(&[&place, content])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crc32_is_the_ieee_polynomial() {
        assert_eq!(crc32(&[b"1234", b"56789"]), 0xcbf4_3926);
    }

    #[test]
    fn block_depends_on_every_part() {
        let good = block(1, 2, 3, b"content");
        let cases = [
            ("salt", block(2, 2, 3, b"content")),
            ("offset", block(1, 3, 3, b"content")),
            ("type", block(1, 2, 4, b"content")),
            ("length", block(1, 2, 3, b"content\0")),
            ("content", block(1, 2, 3, b"Content")),
        ];
        for (name, other) in cases {
            assert_ne!(good, other, "{name}");
        }
    }
}
