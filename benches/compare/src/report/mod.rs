//! The report: JSON for programs, Markdown tables for people.

mod table;

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use crate::{
    case::{Case, Workload},
    contestant::Contestant,
    figures::{Figures, Measurement},
    machine::Machine,
    promises::{self, Promise, Topic},
    settings::{Settings, data_bytes},
};

/// All measurements and their conditions.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Report {
    pub(crate) command: String,
    pub(crate) machine: Machine,
    pub(crate) settings: Settings,
    /// Topic of a run of promises.
    #[serde(default)]
    pub(crate) topic: Option<Topic>,
    /// Failures in words.
    pub(crate) failures: Vec<String>,
    pub(crate) promises: Vec<Promise>,
    pub(crate) medians: Vec<Median>,
    pub(crate) measurements: Vec<Measurement>,
}

/// The part of a report that a resumed run needs.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Saved {
    pub(crate) settings: Settings,
    pub(crate) measurements: Vec<Measurement>,
}

/// Medians of the rounds of a case on a contestant.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Median {
    pub(crate) case: Case,
    pub(crate) contestant: Contestant,
    pub(crate) rounds: usize,
    /// Shape in the last round.
    pub(crate) shape: String,
    pub(crate) figures: Figures,
    /// Cost of an operation over that of SieveDB, if it was measured.
    pub(crate) ratio: Option<f64>,
}

impl Median {
    /// Returns the cost of an operation in ns: CPU time of the foreground thread, or real time if
    /// the workload measures waiting for the disk or other threads.
    pub(crate) fn cost_ns(&self) -> f64 {
        if waits(self.case.workload) { self.figures.ns } else { self.figures.cpu_ns }
    }

    /// Returns resident memory beyond the total, in bytes; negative if within the total.
    pub(crate) fn over_total_bytes(&self) -> f64 {
        self.figures.memory_peak_bytes - self.figures.total_bytes
    }

    /// Returns the mark of a contestant whose resident memory exceeds the total, else nothing.
    fn mark(&self) -> &'static str {
        if self.over_total_bytes() > RESIDENT_ALLOWANCE_BYTES { " †" } else { "" }
    }
}

/// Tolerated resident memory beyond the total: threads, allocator, and buffers of reads.
pub(crate) const RESIDENT_ALLOWANCE_BYTES: f64 = 8.0 * 1_048_576.0;

/// Returns `true` if real time counts.
fn waits(workload: Workload) -> bool {
    matches!(workload, Workload::Open | Workload::SyncWrite)
}

/// Returns the medians, case by case.
pub(crate) fn medians(measurements: &[Measurement]) -> Vec<Median> {
    let mut cases: Vec<Case> = measurements.iter().map(|one| one.case).collect();
    cases.sort_unstable();
    cases.dedup();
    let mut medians: Vec<Median> = Vec::new();
    for case in cases {
        let first = medians.len();
        for &contestant in Contestant::ALL {
            let of = |one: &&Measurement| one.case == case && one.contestant == contestant;
            let rounds: Vec<&Measurement> = measurements.iter().filter(of).collect();
            let Some(last) = rounds.last() else { continue };
            let shape = last.shape.clone();
            let figures: Vec<Figures> = rounds.iter().map(|round| round.figures.clone()).collect();
            let (rounds, figures) = (figures.len(), Figures::median(&figures));
            medians.push(Median { case, contestant, rounds, shape, figures, ratio: None });
        }
        let ours = medians[first..].iter().find(|one| one.contestant == Contestant::Sievedb);
        if let Some(cost_ns) = ours.map(Median::cost_ns) {
            for median in &mut medians[first..] {
                median.ratio = Some(median.cost_ns() / cost_ns);
            }
        }
    }
    medians
}

impl Report {
    /// Creates a report to which measurements are added.
    pub(crate) fn new(
        command: String,
        machine: Machine,
        settings: Settings,
        measurements: Vec<Measurement>,
    ) -> Self {
        let (failures, promises, medians) = Default::default();
        let topic = None;
        Self { command, machine, settings, topic, failures, promises, medians, measurements }
    }

    /// Computes the medians, and evaluates the promises.
    pub(crate) fn conclude(&mut self) {
        self.medians = medians(&self.measurements);
        self.promises = promises::look(self.topic, &self.medians, self.settings.tombstones);
    }

    /// Returns the medians of each measured case, in order.
    pub(crate) fn cases(&self) -> impl Iterator<Item = &[Median]> {
        self.medians.chunk_by(|one, two| one.case == two.case)
    }

    /// Returns the tables for `docs/benchmarks.md`.
    pub(crate) fn markdown(&self) -> String {
        let mut text = self.head();
        for failure in &self.failures {
            text.push_str(&format!("\n**Failed:** {failure}\n"));
        }
        text.push_str(&promises::table(self.topic, &self.promises));
        text.push_str(&self.ratios());
        for rows in self.cases() {
            text.push_str(&table::table(rows));
        }
        text
    }

    /// Describes the measurement.
    fn head(&self) -> String {
        let Machine { processor, cores, memory_bytes, kernel, load, compiler, date, versions } =
            &self.machine;
        let settings = &self.settings;
        let mut text = String::new();
        let written = writeln!(
            text,
            "`{}`\n\n{} keys, {} of data, a total of {} for each engine; where the data are 2, 4 or 10 times the \
             memory, the total is that part of them, and the page cache is emptied again and again. \
             {date} UTC; {processor}, {cores} cores, {} of memory, Linux {kernel}, load {load} before; \
             {compiler}; {}.",
            self.command,
            settings.keys,
            mib(data_bytes(settings.keys) as f64),
            mib(settings.total_bytes as f64),
            mib(*memory_bytes as f64),
            versions.join(", "),
        );
        written.expect("memory takes every write");
        text
    }

