//! Options of new tables and of cursors.

use std::{
    error, fmt,
    ops::{Bound, Range, RangeInclusive},
};

use bytes::Bytes;
use sievedb_filter::{FilterKind, range_filter::BITS_PER_KEY_MIN};
use sievedb_format::{Corruption, InternalKey, SEQUENCE_MAX, Trailer};

use crate::{
    block::{BlockInner, zstd},
    cache::CacheUse,
    prefix_extractor::PrefixExtractor,
    properties::COMPRESSION_ZSTD,
    read_ahead::READ_AHEAD_BYTES_MAX,
};

/// Default of [`TableOptions::block_bytes`]: 4 KiB, so that a cached block fills a page.
pub const DEFAULT_BLOCK_BYTES: usize = 4096;
/// Default of [`TableOptions::filter_bits_per_key`]: about 1 % false positives.
pub const DEFAULT_FILTER_BITS_PER_KEY: f64 = 10.0;
/// Default of [`TableOptions::index_partition_bytes`]: 16 KiB.
pub const DEFAULT_INDEX_PARTITION_BYTES: usize = 16 << 10;
/// Default of [`TableOptions::write_buffer_bytes`]: 256 KiB.
pub const DEFAULT_WRITE_BUFFER_BYTES: usize = 256 << 10;

/// Range of [`TableOptions::block_bytes`].
pub const BLOCK_BYTES: RangeInclusive<usize> = 1 << 10..=1 << 20;
const DICTIONARY_BYTES: RangeInclusive<u32> = 1 << 10..=1 << 20;
/// Range of [`TableOptions::filter_bits_per_key`], besides 0; stored in thousandths.
pub const FILTER_BITS_PER_KEY: RangeInclusive<f64> = 0.001..=40.0;
/// Range of [`TableOptions::range_filter_bits_per_key`], besides 0; stored in thousandths.
pub const RANGE_FILTER_BITS_PER_KEY: RangeInclusive<f64> = BITS_PER_KEY_MIN..=40.0;

/// Compression of data blocks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Compression {
    /// No compression: the fastest to read. Blocks of a memory map are not copied.
    None,
    /// LZ4, for blocks that it shortens by at least 12 %.
    #[default]
    Lz4,
    /// Zstd, for blocks that it shortens by at least 12 %. Suits cold data. Requires the feature
    /// `zstd`; builds without it refuse to write and open such tables.
    Zstd {
        /// Level from 1, the fastest, to 19, the smallest; zstd's default is 3.
        level: u8,
        /// Length of the dictionary that each table trains from its first blocks, in bytes.
        /// Training buffers 100 times as many bytes of blocks. A shorter table has no dictionary.
        ///
        /// 0 for none, or from 1 KiB to 1 MiB; 16 KiB suits most data.
        dictionary_bytes: u32,
    },
}

impl Compression {
    /// Zstd at level 3, with dictionaries of 16 KiB.
    pub const ZSTD: Self = Self::Zstd { level: 3, dictionary_bytes: 16 << 10 };

    /// Decodes stored options. `kind` is [`kind`](Self::kind). `level` and `dictionary_bytes` apply
    /// to zstd, and are clamped to their ranges.
    ///
    /// # Errors
    ///
    /// [`Corruption::Unsupported`] for an unknown kind, [`Corruption::NeedsFeature`] for zstd in a
    /// build without the feature `zstd`.
    pub fn from_stored(kind: u64, level: u64, dictionary_bytes: u64) -> Result<Self, Corruption> {
        match kind {
            0 => Ok(Self::None),
            1 => Ok(Self::Lz4),
            2 => {
                zstd::check_compression(COMPRESSION_ZSTD)?;
                let (least, most) = (*DICTIONARY_BYTES.start(), *DICTIONARY_BYTES.end());
                let within = u32::try_from(dictionary_bytes).unwrap_or(most).clamp(least, most);
                let dictionary_bytes = if dictionary_bytes == 0 { 0 } else { within };
                Ok(Self::Zstd { level: level.clamp(1, 19) as u8, dictionary_bytes })
            }
            value => Err(Corruption::Unsupported { what: "compression", value }),
        }
    }

