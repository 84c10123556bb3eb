//! Values in blob files.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
};

use crate::{
    checksum::masked_crc32c,
    compression::{Compression, Decompressor},
    decoder::Decoder,
    error::{Error, Result},
    file::{self, File},
};

const MAGIC: u32 = 0x0024_8f37;
const VERSION: u32 = 1;
const FILE_HEADER_BYTES: usize = 30;

/// Bytes of a record before the key: lengths of key and value, expiry and two checksums.
const RECORD_HEADER_BYTES: u64 = 32;

/// Maximum number of open blob files.
const OPEN_FILES_MAX: usize = 64;

/// Position of a value in a blob file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BlobIndex {
    file: u64,
    /// Offset of the value.
    offset: u64,
    /// Stored length of the value.
    size: u64,
    compression: u8,
}

impl BlobIndex {
    pub(crate) fn decode(mut decoder: Decoder<'_>) -> Result<Self> {
        match decoder.u8("blob index")? {
            1 => {}
            kind @ (0 | 2) => {
                let place = if kind == 0 { "inlined value" } else { "blob" };
                let feature = format!("{place} with an expiry of the former BlobDB");
                return Err(decoder.unsupported(feature));
            }
            kind => return Err(decoder.unsupported(format!("blob index of type {kind}"))),
        }
        let index = Self {
            file: decoder.varint64("blob file number")?,
            offset: decoder.varint64("blob offset")?,
            size: decoder.varint64("blob size")?,
            compression: decoder.u8("blob compression")?,
        };
        decoder.finish("a blob index")?;
        Ok(index)
    }
}

/// Reads values of blob files.
#[derive(Debug)]
pub(crate) struct BlobFiles {
    directory: PathBuf,
    open: HashMap<u64, File>,
    decompressor: Decompressor,
}

impl BlobFiles {
    pub(crate) fn new(directory: &Path) -> Self {
        Self {
            directory: directory.to_owned(),
            open: HashMap::new(),
            decompressor: Decompressor::new(),
        }
    }

    /// Returns the value of `key`.
    pub(crate) fn get(&mut self, key: &[u8], index: BlobIndex) -> Result<Vec<u8>> {
        if !self.open.contains_key(&index.file) {
            if self.open.len() >= OPEN_FILES_MAX {
                self.open.clear();
            }
            let file = open(&file::numbered(&self.directory, index.file, "blob"))?;
            self.open.insert(index.file, file);
        }
        let file = &self.open[&index.file];
        let path = file.path();
        let corrupt = |reason: &str| Error::corrupt(path, index.offset, reason);
        let before = key.len() as u64 + RECORD_HEADER_BYTES;
        let start = index.offset.checked_sub(before).filter(|at| *at >= FILE_HEADER_BYTES as u64);
        let start = start.ok_or_else(|| corrupt("a blob is outside of the file"))?;
        let count = before.checked_add(index.size).and_then(|bytes| usize::try_from(bytes).ok());
        let count = count.ok_or_else(|| corrupt("a blob is outside of the file"))?;
        let record = file.read_at(start, count)?;
        let mut decoder = Decoder::new(&record, path, start);
        let key_len = decoder.u64("key length")?;
        let value_len = decoder.u64("value length")?;
        decoder.u64("expiry")?;
        let header_checksum = decoder.u32("checksum")?;
        let checksum = decoder.u32("checksum")?;
        if masked_crc32c(&[&record[..24]]) != header_checksum {
            return Err(corrupt("the checksum of a blob's header differs"));
        }
        if (key_len, value_len) != (key.len() as u64, index.size) {
            return Err(corrupt("a blob has another length than its index"));
        }
        let stored_key = decoder.bytes(key.len(), "key")?;
        let value = decoder.rest();
        if masked_crc32c(&[stored_key, value]) != checksum {
            return Err(corrupt("the checksum of a blob differs"));
        }
        if stored_key != key {
            return Err(corrupt("a blob belongs to another key"));
        }
        let compression = Compression::from_number(index.compression, path)?;
        self.decompressor.decompress(compression, value.to_vec(), path, index.offset)
    }
}

fn open(path: &Path) -> Result<File> {
    let file = File::open(path)?;
    let header = file.read_at(0, FILE_HEADER_BYTES)?;
    let mut decoder = Decoder::new(&header, path, 0);
    if decoder.u32("magic number")? != MAGIC {
        return Err(decoder.corrupt("not a blob file"));
    }
    match decoder.u32("version")? {
        VERSION => Ok(file),
        version => Err(decoder.unsupported(format!("blob file of version {version}"))),
    }
}
