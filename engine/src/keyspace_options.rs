//! What a keyspace keeps for itself.

#[cfg(feature = "serde")]
mod serialize;
mod text;
mod values;

use std::sync::Arc;

use sievedb_filter::hash::HASH_VERSION;
use sievedb_format::{Corruption, Decoder, Encode};
pub use sievedb_sstable::Compression;
use sievedb_sstable::{PrefixExtractor, PrefixFunction, TableOptions};

use crate::{
    Error, Result,
    filter_policy::{FilterChoice, FilterPolicy, FilterPolicyKind},
    prefix_extractor::NamedExtractor,
};

pub(crate) use text::StoredOptions;

/// Name of the keyspace that [`Db`](crate::Db) itself stands for.
pub const DEFAULT_KEYSPACE: &str = "default";
/// Default of [`KeyspaceOptions::memtable_bytes`].
pub const DEFAULT_MEMTABLE_BYTES: usize = 32 << 20;
/// Default of [`KeyspaceOptions::table_bytes`].
pub const DEFAULT_TABLE_BYTES: u64 = 64 << 20;
/// Default of [`KeyspaceOptions::base_level_bytes`].
pub const DEFAULT_BASE_LEVEL_BYTES: u64 = 128 << 20;
/// Default of [`KeyspaceOptions::block_bytes`].
pub const DEFAULT_BLOCK_BYTES: usize = 3840;

/// What a keyspace keeps for itself; stored in the manifest. Shown in words by `{}`; with the feature `serde` for
/// machines, too, by the names of the methods that set it.
#[derive(Debug, Clone, PartialEq)]
#[must_use = "options do nothing until a keyspace is opened with them"]
pub struct KeyspaceOptions {
    pub(crate) memtable_bytes: usize,
    pub(crate) table_bytes: u64,
    pub(crate) base_level_bytes: u64,
    pub(crate) filter_policy: FilterPolicy,
    pub(crate) block_bytes: usize,
    pub(crate) compression: Compression,
    pub(crate) bottommost_compression: Option<Compression>,
    pub(crate) prefix_extractor: NamedExtractor,
    pub(crate) range_filter_bits_per_key: f64,
}

impl Default for KeyspaceOptions {
    fn default() -> Self {
        Self {
            memtable_bytes: DEFAULT_MEMTABLE_BYTES,
            table_bytes: DEFAULT_TABLE_BYTES,
            base_level_bytes: DEFAULT_BASE_LEVEL_BYTES,
            filter_policy: FilterPolicy::default(),
            block_bytes: DEFAULT_BLOCK_BYTES,
            compression: Compression::default(),
            bottommost_compression: None,
            prefix_extractor: NamedExtractor::None,
            range_filter_bits_per_key: 0.0,
        }
    }
}

/// Fields of stored keyspace options: number, then a varint. All of them, and no others, are in the table under
/// "Batch" in `docs/file-formats.md`.
mod field {
    /// In bytes.
    pub(super) const MEMTABLE_BYTES: u64 = 1;
    /// In bytes.
    pub(super) const TABLE_BYTES: u64 = 2;
    /// In bytes.
    pub(super) const BASE_LEVEL_BYTES: u64 = 3;
    /// Thousandths of a bit.
    pub(super) const FILTER_MILLIBITS_PER_KEY: u64 = 4;
    /// In bytes.
    pub(super) const BLOCK_BYTES: u64 = 5;
    /// [`Compression::from_number`](super::Compression::from_number) tells what.
    pub(super) const COMPRESSION: u64 = 6;
    /// No other one than the present can be read.
    pub(super) const KEY_HASH_VERSION: u64 = 7;
    /// [`FilterPolicyKind::from_number`](super::FilterPolicyKind::from_number) tells which.
    pub(super) const FILTER_POLICY_KIND: u64 = 8;
    /// In bytes; missing for no bound.
    pub(super) const FILTER_MEMORY_BYTES_MAX: u64 = 12;
    /// Thousandths of a bit.
    pub(super) const RANGE_FILTER_MILLIBITS_PER_KEY: u64 = 13;
    /// Length of the name in bytes; the name follows.
    pub(super) const PREFIX_EXTRACTOR: u64 = 14;
    /// As the compression; missing if it is that of all levels.
    pub(super) const BOTTOMMOST_COMPRESSION: u64 = 15;
}

