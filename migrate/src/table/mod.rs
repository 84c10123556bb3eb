//! Block-based tables.

mod block;
mod cursor;
mod footer;
mod properties;
#[cfg(test)]
mod tests;

use std::{path::Path, sync::Arc};

pub(crate) use cursor::TableCursor;
pub(crate) use footer::{FOOTER_BYTES, Handle, MAGIC};

use self::{
    block::{Block, IndexCoding},
    footer::{Footer, TRAILER_BYTES},
    properties::{IndexKind, Properties},
};
use crate::{
    checksum,
    compression::{Compression, Decompressor},
    decoder::Decoder,
    error::{Error, Result},
    file::File,
    internal_key::{ValueType, split_internal_key},
    manifest::TableFile,
    tombstone::Tombstone,
};

/// Names of blocks in the metaindex.
pub(crate) const PROPERTIES: &[u8] = b"rocksdb.properties";
const INDEX: &[u8] = b"rocksdb.index";
const DICTIONARY: &[u8] = b"rocksdb.compression_dict";
const RANGE_TOMBSTONES: &[u8] = b"rocksdb.range_del";

/// Maximum length of a block. RocksDB stores sizes in 32 bits.
const BLOCK_BYTES_MAX: u64 = u32::MAX as u64;

/// An open table.
#[derive(Debug)]
pub(crate) struct Table {
    file: File,
    footer: Footer,
    index: Handle,
    is_partitioned: bool,
    coding: IndexCoding,
    range_tombstones: Option<Handle>,
    /// Sequence number of all entries of an ingested table.
    global_sequence: Option<u64>,
    /// Decompressor of data blocks, with the dictionary of the table.
    data: Decompressor,
    /// Decompressor of all other blocks.
    plain: Decompressor,
}

impl Table {
    /// Opens the table `path`, which the manifest describes as `known`.
    pub(crate) fn open(path: &Path, known: &TableFile, comparator: &str) -> Result<Self> {
        let file = File::open(path)?;
        if file.len() != known.bytes {
            let reason =
                format!("the file has {} bytes, and {} in the manifest", file.len(), known.bytes);
            return Err(Error::corrupt(path, 0, reason));
        }
        let footer = Footer::read(&file)?;
        let mut plain = Decompressor::new();
        let (mut properties, mut dictionary, mut range_tombstones) = (None, None, None);
        let mut index = footer.index;
        let metaindex = read_block(&file, &footer, footer.metaindex, &mut plain)?;
        let mut metaindex = Block::new(metaindex, file.path(), footer.metaindex.offset)?;
        while metaindex.advance()? {
            let mut decoder = Decoder::new(metaindex.value(), file.path(), footer.metaindex.offset);
            let slot = match metaindex.key() {
                PROPERTIES => &mut properties,
                DICTIONARY => &mut dictionary,
                RANGE_TOMBSTONES => &mut range_tombstones,
                INDEX => &mut index,
                _ => continue,
            };
            *slot = Some(Handle::decode(&mut decoder)?);
        }
        let missing = |what: &str| metaindex.corrupt(&format!("the table has no {what}"));
        let index = index.ok_or_else(|| missing("index"))?;
        let properties = read_properties(
            &file,
            &footer,
            properties.ok_or_else(|| missing("properties"))?,
            &mut plain,
        )?;
        if let Some(name) = properties.comparator.as_deref()
            && name != comparator
        {
            let reason = format!("comparator {name:?}, and {comparator:?} in the manifest");
            return Err(Error::corrupt(path, footer.metaindex.offset, reason));
        }
        let data = match dictionary {
            None => Decompressor::new(),
            Some(handle) => {
                let bytes = read_block(&file, &footer, handle, &mut plain)?;
                Decompressor::with_dictionary(bytes, path, handle.offset)?
            }
        };
        Ok(Self {
            index,
            is_partitioned: properties.index == IndexKind::Partitioned,
            coding: IndexCoding {
                is_delta: properties.is_delta,
                has_first_keys: properties.index == IndexKind::FirstKeys,
            },
            range_tombstones,
            global_sequence: properties.sequence_of_all(known.largest_sequence, path)?,
            data,
            plain,
            file,
            footer,
        })
    }

