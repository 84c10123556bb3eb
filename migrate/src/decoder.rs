//! Decoding of integers and byte strings.

use std::path::Path;

use crate::error::{Error, Result};

/// Decodes bytes from front to back. Errors name the file and the offset of the bytes.
#[derive(Debug, Clone)]
pub(crate) struct Decoder<'a> {
    bytes: &'a [u8],
    path: &'a Path,
    offset: u64,
}

impl<'a> Decoder<'a> {
    /// Decodes `bytes` of a block or record at `offset` of the file `path`.
    pub(crate) fn new(bytes: &'a [u8], path: &'a Path, offset: u64) -> Self {
        Self { bytes, path, offset }
    }

    /// Decodes `bytes` of the same block or record.
    pub(crate) fn within(&self, bytes: &'a [u8]) -> Self {
        Self { bytes, ..*self }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Returns the number of remaining bytes.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Returns all remaining bytes.
    pub(crate) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.bytes)
    }

    pub(crate) fn corrupt(&self, reason: impl Into<String>) -> Error {
        Error::corrupt(self.path, self.offset, reason)
    }

    pub(crate) fn unsupported(&self, feature: impl Into<String>) -> Error {
        Error::unsupported(self.path, feature)
    }

    /// Returns the next `count` bytes. `what` names them in errors.
    pub(crate) fn bytes(&mut self, count: usize, what: &str) -> Result<&'a [u8]> {
        let Some((bytes, rest)) = self.bytes.split_at_checked(count) else {
            return Err(self.corrupt(format!("{what} is truncated")));
        };
        self.bytes = rest;
        Ok(bytes)
    }

    fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N]> {
        let mut array = [0; N];
        array.copy_from_slice(self.bytes(N, what)?);
        Ok(array)
    }

    pub(crate) fn u8(&mut self, what: &str) -> Result<u8> {
        Ok(self.array::<1>(what)?[0])
    }

    pub(crate) fn u32(&mut self, what: &str) -> Result<u32> {
        Ok(u32::from_le_bytes(self.array(what)?))
    }

    pub(crate) fn u64(&mut self, what: &str) -> Result<u64> {
        Ok(u64::from_le_bytes(self.array(what)?))
    }

    pub(crate) fn varint64(&mut self, what: &str) -> Result<u64> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.u8(what)?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                break;
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(self.corrupt(format!("{what} is longer than 64 bits")))
    }

    pub(crate) fn varint32(&mut self, what: &str) -> Result<u32> {
        let value = self.varint64(what)?;
        u32::try_from(value).map_err(|_| self.corrupt(format!("{what} is longer than 32 bits")))
    }

    /// Returns a length-prefixed byte string.
    pub(crate) fn prefixed(&mut self, what: &str) -> Result<&'a [u8]> {
        let count = self.varint32(what)?;
        self.bytes(count as usize, what)
    }

    /// Returns a zigzag-encoded signed integer.
    pub(crate) fn zigzag64(&mut self, what: &str) -> Result<i64> {
        let value = self.varint64(what)?;
        Ok((value >> 1).cast_signed() ^ -(value & 1).cast_signed())
    }

    /// Returns an error if bytes remain.
    pub(crate) fn finish(self, what: &str) -> Result<()> {
        match self.is_empty() {
            true => Ok(()),
            false => Err(self.corrupt(format!("{} bytes follow {what}", self.bytes.len()))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoder(bytes: &[u8]) -> Decoder<'_> {
        Decoder::new(bytes, Path::new("file"), 7)
    }

    #[test]
    fn integers() {
        let mut all = decoder(&[0x7f, 0x80, 0x01, 3, 4, 2, 0, 0, 0]);
        assert_eq!(all.varint64("a").unwrap(), 127);
        assert_eq!(all.varint32("a").unwrap(), 128);
        assert_eq!(all.zigzag64("a").unwrap(), -2);
        assert_eq!(all.zigzag64("a").unwrap(), 2);
        assert_eq!(all.u32("a").unwrap(), 2);
        assert!(all.u8("a").is_err());
    }

    #[test]
    fn integers_that_are_too_long_are_refused() {
        let max = [[0xff; 9].as_slice(), &[1]].concat();
        assert_eq!(decoder(&max).varint64("a").unwrap(), u64::MAX);
        assert!(decoder(&max).varint32("a").is_err());
        let over = [[0xff; 9].as_slice(), &[2]].concat();
        assert!(decoder(&over).varint64("a").is_err());
        assert!(decoder(&[0x80; 11]).varint64("a").is_err());
    }

    #[test]
    fn errors_name_file_and_offset() {
        let error = decoder(&[5, 1]).prefixed("name").unwrap_err();
        assert_eq!(error.to_string(), "file is corrupt at byte 7: name is truncated");
    }
}