impl KeyspaceOptions {
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Size at which a memtable is frozen and flushed, in bytes.
    ///
    /// A large one makes fewer, larger tables; up to four exist at a time.
    ///
    /// From 4 KiB to 16 GiB; default 32 MiB ([`DEFAULT_MEMTABLE_BYTES`]). May be exceeded by the batches
    /// that are under way.
    pub fn memtable_bytes(mut self, bytes: usize) -> Self {
        self.memtable_bytes = bytes;
        self
    }

    /// Target size of a table file written by a compaction, in bytes.
    ///
    /// From 4 KiB to 16 GiB; default 64 MiB ([`DEFAULT_TABLE_BYTES`]). A table may exceed it by one block
    /// and the versions of one key.
    pub fn table_bytes(mut self, bytes: u64) -> Self {
        self.table_bytes = bytes;
        self
    }

    /// Least target size of the first level below level 0, in bytes. Deeper levels are ten times
    /// larger each.
    ///
    /// From 4 KiB; default 128 MiB ([`DEFAULT_BASE_LEVEL_BYTES`]).
    pub fn base_level_bytes(mut self, bytes: u64) -> Self {
        self.base_level_bytes = bytes;
        self
    }

    /// Which filters the tables get, and how large they are; by default
    /// [`FilterPolicyKind::Auto`] with 10 bits per key on average. The filters of older tables follow in
    /// the background; [`Keyspace::set_filter_policy`](crate::Keyspace::set_filter_policy) changes it while
    /// the store is open.
    pub fn filter_policy(mut self, policy: FilterPolicy) -> Self {
        self.filter_policy = policy;
        self
    }

    /// Target size of a data block before compression, in bytes.
    ///
    /// Small blocks read less for a point lookup; large ones compress better and shrink the index.
    ///
    /// From 1 KiB to 1 MiB; default 3.75 KiB ([`DEFAULT_BLOCK_BYTES`]). Affects new tables only.
    pub fn block_bytes(mut self, bytes: usize) -> Self {
        self.block_bytes = bytes;
        self
    }

    /// How data blocks are compressed; default LZ4. Affects new tables only, until
    /// [`compact`](crate::Keyspace::compact) rewrites those with another compression.
    pub fn compression(mut self, compression: Compression) -> Self {
        self.compression = compression;
        self
    }

    /// How data blocks are compressed in tables that a compaction writes into the last level, which holds
    /// most of the data and is written least often: [`Compression::ZSTD`] suits data that is seldom read,
    /// in builds with the feature `zstd`. `None`, the default: as elsewhere.
    ///
    /// Tables on their way to the last level are then rewritten, also where they would have been moved there
    /// as a whole: of keys that are inserted in ascending order each is written twice, as of others. What is
    /// there already with another compression is rewritten by [`compact`](crate::Keyspace::compact), but not
    /// for another level or dictionary of zstd, which a table does not tell.
    pub fn bottommost_compression(mut self, compression: impl Into<Option<Compression>>) -> Self {
        self.bottommost_compression = compression.into();
        self
    }

