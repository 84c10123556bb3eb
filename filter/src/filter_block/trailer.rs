//! The end of a filter block: what the filter is, how to read it, and all checksums.

use core::num::NonZeroU8;
use core::ops::Range;

use super::{COLUMNS, Expected, FilterKind, VERSION, check_crc32, varint};
use crate::binary_fuse::{self, BinaryFuse8, BinaryFuse16};
use crate::blocked_bloom::BlockedBloom;
use crate::decode_error::DecodeError;
use crate::hash::HASH_VERSION;
use crate::line::{LINE_BYTES, Line, PROBES_MAX};
use crate::ribbon::{self, Ribbon};
use crate::table_filter::TableFilter;

/// Names of the column groups; a filter of one group has the first.
const GROUPS: [&str; 4] = ["filter payload", "column group 1", "column group 2", "column group 3"];

/// Most bytes of a trailer: its length is a byte.
pub const TRAILER_BYTES_MAX: usize = u8::MAX as usize;

/// Kind, version, length and checksum: what every version has at the very end.
pub(super) const END_BYTES: usize = 7;

/// The trailer of a filter block, verified: what the filter is, and which bytes it takes.
///
/// For readers that load a ribbon in part: first the end of the block, then as much of its front as
/// [`front_bytes`](Self::front_bytes) says. [`decode`](super::decode) does both with a whole block.
#[derive(Debug, Clone)]
pub struct Trailer {
    key_count: u64,
    parameters: Parameters,
    payload_bytes: u64,
    /// One for each column group.
    group_crc32s: Vec<u32>,
}

/// What else it takes to read a filter of some kind.
#[derive(Debug, Clone)]
pub(super) enum Parameters {
    BlockedBloom { probes: u8 },
    Ribbon(ribbon::Header),
    BinaryFuse(binary_fuse::Header),
}

impl Parameters {
    /// Bytes that a payload has, if there are `found`.
    fn payload_bytes(&self, found: u64) -> u64 {
        match self {
            // Its length alone says how many lines there are.
            Self::BlockedBloom { .. } => {
                let line_bytes = LINE_BYTES as u64;
                found.next_multiple_of(line_bytes).max(line_bytes)
            }
            Self::Ribbon(header) => header.layout().payload_bytes(),
            Self::BinaryFuse(header) => header.payload_bytes(),
        }
    }
}

/// A number of a trailer: where it stands in the trailer, its name, its value.
#[derive(Debug, Clone, Copy)]
pub(super) struct Number {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) name: &'static str,
    pub(super) value: u64,
}

impl Trailer {
    /// Reads the trailer of a block of `block_bytes` bytes that ends with `tail`: the last
    /// [`TRAILER_BYTES_MAX`] bytes of the block, or more, or all.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] as [`decode`](super::decode), but for damage of the payload.
    pub fn read(tail: &[u8], block_bytes: u64, expected: Expected) -> Result<Self, DecodeError> {
        let (_, bytes) = split(tail)?;
        let (covered, stored) = bytes.split_last_chunk().expect("a trailer has its end");
        // The checksum first: what follows then speaks of other releases, not of damage.
        let what = "filter trailer, hash seed and salt";
        check_crc32(what, u32::from_le_bytes(*stored), crc32(expected, covered))?;
        let payload_bytes = block_bytes.saturating_sub(bytes.len() as u64);
        Self::parse(bytes, payload_bytes, |_| ())
    }

    /// How many bytes from the start of the block on hold the first `columns` columns of a ribbon;
    /// of any other filter the whole payload.
    #[must_use]
    pub fn front_bytes(&self, columns: NonZeroU8) -> u64 {
        self.groups(columns).last().expect("there is a group").end
    }

