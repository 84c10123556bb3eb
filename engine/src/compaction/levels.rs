//! The levels of a keyspace: their tables, bytes and targets.
//!
//! # Targets
//!
//! Levels are sized from the bottom up. The size of the last level is that of the largest level
//! below 0. Each level above has a target of a `fan_out`th of the level below. So the levels above
//! the last add at most about `1 / (fan_out - 1)` to the space, however much data there is. The
//! first level whose target is at most `base_level_bytes_max` is the base level, into which level 0
//! is compacted. The levels between are empty.
//!
//! # Lazy leveling
//!
//! Level 0 holds sorted runs of all sizes, see [`level0`](super::level0). It is compacted into the
//! last level directly up to [`lazy_bases`](LevelOptions::lazy_bases) times the least base level.
//!
//! Above that size, the next level holds one more run: its target is a [`LAZY_PART`]th of the last
//! level, less the bytes of level 0. So it moves down, table by table, as level 0 grows, and level
//! 0 follows as a whole into a level that is almost empty. Each byte is rewritten in the last level
//! about `LAZY_PART` times, not `fan_out` times. A merge takes up to 1.5 times the bytes that level
//! 0 is compacted into directly. So the next level grows to this size, and lazy leveling ends
//! there.
//!
//! Larger levels have a `fan_out` each. An idle store moves these runs down: see
//! [`idle`](super::idle).
//!
//! # Shrinking
//!
//! When the data shrinks, the base level moves down, and the levels above it are emptied. The level
//! just above keeps its data, up to a `fan_out`th of the limit, until the new base level is only
//! half full. So a size that oscillates about the limit does not move data back and forth.
//!
//! # Quarantined tables
//!
//! A quarantined table is never merged, so it and the tables above it are *kept* where they are. A
//! level with kept bytes has a target of at least these, and the levels above are sized from it as
//! from the last level. So later data is still compacted from level to level. Level 0 is compacted
//! into the level above a base level with a quarantined table.
//!
//! Sources: Dong, Callaghan, Galanis, Borthakur, Savor, Strum, "Optimizing Space Amplification in
//! RocksDB", CIDR 2017, section 4; Dayan and Idreos, "Dostoevsky", SIGMOD 2018, section 4.

use std::{collections::HashSet, fmt};

use sievedb_format::TableBounds;

use super::choice::Compaction;
use crate::{
    compaction_style::CompactionStyle,
    keyspace_options::{DEFAULT_TABLE_BYTES, KeyspaceOptions},
    table::TableMeta,
};

/// The deepest level of a keyspace.
pub(crate) const LAST_LEVEL: u8 = 6;

/// [`LevelOptions::lazy_bases`] of every keyspace.
const LAZY_BASES: u64 = 8;
/// Divisor of the last level for the runs above it, if it is too large for merges as a whole.
pub(super) const LAZY_PART: u64 = 3;

/// Options that determine when a level is due.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct LevelOptions {
    /// Sorted runs of level 0 that make it due: see [`level0`](super::level0). More runs cost
    /// reads, fewer cost writes. At least 1; default 4.
    pub(crate) level0_runs: usize,
    /// Largest target of the base level, in bytes. Best about as large as a full level 0: each
    /// compaction rewrites a much smaller base level as a whole, and much of a larger one. At least
    /// 1; default 256 MiB.
    pub(crate) base_level_bytes_max: u64,
    /// Multiple of `base_level_bytes_max` up to which level 0 is compacted into the last level. Up
    /// to [`LAZY_PART`] times that size, it is compacted into the level above. 0 for leveling
    /// alone; default 0, and [`LAZY_BASES`] by [`of`](Self::of).
    pub(crate) lazy_bases: u64,
    /// Size ratio of a level to the one above it. At least 2; default 10.
    pub(crate) fan_out: u64,
    /// Target size of a table, in bytes. At least 1; default [`DEFAULT_TABLE_BYTES`].
    pub(crate) table_bytes: u64,
    /// Most runs that a merge reads, whose buffers have a limit. At least one more than
    /// [`runs_max`](Self::runs_max); no limit by default.
    pub(crate) merged_runs_max: usize,
    /// Default leveled. Others have no targets: their base level is the first with a table, or the
    /// last.
    pub(crate) style: CompactionStyle,
}

