//! Sweep of the filter memory of an open store.

use std::{thread, time::Duration};

use comfy_table::{CellAlignment, Table, presets::ASCII_MARKDOWN};
use serde::Serialize;
use sievedb::{Db, text::bytes};

use super::{case::Case, chance::is_above, fill::ideal};

/// Filter memory of each step, in percent of that for all bits per key.
pub(crate) const PERCENTS: [u64; 4] = [100, 50, 25, 10];

/// Maximum data-block requests, as a multiple of the planner's prediction.
const PREDICTION_FACTOR: f64 = 1.1;

/// Minimum number of lookups to compare CPU times: fewer are too noisy.
pub(crate) const LOOKUPS_TIMED: u64 = 100_000;

/// Number of alternating measurements with the last step's filters and without filters. On a shared
/// machine, CPU times measured minutes apart can differ by a factor of two.
const TURNS: usize = 3;

/// The filters are complete after this time without a change.
const SETTLE_TIME: Duration = Duration::from_millis(300);

/// Waits until background work is done and the filters match the plan.
///
/// Returns the predicted data-block requests per lookup of an absent key.
pub(crate) fn wait_for_filters(db: &Db) -> sievedb::Result<f64> {
    let memory_and_reads = || {
        let stats = db.stats();
        (stats.memory.filter_bytes, stats.table_reads.bytes)
    };
    let mut before = memory_and_reads();
    loop {
        thread::sleep(SETTLE_TIME);
        db.wait_for_background()?;
        let now = memory_and_reads();
        if now == before {
            return Ok(db.stats().false_positives_planned);
        }
        before = now;
    }
}

/// Measurement with one limit of the filter memory.
#[derive(Debug, Serialize)]
pub(crate) struct Step {
    pub(crate) percent: u64,
    pub(crate) filter_bytes_max: u64,
    pub(crate) filter_memory_bytes: u64,
    pub(crate) lookups: u64,
    /// Data-block requests per lookup of an absent key.
    pub(crate) data_block_requests: f64,
    /// The same, predicted by the planner.
    pub(crate) predicted: f64,
    /// The same with ideal filters of equal memory, optimally divided.
    pub(crate) ideal: f64,
    pub(crate) latency_p50_ns: u64,
    pub(crate) latency_p99_ns: u64,
    pub(crate) cpu_ns: f64,
    /// CPU time without filters, measured alternately with the last step.
    pub(crate) cpu_ns_without: Option<f64>,
}

/// CPU times in ns per lookup of an absent key, from alternating measurements of one store.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Alternating {
    /// With the filters of the last step.
    pub(crate) last_ns: f64,
    /// Without filters.
    pub(crate) without_ns: f64,
}

impl Alternating {
    /// Calls `measure` alternately with `filter_bytes_max` and 0. Keeps the medians.
    pub(crate) fn measure<E>(
        filter_bytes_max: u64,
        mut measure: impl FnMut(u64) -> Result<f64, E>,
    ) -> Result<Self, E> {
        let (mut last, mut without) = ([0.0; TURNS], [0.0; TURNS]);
        for (last, without) in last.iter_mut().zip(&mut without) {
            *last = measure(filter_bytes_max)?;
            *without = measure(0)?;
        }
        let middle = |mut times: [f64; TURNS]| {
            times.sort_by(f64::total_cmp);
            times[TURNS / 2]
        };
        Ok(Self { last_ns: middle(last), without_ns: middle(without) })
    }

    /// Returns a fault if the filters cost CPU time.
    pub(crate) fn fault(self) -> Option<String> {
        let Self { last_ns, without_ns } = self;
        let percent = PERCENTS[PERCENTS.len() - 1];
        (last_ns > without_ns).then(|| {
            format!(
                "{percent} % of the memory: {last_ns:.0} ns of CPU time, {without_ns:.0} ns without filters"
            )
        })
    }
}

impl Step {
    /// Creates a step from `case`: absent keys, with everything in the block cache.
    pub(crate) fn new(
        percent: u64,
        filter_bytes_max: u64,
        predicted: f64,
        case: &Case,
        runs: &[u64],
    ) -> Self {
        let filter_memory_bytes = case.levels.iter().map(|level| level.filter_memory_bytes).sum();
        let keys: u64 = runs.iter().sum();
        let bits = filter_memory_bytes as f64 * 8.0 / keys.max(1) as f64;
        Self {
            percent,
            filter_bytes_max,
            filter_memory_bytes,
            lookups: case.answers.lookups,
            data_block_requests: case.per_lookup(case.counters().data_block_requests),
            predicted,
            ideal: ideal(runs, bits),
            latency_p50_ns: case.times.p50_ns,
            latency_p99_ns: case.times.p99_ns,
            cpu_ns: case.times.cpu_ns,
            cpu_ns_without: None,
        }
    }

