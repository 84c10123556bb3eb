//! The bytes of keyspace options: tagged fields ([`crate::log::fields`]).
//!
//! | tag          | value          | meaning                                                     |
//! |--------------|----------------|-------------------------------------------------------------|
//! | 1, optional  | varint         | memtable size, in bytes                                     |
//! | 2, optional  | varint         | table size, in bytes                                        |
//! | 3, optional  | varint         | size of the base level, in bytes                            |
//! | 4, optional  | varint         | thousandths of a filter bit per key                         |
//! | 5, optional  | varint         | block size, in bytes                                        |
//! | 6, required  | varints        | compression: 0 none; 1 LZ4; 2 zstd, level, dictionary bytes |
//! | 7, required  | varint         | version of the key hash                                     |
//! | 8, optional  | varint         | filters: 0 `Auto`, 1 Bloom, 2 ribbon, 3 none, 4 binary fuse |
//! | 12, optional | varint         | most memory for filters, in bytes; missing for no bound     |
//! | 13, optional | varint         | thousandths of a range filter bit per key                   |
//! | 14, optional | raw            | name of the prefix extractor, UTF-8; missing for none       |
//! | 15, required | as 6           | compression of the last level; missing if it is that of all |
//! | 16, required | raw            | name of the merge operator, UTF-8; missing for none         |
//! | 17, required | varint         | default time to live, in milliseconds; missing for none     |
//! | 18, optional | raw            | name of the compaction filter, UTF-8; missing for none      |
//! | 19, required | varints        | history: 1, sequence numbers; or 2, ms; missing for none    |
//! | 20, optional | varint         | least value in a blob file, in bytes; missing for none      |
//! | 21, optional | varint         | thousandths of garbage in blob files                        |
//! | 22, optional | varints        | compaction style, see below; missing for leveled            |
//! | 23, optional | varint         | most blob files that alternate in a table; missing for any  |
//!
//! A compaction style is 1 for size-tiered, then runs of a merge, most runs, size ratio and space
//! in percent. It is 2 for FIFO, then bytes and milliseconds, 0 for no age. Further numbers are
//! skipped, an unknown style is leveled.
//!
//! Each field stands at most once, in any order. A missing field has its default. A number outside
//! the range of this release is no error: the nearest valid number is used, because another release
//! may allow more. An unknown optional field is skipped, and lost when the options are changed. An
//! unknown kind of filter means the default kind.

use sievedb_filter::hash::HASH_VERSION;
use sievedb_format::Corruption;
use sievedb_sstable::{BLOCK_BYTES, FILTER_BITS_PER_KEY, RANGE_FILTER_BITS_PER_KEY};

use super::{
    BASE_LEVEL_BYTES_MIN, BLOB_DEPTH, BLOB_GARBAGE_RATIO, BLOB_VALUE_BYTES, Compression,
    DEFAULT_BLOB_GARBAGE_RATIO, KeyspaceOptions, MEMTABLE_BYTES, TABLE_BYTES,
};
use crate::{
    compaction_filter::NamedFilter,
    compaction_style::CompactionStyle,
    filter_policy::FilterPolicyKind,
    history_length::HistoryLength,
    log::fields::{EncodeFields, Field, Fields, optional, required},
    merge_operator::NamedOperator,
    prefix_extractor::NamedExtractor,
};

const MEMTABLE: u64 = optional(1);
const TABLE: u64 = optional(2);
const BASE_LEVEL: u64 = optional(3);
const FILTER_MILLIBITS: u64 = optional(4);
const BLOCK: u64 = optional(5);
const COMPRESSION: u64 = required(6);
const KEY_HASH_VERSION: u64 = required(7);
const FILTER_POLICY_KIND: u64 = optional(8);
const FILTER_MEMORY_BYTES_MAX: u64 = optional(12);
const RANGE_FILTER_MILLIBITS: u64 = optional(13);
const PREFIX_EXTRACTOR: u64 = optional(14);
const BOTTOMMOST_COMPRESSION: u64 = required(15);
const MERGE_OPERATOR: u64 = required(16);
const DEFAULT_TTL: u64 = required(17);
const COMPACTION_FILTER: u64 = optional(18);
const HISTORY: u64 = required(19);
const BLOB_VALUE: u64 = optional(20);
const BLOB_GARBAGE: u64 = optional(21);
const COMPACTION_STYLE: u64 = optional(22);
const BLOB_DEPTH_MAX: u64 = optional(23);

