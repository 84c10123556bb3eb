//! `sieve bench open`: time to open a store, with its parts.

use std::{io::Write, path::PathBuf, time::Duration};

use comfy_table::{CellAlignment, Table, presets::ASCII_MARKDOWN};
use serde::Serialize;
use sievedb::{Db, KeyspaceOptions, Options, ReadMode, Stats};
use sievedb_workload::{
    KeySet,
    clock::{now, process_cpu_time},
};

use crate::{
    bench::{
        cold::drop_page_cache, dir::BenchDir, fill_compacted::fill_compacted, output::write_report,
        progress, read_mode::ReadModeArg,
    },
    error::Result,
};

/// Measures the time to open a store, with a warm and with an empty page cache.
///
/// Fills a store, or uses an existing one in `--dir`, and opens it repeatedly. Prints the opening
/// with the median time and its parts.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Minimum number of tables, up to about a billion keys in all.
    #[arg(long, value_name = "COUNT", default_value_t = 1_000,
          value_parser = clap::value_parser!(u64).range(1..=100_000))]
    tables: u64,
    /// Keys per table.
    #[arg(long, value_name = "COUNT", default_value_t = 5_000,
          value_parser = clap::value_parser!(u64).range(100..=1_000_000))]
    keys_per_table: u64,
    /// Log entries to replay in each opening.
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    log_entries: u64,
    /// Measured openings in each state of the page cache, after a warm-up.
    #[arg(long, value_name = "COUNT", default_value_t = 9,
          value_parser = clap::value_parser!(u64).range(1..=1000))]
    rounds: u64,
    /// Read mode of table files: `pread`, `map` or `direct`.
    #[arg(long, value_name = "MODE", default_value_t = ReadModeArg(ReadMode::default()))]
    read_mode: ReadModeArg,
    /// Seed of keys and values.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Directory for the store, which is kept and reused [default: a temporary directory].
    #[arg(long, value_name = "DIRECTORY")]
    dir: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Times of an opening in milliseconds: the total and its parts.
#[derive(Debug, Clone, Copy, Default, Serialize)]
struct Opening {
    open_ms: f64,
    /// CPU time of all threads.
    cpu_ms: f64,
    log_ms: f64,
    replayed_ms: f64,
    tables_ms: f64,
    filters_ms: f64,
    manifest_ms: f64,
    threads: usize,
    read_calls: u64,
    read_bytes: u64,
    filter_bytes: u64,
}

/// Measurement in one state of the page cache.
#[derive(Debug, Serialize)]
struct Case {
    page_cache: String,
    #[serde(flatten)]
    median: Opening,
}

/// All measurements.
#[derive(Debug, Serialize)]
struct Report {
    tables: u64,
    table_bytes: u64,
    read_mode: String,
    rounds: u64,
    cases: Vec<Case>,
}

impl Opening {
    fn new(open: Duration, cpu: Duration, stats: &Stats) -> Self {
        let ms = |duration: Duration| duration.as_secs_f64() * 1e3;
        let parts = stats.opening;
        Self {
            open_ms: ms(open),
            cpu_ms: ms(cpu),
            log_ms: ms(parts.log),
            replayed_ms: ms(parts.replayed),
            tables_ms: ms(parts.tables),
            filters_ms: ms(parts.filters),
            manifest_ms: ms(parts.manifest),
            threads: parts.threads,
            read_calls: stats.table_reads.calls,
            read_bytes: stats.table_reads.bytes,
            filter_bytes: stats.memory.filter_bytes,
        }
    }

    /// Returns the opening with the median total.
    fn median(mut all: Vec<Self>) -> Self {
        all.sort_by(|a, b| a.open_ms.total_cmp(&b.open_ms));
        all.get(all.len() / 2).copied().unwrap_or_default()
    }
}

impl Args {
    pub(crate) fn run(&self, out: &mut dyn Write) -> Result<()> {
        let report = self.measure()?;
        write_report(out, &report, self.json, Report::table)
    }

    fn options(&self) -> Options {
        // No compaction moves tables between two openings.
        let keyspace = KeyspaceOptions::new().table_bytes(self.table_bytes());
        let options = Options::new().keyspace(keyspace).idle_compactions(false);
        options.read_mode(self.read_mode.0).memory_budget(1 << 30)
    }

    /// Returns slightly less than the bytes of a table's keys, for at least the requested tables.
    fn table_bytes(&self) -> u64 {
        (self.keys_per_table * 60).max(4 << 10)
    }

    fn measure(&self) -> Result<Report> {
        let dir = BenchDir::new(self.dir.as_deref())?;
        let path = dir.path().join("open");
        let mut db = self.options().open(&path)?;
        if db.stats().total().tables < self.tables {
            let count = self.tables * self.keys_per_table;
            let keys = KeySet::iins(self.seed, count, 0).stored;
            fill_compacted(&db, &keys, self.seed)?;
        }
        let total = db.stats().total();
        let mut cases = Vec::new();
        for is_cold in [false, true] {
            let progress = progress::bar(self.rounds + 1, "rounds", "openings");
            let (mut openings, mut page_cache) = (Vec::new(), "warm".to_owned());
            for round in 0..=self.rounds {
                self.write_log(&db)?;
                drop(db);
                if is_cold {
                    page_cache = drop_page_cache(&path);
                }
                let (start, cpu) = (now(), process_cpu_time());
                db = self.options().open(&path)?;
                let (open, cpu) = (start.elapsed(), process_cpu_time().saturating_sub(cpu));
                let opening = Opening::new(open, cpu, &db.stats());
                if round > 0 {
                    openings.push(opening);
                }
                progress.inc(1);
            }
            progress.finish_and_clear();
            cases.push(Case { page_cache, median: Opening::median(openings) });
        }
        Ok(Report {
            tables: total.tables,
            table_bytes: total.bytes,
            read_mode: self.read_mode.to_string(),
            rounds: self.rounds,
            cases,
        })
    }

    /// Writes the entries that the next opening replays.
    fn write_log(&self, db: &Db) -> Result<()> {
        for number in 0..self.log_entries {
            db.insert(format!("log {number}"), [b'.'; 100])?;
        }
        Ok(())
    }
}

impl Report {
    fn table(&self) -> String {
        let mut table = Table::new();
        table.load_style(ASCII_MARKDOWN);
        table.set_header([
            "page cache",
            "open ms",
            "CPU ms",
            "log",
            "replayed",
            "tables",
            "filters",
            "manifest",
            "threads",
            "read calls",
            "read KiB",
        ]);
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        for Case { page_cache, median } in &self.cases {
            let ms = |ms: f64| format!("{ms:.2}");
            table.add_row([
                page_cache.clone(),
                ms(median.open_ms),
                ms(median.cpu_ms),
                ms(median.log_ms),
                ms(median.replayed_ms),
                ms(median.tables_ms),
                ms(median.filters_ms),
                ms(median.manifest_ms),
                median.threads.to_string(),
                median.read_calls.to_string(),
                (median.read_bytes >> 10).to_string(),
            ]);
        }
        format!(
            "{} tables, {} MiB in total, read mode {}, median of {} openings\n{table}\n",
            self.tables,
            self.table_bytes >> 20,
            self.read_mode,
            self.rounds
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_is_one_of_the_openings() {
        let of = |open_ms, threads| Opening { open_ms, threads, ..Opening::default() };
        let median = Opening::median(vec![of(3.0, 1), of(1.0, 2), of(2.0, 3)]);
        assert_eq!((median.open_ms, median.threads), (2.0, 3));
    }
}
