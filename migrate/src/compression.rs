//! Decompression of blocks, blobs and log records.

use std::{io::Read as _, path::Path};

use ruzstd::decoding::{BlockDecodingStrategy, Dictionary, FrameDecoder};

use crate::{
    decoder::Decoder,
    error::{Error, Result},
};

/// LZ4 expands its input at most by this factor.
const LZ4_RATIO_MAX: u64 = 255;

/// Snappy expands its input at most by this factor.
const SNAPPY_RATIO_MAX: usize = 64;

/// Largest uncompressed size of a block, value or record. RocksDB keeps sizes in 32 bits.
const SIZE_MAX: u64 = u32::MAX as u64;

/// First bytes of a trained ZSTD dictionary. A dictionary without them is raw content.
const ZSTD_DICTIONARY: [u8; 4] = [0x37, 0xa4, 0x30, 0xec];

/// Dictionary id that `zstd` uses for raw content. Frames do not name it.
const CONTENT_DICTIONARY: u32 = 1;

/// Compression type of a block, value or log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Compression {
    None,
    Snappy,
    Lz4,
    Zstd,
}

impl Compression {
    /// Numbers of types in the trailers of blocks.
    pub(crate) const NONE: u8 = 0;
    pub(crate) const LZ4: u8 = 4;

    pub(crate) fn from_number(number: u8, path: &Path) -> Result<Self> {
        let unknown = format!("unknown ({number})");
        let name = match number {
            Self::NONE => return Ok(Self::None),
            1 => return Ok(Self::Snappy),
            // LZ4HC differs only in the compressor.
            Self::LZ4 | 5 => return Ok(Self::Lz4),
            7 => return Ok(Self::Zstd),
            2 => "Zlib",
            3 => "BZip2",
            6 => "Xpress",
            0x80.. => "custom",
            _ => &unknown,
        };
        let feature = format!(
            "compression {name}; compact the database with RocksDB to Snappy, LZ4, ZSTD or none"
        );
        Err(Error::unsupported(path, feature))
    }
}
/// Decompresses blocks of a file, with its dictionary if it has one.
pub(crate) struct Decompressor {
    dictionary: Vec<u8>,
    zstd: FrameDecoder,
    /// Id of the dictionary that `zstd` has loaded, for frames that do not name it.
    zstd_dictionary: Option<u32>,
}

impl std::fmt::Debug for Decompressor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Decompressor").field("dictionary", &self.dictionary.len()).finish()
    }
}

impl Decompressor {
    pub(crate) fn new() -> Self {
        Self { dictionary: Vec::new(), zstd: FrameDecoder::new(), zstd_dictionary: None }
    }

    /// Decompresses with the dictionary of the block at `offset` of the file `path`.
    pub(crate) fn with_dictionary(bytes: Vec<u8>, path: &Path, offset: u64) -> Result<Self> {
        let corrupt =
            |reason: String| Error::corrupt(path, offset, format!("dictionary: {reason}"));
        let dictionary = if bytes.starts_with(&ZSTD_DICTIONARY) {
            Dictionary::decode_dict(&bytes).map_err(|error| corrupt(error.to_string()))?
        } else {
            Dictionary {
                id: CONTENT_DICTIONARY,
                fse: Default::default(),
                huf: Default::default(),
                dict_content: bytes.clone(),
                offset_hist: [1, 4, 8],
            }
        };
        let id = dictionary.id;
        let mut zstd = FrameDecoder::new();
        zstd.add_dict(dictionary).map_err(|error| corrupt(error.to_string()))?;
        Ok(Self { dictionary: bytes, zstd, zstd_dictionary: Some(id) })
    }

    /// Returns the dictionary, empty if there is none.
    #[cfg(test)]
    pub(crate) fn dictionary(&self) -> &[u8] {
        &self.dictionary
    }

    /// Returns the uncompressed bytes of a block or value.
    pub(crate) fn decompress(
        &mut self,
        compression: Compression,
        bytes: Vec<u8>,
        path: &Path,
        offset: u64,
    ) -> Result<Vec<u8>> {
        let corrupt = |reason: &dyn std::fmt::Display| {
            Error::corrupt(path, offset, format!("cannot decompress: {reason}"))
        };
        match compression {
            Compression::None => Ok(bytes),
            Compression::Snappy => {
                let size = snap::raw::decompress_len(&bytes).map_err(|error| corrupt(&error))?;
                if size > bytes.len().saturating_mul(SNAPPY_RATIO_MAX) {
                    return Err(corrupt(&"the size is larger than Snappy can compress"));
                }
                snap::raw::Decoder::new().decompress_vec(&bytes).map_err(|error| corrupt(&error))
            }
            Compression::Lz4 => {
                let (size, input) = sized(&bytes, path, offset)?;
                if size > (input.len() as u64).saturating_mul(LZ4_RATIO_MAX) {
                    return Err(corrupt(&"the size is larger than LZ4 can compress"));
                }
                let mut output = vec![0; size as usize];
                let written = lz4_flex::block::decompress_into_with_dict(
                    input,
                    &mut output,
                    &self.dictionary,
                );
                match written {
                    Ok(written) if written == output.len() => Ok(output),
                    Ok(_) => Err(corrupt(&"the size differs")),
                    Err(error) => Err(corrupt(&error)),
                }
            }
            Compression::Zstd => {
                let (size, input) = sized(&bytes, path, offset)?;
                let output = self.zstd_frames(input, size, path, offset)?;
                match output.len() as u64 == size {
                    true => Ok(output),
                    false => Err(corrupt(&"the size differs")),
                }
            }
        }
    }

    /// Returns the uncompressed bytes of ZSTD frames, at most `max`.
    pub(crate) fn zstd_frames(
        &mut self,
        mut input: &[u8],
        max: u64,
        path: &Path,
        offset: u64,
    ) -> Result<Vec<u8>> {
        let corrupt = |reason: &dyn std::fmt::Display| {
            Error::corrupt(path, offset, format!("cannot decompress: {reason}"))
        };
        // Grows with the decompressed bytes, so a wrong size allocates nothing.
        let mut output = Vec::new();
        while !input.is_empty() {
            self.zstd.init(&mut input).map_err(|error| corrupt(&error))?;
            if let Some(id) = self.zstd_dictionary {
                // A frame may omit the id of its dictionary.
                self.zstd.force_dict(id).map_err(|error| corrupt(&error))?;
            }
            while !self.zstd.is_finished() {
                let one = BlockDecodingStrategy::UptoBlocks(1);
                self.zstd.decode_blocks(&mut input, one).map_err(|error| corrupt(&error))?;
                let left = (max + 1).saturating_sub(output.len() as u64);
                let read = (&mut self.zstd).take(left).read_to_end(&mut output);
                read.map_err(|error| corrupt(&error))?;
                if output.len() as u64 > max {
                    return Err(corrupt(&"the uncompressed size is too large"));
                }
            }
        }
        Ok(output)
    }
}

/// Splits off the uncompressed size in front of the compressed bytes, and returns both.
fn sized<'a>(bytes: &'a [u8], path: &'a Path, offset: u64) -> Result<(u64, &'a [u8])> {
    let mut decoder = Decoder::new(bytes, path, offset);
    let size = decoder.varint64("uncompressed size")?;
    if size > SIZE_MAX {
        return Err(decoder.corrupt("the uncompressed size is larger than 4 GiB"));
    }
    Ok((size, decoder.rest()))
}