    /// Reads a filter: the first `columns` columns of a ribbon, all if there are not as many, and any
    /// other filter whole.
    ///
    /// `front` is the first [`front_bytes`](Self::front_bytes) of the block or more. Only the groups
    /// that it takes are checked.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] if `front` is too short or a group damaged.
    pub fn decode(&self, front: &[u8], columns: NonZeroU8) -> Result<TableFilter, DecodeError> {
        let need = self.front_bytes(columns);
        let have = front.len() as u64;
        let front = usize::try_from(need).ok().and_then(|need| front.get(..need));
        let front = front.ok_or(DecodeError::Truncated { what: "filter payload", need, have })?;
        self.check_groups(front, columns).collect::<Result<(), _>>()?;
        Ok(match &self.parameters {
            &Parameters::BlockedBloom { probes } => {
                let (lines, _) = front.as_chunks();
                let lines = lines.iter().map(Line::from_bytes).collect();
                BlockedBloom::from_lines(lines, probes, self.key_count).into()
            }
            Parameters::Ribbon(header) => {
                Ribbon::from_payload(&header.layout(), front, columns, self.key_count).into()
            }
            Parameters::BinaryFuse(header) if header.print_bits() == u8::BITS => {
                BinaryFuse8::from_payload(header, front, self.key_count).into()
            }
            Parameters::BinaryFuse(header) => {
                BinaryFuse16::from_payload(header, front, self.key_count).into()
            }
        })
    }

    /// Whether each of the groups that hold the first `columns` columns is what was written.
    ///
    /// # Panics
    ///
    /// If one of them is not in `front`.
    pub(super) fn check_groups(
        &self,
        front: &[u8],
        columns: NonZeroU8,
    ) -> impl Iterator<Item = Result<(), DecodeError>> {
        let groups = self.groups(columns).into_iter().zip(&self.group_crc32s);
        groups.zip(GROUPS).map(|((group, &stored), what)| {
            // Within `front`, which is in memory.
            let computed = crc32fast::hash(&front[group.start as usize..group.end as usize]);
            check_crc32(what, stored, computed)
        })
    }

    /// What the filter is.
    #[must_use]
    pub fn kind(&self) -> FilterKind {
        match self.parameters {
            Parameters::BlockedBloom { .. } => FilterKind::BlockedBloom,
            Parameters::Ribbon(_) => FilterKind::Ribbon,
            Parameters::BinaryFuse(_) => FilterKind::BinaryFuse,
        }
    }

    /// Keys that the filter was built over.
    #[must_use]
    pub fn key_count(&self) -> u64 {
        self.key_count
    }

    /// That of a whole payload.
    pub(super) fn of(key_count: u64, parameters: Parameters, payload: &[u8]) -> Self {
        let payload_bytes = payload.len() as u64;
        let mut trailer = Self { key_count, parameters, payload_bytes, group_crc32s: Vec::new() };
        let crc32 =
            |group: Range<u64>| crc32fast::hash(&payload[group.start as usize..group.end as usize]);
        trailer.group_crc32s = trailer.groups(COLUMNS).into_iter().map(crc32).collect();
        trailer
    }

    /// The places of the groups that hold the first `columns` columns.
    fn groups(&self, columns: NonZeroU8) -> Vec<Range<u64>> {
        match &self.parameters {
            Parameters::Ribbon(header) => header.layout().groups_for(columns).collect(),
            Parameters::BlockedBloom { .. } | Parameters::BinaryFuse(_) => {
                vec![Range { start: 0, end: self.payload_bytes }]
            }
        }
    }

    pub(super) fn to_bytes(&self, expected: Expected) -> Vec<u8> {
        let mut bytes = vec![HASH_VERSION];
        varint::put(&mut bytes, self.key_count);
        match &self.parameters {
            Parameters::BlockedBloom { probes } => bytes.push(*probes),
            Parameters::Ribbon(header) => {
                header.numbers().for_each(|number| varint::put(&mut bytes, number));
            }
            Parameters::BinaryFuse(header) => {
                header.numbers().into_iter().for_each(|number| varint::put(&mut bytes, number));
            }
        }
        bytes.extend(self.group_crc32s.iter().flat_map(|crc32| crc32.to_le_bytes()));
        // The longest is that of a ribbon: 1 + 10 + 10 + 5 + 12 * 5 + 4 * 4 + 7.
        let length = u8::try_from(bytes.len() + END_BYTES).expect("a trailer is short");
        bytes.extend_from_slice(&[self.kind() as u8, VERSION, length]);
        let crc32 = crc32(expected, &bytes);
        bytes.extend_from_slice(&crc32.to_le_bytes());
        bytes
    }

