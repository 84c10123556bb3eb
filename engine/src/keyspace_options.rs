//! Options of a keyspace.

mod blobs;
mod encoded;
#[cfg(feature = "serde")]
mod serialize;
mod text;
mod values;

use std::{ops::RangeInclusive, sync::Arc, time::Duration};

use sievedb_format::VALUE_BYTES_MAX;
pub use sievedb_sstable::{Compression, DEFAULT_BLOCK_BYTES};
use sievedb_sstable::{InvalidOption, PrefixExtractor, PrefixFunction, TableOptions};

use crate::{
    Error, Result,
    compaction_filter::{CompactionFilter, NamedFilter},
    compaction_style::CompactionStyle,
    filter_policy::{FilterChoice, FilterPolicy, FilterPolicyKind},
    history_length::HistoryLength,
    merge_operator::{MergeOperator, NamedOperator},
    prefix_extractor::NamedExtractor,
    time_to_live::expiry_after,
};

pub(crate) use text::StoredOptions;

/// Name of the default keyspace, which [`Db`](crate::Db) reads and writes directly.
pub const DEFAULT_KEYSPACE: &str = "default";
/// Default of [`KeyspaceOptions::memtable_bytes`].
pub const DEFAULT_MEMTABLE_BYTES: usize = 32 << 20;
/// Default of [`KeyspaceOptions::table_bytes`].
pub const DEFAULT_TABLE_BYTES: u64 = 64 << 20;
/// Default of [`KeyspaceOptions::base_level_bytes`].
pub const DEFAULT_BASE_LEVEL_BYTES: u64 = 128 << 20;

/// Allowed [`KeyspaceOptions::memtable_bytes`].
const MEMTABLE_BYTES: RangeInclusive<usize> = 4 << 10..=16 << 30;
/// Allowed [`KeyspaceOptions::table_bytes`].
const TABLE_BYTES: RangeInclusive<u64> = 4 << 10..=16 << 30;
/// Default of [`KeyspaceOptions::blob_garbage_ratio`].
pub const DEFAULT_BLOB_GARBAGE_RATIO: f64 = 0.4;

/// Allowed [`KeyspaceOptions::blob_value_bytes`].
const BLOB_VALUE_BYTES: RangeInclusive<u64> = 64..=VALUE_BYTES_MAX as u64;
/// Allowed [`KeyspaceOptions::blob_garbage_ratio`].
const BLOB_GARBAGE_RATIO: RangeInclusive<f64> = 0.05..=1.0;
/// Allowed [`KeyspaceOptions::blob_depth_max`].
const BLOB_DEPTH: RangeInclusive<u64> = 1..=1000;
/// Least [`KeyspaceOptions::base_level_bytes`].
const BASE_LEVEL_BYTES_MIN: u64 = 4 << 10;

/// Options of a keyspace, stored in the manifest. `{}` formats them as text. With the feature
/// `serde` they serialize with the names of the methods that set them.
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
    pub(crate) merge_operator: NamedOperator,
    /// Not 0 in valid options.
    pub(crate) default_ttl_ms: Option<u64>,
    pub(crate) compaction_filter: NamedFilter,
    pub(crate) history: Option<HistoryLength>,
    pub(crate) blob_value_bytes: Option<u64>,
    pub(crate) blob_garbage_ratio: f64,
    pub(crate) blob_depth_max: Option<u64>,
    pub(crate) compaction_style: CompactionStyle,
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
            merge_operator: NamedOperator::None,
            default_ttl_ms: None,
            compaction_filter: NamedFilter::None,
            history: None,
            blob_value_bytes: None,
            blob_garbage_ratio: DEFAULT_BLOB_GARBAGE_RATIO,
            blob_depth_max: None,
            compaction_style: CompactionStyle::Leveled,
        }
    }
}

