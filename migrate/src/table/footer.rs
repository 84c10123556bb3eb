//! Footer of a table.

use crate::{
    checksum::{self, ChecksumKind},
    decoder::Decoder,
    error::{Error, Result},
    file::File,
};

/// Length of the footer.
pub(crate) const FOOTER_BYTES: usize = 53;

/// Length of the compression type and checksum after each block.
pub(crate) const TRAILER_BYTES: usize = 5;

/// Last 8 bytes of a block-based table.
pub(crate) const MAGIC: u64 = 0x88e2_41b7_85f4_cff7;

/// Last 8 bytes of a block-based table of LevelDB, or of RocksDB before 4.6.
const MAGIC_LEGACY: u64 = 0xdb47_7524_8b80_fb57;

/// Last 8 bytes of plain tables, new and legacy.
const MAGIC_PLAIN: [u64; 2] = [0x8242_2296_63bf_9564, 0x4f34_18eb_7a8f_13b8];

/// Last 8 bytes of a cuckoo table.
const MAGIC_CUCKOO: u64 = 0x9267_89d0_c5f1_7873;

/// First bytes of the handles from format version 6 on.
const MAGIC_EXTENDED: u32 = 0x007a_003e;

/// Format version whose blocks have context checksums.
const VERSION_CONTEXT: u32 = 6;

/// Format version whose tables name their compression manager.
pub(crate) const VERSION_MANAGER: u32 = 7;

/// Position of a block in a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Handle {
    pub(crate) offset: u64,
    /// Length without the trailer.
    pub(crate) size: u64,
}

impl Handle {
    pub(crate) fn decode(decoder: &mut Decoder<'_>) -> Result<Self> {
        Ok(Self {
            offset: decoder.varint64("block handle")?,
            size: decoder.varint64("block handle")?,
        })
    }
}

/// Footer of a table.
#[derive(Debug)]
pub(crate) struct Footer {
    pub(crate) version: u32,
    pub(crate) checksum: ChecksumKind,
    /// Base of the context checksums, 0 before format version 6.
    pub(crate) context: u32,
    pub(crate) metaindex: Handle,
    /// Handle of the index before format version 6. Later tables have it in the metaindex.
    pub(crate) index: Option<Handle>,
}

impl Footer {
    pub(crate) fn read(file: &File) -> Result<Self> {
        let path = file.path();
        let Some(offset) = file.len().checked_sub(FOOTER_BYTES as u64) else {
            return Err(Error::corrupt(path, 0, "the file is too short to be a table"));
        };
        let bytes = file.read_at(offset, FOOTER_BYTES)?;
        let (head, tail) = bytes.split_at(FOOTER_BYTES - 12);
        let mut tail = Decoder::new(tail, path, offset);
        let version = tail.u32("format version")?;
        match tail.u64("magic number")? {
            MAGIC => {}
            MAGIC_LEGACY => {
                let feature = "table of LevelDB, or of RocksDB before 4.6; compact the database \
                               with RocksDB 10 or earlier";
                return Err(Error::unsupported(path, feature));
            }
            magic if MAGIC_PLAIN.contains(&magic) => {
                return Err(Error::unsupported(path, "plain table"));
            }
            MAGIC_CUCKOO => return Err(Error::unsupported(path, "cuckoo table")),
            magic => {
                let reason = format!("magic number {magic:016x} is not that of block-based tables");
                return Err(Error::corrupt(path, offset, reason));
            }
        }
        if !(2..=VERSION_MANAGER).contains(&version) {
            return Err(Error::unsupported(path, format!("table format version {version}")));
        }
        let mut decoder = Decoder::new(head, path, offset);
        let checksum = ChecksumKind::from_number(decoder.u8("checksum type")?, path)?;
        if version < VERSION_CONTEXT {
            let metaindex = Handle::decode(&mut decoder)?;
            let index = Some(Handle::decode(&mut decoder)?);
            return Ok(Self { version, checksum, context: 0, metaindex, index });
        }
        if decoder.u32("extended magic number")? != MAGIC_EXTENDED {
            return Err(decoder.corrupt("the extended magic number differs"));
        }
        let stored = decoder.u32("footer checksum")?;
        let context = decoder.u32("context checksum")?;
        let mut unsummed = bytes.clone();
        unsummed[5..9].fill(0);
        let computed = match checksum {
            ChecksumKind::None => 0,
            kind => kind.of(&unsummed),
        };
        if computed.wrapping_add(checksum::context(context, offset)) != stored {
            return Err(decoder.corrupt("the checksum of the footer differs"));
        }
        let size = u64::from(decoder.u32("metaindex size")?);
        let Some(start) = offset.checked_sub(size + TRAILER_BYTES as u64) else {
            return Err(decoder.corrupt("the metaindex is larger than the file"));
        };
        decoder.bytes(16, "padding")?;
        if decoder.u64("reserved bytes")? != 0 {
            return Err(decoder.unsupported("table with a footer of a later release"));
        }
        let metaindex = Handle { offset: start, size };
        Ok(Self { version, checksum, context, metaindex, index: None })
    }
}
