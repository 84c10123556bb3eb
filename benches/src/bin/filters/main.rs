//! `filters`: our filters versus those of other crates, and experiments of the literature.
//!
//! Without a sub-command it prints one table of all structures over the same keys in the same run,
//! and plots space against rate. Each experiment is a sub-command.

mod allocation;
mod contestants;
mod iin;
mod known;
mod limits;
mod measure;
mod plot;
mod point;
mod resident;
mod sketch;
mod space;
mod table;
mod text;
mod urls;
mod user_names;

use std::{
    error::Error,
    io::{self, Write as _},
    path::PathBuf,
    process::ExitCode,
};

use clap::{Parser, Subcommand};

/// Measures the filters of SieveDB beside those of other crates.
#[derive(Debug, Parser)]
struct Args {
    #[command(flatten)]
    table: table::Args,
    #[command(flatten)]
    common: Common,
    #[command(subcommand)]
    experiment: Option<Experiment>,
}

/// Arguments of every measurement.
#[derive(Debug, clap::Args)]
struct Common {
    /// Small sets and few rounds: seconds, for a check that everything runs.
    #[arg(long, global = true)]
    small: bool,
    /// Also write the figures as JSON.
    #[arg(long, global = true, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Seed of keys and questions.
    #[arg(long, global = true, default_value_t = 1)]
    seed: u64,
}

#[derive(Debug, Subcommand)]
enum Experiment {
    /// 20 million identification numbers: rates, and the time of build and 10 million tests.
    Iin,
    /// 10 million URLs: the bytes that an exact set and the filters take.
    Urls,
    /// 10,000 user names, 1,000 requests: how many reach the store.
    UserNames,
    /// Bits per key over the bound, from a rate of 10 % to 0.001 %: table and plot.
    Space(space::Args),
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // No other place is left to report a failure to.
            let _ = writeln!(io::stderr(), "error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<(), Box<dyn Error>> {
    let common = &args.common;
    let Outcome { text, json, fault } = match &args.experiment {
        None => args.table.run(common)?,
        Some(Experiment::Iin) => iin::run(common)?,
        Some(Experiment::Urls) => urls::run(common)?,
        Some(Experiment::UserNames) => user_names::run(common)?,
        Some(Experiment::Space(space)) => space.run(common)?,
    };
    io::stdout().write_all(text.as_bytes())?;
    if let Some(path) = &common.json {
        text::write_file(path, &format!("{json:#}\n"))?;
    }
    fault.map_or(Ok(()), |fault| Err(fault.into()))
}

/// Result of a measurement.
#[derive(Debug)]
struct Outcome {
    /// For people.
    text: String,
    /// The same figures.
    json: serde_json::Value,
    /// Reason for a failed run that completed.
    fault: Option<String>,
}

type Report = Result<Outcome, Box<dyn Error>>;