    /// Returns the ratios of all cases in one table.
    fn ratios(&self) -> String {
        let measured = |one: &&Contestant| self.medians.iter().any(|row| row.contestant == **one);
        let others = || {
            let known = Contestant::ALL.iter().filter(measured);
            known.copied().filter(|&one| one != Contestant::Sievedb)
        };
        let mut heads = vec!["× SieveDB, CPU time; * real time".to_owned(), "SieveDB".to_owned()];
        heads.extend(others().map(|one| one.title().to_owned()));
        let mut text = String::from("\n**All**\n\n");
        head(&mut text, &heads, 1..heads.len());
        for rows in self.cases() {
            let case = rows[0].case;
            let row = |contestant| rows.iter().find(|row| row.contestant == contestant);
            let mark = if waits(case.workload) { " *" } else { "" };
            let ours = row(Contestant::Sievedb).map(|row| time(row.cost_ns()) + row.mark());
            let mut cells = vec![format!("{case}{mark}"), ours.unwrap_or_else(none)];
            cells.extend(others().map(|other| {
                let ratio = row(other).and_then(|row| Some(ratio_text(row.ratio?) + row.mark()));
                ratio.unwrap_or_else(none)
            }));
            line(&mut text, &cells);
        }
        text.push_str("\n† Resident memory exceeds the total by more than 8 MiB.\n");
        text
    }
}

/// The cell of a missing figure.
fn none() -> String {
    "–".to_owned()
}

/// Appends the head of a table. Columns in `numbers` are right-aligned.
pub(crate) fn head(text: &mut String, heads: &[String], numbers: std::ops::Range<usize>) {
    line(text, heads);
    let rule = |place: usize| if numbers.contains(&place) { "---:" } else { "---" };
    line(text, &(0..heads.len()).map(|place| rule(place).to_owned()).collect::<Vec<_>>());
}

/// Appends a row of a table.
pub(crate) fn line(text: &mut String, cells: &[String]) {
    text.push_str("| ");
    text.push_str(&cells.join(" | "));
    text.push_str(" |\n");
}

pub(crate) fn mib(bytes: f64) -> String {
    format!("{:.0} MiB", bytes / f64::from(1 << 20))
}

/// Formats a ratio with two decimals, or with two digits if it is small.
pub(crate) fn ratio_text(ratio: f64) -> String {
    match ratio {
        ratio if ratio >= 0.095 => format!("{ratio:.2}"),
        ratio if ratio >= 0.0095 => format!("{ratio:.3}"),
        ratio => format!("{ratio:.4}"),
    }
}

/// Formats a time with three digits and its unit.
pub(crate) fn time(ns: f64) -> String {
    let (value, unit) = match ns {
        ns if ns < 1e3 => (ns, "ns"),
        ns if ns < 1e6 => (ns / 1e3, "µs"),
        ns if ns < 1e9 => (ns / 1e6, "ms"),
        ns => (ns / 1e9, "s"),
    };
    let digits = if value < 10.0 { 2 } else { usize::from(value < 100.0) };
    format!("{value:.digits$} {unit}")
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::figures::tests::all;

    pub(crate) fn measurement(
        contestant: Contestant,
        case: Case,
        round: u64,
        figures: Figures,
    ) -> Measurement {
        Measurement { contestant, case, round, shape: format!("round {round}"), figures }
    }

    #[test]
    fn medians_are_relative_to_sievedb() {
        let case = Case::cached(Workload::Miss);
        let others = || Contestant::ALL.iter().copied().filter(|&one| one != Contestant::Sievedb);
        let mut measurements = Vec::new();
        for (round, figure) in (0..).zip([30.0, 10.0, 20.0]) {
            measurements
                .extend(others().map(|other| measurement(other, case, round, all(3.0 * figure))));
            measurements.push(measurement(Contestant::Sievedb, case, round, all(figure)));
        }
        let medians = medians(&measurements);
        assert_eq!(medians.len(), Contestant::ALL.len());
        let (ours, theirs) = (&medians[0], &medians[1..]);
        assert_eq!((ours.contestant, ours.figures.cpu_ns), (Contestant::Sievedb, 20.0));
        assert_eq!((ours.rounds, ours.shape.as_str()), (3, "round 2"));
        assert_eq!(ours.ratio, Some(1.0));
        assert!(theirs.iter().all(|one| one.ratio == Some(3.0)), "{theirs:?}");
    }

    #[test]
    fn waiting_cases_use_wall_clock_time() {
        let figures = Figures { ns: 8.0, cpu_ns: 2.0, ..all(0.0) };
        for (workload, want) in [(Workload::Hit, 2.0), (Workload::SyncWrite, 8.0)] {
            let case = Case::cached(workload);
            let of = medians(&[measurement(Contestant::Sievedb, case, 0, figures.clone())]);
            assert_eq!(of[0].cost_ns(), want, "{workload:?}");
        }
    }

    #[test]
    fn small_ratios_keep_two_digits() {
        let cases = [(12.345, "12.35"), (0.1, "0.10"), (0.0123, "0.012"), (0.00214, "0.0021")];
        for (ratio, want) in cases {
            assert_eq!(ratio_text(ratio), want);
        }
    }

    #[test]
    fn times_have_three_digits_and_a_unit() {
        let cases = [
            (0.5, "0.50 ns"),
            (12.34, "12.3 ns"),
            (999.4, "999 ns"),
            (1_234.0, "1.23 µs"),
            (45_678_000.0, "45.7 ms"),
            (9e9, "9.00 s"),
        ];
        for (ns, want) in cases {
            assert_eq!(time(ns), want);
        }
    }
}
