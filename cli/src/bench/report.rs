//! Report of `sieve bench misses`, as tables and as JSON.

use comfy_table::{CellAlignment, Table, presets::ASCII_MARKDOWN};
use serde::Serialize;
use sievedb::text::bytes;

use super::{
    case::{Cache, Case, Filters, Kind, Reads},
    levels::{Counters, Level},
    lookups::QUANTILES,
    promise,
    sweep::{self, Step},
    threads::{self, ThreadFigures},
};
use crate::text::count;

/// All measurements.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) setup: Setup,
    pub(crate) stores: Vec<Store>,
    pub(crate) cases: Vec<CaseReport>,
    /// Auto filters with decreasing memory.
    pub(crate) sweep: Vec<Step>,
    /// Concurrent lookups of absent keys, with Auto filters.
    pub(crate) threads: Vec<ThreadFigures>,
    /// Method that emptied the page cache for the cold cases.
    pub(crate) page_cache: String,
    pub(crate) latency_quantiles: Vec<f64>,
    /// Wrong answers and counters, and broken promises. The run fails unless this is empty.
    pub(crate) faults: Vec<String>,
}

/// Parameters of a run.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Setup {
    /// `iin`, `urls` or the path of a file.
    pub(crate) keys: String,
    pub(crate) seed: u64,
    pub(crate) stored: u64,
    pub(crate) value_bytes: u64,
    /// Bytes of stored keys and values.
    pub(crate) data_bytes: u64,
    pub(crate) bits_per_key: f64,
    /// Number of keys of each sorted run, oldest first.
    pub(crate) runs: Vec<u64>,
    /// Data-block requests per lookup of an absent key with ideal filters, optimally divided.
    pub(crate) ideal_requests: f64,
    /// Size of the smaller block cache, in percent of the tables.
    pub(crate) cache_percent: u64,
    pub(crate) rounds: u64,
    pub(crate) lookups_per_round: u64,
    /// Limit for the CPU time of a lookup of an absent key in memory.
    pub(crate) miss_cpu_ns_max: Option<f64>,
}

/// A measured store.
#[derive(Debug, Serialize)]
pub(crate) struct Store {
    pub(crate) filters: &'static str,
    pub(crate) fill_seconds: f64,
    /// Size of the smaller block cache.
    pub(crate) cache_bytes: u64,
    pub(crate) sorted_runs: u64,
    pub(crate) tables: u64,
    pub(crate) table_bytes: u64,
    pub(crate) filter_memory_bytes: u64,
    pub(crate) levels: Vec<Level>,
}

impl Store {
    /// Creates a store. `levels` are those before the first lookup.
    pub(crate) fn new(
        filters: Filters,
        fill_seconds: f64,
        cache_bytes: u64,
        levels: Vec<Level>,
    ) -> Self {
        let sum = |field: fn(&Level) -> u64| levels.iter().map(field).sum();
        Self {
            filters: filters.name(),
            fill_seconds,
            cache_bytes,
            sorted_runs: sum(|level| level.runs),
            tables: sum(|level| level.tables),
            table_bytes: sum(|level| level.table_bytes),
            filter_memory_bytes: sum(|level| level.filter_memory_bytes),
            levels,
        }
    }

    /// Describes the levels that have tables.
    fn shape(&self) -> String {
        let levels = self.levels.iter().filter(|level| level.tables > 0);
        let words = levels.map(|Level { level, runs, tables, entries, .. }| {
            let (runs, tables) = (some(*runs, "run"), some(*tables, "table"));
            format!("L{level} {runs} in {tables} ({} keys)", count(*entries))
        });
        words.collect::<Vec<_>>().join(", ")
    }
}

