//! Options as text.

use std::fmt;

use sievedb_format::annotation::printable;

use super::{Compression, DEFAULT_BLOB_GARBAGE_RATIO, KeyspaceOptions};
use crate::{CompactionStyle, FilterPolicy, FilterPolicyKind};

impl fmt::Display for KeyspaceOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "memtables of {}, tables of {}, base level of {}, blocks of {}, {}",
            exact_bytes(self.memtable_bytes as u64),
            exact_bytes(self.table_bytes),
            exact_bytes(self.base_level_bytes),
            exact_bytes(self.block_bytes as u64),
            compression(self.compression)
        )?;
        if let Some(bottommost) = self.bottommost_compression {
            write!(f, " and in the last level {}", compression(bottommost))?;
        }
        write!(f, ", {}", self.filter_policy)?;
        if let Some(name) = self.prefix_extractor.name() {
            write!(f, ", prefixes by {name:?}")?;
        }
        let range_bits = self.range_filter_bits_per_key;
        if range_bits > 0.0 {
            write!(f, ", range filters of {range_bits} bits a key")?;
        }
        if let Some(name) = self.merge_operator.name() {
            write!(f, ", merge operator {name:?}")?;
        }
        if let Some(ttl) = self.get_default_ttl() {
            write!(f, ", default TTL of {ttl:?}")?;
        }
        if let Some(name) = self.compaction_filter.name() {
            write!(f, ", compaction filter {name:?}")?;
        }
        if let Some(length) = self.history {
            write!(f, ", history of {length}")?;
        }
        if let Some(bytes) = self.blob_value_bytes {
            write!(f, ", values from {} in blob files", exact_bytes(bytes))?;
            let ratio = self.blob_garbage_ratio;
            if ratio != DEFAULT_BLOB_GARBAGE_RATIO {
                write!(f, " with at most {ratio} garbage")?;
            }
            if let Some(files) = self.blob_depth_max {
                write!(f, ", up to {files} alternating")?;
            }
        }
        if self.compaction_style != CompactionStyle::Leveled {
            write!(f, ", {}", self.compaction_style)?;
        }
        Ok(())
    }
}

impl fmt::Display for CompactionStyle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Leveled => write!(f, "leveled compaction"),
            Self::SizeTiered(it) => write!(
                f,
                "size-tiered compaction from {} to {} runs with size ratio {} % and space {} %",
                it.merge_runs_min, it.runs_max, it.size_ratio_percent, it.space_percent_max
            ),
            Self::Fifo(fifo) => {
                write!(f, "FIFO compaction to {}", exact_bytes(fifo.bytes_max))?;
                fifo.get_age_max().map_or(Ok(()), |age| write!(f, " and {age:?}"))
            }
        }
    }
}

/// Stored options, formatted as text, or as bytes if they cannot be decoded.
pub(crate) struct StoredOptions<'a>(pub(crate) &'a [u8]);

impl fmt::Display for StoredOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match KeyspaceOptions::decode(self.0) {
            Ok(options) => options.fmt(f),
            Err(error) => write!(f, "options {}: {error}", printable(self.0)),
        }
    }
}

impl fmt::Display for FilterPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.kind == FilterPolicyKind::None || self.bits_per_key == 0.0 {
            return write!(f, "no filters");
        }
        write!(f, "{:?} filters of {} bits a key", self.kind, self.bits_per_key)?;
        match self.memory_bytes_max {
            Some(bytes) => write!(f, " in at most {}", exact_bytes(bytes)),
            None => Ok(()),
        }
    }
}

fn compression(compression: Compression) -> String {
    match compression {
        Compression::None => "no compression".to_owned(),
        Compression::Lz4 => "LZ4".to_owned(),
        Compression::Zstd { level, dictionary_bytes: 0 } => format!("zstd of level {level}"),
        Compression::Zstd { level, dictionary_bytes } => {
            let dictionary = exact_bytes(dictionary_bytes.into());
            format!("zstd of level {level} with dictionaries of {dictionary}")
        }
        other => format!("{other:?}"),
    }
}

