//! The report: JSON for programs, Markdown tables for people.

use std::fmt::Write as _;

use serde::Serialize;

use crate::{
    contestant::Contestant,
    figures::{Figures, Measurement},
    machine::Machine,
    settings::{Settings, data_bytes},
    task::Workload,
};

/// Everything that was measured, and how.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Report {
    pub(crate) command: String,
    pub(crate) machine: Machine,
    pub(crate) settings: Settings,
    pub(crate) medians: Vec<Median>,
    pub(crate) measurements: Vec<Measurement>,
}

/// Medians of the rounds of a workload on a contestant.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Median {
    pub(crate) workload: Workload,
    pub(crate) contestant: Contestant,
    pub(crate) rounds: usize,
    /// As it was in the last round.
    pub(crate) shape: String,
    pub(crate) figures: Figures,
    /// CPU time per operation over that of SieveDB, if it was measured.
    pub(crate) cpu_ratio: Option<f64>,
}

/// The medians, workload by workload.
pub(crate) fn medians(measurements: &[Measurement]) -> Vec<Median> {
    let mut medians: Vec<Median> = Vec::new();
    for workload in Workload::ALL {
        let first = medians.len();
        for &contestant in Contestant::ALL {
            let of = |one: &&Measurement| one.workload == workload && one.contestant == contestant;
            let rounds: Vec<&Measurement> = measurements.iter().filter(of).collect();
            let Some(last) = rounds.last() else { continue };
            let shape = last.shape.clone();
            let figures: Vec<Figures> = rounds.iter().map(|round| round.figures).collect();
            let (rounds, figures) = (figures.len(), Figures::median(&figures));
            medians.push(Median { workload, contestant, rounds, shape, figures, cpu_ratio: None });
        }
        let ours = medians[first..].iter().find(|one| one.contestant == Contestant::Sievedb);
        if let Some(cpu_ns) = ours.map(|one| one.figures.cpu_ns) {
            for median in &mut medians[first..] {
                median.cpu_ratio = Some(median.figures.cpu_ns / cpu_ns);
            }
        }
    }
    medians
}

impl Report {
    /// Tables for `docs/benchmarks.md`.
    pub(crate) fn markdown(&self) -> String {
        let mut text = String::new();
        let Machine { processor, cores, memory_bytes, kernel, load, compiler, date, versions } =
            &self.machine;
        let Settings { keys, cache_bytes, write_buffer_bytes, .. } = self.settings;
        let written = writeln!(
            text,
            "`{}`\n\n{keys} keys, {} of data, a cache of {}, write buffers of {}. {date} UTC; {processor}, \
             {cores} cores, {} of memory, Linux {kernel}, load {load} before; {compiler}; {}.",
            self.command,
            mib(data_bytes(keys) as f64),
            mib(cache_bytes as f64),
            mib(write_buffer_bytes as f64),
            mib(*memory_bytes as f64),
            versions.join(", "),
        );
        written.expect("memory takes every write");
        for workload in Workload::ALL {
            let rows: Vec<&Median> =
                self.medians.iter().filter(|one| one.workload == workload).collect();
            if !rows.is_empty() {
                text.push_str(&table(workload, &rows));
            }
        }
        text
    }
}

