//! Transforms of the payload of a record.

use bytes::Bytes;
use lz4_flex::block::{compress_into, decompress_into, get_maximum_output_size};
use sievedb_format::Corruption;

/// Minimum payload, in bytes, for compression. The header and the write call dominate a shorter
/// one.
const LZ4_BYTES_MIN: usize = 1 << 10;

/// Maximum payload, in bytes, for compression: both forms are in memory meanwhile, outside of the
/// memory budget. A longer one is damage.
const LZ4_BYTES_MAX: usize = 4 << 20;

/// Length of the field before the LZ4 block, a little-endian u64 with the payload's length.
const LENGTH_BYTES: usize = size_of::<u64>();

/// Maximum number of bytes that one byte of an LZ4 block expands to.
const LZ4_EXPANSION_MAX: u64 = 255;

/// Form in which a payload is stored. It applies to the payload before it is split.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Transform {
    #[default]
    None,
    /// The length of the payload, then an LZ4 block.
    Lz4,
    /// Without some values, which are in blob files: see [`values`](super::values).
    Values,
}

impl Transform {
    pub(super) const fn decode(byte: u8) -> Option<Self> {
        Some(match byte {
            0 => Self::None,
            1 => Self::Lz4,
            3 => Self::Values,
            _ => return None,
        })
    }

    pub(super) const fn byte(self) -> u8 {
        match self {
            Self::None => 0,
            Self::Lz4 => 1,
            Self::Values => 3,
        }
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Lz4 => "lz4",
            Self::Values => "values",
        }
    }

    /// Returns the payload whose stored form is `stored`, unless it is [`Values`](Self::Values).
    pub(super) fn undo(self, stored: Bytes) -> Result<Bytes, Corruption> {
        match self {
            Self::None => Ok(stored),
            Self::Lz4 => from_lz4(&stored),
            Self::Values => {
                let (what, value) = ("transform of a log record", self.byte().into());
                Err(Corruption::Unsupported { what, value })
            }
        }
    }
}

/// Returns `payload` compressed by LZ4, if that saves at least one byte in eight.
///
/// Source: <https://github.com/lz4/lz4/blob/dev/doc/lz4_Block_format.md>.
pub(super) fn to_lz4(payload: &[u8]) -> Option<Bytes> {
    if !(LZ4_BYTES_MIN..=LZ4_BYTES_MAX).contains(&payload.len()) {
        return None;
    }
    let mut stored = vec![0; LENGTH_BYTES + get_maximum_output_size(payload.len())];
    stored[..LENGTH_BYTES].copy_from_slice(&(payload.len() as u64).to_le_bytes());
    let compressed = compress_into(payload, &mut stored[LENGTH_BYTES..]).ok()?;
    let bytes = LENGTH_BYTES + compressed;
    if bytes > payload.len() - payload.len() / 8 {
        return None;
    }
    stored.truncate(bytes);
    // The queue of the log may hold the payload for a while.
    stored.shrink_to_fit();
    Some(stored.into())
}

fn from_lz4(stored: &[u8]) -> Result<Bytes, Corruption> {
    let what = "length of a compressed payload";
    let Some((length, block)) = stored.split_first_chunk::<LENGTH_BYTES>() else {
        return Err(Corruption::OutOfRange { what, value: stored.len() as u64 });
    };
    let length = u64::from_le_bytes(*length);
    let error = Corruption::OutOfRange { what, value: length };
    // Checked before the memory is allocated.
    if length > (block.len() as u64 * LZ4_EXPANSION_MAX).min(LZ4_BYTES_MAX as u64) {
        return Err(error);
    }
    let mut payload = vec![0; usize::try_from(length).map_err(|_| error.clone())?];
    match decompress_into(block, &mut payload) {
        Ok(bytes) if bytes == payload.len() => Ok(payload.into()),
        _ => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lz4(payload: &[u8]) -> Bytes {
        to_lz4(payload).expect("the payload compresses")
    }

    #[test]
    fn payloads_return() {
        for bytes in [LZ4_BYTES_MIN, 5000, 3 << 20] {
            let payload: Vec<_> = (0..bytes).map(|at| (at / 7 % 50) as u8).collect();
            let stored = lz4(&payload);
            assert!(stored.len() < bytes / 2, "{} of {bytes} bytes", stored.len());
            assert_eq!(Transform::Lz4.undo(stored).as_deref(), Ok(&payload[..]), "{bytes}");
        }
    }

    #[test]
    fn payloads_that_do_not_compress_are_stored_as_they_are() {
        let mut random = 1_u64;
        let mut next = || {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            (random >> 56) as u8
        };
        let noise: Vec<_> = (0..4096).map(|_| next()).collect();
        assert_eq!(to_lz4(&noise), None);
        assert_eq!(to_lz4(&[0; LZ4_BYTES_MIN - 1]), None, "too short");
    }

    #[test]
    fn a_longer_payload_than_any_written_one_is_refused() {
        let longest = vec![0; LZ4_BYTES_MAX];
        assert_eq!(Transform::Lz4.undo(lz4(&longest)).as_deref(), Ok(&*longest));
        let forged = vec![0; LZ4_BYTES_MAX + 1];
        let length = forged.len() as u64;
        let block = lz4_flex::block::compress(&forged);
        let stored = [&length.to_le_bytes()[..], &block].concat();
        let what = "length of a compressed payload";
        let refused = Err(Corruption::OutOfRange { what, value: length });
        assert_eq!(Transform::Lz4.undo(stored.into()), refused);
    }

    #[test]
    fn broken_blocks_are_errors() {
        let good = lz4(&[7; 2000]);
        let with_length = |length: u64| {
            let mut bytes = good.to_vec();
            bytes[..LENGTH_BYTES].copy_from_slice(&length.to_le_bytes());
            bytes
        };
        let cases = [
            ("no length", good[..7].to_vec()),
            ("shorter than the block", with_length(1999)),
            ("longer than the block", with_length(2001)),
            ("longer than any block", with_length(u64::MAX)),
            ("cut", good[..good.len() - 1].to_vec()),
        ];
        for (name, bytes) in cases {
            assert!(Transform::Lz4.undo(bytes.into()).is_err(), "{name}");
        }
    }
}
