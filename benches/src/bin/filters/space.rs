//! Bits per key over the bound, for rates from 10 % to 0.001 %.

use std::path::PathBuf;

use serde_json::json;

use crate::{
    Common, Outcome, Report,
    allocation::bytes_of,
    contestants::{FAMILIES, Family},
    measure::{Hashes, Space},
    plot,
    point::Point,
    text,
};

/// Configured rates.
const RATES: [f64; 9] = [0.1, 0.03, 0.01, 0.003, 0.001, 0.000_3, 0.000_1, 0.000_03, 0.000_01];

/// Number of probes to measure a rate: the lowest rate gives a hundred false positives.
const QUESTIONS: u64 = 10_000_000;

/// Just below 95 % of a power of two: structures that have a power of two of slots, and are full at
/// 95 %, are at their best here.
const KEYS: usize = 990_000;
const KEYS_SMALL: usize = 15_500;

const NOTES: &str = "
Bits per key of memory that is really allocated, and how much that is above log2(1 / rate) of the rate
that the structure has: it may be lower than the one asked for, since sbbf-rs-safe takes whole bits, and
CuckooFilter and qfilter take whole bits of a fingerprint.
";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Path of the plot.
    #[arg(long, value_name = "FILE", default_value = plot::PATH)]
    plot: PathBuf,
}

/// Keys of each structure.
pub(crate) fn keys(common: &Common) -> usize {
    if common.small { KEYS_SMALL } else { KEYS }
}

/// Measures all structures at all rates that they can have.
pub(crate) fn points(common: &Common, keys: usize) -> Result<Vec<Point>, String> {
    let hashes = Hashes::new(keys, common.seed);
    let questions = if common.small { 1 << 18 } else { QUESTIONS };
    let bar = text::bar((FAMILIES.len() * RATES.len()) as u64, "space against rate");
    let mut points = Vec::new();
    for family in &FAMILIES {
        for (rate_asked, value) in values(family) {
            let (filter, bytes) = bytes_of(|| (family.build)(&hashes.stored, value));
            if filter.count(&hashes.stored) != keys {
                return Err(format!("{} denies a key that it holds", family.name));
            }
            let space = Space::of(&*filter, bytes, &hashes, questions);
            points.push(Point { structure: family.name, rate_asked, space });
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    Ok(points)
}

/// Returns rates with their settings; for a structure without a choice, its settings.
fn values(family: &Family) -> Vec<(Option<f64>, f64)> {
    match family.for_rate {
        Some(for_rate) => {
            RATES.iter().filter_map(|&rate| Some((Some(rate), for_rate(rate)?))).collect()
        }
        None => family.settings.iter().map(|setting| (None, setting.value)).collect(),
    }
}

impl Args {
    pub(crate) fn run(&self, common: &Common) -> Report {
        let keys = keys(common);
        let points = points(common, keys)?;
        text::write_file(&self.plot, &plot::svg(&points)?)?;
        let mut out = format!("{} keys:\n\n{}", text::count(keys as u64), table(&points));
        out += NOTES;
        let json = json!({ "keys": keys, "space": points });
        Ok(Outcome { text: out, json, fault: None })
    }
}

/// A row for each structure, a column for each rate; a line for each structure without a choice.
fn table(points: &[Point]) -> String {
    let cell = |point: &Point| {
        format!("{:.2} (+{:.1} %)", point.space.bits_per_key, point.space.over_bound * 100.0)
    };
    let mut rows = Vec::new();
    let mut fixed = String::new();
    for family in &FAMILIES {
        let of_family = || points.iter().filter(|point| point.structure == family.name);
        if family.for_rate.is_none() {
            for point in of_family() {
                let (name, rate) = (family.name, text::per_cent(point.rate()));
                fixed += &format!("{name} has a rate of {rate} only: {}\n", cell(point));
            }
            continue;
        }
        let at = |rate| of_family().find(|point| point.rate_asked == Some(rate));
        let cells = RATES.iter().map(|&rate| text::or_dash(at(rate), cell));
        rows.push(std::iter::once(family.name.to_owned()).chain(cells).collect());
    }
    let mut header = vec!["rate".to_owned()];
    header.extend(RATES.iter().map(|rate| format!("{:?} %", (rate * 1e8).round() / 1e6)));
    let header: Vec<&str> = header.iter().map(String::as_str).collect();
    format!("{}\n{fixed}", text::table(&header, 1, rows))
}