impl KeyspaceOptions {
    /// Returns the defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Size at which a memtable is frozen and flushed, in bytes.
    ///
    /// Larger memtables cause fewer and larger tables. Up to four exist at a time. With a budget of
    /// 1.2 GiB, 64 MiB wrote fewer bytes than the default: 17 % for 3 million random inserts, 28 %
    /// for 5 million. The writing thread took 20 % more CPU time.
    ///
    /// From 4 KiB to 16 GiB; default 32 MiB ([`DEFAULT_MEMTABLE_BYTES`]). Batches in flight may
    /// exceed it.
    pub fn memtable_bytes(mut self, bytes: usize) -> Self {
        self.memtable_bytes = bytes;
        self
    }

    /// Target size of a table file written by a compaction, in bytes.
    ///
    /// From 4 KiB to 16 GiB; default 64 MiB ([`DEFAULT_TABLE_BYTES`]). A table of at least half of
    /// this size ends where a table of the next level ends. A table has at most 1.5 times this
    /// size, plus one block and the versions of one key. It also ends when its buffers reach the
    /// [memory of a worker](crate::Options::memory_budget): 1/8 of the budget, divided by the
    /// number of worker threads.
    pub fn table_bytes(mut self, bytes: u64) -> Self {
        self.table_bytes = bytes;
        self
    }

    /// Unit of the level sizes, in bytes. Level 0 is merged directly into a last level of up to 8
    /// times this size. Up to 24 times, it is merged into the level above the last one. Beyond
    /// that, the level above the last one has 8 times this size, until the last level has 80 times.
    /// With more data, each level is ten times larger than the one above. The first level has at
    /// most this size.
    ///
    /// A smaller unit costs writes; a larger unit costs space during merges. Writes are delayed
    /// when compactions must write more than 16 times this size.
    ///
    /// At least 4 KiB; default 128 MiB ([`DEFAULT_BASE_LEVEL_BYTES`]).
    pub fn base_level_bytes(mut self, bytes: u64) -> Self {
        self.base_level_bytes = bytes;
        self
    }

    /// Kind and size of the filters of tables; default [`FilterPolicyKind::Auto`] with 10 bits per
    /// key on average. Filters of existing tables are rebuilt in the background.
    /// [`Keyspace::set_filter_policy`](crate::Keyspace::set_filter_policy) changes it while the
    /// store is open.
    pub fn filter_policy(mut self, policy: FilterPolicy) -> Self {
        self.filter_policy = policy;
        self
    }

    /// Target size of a data block before compression, in bytes.
    ///
    /// Small blocks read less for a point lookup. Large blocks compress better and shrink the
    /// index.
    ///
    /// From 1 KiB to 1 MiB; default 4 KiB ([`DEFAULT_BLOCK_BYTES`]). Affects new tables only.
    pub fn block_bytes(mut self, bytes: usize) -> Self {
        self.block_bytes = bytes;
        self
    }

    /// Compression of data blocks; default LZ4. Affects new tables only, until
    /// [`compact`](crate::Keyspace::compact) rewrites those with another compression.
    pub fn compression(mut self, compression: Compression) -> Self {
        self.compression = compression;
        self
    }

    /// Compression of data blocks on the last level, which holds most of the data and is written
    /// least; default `None`, the same as elsewhere. [`Compression::ZSTD`], in builds with the
    /// feature `zstd`, suits data that is seldom read.
    ///
    /// Applies to tables that compactions write. Compactions into the last level then always
    /// rewrite tables, instead of moving them: keys inserted in ascending order are written twice.
    /// [`compact`](crate::Keyspace::compact) rewrites existing tables with another compression, but
    /// not with another zstd level or dictionary size, which a table does not record.
    pub fn bottommost_compression(mut self, compression: impl Into<Option<Compression>>) -> Self {
        self.bottommost_compression = compression.into();
        self
    }

