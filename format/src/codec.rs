//! Encoding of integers and byte strings, and bounds-checked decoding.

use crate::Corruption;

/// Maximum bytes of a varint: ten groups of seven bits hold a `u64`.
pub const VARINT_BYTES_MAX: usize = 10;

/// Appends fields to a buffer.
pub trait Encode {
    /// Appends raw bytes.
    fn put(&mut self, bytes: &[u8]);

    /// Appends one byte.
    fn put_u8(&mut self, value: u8) {
        self.put(&[value]);
    }

    /// Appends 4 bytes, little-endian.
    fn put_u32(&mut self, value: u32) {
        self.put(&value.to_le_bytes());
    }

    /// Appends 8 bytes, little-endian.
    fn put_u64(&mut self, value: u64) {
        self.put(&value.to_le_bytes());
    }

    /// Appends 16 bytes, little-endian.
    fn put_u128(&mut self, value: u128) {
        self.put(&value.to_le_bytes());
    }

    /// Appends `value` as a varint: groups of seven bits, lowest first. The top bit of a byte is
    /// set if another byte follows.
    fn put_varint(&mut self, mut value: u64) {
        let mut bytes = [0; VARINT_BYTES_MAX];
        let mut len = 0;
        while value >= 0x80 {
            bytes[len] = value as u8 | 0x80;
            value >>= 7;
            len += 1;
        }
        bytes[len] = value as u8;
        self.put(&bytes[..=len]);
    }

    /// Appends the length as a varint, then the bytes.
    fn put_prefixed(&mut self, bytes: &[u8]) {
        self.put_varint(bytes.len() as u64);
        self.put(bytes);
    }
}

impl Encode for Vec<u8> {
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

/// Returns the number of bytes that [`Encode::put_varint`] appends for `value`.
#[must_use]
pub const fn varint_bytes(value: u64) -> usize {
    (64 - (value | 1).leading_zeros() as usize).div_ceil(7)
}

/// A bounds-checked reader of fields.
///
/// Each method takes the name of the field for its errors.
#[derive(Debug, Clone)]
pub struct Decoder<'a> {
    bytes: &'a [u8],
    offset: usize,
}

