//! The bytes of a record.
//!
//! | offset | bytes | field              | meaning                                                |
//! |--------|-------|--------------------|--------------------------------------------------------|
//! | 0      | 4     | `header_checksum`  | CRC-32 of secret, file id, record offset (u64 each), 4..40 |
//! | 4      | 1     | `type`             | 1 full 2 first 3 middle 4 last 5 seal 6 start; from 128 on ignorable |
//! | 5      | 1     | `transform`        | of the whole payload: 0 none, 1 LZ4, 3 [values] (2 encryption: reserved) |
//! | 6      | 2     |                    | zero                                                   |
//! | 8      | 4     | `payload_bytes`    | at most 1 MiB                                          |
//! | 12     | 4     | `payload_checksum` | CRC-32 of the payload                                  |
//! | 16     | 8     | `sequence`         | WAL: of the batch's first entry; manifest: of the edit |
//! | 24     | 8     | `mark_file_id`     | synced mark: file                                      |
//! | 32     | 8     | `mark_offset`      | synced mark: offset                                    |
//! | 40     | n     | `payload`          | then zeros up to the next multiple of 8                |
//!
//! The header's checksum covers the file, its secret and the offset, so a record that was moved
//! never passes. Through the payload's checksum it covers the payload too. The secret is a random
//! number in the file header. A client does not know it, so a stored value cannot pass for a
//! record, except by guessing a 32-bit checksum. Start and seal have sequence number 0; a seal has
//! no payload. All fragments of a payload have the same sequence number.
//!
//! The types 0 and 127 stay unused: bytes of an encrypted file that are not authentic read as these
//! two values.
//!
//! [values]: super::values

use sievedb_format::{Annotation, Corruption, SEQUENCE_MAX, checksum::crc32};

use super::transform::Transform;

pub(crate) const RECORD_HEADER_BYTES: usize = 40;

pub(crate) const RECORD_ALIGN: usize = 8;

/// Bit of record types that a reader may skip if it does not know them.
const IGNORABLE: u8 = 1 << 7;

/// The longest payload of one record; a longer one is split.
pub(crate) const FRAGMENT_BYTES_MAX: usize = 1 << 20;

/// A position in a log file or manifest. Orders by file, then offset: files are written one after
/// another, so a larger position is later.
///
/// As a *synced mark*: every live log file with a smaller id is durable as a whole, and this file
/// up to the offset. The default mark vouches for nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Position {
    pub(crate) file_id: u64,
    pub(crate) offset: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RecordType {
    /// A whole payload.
    Full,
    /// The length of a payload (u64) and its first part.
    First,
    /// A part between the first and the last.
    Middle,
    Last,
    /// The end of a finished file.
    Seal,
    /// The beginning of every file.
    Start,
    /// An ignorable type of a later release: bit 7 is set. Occurs between payloads, not between
    /// fragments.
    Ignorable(u8),
}

impl RecordType {
    const fn decode(byte: u8) -> Option<Self> {
        Some(match byte {
            1 => Self::Full,
            2 => Self::First,
            3 => Self::Middle,
            4 => Self::Last,
            5 => Self::Seal,
            6 => Self::Start,
            IGNORABLE.. => Self::Ignorable(byte),
            _ => return None,
        })
    }

    const fn byte(self) -> u8 {
        match self {
            Self::Full => 1,
            Self::First => 2,
            Self::Middle => 3,
            Self::Last => 4,
            Self::Seal => 5,
            Self::Start => 6,
            Self::Ignorable(byte) => byte,
        }
    }
}

/// Reason why the bytes at an offset are no record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Bad {
    /// A crash can leave such bytes: the synced marks determine whether this is damage.
    Torn(Corruption),
    /// The checksum matches, but the bytes break the format: another release or an attacker wrote
    /// them.
    Broken(Corruption),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RecordHeader {
    pub(crate) record_type: RecordType,
    pub(crate) transform: Transform,
    /// At most [`FRAGMENT_BYTES_MAX`].
    pub(crate) payload_bytes: u32,
    pub(crate) payload_checksum: u32,
    pub(crate) sequence: u64,
    pub(crate) mark: Position,
}

