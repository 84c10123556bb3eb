//! Sets of options under which the calls run.

use std::{sync::Arc, time::Duration};

use sievedb::{
    Compression, Durability, Fifo, FilterPolicy, FilterPolicyKind, HistoryLength, KeyspaceOptions,
    Options, PrefixExtractor, ReadMode, SizeTiered, clock::Clock, fs::Fs, planted::PlantedBug,
};
use sievedb_tests::settings::{small_keyspace, small_options};

use super::{filter::Filter, model::Style, operator::Operator};

/// A set of options.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OptionSet {
    pub(crate) name: &'static str,
    store: fn(Options) -> Options,
    keyspace: fn(KeyspaceOptions) -> KeyspaceOptions,
    pub(super) has_workers: bool,
    /// Compactions read and write tables, so that they filter entries.
    pub(super) merges: bool,
    /// Default durability of writes.
    pub(super) durability: Durability,
    /// Length of most values, in bytes.
    pub(super) value_bytes: usize,
    /// Operator of the default keyspace.
    operator: Operator,
    /// The default keyspace has a compaction filter. Of other keyspaces every second one has.
    has_filter: bool,
    /// Default TTL of the default keyspace, in milliseconds.
    default_ttl_ms: Option<u64>,
    /// Keyspaces without a compaction filter keep the history of so many sequence numbers.
    pub(super) history: Option<u64>,
}

const PLAIN: OptionSet = OptionSet {
    name: "plain",
    store: |options| options,
    keyspace: |options| options,
    has_workers: false,
    merges: true,
    durability: Durability::OsBuffer,
    value_bytes: 40,
    operator: Operator::Append,
    has_filter: true,
    default_ttl_ms: None,
    history: None,
};

/// All sets.
pub(crate) const SETS: [OptionSet; 13] = [
    PLAIN,
    OptionSet {
        name: "tiny memtables, no cache, maps",
        store: |options| options.block_cache_bytes(0).open_files_max(1).read_mode(ReadMode::Map),
        keyspace: |options| options.blob_value_bytes(100),
        value_bytes: 150,
        operator: Operator::Counter,
        default_ttl_ms: Some(60_000),
        ..PLAIN
    },
    OptionSet {
        name: "no compression, no filters",
        keyspace: |options| {
            options
                .compression(Compression::None)
                .filter_policy(FilterPolicy::new(FilterPolicyKind::None))
                .blob_value_bytes(64)
        },
        operator: Operator::Max,
        has_filter: false,
        history: Some(400),
        ..PLAIN
    },
    OptionSet {
        name: "ribbon filters, a small limit for them",
        store: |options| options.filter_bytes_max(600),
        keyspace: |options| options.filter_policy(policy(FilterPolicyKind::Ribbon, 12.0)),
        operator: Operator::Union,
        ..PLAIN
    },
    OptionSet {
        name: "fuse and range filters, fixed prefixes",
        keyspace: |options| {
            options
                .filter_policy(policy(FilterPolicyKind::Fuse, 9.0))
                .prefix_extractor(PrefixExtractor::FixedLength(4))
                .range_filter_bits_per_key(8.0)
        },
        operator: Operator::Min,
        has_filter: false,
        history: Some(30),
        default_ttl_ms: Some(400_000),
        ..PLAIN
    },
    OptionSet {
        name: "small memory budget, direct reads",
        store: |options| {
            options.block_cache_bytes(64 << 10).memory_budget(8 << 20).read_mode(ReadMode::Direct)
        },
        keyspace: |options| options.blob_value_bytes(64).blob_garbage_ratio(0.05),
        operator: Operator::AppendLines,
        has_filter: false,
        ..PLAIN
    },
    OptionSet {
        name: "many levels",
        keyspace: |options| {
            options.base_level_bytes(4 << 10).table_bytes(4 << 10).blob_value_bytes(300)
        },
        value_bytes: 400,
        ..PLAIN
    },
    OptionSet {
        name: "long values",
        keyspace: |options| {
            options.memtable_bytes(8 << 10).blob_value_bytes(1024).blob_garbage_ratio(0.3)
        },
        value_bytes: 1200,
        ..PLAIN
    },
    OptionSet {
        name: "separators, durable writes",
        keyspace: |options| {
            options
                .prefix_extractor(PrefixExtractor::Separator(b'1'))
                .filter_policy(policy(FilterPolicyKind::Bloom, 3.7))
        },
        durability: Durability::Disk,
        operator: Operator::None,
        ..PLAIN
    },
    OptionSet {
        name: "writes in memory, larger memtables",
        store: |options| options.log_segment_bytes(8 << 10).log_compression(true),
        keyspace: |options| {
            options.memtable_bytes(16 << 10).block_bytes(4 << 10).table_bytes(16 << 10)
        },
        durability: Durability::Memory,
        operator: Operator::Counter,
        ..PLAIN
    },
    OptionSet {
        name: "size-tiered",
        keyspace: |options| {
            let tiered = SizeTiered::new().merge_runs_min(2).runs_max(4);
            options.compaction_style(tiered).blob_value_bytes(100).blob_garbage_ratio(0.1)
        },
        value_bytes: 90,
        default_ttl_ms: Some(300_000),
        ..PLAIN
    },
    OptionSet {
        name: "FIFO with room for everything",
        keyspace: |options| options.compaction_style(Fifo::new(1 << 40)),
        merges: false,
        operator: Operator::Counter,
        has_filter: false,
        ..PLAIN
    },
    OptionSet {
        name: "one worker",
        store: |options| options.worker_threads(1).log_compression(true),
        keyspace: |options| options.blob_value_bytes(64).blob_garbage_ratio(0.2),
        has_workers: true,
        value_bytes: 100,
        ..PLAIN
    },
];

fn policy(kind: FilterPolicyKind, bits_per_key: f64) -> FilterPolicy {
    FilterPolicy::new(kind).bits_per_key(bits_per_key)
}

impl OptionSet {
    pub(super) fn options(
        &self,
        fs: Arc<dyn Fs>,
        clock: Arc<dyn Clock>,
        filter: &Arc<Filter>,
        planted: Option<PlantedBug>,
    ) -> Options {
        let options = small_options(fs)
            .clock(clock)
            .durability(self.durability)
            .compaction_filter(Arc::clone(filter) as _)
            .keyspace(self.keyspace(self.style(), filter));
        let options = (self.store)(options);
        match planted {
            Some(bug) => options.planted_bug(bug),
            None => options,
        }
    }

    /// Returns the options of the default keyspace that the model knows.
    pub(super) fn style(&self) -> Style {
        let Self { operator, has_filter, default_ttl_ms, .. } = *self;
        Style { operator, has_filter, default_ttl_ms }
    }

    /// Returns the options of a keyspace.
    pub(super) fn keyspace(&self, style: Style, filter: &Arc<Filter>) -> KeyspaceOptions {
        let mut options = (self.keyspace)(small_keyspace())
            .default_ttl(style.default_ttl_ms.map(Duration::from_millis));
        if style.has_filter {
            options = options.compaction_filter(Arc::clone(filter) as _);
        } else {
            options = options.keep_history(self.history.map(HistoryLength::Sequences));
        }
        match style.operator.of_engine() {
            Some(operator) => options.merge_operator(operator),
            None => options,
        }
    }
}
