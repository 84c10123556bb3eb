//! Compression by zstd, with a dictionary per table.
//!
//! A block of a few KiB is too short to compress well alone. The writer trains a dictionary from
//! the content of its first blocks (zstd's "cover" algorithm). It stores the dictionary in the
//! table, and compresses all further blocks with it. A table shorter than the sample has no
//! dictionary.
//!
//! Without the feature `zstd` the types of this module are uninhabited.

use bytes::Bytes;
use sievedb_format::Corruption;

use crate::{options::Compression, properties::COMPRESSION_ZSTD};

/// Error of a build without the feature.
const NEEDS_FEATURE: Corruption =
    Corruption::NeedsFeature { what: "compression by zstd", feature: "zstd" };

/// Length of the sample relative to the dictionary, as zstd recommends.
#[cfg(feature = "zstd")]
const SAMPLE_RATIO: usize = 100;

/// Maximum sample of one block, in bytes. A long value is not representative, and training on it
/// takes minutes.
#[cfg(feature = "zstd")]
const SAMPLE_BLOCK_BYTES_MAX: usize = 64 << 10;

/// Maximum length of a dictionary, in bytes.
#[cfg(feature = "zstd")]
const DICTIONARY_BYTES_MAX: usize = 1 << 20;

#[cfg(feature = "zstd")]
pub(crate) use with_feature::{Compressor, Dictionary, decompress};
#[cfg(not(feature = "zstd"))]
pub(crate) use without_feature::{Compressor, Dictionary, decompress};

/// Refuses a table whose properties name a compression that this build cannot read.
///
/// # Errors
///
/// [`Corruption::NeedsFeature`] for zstd, [`Corruption::Unsupported`] for one of a later release.
pub(crate) fn check_compression(compression: u8) -> Result<(), Corruption> {
    if compression > COMPRESSION_ZSTD {
        let what = "compression";
        return Err(Corruption::Unsupported { what, value: compression.into() });
    }
    if compression == COMPRESSION_ZSTD && !cfg!(feature = "zstd") {
        return Err(NEEDS_FEATURE);
    }
    Ok(())
}

#[cfg(feature = "zstd")]
mod with_feature {
    use std::cell::RefCell;

    use zstd::zstd_safe::{CCtx, CParameter, DCtx, DDict, compress_bound, train_from_buffer};

    use super::*;

    /// Compresses blocks, and trains the dictionary from the first of them.
    pub(crate) struct Compressor {
        context: CCtx<'static>,
        dictionary_bytes: usize,
        /// Content of the first blocks, until the dictionary is trained.
        sample: Vec<u8>,
        sample_lengths: Vec<usize>,
        dictionary: Option<Vec<u8>>,
    }

    impl Compressor {
        /// Returns `None` for other compressions.
        pub(crate) fn new(compression: Compression) -> Option<Self> {
            let Compression::Zstd { level, dictionary_bytes } = compression else {
                return None;
            };
            let mut context = CCtx::create();
            // The stored block has its own length and checksum. Saves 4 to 8 bytes.
            for parameter in [
                CParameter::CompressionLevel(level.into()),
                CParameter::ContentSizeFlag(false),
                CParameter::ChecksumFlag(false),
                CParameter::DictIdFlag(false),
            ] {
                context.set_parameter(parameter).expect("the options were validated");
            }
            Some(Self {
                context,
                dictionary_bytes: dictionary_bytes as usize,
                sample: Vec::new(),
                sample_lengths: Vec::new(),
                dictionary: None,
            })
        }

        /// Appends the compressed `content`. Returns `true` if the dictionary was used.
        pub(crate) fn compress(&mut self, content: &[u8], out: &mut Vec<u8>) -> bool {
            let from = out.len();
            out.resize(from + compress_bound(content.len()), 0);
            let written = self.context.compress2(&mut out[from..], content);
            out.truncate(from + written.expect("the output has room for the longest result"));
            let used = self.dictionary.is_some();
            if !used && self.dictionary_bytes > 0 {
                self.learn(content);
            }
            used
        }

        /// Returns the memory in bytes, that of zstd included.
        pub(crate) fn memory_bytes(&self) -> usize {
            let dictionary = self.dictionary.as_ref().map_or(0, Vec::capacity);
            let lengths = self.sample_lengths.capacity() * size_of::<usize>();
            self.context.sizeof() + self.sample.capacity() + lengths + dictionary
        }

        /// Returns the dictionary, once it is trained.
        pub(crate) fn dictionary(&self) -> Option<&[u8]> {
            self.dictionary.as_deref()
        }

