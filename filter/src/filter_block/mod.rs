//! The bytes of a table's filter.
//!
//! Integers are little-endian. The file places the block at a multiple of 64, so that a mapped
//! payload has whole cache lines. The trailer stands at the end: a writer knows it last.
//! `testdata/filter_block` pins these bytes.
//!
//! | offset      | bytes  | field             | meaning                                            |
//! |-------------|--------|-------------------|----------------------------------------------------|
//! | 0           | p      | `payload`         | by kind, see below                                 |
//! | p           | 64     | trailer           |                                                    |
//! | trailer + 0 | 1      | `kind`            | a [`FilterKind`]                                   |
//! | + 1         | 1      | `version`         | 1                                                  |
//! | + 2         | 1      | `hash_version`    | [`HASH_VERSION`]                                   |
//! | + 3         | 1      | `groups`          | column groups of the payload; a Bloom filter has 1 |
//! | + 4         | 1      | `probes`          | bits set per key, 1 to 16; of a ribbon `columns`, 1 to 32 |
//! | + 5         | 1      | `layers`          | of a ribbon, 1 to 12; otherwise zero               |
//! | + 6         | 2      | `attempt`         | of a ribbon: number of its seeds; otherwise zero   |
//! | + 8         | 8      | `hash_seed`       | seed of the key hash                               |
//! | + 16        | 8      | `salt`            | random number of the table it belongs to           |
//! | + 24        | 8      | `key_count`       | keys, without equal neighbours                     |
//! | + 32        | 8      | `lines`           | lines, at least 1; of a ribbon `blocks` of 64 slots, at least 1 |
//! | + 40        | 8      | `millibits`       | thousandths of a bit per key that were asked for   |
//! | + 48        | 8      | `upper`           | of a ribbon: blocks with a column less than the others, which come first; otherwise zero |
//! | + 56        | 4      | `payload_crc32`   | CRC-32 (IEEE 802.3) of the payload                 |
//! | + 60        | 4      | `trailer_crc32`   | CRC-32 of the bytes 0 to 59 of the trailer         |
//!
//! The payload of a Bloom filter is lines of 64 bytes; bit `b` of a line is bit `b % 8` of its byte
//! `b / 8`. The payload of a ribbon is described in `ribbon/stored.rs`.
//!
//! Later versions keep the trailer's length and the fields `kind`, `version` and `trailer_crc32`.

mod describe;

pub use describe::{Field, describe};

use crate::blocked_bloom::BlockedBloom;
use crate::decode_error::DecodeError;
use crate::hash::HASH_VERSION;
use crate::line::{LINE_BYTES, Line, PROBES_MAX};
use crate::params::{BITS_PER_KEY_MAX, blocked_bloom_fpr, blocked_bloom_probes, columns_fpr};
use crate::ribbon::{COLUMNS_MAX, Header, Ribbon};
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
    /// [`Ribbon`].
    Ribbon = 2,
    /// A binary fuse filter; reserved.
    BinaryFuse = 3,
    /// A filter that answers for ranges of keys; reserved.
    Range = 4,
}

impl FilterKind {
    /// Expected false-positive rate, from 0 to 1, of a large filter of this kind with so many bits
    /// per key; `None` for a kind that is only reserved.
    ///
    /// Of a ribbon, columns are counted, and not the 0.3 % that thresholds and empty slots take.
    ///
    /// # Panics
    ///
    /// If `bits_per_key` is not in `0 < bits_per_key <= `[`BITS_PER_KEY_MAX`].
    #[must_use]
    pub fn expected_fpr(self, bits_per_key: f64) -> Option<f64> {
        assert!(
            bits_per_key > 0.0 && bits_per_key <= BITS_PER_KEY_MAX,
            "bits_per_key is {bits_per_key}"
        );
        match self {
            Self::BlockedBloom => {
                Some(blocked_bloom_fpr(bits_per_key, blocked_bloom_probes(bits_per_key)))
            }
            Self::Ribbon => Some(columns_fpr(bits_per_key.clamp(1.0, COLUMNS_MAX.into()))),
            Self::BinaryFuse | Self::Range => None,
        }
    }
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
        layers: 0,
        attempt: 0,
        hash_seed,
        salt,
        key_count: filter.key_count(),
        lines: lines.len() as u64,
        millibits,
        upper: 0,
        payload_crc32: crc32fast::hash(&bytes),
    };
    bytes.extend_from_slice(&trailer.to_bytes());
    bytes
}