/// The table of one workload.
fn table(workload: Workload, rows: &[&Median]) -> String {
    let load = workload == Workload::Load;
    let mut text = format!("\n**{}** (rounds: {})\n\n", workload.title(), rows[0].rounds);
    let operation = if load { "entry" } else { "key" };
    let mut heads = vec![
        String::new(),
        format!("CPU ns per {operation}"),
        "× SieveDB".to_owned(),
        format!("ns per {operation}"),
        "other threads' CPU ns".to_owned(),
        "p50 µs".to_owned(),
        "p99 µs".to_owned(),
        "p99.9 µs".to_owned(),
    ];
    let more: &[&str] = match workload {
        Workload::Load => &["settling s", "space", "memory, peak", "tree"],
        Workload::MissWhileWriting => {
            &["writes per s", "read calls", "bytes read", "memory", "tree"]
        }
        _ => &["read calls", "bytes read", "memory", "of it no file's", "tree"],
    };
    heads.extend(more.iter().map(|&head| head.to_owned()));
    line(&mut text, &heads);
    let rule = |place: usize| if place == 0 || place + 1 == heads.len() { "---" } else { "---:" };
    line(&mut text, &(0..heads.len()).map(|place| rule(place).to_owned()).collect::<Vec<_>>());
    for row in rows {
        let figures = &row.figures;
        let mut cells = vec![
            row.contestant.title().to_owned(),
            format!("{:.0}", figures.cpu_ns),
            row.cpu_ratio.map_or_else(|| "–".to_owned(), |ratio| format!("{ratio:.2}")),
            format!("{:.0}", figures.ns),
            format!("{:.0}", figures.background_cpu_ns),
            micro(figures.p50_ns),
            micro(figures.p99_ns),
            micro(figures.p999_ns),
        ];
        let reads = [format!("{:.4}", figures.read_calls), format!("{:.1}", figures.read_bytes)];
        let memory = mib(figures.memory_bytes);
        match workload {
            Workload::Load => cells.extend([
                format!("{:.1}", figures.settle_ms / 1e3),
                mib(figures.space_bytes),
                mib(figures.memory_peak_bytes),
            ]),
            Workload::MissWhileWriting => {
                cells.push(format!("{:.0}", figures.writes_per_second));
                cells.extend(reads);
                cells.push(memory);
            }
            _ => {
                cells.extend(reads);
                cells.extend([memory, mib(figures.memory_anonymous_bytes)]);
            }
        }
        cells.push(row.shape.clone());
        line(&mut text, &cells);
    }
    text
}

fn line(text: &mut String, cells: &[String]) {
    text.push_str("| ");
    text.push_str(&cells.join(" | "));
    text.push_str(" |\n");
}

fn mib(bytes: f64) -> String {
    format!("{:.0} MiB", bytes / f64::from(1 << 20))
}

fn micro(ns: f64) -> String {
    format!("{:.2}", ns / 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::tests::all;

    fn measurement(contestant: Contestant, round: u64, figure: f64) -> Measurement {
        let (workload, shape) = (Workload::Miss, format!("round {round}"));
        Measurement { contestant, workload, round, shape, figures: all(figure) }
    }

    #[test]
    fn medians_have_ratios_to_sievedb() {
        let other = Contestant::ALL[Contestant::ALL.len() - 1];
        let rounds = [30.0, 10.0, 20.0];
        let mut measurements = Vec::new();
        for (round, figure) in (0..).zip(rounds) {
            measurements.push(measurement(other, round, 3.0 * figure));
            measurements.push(measurement(Contestant::Sievedb, round, figure));
        }
        let medians = medians(&measurements);
        assert_eq!(medians[0].figures.cpu_ns, 20.0);
        assert_eq!((medians[0].rounds, medians[0].shape.as_str()), (3, "round 2"));
        assert_eq!(medians[0].cpu_ratio, Some(1.0));
        if other != Contestant::Sievedb {
            assert_eq!(medians[1].cpu_ratio, Some(3.0));
        }
    }

    #[test]
    fn all_lines_of_a_table_have_the_same_cells() {
        for workload in Workload::ALL {
            let measurement = Measurement { workload, ..measurement(Contestant::Sievedb, 0, 1.0) };
            let medians = medians(&[measurement]);
            let text = table(workload, &[&medians[0]]);
            let cells: Vec<usize> = text
                .lines()
                .filter(|line| line.starts_with('|'))
                .map(|line| line.matches(" |").count())
                .collect();
            assert_eq!(cells.len(), 3, "{text}");
            assert!(cells.iter().all(|&count| count == cells[0]), "{text}");
        }
    }
}