        fn learn(&mut self, content: &[u8]) {
            let sampled = &content[..content.len().min(SAMPLE_BLOCK_BYTES_MAX)];
            self.sample.extend_from_slice(sampled);
            self.sample_lengths.push(sampled.len());
            if self.sample.len() < SAMPLE_RATIO * self.dictionary_bytes {
                return;
            }
            let (sample, lengths) =
                (std::mem::take(&mut self.sample), std::mem::take(&mut self.sample_lengths));
            let mut dictionary = vec![0; self.dictionary_bytes];
            // Fails for incompressible samples. The table then has no dictionary.
            let made = train_from_buffer(&mut dictionary[..], &sample, &lengths);
            self.dictionary_bytes = 0;
            let Ok(bytes) = made else { return };
            dictionary.truncate(bytes);
            if self.context.load_dictionary(&dictionary).is_ok() {
                self.dictionary = Some(dictionary);
            }
        }
    }

    /// The dictionary of an open table.
    pub(crate) struct Dictionary {
        prepared: DDict<'static>,
    }

    impl std::fmt::Debug for Dictionary {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.debug_struct("Dictionary").field("bytes", &self.memory_bytes()).finish()
        }
    }

    impl Dictionary {
        /// Prepares the dictionary that a table stores.
        ///
        /// # Errors
        ///
        /// [`Corruption`] if it is too long or invalid.
        pub(crate) fn decode(content: &Bytes) -> Result<Self, Corruption> {
            let bytes = content.len();
            let prepared = (bytes <= DICTIONARY_BYTES_MAX).then(|| DDict::try_create(content));
            let what = "bytes of a compression dictionary";
            let refused = Corruption::OutOfRange { what, value: bytes as u64 };
            prepared.flatten().map(|prepared| Self { prepared }).ok_or(refused)
        }

        /// Returns the memory in bytes, the prepared tables of zstd included.
        pub(crate) fn memory_bytes(&self) -> usize {
            self.prepared.sizeof()
        }
    }

    thread_local! {
        /// Reused, because a context takes 90 KiB and as long to create as some decompressions.
        static CONTEXT: RefCell<DCtx<'static>> = RefCell::new(DCtx::create());
    }

    /// Decompresses into `content`. Returns the length, or `None` if that fails.
    pub(crate) fn decompress(
        compressed: &[u8],
        content: &mut [u8],
        dictionary: Option<&Dictionary>,
    ) -> Result<Option<usize>, Corruption> {
        let written = CONTEXT.with_borrow_mut(|context| match dictionary {
            Some(it) => context.decompress_using_ddict(content, compressed, &it.prepared),
            None => context.decompress(content, compressed),
        });
        Ok(written.ok())
    }
}

#[cfg(not(feature = "zstd"))]
mod without_feature {
    use super::*;

    /// Compresses nothing.
    #[derive(Debug)]
    pub(crate) enum Compressor {}

    impl Compressor {
        /// Returns `None`: validated options do not select zstd.
        pub(crate) fn new(_: Compression) -> Option<Self> {
            None
        }

        /// Never called.
        pub(crate) fn compress(&mut self, _: &[u8], _: &mut Vec<u8>) -> bool {
            match *self {}
        }

        /// Never called.
        pub(crate) fn memory_bytes(&self) -> usize {
            match *self {}
        }

        /// Never called.
        pub(crate) fn dictionary(&self) -> Option<&[u8]> {
            match *self {}
        }
    }

    /// Uninhabited.
    #[derive(Debug)]
    pub(crate) enum Dictionary {}

    impl Dictionary {
        /// # Errors
        ///
        /// Always: names the feature.
        pub(crate) fn decode(_: &Bytes) -> Result<Self, Corruption> {
            Err(NEEDS_FEATURE)
        }

        /// Never called.
        pub(crate) fn memory_bytes(&self) -> usize {
            match *self {}
        }
    }

    /// # Errors
    ///
    /// Always: names the feature.
    pub(crate) fn decompress(
        _: &[u8],
        _: &mut [u8],
        _: Option<&Dictionary>,
    ) -> Result<Option<usize>, Corruption> {
        Err(NEEDS_FEATURE)
    }
}

#[cfg(all(test, not(feature = "zstd")))]
mod tests {
    use super::*;
    use crate::TableOptions;

    #[test]
    fn tables_by_zstd_are_refused_without_the_feature() {
        let options = TableOptions::new().compression(Compression::ZSTD);
        let refused = options.validate().unwrap_err();
        assert_eq!(
            (refused.name, refused.allowed),
            ("compression", "zstd needs the feature `zstd`")
        );
        assert_eq!(check_compression(1), Ok(()));
        let error = check_compression(COMPRESSION_ZSTD).unwrap_err();
        assert!(error.to_string().contains("feature zstd"), "{error}");
        assert!(Dictionary::decode(&Bytes::new()).is_err());
        assert_eq!(decompress(b"", &mut [], None), Err(error));
    }
}
