//! How full each level is and should be.
//!
//! # Targets
//!
//! Levels are sized from the bottom up: the largest level below 0 is taken for the size that the
//! last level has or will have, and each level above it should hold a `fan_out`th of the one below.
//! So the levels above the last add at most about `1 / (fan_out - 1)` to the space, however much
//! data there is. The ladder ends at the first level whose target is at most
//! `base_level_bytes_max`: the base level, into which level 0 is compacted. The levels between are
//! empty and cost nothing.
//!
//! When the data shrinks the base level moves down. A level just above it keeps what it has, up to
//! a `fan_out`th of the limit, until the new base level is half full only; so a size that swings
//! about the limit does not move data back and forth. Then, and farther up at once, levels are
//! emptied.
//!
//! # Quarantined tables
//!
//! A quarantined table is never merged, so tables above it stay where they are until it is gone:
//! they are *kept*. A level with kept bytes has a target of at least these, and the levels above it
//! are sized from it as from the last level. So data that arrives later is still compacted from
//! level to level. Level 0 is compacted into the level above a base level with a quarantined table.
//!
//! Source of the idea: Dong, Callaghan, Galanis, Borthakur, Savor, Strum, "Optimizing Space
//! Amplification in RocksDB", CIDR 2017, section 4.

use std::{collections::HashSet, fmt};

use sievedb_format::TableBounds;

use super::choice::Compaction;
use crate::{
    keyspace_options::{DEFAULT_TABLE_BYTES, KeyspaceOptions},
    table::TableMeta,
};

/// The deepest level of a keyspace.
pub(crate) const LAST_LEVEL: u8 = 6;

/// When a level is due.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct LevelOptions {
    /// Sorted runs of level 0 that make it due: see [`level0`](super::level0). More runs cost
    /// reads, fewer cost writes. At least 1; default 4.
    pub(crate) level0_runs: usize,
    /// Largest target of the base level, in bytes. Best about as large as a full level 0: a base
    /// level much smaller is rewritten through and through, one much larger for little.
    /// At least 1; default 256 MiB.
    pub(crate) base_level_bytes_max: u64,
    /// How many times larger a level is than the one above it. At least 2; default 10.
    pub(crate) fan_out: u64,
    /// Target size of a table, in bytes. At least 1; default [`DEFAULT_TABLE_BYTES`].
    pub(crate) table_bytes: u64,
}

impl Default for LevelOptions {
    fn default() -> Self {
        Self {
            level0_runs: 4,
            base_level_bytes_max: 256 << 20,
            fan_out: 10,
            table_bytes: DEFAULT_TABLE_BYTES,
        }
    }
}

impl LevelOptions {
    /// When a level of a keyspace is due.
    pub(crate) fn of(options: &KeyspaceOptions) -> Self {
        Self {
            base_level_bytes_max: options.base_level_bytes,
            table_bytes: options.table_bytes,
            ..Self::default()
        }
    }
}

/// Tables in key order, no two with a user key in common.
pub(crate) type Run<'a> = Vec<&'a TableMeta>;

/// The tables of a keyspace at one moment, and the compactions that run on them.
#[derive(Debug)]
pub(crate) struct Levels<'a> {
    /// The sorted runs of level 0, newest first.
    level0: Vec<Run<'a>>,
    /// The runs of level 1 and deeper, empty ones too.
    deeper: Vec<Run<'a>>,
    running: &'a [Compaction],
    /// The tables that `running` reads.
    busy: HashSet<u64>,
    /// The tables that are not read.
    quarantined: HashSet<u64>,
}

/// How many bytes each level should hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Targets {
    /// Where level 0 is compacted to.
    pub(crate) base_level: u8,
    /// By level, in bytes. 0 for a level that is to be emptied. Those of level 0 and of the last
    /// level mean nothing: runs are counted in the one, and the other cannot be too large.
    bytes: Vec<u64>,
}

