//! `sieve stats`.

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use serde::Serialize;
use serde_json::Value;
use sievedb::{
    Stats,
    fs::{Fs as _, RealFs},
    stats::{LevelStats, read_stats_file},
};

use super::{Access, check_store, open_store};
use crate::error::{Error, Result};

/// Name of the file that an open store locks.
const LOCK: &str = "LOCK";
/// Name of the file with the statistics of an open store, for other processes.
const STATS: &str = "STATS";

/// Prints statistics of a store: levels, filters, memory, log, keyspaces.
///
/// A store that another process has open is locked. For such a store, prints its file STATS, which
/// the process writes if it sets the option `stats_file_interval`.
///
/// This command opens a closed store itself: counters start at 0, and filters and memory are those
/// of this command, not of your program.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Directory of the store.
    store: PathBuf,
    /// Print JSON, with the field names of the library. Fields that the file STATS lacks are null.
    #[arg(long)]
    json: bool,
    /// Print the activity of a store that another process has open, at this interval, such as
    /// `--watch=10` [default: 2].
    ///
    /// Reads the file STATS. Exits when the store is closed or its process has ended. For a closed
    /// store, prints the last file STATS, and exits with 2 if there is none.
    #[arg(
        long,
        value_name = "SECONDS",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "2",
        value_parser = clap::value_parser!(u64).range(1..=86_400),
        conflicts_with = "json"
    )]
    watch: Option<u64>,
    /// Exit after printing this many times.
    #[arg(long, value_name = "COUNT", requires = "watch",
          value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
}

impl Args {
    pub(crate) fn run(&self, out: &mut dyn Write) -> Result<()> {
        if let Some(seconds) = self.watch {
            return self.watch(Duration::from_secs(seconds), out);
        }
        let (mut is_open, mut written_ago) = (false, None);
        let stats = match open_store(&self.store, Access::Read) {
            Ok(db) => db.stats(),
            Err(Error::Store(sievedb::Error::Locked { .. })) => {
                (is_open, written_ago) = (true, age_of_stats_file(&self.store));
                load(&self.store)?
            }
            Err(error) => return Err(error),
        };
        if self.json {
            let mut json = json(&stats);
            if is_open {
                // Not in the file STATS.
                for field in ["keyspaces", "quarantined", "opening"] {
                    json[field] = Value::Null;
                }
            }
            json["stats_file_age_seconds"] = written_ago.map(|ago| ago.as_secs_f64()).into();
            writeln!(out, "{json:#}")?;
        } else {
            if is_open {
                let age = written_ago.map(|ago| format!(", {:.1} s old", ago.as_secs_f64()));
                let age = age.unwrap_or_default();
                writeln!(
                    out,
                    "the store is open in another process: statistics of its file STATS{age}"
                )?;
            }
            writeln!(out, "{stats}")?;
        }
        Ok(())
    }

    /// Prints all statistics, then the changes after each `interval`.
    fn watch(&self, interval: Duration, out: &mut dyn Write) -> Result<()> {
        check_store(&self.store)?;
        let mut last = load(&self.store)?;
        writeln!(out, "since the store was opened:\n{last}")?;
        out.flush()?;
        let mut left = self.count.unwrap_or(u64::MAX).saturating_sub(1);
        while left > 0 {
            left -= 1;
            thread::sleep(interval);
            let now = match load(&self.store) {
                // An open removes the file, and writes it once it has read the store.
                Err(Error::NoStatsFile { .. }) if is_open(&self.store) => last.clone(),
                now => now?,
            };
            writeln!(out)?;
            if now.opened_ms != last.opened_ms {
                writeln!(out, "the store was reopened:\n{now}")?;
            } else if now.open_for == last.open_for && !is_open(&self.store) {
                writeln!(out, "the store is closed")?;
                return Ok(());
            } else if now.open_for == last.open_for {
                writeln!(out, "no new statistics were written")?;
            } else {
                let since = now.since(&last);
                writeln!(out, "in the last {:.1} s:\n{since}", since.open_for.as_secs_f64())?;
            }
            out.flush()?;
            last = now;
        }
        Ok(())
    }
}

/// Returns `true` if a process has the store open for writing, or if the state of the lock is
/// unknown.
///
/// Briefly takes the lock of the store, so call it only if the store seems closed.
fn is_open(store: &Path) -> bool {
    match RealFs.lock_shared(&store.join(LOCK)) {
        Ok(_) => false,
        // Another failure does not show that the store is closed.
        Err(error) => error.kind() != io::ErrorKind::NotFound,
    }
}

/// Returns the age of the file STATS, if known.
fn age_of_stats_file(store: &Path) -> Option<Duration> {
    store.join(STATS).metadata().ok()?.modified().ok()?.elapsed().ok()
}

fn load(store: &Path) -> Result<Stats> {
    let stats = read_stats_file(&RealFs, store)?;
    stats.ok_or_else(|| Error::NoStatsFile { path: store.to_owned() })
}

/// Converts statistics to JSON, with the field names of [`Stats`].
///
/// Adds to each level, and to `total`, the results of methods of [`LevelStats`], by their names.
fn json(stats: &Stats) -> Value {
    let mut json = to_value(stats);
    json["levels"] = stats.levels.iter().map(level).collect();
    json["total"] = level(&stats.total());
    json
}

fn level(stats: &LevelStats) -> Value {
    let mut json = to_value(stats);
    json["filter_probes"] = stats.filter_probes().into();
    json["filter_fpr_measured"] = stats.filter_fpr_measured().into();
    json["filter_fpr_expected_of_probes"] = stats.filter_fpr_expected_of_probes().into();
    json["reads_saved"] = stats.reads_saved().into();
    json
}

fn to_value(stats: &impl Serialize) -> Value {
    serde_json::to_value(stats).expect("numbers and names are JSON")
}
