//! The bytes of a table's filter.
//!
//! Integers are little-endian. The file places the block at a multiple of 64, so that a mapped
//! payload has whole cache lines. The trailer stands at the end: a writer knows it last.
//! `testdata/filter_block` pins these bytes.
//!
//! | offset      | bytes  | field             | meaning                                            |
//! |-------------|--------|-------------------|----------------------------------------------------|
//! | 0           | 64 × n | `payload`         | lines; bit `b` of a line is bit `b % 8` of its byte `b / 8` |
//! | 64 × n      | 64     | trailer           |                                                    |
//! | trailer + 0 | 1      | `kind`            | a [`FilterKind`]                                   |
//! | + 1         | 1      | `version`         | 1                                                  |
//! | + 2         | 1      | `hash_version`    | [`HASH_VERSION`]                                   |
//! | + 3         | 1      | `groups`          | column groups of the payload; a Bloom filter has 1 |
//! | + 4         | 1      | `probes`          | bits set per key, 1 to 16                          |
//! | + 5         | 3      |                   | zero                                               |
//! | + 8         | 8      | `hash_seed`       | seed of the key hash                               |
//! | + 16        | 8      | `salt`            | random number of the table it belongs to           |
//! | + 24        | 8      | `key_count`       | keys, without equal neighbours                     |
//! | + 32        | 8      | `lines`           | n, at least 1                                      |
//! | + 40        | 8      | `millibits`       | thousandths of a bit per key that were asked for   |
//! | + 48        | 8      |                   | zero                                               |
//! | + 56        | 4      | `payload_crc32`   | CRC-32 (IEEE 802.3) of the payload                 |
//! | + 60        | 4      | `trailer_crc32`   | CRC-32 of the bytes 0 to 59 of the trailer         |
//!
//! Later versions keep the trailer's length and the fields `kind`, `version` and `trailer_crc32`.

use std::ops::Range;

use crate::blocked_bloom::BlockedBloom;
use crate::decode_error::DecodeError;
use crate::hash::HASH_VERSION;
use crate::line::{LINE_BYTES, Line, PROBES_MAX};
use crate::params::BITS_PER_KEY_MAX;
use crate::table_filter::TableFilter;

/// Bytes of the trailer.
pub const TRAILER_BYTES: usize = 64;

const VERSION: u8 = 1;
const MILLIBITS_MAX: u64 = BITS_PER_KEY_MAX as u64 * 1000;

/// What a filter is. All kinds that the design foresees are reserved here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
#[repr(u8)]
pub enum FilterKind {
    /// [`BlockedBloom`].
    BlockedBloom = 1,
    /// A bumped ribbon filter; reserved.
    Ribbon = 2,
    /// A binary fuse filter; reserved.
    BinaryFuse = 3,
    /// A filter that answers for ranges of keys; reserved.
    Range = 4,
}

/// What the table that a filter belongs to says about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expected {
    /// Seed of the store's key hash.
    pub hash_seed: u64,
    /// The table's random number.
    pub salt: u64,
}

/// The bytes of `filter`, for the table with this `salt`, in a store that hashes keys with
/// `hash_seed`.
///
/// `millibits` is what was asked for, in thousandths of a bit per key: for people and for planners,
/// not for lookups.
///
/// # Panics
///
/// If `millibits` is not from 1 to 40,000.
#[must_use]
pub fn encode(filter: &BlockedBloom, hash_seed: u64, salt: u64, millibits: u64) -> Vec<u8> {
    assert!((1..=MILLIBITS_MAX).contains(&millibits), "millibits is {millibits}");
    let lines = filter.lines();
    let mut bytes = Vec::with_capacity(lines.len() * LINE_BYTES + TRAILER_BYTES);
    for line in lines {
        bytes.extend_from_slice(&line.to_bytes());
    }
    let trailer = Trailer {
        kind: FilterKind::BlockedBloom as u8,
        version: VERSION,
        hash_version: HASH_VERSION,
        groups: 1,
        probes: filter.probes(),
        zero_5: [0; 3],
        hash_seed,
        salt,
        key_count: filter.key_count(),
        lines: lines.len() as u64,
        millibits,
        zero_48: 0,
        payload_crc32: crc32fast::hash(&bytes),
    };
    bytes.extend_from_slice(&trailer.to_bytes());
    bytes
}