/// A column of a table.
#[derive(Debug, Serialize)]
pub(crate) struct CaseReport {
    pub(crate) filters: &'static str,
    pub(crate) cache: &'static str,
    pub(crate) key_kind: &'static str,
    pub(crate) lookups: u64,
    pub(crate) candidate_tables_per_lookup: f64,
    pub(crate) data_block_requests_per_lookup: f64,
    pub(crate) index_block_requests_per_lookup: f64,
    pub(crate) physical_reads_per_lookup: f64,
    pub(crate) bytes_read_per_lookup: f64,
    pub(crate) tables_skipped_percent: Option<f64>,
    pub(crate) false_positive_percent: Option<f64>,
    pub(crate) false_positive_percent_expected: Option<f64>,
    pub(crate) latency_p50_ns: u64,
    pub(crate) latency_p99_ns: u64,
    /// Latency at each of `latency_quantiles` of the report.
    pub(crate) latency_ns: Vec<u64>,
    pub(crate) cpu_ns: f64,
    /// Compared with the same lookups with filters off.
    pub(crate) block_requests_saved_percent: Option<f64>,
    pub(crate) reads_saved_percent: Option<f64>,
    pub(crate) bytes_saved_percent: Option<f64>,
    pub(crate) reads: Reads,
    pub(crate) counters: Counters,
    /// Counters of each level.
    pub(crate) levels: Vec<Level>,
}

impl CaseReport {
    /// Creates a column. `unfiltered` is the same case with filters off, if this is another one.
    pub(crate) fn new(case: &Case, unfiltered: Option<&Case>) -> Self {
        let counters = case.counters();
        let rates = case.false_positive_rates();
        let saved = |field: fn(&Case) -> u64| {
            let of = field(unfiltered?);
            (of > 0).then(|| 100.0 * (1.0 - field(case) as f64 / of as f64))
        };
        Self {
            filters: case.kind.filters.name(),
            cache: case.kind.cache.name(),
            key_kind: case.kind.key_kind.name(),
            lookups: case.answers.lookups,
            candidate_tables_per_lookup: case.per_lookup(counters.candidates),
            data_block_requests_per_lookup: case.per_lookup(counters.data_block_requests),
            index_block_requests_per_lookup: case.per_lookup(counters.index_block_requests),
            physical_reads_per_lookup: case.per_lookup(case.reads.calls),
            bytes_read_per_lookup: case.per_lookup(case.reads.bytes),
            tables_skipped_percent: case.skipped().map(|share| 100.0 * share),
            false_positive_percent: rates.map(|(measured, _)| 100.0 * measured),
            false_positive_percent_expected: rates.map(|(_, expected)| 100.0 * expected),
            latency_p50_ns: case.times.p50_ns,
            latency_p99_ns: case.times.p99_ns,
            latency_ns: case.times.quantiles_ns.to_vec(),
            cpu_ns: case.times.cpu_ns,
            block_requests_saved_percent: saved(|case| case.counters().data_block_requests),
            reads_saved_percent: saved(|case| case.reads.calls),
            bytes_saved_percent: saved(|case| case.reads.bytes),
            reads: case.reads,
            counters,
            levels: case.levels.clone(),
        }
    }
}

impl Report {
    /// Creates a report of `cases`, without sweep and threads.
    pub(crate) fn new(setup: Setup, stores: Vec<Store>, cases: &[Case]) -> Self {
        let reports = cases.iter().map(|case| {
            let unfiltered = Kind { filters: Filters::Off, ..case.kind };
            let without = cases.iter().find(|other| other.kind == unfiltered);
            CaseReport::new(case, without.filter(|_| case.kind != unfiltered))
        });
        let reports = reports.collect();
        let mut faults: Vec<_> = cases.iter().flat_map(Case::faults).collect();
        faults.extend(promise::broken(&setup, cases));
        faults.extend(promise::unequal(&setup, &stores));
        faults.extend(promise::misshapen(&setup, &stores));
        let small_data = stores.iter().filter(|store| store.cache_bytes >= store.table_bytes);
        faults.extend(small_data.map(|store| {
            format!("{}: the cache holds all data; it must be smaller", store.filters)
        }));
        Self {
            setup,
            stores,
            cases: reports,
            sweep: Vec::new(),
            threads: Vec::new(),
            page_cache: String::new(),
            latency_quantiles: QUANTILES.to_vec(),
            faults,
        }
    }

