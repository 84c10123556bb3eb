//! `sieve bench reads`: comparison of the read modes.

use std::{
    io::Write,
    path::{Path, PathBuf},
};

use comfy_table::{CellAlignment, Table, presets::ASCII_MARKDOWN};
use serde::Serialize;
use sievedb::{Compression, Db, KeyspaceOptions, Options, ReadMode, text::bytes};
use sievedb_workload::{
    KeySet, Keys,
    clock::{now, process_cpu_time},
    value_of,
};

use crate::{
    bench::{
        cold::drop_page_cache,
        dir::BenchDir,
        fill_compacted::fill_compacted,
        lookups::{Answers, Expected, RoundKeys, round},
        output::write_report,
        process::{device_bytes, mapped_memory_bytes, own_memory_bytes},
        progress,
        read_mode::ReadModeArg,
    },
    error::{Error, Result},
};

/// Compares the read modes: lookups of random keys and full scans, with a warm and with an empty
/// page cache.
///
/// Fills a store, opens it with each mode in turn, and checks every answer. Prints the median of
/// the rounds. The block cache holds a small part of the tables. Cold reads start with an empty
/// page cache; direct reads never use it.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Number of keys to store.
    #[arg(long, value_name = "COUNT", default_value_t = 2_000_000,
          value_parser = clap::value_parser!(u64).range(10_000..=1_000_000_000))]
    keys_count: u64,
    /// Store blocks uncompressed, so that `map` serves them without a copy.
    #[arg(long)]
    uncompressed: bool,
    /// Size of the block cache, in percent of the tables.
    #[arg(long, value_name = "PERCENT", default_value_t = 5,
          value_parser = clap::value_parser!(u64).range(0..=99))]
    cache_percent: u64,
    /// Warm lookups in a round; a tenth as many are cold.
    #[arg(long, value_name = "COUNT", default_value_t = 50_000,
          value_parser = clap::value_parser!(u64).range(10..=1_000_000))]
    lookups: u64,
    /// Measured rounds.
    #[arg(long, value_name = "COUNT", default_value_t = 3,
          value_parser = clap::value_parser!(u64).range(1..=100))]
    rounds: u64,
    /// Read modes, separated by commas: `pread`, `map`, `direct` [default: all].
    #[arg(long, value_name = "MODES", value_delimiter = ',')]
    read_mode: Vec<ReadModeArg>,
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

/// Figures of one mode in one round: single lookups and full scans.
#[derive(Debug, Clone, Copy, Default, Serialize)]
struct Figures {
    /// Wall-clock time of a cold lookup: median and 99th percentile.
    cold_hit_p50_us: f64,
    cold_hit_p99_us: f64,
    /// Bytes read from the device per cold lookup.
    cold_hit_device_bytes: f64,
    /// With the files in the page cache, unless reads are direct.
    warm_hit_p50_us: f64,
    warm_hit_cpu_us: f64,
    /// Time per entry of a scan.
    cold_scan_ns: f64,
    warm_scan_ns: f64,
    warm_scan_cpu_ns: f64,
    /// At the end of the round: anonymous memory, mapped memory and the block cache.
    own_memory_bytes: f64,
    mapped_memory_bytes: f64,
    block_cache_bytes: f64,
}

#[derive(Debug, Serialize)]
struct Report {
    keys: u64,
    table_bytes: u64,
    compression: &'static str,
    cache_bytes: u64,
    rounds: u64,
    page_cache: String,
    modes: Vec<(String, Figures)>,
}

impl Args {
    pub(crate) fn run(&self, out: &mut dyn Write) -> Result<()> {
        let report = self.measure()?;
        write_report(out, &report, self.json, Report::table)
    }

    fn options(&self) -> Options {
        let keyspace = KeyspaceOptions::new();
        let keyspace =
            if self.uncompressed { keyspace.compression(Compression::None) } else { keyspace };
        Options::new().keyspace(keyspace)
    }

    fn modes(&self) -> Vec<ReadMode> {
        if self.read_mode.is_empty() {
            return vec![ReadMode::Pread, ReadMode::Map, ReadMode::Direct];
        }
        self.read_mode.iter().map(|mode| mode.0).collect()
    }

