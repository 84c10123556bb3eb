//! The table of all structures, with their limits.

use std::{fmt::Write as _, path::PathBuf};

use serde_json::json;

use crate::{
    Common, Outcome, Report, limits,
    measure::{self, Effort, Hashes, Row},
    plot, resident, sketch, space, text,
};

/// Prints the table of all structures.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Keys of the filters, one table for each number [default: 100000,1000000].
    #[arg(long, value_delimiter = ',', value_name = "COUNTS",
          value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    keys: Vec<u64>,
    /// Rounds in which all structures take turns [default: 9].
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..=1000))]
    rounds: Option<u64>,
    /// Only structures whose names begin like this: for many keys, which take much memory.
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    only: Vec<String>,
    /// Path of the plot of space against rate.
    #[arg(long, value_name = "FILE", default_value = plot::PATH)]
    plot: PathBuf,
    /// Fail if a limit of the ratios and of the space is missed.
    #[arg(long)]
    strict: bool,
}

const HEADER: [&str; 11] = [
    "structure",
    "setting",
    "bits/key",
    "stored",
    "rate measured",
    "expected",
    "over bound",
    "build ns",
    "absent ns",
    "present ns",
    "by 32 ns",
];

const NOTES: &str = "\
bits/key: memory that is really allocated; stored: of the stored form with its trailer.
over bound: bits/key over log2(1 / rate). ns: thread CPU time of one key; of a question about an
absent key, a present one, and an absent one in calls about 32 each. Names in lower case are those
of crates.
Structures get 64-bit hashes; one marked * takes keys only, gets the hash as a key, and hashes it.
cuckoofilter and qfilter have a power of two of slots: `filters space` shows them well filled.
";

impl Args {
    pub(crate) fn run(&self, common: &Common) -> Report {
        let keys = match (&self.keys[..], common.small) {
            ([], false) => &[100_000, 1_000_000],
            ([], true) => &[10_000][..],
            (keys, _) => keys,
        };
        let effort = Effort {
            rounds: self.rounds.map_or(if common.small { 1 } else { 9 }, |rounds| rounds as usize),
            rate_questions: if common.small { 1 << 18 } else { 10_000_000 },
        };
        let mut out = String::new();
        let mut rows = Vec::new();
        for &count in keys {
            let title = format!("{} keys", text::count(count));
            let hashes = Hashes::new(usize::try_from(count)?, common.seed);
            let bar = text::bar(1, &title);
            let of_count = measure::rows(&hashes, effort, &self.only, &bar)?;
            bar.finish_and_clear();
            writeln!(out, "{title}, medians of {} rounds:\n\n{}", effort.rounds, table(&of_count))?;
            rows.extend(of_count);
        }
        out += NOTES;

        let residents = resident::measure(common, effort.rounds);
        writeln!(out, "\n{}", resident::table(&residents))?;
        let sketch = sketch::measure(common, effort.rounds)?;
        writeln!(out, "{}", sketch::table(&sketch))?;
        let checks = limits::checks(&rows, &residents);
        writeln!(out, "{}", limits::table(&checks))?;

        let points = space::points(common, space::keys(common))?;
        text::write_file(&self.plot, &plot::svg(&points)?)?;

        let missed = checks.iter().filter(|check| check.anywhere && !check.holds()).count();
        let fault = (self.strict && missed > 0).then(|| format!("{missed} limits are missed"));
        let json = json!({
            "rows": rows,
            "residents": residents,
            "sketch": sketch,
            "limits": checks,
            "space": points,
        });
        Ok(Outcome { text: out, json, fault })
    }
}

fn table(rows: &[Row]) -> String {
    let cells = |row: &Row| {
        let space = row.space;
        let ns = |ns: f64| format!("{ns:.1}");
        vec![
            format!("{}{}", row.structure, if row.hashes_itself { "*" } else { "" }),
            row.setting.to_owned(),
            format!("{:.3}", space.bits_per_key),
            text::or_dash(space.stored_bits_per_key, |bits| format!("{bits:.3}")),
            text::per_cent(space.fpr_measured),
            text::or_dash(space.fpr_expected, text::per_cent),
            format!("{:.1} %", space.over_bound * 100.0),
            ns(row.build_ns),
            ns(row.absent_ns),
            ns(row.present_ns),
            text::or_dash(row.batched_ns, ns),
        ]
    };
    text::table(&HEADER, 2, rows.iter().map(cells).collect())
}