impl KeyspaceOptions {
    /// Encodes the options for the manifest.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let policy = &self.filter_policy;
        let millibits = |bits: f64| (bits * 1000.0).round() as u64;
        let mut out = Vec::new();
        out.put_varint_field(MEMTABLE, self.memtable_bytes as u64);
        out.put_varint_field(TABLE, self.table_bytes);
        out.put_varint_field(BASE_LEVEL, self.base_level_bytes);
        out.put_varint_field(FILTER_MILLIBITS, millibits(policy.bits_per_key));
        out.put_varint_field(BLOCK, self.block_bytes as u64);
        put_compression(COMPRESSION, self.compression, &mut out);
        out.put_varint_field(KEY_HASH_VERSION, HASH_VERSION.into());
        out.put_varint_field(FILTER_POLICY_KIND, policy.kind.number());
        out.put_varint_field(RANGE_FILTER_MILLIBITS, millibits(self.range_filter_bits_per_key));
        if let Some(bytes) = policy.memory_bytes_max {
            out.put_varint_field(FILTER_MEMORY_BYTES_MAX, bytes);
        }
        if let Some(compression) = self.bottommost_compression {
            put_compression(BOTTOMMOST_COMPRESSION, compression, &mut out);
        }
        if let Some(name) = self.prefix_extractor.name() {
            out.put_field(PREFIX_EXTRACTOR, name.as_bytes());
        }
        if let Some(name) = self.merge_operator.name() {
            out.put_field(MERGE_OPERATOR, name.as_bytes());
        }
        if let Some(ms) = self.default_ttl_ms {
            out.put_varint_field(DEFAULT_TTL, ms);
        }
        if let Some(name) = self.compaction_filter.name() {
            out.put_field(COMPACTION_FILTER, name.as_bytes());
        }
        if let Some(length) = self.history {
            out.put_varints_field(HISTORY, &length.encode());
        }
        if let Some(bytes) = self.blob_value_bytes {
            out.put_varint_field(BLOB_VALUE, bytes);
        }
        if self.blob_garbage_ratio != DEFAULT_BLOB_GARBAGE_RATIO {
            out.put_varint_field(BLOB_GARBAGE, millibits(self.blob_garbage_ratio));
        }
        if self.compaction_style != CompactionStyle::Leveled {
            out.put_varints_field(COMPACTION_STYLE, &self.compaction_style.encode());
        }
        if let Some(files) = self.blob_depth_max {
            out.put_varint_field(BLOB_DEPTH_MAX, files);
        }
        out
    }

    /// Decodes stored options. Functions of the application are missing: see
    /// [`with_functions`](Self::with_functions), [`with_operators`](Self::with_operators) and
    /// [`with_filters`](Self::with_filters).
    ///
    /// # Errors
    ///
    /// [`Corruption`] if the bytes break the table above, [`Corruption::Unsupported`] for an
    /// unknown required field or compression.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, Corruption> {
        let mut options = Self::default();
        let mut fields = Fields::new("keyspace options", bytes);
        let mut seen = Vec::new();
        while let Some(field) = fields.next()? {
            if seen.contains(&field.tag) {
                return Err(Corruption::Order { what: "keyspace options" });
            }
            seen.push(field.tag);
            options.decode_field(&field)?;
        }
        Ok(options)
    }

    fn decode_field(&mut self, field: &Field<'_>) -> Result<(), Corruption> {
        let number = || field.varint("keyspace option");
        let size = || number().map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
        match field.tag {
            MEMTABLE => {
                self.memtable_bytes = size()?.clamp(*MEMTABLE_BYTES.start(), *MEMTABLE_BYTES.end());
            }
            TABLE => self.table_bytes = number()?.clamp(*TABLE_BYTES.start(), *TABLE_BYTES.end()),
            BASE_LEVEL => self.base_level_bytes = number()?.max(BASE_LEVEL_BYTES_MIN),
            FILTER_MILLIBITS => {
                let bits = number()? as f64 / 1000.0;
                self.filter_policy.bits_per_key = bits.min(*FILTER_BITS_PER_KEY.end());
            }
            BLOCK => self.block_bytes = size()?.clamp(*BLOCK_BYTES.start(), *BLOCK_BYTES.end()),
            COMPRESSION => self.compression = compression(field)?,
            BOTTOMMOST_COMPRESSION => self.bottommost_compression = Some(compression(field)?),
            KEY_HASH_VERSION => {
                let value = number()?;
                if value != HASH_VERSION.into() {
                    return Err(Corruption::Unsupported { what: "key hash version", value });
                }
            }
            FILTER_POLICY_KIND => {
                self.filter_policy.kind =
                    FilterPolicyKind::from_number(number()?).unwrap_or_default();
            }
            FILTER_MEMORY_BYTES_MAX => self.filter_policy.memory_bytes_max = Some(number()?),
            RANGE_FILTER_MILLIBITS => {
                let bits = number()? as f64 / 1000.0;
                let (least, most) =
                    (*RANGE_FILTER_BITS_PER_KEY.start(), *RANGE_FILTER_BITS_PER_KEY.end());
                self.range_filter_bits_per_key =
                    if bits == 0.0 { 0.0 } else { bits.clamp(least, most) };
            }
            PREFIX_EXTRACTOR => {
                let name = text(field, "name of a prefix extractor")?;
                self.prefix_extractor = NamedExtractor::from_name(name, &[]);
            }
            MERGE_OPERATOR => {
                let name = text(field, "name of a merge operator")?;
                self.merge_operator = NamedOperator::from_name(name, &[]);
            }
            DEFAULT_TTL => self.default_ttl_ms = Some(number()?.max(1)),
            COMPACTION_FILTER => {
                let name = text(field, "name of a compaction filter")?;
                self.compaction_filter = NamedFilter::from_name(name, &[]);
            }
            HISTORY => {
                let stored: [u64; 2] = field.varints("length of the history")?;
                let unknown =
                    Corruption::Unsupported { what: "kind of a history", value: stored[0] };
                self.history = Some(HistoryLength::decode(stored).ok_or(unknown)?);
            }
            BLOB_VALUE => {
                let bytes = number()?.clamp(*BLOB_VALUE_BYTES.start(), *BLOB_VALUE_BYTES.end());
                self.blob_value_bytes = Some(bytes);
            }
            BLOB_GARBAGE => {
                let (least, most) = (*BLOB_GARBAGE_RATIO.start(), *BLOB_GARBAGE_RATIO.end());
                self.blob_garbage_ratio = (number()? as f64 / 1000.0).clamp(least, most);
            }
            BLOB_DEPTH_MAX => {
                let files = number()?.clamp(*BLOB_DEPTH.start(), *BLOB_DEPTH.end());
                self.blob_depth_max = Some(files);
            }
            COMPACTION_STYLE => {
                let what = "compaction style";
                self.compaction_style = field.read(what, |decoder| {
                    let style = CompactionStyle::decode(|| decoder.varint(what))?;
                    while !decoder.is_empty() {
                        decoder.varint(what)?;
                    }
                    Ok(style)
                })?;
            }
            _ => field.skip("keyspace option")?,
        }
        Ok(())
    }
}

