//! What options say. The names without `get_` belong to what sets them.

use sievedb_sstable::PrefixExtractor;

use super::{Compression, KeyspaceOptions};
use crate::FilterPolicy;

impl KeyspaceOptions {
    /// What [`memtable_bytes`](Self::memtable_bytes) sets.
    #[must_use]
    pub fn get_memtable_bytes(&self) -> usize {
        self.memtable_bytes
    }

    /// What [`table_bytes`](Self::table_bytes) sets.
    #[must_use]
    pub fn get_table_bytes(&self) -> u64 {
        self.table_bytes
    }

    /// What [`base_level_bytes`](Self::base_level_bytes) sets.
    #[must_use]
    pub fn get_base_level_bytes(&self) -> u64 {
        self.base_level_bytes
    }

    /// What [`filter_policy`](Self::filter_policy) sets.
    pub fn get_filter_policy(&self) -> FilterPolicy {
        self.filter_policy
    }

    /// What [`block_bytes`](Self::block_bytes) sets.
    #[must_use]
    pub fn get_block_bytes(&self) -> usize {
        self.block_bytes
    }

    /// What [`compression`](Self::compression) sets.
    #[must_use]
    pub fn get_compression(&self) -> Compression {
        self.compression
    }

    /// What [`bottommost_compression`](Self::bottommost_compression) sets; `None` if the last level
    /// is compressed as the others.
    #[must_use]
    pub fn get_bottommost_compression(&self) -> Option<Compression> {
        self.bottommost_compression
    }

    /// What [`prefix_extractor`](Self::prefix_extractor) sets, if it can be used: of a function
    /// that the store was opened without there is only the [name](Self::get_prefix_extractor_name).
    #[must_use]
    pub fn get_prefix_extractor(&self) -> Option<&PrefixExtractor> {
        self.prefix_extractor.present()
    }

    /// The [name](PrefixExtractor::name) of the prefix extractor, also of one that cannot be used.
    #[must_use]
    pub fn get_prefix_extractor_name(&self) -> Option<String> {
        self.prefix_extractor.name()
    }

    /// What [`range_filter_bits_per_key`](Self::range_filter_bits_per_key) sets.
    #[must_use]
    pub fn get_range_filter_bits_per_key(&self) -> f64 {
        self.range_filter_bits_per_key
    }
}