    /// Returns the range tombstones of the table, not yet truncated to its key range.
    pub(crate) fn range_tombstones(&mut self) -> Result<Vec<Tombstone>> {
        let mut found = Vec::new();
        let Some(handle) = self.range_tombstones else { return Ok(found) };
        let bytes = read_block(&self.file, &self.footer, handle, &mut self.plain)?;
        let mut block = Block::new(bytes, self.file.path(), handle.offset)?;
        while block.advance()? {
            let (start, sequence, number) = split_internal_key(block.key())
                .ok_or_else(|| block.corrupt("an internal key is shorter than 8 bytes"))?;
            if number != ValueType::RANGE_DELETION {
                return Err(block.corrupt("the range tombstones contain another entry"));
            }
            let sequence = self.global_sequence.unwrap_or(sequence);
            found.push(Tombstone::new(start, block.value(), sequence));
        }
        Ok(found)
    }

    fn path(&self) -> &Arc<Path> {
        self.file.path()
    }

    fn index_block(&mut self, handle: Handle) -> Result<Block> {
        let bytes = read_block(&self.file, &self.footer, handle, &mut self.plain)?;
        Block::new(bytes, self.file.path(), handle.offset)
    }

    fn data_block(&mut self, handle: Handle) -> Result<Block> {
        let bytes = read_block(&self.file, &self.footer, handle, &mut self.data)?;
        Block::new(bytes, self.file.path(), handle.offset)
    }
}

/// Reads a block with its trailer.
fn read_raw(file: &File, handle: Handle) -> Result<Vec<u8>> {
    if handle.size > BLOCK_BYTES_MAX {
        return Err(Error::corrupt(file.path(), handle.offset, "a block is larger than 4 GiB"));
    }
    file.read_at(handle.offset, handle.size as usize + TRAILER_BYTES)
}

/// Returns `true` if the checksum after a block matches.
fn is_intact(raw: &[u8], footer: &Footer, offset: u64) -> bool {
    let Some((covered, stored)) = raw.split_last_chunk::<4>() else { return false };
    if footer.checksum == checksum::ChecksumKind::None {
        return true;
    }
    let expected =
        footer.checksum.of(covered).wrapping_add(checksum::context(footer.context, offset));
    expected == u32::from_le_bytes(*stored)
}

/// Reads, verifies and decompresses a block.
fn read_block(
    file: &File,
    footer: &Footer,
    handle: Handle,
    decompressor: &mut Decompressor,
) -> Result<Vec<u8>> {
    let mut raw = read_raw(file, handle)?;
    if !is_intact(&raw, footer, handle.offset) {
        return Err(Error::corrupt(file.path(), handle.offset, "the checksum of a block differs"));
    }
    let kind = raw[handle.size as usize];
    raw.truncate(handle.size as usize);
    let compression = Compression::from_number(kind, file.path())?;
    decompressor.decompress(compression, raw, file.path(), handle.offset)
}

/// Reads the properties. Ingestion may have changed the global sequence number after their checksum
/// was computed. The checksum covers the value 0.
fn read_properties(
    file: &File,
    footer: &Footer,
    handle: Handle,
    plain: &mut Decompressor,
) -> Result<Properties> {
    let mut raw = read_raw(file, handle)?;
    if is_intact(&raw, footer, handle.offset) {
        let bytes = read_block(file, footer, handle, plain)?;
        return Properties::decode(bytes, footer, file.path(), handle.offset);
    }
    let differs = || Error::corrupt(file.path(), handle.offset, "the checksum of a block differs");
    let bytes = raw[..handle.size as usize].to_vec();
    let Ok(properties) = Properties::decode(bytes, footer, file.path(), handle.offset) else {
        return Err(differs());
    };
    let at = properties.global_sequence_at.ok_or_else(differs)?;
    raw[at..at + 8].fill(0);
    match is_intact(&raw, footer, handle.offset) {
        true => Ok(properties),
        false => Err(differs()),
    }
}
