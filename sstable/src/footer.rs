//! The footer of a table: locates all other parts.
//!
//! A table is read from its end. The fixed part leads to the list, which locates the blocks that
//! are neither data nor index partitions.
//!
//! # Fixed part, the last 64 bytes
//!
//! | offset | bytes | field         | meaning                                                   |
//! |--------|-------|---------------|-----------------------------------------------------------|
//! | 0      | 8     | `list_offset` | offset of the list                                        |
//! | 8      | 8     | `list_bytes`  | its length, a multiple of 18; the fixed part follows      |
//! | 16     | 8     | `salt`        | random number that each block checksum covers             |
//! | 24     | 8     | `file_id`     | number in the file's name                                 |
//! | 32     | 16    | `store_id`    | random number of the store                                |
//! | 48     | 4     | `version`     | version of the table format, 2                            |
//! | 52     | 4     | `checksum`    | CRC-32 of the list and the 52 bytes before this           |
//! | 56     | 8     | `magic`       | `SieveEnd`                                                |
//!
//! # List, 18 bytes per block
//!
//! | offset | bytes | field    | meaning                                                        |
//! |--------|-------|----------|----------------------------------------------------------------|
//! | 0      | 1     | `kind`   | see below; strictly ascending                                  |
//! | 1      | 1     | `flags`  | bit 0: a reader must refuse the table if it does not know the kind |
//! | 2      | 8     | `offset` | offset of the block                                            |
//! | 10     | 8     | `bytes`  | its length, checksums included                                 |
//!
//! | kind | block                  | required | described in                            |
//! |------|------------------------|----------|-----------------------------------------|
//! | 1    | top index              | yes      | [`crate::index`]                        |
//! | 2    | properties             | yes      | [`crate::properties`]                   |
//! | 3    | point filter           | no       | [`sievedb_filter::filter_block`]        |
//! | 4    | prefix filter          | no       | [`sievedb_filter::filter_block`]        |
//! | 5    | range filter           | no       | [`sievedb_filter::filter_block`]        |
//! | 6    | range tombstones       | yes      | [`sievedb_format::range_tombstone`]     |
//! | 7    | compression dictionary | yes      | a zstd dictionary, as zstd trains it    |
//! | 8    | blob references        |          | reserved                                |

use sievedb_format::{
    Annotation, Corruption, Decoder, Encode, checksum::crc32, file_header::HEADER_BYTES,
};

use crate::{block::BlockHandle, error::ReadError, metadata::TableIdentity, source::TableSource};

/// Length of the fixed part, in bytes.
pub(crate) const FIXED_BYTES: usize = 64;

const ENTRY_BYTES: usize = 18;
/// Length of a list with all kinds. Bounds the read before the checksum is verified.
const LIST_BYTES_MAX: usize = ENTRY_BYTES * u8::MAX as usize;
const CHECKED_BYTES: usize = 52;
const VERSION: u32 = 2;
const MAGIC: [u8; 8] = *b"SieveEnd";
const FLAG_REQUIRED: u8 = 1;

/// Kinds of blocks in the footer that this release knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum BlockKind {
    /// The top index.
    DataIndex = 1,
    Properties = 2,
    /// The filter over all user keys of point entries.
    PointFilter = 3,
    /// The filter over the prefixes of these keys.
    PrefixFilter = 4,
    /// The filter for ranges of these keys.
    RangeFilter = 5,
    RangeTombstones = 6,
    CompressionDictionary = 7,
}

impl BlockKind {
    const ALL: [Self; 7] = [
        Self::DataIndex,
        Self::Properties,
        Self::PointFilter,
        Self::PrefixFilter,
        Self::RangeFilter,
        Self::RangeTombstones,
        Self::CompressionDictionary,
    ];

    /// Returns the name for errors.
    fn name(self) -> &'static str {
        match self {
            Self::DataIndex => "data index",
            Self::Properties => "block of properties",
            Self::PointFilter => "point filter",
            Self::PrefixFilter => "prefix filter",
            Self::RangeFilter => "range filter",
            Self::RangeTombstones => "block of range tombstones",
            Self::CompressionDictionary => "compression dictionary",
        }
    }

    /// Returns `true` if a reader that skips the block would return wrong results.
    fn is_required(self) -> bool {
        match self {
            Self::DataIndex
            | Self::Properties
            | Self::RangeTombstones
            | Self::CompressionDictionary => true,
            Self::PointFilter | Self::PrefixFilter | Self::RangeFilter => false,
        }
    }
}

