//! The 64-byte header of every file.
//!
//! | offset | bytes | field      | meaning                                                      |
//! |--------|-------|------------|--------------------------------------------------------------|
//! | 0      | 8     | `magic`    | identifies the [`FileKind`]                                  |
//! | 8      | 2     | `version`  | format version, at least 1                                   |
//! | 10     | 1     | `envelope` | 0: plaintext; 1: AES-256-GCM; others are reserved            |
//! | 11     | 5     |            | zero; readers reject other values                            |
//! | 16     | 16    | `store_id` | random number of the store; detects files of another store   |
//! | 32     | 8     | `file_id`  | number in the file's name; for `CURRENT`, of the manifest    |
//! | 40     | 8     | `secret`   | log and manifest: random, covered by record checksums; others: 0 |
//! | 48     | 6     | `release`  | release that wrote the file: major, minor, patch (16 bits each) |
//! | 54     | 4     | `build`    | build of that release; 0 if unknown                          |
//! | 58     | 2     |            | zero; readers reject other values                            |
//! | 60     | 4     | `checksum` | CRC-32 of the bytes before it                                |

use std::fmt;

use crate::{Annotation, Corruption, Decoder, checksum::crc32};

/// Length of a file header, in bytes.
pub const HEADER_BYTES: usize = 64;

/// Envelope of a plaintext file.
const ENVELOPE_NONE: u8 = 0;
/// Envelope of a file encrypted by AES-256-GCM below the format.
const ENVELOPE_AES_256_GCM: u8 = 1;

/// Format version that this release writes, and the newest that it reads.
pub const FORMAT_VERSION: u16 = 1;

const CHECKED_BYTES: usize = HEADER_BYTES - size_of::<u32>();

/// The content of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FileKind {
    /// A segment of the write-ahead log.
    Log,
    /// A log of version edits.
    Manifest,
    /// A sorted table of entries.
    Table,
    /// The file that names the manifest.
    Current,
    /// The file with the length of the manifest at the last close of the store.
    Closed,
    /// The filter of a table, in a separate file.
    Filter,
    /// Values of tables, in a separate file.
    Blobs,
}

impl FileKind {
    const ALL: [Self; 7] = [
        Self::Log,
        Self::Manifest,
        Self::Table,
        Self::Current,
        Self::Closed,
        Self::Filter,
        Self::Blobs,
    ];

    /// Returns the name for errors.
    const fn name(self) -> &'static str {
        match self {
            Self::Log => "log",
            Self::Manifest => "manifest",
            Self::Table => "table",
            Self::Current => "CURRENT",
            Self::Closed => "CLOSED",
            Self::Filter => "filter file",
            Self::Blobs => "blob file",
        }
    }

    const fn magic(self) -> [u8; 8] {
        *match self {
            Self::Log => b"SieveLog",
            Self::Manifest => b"SieveMan",
            Self::Table => b"SieveSST",
            Self::Current => b"SieveCur",
            Self::Closed => b"SieveClo",
            Self::Filter => b"SieveFil",
            Self::Blobs => b"SieveBlb",
        }
    }
}

/// The decoded header of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileHeader {
    /// Content of the file.
    pub kind: FileKind,
    /// Random number of the store.
    pub store_id: u128,
    /// Number of the file, never reused within the store.
    pub file_id: u64,
    /// Random number that the checksum of each record covers; 0 in files without records.
    pub secret: u64,
    /// Release that wrote the file. Not compared by [`check`](Self::check).
    pub writer: Release,
}

/// A release of SieveDB, as stored in files. Informative: readers never depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub struct Release {
    /// Major, minor and patch number.
    pub version: [u16; 3],
    /// Build number; 0 if unknown.
    pub build: u32,
}

impl Release {
    /// This release.
    ///
    /// The build is the environment variable `SIEVEDB_BUILD` at compile time, up to 8 hexadecimal
    /// digits; 0 if unset.
    pub const THIS: Self = Self {
        version: [
            number(env!("CARGO_PKG_VERSION_MAJOR"), 10) as u16,
            number(env!("CARGO_PKG_VERSION_MINOR"), 10) as u16,
            number(env!("CARGO_PKG_VERSION_PATCH"), 10) as u16,
        ],
        build: match option_env!("SIEVEDB_BUILD") {
            Some(build) => number(build, 16),
            None => 0,
        },
    };
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [major, minor, patch] = self.version;
        write!(f, "{major}.{minor}.{patch}")?;
        if self.build != 0 {
            write!(f, " build {:08x}", self.build)?;
        }
        Ok(())
    }
}

