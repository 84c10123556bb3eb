//! Writer of a table.

use std::{
    fs,
    io::{BufWriter, Write as _},
    path::PathBuf,
};

use super::{
    block::{BlockBuilder, put_varint64, separator},
    output_file::new_file,
    properties::{self, Counts},
};
use crate::{
    checksum::ChecksumKind,
    compression::Compression,
    digest::Digest,
    error::{Error, Result},
    internal_key::{Comparator, ValueType},
    manifest::TableFile,
    table::{FOOTER_BYTES, Handle, MAGIC, PROPERTIES, Table, TableCursor},
    tombstone::Bounds,
};

/// Format version of the tables, the default of RocksDB 6.6 to 9.
const FORMAT_VERSION: u32 = 5;

/// Length at which a data block is complete.
const BLOCK_BYTES: usize = 16 << 10;

/// Number of keys from one restart point of a data block to the next.
const RESTART_INTERVAL: usize = 16;

/// Maximum length of a block that is compressed. LZ4 takes up to 2 GiB less a few bytes.
const COMPRESSED_BYTES_MAX: usize = 1 << 30;

/// Sequence number 0 and the type of a value, appended to each user key.
const TRAILER: [u8; 8] = [1, 0, 0, 0, 0, 0, 0, 0];

/// Estimated bytes of a table besides its data blocks and its index.
const FIXED_BYTES: u64 = 4096;

/// Maximum bytes of a block entry besides key and value: three lengths and a restart point.
const ENTRY_OVERHEAD: usize = 20;

/// Writes a table.
#[derive(Debug)]
pub(super) struct TableWriter {
    file: BufWriter<fs::File>,
    path: PathBuf,
    family: String,
    is_compressed: bool,
    offset: u64,
    data: BlockBuilder,
    index: BlockBuilder,
    /// Handle of the last data block, which is not yet in the index.
    finished: Option<Handle>,
    first_key: Vec<u8>,
    last_key: Vec<u8>,
    counts: Counts,
    digest: Digest,
}

impl TableWriter {
    /// Creates the table `path`, for entries of the column family `family`.
    pub(super) fn create(path: PathBuf, family: &str, is_compressed: bool) -> Result<Self> {
        Ok(Self {
            file: BufWriter::with_capacity(256 << 10, new_file(&path)?),
            path,
            family: family.to_owned(),
            is_compressed,
            offset: 0,
            data: BlockBuilder::new(RESTART_INTERVAL),
            index: BlockBuilder::new(1),
            finished: None,
            first_key: Vec::new(),
            last_key: Vec::new(),
            counts: Counts::default(),
            digest: Digest::default(),
        })
    }

    /// Returns the maximum length of the table after another entry.
    pub(super) fn bytes_with(&self, key: &[u8], value: &[u8]) -> u64 {
        let entry = key.len() + TRAILER.len() + value.len() + ENTRY_OVERHEAD;
        // The entry may complete a block, whose index entry is as long as a key.
        let index = self.index.len() + self.last_key.len() + key.len() + 4 * ENTRY_OVERHEAD;
        self.offset + FIXED_BYTES + (self.data.len() + entry + index) as u64
    }

    /// Appends an entry. Its key must be greater than the last one.
    pub(super) fn add(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        if let Some(handle) = self.finished.take() {
            add_handle(&mut self.index, &separator(&self.last_key, key), handle);
        }
        if self.counts.entries == 0 {
            self.first_key = key.to_vec();
        }
        self.last_key.clear();
        self.last_key.extend_from_slice(key);
        self.data.add(&[key, &TRAILER].concat(), value);
        self.counts.entries += 1;
        self.counts.key_bytes += (key.len() + TRAILER.len()) as u64;
        self.counts.value_bytes += value.len() as u64;
        self.digest.add(key, value);
        if self.data.len() >= BLOCK_BYTES {
            self.finish_block()?;
        }
        Ok(())
    }