/// The bytes of a ribbon filter; otherwise like [`encode`].
///
/// # Panics
///
/// If `millibits` is not from 1 to 40,000.
#[must_use]
pub fn encode_ribbon(filter: &Ribbon, hash_seed: u64, salt: u64, millibits: u64) -> Vec<u8> {
    assert!((1..=MILLIBITS_MAX).contains(&millibits), "millibits is {millibits}");
    let mut bytes = filter.to_payload();
    let Header { groups, columns, layers, attempt, blocks, upper, key_count } = filter.header();
    let trailer = Trailer {
        kind: FilterKind::Ribbon as u8,
        version: VERSION,
        hash_version: HASH_VERSION,
        groups,
        probes: columns,
        layers,
        attempt,
        hash_seed,
        salt,
        key_count,
        lines: blocks,
        millibits,
        upper,
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
    if trailer.kind == FilterKind::Ribbon as u8 {
        check_crc32("filter payload", trailer.payload_crc32, payload)?;
        return Ribbon::from_payload(trailer.ribbon_header(), payload).map(TableFilter::Ribbon);
    }

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

/// The fields of the trailer, but for its own checksum. Those with two names have that of a Bloom
/// filter here.
#[derive(Debug, Clone, Copy)]
struct Trailer {
    kind: u8,
    version: u8,
    hash_version: u8,
    groups: u8,
    probes: u8,
    layers: u8,
    attempt: u16,
    hash_seed: u64,
    salt: u64,
    key_count: u64,
    lines: u64,
    millibits: u64,
    upper: u64,
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
        bytes[5] = self.layers;
        bytes[6..8].copy_from_slice(&self.attempt.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.hash_seed.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.salt.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.key_count.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.lines.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.millibits.to_le_bytes());
        bytes[48..56].copy_from_slice(&self.upper.to_le_bytes());
        bytes[56..60].copy_from_slice(&self.payload_crc32.to_le_bytes());
        let crc32 = crc32fast::hash(&bytes[..60]);
        bytes[60..].copy_from_slice(&crc32.to_le_bytes());
        bytes
    }

    /// The fields, whether they make sense or not.
    fn from_bytes(bytes: &[u8; TRAILER_BYTES]) -> Self {
        let &[kind, version, hash_version, groups, probes, layers, a0, a1, ..] = bytes;
        let (words, _) = bytes.as_chunks();
        let word = |i: usize| u64::from_le_bytes(words[i]);
        Self {
            kind,
            version,
            hash_version,
            groups,
            probes,
            layers,
            attempt: u16::from_le_bytes([a0, a1]),
            hash_seed: word(1),
            salt: word(2),
            key_count: word(3),
            lines: word(4),
            millibits: word(5),
            upper: word(6),
            payload_crc32: word(7) as u32, // The low half; the high half is the trailer's own.
        }
    }

    fn checked(bytes: &[u8; TRAILER_BYTES]) -> Result<Self, DecodeError> {
        let (covered, stored) = bytes.split_last_chunk().expect("64 bytes end with 4 bytes");
        check_crc32("filter trailer", u32::from_le_bytes(*stored), covered)?;
        Ok(Self::from_bytes(bytes))
    }

    fn ribbon_header(&self) -> Header {
        Header {
            groups: self.groups,
            columns: self.probes,
            layers: self.layers,
            attempt: self.attempt,
            blocks: self.lines,
            upper: self.upper,
            key_count: self.key_count,
        }
    }

    fn validate(&self, expected: Expected) -> Result<(), DecodeError> {
        let is_ribbon = self.kind == FilterKind::Ribbon as u8;
        if !is_ribbon && self.kind != FilterKind::BlockedBloom as u8 {
            let value = self.kind.into();
            return Err(DecodeError::Unsupported { what: "filter kind", value });
        }
        let known: [(&'static str, u8, u8); 2] = [
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
        let free = u64::from(self.layers) | u64::from(self.attempt) << 8;
        // `Ribbon::from_payload` checks what is left out here for a ribbon.
        let of_bloom = [
            ("column groups of the filter", u64::from(self.groups), 1..=1),
            ("probes of the filter", self.probes.into(), 1..=PROBES_MAX.into()),
            ("zero bytes of the filter", free, 0..=0),
            ("zero bytes of the filter", self.upper, 0..=0),
            ("lines of the filter", self.lines, 1..=u64::MAX),
        ];
        let ranges = of_bloom.into_iter().filter(|_| !is_ribbon).chain([(
            "millibits of the filter",
            self.millibits,
            1..=MILLIBITS_MAX,
        )]);
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
            ("binary fuse", 64, 3, Unsupported { what: "filter kind", value: 3 }),
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