impl Default for LevelOptions {
    fn default() -> Self {
        Self {
            level0_runs: 4,
            base_level_bytes_max: 256 << 20,
            lazy_bases: 0,
            fan_out: 10,
            table_bytes: DEFAULT_TABLE_BYTES,
            merged_runs_max: usize::MAX,
            style: CompactionStyle::Leveled,
        }
    }
}

impl LevelOptions {
    pub(crate) fn of(options: &KeyspaceOptions) -> Self {
        let style = options.compaction_style;
        let base_level_bytes_max = match style {
            CompactionStyle::Leveled => options.base_level_bytes,
            _ => u64::MAX,
        };
        Self {
            base_level_bytes_max,
            lazy_bases: LAZY_BASES,
            table_bytes: options.table_bytes,
            style,
            ..Self::default()
        }
    }

    /// Limits the runs of a merge to those whose buffers of `run_bytes` bytes each take at most
    /// `bytes_max` bytes.
    pub(crate) fn limit_merges(&mut self, bytes_max: u64, run_bytes: u64) {
        let runs = usize::try_from(bytes_max / run_bytes.max(1)).unwrap_or(usize::MAX);
        self.merged_runs_max = runs.max(self.runs_max() + 1);
    }

    /// Returns the maximum size of the last level for a direct compaction of level 0 into it.
    fn direct_bytes_max(&self) -> u64 {
        self.base_level_bytes_max.saturating_mul(self.lazy_bases.max(1))
    }
}

/// Tables in key order, no two with a user key in common.
pub(crate) type Run<'a> = Vec<&'a TableMeta>;

/// The tables of a keyspace at one point in time, and the running compactions.
#[derive(Debug)]
pub(crate) struct Levels<'a> {
    /// The sorted runs of level 0, newest first.
    level0: Vec<Run<'a>>,
    /// The runs of level 1 and deeper, empty ones too.
    deeper: Vec<Run<'a>>,
    running: &'a [Compaction],
    /// Ids of the tables that `running` reads.
    busy: HashSet<u64>,
    quarantined: HashSet<u64>,
}

/// The target of each level.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Targets {
    /// Level that level 0 is compacted into.
    pub(crate) base_level: u8,
    /// The base level moves down as level 0 grows.
    pub(crate) is_lazy: bool,
    /// Target of each level, in bytes. 0 for a level that must be emptied. Unused for level 0,
    /// whose runs count, and for the last level, which has no limit.
    bytes: Vec<u64>,
}

impl<'a> Levels<'a> {
    /// Sorts `tables` into levels. `running` are the compactions that are neither installed nor
    /// aborted.
    pub(crate) fn new(
        tables: impl IntoIterator<Item = &'a TableMeta>,
        running: &'a [Compaction],
    ) -> Self {
        let mut all: Vec<&TableMeta> = tables.into_iter().collect();
        // Newer runs of level 0 have larger numbers. All tables of a deeper level have the same run
        // number.
        all.sort_by(|left, right| {
            let place = |table: &TableMeta| (table.level, u64::MAX - table.run);
            place(left).cmp(&place(right)).then_with(|| left.bounds.cmp_starts(&right.bounds))
        });
        let deepest = all.last().map_or(0, |table| table.level).max(LAST_LEVEL);
        let (mut level0, mut deeper) = (Vec::new(), vec![Run::new(); usize::from(deepest)]);
        for run in all.chunk_by(|left, right| (left.level, left.run) == (right.level, right.run)) {
            match run[0].level {
                0 => level0.push(run.to_vec()),
                level => deeper[usize::from(level) - 1].extend(run),
            }
        }
        let busy = running.iter().flat_map(Compaction::tables).collect();
        Self { level0, deeper, running, busy, quarantined: HashSet::new() }
    }