impl RecordHeader {
    /// Encodes the header for `place` in a file with this `secret`.
    pub(crate) fn encode(&self, place: Position, secret: u64) -> [u8; RECORD_HEADER_BYTES] {
        let mut bytes = [0; RECORD_HEADER_BYTES];
        bytes[4] = self.record_type.byte();
        bytes[5] = self.transform.byte();
        bytes[8..12].copy_from_slice(&self.payload_bytes.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.payload_checksum.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.mark.file_id.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.mark.offset.to_le_bytes());
        let checksum = header_checksum(&bytes, place, secret);
        bytes[..4].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Decodes the header of the record at `place` in a file with this `secret`.
    ///
    /// # Errors
    ///
    /// [`Bad::Torn`] if the checksum does not match, [`Bad::Broken`] if it does and a field breaks
    /// the table above.
    pub(crate) fn decode(
        bytes: &[u8; RECORD_HEADER_BYTES],
        place: Position,
        secret: u64,
    ) -> Result<Self, Bad> {
        let (stored, computed) = (u32_at(bytes, 0), header_checksum(bytes, place, secret));
        // The checksum of zeros matches at one offset in four billion, and zeros are no record
        // there either.
        if stored != computed || *bytes == [0; RECORD_HEADER_BYTES] {
            let (stored, computed) = (stored.into(), computed.into());
            let what = "header of a log record";
            return Err(Bad::Torn(Corruption::Checksum { what, stored, computed }));
        }
        let unsupported = |what, value: u8| {
            Bad::Broken(Corruption::Unsupported { what, value: u64::from(value) })
        };
        let record_type = RecordType::decode(bytes[4])
            .ok_or_else(|| unsupported("type of a log record", bytes[4]))?;
        let transform = Transform::decode(bytes[5])
            .ok_or_else(|| unsupported("transform of a log record", bytes[5]))?;
        let out_of_range = |what, value| Err(Bad::Broken(Corruption::OutOfRange { what, value }));
        let reserved = u16::from_le_bytes([bytes[6], bytes[7]]);
        if reserved != 0 {
            return out_of_range("reserved bytes of a log record", reserved.into());
        }
        let payload_bytes = u32_at(bytes, 8);
        if payload_bytes as usize > FRAGMENT_BYTES_MAX {
            return out_of_range("payload length of a log record", payload_bytes.into());
        }
        let sequence = u64_at(bytes, 16);
        if sequence > SEQUENCE_MAX {
            return out_of_range("sequence number of a log record", sequence);
        }
        Ok(Self {
            record_type,
            transform,
            payload_bytes,
            payload_checksum: u32_at(bytes, 12),
            sequence,
            mark: Position { file_id: u64_at(bytes, 24), offset: u64_at(bytes, 32) },
        })
    }

    /// Rejects most invalid headers before a checksum is computed.
    pub(crate) fn looks_possible(bytes: &[u8; RECORD_HEADER_BYTES]) -> bool {
        RecordType::decode(bytes[4]).is_some()
            && Transform::decode(bytes[5]).is_some()
            && bytes[6..8] == [0; 2]
            && u32_at(bytes, 8) as usize <= FRAGMENT_BYTES_MAX
    }

    /// # Errors
    ///
    /// [`Bad::Torn`] if the checksum does not match.
    pub(crate) fn check_payload(&self, payload: &[u8]) -> Result<(), Bad> {
        let (stored, computed) = (self.payload_checksum, crc32(&[payload]));
        if stored == computed {
            return Ok(());
        }
        let (stored, computed) = (stored.into(), computed.into());
        let what = "payload of a log record";
        Err(Bad::Torn(Corruption::Checksum { what, stored, computed }))
    }

    /// Returns the length of the record in the file, with header and padding.
    pub(crate) const fn record_bytes(&self) -> usize {
        record_bytes(self.payload_bytes as usize)
    }

    /// Adds the fields of the header at `place` to `annotation`.
    pub(crate) fn describe(&self, place: Position, secret: u64, annotation: &mut Annotation) {
        let name = format!("{:?}", self.record_type).to_lowercase();
        let checksum = u32_at(&self.encode(place, secret), 0);
        annotation.field(0..4, "header_checksum", format_args!("{checksum:08x}"));
        annotation.field(4..5, "type", name);
        annotation.field(5..6, "transform", self.transform.name());
        annotation.field(8..12, "payload_bytes", self.payload_bytes);
        annotation.field(12..16, "payload_checksum", format_args!("{:08x}", self.payload_checksum));
        annotation.field(16..24, "sequence", self.sequence);
        annotation.field(24..40, "synced_mark", format_args!("{}", self.mark));
    }
}

impl std::fmt::Display for Position {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "file {} up to {}", self.file_id, self.offset)
    }
}

/// Returns the length of a record in the file.
pub(crate) const fn record_bytes(payload_bytes: usize) -> usize {
    (RECORD_HEADER_BYTES + payload_bytes).next_multiple_of(RECORD_ALIGN)
}

fn header_checksum(bytes: &[u8; RECORD_HEADER_BYTES], place: Position, secret: u64) -> u32 {
    // One contiguous buffer: the checksum of short scattered parts costs several times as much.
    let mut covered = [0; 3 * size_of::<u64>() + RECORD_HEADER_BYTES - size_of::<u32>()];
    covered[..8].copy_from_slice(&secret.to_le_bytes());
    covered[8..16].copy_from_slice(&place.file_id.to_le_bytes());
    covered[16..24].copy_from_slice(&place.offset.to_le_bytes());
    covered[24..].copy_from_slice(&bytes[4..]);
    crc32(&[&covered])
}