/// Location of a block in the footer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FooterBlock {
    pub(crate) kind: BlockKind,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
}

/// A decoded footer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Footer {
    pub(crate) salt: u64,
    pub(crate) file_id: u64,
    pub(crate) store_id: u128,
    /// Offset of the list, and end of all blocks.
    pub(crate) list_offset: u64,
    /// The blocks of known kinds.
    pub(crate) blocks: Vec<FooterBlock>,
}

impl Footer {
    /// Returns the footer of a new table.
    pub(crate) fn new(identity: TableIdentity, list_offset: u64, blocks: Vec<FooterBlock>) -> Self {
        debug_assert!(blocks.is_sorted_by(|a, b| (a.kind as u8) < b.kind as u8), "a kind twice");
        debug_assert!(blocks.iter().all(|block| block.offset + block.bytes <= list_offset));
        let TableIdentity { store_id, file_id, salt, .. } = identity;
        Self { salt, file_id, store_id, list_offset, blocks }
    }

    /// Encodes list and fixed part.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.blocks.len() * ENTRY_BYTES + FIXED_BYTES);
        for FooterBlock { kind, offset, bytes: length } in &self.blocks {
            bytes.put_u8(*kind as u8);
            bytes.put_u8(if kind.is_required() { FLAG_REQUIRED } else { 0 });
            bytes.put_u64(*offset);
            bytes.put_u64(*length);
        }
        let list_bytes = bytes.len() as u64;
        bytes.put_u64(self.list_offset);
        bytes.put_u64(list_bytes);
        bytes.put_u64(self.salt);
        bytes.put_u64(self.file_id);
        bytes.put_u128(self.store_id);
        bytes.put_u32(VERSION);
        bytes.put_u32(crc32(&[&bytes]));
        bytes.put(&MAGIC);
        bytes
    }

    /// Reads the footer of `source`.
    ///
    /// # Errors
    ///
    /// [`ReadError`] if the source fails, a field violates the tables above, or a block of an
    /// unknown kind is required.
    pub(crate) fn read(source: &dyn TableSource) -> Result<Self, ReadError> {
        let length = source.len();
        let need = (HEADER_BYTES + FIXED_BYTES) as u64;
        if length < need {
            let source = Corruption::Truncated { what: "table", need, have: length };
            return Err(ReadError::Corrupt { offset: 0, source });
        }
        let fixed_offset = length - FIXED_BYTES as u64;
        let corrupt = ReadError::corrupt(fixed_offset);
        let fixed = source.read_at(fixed_offset, FIXED_BYTES)?;
        let list_bytes = list_bytes(&fixed, fixed_offset).map_err(&corrupt)?;
        let list = source.read_at(fixed_offset - list_bytes as u64, list_bytes)?;
        Self::decode(&list, &fixed).map_err(&corrupt)
    }

    fn decode(list: &[u8], fixed: &[u8]) -> Result<Self, Corruption> {
        let mut decoder = Decoder::new(fixed);
        let checked = decoder.clone().take("footer of the table", CHECKED_BYTES)?;
        let list_offset = decoder.u64("offset of the footer list")?;
        decoder.u64("bytes of the footer list")?;
        let salt = decoder.u64("salt")?;
        let file_id = decoder.u64("file id")?;
        let store_id = decoder.u128("store id")?;
        let version = decoder.u32("version of the table format")?;
        let stored = decoder.u32("checksum of the footer")?;
        let computed = crc32(&[list, checked]);
        if stored != computed {
            let (stored, computed) = (stored.into(), computed.into());
            return Err(Corruption::Checksum { what: "footer", stored, computed });
        }
        if version != VERSION {
            let what = "version of the table format";
            return Err(Corruption::Unsupported { what, value: version.into() });
        }
        let blocks = decode_list(list)?;
        Ok(Self { salt, file_id, store_id, list_offset, blocks })
    }

    /// Returns the block of this kind, if the table has one.
    pub(crate) fn block(&self, kind: BlockKind) -> Option<FooterBlock> {
        self.blocks.iter().copied().find(|block| block.kind == kind)
    }

    /// Returns the handle of the block of this kind.
    ///
    /// # Errors
    ///
    /// [`ReadError::Corrupt`] if the table has no such block, or its length is invalid.
    pub(crate) fn handle(&self, kind: BlockKind) -> Result<BlockHandle, ReadError> {
        let block = self.block(kind).ok_or(Corruption::Missing { what: kind.name() });
        block
            .and_then(|block| BlockHandle::new(block.offset, block.bytes))
            .map_err(ReadError::corrupt(self.list_offset))
    }

    /// Checks that the footer is that of the table `identity`.
    ///
    /// # Errors
    ///
    /// [`Corruption::Mismatch`] otherwise.
    pub(crate) fn check(&self, identity: &TableIdentity) -> Result<(), Corruption> {
        let checks = [
            ("store id", identity.store_id as u64, self.store_id as u64),
            ("store id", (identity.store_id >> 64) as u64, (self.store_id >> 64) as u64),
            ("file id", identity.file_id, self.file_id),
            ("salt", identity.salt, self.salt),
        ];
        for (what, expected, found) in checks {
            if expected != found {
                return Err(Corruption::Mismatch { what, expected, found });
            }
        }
        Ok(())
    }

    /// Adds the fields of list and fixed part to `annotation`, whose base is the start of the file.
    pub(crate) fn describe(&self, annotation: &mut Annotation) {
        annotation.rebase(self.list_offset);
        let mut at = 0;
        for FooterBlock { kind, offset, bytes } in &self.blocks {
            let meaning = format!("{kind:?} at {offset:08x}, {bytes} bytes");
            annotation.field(at..at + ENTRY_BYTES as u64, "footer_block", meaning);
            at += ENTRY_BYTES as u64;
        }
        annotation.rebase(self.list_offset + at);
        annotation.field(0..8, "list_offset", format_args!("{:08x}", self.list_offset));
        annotation.field(8..16, "list_bytes", at);
        annotation.field(16..24, "salt", format_args!("{:016x}", self.salt));
        annotation.field(24..32, "file_id", self.file_id);
        annotation.field(32..48, "store_id", format_args!("{:032x}", self.store_id));
        annotation.field(48..52, "version", VERSION);
        annotation.field(52..56, "checksum", "ok");
        annotation.field(56..64, "magic", "SieveEnd");
    }
}