    /// Returns all faults; `unfiltered` is the same case without filters.
    pub(crate) fn faults(&self, unfiltered: &Case) -> Vec<String> {
        let Self { percent, filter_memory_bytes, filter_bytes_max, .. } = self;
        let (found, predicted) = (self.data_block_requests, self.predicted);
        let without = unfiltered.per_lookup(unfiltered.counters().data_block_requests);
        let lookups = self.lookups as f64;
        let count = (found * lookups).round() as u64;
        let rows = [
            (
                filter_memory_bytes > filter_bytes_max,
                format!(
                    "filters of {filter_memory_bytes} bytes exceed the limit of {filter_bytes_max}"
                ),
            ),
            (
                is_above(count, PREDICTION_FACTOR * predicted * lookups),
                format!("{found:.5} data-block requests per lookup, predicted {predicted:.5}"),
            ),
            (found > without, format!("{found:.5} data-block requests, {without:.5} without")),
        ];
        let wrong = rows.into_iter().filter(|(is_wrong, _)| *is_wrong);
        wrong.map(|(_, fault)| format!("{percent} % of the memory: {fault}")).collect()
    }
}

/// Formats the sweep as a table.
pub(crate) fn table(sweep: &[Step]) -> String {
    if sweep.is_empty() {
        return String::new();
    }
    let mut table = Table::new();
    table.load_style(ASCII_MARKDOWN);
    table.set_header([
        "Auto, memory",
        "limit",
        "filters",
        "requests",
        "predicted",
        "ideal",
        "p50",
        "CPU",
    ]);
    for step in sweep {
        table.add_row([
            format!("{} %", step.percent),
            bytes(step.filter_bytes_max),
            bytes(step.filter_memory_bytes),
            format!("{:.5}", step.data_block_requests),
            format!("{:.5}", step.predicted),
            format!("{:.5}", step.ideal),
            format!("{} ns", step.latency_p50_ns),
            format!("{:.0} ns", step.cpu_ns),
        ]);
    }
    for column in table.column_iter_mut() {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let without = sweep.iter().filter_map(|step| Some((step.percent, step.cpu_ns_without?)));
    let without: String = without
        .map(|(percent, ns)| {
            format!("CPU time without filters, alternating with {percent} %: {ns:.0} ns\n\n")
        })
        .collect();
    format!(
        "Data-block requests per absent key with decreasing filter memory:\n\n{table}\n\n{without}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::{
        case::{Cache, Filters, KeyKind, Kind, Reads},
        levels::{Counters, Level},
        lookups::{Answers, Times},
    };

    fn case(data_block_requests: u64) -> Case {
        let counters = Counters { data_block_requests, ..Counters::default() };
        let level = Level { counters, filter_memory_bytes: 1000, ..Level::default() };
        Case {
            kind: Kind { filters: Filters::Auto, cache: Cache::All, key_kind: KeyKind::Absent },
            answers: Answers { lookups: 100_000, ..Answers::default() },
            gets: 100_000,
            levels: vec![level],
            reads: Reads { calls: 0, bytes: 0 },
            times: Times::default(),
        }
    }

    #[test]
    fn every_fault_is_reported() {
        // Limit, prediction, requests of 100,000 lookups, fault.
        let cases = [
            ("good", 1000, 0.01, 1_000, ""),
            ("chance", 1000, 0.01, 1_200, ""),
            ("limit", 999, 0.01, 1_000, "1000 bytes exceed the limit of 999"),
            ("prediction", 1000, 0.01, 1_300, "0.01300 data-block requests per lookup"),
            ("worse than none", 1000, 4.0, 300_001, "3.00000 without"),
        ];
        for (name, bound, predicted, requests, want) in cases {
            let step = Step::new(10, bound, predicted, &case(requests), &[900, 100]);
            let faults = step.faults(&case(300_000)).join("\n");
            assert_eq!(faults.is_empty(), want.is_empty(), "{name}: {faults}");
            assert!(faults.contains(want), "{name}: {faults}");
        }
    }

    #[test]
    fn alternating_times_are_compared_by_medians() {
        // Alternating CPU times with and without filters; `true` for a fault.
        let cases = [
            ("faster", [5.0, 10.0, 6.0, 11.0, 4.0, 9.0], false),
            ("other work in one turn", [5.0, 4.0, 60.0, 11.0, 4.0, 9.0], false),
            ("slower", [10.0, 5.0, 11.0, 6.0, 9.0, 90.0], true),
        ];
        for (name, times, is_wrong) in cases {
            let mut next = times.into_iter().zip([7, 0].into_iter().cycle());
            let measure = |bytes| {
                let (time, bound) = next.next().unwrap();
                assert_eq!(bytes, bound, "{name}: in turn");
                Ok::<_, std::convert::Infallible>(time)
            };
            assert_eq!(
                Alternating::measure(7, measure).unwrap().fault().is_some(),
                is_wrong,
                "{name}"
            );
        }
    }

    #[test]
    fn table_has_a_row_for_each_step() {
        let step = Step::new(50, 1 << 20, 0.0125, &case(1_250), &[900, 100]);
        assert!((step.ideal - 0.0054).abs() < 0.0001, "{}", step.ideal);
        let table = table(&[step]);
        assert!(table.contains(" 50 % | 1.0 MiB |"), "{table}");
        assert!(table.contains("0.01250 |   0.01250 |"), "{table}");
    }
}
