//! The frame of records of a backup set: a magic number, a version, tagged fields and a checksum.
//!
//! | bytes | field      | meaning                                                        |
//! |-------|------------|----------------------------------------------------------------|
//! | 8     | `magic`    | that of the kind of record                                     |
//! | 2     | `version`  | format version, 1                                              |
//! | n     | `fields`   | tagged fields ([`crate::log::fields`])                         |
//! | 4     | `checksum` | CRC-32 of the bytes before it                                  |

use sievedb_format::{Corruption, Decoder, Encode, checksum::crc32};

const VERSION: u16 = 1;

/// A kind of record.
#[derive(Debug, Clone, Copy)]
pub(super) struct Frame {
    pub(super) magic: [u8; 8],
    pub(super) what: &'static str,
    /// Name of the version of this kind, for errors.
    pub(super) what_version: &'static str,
}

impl Frame {
    /// Begins a record. The caller appends fields, then calls [`end`](Self::end).
    pub(super) fn begin(&self) -> Vec<u8> {
        let mut out = self.magic.to_vec();
        out.extend_from_slice(&VERSION.to_le_bytes());
        out
    }

    pub(super) fn end(mut record: Vec<u8>) -> Vec<u8> {
        record.put_u32(crc32(&[&record]));
        record
    }

    /// Returns the fields of a record.
    ///
    /// # Errors
    ///
    /// [`Corruption`] if the bytes break the frame.
    pub(super) fn fields<'b>(&self, bytes: &'b [u8]) -> Result<&'b [u8], Corruption> {
        let what = self.what;
        let mut decoder = Decoder::new(bytes);
        let found = decoder.u64(what)?;
        if found != u64::from_le_bytes(self.magic) {
            return Err(Corruption::Magic { what, found });
        }
        let version = decoder.take(what, size_of::<u16>())?;
        let version = u16::from_le_bytes([version[0], version[1]]);
        if version != VERSION {
            return Err(Corruption::Unsupported { what: self.what_version, value: version.into() });
        }
        let Some((body, stored)) = bytes.split_last_chunk() else {
            let (need, have) = (size_of::<u32>() as u64, bytes.len() as u64);
            return Err(Corruption::Truncated { what, need, have });
        };
        let (stored, computed) = (u32::from_le_bytes(*stored), crc32(&[body]));
        if stored != computed {
            let (stored, computed) = (stored.into(), computed.into());
            return Err(Corruption::Checksum { what, stored, computed });
        }
        Ok(body.get(decoder.offset()..).unwrap_or_default())
    }
}