/// Reads a filter. All checks are here, so that a lookup needs none.
///
/// Takes as much memory as `bytes` has, whatever they say.
///
/// # Errors
///
/// [`DecodeError`] if the bytes are damaged, were made with another hash, belong to another table,
/// or hold a kind of filter that this release does not know.
pub fn decode(bytes: &[u8], expected: Expected) -> Result<TableFilter, DecodeError> {
    let (payload, trailer) = split(bytes)?;
    // The checksum first: what follows then speaks of other releases and tables, not of damage.
    let trailer = Trailer::checked(trailer)?;
    trailer.validate(expected)?;

    let (lines, rest) = payload.as_chunks::<LINE_BYTES>();
    if lines.len() as u64 != trailer.lines || !rest.is_empty() {
        let need = trailer.lines.saturating_mul(LINE_BYTES as u64);
        let what = "bytes of the filter's payload";
        return Err(DecodeError::Mismatch { what, expected: need, found: payload.len() as u64 });
    }
    check_crc32("filter payload", trailer.payload_crc32, payload)?;
    let lines = lines.iter().map(Line::from_bytes).collect();
    let filter = BlockedBloom::from_lines(lines, trailer.probes, trailer.key_count);
    Ok(TableFilter::BlockedBloom(filter))
}

/// A field of a filter block, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// Place within the block.
    pub place: Range<u64>,
    /// Name of the field.
    pub name: &'static str,
    /// What it holds.
    pub meaning: String,
}

