//! Validation of the options of a store.

use std::time::Duration;

use super::{Options, ReadMode};
use crate::{Error, KeyspaceOptions, Result, log_limits::LOG_SEGMENT_BYTES_MIN};

/// Minimum interval: a shorter one costs CPU time without benefit.
const STATS_FILE_INTERVAL_MIN: Duration = Duration::from_millis(10);

/// Minimum interval: a refresh costs about 20 us without writes.
const FOLLOW_INTERVAL_MIN: Duration = Duration::from_millis(1);

impl Options {
    pub(crate) fn validate(&self) -> Result<()> {
        let invalid = |name, allowed| Err(Error::InvalidOption { name, allowed });
        if self.open_files_max == 0 {
            return invalid("open_files_max", "at least 1");
        }
        if self.create_new && self.follow {
            return invalid("create_new", "not together with follow, which creates nothing");
        }
        if self.create_new && self.read_only {
            return invalid("create_new", "not together with read_only, which creates nothing");
        }
        if self.follow_interval.is_some_and(|interval| interval < FOLLOW_INTERVAL_MIN) {
            return invalid("follow_interval", "at least 1 ms");
        }
        if self.memory_pool.is_some() && self.memory.bytes.is_some() {
            return invalid("memory_budget", "cannot be combined with memory_pool");
        }
        if self.memory_pool.is_some() && self.memory.block_cache_bytes.is_some() {
            return invalid("block_cache_bytes", "cannot be combined with memory_pool");
        }
        if self.unlink_bytes_per_second.is_some_and(|bytes| bytes < 1 << 20) {
            return invalid("unlink_bytes_per_second", "at least 1 MiB");
        }
        if self.worker_threads > 64 {
            return invalid("worker_threads", "at most 64");
        }
        if self.keys.is_some() && self.read_mode == ReadMode::Map {
            return invalid("read_mode", "not Map together with encryption");
        }
        if self.keys.is_some() && self.stats_file_interval.is_some() {
            return invalid("stats_file_interval", "not together with encryption");
        }
        if self.stats_file_interval.is_some_and(|interval| interval < STATS_FILE_INTERVAL_MIN) {
            return invalid("stats_file_interval", "at least 10 ms");
        }
        let memtables = self.memory.divide(self.worker_threads)?.memtables;
        let segment_bytes = self.log.segment_bytes(memtables);
        if segment_bytes < LOG_SEGMENT_BYTES_MIN {
            return invalid("log_segment_bytes", "at least 4 KiB");
        }
        if self.log.bytes_max(memtables) / 2 < segment_bytes {
            let allowed = "at least 8 KiB, and twice log_segment_bytes if that is set";
            return invalid("log_bytes_max", allowed);
        }
        self.keyspace.as_ref().map_or(Ok(()), KeyspaceOptions::validate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FilterPolicy;

    #[test]
    fn options_out_of_range_are_named() {
        let with = |keyspace| Options::new().keyspace(keyspace);
        let new = KeyspaceOptions::new;
        let cases = [
            ("log_segment_bytes", Options::new().log_segment_bytes(4095)),
            ("log_bytes_max", Options::new().log_bytes_max(8191)),
            ("log_bytes_max", Options::new().log_bytes_max(8193).log_segment_bytes(4097)),
            ("log_bytes_max", Options::new().log_segment_bytes(u64::MAX)),
            ("open_files_max", Options::new().open_files_max(0)),
            ("create_new", Options::new().create_new(true).read_only(true)),
            ("create_new", Options::new().create_new(true).follow(true)),
            ("follow_interval", Options::new().follow_interval(Duration::from_micros(999))),
            ("unlink_bytes_per_second", Options::new().unlink_bytes_per_second((1 << 20) - 1)),
            ("worker_threads", Options::new().worker_threads(65)),
            ("stats_file_interval", Options::new().stats_file_interval(Duration::from_millis(9))),
            ("memtable_bytes", with(new().memtable_bytes(1))),
            ("table_bytes", with(new().table_bytes(1))),
            ("base_level_bytes", with(new().base_level_bytes(0))),
            (
                "filter_policy.bits_per_key",
                with(new().filter_policy(FilterPolicy::default().bits_per_key(f64::NAN))),
            ),
            ("block_bytes", with(new().block_bytes(1 << 21))),
            (
                "prefix_extractor",
                with(new().prefix_extractor(crate::PrefixExtractor::FixedLength(0))),
            ),
        ];
        for (want, options) in cases {
            match options.validate() {
                Err(Error::InvalidOption { name, .. }) => assert_eq!(name, want),
                other => panic!("{want}: {other:?}"),
            }
        }
        let budgets = [
            Options::new().memory_budget(1 << 20),
            Options::new().memory_budget(64 << 20).block_cache_bytes(1 << 30),
            Options::new().memtable_bytes_max(1 << 10),
            Options::new().memory_budget(256 << 20).memtable_bytes_max(160 << 20),
            Options::new().memory_budget(256 << 20).filter_bytes_max(160 << 20),
        ];
        for options in budgets {
            let refused = options.validate();
            assert!(matches!(refused, Err(Error::BudgetTooSmall { .. })), "{refused:?}");
        }
    }
}