/// Returns a number of bytes in the largest unit that divides it.
fn exact_bytes(number: u64) -> String {
    let units = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
    let fits = |&(bits, _): &(u32, &str)| number > 0 && number.trailing_zeros() >= bits;
    match units.into_iter().find(fits) {
        Some((bits, unit)) => format!("{} {unit}", number >> bits),
        None => format!("{number} B"),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{Fifo, HistoryLength, PrefixExtractor, SizeTiered};

    #[test]
    fn options_read_as_words() {
        let new = KeyspaceOptions::new;
        let sizes = "memtables of 32 MiB, tables of 64 MiB, base level of 128 MiB, blocks of 4 KiB";
        let policy = FilterPolicy::new(FilterPolicyKind::Bloom).bits_per_key(7.5);
        let zstd = |dictionary_bytes| Compression::Zstd { level: 9, dictionary_bytes };
        let cases = [
            ("the defaults", new(), "LZ4, Auto filters of 10 bits a key"),
            (
                "a policy",
                new().filter_policy(policy.memory_bytes_max(3 << 10)),
                "LZ4, Bloom filters of 7.5 bits a key in at most 3 KiB",
            ),
            ("no bits", new().filter_policy(policy.bits_per_key(0.0)), "LZ4, no filters"),
            (
                "compression",
                new().compression(Compression::None).bottommost_compression(zstd(4096)),
                "no compression and in the last level zstd of level 9 with dictionaries of 4 KiB, \
                 Auto filters of 10 bits a key",
            ),
            (
                "no dictionary",
                new().compression(zstd(0)),
                "zstd of level 9, Auto filters of 10 bits a key",
            ),
            (
                "filters of scans",
                new()
                    .prefix_extractor(PrefixExtractor::Separator(b':'))
                    .range_filter_bits_per_key(12.5),
                "LZ4, Auto filters of 10 bits a key, prefixes by \"separator:0x3a\", \
                 range filters of 12.5 bits a key",
            ),
            (
                "a merge operator",
                new().merge_operator(std::sync::Arc::new(crate::Counter)),
                "LZ4, Auto filters of 10 bits a key, merge operator \"sieve.counter\"",
            ),
            (
                "a default TTL",
                new().default_ttl(Duration::from_millis(90_500)),
                "LZ4, Auto filters of 10 bits a key, default TTL of 90.5s",
            ),
            (
                "a history by time",
                new().keep_history(HistoryLength::Time(Duration::from_secs(90))),
                "LZ4, Auto filters of 10 bits a key, history of 90s",
            ),
            (
                "a history by number",
                new().keep_history(HistoryLength::Sequences(7)),
                "LZ4, Auto filters of 10 bits a key, history of 7 sequence numbers",
            ),
            (
                "blob files",
                new().blob_value_bytes(4096),
                "LZ4, Auto filters of 10 bits a key, values from 4 KiB in blob files",
            ),
            (
                "garbage",
                new().blob_value_bytes(4096).blob_garbage_ratio(0.25),
                "LZ4, Auto filters of 10 bits a key, values from 4 KiB in blob files with at most \
                 0.25 garbage",
            ),
            (
                "depth",
                new().blob_value_bytes(4096).blob_depth_max(10),
                "LZ4, Auto filters of 10 bits a key, values from 4 KiB in blob files, up to 10 \
                 alternating",
            ),
            (
                "size-tiered",
                new().compaction_style(SizeTiered::new().merge_runs_min(3)),
                "LZ4, Auto filters of 10 bits a key, size-tiered compaction from 3 to 16 runs with \
                 size ratio 150 % and space 200 %",
            ),
            (
                "FIFO",
                new().compaction_style(Fifo::new(3 << 30).age_max(Duration::from_secs(90))),
                "LZ4, Auto filters of 10 bits a key, FIFO compaction to 3 GiB and 90s",
            ),
        ];
        for (name, options, want) in cases {
            assert_eq!(options.to_string(), format!("{sizes}, {want}"), "{name}");
        }
    }

    #[test]
    fn sizes_are_exact() {
        let cases = [
            (0, "0 B"),
            (1023, "1023 B"),
            (1536, "1536 B"),
            (3 << 20, "3 MiB"),
            (5 << 30, "5 GiB"),
        ];
        for (bytes, want) in cases {
            assert_eq!(exact_bytes(bytes), want);
        }
    }
}