/// What is left to do, for back-pressure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Debt {
    /// Sorted runs of level 0, those being compacted too.
    pub(crate) level0_runs: usize,
    /// How many of them writers must not wait for, because of quarantined tables: all but the runs
    /// above the newest such table of a group of overlapping tables, of the group with most.
    pub(crate) level0_runs_kept: usize,
    /// Bytes that compactions would write until no level is due, about.
    pub(crate) bytes: u64,
}

impl<'a> Levels<'a> {
    /// Sorts `tables` into levels. `running` are the compactions picked before and not yet
    /// installed or given up.
    pub(crate) fn new(
        tables: impl IntoIterator<Item = &'a TableMeta>,
        running: &'a [Compaction],
    ) -> Self {
        let mut all: Vec<&TableMeta> = tables.into_iter().collect();
        // Newer runs of level 0 have larger numbers; in a level of one run its number is the same.
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

    /// The same, with these tables quarantined: they are not merged.
    pub(crate) fn quarantine(mut self, ids: impl IntoIterator<Item = u64>) -> Self {
        self.quarantined.extend(ids);
        self
    }

    /// The sorted runs of level 0, newest first.
    pub(crate) fn level0(&self) -> &[Run<'a>] {
        &self.level0
    }

    /// The sorted run of `level`, from 1 to [`last`](Self::last).
    pub(crate) fn run(&self, level: u8) -> &Run<'a> {
        &self.deeper[usize::from(level) - 1]
    }

    /// The deepest level.
    pub(crate) fn last(&self) -> u8 {
        u8::try_from(self.deeper.len()).expect("level numbers have 8 bits")
    }

    /// The tables of `level`, from 1, that overlap `bounds`.
    pub(crate) fn overlap(&self, level: u8, bounds: &TableBounds) -> &[&'a TableMeta] {
        overlap(self.run(level), bounds)
    }

    /// Whether a running compaction reads the table.
    pub(crate) fn is_busy(&self, table: &TableMeta) -> bool {
        self.busy.contains(&table.id)
    }

    /// Returns whether the table must not be merged.
    pub(crate) fn is_quarantined(&self, table: &TableMeta) -> bool {
        self.quarantined.contains(&table.id)
    }

    /// Returns whether the table of `level`, from 1, has to stay: it is quarantined, or overlaps
    /// such a table of the next level.
    fn is_kept(&self, level: u8, table: &TableMeta) -> bool {
        let is_quarantined = |table: &&TableMeta| self.is_quarantined(table);
        is_quarantined(&table)
            || level < self.last()
                && self.overlap(level + 1, &table.bounds).iter().any(is_quarantined)
    }

    /// Bytes of `level`, from 1, that have to stay.
    fn kept_bytes(&self, level: u8) -> u64 {
        if self.quarantined.is_empty() {
            return 0;
        }
        bytes(self.run(level).iter().filter(|table| self.is_kept(level, table)))
    }

