//! Compaction styles of keyspaces.

use std::{ops::RangeInclusive, time::Duration};

/// Allowed values of [`SizeTiered::merge_runs_min`].
const MERGE_RUNS_MIN: RangeInclusive<u64> = 2..=32;
/// Maximum of [`SizeTiered::runs_max`].
const RUNS_MAX: u64 = 256;
/// Allowed values of [`SizeTiered::size_ratio_percent`].
const SIZE_RATIO_PERCENT: RangeInclusive<u64> = 100..=1000;
/// Allowed values of [`SizeTiered::space_percent_max`].
const SPACE_PERCENT_MAX: RangeInclusive<u64> = 10..=10_000;
/// Minimum of [`Fifo::new`].
const FIFO_BYTES_MIN: u64 = 4 << 10;

/// Compaction style of a keyspace:
/// [`KeyspaceOptions::compaction_style`](crate::KeyspaceOptions::compaction_style).
///
/// | style        | writes | lookups and scans  | space                     |
/// |--------------|--------|--------------------|---------------------------|
/// | `Leveled`    | most   | few sorted runs    | least                     |
/// | `SizeTiered` | fewer  | more sorted runs   | up to three times as much |
/// | `Fifo`       | once   | a run per flush    | bounded: deletes data     |
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(tag = "kind"))]
#[non_exhaustive]
pub enum CompactionStyle {
    /// A last level of one sorted run, with few smaller runs above it. An idle store merges most of
    /// these. The default.
    #[default]
    Leveled,
    /// Merges sorted runs of similar size.
    SizeTiered(SizeTiered),
    /// Merges nothing, and **deletes the oldest data**.
    Fifo(Fifo),
}

/// Options of [`CompactionStyle::SizeTiered`].
///
/// Each flush adds a sorted run. A compaction merges [`merge_runs_min`](Self::merge_runs_min) or
/// more runs of similar size that are adjacent in age. So a byte is rewritten about
/// `log(data / memtable)` times, to the base `merge_runs_min`. Similar to universal compaction in
/// RocksDB and `SizeTieredCompactionStrategy` in Cassandra.
///
/// A merge of all runs requires as much free space as the runs take. Keys inserted in ascending
/// order are merged like others. There is no idle compaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[must_use = "options do nothing until a keyspace is opened with them"]
pub struct SizeTiered {
    pub(crate) merge_runs_min: u64,
    pub(crate) runs_max: u64,
    pub(crate) size_ratio_percent: u64,
    pub(crate) space_percent_max: u64,
}

impl Default for SizeTiered {
    fn default() -> Self {
        Self { merge_runs_min: 4, runs_max: 16, size_ratio_percent: 150, space_percent_max: 200 }
    }
}

impl SizeTiered {
    /// Returns the defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Minimum number of sorted runs in the keyspace before a merge, and of runs in a merge by
    /// size. A larger number costs reads, a smaller one writes.
    ///
    /// From 2 to 32; default 4.
    pub fn merge_runs_min(mut self, runs: u64) -> Self {
        self.merge_runs_min = runs;
        self
    }

    /// Maximum number of sorted runs. Above it, the adjacent runs that are cheapest to merge are
    /// merged, regardless of size. From 12 runs above it on, writes are delayed; from 32 on, they
    /// wait for a compaction.
    ///
    /// From [`merge_runs_min`](Self::merge_runs_min) to 256; default 16.
    pub fn runs_max(mut self, runs: u64) -> Self {
        self.runs_max = runs;
        self
    }

    /// Maximum size of the largest run of a merge by size, in percent of the average of the other
    /// runs. A smaller ratio rewrites less and leaves more runs.
    ///
    /// From 100 to 1000; default 150.
    pub fn size_ratio_percent(mut self, percent: u64) -> Self {
        self.size_ratio_percent = percent;
        self
    }

    /// Maximum total size of all runs except the oldest, in percent of the oldest run. Above it,
    /// all runs are merged. This bounds the space amplification: obsolete entries take at most
    /// about this percentage of the size of the oldest run.
    ///
    /// From 10 to 10,000; default 200.
    pub fn space_percent_max(mut self, percent: u64) -> Self {
        self.space_percent_max = percent;
        self
    }

    /// Returns [`merge_runs_min`](Self::merge_runs_min).
    #[must_use]
    pub fn get_merge_runs_min(&self) -> u64 {
        self.merge_runs_min
    }

    /// Returns [`runs_max`](Self::runs_max).
    #[must_use]
    pub fn get_runs_max(&self) -> u64 {
        self.runs_max
    }

    /// Returns [`size_ratio_percent`](Self::size_ratio_percent).
    #[must_use]
    pub fn get_size_ratio_percent(&self) -> u64 {
        self.size_ratio_percent
    }

    /// Returns [`space_percent_max`](Self::space_percent_max).
    #[must_use]
    pub fn get_space_percent_max(&self) -> u64 {
        self.space_percent_max
    }
}

/// Options of [`CompactionStyle::Fifo`].
///
/// **Deletes data**: the oldest tables, when the keyspace exceeds a size or a table exceeds an age.
/// For logs, metrics and caches, whose old entries have no use. Similar to FIFO compaction in
/// RocksDB.
///
/// * Deleted and overwritten values never reappear: an entry is deleted only after all older ones.
///   Compactions rewrite no values, so overwritten entries take space until they are the oldest.
/// * Merge operands are deleted like values: reads then merge the remaining operands.
/// * Deletions are not writes: [`Db::changes`](crate::Db::changes) does not report them. Open
///   snapshots and iterators keep their data and its files. A deleted write still makes a
///   transaction that began before it fail: [`Error::Conflict`](crate::Error::Conflict).
/// * [`compact`](crate::Keyspace::compact) merges nothing, and a
///   [compaction filter](crate::KeyspaceOptions::compaction_filter) sees no values.
/// * A lookup probes the filter of each flush, and a scan merges all flushes. Larger
///   [memtables](crate::KeyspaceOptions::memtable_bytes) cause fewer flushes.
/// * After a change to this style, older tables are deleted one by one, from the deepest level up.
///   By age, a table waits for the younger ones below it: a merge keeps the time of its newest
///   input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[must_use = "options do nothing until a keyspace is opened with them"]
pub struct Fifo {
    pub(crate) bytes_max: u64,
    /// Not 0 in valid options.
    #[cfg_attr(feature = "serde", serde(rename = "age_max", serialize_with = "serialize_ms"))]
    pub(crate) age_max_ms: Option<u64>,
}

