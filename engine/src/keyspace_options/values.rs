//! Getters, prefixed with `get_` because the setters have the plain names.

use std::time::Duration;

use sievedb_sstable::PrefixExtractor;

use super::{Compression, KeyspaceOptions};
use crate::{CompactionStyle, FilterPolicy, HistoryLength};

impl KeyspaceOptions {
    /// Returns [`memtable_bytes`](Self::memtable_bytes).
    #[must_use]
    pub fn get_memtable_bytes(&self) -> usize {
        self.memtable_bytes
    }

    /// Returns [`table_bytes`](Self::table_bytes).
    #[must_use]
    pub fn get_table_bytes(&self) -> u64 {
        self.table_bytes
    }

    /// Returns [`base_level_bytes`](Self::base_level_bytes).
    #[must_use]
    pub fn get_base_level_bytes(&self) -> u64 {
        self.base_level_bytes
    }

    /// Returns [`filter_policy`](Self::filter_policy).
    pub fn get_filter_policy(&self) -> FilterPolicy {
        self.filter_policy
    }

    /// Returns [`block_bytes`](Self::block_bytes).
    #[must_use]
    pub fn get_block_bytes(&self) -> usize {
        self.block_bytes
    }

    /// Returns [`compression`](Self::compression).
    #[must_use]
    pub fn get_compression(&self) -> Compression {
        self.compression
    }

    /// Returns [`bottommost_compression`](Self::bottommost_compression); `None` for the same as
    /// elsewhere.
    #[must_use]
    pub fn get_bottommost_compression(&self) -> Option<Compression> {
        self.bottommost_compression
    }

    /// Returns [`prefix_extractor`](Self::prefix_extractor), or `None` if its function is missing:
    /// then only its [name](Self::get_prefix_extractor_name) is known.
    #[must_use]
    pub fn get_prefix_extractor(&self) -> Option<&PrefixExtractor> {
        self.prefix_extractor.present()
    }

    /// Returns the [name](PrefixExtractor::name) of the prefix extractor, even if its function is
    /// missing.
    #[must_use]
    pub fn get_prefix_extractor_name(&self) -> Option<String> {
        self.prefix_extractor.name()
    }

    /// Returns the [name](crate::MergeOperator::name) of the
    /// [`merge_operator`](Self::merge_operator); `None` without one.
    #[must_use]
    pub fn get_merge_operator_name(&self) -> Option<&str> {
        self.merge_operator.name()
    }

    /// Returns the [name](crate::CompactionFilter::name) of the compaction filter, even if its
    /// function is missing.
    #[must_use]
    pub fn get_compaction_filter_name(&self) -> Option<&str> {
        self.compaction_filter.name()
    }

    /// Returns [`keep_history`](Self::keep_history).
    #[must_use]
    pub fn get_history(&self) -> Option<HistoryLength> {
        self.history
    }

    /// Returns [`blob_value_bytes`](Self::blob_value_bytes).
    #[must_use]
    pub fn get_blob_value_bytes(&self) -> Option<u64> {
        self.blob_value_bytes
    }

    /// Returns [`blob_garbage_ratio`](Self::blob_garbage_ratio).
    #[must_use]
    pub fn get_blob_garbage_ratio(&self) -> f64 {
        self.blob_garbage_ratio
    }

    /// Returns [`blob_depth_max`](Self::blob_depth_max).
    #[must_use]
    pub fn get_blob_depth_max(&self) -> Option<u64> {
        self.blob_depth_max
    }

    /// Returns [`compaction_style`](Self::compaction_style).
    #[must_use]
    pub fn get_compaction_style(&self) -> CompactionStyle {
        self.compaction_style
    }

    /// Returns [`range_filter_bits_per_key`](Self::range_filter_bits_per_key).
    #[must_use]
    pub fn get_range_filter_bits_per_key(&self) -> f64 {
        self.range_filter_bits_per_key
    }

    /// Returns [`default_ttl`](Self::default_ttl), in whole milliseconds.
    #[must_use]
    pub fn get_default_ttl(&self) -> Option<Duration> {
        self.default_ttl_ms.map(Duration::from_millis)
    }
}