    fn measure(&self) -> Result<Report> {
        let dir = BenchDir::new(self.dir.as_deref())?;
        let path = dir.path().join(if self.uncompressed { "uncompressed" } else { "reads" });
        let keys = KeySet::iins(self.seed, self.keys_count, 0).stored;
        let db = self.options().open(&path)?;
        if !self.fits(&db, &keys)? {
            return Err(Error::Kept { path });
        }
        if db.stats().total().entries < self.keys_count {
            fill_compacted(&db, &keys, self.seed)?;
        }
        let table_bytes = db.stats().total().bytes;
        drop(db);
        let cache_bytes = table_bytes / 100 * self.cache_percent;
        let modes = self.modes();
        let progress = progress::bar(self.rounds * modes.len() as u64, "rounds", "read modes");
        let mut found: Vec<Vec<Figures>> = vec![Vec::new(); modes.len()];
        let mut page_cache = String::new();
        for number in 0..self.rounds {
            for (mode, found) in modes.iter().zip(&mut found) {
                let options = self.options().read_mode(*mode).block_cache_bytes(cache_bytes);
                let open = || Ok(options.clone().open(&path)?);
                let (figures, dropped) = self.round(&open, &path, &keys, number)?;
                page_cache = dropped;
                found.push(figures);
                progress.inc(1);
            }
        }
        progress.finish_and_clear();
        let modes = modes.into_iter().zip(&found);
        Ok(Report {
            keys: self.keys_count,
            table_bytes,
            compression: if self.uncompressed { "uncompressed" } else { "default compression" },
            cache_bytes,
            rounds: self.rounds,
            page_cache,
            modes: modes.map(|(mode, all)| (ReadModeArg(mode).to_string(), median(all))).collect(),
        })
    }

    /// Returns `true` if the store is empty, or an earlier run has filled it for these arguments.
    fn fits(&self, db: &Db, keys: &Keys) -> Result<bool> {
        let mut key = Vec::new();
        keys.append(0, &mut key);
        Ok(match db.stats().total().entries {
            0 => true,
            entries if entries > self.keys_count => false,
            _ => db.get(&key)?.is_some_and(|value| *value == value_of(&key, self.seed)[..]),
        })
    }

    /// Opens the store three times: for cold lookups, a cold scan, and warm reads.
    fn round(
        &self,
        open: &dyn Fn() -> Result<Db>,
        path: &Path,
        keys: &Keys,
        number: u64,
    ) -> Result<(Figures, String)> {
        let mut figures = Figures::default();
        let count = usize::try_from(self.lookups).unwrap_or(usize::MAX);
        let numbers = |count| keys.shuffled(self.seed + number).take(count);
        let mut answers = Answers::default();
        let expected = Expected::Present { seed: self.seed };

        let db = open()?;
        let dropped = drop_page_cache(path);
        let cold = RoundKeys::new(keys, numbers(count.div_ceil(10)));
        let before = device_bytes();
        let times = round(&cold, expected, &mut answers, |key| db.get(key))?;
        figures.cold_hit_p50_us = times.p50_ns as f64 / 1e3;
        figures.cold_hit_p99_us = times.p99_ns as f64 / 1e3;
        let fetched = device_bytes().zip(before).map_or(0, |(after, before)| after - before);
        figures.cold_hit_device_bytes = fetched as f64 / cold.len() as f64;
        drop(db);

        let db = open()?;
        drop_page_cache(path);
        (figures.cold_scan_ns, _) = self.scan(&db)?;
        drop(db);

        let db = open()?;
        self.scan(&db)?;
        (figures.warm_scan_ns, figures.warm_scan_cpu_ns) = self.scan(&db)?;
        let warm = RoundKeys::new(keys, numbers(count));
        let times = round(&warm, expected, &mut answers, |key| db.get(key))?;
        figures.warm_hit_p50_us = times.p50_ns as f64 / 1e3;
        figures.warm_hit_cpu_us = times.cpu_ns / 1e3;
        figures.own_memory_bytes = own_memory_bytes().unwrap_or(0) as f64;
        figures.mapped_memory_bytes = mapped_memory_bytes().unwrap_or(0) as f64;
        figures.block_cache_bytes = db.stats().memory.block_cache_bytes as f64;
        if answers.first_wrong.is_some() {
            return Err(Error::Faults { count: 1 });
        }
        Ok((figures, dropped))
    }