    /// Gives tables a filter over the prefixes of their keys; default `None`, no prefix filters.
    /// [`prefix`](crate::Keyspace::prefix), and [`range`](crate::Keyspace::range) within one
    /// prefix, then skip tables without such keys.
    ///
    /// A prefix filter takes the bits of [`filter_policy`](Self::filter_policy) for each distinct
    /// prefix of a table. With [`FilterPolicyKind::None`] or 0 bits there are no prefix filters.
    /// Filters of existing tables are rebuilt in the background; until then they are used if their
    /// extractor has the same name.
    /// [`Keyspace::set_prefix_extractor`](crate::Keyspace::set_prefix_extractor) changes it while
    /// the store is open.
    ///
    /// The name is stored. The function of [`PrefixExtractor::Custom`] is not: pass it to
    /// [`Options::prefix_function`](crate::Options::prefix_function) at each open. Without it
    /// prefix filters are neither probed nor built.
    pub fn prefix_extractor(mut self, extractor: impl Into<Option<PrefixExtractor>>) -> Self {
        self.prefix_extractor =
            extractor.into().map_or(NamedExtractor::None, NamedExtractor::Present);
        self
    }

    /// Bits per key of the range filters of tables; default 0, no range filters. Short
    /// [`range`](crate::Keyspace::range)s and [`prefix`](crate::Keyspace::prefix)es then skip
    /// tables without keys in them.
    ///
    /// The filter maps a key to the 8 bytes after the common prefix of all keys of a table, as a
    /// big-endian number. It uses fewer bytes if the longest key has fewer. The false-positive rate
    /// of an empty range of `n` such numbers is about `n / 2^(bits - 2)`, and at most 7 % higher.
    /// With 12 bits, that is 0.1 % for 1 and 1.6 % for 16. A range between keys that agree in these
    /// bytes is always a false positive. Range filters share the memory limit of all filters.
    ///
    /// 0, or from 4 to 40. Filters of existing tables are built or removed in the background; a
    /// present filter keeps its bits.
    pub fn range_filter_bits_per_key(mut self, bits: f64) -> Self {
        self.range_filter_bits_per_key = bits;
        self
    }

    /// Merge operator of [`Keyspace::merge`](crate::Keyspace::merge). Default none: `merge` fails
    /// with [`Error::NoMergeOperator`].
    ///
    /// The name of the operator is stored. An operator of the application must be passed to
    /// [`Options::merge_operator`](crate::Options::merge_operator) at each open, or the open fails.
    ///
    /// [`Keyspace::set_options`](crate::Keyspace::set_options) can set the operator of a keyspace
    /// that has none. It cannot change or remove an operator, because stored operands require it.
    /// Neither can [`Options::keyspace`](crate::Options::keyspace): the open fails. To change the
    /// operator, copy the entries to a new keyspace.
    pub fn merge_operator(mut self, operator: Arc<dyn MergeOperator>) -> Self {
        self.merge_operator = NamedOperator::new(operator);
        self
    }

    /// Time to live of values that are written without one. More than zero, rounded up to whole
    /// milliseconds; default `None`: values do not expire.
    ///
    /// Applies to `insert` of keyspaces, batches and transactions, and to [ingested
    /// values](crate::Keyspace::ingest). Also applies to conditional writes of absent keys, such as
    /// [`fetch_update`](crate::Keyspace::fetch_update) and
    /// [`Transaction::merge`](crate::Transaction::merge). An existing value keeps its expiry there.
    /// The time counts from the call; in a transaction or an ingest, from its start. Does not apply
    /// to operands of [`Keyspace::merge`](crate::Keyspace::merge), which never expire.
    /// [`insert_without_ttl`](crate::Keyspace::insert_without_ttl) writes a value that does not
    /// expire.
    ///
    /// A change applies to later writes: stored values keep their expiry. Each value is 8 bytes
    /// longer, and each write reads the clock.
    ///
    /// ```
    /// use std::time::Duration;
    /// use sievedb::{Db, KeyspaceOptions, TimeToLive};
    ///
    /// # let dir = tempfile::tempdir().unwrap();
    /// let db = Db::open(dir.path())?;
    /// let hour = KeyspaceOptions::new().default_ttl(Duration::from_secs(3600));
    /// let sessions = db.keyspace_with("sessions", &hour)?;
    /// sessions.insert("anna", "7")?;
    /// assert!(matches!(sessions.ttl("anna")?, Some(TimeToLive::Remaining(_))));
    /// sessions.insert_without_ttl("anna", "7")?;
    /// assert_eq!(sessions.ttl("anna")?, Some(TimeToLive::Unlimited));
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    pub fn default_ttl(mut self, ttl: impl Into<Option<Duration>>) -> Self {
        self.default_ttl_ms = ttl.into().map(|ttl| expiry_after(0, ttl));
        self
    }