    /// Excludes these tables from merges.
    pub(crate) fn quarantine(mut self, ids: impl IntoIterator<Item = u64>) -> Self {
        self.quarantined.extend(ids);
        self
    }

    /// Returns the sorted runs of level 0, newest first.
    pub(crate) fn level0(&self) -> &[Run<'a>] {
        &self.level0
    }

    /// Returns the sorted run of `level`, from 1 to [`last`](Self::last).
    pub(crate) fn run(&self, level: u8) -> &Run<'a> {
        &self.deeper[usize::from(level) - 1]
    }

    /// Returns the deepest level.
    pub(crate) fn last(&self) -> u8 {
        u8::try_from(self.deeper.len()).expect("level numbers have 8 bits")
    }

    /// Returns the tables of `level`, from 1, that overlap `bounds`.
    pub(crate) fn overlap(&self, level: u8, bounds: &TableBounds) -> &[&'a TableMeta] {
        overlap(self.run(level), bounds)
    }

    /// Returns `true` if a running compaction reads the table.
    pub(crate) fn is_busy(&self, table: &TableMeta) -> bool {
        self.busy.contains(&table.id)
    }

    /// Returns the number of runs of level 0 that running compactions read as a whole.
    pub(crate) fn level0_runs_busy(&self) -> usize {
        let is_held = |run: &&Run<'_>| run.iter().all(|table| self.is_busy(table));
        self.level0.iter().filter(is_held).count()
    }

    pub(super) fn has_quarantined(&self) -> bool {
        !self.quarantined.is_empty()
    }

    /// Returns `true` if the table must not be merged.
    pub(crate) fn is_quarantined(&self, table: &TableMeta) -> bool {
        self.quarantined.contains(&table.id)
    }

    /// Returns `true` if the table of `level`, from 1, must stay: it is quarantined, or overlaps
    /// such a table of the next level.
    fn is_kept(&self, level: u8, table: &TableMeta) -> bool {
        let is_quarantined = |table: &&TableMeta| self.is_quarantined(table);
        is_quarantined(&table)
            || level < self.last()
                && self.overlap(level + 1, &table.bounds).iter().any(is_quarantined)
    }

    /// Returns the bytes of `level`, from 1, that must stay.
    fn kept_bytes(&self, level: u8) -> u64 {
        if self.quarantined.is_empty() {
            return 0;
        }
        bytes(self.run(level).iter().filter(|table| self.is_kept(level, table)))
    }

    /// Returns `true` if a running compaction may write tables within `bounds` into the run of this
    /// level and number.
    pub(super) fn is_blocked(&self, run: (u8, u64), bounds: &TableBounds) -> bool {
        let mut of_run = self.running.iter().filter(|it| (it.output_level, it.output_run) == run);
        of_run.any(|running| running.bounds.overlaps(bounds))
    }

    /// Returns the running compactions.
    pub(crate) fn running(&self) -> &'a [Compaction] {
        self.running
    }

    /// Returns the target of each level.
    pub(crate) fn targets(&self, options: &LevelOptions) -> Targets {
        let largest = self.deeper.iter().map(bytes).max().unwrap_or(0);
        let last = self.last();
        let mut targets = vec![0; self.deeper.len() + 1];
        targets[usize::from(last)] = largest;
        let mut base_level = last;
        let direct_max = options.direct_bytes_max();
        let levels_lazily = options.lazy_bases > 0;
        let is_lazy = levels_lazily && direct_max < largest && largest / LAZY_PART <= direct_max;
        let level0_bytes = bytes(self.level0.iter().flatten());
        let lazy_target = |below: u64| (below / LAZY_PART).saturating_sub(level0_bytes);
        for level in (1..last).rev() {
            let below = targets[usize::from(level) + 1];
            let is_above_last = level + 1 == last;
            let limit = if is_above_last { direct_max } else { options.base_level_bytes_max };
            let of_below = match below <= limit {
                true => 0,
                false if is_above_last && is_lazy => {
                    base_level = level;
                    lazy_target(below)
                }
                // Same value as just below the limit of lazy leveling, so that the debt has no step
                // there.
                false if is_above_last && levels_lazily => direct_max.max(below / options.fan_out),
                false => below / options.fan_out,
            };
            // Level 0 is the only one above.
            let of_below = if is_lazy && !is_above_last { 0 } else { of_below };
            let target = of_below.max(self.kept_bytes(level));
            targets[usize::from(level)] = target;
            if target > 0 {
                base_level = level;
            }
        }
        let target = targets[usize::from(base_level)];
        let limit = if base_level == last { direct_max } else { options.base_level_bytes_max };
        if base_level > 1 && target > limit / 2 && !is_lazy {
            let is_direct = base_level == last && options.lazy_bases > 0;
            targets[usize::from(base_level) - 1] =
                if is_direct { lazy_target(limit) } else { limit / options.fan_out };
        }
        // Level 0 must not be moved below older data.
        let filled = (1..=last).find(|&level| !self.run(level).is_empty());
        let base_level = filled.map_or(base_level, |filled| filled.min(base_level));
        // The level above it is empty. Tables without a quarantined table below move on from there.
        let is_blocked = self.run(base_level).iter().any(|table| self.is_quarantined(table));
        let base_level = if is_blocked { (base_level - 1).max(1) } else { base_level };
        Targets { base_level, is_lazy: is_lazy && base_level + 1 == last, bytes: targets }
    }

    /// Returns the score of a level. A level is due from score 1 on. Busy tables do not count.
    ///
    /// Level 0: its runs divided by [`level0_runs`](LevelOptions::level0_runs). Others: their bytes
    /// divided by their target. A level that must be emptied has the score 1, the least urgent. The
    /// last level is never due.
    pub(crate) fn score(&self, level: u8, options: &LevelOptions, targets: &Targets) -> f64 {
        let idle = |run: &Run<'_>| bytes(run.iter().filter(|table| !self.is_busy(table)));
        if level == 0 {
            let runs = self.level0.iter().filter(|run| run.iter().any(|t| !self.is_busy(t)));
            return runs.count() as f64 / options.level0_runs as f64;
        }
        match (idle(self.run(level)), targets.of(level)) {
            _ if level == self.last() => 0.0,
            (0, _) => 0.0,
            (_, 0) => 1.0,
            (bytes, target) => bytes as f64 / target as f64,
        }
    }

    /// Panics unless every run is in key order without overlap and each table occurs once.
    pub(crate) fn check_invariants(&self) {
        let mut ids = HashSet::new();
        for run in self.level0.iter().chain(&self.deeper) {
            for table in run {
                assert!(!table.bounds.is_empty(), "{} is inverted", Name(table));
                assert!(ids.insert(table.id), "{} occurs twice", Name(table));
            }
            for [left, right] in run.array_windows() {
                let apart = left.bounds.is_before(&right.bounds);
                assert!(apart, "{} overlaps {}", Name(left), Name(right));
            }
        }
    }
}

impl Targets {
    /// Returns the target of `level`, in bytes; 0 if it must be emptied.
    pub(crate) fn of(&self, level: u8) -> u64 {
        self.bytes[usize::from(level)]
    }
}

/// Returns the tables of `run` that overlap `bounds`.
pub(crate) fn overlap<'r, 'a>(
    run: &'r [&'a TableMeta],
    bounds: &TableBounds,
) -> &'r [&'a TableMeta] {
    let first = run.partition_point(|table| table.bounds.is_before(bounds));
    let behind = run.partition_point(|table| !bounds.is_before(&table.bounds));
    &run[first..behind.max(first)]
}

/// Returns the total length of the tables, in bytes.
pub(crate) fn bytes<'t, 'a: 't>(tables: impl IntoIterator<Item = &'t &'a TableMeta>) -> u64 {
    tables.into_iter().fold(0, |sum, table| sum.saturating_add(table.bytes))
}

/// A table in a message.
struct Name<'a>(&'a TableMeta);

impl fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TableMeta { id, level, bounds: TableBounds { smallest, largest, .. }, .. } = self.0;
        write!(f, "L{level} {id}:{}-{}", smallest.escape_ascii(), largest.escape_ascii())
    }
}