    /// Writes the rest of the table, makes it durable, and reads it again. Returns its digest.
    pub(super) fn finish(mut self) -> Result<Digest> {
        if !self.data.is_empty() {
            self.finish_block()?;
        }
        if let Some(handle) = self.finished.take() {
            add_handle(&mut self.index, &self.last_key, handle);
        }
        self.counts.data_bytes = self.offset;
        let index = self.index.finish();
        let index = self.write_block(&index, false)?;
        self.counts.index_bytes = self.offset - self.counts.data_bytes;
        let properties = properties::block(&self.counts, &self.family, self.is_compressed);
        let properties = self.write_block(&properties, false)?;
        let mut metaindex = BlockBuilder::new(1);
        add_handle(&mut metaindex, PROPERTIES, properties);
        let metaindex = self.write_block(&metaindex.finish(), false)?;
        let footer = footer(metaindex, index);
        self.write(&footer)?;
        let synced = self.file.flush().and_then(|()| self.file.get_ref().sync_all());
        synced.map_err(|error| Error::io("write", &self.path, error))?;
        match self.read_again()? == self.digest {
            true => Ok(self.digest),
            false => Err(Error::corrupt(&self.path, 0, "the table differs from what was written")),
        }
    }

    /// Reads the finished table, and verifies its checksums and order. Returns its digest.
    fn read_again(&self) -> Result<Digest> {
        let known = TableFile {
            level: 0,
            number: 0,
            path_id: 0,
            bytes: self.offset,
            bounds: Bounds {
                smallest: (self.first_key.clone(), 0),
                largest: (self.last_key.clone(), 0),
            },
            largest_sequence: 0,
        };
        let table = Table::open(&self.path, &known, Comparator::BYTEWISE)?;
        let mut cursor = TableCursor::new(table)?;
        let (mut digest, mut last) = (Digest::default(), None::<Vec<u8>>);
        while cursor.advance()? {
            let is_ordered = last.as_deref().is_none_or(|last| last < cursor.key());
            if !is_ordered || cursor.value_type() != ValueType::Value || cursor.sequence() != 0 {
                let reason = "an entry differs from what was written";
                return Err(Error::corrupt(&self.path, cursor.offset(), reason));
            }
            digest.add(cursor.key(), cursor.value());
            let last = last.get_or_insert_default();
            last.clear();
            last.extend_from_slice(cursor.key());
        }
        Ok(digest)
    }

    fn finish_block(&mut self) -> Result<()> {
        let block = self.data.finish();
        self.finished = Some(self.write_block(&block, self.is_compressed)?);
        self.counts.data_blocks += 1;
        Ok(())
    }

    /// Writes a block and its trailer.
    fn write_block(&mut self, block: &[u8], compress: bool) -> Result<Handle> {
        let compressed = if compress { compressed(block) } else { None };
        let (kind, mut bytes) = match compressed {
            Some(bytes) => (Compression::LZ4, bytes),
            None => (Compression::NONE, block.to_vec()),
        };
        let handle = Handle { offset: self.offset, size: bytes.len() as u64 };
        bytes.push(kind);
        let checksum = ChecksumKind::Crc32c.of(&bytes);
        bytes.extend_from_slice(&checksum.to_le_bytes());
        self.write(&bytes)?;
        Ok(handle)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.file.write_all(bytes).map_err(|error| Error::io("write", &self.path, error))?;
        self.offset += bytes.len() as u64;
        Ok(())
    }
}

fn add_handle(block: &mut BlockBuilder, key: &[u8], handle: Handle) {
    let mut value = Vec::new();
    put_varint64(&mut value, handle.offset);
    put_varint64(&mut value, handle.size);
    block.add(key, &value);
}

/// Compresses the block by LZ4, with its length in front. Returns `None` unless that saves an
/// eighth.
fn compressed(block: &[u8]) -> Option<Vec<u8>> {
    if block.len() > COMPRESSED_BYTES_MAX {
        return None;
    }
    let mut bytes = Vec::new();
    put_varint64(&mut bytes, block.len() as u64);
    bytes.extend_from_slice(&lz4_flex::block::compress(block));
    (bytes.len() <= block.len() - block.len() / 8).then_some(bytes)
}

/// Returns the last bytes of a table.
fn footer(metaindex: Handle, index: Handle) -> Vec<u8> {
    let mut bytes = vec![ChecksumKind::Crc32c.number()];
    for handle in [metaindex, index] {
        put_varint64(&mut bytes, handle.offset);
        put_varint64(&mut bytes, handle.size);
    }
    bytes.resize(FOOTER_BYTES - 12, 0);
    bytes.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
    bytes.extend_from_slice(&MAGIC.to_le_bytes());
    bytes
}