    /// Checks that the parameters are in range and the build supports the compression.
    ///
    /// # Errors
    ///
    /// The missing feature, or the range of the wrong parameter.
    pub fn check(self) -> Result<(), &'static str> {
        let Self::Zstd { level, dictionary_bytes } = self else { return Ok(()) };
        if !cfg!(feature = "zstd") {
            return Err("zstd needs the feature `zstd`");
        }
        if !(1..=19).contains(&level) {
            return Err("zstd has levels from 1 to 19");
        }
        if dictionary_bytes != 0 && !DICTIONARY_BYTES.contains(&dictionary_bytes) {
            return Err("zstd takes a dictionary of 0 bytes, or from 1 KiB to 1 MiB");
        }
        Ok(())
    }

    /// Returns the byte in [`TableProperties::compression`](crate::TableProperties::compression).
    #[must_use]
    pub fn kind(self) -> u8 {
        match self {
            Self::None => 0,
            Self::Lz4 => 1,
            Self::Zstd { .. } => COMPRESSION_ZSTD,
        }
    }
}

/// Options of new tables. Each table records the options that it was built with.
#[derive(Debug, Clone, PartialEq)]
#[must_use]
pub struct TableOptions {
    pub(crate) block_bytes: usize,
    pub(crate) compression: Compression,
    pub(crate) filter_kind: FilterKind,
    pub(crate) filter_bits_per_key: f64,
    pub(crate) filter_keys_max: Option<u64>,
    pub(crate) prefix_extractor: Option<PrefixExtractor>,
    pub(crate) prefix_filter_bits_per_key: f64,
    pub(crate) range_filter_bits_per_key: f64,
    pub(crate) index_partition_bytes: usize,
    pub(crate) write_buffer_bytes: usize,
}

impl Default for TableOptions {
    fn default() -> Self {
        Self {
            block_bytes: DEFAULT_BLOCK_BYTES,
            compression: Compression::default(),
            filter_kind: FilterKind::BlockedBloom,
            filter_bits_per_key: DEFAULT_FILTER_BITS_PER_KEY,
            filter_keys_max: None,
            prefix_extractor: None,
            prefix_filter_bits_per_key: 0.0,
            range_filter_bits_per_key: 0.0,
            index_partition_bytes: DEFAULT_INDEX_PARTITION_BYTES,
            write_buffer_bytes: DEFAULT_WRITE_BUFFER_BYTES,
        }
    }
}

impl TableOptions {
    /// Returns [`default`](Self::default) options, which are complete.
    pub fn new() -> Self {
        Self::default()
    }

    /// Target size of a data block before compression, in bytes.
    ///
    /// Small blocks read less per lookup. Large blocks compress better and shrink the index. Only a
    /// block with a single entry exceeds the target.
    ///
    /// From 1 KiB to 1 MiB; default [`DEFAULT_BLOCK_BYTES`].
    pub fn block_bytes(mut self, bytes: usize) -> Self {
        self.block_bytes = bytes;
        self
    }

    /// Compression of data blocks; default [`Compression::Lz4`].
    pub fn compression(mut self, compression: Compression) -> Self {
        self.compression = compression;
        self
    }

    /// Kind of the point filter and the prefix filter; default [`FilterKind::BlockedBloom`].
    ///
    /// [`FilterKind::Ribbon`] is a third smaller at the same false-positive rate, but slower to
    /// build and probe. [`FilterKind::Range`] is invalid.
    pub fn filter_kind(mut self, kind: FilterKind) -> Self {
        self.filter_kind = kind;
        self
    }

    /// Bits of the point filter per distinct user key.
    ///
    /// Each additional bit reduces false positives by about a third. The filter stays in memory.
    ///
    /// 0 for no filter, or from 0.001 to 40; default [`DEFAULT_FILTER_BITS_PER_KEY`].
    pub fn filter_bits_per_key(mut self, bits: f64) -> Self {
        self.filter_bits_per_key = bits;
        self
    }

    /// Makes the point filter a blocked Bloom filter for up to this many keys, filled key by key.
    ///
    /// It takes `filter_bits_per_key` bits of memory for each of these keys from the first entry
    /// on, instead of 8 bytes for each key so far. Fewer keys waste a part of it, and more raise
    /// its false-positive rate. Default: no limit, a filter of `filter_kind`.
    pub fn filter_keys_max(mut self, keys: u64) -> Self {
        self.filter_keys_max = Some(keys);
        self
    }

    /// Extractor of the prefix filter, and its bits per distinct prefix. Default: no prefix filter.
    ///
    /// Bits: 0 for no filter, or from 0.001 to 40.
    pub fn prefix_filter(mut self, extractor: PrefixExtractor, bits_per_key: f64) -> Self {
        self.prefix_extractor = Some(extractor);
        self.prefix_filter_bits_per_key = bits_per_key;
        self
    }

