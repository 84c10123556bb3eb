//! `promises`: measures the figures that an issue promises, and compares each with its bound.
//!
//! Each measurement runs in a process of its own, so that memory and descriptors of one do not
//! count in another. With `--before BINARY` a build of an older commit measures the same in the
//! same run: rounds of both alternate. A measurement therefore uses only public calls that both
//! have.
//!
//! To add a measurement: write a module with `pub(crate) fn measure(scale: &Scale) -> Measured` and
//! add a line to the topic's `MEASUREMENTS`.

mod allocation;
mod crawler;
mod faults;
mod figure;
mod memory;
mod process;
mod scale;
mod table;
mod writes;

use std::{
    io::{self, Write as _},
    path::PathBuf,
    process::ExitCode,
};

use clap::{Parser, Subcommand};

use figure::Measurement;
use scale::Scale;

/// Measures the figures that an issue promises.
#[derive(Debug, Parser)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Runs all measurements of a topic and compares their figures with the bounds.
    Run(table::Args),
    /// Runs one measurement in this process and prints its figures as JSON.
    #[command(hide = true)]
    Measure {
        /// Topic of the measurement.
        topic: String,
        /// Name of the measurement.
        name: String,
        /// Use small inputs.
        #[arg(long)]
        small: bool,
        /// An empty directory.
        #[arg(long)]
        directory: PathBuf,
    },
}

/// The measurements of `topic`; `None` if there is no such topic.
fn measurements(topic: &str) -> Option<&'static [Measurement]> {
    match topic {
        "faults" => Some(faults::MEASUREMENTS),
        "memory" => Some(memory::MEASUREMENTS),
        "writes" => Some(writes::MEASUREMENTS),
        _ => None,
    }
}

fn main() -> ExitCode {
    let result = match Args::parse().command {
        Command::Run(args) => table::run(&args),
        Command::Measure { topic, name, small, directory } => {
            process::measure_here(&topic, &name, &Scale { small, directory }).map(|()| true)
        }
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            // No other place is left to report a failure to.
            let _ = writeln!(io::stderr(), "error: {error}");
            ExitCode::from(2)
        }
    }
}