    /// Gives tables a filter over the prefixes of their keys too, so that
    /// [`prefix`](crate::Keyspace::prefix), and [`range`](crate::Keyspace::range) within one prefix,
    /// pass over tables that have nothing for them; `None`, the default, for none.
    ///
    /// Takes the bits of [`filter_policy`](Self::filter_policy) for each different prefix of a table; with
    /// [`FilterPolicyKind::None`] or 0 bits there are no prefix filters either. Older tables follow in the
    /// background; until then their filters are used if their extractor has the same name, so that another
    /// extractor may be chosen at any time.
    /// [`Keyspace::set_prefix_extractor`](crate::Keyspace::set_prefix_extractor) changes it while the store
    /// is open.
    ///
    /// The name is stored. The function of [`PrefixExtractor::Custom`] is not: give it to
    /// [`Options::prefix_function`](crate::Options::prefix_function) whenever the store is opened. Without
    /// it prefix filters are neither asked nor built.
    pub fn prefix_extractor(mut self, extractor: impl Into<Option<PrefixExtractor>>) -> Self {
        self.prefix_extractor =
            extractor.into().map_or(NamedExtractor::None, NamedExtractor::Present);
        self
    }

    /// Gives tables a filter that knows which ranges of keys are empty, with so many bits for each key,
    /// so that short [`range`](crate::Keyspace::range)s and [`prefix`](crate::Keyspace::prefix)es pass
    /// over tables that have nothing in between.
    ///
    /// A key counts by the 8 bytes behind the prefix that all keys of a table have in common, as a
    /// big-endian number; by fewer if the longest key has fewer there. An empty range of `n` such numbers reads a table in vain with a probability of
    /// at most `n / 2^(bits - 2)`: with 12 bits, 0.1 % for 1 and 1.6 % for 16. A range between keys that
    /// agree in these bytes is never found to be empty. The filters stay in memory, as part of that of
    /// all filters.
    ///
    /// 0 for none, the default, or from 4 to 40. Stored with the keyspace. Older tables get such a filter, or
    /// lose it, in the background; one that they have keeps its bits.
    pub fn range_filter_bits_per_key(mut self, bits: f64) -> Self {
        self.range_filter_bits_per_key = bits;
        self
    }

    pub(crate) fn validate(&self) -> Result<()> {
        let invalid = |name, allowed| Err(Error::InvalidOption { name, allowed });
        if !((4 << 10)..=(16 << 30)).contains(&self.memtable_bytes) {
            return invalid("memtable_bytes", "from 4 KiB to 16 GiB");
        }
        if !((4 << 10)..=(16 << 30)).contains(&self.table_bytes) {
            return invalid("table_bytes", "from 4 KiB to 16 GiB");
        }
        if self.base_level_bytes < 4 << 10 {
            return invalid("base_level_bytes", "at least 4 KiB");
        }
        let bottommost = self.bottommost_compression.unwrap_or_default();
        for (name, compression) in
            [("compression", self.compression), ("bottommost_compression", bottommost)]
        {
            compression.check().or_else(|allowed| invalid(name, allowed))?;
        }
        // Stored in thousandths.
        let bits = self.filter_policy.bits_per_key;
        if bits != 0.0 && !(0.001..=40.0).contains(&bits) {
            return invalid("filter_policy.bits_per_key", "0, or from 0.001 to 40");
        }
        if !((1 << 10)..=(1 << 20)).contains(&self.block_bytes) {
            return invalid("block_bytes", "from 1 KiB to 1 MiB");
        }
        if self.prefix_extractor.present().is_some_and(|extractor| !extractor.is_valid()) {
            let allowed = "a length from 1 to 65,536, or a name of 1 to 100 bytes";
            return invalid("prefix_extractor", allowed);
        }
        // Stored in thousandths.
        let range_bits = self.range_filter_bits_per_key;
        if range_bits != 0.0 && !(4.0..=40.0).contains(&range_bits) {
            return invalid("range_filter_bits_per_key", "0, or from 4 to 40");
        }
        Ok(())
    }

    /// These options, with the function of a prefix extractor that was missing, if it is one of `functions`:
    /// they may be those of a store that was opened without it.
    pub(crate) fn with_functions(mut self, functions: &[Arc<dyn PrefixFunction>]) -> Self {
        if let NamedExtractor::Missing(name) = &self.prefix_extractor {
            self.prefix_extractor = NamedExtractor::from_name(name, functions);
        }
        self
    }