const fn number(digits: &str, radix: u32) -> u32 {
    match u32::from_str_radix(digits, radix) {
        Ok(number) => number,
        Err(_) => panic!("SIEVEDB_BUILD takes up to 8 hexadecimal digits"),
    }
}

impl FileHeader {
    /// Creates the header of a file without records, written by this release.
    #[must_use]
    pub const fn new(kind: FileKind, store_id: u128, file_id: u64) -> Self {
        Self { kind, store_id, file_id, secret: 0, writer: Release::THIS }
    }

    /// Creates the header of a log segment or manifest, written by this release.
    #[must_use]
    pub const fn of_records(kind: FileKind, store_id: u128, file_id: u64, secret: u64) -> Self {
        Self { secret, ..Self::new(kind, store_id, file_id) }
    }

    /// Encodes the header.
    #[must_use]
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        self.encode_with(ENVELOPE_NONE)
    }

    /// Encodes the header of a file whose other bytes are encrypted.
    #[must_use]
    pub fn encode_encrypted(&self) -> [u8; HEADER_BYTES] {
        self.encode_with(ENVELOPE_AES_256_GCM)
    }

    fn encode_with(&self, envelope: u8) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..8].copy_from_slice(&self.kind.magic());
        bytes[8..10].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        bytes[10] = envelope;
        bytes[16..32].copy_from_slice(&self.store_id.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.file_id.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.secret.to_le_bytes());
        for (at, number) in (48..).step_by(2).zip(self.writer.version) {
            bytes[at..at + 2].copy_from_slice(&number.to_le_bytes());
        }
        bytes[54..58].copy_from_slice(&self.writer.build.to_le_bytes());
        let checksum = crc32(&[&bytes[..CHECKED_BYTES]]);
        bytes[CHECKED_BYTES..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Decodes the header at the start of a file.
    ///
    /// # Errors
    ///
    /// [`Corruption`] if the bytes are truncated or a field violates the table above;
    /// [`Corruption::Encrypted`] if the file is encrypted.
    pub fn decode(bytes: &[u8]) -> Result<Self, Corruption> {
        match Self::decode_any(bytes)? {
            (header, false) => Ok(header),
            (_, true) => Err(Corruption::Encrypted),
        }
    }

    /// Decodes the header of a file that may be encrypted, and returns `true` with it if the file
    /// is encrypted.
    ///
    /// # Errors
    ///
    /// [`Corruption`] if the bytes are truncated or a field violates the table above.
    pub fn decode_any(bytes: &[u8]) -> Result<(Self, bool), Corruption> {
        let mut decoder = Decoder::new(bytes);
        let header = decoder.take("file header", HEADER_BYTES)?;
        let mut decoder = Decoder::new(header);
        let magic = decoder.u64("magic")?;
        let kind = FileKind::ALL.into_iter().find(|kind| kind.magic() == magic.to_le_bytes());
        let kind = kind.ok_or(Corruption::Magic { what: "file", found: magic })?;
        let mut end = Decoder::new(&header[CHECKED_BYTES..]);
        let stored = end.u32("checksum")?;
        let computed = crc32(&[&header[..CHECKED_BYTES]]);
        if stored != computed {
            let (stored, computed) = (stored.into(), computed.into());
            return Err(Corruption::Checksum { what: "file header", stored, computed });
        }
        let version = u16::from_le_bytes([header[8], header[9]]);
        if version != FORMAT_VERSION {
            return Err(Corruption::Unsupported { what: "format version", value: version.into() });
        }
        let is_encrypted = match header[10] {
            ENVELOPE_NONE => false,
            ENVELOPE_AES_256_GCM => true,
            value => {
                return Err(Corruption::Unsupported { what: "envelope", value: value.into() });
            }
        };
        let has_records = matches!(kind, FileKind::Log | FileKind::Manifest);
        let reserved = [&header[11..16], &header[58..60]];
        let unused = if has_records { 48..48 } else { 40..48 };
        let reserved = reserved.into_iter().chain([&header[unused]]).flatten();
        if let Some(&value) = reserved.into_iter().find(|&&byte| byte != 0) {
            let what = "reserved byte of a file header";
            return Err(Corruption::Unsupported { what, value: value.into() });
        }
        decoder.take("version and envelope", 8)?;
        let (store_id, file_id) = (decoder.u128("store id")?, decoder.u64("file id")?);
        let secret = decoder.u64("secret")?;
        let mut part = || decoder.take("release", 2).map(|it| u16::from_le_bytes([it[0], it[1]]));
        let version = [part()?, part()?, part()?];
        let writer = Release { version, build: decoder.u32("build")? };
        Ok((Self { kind, store_id, file_id, secret, writer }, is_encrypted))
    }

    /// Decodes a header, checks its kind, store id and file id against `self`, and returns it.
    ///
    /// # Errors
    ///
    /// As [`decode`](Self::decode), and [`Corruption::Mismatch`] if the header belongs to another
    /// store or another file.
    pub fn check(&self, bytes: &[u8]) -> Result<Self, Corruption> {
        let what = self.kind.name();
        let found = Self::decode(bytes).map_err(|error| match error {
            Corruption::Magic { found, .. } => Corruption::Magic { what, found },
            other => other,
        })?;
        if found.kind != self.kind {
            let found = u64::from_le_bytes(found.kind.magic());
            return Err(Corruption::Magic { what, found });
        }
        if found.store_id != self.store_id {
            let (expected, found) = (self.store_id as u64, found.store_id as u64);
            return Err(Corruption::Mismatch { what: "store id", expected, found });
        }
        if found.file_id != self.file_id {
            let (expected, found) = (self.file_id, found.file_id);
            return Err(Corruption::Mismatch { what: "file id", expected, found });
        }
        Ok(found)
    }

    /// Adds the header's fields to `annotation`.
    pub fn describe(&self, annotation: &mut Annotation) {
        annotation.field(0..8, "magic", format_args!("{:?}", self.kind));
        annotation.field(8..10, "version", FORMAT_VERSION);
        annotation.field(10..11, "envelope", 0);
        annotation.field(16..32, "store_id", format_args!("{:032x}", self.store_id));
        annotation.field(32..40, "file_id", self.file_id);
        if self.secret != 0 {
            annotation.field(40..48, "secret", format_args!("{:016x}", self.secret));
        }
        annotation.field(48..58, "writer", self.writer);
        annotation.field(60..64, "checksum", "ok");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: FileHeader = FileHeader::new(FileKind::Table, 0x0123_4567_89ab_cdef, 42);

    #[test]
    fn headers_round_trip() {
        for kind in FileKind::ALL {
            let header = FileHeader { kind, ..HEADER };
            assert_eq!(FileHeader::decode(&header.encode()), Ok(header));
            assert_eq!(header.check(&header.encode()), Ok(header));
            let encrypted = header.encode_encrypted();
            assert_eq!(FileHeader::decode_any(&encrypted), Ok((header, true)));
            assert_eq!(header.check(&encrypted), Err(Corruption::Encrypted));
        }
    }

    #[test]
    fn flipped_and_truncated_headers_are_rejected() {
        let good = HEADER.encode();
        for at in 0..good.len() {
            assert!(FileHeader::decode(&good[..at]).is_err(), "cut at {at}");
            let mut bytes = good;
            bytes[at] ^= 0x10;
            assert!(FileHeader::decode(&bytes).is_err(), "flipped at {at}");
        }
    }

    #[test]
    fn formats_reserved_bytes_are_rejected_and_the_writer_is_ignored() {
        let sealed = |mut bytes: [u8; HEADER_BYTES]| {
            let checksum = crc32(&[&bytes[..CHECKED_BYTES]]);
            bytes[CHECKED_BYTES..].copy_from_slice(&checksum.to_le_bytes());
            bytes
        };
        for kind in FileKind::ALL {
            let header = FileHeader { kind, ..HEADER };
            let has_secret = matches!(kind, FileKind::Log | FileKind::Manifest);
            for at in (11..16).chain(40..48).chain(48..60) {
                let mut bytes = header.encode();
                bytes[at] = bytes[at].wrapping_add(1);
                let found = header.check(&sealed(bytes));
                let is_ignored = (48..58).contains(&at) || has_secret && (40..48).contains(&at);
                assert_eq!(found.is_ok(), is_ignored, "{kind:?} {at}: {found:?}");
            }
        }
    }

    #[test]
    fn headers_of_other_files_are_rejected() {
        let cases = [
            ("kind", FileHeader { kind: FileKind::Log, ..HEADER }),
            ("store", FileHeader { store_id: 1, ..HEADER }),
            ("file", FileHeader { file_id: 43, ..HEADER }),
        ];
        for (name, other) in cases {
            assert!(HEADER.check(&other.encode()).is_err(), "{name}");
        }
    }
}
