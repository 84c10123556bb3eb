//! Runs the measurements of a topic and prints each figure with its bound.

use std::{
    env,
    error::Error,
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use comfy_table::{CellAlignment, Table, presets::ASCII_MARKDOWN};
use serde::Serialize;

use crate::{
    figure::{Bound, Figure, Measurement},
    measurements, process,
};

/// Rounds in all if a figure of a single round is outside its bound: a busy machine may be the
/// cause.
const ROUNDS_AFTER_A_MISS: u32 = 3;

/// Arguments of a run.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Topic, such as `faults`.
    topic: String,
    /// Use small inputs: minutes instead of an hour. Times cannot fail then.
    #[arg(long)]
    small: bool,
    /// Run only the measurements whose name contains this text.
    #[arg(long, default_value = "")]
    only: String,
    /// Rounds; the median of each figure is compared with its bound. If a figure of a single round
    /// is outside its bound, the median of three decides.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=99))]
    rounds: u32,
    /// Also measure with this binary, built from an older commit.
    #[arg(long, value_name = "BINARY")]
    before: Option<PathBuf>,
    /// Also write the figures as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// A figure over all rounds.
#[derive(Debug, Serialize)]
struct Row {
    item: &'static str,
    figure: Figure,
    /// The same of the older commit.
    before: Option<f64>,
    holds: Option<bool>,
}

/// Measures, prints a table, and returns whether each figure keeps its bound.
pub(crate) fn run(args: &Args) -> Result<bool, Box<dyn Error>> {
    let all = measurements(&args.topic).ok_or_else(|| format!("unknown topic: {}", args.topic))?;
    let chosen = all.iter().filter(|measurement| measurement.name.contains(&args.only));
    let mut rows = Vec::new();
    for measurement in chosen {
        rows.extend(measure(args, measurement)?);
    }
    if rows.is_empty() {
        return Err(format!("no measurement matches {:?}", args.only).into());
    }
    if let Some(path) = &args.json {
        process::write_file(path, &serde_json::to_vec_pretty(&rows)?)?;
    }
    let missed = rows.iter().filter(|row| row.holds == Some(false)).count();
    let mut out = io::stdout().lock();
    writeln!(out, "{}", table(args, &rows))?;
    writeln!(out, "{} figures, {missed} outside their bound", rows.len())?;
    Ok(missed == 0)
}

/// Runs `measurement` in rounds, alternating with the older binary.
fn measure(args: &Args, measurement: &Measurement) -> Result<Vec<Row>, Box<dyn Error>> {
    let own = env::current_exe()?;
    let (mut now, mut before) = (Vec::new(), Vec::new());
    let mut rounds = args.rounds;
    loop {
        writeln!(io::stderr(), "{}: round {} of {rounds}", measurement.name, now.len() + 1)?;
        let measure_in =
            |binary: &Path| process::measure_in(binary, &args.topic, measurement.name, args.small);
        if let Some(binary) = &args.before {
            before.push(measure_in(binary)?);
        }
        now.push(measure_in(&own)?);
        if now.len() < rounds as usize {
            continue;
        }
        let rows = rows(measurement, args.small, &now, &before);
        if rounds > 1 || rows.iter().all(|row| row.holds != Some(false)) {
            return Ok(rows);
        }
        // The next rounds may take an hour.
        for row in rows.iter().filter(|row| row.holds == Some(false)) {
            let Figure { name, unit, value, .. } = &row.figure;
            writeln!(io::stderr(), "{name}: {value:.3} {unit}, outside its bound")?;
        }
        rounds = ROUNDS_AFTER_A_MISS;
    }
}

/// The medians of all rounds. If `small`, times are printed, but not compared with their bounds.
fn rows(
    measurement: &Measurement,
    small: bool,
    now: &[Vec<Figure>],
    before: &[Vec<Figure>],
) -> Vec<Row> {
    let names = now.first().into_iter().flatten().map(|figure| figure.name.clone());
    let rows = names.map(|name| {
        let figure = median(now, &name).expect("each name was taken from a round");
        let before = median(before, &name).map(|figure| figure.value);
        let is_time = ["ms", "s"].contains(&&*figure.unit);
        let bound = figure.bound.filter(|_| !(small && is_time));
        let holds = bound.map(|bound| bound.holds(figure.value));
        Row { item: measurement.item, figure, before, holds }
    });
    rows.collect()
}

/// The median of the figure `name` over all rounds.
fn median(rounds: &[Vec<Figure>], name: &str) -> Option<Figure> {
    let mut figures: Vec<&Figure> =
        rounds.iter().flatten().filter(|figure| figure.name == name).collect();
    figures.sort_by(|a, b| a.value.total_cmp(&b.value));
    figures.get(figures.len() / 2).map(|&figure| figure.clone())
}

fn table(args: &Args, rows: &[Row]) -> Table {
    let mut table = Table::new();
    table.load_style(ASCII_MARKDOWN);
    let mut header = vec!["item", "figure", "unit"];
    header.extend(args.before.is_some().then_some("before"));
    header.extend(["measured", "bound", "result"]);
    table.set_header(header);
    for row in rows {
        let Figure { name, unit, value, bound } = &row.figure;
        let mut cells = vec![row.item.to_owned(), name.clone(), unit.clone()];
        if args.before.is_some() {
            cells.push(row.before.map_or_else(String::new, number));
        }
        cells.push(number(*value));
        cells.push(match bound {
            Some(Bound::AtMost(bound)) => format!("<= {}", number(*bound)),
            Some(Bound::AtLeast(bound)) => format!(">= {}", number(*bound)),
            None => String::new(),
        });
        let result = row.holds.map(|holds| if holds { "pass" } else { "FAIL" });
        cells.push(result.unwrap_or_default().to_owned());
        table.add_row(cells);
    }
    for column in table.column_iter_mut().skip(3) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// `value` with about three significant digits.
fn number(value: f64) -> String {
    let decimals = match value.abs() {
        magnitude if magnitude >= 100.0 => 0,
        magnitude if magnitude >= 10.0 => 1,
        _ => 2,
    };
    format!("{value:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_are_per_name() {
        let round = |a, b| vec![Figure::new("a", "", a), Figure::new("b", "", b)];
        let rounds = [round(3.0, 1.0), round(1.0, 5.0), round(2.0, 9.0)];
        assert_eq!(median(&rounds, "a").map(|figure| figure.value), Some(2.0));
        assert_eq!(median(&rounds, "b").map(|figure| figure.value), Some(5.0));
        assert_eq!(median(&rounds, "c"), None);
    }

    #[test]
    fn times_cannot_fail_in_the_small_form() {
        let measurement = Measurement { item: "1", name: "a", measure: |_| Ok(Vec::new()) };
        let units = ["ms", "s", "MiB", "x", ""];
        let round = units.map(|unit| Figure::new(unit, unit, 2.0).at_most(1.0)).to_vec();
        let holds = |small| {
            let rows = rows(&measurement, small, std::slice::from_ref(&round), &[]);
            rows.iter().map(|row| row.holds).collect::<Vec<_>>()
        };
        assert_eq!(holds(false), [Some(false); 5]);
        assert_eq!(holds(true), [None, None, Some(false), Some(false), Some(false)]);
    }
}