    /// Bits of the range filter per distinct user key. For the false-positive rate see
    /// [`range_filter`](sievedb_filter::range_filter).
    ///
    /// 0 for no filter, the default, or from [`BITS_PER_KEY_MIN`] to 40.
    pub fn range_filter_bits_per_key(mut self, bits: f64) -> Self {
        self.range_filter_bits_per_key = bits;
        self
    }

    /// Target size of an index partition, in bytes.
    ///
    /// An index up to this size is resident. For a larger index only the top index is resident. Its
    /// partitions are cached as blocks, which costs one more request per lookup.
    ///
    /// From 1 KiB to 1 MiB; default [`DEFAULT_INDEX_PARTITION_BYTES`].
    pub fn index_partition_bytes(mut self, bytes: usize) -> Self {
        self.index_partition_bytes = bytes;
        self
    }

    /// Length of the output buffer, in bytes, which is appended to the file at once. Does not
    /// affect the content of the table.
    ///
    /// From 1 KiB to 1 MiB; default [`DEFAULT_WRITE_BUFFER_BYTES`].
    pub fn write_buffer_bytes(mut self, bytes: usize) -> Self {
        self.write_buffer_bytes = bytes;
        self
    }

    /// Returns the bits per key of the point filter, in thousandths.
    pub(crate) fn filter_millibits(&self) -> u64 {
        // At most 40,000 after `validate`.
        (self.filter_bits_per_key * 1000.0).round() as u64
    }

    /// Checks every option.
    ///
    /// # Errors
    ///
    /// [`InvalidOption`] with the first option out of range.
    pub fn validate(&self) -> Result<(), InvalidOption> {
        let bits_ok = |bits: f64| bits == 0.0 || FILTER_BITS_PER_KEY.contains(&bits);
        let range_bits = self.range_filter_bits_per_key;
        let range_bits_ok = range_bits == 0.0 || RANGE_FILTER_BITS_PER_KEY.contains(&range_bits);
        let (size, bits) = ("from 1 KiB to 1 MiB", "0, or from 0.001 to 40");
        let compression = self.compression.check();
        let checks = [
            (BLOCK_BYTES.contains(&self.block_bytes), "block_bytes", size),
            (compression.is_ok(), "compression", compression.err().unwrap_or_default()),
            (bits_ok(self.filter_bits_per_key), "filter_bits_per_key", bits),
            (bits_ok(self.prefix_filter_bits_per_key), "prefix_filter_bits_per_key", bits),
            (range_bits_ok, "range_filter_bits_per_key", "0, or from 4 to 40"),
            (
                self.prefix_extractor.as_ref().is_none_or(PrefixExtractor::is_valid),
                "prefix_extractor",
                "a length from 1 to 65,536, or a name of 1 to 100 bytes",
            ),
            (BLOCK_BYTES.contains(&self.index_partition_bytes), "index_partition_bytes", size),
            (BLOCK_BYTES.contains(&self.write_buffer_bytes), "write_buffer_bytes", size),
            (self.filter_kind != FilterKind::Range, "filter_kind", "any kind but Range"),
        ];
        for (is_in_range, name, allowed) in checks {
            if !is_in_range {
                return Err(InvalidOption { name, allowed });
            }
        }
        Ok(())
    }
}

/// Options of a [`TableCursor`](crate::TableCursor).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CursorOptions {
    /// Effect of reads on the block cache. Default [`CacheUse::Fill`].
    pub cache_use: CacheUse,
    /// Maximum length of one read, in bytes, if longer than a block.
    ///
    /// The first read of a scan is as long as the shorter of the last two scans of the table, at
    /// most 32 KiB. After two single blocks each read doubles in length.
    ///
    /// From 0 to 64 MiB; larger values are clamped. Default 0: reads single blocks.
    pub read_ahead_bytes_max: usize,
    /// Makes all reads `read_ahead_bytes_max` long, for scans of whole tables. Default `false`.
    pub reads_all: bool,
    /// Skips damaged blocks as if they were empty, to salvage the rest. Older versions of lost
    /// entries may then be visible. Default `false`.
    pub skip_damaged: bool,
    /// Lower bound of the user keys. Default unbounded.
    pub start: Bound<Bytes>,
    /// Upper bound of the user keys. Default unbounded.
    pub end: Bound<Bytes>,
}