/// Returns the length of the list. Checks it against the offset of the fixed part, because no
/// checksum is verified yet.
fn list_bytes(fixed: &[u8], fixed_offset: u64) -> Result<usize, Corruption> {
    let mut decoder = Decoder::new(fixed);
    let list_offset = decoder.u64("offset of the footer list")?;
    let list_bytes = decoder.u64("bytes of the footer list")?;
    decoder.take("footer of the table", FIXED_BYTES - 2 * size_of::<u64>() - MAGIC.len())?;
    let magic = decoder.u64("magic")?;
    if magic.to_le_bytes() != MAGIC {
        return Err(Corruption::Magic { what: "table end", found: magic });
    }
    let length = usize::try_from(list_bytes).ok().filter(|length| {
        length.is_multiple_of(ENTRY_BYTES)
            && *length <= LIST_BYTES_MAX
            && list_offset >= HEADER_BYTES as u64
            && list_offset.checked_add(list_bytes) == Some(fixed_offset)
    });
    let what = "bytes of the footer list";
    length.ok_or(Corruption::OutOfRange { what, value: list_bytes })
}

fn decode_list(list: &[u8]) -> Result<Vec<FooterBlock>, Corruption> {
    let mut decoder = Decoder::new(list);
    let mut blocks = Vec::new();
    let mut before = 0;
    while !decoder.is_empty() {
        let kind = decoder.u8("kind of a block")?;
        let flags = decoder.u8("flags of a block")?;
        let offset = decoder.u64("offset of a block")?;
        let bytes = decoder.u64("bytes of a block")?;
        if kind <= before {
            return Err(Corruption::Order { what: "footer list" });
        }
        before = kind;
        if flags > FLAG_REQUIRED {
            return Err(Corruption::OutOfRange { what: "flags of a block", value: flags.into() });
        }
        match BlockKind::ALL.into_iter().find(|known| *known as u8 == kind) {
            Some(kind) => blocks.push(FooterBlock { kind, offset, bytes }),
            None if flags == FLAG_REQUIRED => {
                let what = "required block of kind";
                return Err(Corruption::Unsupported { what, value: kind.into() });
            }
            None => {}
        }
    }
    Ok(blocks)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    const IDENTITY: TableIdentity =
        TableIdentity { store_id: 3 << 64 | 5, file_id: 7, salt: 11, hash_seed: 13 };

    fn footer() -> Footer {
        let block = |kind, offset| FooterBlock { kind, offset, bytes: 10 };
        let blocks = vec![block(BlockKind::DataIndex, 64), block(BlockKind::PointFilter, 128)];
        Footer::new(IDENTITY, 192, blocks)
    }

    fn file(footer: &Footer) -> Vec<u8> {
        [vec![0; 192], footer.encode()].concat()
    }

    /// Recomputes the checksum.
    fn sealed(mut file: Vec<u8>) -> Bytes {
        let checksum_at = file.len() - FIXED_BYTES + CHECKED_BYTES;
        let checksum = crc32(&[&file[192..checksum_at]]);
        file[checksum_at..checksum_at + 4].copy_from_slice(&checksum.to_le_bytes());
        file.into()
    }

    fn cause(found: Result<Footer, ReadError>) -> Corruption {
        match found {
            Err(ReadError::Corrupt { source, .. }) => source,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn footer_round_trips() {
        let found = Footer::read(&Bytes::from(file(&footer()))).unwrap();
        assert_eq!(found, footer());
        assert_eq!(found.check(&IDENTITY), Ok(()));
        assert_eq!(found.block(BlockKind::PointFilter).map(|block| block.offset), Some(128));
        assert_eq!(found.block(BlockKind::Properties), None);
    }

    #[test]
    fn flipped_bits_and_truncation_are_refused() {
        let good = file(&footer());
        for at in 192..good.len() {
            for bit in 0..8 {
                let mut bytes = good.clone();
                bytes[at] ^= 1 << bit;
                assert!(Footer::read(&Bytes::from(bytes)).is_err(), "bit {bit} of byte {at}");
            }
        }
        for cut in 0..good.len() {
            assert!(
                Footer::read(&Bytes::from(good[..cut].to_vec())).is_err(),
                "truncated at {cut}"
            );
        }
    }

    #[test]
    fn the_footer_of_another_table_is_refused() {
        let cases = [
            ("low half of the store id", TableIdentity { store_id: 3 << 64 | 6, ..IDENTITY }),
            ("high half of the store id", TableIdentity { store_id: 5, ..IDENTITY }),
            ("file id", TableIdentity { file_id: 8, ..IDENTITY }),
            ("salt", TableIdentity { salt: 12, ..IDENTITY }),
        ];
        for (name, identity) in cases {
            assert!(footer().check(&identity).is_err(), "{name}");
        }
    }

    #[test]
    fn unknown_kinds_are_skipped_unless_required() {
        use Corruption::{Order, OutOfRange, Unsupported};
        let good = file(&footer());
        let with = |at: usize, byte: u8| {
            let mut bytes = good.clone();
            bytes[192 + at] = byte;
            sealed(bytes)
        };
        for kind in [8, 9, 200] {
            let found = Footer::read(&with(ENTRY_BYTES, kind)).unwrap();
            assert_eq!(found.blocks, footer().blocks[..1], "optional kind {kind}");
        }
        let required = |kind: u8| {
            let mut bytes = good.clone();
            bytes[192 + ENTRY_BYTES] = kind;
            bytes[192 + ENTRY_BYTES + 1] = FLAG_REQUIRED;
            sealed(bytes)
        };
        for kind in [8, 9, 200] {
            let want = Unsupported { what: "required block of kind", value: kind.into() };
            assert_eq!(cause(Footer::read(&required(kind))), want);
        }
        let list = Order { what: "footer list" };
        assert_eq!(cause(Footer::read(&with(ENTRY_BYTES, 1))), list, "a kind twice");
        let flags = OutOfRange { what: "flags of a block", value: 2 };
        assert_eq!(cause(Footer::read(&with(1, 2))), flags);
    }

    #[test]
    fn another_version_is_refused() {
        for other in [VERSION - 1, VERSION + 1] {
            let mut bytes = file(&footer());
            let at = bytes.len() - FIXED_BYTES + 48;
            bytes[at] = other as u8;
            let what = "version of the table format";
            let want = Corruption::Unsupported { what, value: other.into() };
            assert_eq!(cause(Footer::read(&sealed(bytes))), want);
        }
    }
}
