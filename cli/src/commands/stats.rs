//! `sieve stats`.

use std::{
    io::Write,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use serde::Serialize;
use sievedb::{
    Stats,
    fs::RealFs,
    stats::{LevelStats, read_stats_file},
};

use super::{check_store, open_store};
use crate::{
    bench::levels::{Level, levels},
    error::{Error, Result},
};

/// Prints what a store holds and what its filters did: levels, memory, log, keyspaces.
///
/// A store that another process has open is locked. What it writes into its file STATS, if it was opened
/// with `Options::stats_file_interval`, is printed then.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Folder of the store.
    store: PathBuf,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Print what happens in a store that another process has open, every so many seconds.
    ///
    /// Reads the file STATS and nothing else. A store that is closed shows its last figures.
    #[arg(
        long,
        value_name = "SECONDS",
        num_args = 0..=1,
        default_missing_value = "2",
        value_parser = clap::value_parser!(u64).range(1..=86_400),
        conflicts_with = "json"
    )]
    watch: Option<u64>,
    /// End after so many looks.
    #[arg(long, value_name = "LOOKS", requires = "watch")]
    count: Option<u64>,
}

/// A store in numbers.
#[derive(Debug, Serialize)]
struct Report {
    last_sequence: u64,
    lookups: u64,
    log_segments: u64,
    log_bytes: u64,
    filter_memory_bytes: u64,
    index_memory_bytes: u64,
    tables_with_unusable_filters: u64,
    filters_not_whole: u64,
    levels: Vec<LevelReport>,
    total: Filters,
    keyspaces: Vec<Keyspace>,
}

#[derive(Debug, Serialize)]
struct LevelReport {
    #[serde(flatten)]
    level: Level,
    filters: Filters,
}

/// What the filters of a level did, or of all.
#[derive(Debug, Serialize)]
struct Filters {
    bytes: u64,
    bytes_whole: u64,
    unusable: u64,
    not_whole: u64,
    probes: u64,
    negatives: u64,
    true_positives: u64,
    false_positives: u64,
    false_positives_expected: f64,
    false_positive_rate_measured: f64,
    false_positive_rate_expected: f64,
    reads_saved: u64,
    tables_asked_as_not_resident: u64,
    tables_asked_as_unusable: u64,
}

#[derive(Debug, Serialize)]
struct Keyspace {
    name: String,
    runs: u64,
    tables: u64,
    table_bytes: u64,
    entries: u64,
}

impl Args {
    pub(crate) fn run(&self, out: &mut dyn Write) -> Result<()> {
        if let Some(seconds) = self.watch {
            return self.watch(Duration::from_secs(seconds), out);
        }
        let stats = match open_store(&self.store) {
            Ok(db) => db.stats(),
            Err(locked @ Error::Store(sievedb::Error::Locked { .. })) => {
                read_stats_file(&RealFs, &self.store)?.ok_or(locked)?
            }
            Err(error) => return Err(error),
        };
        if self.json {
            let report = Report::of(&stats);
            let json = serde_json::to_string_pretty(&report).expect("numbers and names are JSON");
            writeln!(out, "{json}")?;
        } else {
            write!(out, "{stats}")?;
        }
        Ok(())
    }

    /// Prints all once, and then again and again what happened since.
    fn watch(&self, interval: Duration, out: &mut dyn Write) -> Result<()> {
        check_store(&self.store)?;
        let mut last = load(&self.store)?;
        write!(out, "since the store was opened: {last}")?;
        out.flush()?;
        let mut left = self.count.unwrap_or(u64::MAX).saturating_sub(1);
        while left > 0 {
            left -= 1;
            thread::sleep(interval);
            let now = load(&self.store)?;
            writeln!(out)?;
            if now.open_for < last.open_for {
                write!(out, "the store was opened anew: {now}")?;
            } else if now.open_for == last.open_for {
                writeln!(out, "nothing was written since")?;
            } else {
                write!(out, "in the last {}", now.since(&last))?;
            }
            out.flush()?;
            last = now;
        }
        Ok(())
    }
}

fn load(store: &Path) -> Result<Stats> {
    let stats = read_stats_file(&RealFs, store)?;
    stats.ok_or_else(|| Error::NoStatsFile { path: store.to_owned() })
}

impl Report {
    fn of(stats: &Stats) -> Self {
        let keyspaces = stats.keyspaces.iter().map(|keyspace| Keyspace {
            name: keyspace.name.clone(),
            runs: keyspace.runs,
            tables: keyspace.tables,
            table_bytes: keyspace.table_bytes,
            entries: keyspace.entries,
        });
        let levels = levels(stats).into_iter().map(|level| {
            let filters = Filters::of(&stats.levels[usize::from(level.level)]);
            LevelReport { level, filters }
        });
        Self {
            last_sequence: stats.last_sequence,
            lookups: stats.lookups.lookups,
            log_segments: stats.log_segments,
            log_bytes: stats.log_bytes,
            filter_memory_bytes: stats.memory.filter_bytes,
            index_memory_bytes: stats.memory.index_bytes,
            tables_with_unusable_filters: stats.tables_with_unusable_filters,
            filters_not_whole: stats.filters_not_whole,
            levels: levels.collect(),
            total: Filters::of(&stats.total()),
            keyspaces: keyspaces.collect(),
        }
    }
}

impl Filters {
    fn of(level: &LevelStats) -> Self {
        Self {
            bytes: level.filter_bytes,
            bytes_whole: level.filter_bytes_whole,
            unusable: level.tables_with_unusable_filters,
            not_whole: level.filters_not_whole,
            probes: level.filter_probes(),
            negatives: level.filter_negatives,
            true_positives: level.filter_true_positives,
            false_positives: level.filter_false_positives,
            false_positives_expected: level.false_positives_expected,
            false_positive_rate_measured: level.filter_fpr_measured(),
            false_positive_rate_expected: level.filter_fpr_expected_of_probes(),
            reads_saved: level.reads_saved(),
            tables_asked_as_not_resident: level.filter_not_resident,
            tables_asked_as_unusable: level.filter_unusable,
        }
    }
}