impl Default for CursorOptions {
    fn default() -> Self {
        Self {
            cache_use: CacheUse::default(),
            read_ahead_bytes_max: 0,
            reads_all: false,
            skip_damaged: false,
            start: Bound::Unbounded,
            end: Bound::Unbounded,
        }
    }
}

impl CursorOptions {
    /// Returns options to scan a whole table once: long reads that bypass the cache. The caller
    /// charges the buffers.
    #[must_use]
    pub fn whole_table() -> Self {
        Self {
            cache_use: CacheUse::Background,
            read_ahead_bytes_max: READ_AHEAD_BYTES_MAX,
            reads_all: true,
            ..Self::default()
        }
    }

    /// Shrinks `range`, which covers children of `index`, to the children that may have keys within
    /// the bounds.
    pub(crate) fn within_bounds(&self, index: &BlockInner, mut range: Range<u64>) -> Range<u64> {
        let block_of = |target| Some(index.handle_at(index.position(target)?).range());
        if let Bound::Included(start) | Bound::Excluded(start) = &self.start
            && let Some(first) = block_of(InternalKey::seek(start, SEQUENCE_MAX))
        {
            range.start = range.start.max(first.start);
        }
        if let Bound::Included(end) | Bound::Excluded(end) = &self.end
            && let Some(last) = block_of(InternalKey::new(end, Trailer::OLDEST))
        {
            range.end = range.end.min(last.end);
        }
        range
    }
}

impl From<CacheUse> for CursorOptions {
    fn from(cache_use: CacheUse) -> Self {
        Self { cache_use, ..Self::default() }
    }
}

/// An option is out of range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InvalidOption {
    /// Name of the option.
    pub name: &'static str,
    /// Allowed values.
    pub allowed: &'static str,
}

impl fmt::Display for InvalidOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the option {} is out of range: {}", self.name, self.allowed)
    }
}

impl error::Error for InvalidOption {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_compressions_round_trip() {
        let plain = [Compression::None, Compression::Lz4];
        for compression in plain {
            assert_eq!(Compression::from_stored(compression.kind().into(), 0, 0), Ok(compression));
        }
        for (level, dictionary_bytes) in [(3, 16 << 10), (0, 1), (u64::MAX, u64::MAX), (19, 0)] {
            match Compression::from_stored(2, level, dictionary_bytes) {
                Ok(compression) => assert_eq!(compression.check(), Ok(())),
                Err(error) => assert!(matches!(error, Corruption::NeedsFeature { .. }), "{error}"),
            }
        }
        let want = Corruption::Unsupported { what: "compression", value: 3 };
        assert_eq!(Compression::from_stored(3, 0, 0), Err(want));
    }

    #[test]
    fn validate_names_the_option_out_of_range() {
        let new = TableOptions::new;
        assert_eq!(new().validate(), Ok(()));
        let ends = [
            new().block_bytes(1 << 10).filter_bits_per_key(0.0),
            new().block_bytes(1 << 20).filter_bits_per_key(40.0),
        ];
        for options in ends {
            assert_eq!(options.validate(), Ok(()), "{options:?}");
        }
        let cases = [
            ("block_bytes", new().block_bytes(1023)),
            ("block_bytes", new().block_bytes((1 << 20) + 1)),
            ("filter_bits_per_key", new().filter_bits_per_key(-1.0)),
            ("filter_bits_per_key", new().filter_bits_per_key(0.0001)),
            ("filter_bits_per_key", new().filter_bits_per_key(40.1)),
            ("filter_bits_per_key", new().filter_bits_per_key(f64::NAN)),
            ("index_partition_bytes", new().index_partition_bytes(0)),
            ("write_buffer_bytes", new().write_buffer_bytes(1023)),
            ("filter_kind", new().filter_kind(FilterKind::Range)),
            ("prefix_extractor", new().prefix_filter(PrefixExtractor::FixedLength(0), 10.0)),
            ("range_filter_bits_per_key", new().range_filter_bits_per_key(3.9)),
            ("range_filter_bits_per_key", new().range_filter_bits_per_key(f64::NAN)),
            (
                "prefix_filter_bits_per_key",
                new().prefix_filter(PrefixExtractor::Separator(b'/'), 41.0),
            ),
        ];
        for (name, options) in cases {
            assert_eq!(options.validate().err().map(|error| error.name), Some(name), "{options:?}");
        }
    }
}
