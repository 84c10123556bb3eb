//! [`Filter`] for the table filters: their statistics.

use crate::binary_fuse::{BinaryFuse8, BinaryFuse16};
use crate::blocked_bloom::BlockedBloom;
use crate::filter::{Filter, FilterStats};
#[cfg(not(feature = "std"))]
use crate::float::Float;
use crate::line::LINE_BITS;
use crate::ribbon::Ribbon;
use crate::table_filter::TableFilter;

/// Fingerprints that a probe of a binary fuse filter reads.
const FUSE_PROBES: u32 = 3;

/// Delegates probes to the structure's methods, and statistics to a function.
macro_rules! filter_of_table {
    ($($Structure:ty: $stats:expr,)*) => {$(
        impl Filter for $Structure {
            #[inline]
            fn may_contain_hash(&self, hash: u64) -> bool {
                self.may_contain_hash(hash)
            }

            fn memory_bytes(&self) -> usize {
                self.memory_bytes()
            }

            fn expected_fpr(&self) -> f64 {
                self.expected_fpr()
            }

            /// Returns the statistics. `keys` and `keys_estimated` are the number of keys that the
            /// filter was built over. For a blocked Bloom filter `fill` is the share of set bits,
            /// which this method counts. For other filters it is the share that carries
            /// information, `log2(1 / fpr)` bits per key.
            fn stats(&self) -> FilterStats {
                $stats(self)
            }
        }
    )*};
}

filter_of_table! {
    BlockedBloom: blocked_bloom_stats,
    Ribbon: ribbon_stats,
    BinaryFuse8: |filter: &Self| fingerprint_stats(filter, filter.key_count(), FUSE_PROBES),
    BinaryFuse16: |filter: &Self| fingerprint_stats(filter, filter.key_count(), FUSE_PROBES),
    TableFilter: any_stats,
}

fn blocked_bloom_stats(filter: &BlockedBloom) -> FilterStats {
    let bits = filter.lines().len() as u64 * u64::from(LINE_BITS);
    let bytes = filter.lines().iter().flat_map(|line| line.to_bytes());
    let ones: u64 = bytes.map(|byte| u64::from(byte.count_ones())).sum();
    FilterStats {
        bits,
        probes: filter.probes().into(),
        keys: filter.key_count(),
        keys_estimated: filter.key_count() as f64,
        fill: ones as f64 / bits as f64,
        fpr: filter.expected_fpr(),
    }
}

/// Returns the statistics of a ribbon. `probes` is the number of columns, rounded up.
fn ribbon_stats(filter: &Ribbon) -> FilterStats {
    fingerprint_stats(filter, filter.key_count(), filter.columns().ceil() as u32) // At most 32.
}

fn any_stats(filter: &TableFilter) -> FilterStats {
    match filter {
        TableFilter::BlockedBloom(filter) => filter.stats(),
        TableFilter::Ribbon(filter) => filter.stats(),
        TableFilter::BinaryFuse8(filter) => filter.stats(),
        TableFilter::BinaryFuse16(filter) => filter.stats(),
    }
}

/// Returns the statistics of a filter that compares fingerprints.
fn fingerprint_stats(filter: &impl Filter, keys: u64, probes: u32) -> FilterStats {
    let (bits, fpr) = (filter.memory_bytes() as u64 * 8, filter.expected_fpr());
    let fill = (keys as f64 * -fpr.log2() / bits.max(1) as f64).clamp(0.0, 1.0);
    FilterStats { bits, probes, keys, keys_estimated: keys as f64, fill, fpr }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg_attr(miri, ignore = "long loops")]
    #[test]
    fn statistics_match_the_keys() {
        let hashes: Vec<u64> =
            (0..100_000_u64).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15)).collect();
        let cases: [(&str, TableFilter, u32, f64, f64); 4] = [
            ("blocked Bloom", BlockedBloom::build(&hashes, 10.0).into(), 6, 0.45, 0.0097),
            ("ribbon", Ribbon::build(&hashes, 7.0).into(), 7, 0.99, 0.0078),
            ("fuse, 8 bits", BinaryFuse8::build(&hashes).into(), 3, 0.84, 0.0039),
            ("fuse, 16 bits", BinaryFuse16::build(&hashes).into(), 3, 0.84, 0.000_015),
        ];
        for (name, filter, probes, fill, fpr) in cases {
            let stats = Filter::stats(&filter);
            assert_eq!((stats.probes, stats.keys), (probes, 100_000), "{name}");
            assert_eq!(stats.bits, filter.memory_bytes() as u64 * 8, "{name}");
            assert!((stats.fill - fill).abs() < 0.02, "{name}: {stats:?}");
            assert!((stats.fpr / fpr - 1.0).abs() < 0.02, "{name}: {stats:?}");
            assert!(Filter::may_contain_hash(&filter, hashes[7]), "{name}");
            assert!(format!("{filter:?}").len() < 100, "{name}: Debug prints the bits");
        }
    }
}