    /// Filter that compactions call with the values of this keyspace; default none.
    ///
    /// The name is stored, the function is not: pass it to
    /// [`Options::compaction_filter`](crate::Options::compaction_filter) at each open. Without it
    /// the store opens, and compactions keep all values. The filter can be changed at any time.
    ///
    /// Costs a call for each key that a compaction rewrites. [`compact`](crate::Keyspace::compact)
    /// always rewrites the whole last level.
    pub fn compaction_filter(mut self, filter: Arc<dyn CompactionFilter>) -> Self {
        self.compaction_filter = NamedFilter::Present(filter);
        self
    }

    /// Removes the [compaction filter](Self::compaction_filter).
    pub fn without_compaction_filter(mut self) -> Self {
        self.compaction_filter = NamedFilter::None;
        self
    }

    /// Keeps old versions of keys for reads of the past:
    /// [`Keyspace::snapshot_at`](crate::Keyspace::snapshot_at) and
    /// [`Keyspace::history`](crate::Keyspace::history). Default `None`: only versions visible to a
    /// snapshot are kept.
    ///
    /// The history begins when the keyspace is created with this option, or when the option is set.
    /// A [`clear`](crate::Keyspace::clear) ends the history: earlier versions cannot be read. Other
    /// removals are part of the history.
    ///
    /// Versions older than the history are dropped by later compactions. Until then overwritten and
    /// removed values take space, and scans step over them. Merge operands within the history are
    /// not merged. Each write to the store reads the clock, until the store is opened without a
    /// history. Cannot be combined with a [compaction filter](Self::compaction_filter).
    ///
    /// ```
    /// use sievedb::{Db, HistoryLength, KeyspaceOptions};
    ///
    /// # let dir = tempfile::tempdir().unwrap();
    /// let db = Db::open(dir.path())?;
    /// let options = KeyspaceOptions::new().keep_history(HistoryLength::Sequences(1000));
    /// let prices = db.keyspace_with("prices", &options)?;
    /// prices.insert("tea", "3")?;
    /// let before = db.snapshot().sequence();
    /// prices.insert("tea", "4")?;
    /// assert_eq!(prices.snapshot_at(before)?.get("tea")?, Some("3".into()));
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    pub fn keep_history(mut self, length: impl Into<Option<HistoryLength>>) -> Self {
        self.history = length.into().map(HistoryLength::rounded);
        self
    }

    /// Compaction style; default [`CompactionStyle::Leveled`].
    ///
    /// A change takes effect at the next compaction and rewrites nothing by itself.
    /// [`CompactionStyle::Fifo`] deletes data, and cannot be combined with a
    /// [history](Self::keep_history).
    ///
    /// ```
    /// use sievedb::{Db, Fifo, KeyspaceOptions, SizeTiered};
    ///
    /// # let dir = tempfile::tempdir().unwrap();
    /// let db = Db::open(dir.path())?;
    /// let events = KeyspaceOptions::new().compaction_style(SizeTiered::new());
    /// db.keyspace_with("events", &events)?;
    /// let recent = KeyspaceOptions::new().compaction_style(Fifo::new(10 << 30));
    /// db.keyspace_with("recent", &recent)?;
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    pub fn compaction_style(mut self, style: impl Into<CompactionStyle>) -> Self {
        self.compaction_style = style.into();
        self
    }