/// The fields of a filter block, as far as they can be read, also of a damaged one.
#[must_use]
pub fn describe(bytes: &[u8]) -> Vec<Field> {
    let (payload, raw) = match split(bytes) {
        Ok(parts) => parts,
        Err(error) => {
            let place = 0..bytes.len() as u64;
            return vec![Field { place, name: "filter", meaning: format!("damaged: {error}") }];
        }
    };
    let trailer = Trailer::from_bytes(raw);
    let base = payload.len() as u64;
    let verdict = |result: Result<(), DecodeError>| match result {
        Ok(()) => "ok".to_owned(),
        Err(error) => format!("damaged: {error}"),
    };
    let ones: u64 = payload.iter().map(|byte| u64::from(byte.count_ones())).sum();
    let fill = ones as f64 / (payload.len().max(1) * 8) as f64;
    let payload_bits = format!("{ones} bits set, {:.1} %", fill * 100.0);
    let kind = match trailer.kind {
        1 => "1, blocked Bloom".to_owned(),
        other => format!("{other}, not known to this release"),
    };
    let zero_5 = u64::from(trailer.zero_5 != [0; 3]);
    let fields: [(Range<u64>, &'static str, String); 14] = [
        (0..1, "kind", kind),
        (1..2, "version", trailer.version.to_string()),
        (2..3, "hash_version", trailer.hash_version.to_string()),
        (3..4, "groups", trailer.groups.to_string()),
        (4..5, "probes", trailer.probes.to_string()),
        (5..8, "zero", if zero_5 == 0 { "ok".to_owned() } else { "damaged".to_owned() }),
        (8..16, "hash_seed", format!("{:#018x}", trailer.hash_seed)),
        (16..24, "salt", format!("{:#018x}", trailer.salt)),
        (24..32, "key_count", trailer.key_count.to_string()),
        (32..40, "lines", trailer.lines.to_string()),
        (40..48, "millibits", trailer.millibits.to_string()),
        (48..56, "zero", if trailer.zero_48 == 0 { "ok".to_owned() } else { "damaged".to_owned() }),
        (
            56..60,
            "payload_crc32",
            verdict(check_crc32("filter payload", trailer.payload_crc32, payload)),
        ),
        (60..64, "trailer_crc32", verdict(Trailer::checked(raw).map(drop))),
    ];
    let payload = Field { place: 0..base, name: "payload", meaning: payload_bits };
    let trailer = fields.map(|(place, name, meaning)| Field {
        place: base + place.start..base + place.end,
        name,
        meaning,
    });
    [payload].into_iter().chain(trailer).collect()
}

fn split(bytes: &[u8]) -> Result<(&[u8], &[u8; TRAILER_BYTES]), DecodeError> {
    bytes.split_last_chunk().ok_or(DecodeError::Truncated {
        what: "filter trailer",
        need: TRAILER_BYTES as u64,
        have: bytes.len() as u64,
    })
}

fn check_crc32(what: &'static str, stored: u32, bytes: &[u8]) -> Result<(), DecodeError> {
    let computed = crc32fast::hash(bytes);
    if stored == computed {
        return Ok(());
    }
    Err(DecodeError::Checksum { what, stored: stored.into(), computed: computed.into() })
}

/// The fields of the trailer, but for its own checksum.
#[derive(Debug, Clone, Copy)]
struct Trailer {
    kind: u8,
    version: u8,
    hash_version: u8,
    groups: u8,
    probes: u8,
    zero_5: [u8; 3],
    hash_seed: u64,
    salt: u64,
    key_count: u64,
    lines: u64,
    millibits: u64,
    zero_48: u64,
    payload_crc32: u32,
}

impl Trailer {
    fn to_bytes(self) -> [u8; TRAILER_BYTES] {
        let mut bytes = [0; TRAILER_BYTES];
        bytes[..5].copy_from_slice(&[
            self.kind,
            self.version,
            self.hash_version,
            self.groups,
            self.probes,
        ]);
        bytes[5..8].copy_from_slice(&self.zero_5);
        bytes[8..16].copy_from_slice(&self.hash_seed.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.salt.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.key_count.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.lines.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.millibits.to_le_bytes());
        bytes[48..56].copy_from_slice(&self.zero_48.to_le_bytes());
        bytes[56..60].copy_from_slice(&self.payload_crc32.to_le_bytes());
        let crc32 = crc32fast::hash(&bytes[..60]);
        bytes[60..].copy_from_slice(&crc32.to_le_bytes());
        bytes
    }

    /// The fields, whether they make sense or not.
    fn from_bytes(bytes: &[u8; TRAILER_BYTES]) -> Self {
        let &[kind, version, hash_version, groups, probes, z0, z1, z2, ..] = bytes;
        let (words, _) = bytes.as_chunks();
        let word = |i: usize| u64::from_le_bytes(words[i]);
        Self {
            kind,
            version,
            hash_version,
            groups,
            probes,
            zero_5: [z0, z1, z2],
            hash_seed: word(1),
            salt: word(2),
            key_count: word(3),
            lines: word(4),
            millibits: word(5),
            zero_48: word(6),
            payload_crc32: word(7) as u32, // The low half; the high half is the trailer's own.
        }
    }

    fn checked(bytes: &[u8; TRAILER_BYTES]) -> Result<Self, DecodeError> {
        let (covered, stored) = bytes.split_last_chunk().expect("64 bytes end with 4 bytes");
        check_crc32("filter trailer", u32::from_le_bytes(*stored), covered)?;
        Ok(Self::from_bytes(bytes))
    }

    fn validate(&self, expected: Expected) -> Result<(), DecodeError> {
        let known: [(&'static str, u8, u8); 3] = [
            ("filter kind", self.kind, FilterKind::BlockedBloom as u8),
            ("filter version", self.version, VERSION),
            ("key hash version", self.hash_version, HASH_VERSION),
        ];
        for (what, found, known) in known {
            if found != known {
                return Err(DecodeError::Unsupported { what, value: found.into() });
            }
        }
        let identity = [
            ("hash seed of the filter", expected.hash_seed, self.hash_seed),
            ("salt of the filter", expected.salt, self.salt),
        ];
        for (what, expected, found) in identity {
            if found != expected {
                return Err(DecodeError::Mismatch { what, expected, found });
            }
        }
        let [z0, z1, z2] = self.zero_5;
        let ranges = [
            ("column groups of the filter", u64::from(self.groups), 1..=1),
            ("probes of the filter", self.probes.into(), 1..=PROBES_MAX.into()),
            ("zero bytes of the filter", u32::from_le_bytes([z0, z1, z2, 0]).into(), 0..=0),
            ("zero bytes of the filter", self.zero_48, 0..=0),
            ("lines of the filter", self.lines, 1..=u64::MAX),
            ("millibits of the filter", self.millibits, 1..=MILLIBITS_MAX),
        ];
        for (what, value, range) in ranges {
            if !range.contains(&value) {
                return Err(DecodeError::OutOfRange { what, value });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXPECTED: Expected = Expected { hash_seed: 11, salt: 22 };

    /// Fills in the checksums again, so that damage gets past them.
    fn reseal(bytes: &mut [u8]) {
        let payload_bytes = bytes.len() - TRAILER_BYTES;
        let payload = crc32fast::hash(&bytes[..payload_bytes]);
        bytes[payload_bytes + 56..payload_bytes + 60].copy_from_slice(&payload.to_le_bytes());
        let trailer = crc32fast::hash(&bytes[payload_bytes..payload_bytes + 60]);
        bytes[payload_bytes + 60..].copy_from_slice(&trailer.to_le_bytes());
    }

    #[test]
    fn decode_rejects_well_sealed_nonsense() {
        use DecodeError::{Mismatch, OutOfRange, Unsupported};
        let filter = BlockedBloom::build(&[1 << 63, 2 << 62, 3], 200.0 / 5.0);
        let good = encode(&filter, EXPECTED.hash_seed, EXPECTED.salt, 40_000);
        assert_eq!(good.len(), 128);
        let cases: [(&str, usize, u8, DecodeError); 14] = [
            ("ribbon", 64, 2, Unsupported { what: "filter kind", value: 2 }),
            ("no kind", 64, 0, Unsupported { what: "filter kind", value: 0 }),
            ("version 2", 65, 2, Unsupported { what: "filter version", value: 2 }),
            ("hash version", 66, 2, Unsupported { what: "key hash version", value: 2 }),
            ("groups", 67, 2, OutOfRange { what: "column groups of the filter", value: 2 }),
            ("no probes", 68, 0, OutOfRange { what: "probes of the filter", value: 0 }),
            ("many probes", 68, 17, OutOfRange { what: "probes of the filter", value: 17 }),
            ("zeros", 71, 1, OutOfRange { what: "zero bytes of the filter", value: 1 << 16 }),
            ("seed", 72, 12, Mismatch { what: "hash seed of the filter", expected: 11, found: 12 }),
            ("salt", 80, 23, Mismatch { what: "salt of the filter", expected: 22, found: 23 }),
            ("no lines", 96, 0, OutOfRange { what: "lines of the filter", value: 0 }),
            (
                "two lines",
                96,
                2,
                Mismatch { what: "bytes of the filter's payload", expected: 128, found: 64 },
            ),
            (
                "more lines than memory",
                103,
                255,
                Mismatch { what: "bytes of the filter's payload", expected: u64::MAX, found: 64 },
            ),
            (
                "millibits",
                106,
                1,
                OutOfRange { what: "millibits of the filter", value: 40_000 + (1 << 16) },
            ),
        ];
        for (name, at, byte, want) in cases {
            let mut bytes = good.clone();
            bytes[at] = byte;
            reseal(&mut bytes);
            assert_eq!(decode(&bytes, EXPECTED).err(), Some(want), "{name}");
        }
        for zero in [112, 119] {
            let mut bytes = good.clone();
            bytes[zero] = 1;
            reseal(&mut bytes);
            let error = decode(&bytes, EXPECTED).expect_err("a byte that must be zero is 1");
            assert!(matches!(error, OutOfRange { what: "zero bytes of the filter", .. }));
        }
    }

    #[test]
    fn an_odd_payload_is_refused() {
        let filter = BlockedBloom::build(&[1, 2], 10.0);
        let good = encode(&filter, EXPECTED.hash_seed, EXPECTED.salt, 10_000);
        for (name, from, to) in [("cut", 1, 0), ("half", 32, 0), ("longer", 0, 1)] {
            let mut bytes = [vec![0; to], good[from..].to_vec()].concat();
            reseal(&mut bytes);
            let found = decode(&bytes, EXPECTED).err();
            let what = "bytes of the filter's payload";
            let payload = (bytes.len() - TRAILER_BYTES) as u64;
            let want = DecodeError::Mismatch { what, expected: 64, found: payload };
            assert_eq!(found, Some(want), "{name}");
        }
    }
}
