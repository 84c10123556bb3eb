//! The properties of a table that affect reading.

use std::{path::Path, sync::Arc};

use super::{
    block::Block,
    footer::{Footer, VERSION_MANAGER},
};
use crate::{
    decoder::Decoder,
    error::{Error, Result},
};

/// Property that ingestion overwrites after the checksum is computed.
const GLOBAL_SEQUENCE: &[u8] = b"rocksdb.external_sst_file.global_seqno";

/// Compression manager of RocksDB itself.
const BUILT_IN_MANAGER: &[u8] = b"BuiltinV2";

/// Kind of the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IndexKind {
    /// One block, with or without a hash index beside it.
    Single,
    /// A block of handles of index blocks.
    Partitioned,
    /// One block, with the first key of each data block.
    FirstKeys,
}

/// Properties of a table.
#[derive(Debug)]
pub(crate) struct Properties {
    pub(crate) index: IndexKind,
    /// Handles of the index are differences.
    pub(crate) is_delta: bool,
    /// Version of `SstFileWriter`'s format, if the table was built for ingestion.
    pub(crate) external_version: Option<u32>,
    /// Sequence number that replaces those of all entries.
    pub(crate) global_sequence: Option<u64>,
    /// Position of the global sequence number in the block.
    pub(crate) global_sequence_at: Option<usize>,
    pub(crate) comparator: Option<String>,
}

impl Properties {
    /// Decodes the properties block `data` at `offset` of the file `path`.
    pub(crate) fn decode(
        data: Vec<u8>,
        footer: &Footer,
        path: &Arc<Path>,
        offset: u64,
    ) -> Result<Self> {
        let mut properties = Self {
            index: IndexKind::Single,
            is_delta: false,
            external_version: None,
            global_sequence: None,
            global_sequence_at: None,
            comparator: None,
        };
        let mut block = Block::new(data, path, offset)?;
        while block.advance()? {
            let value = block.value();
            let mut decoder = Decoder::new(value, path, offset);
            match block.key() {
                b"rocksdb.block.based.table.index.type" => {
                    properties.index = match decoder.u32("index type")? {
                        0 | 1 => IndexKind::Single,
                        2 => IndexKind::Partitioned,
                        3 => IndexKind::FirstKeys,
                        kind => {
                            return Err(Error::unsupported(path, format!("index type {kind}")));
                        }
                    }
                }
                b"rocksdb.index.value.is.delta.encoded" => {
                    properties.is_delta = decoder.varint64("index encoding")? != 0;
                }
                b"rocksdb.udi.is.primary.index" if decoder.varint64("user-defined index")? != 0 => {
                    return Err(Error::unsupported(path, "user-defined index"));
                }
                b"rocksdb.external_sst_file.version" => {
                    properties.external_version = Some(decoder.u32("version")?);
                }
                GLOBAL_SEQUENCE => {
                    properties.global_sequence = Some(decoder.u64("global sequence number")?);
                    properties.global_sequence_at = Some(block.value_position());
                }
                b"rocksdb.comparator" => {
                    properties.comparator = Some(String::from_utf8_lossy(value).into_owned());
                }
                b"rocksdb.compression" if footer.version >= VERSION_MANAGER => {
                    check_manager(value, path)?;
                }
                b"rocksdb.embedded.blob.stats" => {
                    return Err(Error::unsupported(path, "table with embedded blobs"));
                }
                _ => {}
            }
        }
        Ok(properties)
    }

    /// Returns the sequence number of all entries of an ingested table.
    ///
    /// `largest` is the largest sequence number of the table in the manifest.
    pub(crate) fn sequence_of_all(&self, largest: u64, path: &Path) -> Result<Option<u64>> {
        match self.external_version {
            None if self.global_sequence.is_some() => {
                Err(Error::corrupt(path, 0, "a global sequence number without a version"))
            }
            None | Some(1) => Ok(None),
            Some(2) => match self.global_sequence.unwrap_or(0) {
                0 => Ok(Some(largest)),
                global if global == largest => Ok(Some(global)),
                global => {
                    let reason = format!(
                        "the global sequence number is {global}, and {largest} in the manifest"
                    );
                    Err(Error::corrupt(path, 0, reason))
                }
            },
            Some(version) => {
                Err(Error::unsupported(path, format!("ingested table of version {version}")))
            }
        }
    }
}

/// Returns an error unless blocks are compressed by RocksDB itself.
fn check_manager(value: &[u8], path: &Path) -> Result<()> {
    let manager = value.split(|byte| *byte == b';').next().unwrap_or_default();
    if manager.is_empty() || manager == BUILT_IN_MANAGER {
        return Ok(());
    }
    let name = String::from_utf8_lossy(manager);
    Err(Error::unsupported(path, format!("compression manager {name:?}")))
}