    /// The compactions in flight.
    pub(crate) fn running(&self) -> &'a [Compaction] {
        self.running
    }

    /// How many bytes each level should hold.
    pub(crate) fn targets(&self, options: &LevelOptions) -> Targets {
        let largest = self.deeper.iter().map(bytes).max().unwrap_or(0);
        let last = self.last();
        let mut targets = vec![0; self.deeper.len() + 1];
        targets[usize::from(last)] = largest;
        let mut base_level = last;
        for level in (1..last).rev() {
            let below = targets[usize::from(level) + 1];
            let of_below =
                if below > options.base_level_bytes_max { below / options.fan_out } else { 0 };
            let target = of_below.max(self.kept_bytes(level));
            targets[usize::from(level)] = target;
            if target > 0 {
                base_level = level;
            }
        }
        let target = targets[usize::from(base_level)];
        if base_level > 1 && target > options.base_level_bytes_max / 2 {
            targets[usize::from(base_level) - 1] = options.base_level_bytes_max / options.fan_out;
        }
        // Nothing of level 0 may sink below older data.
        let filled = (1..=last).find(|&level| !self.run(level).is_empty());
        let base_level = filled.map_or(base_level, |filled| filled.min(base_level));
        // The level above it is empty. What does not meet a quarantined table goes on from there.
        let is_blocked = self.run(base_level).iter().any(|table| self.is_quarantined(table));
        let base_level = if is_blocked { (base_level - 1).max(1) } else { base_level };
        Targets { base_level, bytes: targets }
    }

    /// How due a level is: from 1 on it is. Tables being compacted do not count.
    ///
    /// Level 0: its runs by the runs that make it due. Others: their bytes by their target; 1 for
    /// one that is to be emptied, as this can wait for all others. The last level is never due.
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

    /// What is left to do, compactions in flight included. Bytes of kept tables do not count.
    pub(crate) fn debt(&self, options: &LevelOptions) -> Debt {
        let targets = self.targets(options);
        let level0_runs = self.level0.len();
        let mut debt = 0_u64;
        // What arrives from above, and then has to move on with its share of the next level.
        let mut arriving = 0;
        if level0_runs >= options.level0_runs {
            arriving = self.level0_bytes(targets.base_level, options);
            if arriving > 0 {
                debt = arriving.saturating_add(bytes(self.run(targets.base_level)));
            }
        }
        for level in targets.base_level..self.last() {
            let held = bytes(self.run(level)).saturating_add(arriving);
            let excess = held.saturating_sub(targets.of(level));
            if excess > 0 {
                let below = bytes(self.run(level + 1)) as f64 / held as f64;
                // Saturates, as a cast from a float does.
                let written = (excess as f64 * (1.0 + below)) as u64;
                debt = debt.saturating_add(written);
            }
            arriving = excess;
        }
        let level0_runs_kept = level0_runs - self.level0_runs_free();
        Debt { level0_runs, level0_runs_kept, bytes: debt }
    }

    /// Runs of level 0 that writers may have to wait for.
    fn level0_runs_free(&self) -> usize {
        if self.quarantined.is_empty() {
            return self.level0.len();
        }
        let of_group = |group: &Run<'_>| {
            let quarantined = group.iter().filter(|table| self.is_quarantined(table));
            let newest = quarantined.map(|table| table.run).max();
            let runs = group.iter().map(|table| table.run).filter(|&run| newest < Some(run));
            runs.collect::<HashSet<_>>().len()
        };
        self.level0_groups().iter().map(of_group).max().unwrap_or(0)
    }

    /// Bytes of level 0 that are merged into `base_level` next.
    fn level0_bytes(&self, base_level: u8, options: &LevelOptions) -> u64 {
        let groups = self.level0_groups();
        bytes(groups.iter().filter(|group| self.goes_down(group, base_level, options)).flatten())
    }

    /// Panics unless every run is in key order without overlap and no table is there twice.
    pub(crate) fn check_invariants(&self) {
        let mut ids = HashSet::new();
        for run in self.level0.iter().chain(&self.deeper) {
            for table in run {
                assert!(!table.bounds.is_empty(), "{} is inverted", Name(table));
                assert!(ids.insert(table.id), "{} is there twice", Name(table));
            }
            for [left, right] in run.array_windows() {
                let apart = left.bounds.is_before(&right.bounds);
                assert!(apart, "{} overlaps {}", Name(left), Name(right));
            }
        }
    }
}

impl Targets {
    /// How many bytes `level` should hold; 0 if it should be emptied.
    pub(crate) fn of(&self, level: u8) -> u64 {
        self.bytes[usize::from(level)]
    }
}

/// The tables of `run` that overlap `bounds`.
pub(crate) fn overlap<'r, 'a>(
    run: &'r [&'a TableMeta],
    bounds: &TableBounds,
) -> &'r [&'a TableMeta] {
    let first = run.partition_point(|table| table.bounds.is_before(bounds));
    let behind = run.partition_point(|table| !bounds.is_before(&table.bounds));
    &run[first..behind.max(first)]
}

/// Length of the tables together, in bytes.
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