impl<'a> Decoder<'a> {
    /// Creates a reader at the start of `bytes`.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, offset: 0 }
    }

    /// Returns the number of bytes read so far.
    #[must_use]
    pub const fn offset(&self) -> usize {
        self.offset
    }

    /// Returns the bytes not read yet.
    #[must_use]
    pub fn rest(&self) -> &'a [u8] {
        &self.bytes[self.offset..]
    }

    /// Returns `true` if all bytes were read.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.offset == self.bytes.len()
    }

    /// Reads `len` bytes.
    ///
    /// # Errors
    ///
    /// [`Corruption::Truncated`] if fewer are left.
    pub fn take(&mut self, what: &'static str, len: usize) -> Result<&'a [u8], Corruption> {
        let rest = self.rest();
        let Some(taken) = rest.get(..len) else {
            return Err(Corruption::Truncated { what, need: len as u64, have: rest.len() as u64 });
        };
        self.offset += len;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], Corruption> {
        let bytes = self.take(what, N)?;
        Ok(bytes.try_into().expect("`take` returns `N` bytes"))
    }

    /// Reads one byte.
    ///
    /// # Errors
    ///
    /// [`Corruption::Truncated`] at the end.
    pub fn u8(&mut self, what: &'static str) -> Result<u8, Corruption> {
        Ok(self.array::<1>(what)?[0])
    }

    /// Reads 4 bytes.
    ///
    /// # Errors
    ///
    /// [`Corruption::Truncated`] if fewer are left.
    pub fn u32(&mut self, what: &'static str) -> Result<u32, Corruption> {
        Ok(u32::from_le_bytes(self.array(what)?))
    }

    /// Reads 8 bytes.
    ///
    /// # Errors
    ///
    /// [`Corruption::Truncated`] if fewer are left.
    pub fn u64(&mut self, what: &'static str) -> Result<u64, Corruption> {
        Ok(u64::from_le_bytes(self.array(what)?))
    }

    /// Reads 16 bytes.
    ///
    /// # Errors
    ///
    /// [`Corruption::Truncated`] if fewer are left.
    pub fn u128(&mut self, what: &'static str) -> Result<u128, Corruption> {
        Ok(u128::from_le_bytes(self.array(what)?))
    }

    /// Reads a varint.
    ///
    /// # Errors
    ///
    /// [`Corruption::Truncated`] if it does not end, [`Corruption::OutOfRange`] if it exceeds 64
    /// bits or is not the shortest form.
    pub fn varint(&mut self, what: &'static str) -> Result<u64, Corruption> {
        let mut value = 0;
        for (index, &byte) in self.rest().iter().take(VARINT_BYTES_MAX).enumerate() {
            let group = u64::from(byte & 0x7f);
            let overflows = index == VARINT_BYTES_MAX - 1 && byte > 1;
            if overflows || (index > 0 && byte == 0) {
                return Err(Corruption::OutOfRange { what, value: byte.into() });
            }
            value |= group << (7 * index);
            if byte < 0x80 {
                self.offset += index + 1;
                return Ok(value);
            }
        }
        let have = self.rest().len() as u64;
        Err(Corruption::Truncated { what, need: have + 1, have })
    }

    /// Reads a varint that must fit a `usize`.
    ///
    /// # Errors
    ///
    /// As [`varint`](Self::varint).
    pub fn varint_usize(&mut self, what: &'static str) -> Result<usize, Corruption> {
        let value = self.varint(what)?;
        usize::try_from(value).map_err(|_| Corruption::OutOfRange { what, value })
    }

    /// Reads a length as a varint, then that many bytes.
    ///
    /// # Errors
    ///
    /// As [`varint`](Self::varint), and [`Corruption::Truncated`] if fewer bytes are left.
    pub fn prefixed(&mut self, what: &'static str) -> Result<&'a [u8], Corruption> {
        let len = self.varint_usize(what)?;
        self.take(what, len)
    }

    /// Checks that all bytes were read.
    ///
    /// # Errors
    ///
    /// [`Corruption::Trailing`] if bytes are left.
    pub fn finish(&self, what: &'static str) -> Result<(), Corruption> {
        if self.is_empty() {
            return Ok(());
        }
        Err(Corruption::Trailing { what, bytes: self.rest().len() as u64 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_of_every_length_round_trip() {
        for shift in 0..64 {
            for value in [1_u64 << shift, (1 << shift) - 1, u64::MAX >> shift] {
                let mut bytes = Vec::new();
                bytes.put_varint(value);
                assert_eq!(bytes.len(), varint_bytes(value), "{value}");
                let mut decoder = Decoder::new(&bytes);
                assert_eq!(decoder.varint("v"), Ok(value));
                assert!(decoder.is_empty());
            }
        }
    }

    #[test]
    fn decoder_rejects_malformed_fields() {
        use Corruption::{OutOfRange, Trailing, Truncated};
        type Read = fn(&mut Decoder<'_>) -> Result<(), Corruption>;
        let cases: [(&str, &[u8], Read, Corruption); 6] = [
            (
                "a truncated varint",
                &[0x80],
                |d| d.varint("v").map(drop),
                Truncated { what: "v", need: 2, have: 1 },
            ),
            (
                "a varint of 65 bits",
                &[0xff; 10],
                |d| d.varint("v").map(drop),
                OutOfRange { what: "v", value: 0xff },
            ),
            (
                "a padded varint",
                &[0x80, 0],
                |d| d.varint("v").map(drop),
                OutOfRange { what: "v", value: 0 },
            ),
            (
                "a short u32",
                &[1, 2, 3],
                |d| d.u32("n").map(drop),
                Truncated { what: "n", need: 4, have: 3 },
            ),
            (
                "a short string",
                &[3, b'a'],
                |d| d.prefixed("s").map(drop),
                Truncated { what: "s", need: 3, have: 1 },
            ),
            ("trailing bytes", &[3], |d| d.finish("all"), Trailing { what: "all", bytes: 1 }),
        ];
        for (name, bytes, read, want) in cases {
            assert_eq!(read(&mut Decoder::new(bytes)), Err(want), "{name}");
        }
    }
}