    pub(crate) fn validate(&self) -> Result<()> {
        let invalid = |name, allowed| Err(Error::InvalidOption { name, allowed });
        if !MEMTABLE_BYTES.contains(&self.memtable_bytes) {
            return invalid("memtable_bytes", "from 4 KiB to 16 GiB");
        }
        if !TABLE_BYTES.contains(&self.table_bytes) {
            return invalid("table_bytes", "from 4 KiB to 16 GiB");
        }
        if self.base_level_bytes < BASE_LEVEL_BYTES_MIN {
            return invalid("base_level_bytes", "at least 4 KiB");
        }
        let bottommost = self.bottommost_compression.unwrap_or_default();
        for (name, compression) in
            [("compression", self.compression), ("bottommost_compression", bottommost)]
        {
            compression.check().or_else(|allowed| invalid(name, allowed))?;
        }
        if !self.merge_operator.is_valid() {
            let allowed = "a name of 1 to 255 bytes that does not begin with \"sieve.\"";
            return invalid("merge_operator", allowed);
        }
        if self.default_ttl_ms == Some(0) {
            return invalid("default_ttl", "more than zero");
        }
        if !self.compaction_filter.is_valid() {
            return invalid("compaction_filter", "a name of 1 to 255 bytes");
        }
        if self.history.is_some_and(|length| !length.is_valid()) {
            return invalid("keep_history", "more than zero");
        }
        if self.history.is_some() && self.compaction_filter.name().is_some() {
            return invalid("keep_history", "not beside a compaction filter");
        }
        self.compaction_style.check().or_else(|allowed| invalid("compaction_style", allowed))?;
        if self.history.is_some() && matches!(self.compaction_style, CompactionStyle::Fifo(_)) {
            return invalid("keep_history", "not beside CompactionStyle::Fifo");
        }
        if self.blob_value_bytes.is_some_and(|bytes| !BLOB_VALUE_BYTES.contains(&bytes)) {
            return invalid("blob_value_bytes", "from 64 bytes to 256 MiB");
        }
        if !BLOB_GARBAGE_RATIO.contains(&self.blob_garbage_ratio) {
            return invalid("blob_garbage_ratio", "from 0.05 to 1");
        }
        if self.blob_depth_max.is_some_and(|files| !BLOB_DEPTH.contains(&files)) {
            return invalid("blob_depth_max", "from 1 to 1,000");
        }
        let bits = self.filter_policy.bits_per_key;
        let mut tables = TableOptions::new()
            .block_bytes(self.block_bytes)
            .filter_bits_per_key(bits)
            .range_filter_bits_per_key(self.range_filter_bits_per_key);
        if let Some(extractor) = self.prefix_extractor.present() {
            tables = tables.prefix_filter(extractor.clone(), bits);
        }
        tables.validate().or_else(|InvalidOption { name, allowed }| match name {
            "filter_bits_per_key" => invalid("filter_policy.bits_per_key", allowed),
            _ => invalid(name, allowed),
        })
    }

    /// Returns these options with the missing function of a prefix extractor, if it is one of
    /// `functions`.
    pub(crate) fn with_functions(mut self, functions: &[Arc<dyn PrefixFunction>]) -> Self {
        if let NamedExtractor::Missing(name) = &self.prefix_extractor {
            self.prefix_extractor = NamedExtractor::from_name(name, functions);
        }
        self
    }

    /// Returns these options with the missing merge operator, if it is one of `registered`.
    pub(crate) fn with_operators(mut self, registered: &[Arc<dyn MergeOperator>]) -> Self {
        if let NamedOperator::Missing(name) = &self.merge_operator {
            self.merge_operator = NamedOperator::from_name(name, registered);
        }
        self
    }

    /// Returns these options with the missing compaction filter, if it is one of `registered`.
    pub(crate) fn with_filters(mut self, registered: &[Arc<dyn CompactionFilter>]) -> Self {
        if let NamedFilter::Missing(name) = &self.compaction_filter {
            self.compaction_filter = NamedFilter::from_name(name, registered);
        }
        self
    }

    /// Returns these options for the tables of the last level.
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
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