fn u32_at(bytes: &[u8; RECORD_HEADER_BYTES], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn u64_at(bytes: &[u8; RECORD_HEADER_BYTES], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: Position = Position { file_id: 7, offset: 64 };
    const SECRET: u64 = 0x5ec7_e700_5ec7_e700;
    const HEADER: RecordHeader = RecordHeader {
        record_type: RecordType::Full,
        transform: Transform::None,
        payload_bytes: 3,
        payload_checksum: 0x1234_5678,
        sequence: 42,
        mark: Position { file_id: 6, offset: 640 },
    };

    /// Returns the header with one byte changed and a matching checksum.
    fn forged(at: usize, byte: u8) -> [u8; RECORD_HEADER_BYTES] {
        let mut bytes = HEADER.encode(PLACE, SECRET);
        bytes[at] = byte;
        let checksum = header_checksum(&bytes, PLACE, SECRET);
        bytes[..4].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    #[test]
    fn header_returns_only_from_its_place() {
        use RecordType::{First, Full, Ignorable, Last, Middle, Seal, Start};
        for record_type in [Full, First, Middle, Last, Seal, Start, Ignorable(0x81)] {
            let transform = if record_type == Full { Transform::Lz4 } else { Transform::None };
            let header = RecordHeader { record_type, transform, ..HEADER };
            let bytes = header.encode(PLACE, SECRET);
            assert_eq!(RecordHeader::decode(&bytes, PLACE, SECRET), Ok(header));
            assert!(RecordHeader::looks_possible(&bytes));
            for other in [Position { file_id: 8, ..PLACE }, Position { offset: 72, ..PLACE }] {
                assert!(matches!(RecordHeader::decode(&bytes, other, SECRET), Err(Bad::Torn(_))));
            }
            let other = RecordHeader::decode(&bytes, PLACE, SECRET + 1);
            assert!(matches!(other, Err(Bad::Torn(_))), "another file with this number");
        }
    }

    #[test]
    fn zeros_are_no_record_even_where_their_checksum_is_zero() {
        let zeros = [0; RECORD_HEADER_BYTES];
        let place = Position { file_id: 7, offset: 0x3_837f_0850 };
        assert_eq!(header_checksum(&zeros, place, 0), 0);
        for place in [PLACE, place] {
            assert!(matches!(RecordHeader::decode(&zeros, place, 0), Err(Bad::Torn(_))), "{place}");
        }
    }

    #[test]
    fn header_refuses_every_flipped_bit() {
        let good = HEADER.encode(PLACE, SECRET);
        for bit in 0..good.len() * 8 {
            let mut bytes = good;
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(
                matches!(RecordHeader::decode(&bytes, PLACE, SECRET), Err(Bad::Torn(_))),
                "bit {bit}"
            );
        }
    }

    #[test]
    fn fields_of_another_release_are_no_torn_tail() {
        let unsupported = |what, value| Corruption::Unsupported { what, value };
        let out_of_range = |what, value| Corruption::OutOfRange { what, value };
        let cases = [
            ("type", forged(4, 7), unsupported("type of a log record", 7)),
            ("transform", forged(5, 2), unsupported("transform of a log record", 2)),
            ("reserved", forged(7, 1), out_of_range("reserved bytes of a log record", 256)),
            ("length", forged(11, 1), out_of_range("payload length of a log record", 0x100_0003)),
            (
                "sequence",
                forged(23, 1),
                out_of_range("sequence number of a log record", 42 | 1 << 56),
            ),
        ];
        for (name, bytes, want) in cases {
            assert_eq!(
                RecordHeader::decode(&bytes, PLACE, SECRET),
                Err(Bad::Broken(want)),
                "{name}"
            );
        }
    }

    #[cfg(feature = "encryption")]
    #[test]
    fn bytes_that_are_not_authentic_begin_no_record() {
        for stored in 0..=u8::MAX {
            let bytes = forged(4, crate::encryption::shadow(stored));
            let decoded = RecordHeader::decode(&bytes, PLACE, SECRET);
            assert!(matches!(decoded, Err(Bad::Broken(_))), "{stored} reads as {decoded:?}");
            assert!(!RecordHeader::looks_possible(&bytes), "{stored}");
        }
    }

    #[test]
    fn positions_order_by_time() {
        let at = |file_id, offset| Position { file_id, offset };
        assert!(at(3, 900) < at(4, 0));
        assert!(at(4, 0) < at(4, 8));
    }
}