    /// Reads the trailer of a payload of so many bytes without its own checksum, and shows each number
    /// to `see` as far as it gets.
    pub(super) fn parse(
        bytes: &[u8],
        payload_bytes: u64,
        mut see: impl FnMut(Number),
    ) -> Result<Self, DecodeError> {
        let (fields, &[kind, version, ..]) =
            bytes.split_last_chunk::<END_BYTES>().expect("a trailer has its end");
        let version_what = "version of the filter";
        require_known(version_what, version, &[VERSION])?;
        let kinds = [FilterKind::BlockedBloom, FilterKind::Ribbon, FilterKind::BinaryFuse];
        require_known("filter kind", kind, &kinds.map(|kind| kind as u8))?;

        let mut rest = fields;
        let mut number = |rest: &mut &[u8], name| {
            let from = fields.len() - rest.len();
            let value = varint::take(rest, name)?;
            see(Number { from, to: fields.len() - rest.len(), name, value });
            Ok(value)
        };
        let hash_version = number(&mut rest, "hash_version")?;
        require_known("hash version of the filter", hash_version, &[HASH_VERSION.into()])?;
        let key_count = number(&mut rest, "key_count")?;
        let parameters = if kind == FilterKind::BlockedBloom as u8 {
            let value = number(&mut rest, "probes")?;
            let probes = u8::try_from(value).ok().filter(|n| (1..=PROBES_MAX).contains(n));
            let what = "probes of the filter";
            let probes = probes.ok_or(DecodeError::OutOfRange { what, value })?;
            Parameters::BlockedBloom { probes }
        } else if kind == FilterKind::Ribbon as u8 {
            let columns = number(&mut rest, "columns")?;
            let attempt = number(&mut rest, "attempt")?;
            let mut layer_blocks = Vec::new();
            let groups = ribbon::Header::groups_of(columns);
            while rest.len() > 4 * groups {
                layer_blocks.push(number(&mut rest, "layer_blocks")?);
            }
            Parameters::Ribbon(ribbon::Header::from_numbers(columns, attempt, layer_blocks)?)
        } else {
            let mut next = |name| number(&mut rest, name);
            let numbers =
                [next("print_bits")?, next("segment_log2")?, next("segments")?, next("attempt")?];
            Parameters::BinaryFuse(binary_fuse::Header::from_numbers(numbers)?)
        };

        let groups = match &parameters {
            Parameters::Ribbon(header) => header.groups(),
            Parameters::BlockedBloom { .. } | Parameters::BinaryFuse(_) => 1,
        };
        let (crc32s, _) = rest.as_chunks();
        for (what, expected, found) in [
            ("bytes of the filter's checksums", 4 * groups as u64, rest.len() as u64),
            (
                "bytes of the filter's payload",
                parameters.payload_bytes(payload_bytes),
                payload_bytes,
            ),
        ] {
            if expected != found {
                return Err(DecodeError::Mismatch { what, expected, found });
            }
        }
        let group_crc32s = crc32s.iter().map(|bytes| u32::from_le_bytes(*bytes)).collect();
        Ok(Self { key_count, parameters, payload_bytes, group_crc32s })
    }
}

/// Splits a block, or the end of one, in front of its trailer.
pub(super) fn split(bytes: &[u8]) -> Result<(&[u8], &[u8]), DecodeError> {
    let what = "filter trailer";
    let have = bytes.len() as u64;
    let Some((_, end)) = bytes.split_last_chunk::<END_BYTES>() else {
        return Err(DecodeError::Truncated { what, need: END_BYTES as u64, have });
    };
    let trailer_bytes = usize::from(end[2]);
    if trailer_bytes < END_BYTES {
        let what = "bytes of the filter trailer";
        return Err(DecodeError::OutOfRange { what, value: trailer_bytes as u64 });
    }
    let at = bytes.len().checked_sub(trailer_bytes);
    let at = at.ok_or(DecodeError::Truncated { what, need: trailer_bytes as u64, have })?;
    Ok(bytes.split_at(at))
}

/// The checksum at the end of a trailer that begins with `covered`.
pub(super) fn crc32(expected: Expected, covered: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&expected.hash_seed.to_le_bytes());
    hasher.update(&expected.salt.to_le_bytes());
    hasher.update(covered);
    hasher.finalize()
}

fn require_known<T: Copy + Into<u64> + PartialEq>(
    what: &'static str,
    value: T,
    known: &[T],
) -> Result<(), DecodeError> {
    if known.contains(&value) {
        return Ok(());
    }
    Err(DecodeError::Unsupported { what, value: value.into() })
}