    /// Returns the wall-clock and CPU time per entry, in ns.
    fn scan(&self, db: &Db) -> Result<(f64, f64)> {
        let (start, cpu) = (now(), process_cpu_time());
        let mut count = 0;
        for entry in db.iter() {
            entry?;
            count += 1;
        }
        if count != self.keys_count {
            return Err(Error::Faults { count: 1 });
        }
        let cpu = process_cpu_time().saturating_sub(cpu);
        let of_entry = |time: std::time::Duration| time.as_nanos() as f64 / count as f64;
        Ok((of_entry(start.elapsed()), of_entry(cpu)))
    }
}

type Field = fn(&mut Figures) -> &mut f64;

/// A row of the table: name, figure, format.
type Row = (&'static str, Field, fn(f64) -> String);

const ROWS: [Row; 11] = [
    ("cold hit, p50, us", |it| &mut it.cold_hit_p50_us, one_digit),
    ("cold hit, p99, us", |it| &mut it.cold_hit_p99_us, one_digit),
    ("cold hit, from the device", |it| &mut it.cold_hit_device_bytes, in_bytes),
    ("warm hit, p50, us", |it| &mut it.warm_hit_p50_us, one_digit),
    ("warm hit, CPU, us", |it| &mut it.warm_hit_cpu_us, one_digit),
    ("cold scan, ns per entry", |it| &mut it.cold_scan_ns, one_digit),
    ("warm scan, ns per entry", |it| &mut it.warm_scan_ns, one_digit),
    ("warm scan, CPU ns per entry", |it| &mut it.warm_scan_cpu_ns, one_digit),
    ("anonymous memory", |it| &mut it.own_memory_bytes, in_bytes),
    ("mapped memory", |it| &mut it.mapped_memory_bytes, in_bytes),
    ("block cache", |it| &mut it.block_cache_bytes, in_bytes),
];

fn one_digit(number: f64) -> String {
    format!("{number:.1}")
}

fn in_bytes(number: f64) -> String {
    bytes(number as u64)
}

/// Returns the median of each figure over the rounds.
fn median(rounds: &[Figures]) -> Figures {
    let mut median = Figures::default();
    for (_, field, _) in ROWS {
        let mut all: Vec<f64> = rounds.iter().map(|figures| *field(&mut { *figures })).collect();
        all.sort_by(f64::total_cmp);
        *field(&mut median) = all.get(all.len() / 2).copied().unwrap_or_default();
    }
    median
}

impl Report {
    fn table(&self) -> String {
        let mut table = Table::new();
        table.load_style(ASCII_MARKDOWN);
        table.set_header(
            std::iter::once("").chain(self.modes.iter().map(|(name, _)| name.as_str())),
        );
        for (name, field, write) in ROWS {
            let cells = self.modes.iter().map(|(_, figures)| write(*field(&mut { *figures })));
            table.add_row(std::iter::once(name.to_owned()).chain(cells));
        }
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        format!(
            "{} keys, tables of {}, {}, block cache of {}; medians of {} rounds.\nPage cache for cold reads: {}.\n\n{table}\n",
            self.keys,
            bytes(self.table_bytes),
            self.compression,
            bytes(self.cache_bytes),
            self.rounds,
            self.page_cache,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_figure_has_its_own_median() {
        let of = |cold_scan_ns, block_cache_bytes| Figures {
            cold_scan_ns,
            block_cache_bytes,
            ..Figures::default()
        };
        let median = median(&[of(1.0, 9.0), of(3.0, 7.0), of(2.0, 8.0)]);
        assert_eq!((median.cold_scan_ns, median.block_cache_bytes), (2.0, 8.0));
    }
}