    /// Formats the report as text.
    pub(crate) fn table(&self) -> String {
        let Setup { keys, stored, seed, value_bytes, data_bytes, rounds, .. } = &self.setup;
        let mut text = format!(
            "{} keys ({keys}, seed {seed}) with values of {value_bytes} bytes: {} of data.\n\
             Medians of {} of {} different lookups on one thread, after a warm-up round.\n\n",
            count(*stored),
            bytes(*data_bytes),
            some(*rounds, "round"),
            count(self.setup.lookups_per_round),
        );
        text += &format!(
            "Minimum with ideal filters of {} bits per key: {:.5} data-block requests per absent key.\n\n",
            self.setup.bits_per_key, self.setup.ideal_requests
        );
        for cache in [Cache::Part, Cache::All, Cache::Cold] {
            text += &match cache {
                Cache::Part => {
                    format!(
                        "The block cache holds {} % of the tables:\n\n",
                        self.setup.cache_percent
                    )
                }
                Cache::All => "The block cache holds everything:\n\n".to_owned(),
                Cache::Cold => {
                    format!("Only indexes and filters are in memory ({}):\n\n", self.page_cache)
                }
            };
            text += &format!("{}\n\n", self.cases_table(cache));
        }
        text += &sweep::table(&self.sweep);
        text += &threads::table(&self.threads);
        for store in &self.stores {
            text += &format!(
                "{}: {} in {} ({}), {}; cache {}; filled in {:.1} s\n",
                store.filters,
                some(store.sorted_runs, "sorted run"),
                some(store.tables, "table"),
                bytes(store.table_bytes),
                store.shape(),
                bytes(store.cache_bytes),
                store.fill_seconds,
            );
        }
        text += "Physical reads are block-cache misses; the page cache of the operating system may \
                 serve them.\n";
        text
    }

    /// Summarises the result in a line.
    pub(crate) fn verdict(&self) -> String {
        match self.faults.len() as u64 {
            0 => "All answers and counters are correct, and all promises hold.".to_owned(),
            count => format!("{} wrong, listed above.", some(count, "result")),
        }
    }

    /// Formats the cases with this cache as columns, with a row for each available figure.
    fn cases_table(&self, cache: Cache) -> Table {
        let cases: Vec<_> = self.cases.iter().filter(|case| case.cache == cache.name()).collect();
        let mut table = Table::new();
        table.load_style(ASCII_MARKDOWN);
        let names = cases.iter().map(|case| format!("{}\n{}", case.key_kind, case.filters));
        table.set_header(std::iter::once("per lookup".to_owned()).chain(names));
        for (name, cell) in ROWS {
            let cells: Vec<_> = cases.iter().map(|case| cell(case, self)).collect();
            if cells.iter().any(|cell| *cell != none()) {
                table.add_row(std::iter::once((*name).to_owned()).chain(cells));
            }
        }
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        table
    }
}