impl Fifo {
    /// Returns options that delete the oldest tables while all tables and blob files of the
    /// keyspace exceed `bytes_max` bytes. The newest flush is always kept. Memtables do not count.
    ///
    /// At least 4 KiB.
    pub const fn new(bytes_max: u64) -> Self {
        Self { bytes_max, age_max_ms: None }
    }

    /// Also deletes tables whose entries were all written longer ago than `age`, by the
    /// [store clock](crate::Keyspace::insert_with_ttl); default `None`.
    ///
    /// The age of a table counts from its flush, so entries live longer by their time in a
    /// memtable. More than zero, rounded up to whole milliseconds.
    pub fn age_max(mut self, age: impl Into<Option<Duration>>) -> Self {
        self.age_max_ms = age.into().map(milliseconds);
        self
    }

    /// Returns the size of [`new`](Self::new), in bytes.
    #[must_use]
    pub fn get_bytes_max(&self) -> u64 {
        self.bytes_max
    }

    /// Returns [`age_max`](Self::age_max), rounded up to whole milliseconds.
    #[must_use]
    pub fn get_age_max(&self) -> Option<Duration> {
        self.age_max_ms.map(Duration::from_millis)
    }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

#[cfg(feature = "serde")]
fn serialize_ms<S: serde::Serializer>(ms: &Option<u64>, serializer: S) -> Result<S::Ok, S::Error> {
    serde::Serialize::serialize(&ms.map(Duration::from_millis), serializer)
}

impl From<SizeTiered> for CompactionStyle {
    fn from(options: SizeTiered) -> Self {
        Self::SizeTiered(options)
    }
}

impl From<Fifo> for CompactionStyle {
    fn from(options: Fifo) -> Self {
        Self::Fifo(options)
    }
}

impl CompactionStyle {
    /// Returns the number of sorted runs in level 0 up to which no write is delayed.
    pub(crate) fn level0_runs_allowed(&self) -> usize {
        match self {
            Self::Leveled => 0,
            Self::SizeTiered(tiered) => usize::try_from(tiered.runs_max).unwrap_or(usize::MAX),
            Self::Fifo(_) => usize::MAX,
        }
    }

    /// Checks all options. The error is the name of the first invalid one, with its allowed values.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        match self {
            Self::Leveled => Ok(()),
            Self::SizeTiered(tiered) if !MERGE_RUNS_MIN.contains(&tiered.merge_runs_min) => {
                Err("merge_runs_min from 2 to 32")
            }
            Self::SizeTiered(tiered)
                if !(tiered.merge_runs_min..=RUNS_MAX).contains(&tiered.runs_max) =>
            {
                Err("runs_max from merge_runs_min to 256")
            }
            Self::SizeTiered(tiered)
                if !SIZE_RATIO_PERCENT.contains(&tiered.size_ratio_percent) =>
            {
                Err("size_ratio_percent from 100 to 1000")
            }
            Self::SizeTiered(tiered) if !SPACE_PERCENT_MAX.contains(&tiered.space_percent_max) => {
                Err("space_percent_max from 10 to 10,000")
            }
            Self::Fifo(fifo) if fifo.bytes_max < FIFO_BYTES_MIN => Err("bytes_max from 4 KiB"),
            Self::Fifo(fifo) if fifo.age_max_ms == Some(0) => Err("age_max of more than zero"),
            Self::SizeTiered(_) | Self::Fifo(_) => Ok(()),
        }
    }

    /// Returns the numbers that the manifest stores; empty for the default.
    pub(crate) fn encode(&self) -> Vec<u64> {
        match *self {
            Self::Leveled => Vec::new(),
            Self::SizeTiered(it) => {
                vec![1, it.merge_runs_min, it.runs_max, it.size_ratio_percent, it.space_percent_max]
            }
            Self::Fifo(fifo) => vec![2, fifo.bytes_max, fifo.age_max_ms.unwrap_or(0)],
        }
    }

    /// Reads stored numbers. A number out of range becomes the nearest valid one, an unknown kind
    /// the default.
    pub(crate) fn decode<E>(mut number: impl FnMut() -> Result<u64, E>) -> Result<Self, E> {
        let clamp = |range: &RangeInclusive<u64>, it: u64| it.clamp(*range.start(), *range.end());
        Ok(match number()? {
            1 => {
                let merge_runs_min = clamp(&MERGE_RUNS_MIN, number()?);
                Self::SizeTiered(SizeTiered {
                    merge_runs_min,
                    runs_max: number()?.clamp(merge_runs_min, RUNS_MAX),
                    size_ratio_percent: clamp(&SIZE_RATIO_PERCENT, number()?),
                    space_percent_max: clamp(&SPACE_PERCENT_MAX, number()?),
                })
            }
            2 => Self::Fifo(Fifo {
                bytes_max: number()?.max(FIFO_BYTES_MIN),
                age_max_ms: Some(number()?).filter(|&ms| ms > 0),
            }),
            _ => Self::Leveled,
        })
    }
}