fn text<'a>(field: &Field<'a>, what: &'static str) -> Result<&'a str, Corruption> {
    let out_of_range = |value| Corruption::OutOfRange { what, value };
    str::from_utf8(field.value).map_err(|e| out_of_range(e.valid_up_to() as u64))
}

fn put_compression(tag: u64, compression: Compression, out: &mut Vec<u8>) {
    match compression {
        Compression::Zstd { level, dictionary_bytes } => {
            let kind = u64::from(compression.kind());
            out.put_varints_field(tag, &[kind, level.into(), dictionary_bytes.into()]);
        }
        plain => out.put_varint_field(tag, plain.kind().into()),
    }
}

fn compression(field: &Field<'_>) -> Result<Compression, Corruption> {
    let what = "compression";
    field.read(what, |decoder| {
        let kind = decoder.varint(what)?;
        let (level, dictionary_bytes) = match kind {
            2 => (decoder.varint(what)?, decoder.varint(what)?),
            _ => (0, 0),
        };
        Compression::from_stored(kind, level, dictionary_bytes)
    })
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use super::*;
    use crate::{Fifo, FilterPolicy, PrefixExtractor, SizeTiered};

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
            .range_filter_bits_per_key(12.5)
            .default_ttl(Duration::from_millis(1500))
            .blob_value_bytes(4096)
            .blob_garbage_ratio(0.125)
            .blob_depth_max(7);
        assert_eq!(KeyspaceOptions::decode(&options.encode()), Ok(options.clone()));
        let bounded = options.filter_policy.memory_bytes_max(1 << 20);
        let options = options.filter_policy(bounded);
        assert_eq!(KeyspaceOptions::decode(&options.encode()), Ok(options));
    }

    #[test]
    fn formats_options_of_a_later_release_are_skipped_or_refused_by_their_bit() {
        let mut bytes = KeyspaceOptions::new().encode();
        bytes.put_field(optional(900), b"of a later release");
        assert_eq!(KeyspaceOptions::decode(&bytes), Ok(KeyspaceOptions::new()));
        bytes.put_field(required(901), b"of a later release");
        let want = Corruption::Unsupported { what: "keyspace option", value: 901 };
        assert_eq!(KeyspaceOptions::decode(&bytes), Err(want));
        let mut bytes = Vec::new();
        bytes.put_varint_field(COMPRESSION, 9);
        let want = Corruption::Unsupported { what: "compression", value: 9 };
        assert_eq!(KeyspaceOptions::decode(&bytes), Err(want));
    }

    #[test]
    fn formats_options_out_of_the_range_of_this_release_are_read() {
        for value in [0, 1, 1 << 40, u64::MAX] {
            let mut bytes = Vec::new();
            for tag in
                [MEMTABLE, TABLE, BASE_LEVEL, FILTER_MILLIBITS, BLOCK, RANGE_FILTER_MILLIBITS]
            {
                bytes.put_varint_field(tag, value);
            }
            bytes.put_varint_field(FILTER_POLICY_KIND, value.max(100));
            let options = KeyspaceOptions::decode(&bytes).unwrap();
            options.validate().unwrap();
        }
    }

    #[test]
    fn a_repeated_option_is_refused() {
        let mut bytes = KeyspaceOptions::new().encode();
        bytes.put_varint_field(BLOCK, 4096);
        let want = Corruption::Order { what: "keyspace options" };
        assert_eq!(KeyspaceOptions::decode(&bytes), Err(want));
    }

    /// Checks the bytes of the last field. Each truncation is refused, and each flipped bit is read
    /// or refused.
    #[track_caller]
    fn check_last_field(options: &KeyspaceOptions, golden: &[u8]) {
        let (bytes, start) = (options.encode(), KeyspaceOptions::new().encode().len());
        assert_eq!(&bytes[start..], golden, "{options}");
        assert_eq!(KeyspaceOptions::decode(&bytes), Ok(options.clone()));
        for cut in start + 1..bytes.len() {
            assert!(KeyspaceOptions::decode(&bytes[..cut]).is_err(), "cut at {cut}");
        }
        for (at, bit) in (start..bytes.len()).flat_map(|at| (0..8).map(move |bit| (at, bit))) {
            let mut bytes = bytes.clone();
            bytes[at] ^= 1 << bit;
            if let Ok(options) = KeyspaceOptions::decode(&bytes) {
                options.validate().expect("what is read is valid");
            }
        }
    }

    #[test]
    fn formats_a_default_ttl_has_these_bytes_and_every_damage_is_read_or_refused() {
        let plain = KeyspaceOptions::new();
        for (ttl, golden) in [
            (Duration::from_millis(1), &[0x23, 1, 1][..]),
            (Duration::from_millis(300), &[0x23, 2, 0xac, 2]),
            (Duration::MAX, &[0x23, 10, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]),
        ] {
            let options = plain.clone().default_ttl(ttl);
            check_last_field(&options, golden);
        }
        let mut bytes = Vec::new();
        bytes.put_varint_field(DEFAULT_TTL, 0);
        let least = plain.default_ttl(Duration::from_nanos(1));
        assert_eq!(KeyspaceOptions::decode(&bytes), Ok(least));
    }

    #[test]
    fn formats_a_history_has_these_bytes_and_every_damage_is_read_or_refused() {
        let plain = KeyspaceOptions::new();
        for (length, golden) in [
            (HistoryLength::Sequences(1), &[0x27, 2, 1, 1][..]),
            (HistoryLength::Sequences(300), &[0x27, 3, 1, 0xac, 2]),
            (HistoryLength::Time(Duration::from_micros(299_001)), &[0x27, 3, 2, 0xac, 2]),
        ] {
            let options = plain.clone().keep_history(length);
            check_last_field(&options, golden);
        }
        let mut bytes = Vec::new();
        bytes.put_varints_field(HISTORY, &[3, 1]);
        let want = Corruption::Unsupported { what: "kind of a history", value: 3 };
        assert_eq!(KeyspaceOptions::decode(&bytes), Err(want));
    }

    #[test]
    fn formats_a_compaction_style_has_these_bytes_and_every_damage_is_read_or_refused() {
        let plain = KeyspaceOptions::new();
        let fifo = Fifo::new(300 << 10);
        let cases: [(CompactionStyle, &[u8]); 3] = [
            (SizeTiered::new().into(), &[0x2c, 7, 1, 4, 16, 0x96, 1, 0xc8, 1]),
            (fifo.into(), &[0x2c, 5, 2, 0x80, 0xe0, 18, 0]),
            (
                fifo.age_max(Duration::from_micros(299_001)).into(),
                &[0x2c, 6, 2, 0x80, 0xe0, 18, 0xac, 2],
            ),
        ];
        for (style, golden) in cases {
            check_last_field(&plain.clone().compaction_style(style), golden);
        }
        let read = |numbers: &[u64]| {
            let mut bytes = Vec::new();
            bytes.put_varints_field(COMPACTION_STYLE, numbers);
            KeyspaceOptions::decode(&bytes).unwrap().compaction_style
        };
        assert_eq!(read(&[3, 1, 2]), CompactionStyle::Leveled, "of a later release");
        assert_eq!(read(&[2, 1 << 20, 0, 7]), Fifo::new(1 << 20).into(), "with a later option");
        let ends = SizeTiered::new().merge_runs_min(32).runs_max(32);
        let ends = ends.size_ratio_percent(100).space_percent_max(10_000);
        assert_eq!(read(&[1, 99, 0, 0, u64::MAX]), ends.into());
    }

    #[test]
    fn a_missing_extractor_keeps_its_name() {
        let options = KeyspaceOptions {
            prefix_extractor: NamedExtractor::Missing("custom:host".to_owned()),
            ..KeyspaceOptions::new()
        };
        assert_eq!(KeyspaceOptions::decode(&options.encode()), Ok(options));
    }

    #[test]
    fn a_merge_operator_returns_and_a_missing_one_keeps_its_name() {
        let options = KeyspaceOptions::new().merge_operator(Arc::new(crate::Counter));
        let decoded = KeyspaceOptions::decode(&options.encode()).unwrap();
        assert!(decoded.merge_operator.present().is_some());
        assert_eq!(decoded, options);
        let missing = NamedOperator::Missing("own".to_owned());
        let options = KeyspaceOptions { merge_operator: missing, ..KeyspaceOptions::new() };
        assert_eq!(KeyspaceOptions::decode(&options.encode()), Ok(options));
        let mut bytes = Vec::new();
        bytes.put_field(MERGE_OPERATOR, b"ab\xff");
        let want = Corruption::OutOfRange { what: "name of a merge operator", value: 2 };
        assert_eq!(KeyspaceOptions::decode(&bytes), Err(want));
    }

    #[test]
    fn a_compaction_filter_keeps_its_name() {
        let missing = NamedFilter::Missing("retention".to_owned());
        let options = KeyspaceOptions { compaction_filter: missing, ..KeyspaceOptions::new() };
        let decoded = KeyspaceOptions::decode(&options.encode()).unwrap();
        assert!(decoded.compaction_filter.present().is_none());
        assert_eq!(decoded, options);
        let mut bytes = Vec::new();
        bytes.put_field(COMPACTION_FILTER, b"ab\xff");
        let want = Corruption::OutOfRange { what: "name of a compaction filter", value: 2 };
        assert_eq!(KeyspaceOptions::decode(&bytes), Err(want));
    }

    #[test]
    fn every_cut_of_a_name_is_refused() {
        let options = KeyspaceOptions::new().prefix_extractor(PrefixExtractor::FixedLength(8));
        let (bytes, start) = (options.encode(), KeyspaceOptions::new().encode().len());
        for cut in start + 1..bytes.len() {
            assert!(KeyspaceOptions::decode(&bytes[..cut]).is_err(), "cut at {cut}");
        }
    }
}
