//! The location of a stored block in the file.
//!
//! | field    | bytes  | meaning                                                |
//! |----------|--------|--------------------------------------------------------|
//! | `offset` | varint | offset of the block in the file                        |
//! | `bytes`  | varint | length including type byte and checksum, at least 5    |

use std::{fmt, ops::Range};

use sievedb_format::{Corruption, Decoder, Encode};

use crate::block::stored::TRAILER_BYTES;

/// Length of the shortest encoded handle: two varints.
pub(crate) const HANDLE_BYTES_MIN: usize = 2;

/// Location of a stored block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct BlockHandle {
    pub(crate) offset: u64,
    /// Length including type byte and checksum.
    pub(crate) bytes: u64,
}

impl BlockHandle {
    /// Appends the encoded form.
    pub(crate) fn encode(self, out: &mut Vec<u8>) {
        out.put_varint(self.offset);
        out.put_varint(self.bytes);
    }

    /// Decodes a handle.
    ///
    /// # Errors
    ///
    /// [`Corruption`] if a field violates the table above, or the block ends beyond `u64::MAX`.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, Corruption> {
        let mut decoder = Decoder::new(bytes);
        let offset = decoder.varint("offset of a block")?;
        let bytes = decoder.varint("bytes of a block")?;
        decoder.finish("handle of a block")?;
        Self::new(offset, bytes)
    }

    /// Checks and returns a handle.
    ///
    /// # Errors
    ///
    /// As [`decode`](Self::decode).
    pub(crate) fn new(offset: u64, bytes: u64) -> Result<Self, Corruption> {
        if bytes < TRAILER_BYTES as u64 || offset.checked_add(bytes).is_none() {
            return Err(Corruption::OutOfRange { what: "bytes of a block", value: bytes });
        }
        Ok(Self { offset, bytes })
    }

    /// Returns the range of the file.
    pub(crate) fn range(self) -> Range<u64> {
        self.offset..self.offset + self.bytes
    }
}

impl fmt::Display for BlockHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}-{:08x}", self.offset, self.offset + self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_round_trip() {
        for (offset, bytes) in [(0, 5), (64, 4096), (1 << 40, 1 << 28), (u64::MAX - 5, 5)] {
            let handle = BlockHandle { offset, bytes };
            let mut encoded = Vec::new();
            handle.encode(&mut encoded);
            assert_eq!(BlockHandle::decode(&encoded), Ok(handle));
        }
    }

    #[test]
    fn out_of_range_handles_are_refused() {
        for (name, offset, bytes) in [("short", 0, 4), ("beyond the end", u64::MAX - 4, 5)] {
            assert!(BlockHandle::new(offset, bytes).is_err(), "{name}");
        }
    }
}
