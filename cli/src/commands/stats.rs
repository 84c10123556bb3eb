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

use super::{Purpose, check_store, open_store};
use crate::error::{Error, Result};

/// File that an open store has locked.
const LOCK: &str = "LOCK";
/// File that a store writes for other processes.
const STATS: &str = "STATS";

/// Prints what a store holds and what its filters did: levels, memory, log, keyspaces.
///
/// A store that another process has open is locked. Then its file STATS is printed, which a program
/// writes if it sets the option `stats_file_interval` of the library.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Directory of the store.
    store: PathBuf,
    /// Print JSON, with the names that the library has for the figures.
    #[arg(long)]
    json: bool,
    /// Print what happens in a store that another process has open, every so many seconds, such as
    /// `--watch=10` [default: 2].
    ///
    /// Reads the file STATS. Ends when the store is closed, or its process is gone; one that was
    /// closed before shows its last figures.
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
    /// End after so many looks.
    #[arg(long, value_name = "LOOKS", requires = "watch")]
    count: Option<u64>,
}

impl Args {
    pub(crate) fn run(&self, out: &mut dyn Write) -> Result<()> {
        if let Some(seconds) = self.watch {
            return self.watch(Duration::from_secs(seconds), out);
        }
        let (mut is_open, mut written_ago) = (false, None);
        let stats = match open_store(&self.store, Purpose::Read) {
            Ok(db) => db.stats(),
            Err(Error::Store(sievedb::Error::Locked { .. })) => {
                (is_open, written_ago) = (true, age_of_stats_file(&self.store));
                load(&self.store)?
            }
            Err(error) => return Err(error),
        };
        if self.json {
            let mut json = json(&stats);
            json["stats_file_age_seconds"] = written_ago.map(|ago| ago.as_secs_f64()).into();
            writeln!(out, "{json:#}")?;
        } else {
            if is_open {
                let age = written_ago.map(|ago| format!(", {:.1} s old", ago.as_secs_f64()));
                let age = age.unwrap_or_default();
                writeln!(out, "The store is open: these are the figures of its file STATS{age}.")?;
            }
            writeln!(out, "{stats}")?;
        }
        Ok(())
    }

    /// Prints all once, and then again and again what happened since.
    fn watch(&self, interval: Duration, out: &mut dyn Write) -> Result<()> {
        check_store(&self.store)?;
        let mut last = load(&self.store)?;
        writeln!(out, "since the store was opened:\n{last}")?;
        out.flush()?;
        let mut left = self.count.unwrap_or(u64::MAX).saturating_sub(1);
        while left > 0 {
            left -= 1;
            thread::sleep(interval);
            let now = load(&self.store)?;
            writeln!(out)?;
            if now.open_for < last.open_for {
                writeln!(out, "the store was opened anew:\n{now}")?;
            } else if now.open_for == last.open_for && !is_open(&self.store) {
                writeln!(out, "nobody has the store open any more")?;
                return Ok(());
            } else if now.open_for == last.open_for {
                writeln!(out, "nothing was written since")?;
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

/// Whether a process has the store open that writes. Asked only when it seems not to: to look takes
/// its lock for a moment.
fn is_open(store: &Path) -> bool {
    match RealFs.lock_shared(&store.join(LOCK)) {
        Ok(_) => false,
        // Any other failure says nothing.
        Err(error) => error.kind() != io::ErrorKind::NotFound,
    }
}

/// How long ago the file of statistics was written, if that can be told.
fn age_of_stats_file(store: &Path) -> Option<Duration> {
    store.join(STATS).metadata().ok()?.modified().ok()?.elapsed().ok()
}

fn load(store: &Path) -> Result<Stats> {
    let stats = read_stats_file(&RealFs, store)?;
    stats.ok_or_else(|| Error::NoStatsFile { path: store.to_owned() })
}

/// Statistics as JSON, by the names of the fields of [`Stats`]; to each level, and to `total`, the
/// figures are added that [`LevelStats`] computes, by the names of its methods.
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