/// A row of the table: its name and its cell for a case.
type Row = (&'static str, fn(&CaseReport, &Report) -> String);

const ROWS: &[Row] = &[
    ("data-block requests", |case, _| format!("{:.4}", case.data_block_requests_per_lookup)),
    ("index-block requests", |case, _| format!("{:.4}", case.index_block_requests_per_lookup)),
    ("physical reads", |case, _| format!("{:.4}", case.physical_reads_per_lookup)),
    ("bytes read", |case, _| format!("{:.1}", case.bytes_read_per_lookup)),
    ("candidate tables", |case, _| format!("{:.3}", case.candidate_tables_per_lookup)),
    ("tables skipped by filters", |case, _| percent(case.tables_skipped_percent, 2)),
    ("false-positive rate, measured", |case, _| percent(case.false_positive_percent, 3)),
    ("false-positive rate, expected", |case, _| percent(case.false_positive_percent_expected, 3)),
    ("filter memory", |case, report| {
        let store = report.stores.iter().find(|store| store.filters == case.filters);
        store.map_or_else(none, |store| bytes(store.filter_memory_bytes))
    }),
    ("latency p50", |case, _| format!("{} ns", count(case.latency_p50_ns))),
    ("latency p99", |case, _| format!("{} ns", count(case.latency_p99_ns))),
    ("CPU time, mean", |case, _| format!("{:.0} ns", case.cpu_ns)),
    ("data-block requests saved", |case, _| percent(case.block_requests_saved_percent, 2)),
    ("physical reads saved", |case, _| percent(case.reads_saved_percent, 2)),
    ("bytes saved", |case, _| percent(case.bytes_saved_percent, 2)),
];

fn percent(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(none, |value| format!("{value:.digits$} %"))
}

fn none() -> String {
    "–".to_owned()
}

/// Returns `number` with the singular or plural of `thing`.
fn some(number: u64, thing: &str) -> String {
    format!("{} {thing}{}", count(number), if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::{
        case::KeyKind,
        lookups::{Answers, Times},
    };

    fn case(filters: Filters, key_kind: KeyKind, skipped: u64) -> Case {
        let counters = Counters {
            candidates: 300,
            negatives: skipped,
            false_positives: 300 - skipped,
            data_block_requests: 300 - skipped,
            blocks_read: 300 - skipped,
            bytes_read: 4000 * (300 - skipped),
            ..Counters::default()
        };
        let level = Level {
            runs: 3,
            tables: 3,
            entries: 300_000,
            counters,
            table_bytes: 2 << 20,
            filter_memory_bytes: if filters == Filters::Off { 0 } else { 4096 },
            false_positive_rate_expected: 0.01,
            ..Level::default()
        };
        Case {
            kind: Kind { filters, cache: Cache::Part, key_kind },
            answers: Answers { lookups: 100, ..Answers::default() },
            gets: 100,
            reads: Reads { calls: counters.blocks_read, bytes: counters.bytes_read },
            levels: vec![level],
            times: Times { p50_ns: 1200, p99_ns: 3000, cpu_ns: 150.4, ..Times::default() },
        }
    }

    fn report() -> Report {
        let cases =
            [case(Filters::Off, KeyKind::Absent, 0), case(Filters::Bloom, KeyKind::Absent, 297)];
        let setup = Setup {
            keys: "iin".to_owned(),
            seed: 1,
            stored: 2_000_000,
            value_bytes: 100,
            data_bytes: 224_000_000,
            bits_per_key: 10.0,
            runs: vec![1_700_000, 100_000, 100_000, 100_000],
            ideal_requests: 0.0014,
            cache_percent: 10,
            rounds: 1,
            lookups_per_round: 100,
            miss_cpu_ns_max: None,
        };
        let stores = cases
            .each_ref()
            .map(|case| Store::new(case.kind.filters, 1.5, 1 << 20, case.levels.clone()));
        Report::new(setup, stores.into(), &cases)
    }

    #[test]
    fn savings_are_relative_to_filters_off() {
        let report = report();
        assert_eq!(report.faults, Vec::<String>::new());
        let saved = report.cases.iter().map(|case| case.block_requests_saved_percent);
        assert_eq!(saved.collect::<Vec<_>>(), [None, Some(99.0)]);
    }

    #[test]
    fn table_shows_every_row() {
        let table = report().table();
        let rows = [
            ("title", "2,000,000 keys (iin, seed 1) with values of 100 bytes: 213.6 MiB of data."),
            ("requests", "| data-block requests           |      3.0000 |"),
            ("skipped", "| tables skipped by filters     |           – |"),
            ("rate", "1.000 %"),
            ("memory", "4.0 KiB"),
            ("p50", "1,200 ns"),
            ("saved", "99.00 %"),
            ("shape", "filters off: 3 sorted runs in 3 tables (2.0 MiB), L0 3 runs in 3 tables"),
        ];
        for (name, want) in rows {
            assert!(table.contains(want), "{name}:\n{table}");
        }
    }

    #[test]
    fn json_has_the_same_figures() {
        let json = serde_json::to_value(report()).unwrap();
        assert_eq!(json["cases"][1]["data_block_requests_per_lookup"], 0.03);
        assert_eq!(json["cases"][0]["tables_skipped_percent"], serde_json::Value::Null);
        assert_eq!(json["stores"][0]["sorted_runs"], 3);
        assert_eq!(json["setup"]["stored"], 2_000_000);
        assert_eq!(json["faults"], serde_json::json!([]));
    }
}