    /// These options for the tables of the last level.
    pub(crate) fn of_last_level(self) -> Self {
        Self { compression: self.bottommost_compression.unwrap_or(self.compression), ..self }
    }

    pub(crate) fn table_options(&self, filter: FilterChoice) -> TableOptions {
        let options = TableOptions::default()
            .block_bytes(self.block_bytes)
            .compression(self.compression)
            .filter_kind(filter.kind)
            .filter_bits_per_key(filter.bits_per_key)
            .range_filter_bits_per_key(self.range_filter_bits_per_key);
        match self.prefix_extractor.present() {
            Some(extractor) if self.filter_policy.kind != FilterPolicyKind::None => {
                options.prefix_filter(extractor.clone(), self.filter_policy.bits_per_key)
            }
            _ => options,
        }
    }

    /// As the manifest stores them.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let policy = &self.filter_policy;
        let range_millibits = (self.range_filter_bits_per_key * 1000.0).round() as u64;
        let fields = [
            (field::MEMTABLE_BYTES, self.memtable_bytes as u64),
            (field::TABLE_BYTES, self.table_bytes),
            (field::BASE_LEVEL_BYTES, self.base_level_bytes),
            (field::FILTER_MILLIBITS_PER_KEY, (policy.bits_per_key * 1000.0).round() as u64),
            (field::BLOCK_BYTES, self.block_bytes as u64),
            (field::COMPRESSION, self.compression.number()),
            (field::KEY_HASH_VERSION, HASH_VERSION.into()),
            (field::FILTER_POLICY_KIND, policy.kind.number()),
            (field::RANGE_FILTER_MILLIBITS_PER_KEY, range_millibits),
        ];
        let bound = policy.memory_bytes_max.map(|bytes| (field::FILTER_MEMORY_BYTES_MAX, bytes));
        let mut bytes = Vec::new();
        let bottommost = self.bottommost_compression;
        let bottommost = bottommost.map(|it| (field::BOTTOMMOST_COMPRESSION, it.number()));
        for (number, value) in fields.into_iter().chain(bound).chain(bottommost) {
            bytes.put_varint(number);
            bytes.put_varint(value);
        }
        if let Some(name) = self.prefix_extractor.name() {
            bytes.put_varint(field::PREFIX_EXTRACTOR);
            bytes.put_prefixed(name.as_bytes());
        }
        bytes
    }

    /// Reads stored options; a prefix extractor may need one of `functions`.
    pub(crate) fn decode(
        bytes: &[u8],
        functions: &[Arc<dyn PrefixFunction>],
    ) -> Result<Self, Corruption> {
        let mut options = Self::default();
        let mut decoder = Decoder::new(bytes);
        while !decoder.is_empty() {
            let number = decoder.varint("keyspace option")?;
            let value = decoder.varint("value of a keyspace option")?;
            let out_of_range = Corruption::OutOfRange { what: "keyspace option", value };
            let size = usize::try_from(value).map_err(|_| out_of_range.clone());
            match number {
                field::MEMTABLE_BYTES => options.memtable_bytes = size?,
                field::TABLE_BYTES => options.table_bytes = value,
                field::BASE_LEVEL_BYTES => options.base_level_bytes = value,
                field::FILTER_MILLIBITS_PER_KEY => {
                    options.filter_policy.bits_per_key = value as f64 / 1000.0;
                }
                field::BLOCK_BYTES => options.block_bytes = size?,
                field::COMPRESSION => {
                    options.compression = Compression::from_number(value)?;
                }
                field::BOTTOMMOST_COMPRESSION => {
                    options.bottommost_compression = Some(Compression::from_number(value)?);
                }
                field::FILTER_MEMORY_BYTES_MAX => {
                    options.filter_policy.memory_bytes_max = Some(value);
                }
                field::FILTER_POLICY_KIND => {
                    let kind = FilterPolicyKind::from_number(value);
                    options.filter_policy.kind = kind.ok_or(out_of_range)?;
                }
                field::RANGE_FILTER_MILLIBITS_PER_KEY => {
                    options.range_filter_bits_per_key = value as f64 / 1000.0;
                }
                field::PREFIX_EXTRACTOR => {
                    let name = str::from_utf8(decoder.take("prefix extractor", size?)?);
                    let name = name.map_err(|_| out_of_range)?;
                    options.prefix_extractor = NamedExtractor::from_name(name, functions);
                }
                field::KEY_HASH_VERSION if value == HASH_VERSION.into() => {}
                field::KEY_HASH_VERSION => {
                    return Err(Corruption::Unsupported { what: "key hash version", value });
                }
                _ => {
                    return Err(Corruption::Unsupported { what: "keyspace option", value: number });
                }
            }
        }
        let valid = options.validate();
        valid.map_err(|_| Corruption::OutOfRange { what: "keyspace option", value: 0 })?;
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keyspace_options_return() {
        let options = KeyspaceOptions::new()
            .memtable_bytes(4 << 20)
            .table_bytes(8 << 20)
            .base_level_bytes(16 << 20)
            .filter_policy(FilterPolicy::new(FilterPolicyKind::Ribbon).bits_per_key(7.25))
            .block_bytes(16 << 10)
            .compression(Compression::None)
            .bottommost_compression(Compression::Lz4)
            .prefix_extractor(PrefixExtractor::Separator(b'/'))
            .range_filter_bits_per_key(12.5);
        assert_eq!(KeyspaceOptions::decode(&options.encode(), &[]), Ok(options.clone()));
        let bounded = options.filter_policy.memory_bytes_max(1 << 20);
        let options = options.filter_policy(bounded);
        assert_eq!(KeyspaceOptions::decode(&options.encode(), &[]), Ok(options));
    }

    #[test]
    fn what_is_wrong_with_a_compression_is_named() {
        let zstd = |level, dictionary_bytes| Compression::Zstd { level, dictionary_bytes };
        let new = KeyspaceOptions::new;
        let (level, dictionary) = ("levels from 1 to 19", "a dictionary of 0 bytes, or from 1 KiB");
        let cases = [
            ("compression", level, new().compression(zstd(20, 0))),
            ("compression", level, new().compression(zstd(0, 1 << 10))),
            ("compression", dictionary, new().compression(zstd(3, 10))),
            ("bottommost_compression", level, new().bottommost_compression(zstd(20, 0))),
            ("bottommost_compression", dictionary, new().bottommost_compression(zstd(3, 2 << 20))),
        ];
        for (want, bound, options) in cases {
            let bound = if cfg!(feature = "zstd") { bound } else { "feature `zstd`" };
            match options.validate() {
                Err(Error::InvalidOption { name, allowed }) => {
                    assert!(name == want && allowed.contains(bound), "{name}: {allowed}");
                }
                other => panic!("{want}: {other:?}"),
            }
        }
    }

    #[test]
    fn a_missing_extractor_keeps_its_name() {
        let options = KeyspaceOptions {
            prefix_extractor: NamedExtractor::Missing("custom:host".to_owned()),
            ..KeyspaceOptions::new()
        };
        assert_eq!(KeyspaceOptions::decode(&options.encode(), &[]), Ok(options));
    }

    #[test]
    fn every_cut_of_a_name_is_refused() {
        let options = KeyspaceOptions::new().prefix_extractor(PrefixExtractor::FixedLength(8));
        let (bytes, start) = (options.encode(), KeyspaceOptions::new().encode().len());
        for cut in start + 1..bytes.len() {
            assert!(KeyspaceOptions::decode(&bytes[..cut], &[]).is_err(), "cut at {cut}");
        }
    }
}
