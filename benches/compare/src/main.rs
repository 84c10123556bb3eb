//! SieveDB beside other embedded key-value engines: the same keys, the same cache, the same questions.
//!
//! One process for each engine and workload, in interleaved rounds; `docs/benchmarks.md` says how to
//! read what it prints.

#![expect(clippy::print_stdout, reason = "a report goes to the terminal")]

mod contestant;
mod failure;
mod figures;
mod keys;
mod machine;
mod process;
mod report;
mod rounds;
mod settings;
mod task;
mod workload;

use std::{env, fs, path::PathBuf, process::ExitCode};

use clap::Parser;

use crate::{
    contestant::{Contestant, Tuning},
    failure::Result,
    figures::Measurement,
    machine::Machine,
    report::{Report, medians},
    rounds::{CHILD, Plan},
    settings::{Settings, data_bytes},
    task::{Task, Workload},
};

/// SieveDB beside other embedded key-value engines.
#[derive(Debug, Parser)]
#[command(name = "compare")]
struct Options {
    /// Keys of 16 bytes, with values of 100 bytes.
    #[arg(long, default_value_t = 1_000_000, value_name = "N", value_parser = clap::value_parser!(u64).range(1..1 << 40))]
    keys: u64,
    /// Keys asked for in each workload and round, if there is time.
    #[arg(long, default_value_t = 1_000_000, value_name = "N")]
    lookups: u64,
    /// Seconds after which a workload other than the load ends.
    #[arg(long, default_value_t = 3.0, value_name = "S")]
    seconds: f64,
    /// Rounds, of which the median counts.
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    rounds: u64,
    /// Rounds of the load.
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    load_rounds: u64,
    /// Block cache in MiB. Default: twice the data and 64 MiB.
    #[arg(long, value_name = "MIB")]
    cache: Option<u64>,
    /// Memtables in MiB, of the advised configurations.
    #[arg(long, default_value_t = 64, value_name = "MIB")]
    write_buffer: u64,
    /// Entries that are written per second during misses.
    #[arg(long, default_value_t = 50_000, value_name = "N")]
    writes_per_second: u64,
    /// Of keys and values.
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,
    /// Contestants, separated by commas. Default: all that were compiled.
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    engines: Vec<Contestant>,
    /// Workloads, separated by commas. Default: all.
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    workloads: Vec<Workload>,
    /// Keeps the stores in this folder. Without the workload `load` it reads those that are there.
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
    /// Writes all figures to this file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Prints the tasks, each of which `child TASK` does, and does nothing.
    #[arg(long, requires = "folder")]
    show_tasks: bool,
    /// One round of a few seconds that says nothing of speed, only whether all works.
    #[arg(long)]
    small: bool,
}

impl Options {
    fn plan(&self) -> Plan {
        let or_all = |chosen: &[Contestant]| match chosen {
            [] => Contestant::ALL.to_vec(),
            chosen => chosen.to_vec(),
        };
        let workloads = match &self.workloads[..] {
            [] => Workload::ALL.to_vec(),
            chosen => chosen.to_vec(),
        };
        let cache_bytes =
            self.cache.map_or(2 * data_bytes(self.keys) + (64 << 20), |mib| mib << 20);
        let settings = Settings {
            keys: self.keys,
            lookups: self.lookups,
            seconds_max: self.seconds,
            cache_bytes,
            write_buffer_bytes: self.write_buffer << 20,
            writes_per_second: self.writes_per_second,
            seed: self.seed,
            ..settings::small()
        };
        Plan {
            contestants: or_all(&self.engines),
            workloads,
            rounds: if self.small { 1 } else { self.rounds },
            load_rounds: if self.small { 1 } else { self.load_rounds },
            folder: self.folder.clone(),
            settings: if self.small { settings::small() } else { settings },
        }
    }

    fn run(&self) -> Result<()> {
        let plan = self.plan();
        if let Some(folder) = self.folder.as_ref().filter(|_| self.show_tasks) {
            for task in plan.tasks(folder) {
                println!("{}", serde_json::to_string(&task)?);
            }
            return Ok(());
        }
        let machine = Machine::look()?;
        let measurements = plan.run()?;
        let report = Report {
            command: env::args().skip(1).fold("compare".to_owned(), |all, one| all + " " + &one),
            machine,
            settings: plan.settings,
            medians: medians(&measurements),
            measurements,
        };
        println!("{}", report.markdown());
        if let Some(path) = &self.json {
            write(path, &serde_json::to_string_pretty(&report)?)?;
        }
        Ok(())
    }
}

#[expect(clippy::disallowed_methods, reason = "a report is no file of a store")]
fn write(path: &PathBuf, text: &str) -> Result<()> {
    fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()).into())
}

/// Does a task in this process.
fn measure(task: &Task) -> Result<Measurement> {
    match task.contestant {
        Contestant::Sievedb => workload::run::<contestant::sievedb::SieveDb>(task, Tuning::Advised),
        #[cfg(feature = "rocksdb")]
        Contestant::Rocksdb => workload::run::<contestant::rocksdb::RocksDb>(task, Tuning::Advised),
        #[cfg(feature = "rocksdb")]
        Contestant::RocksdbDefaults => {
            workload::run::<contestant::rocksdb::RocksDb>(task, Tuning::Defaults)
        }
        #[cfg(feature = "fjall")]
        Contestant::Fjall => workload::run::<contestant::fjall::Fjall>(task, Tuning::Advised),
        #[cfg(feature = "fjall")]
        Contestant::FjallDefaults => {
            workload::run::<contestant::fjall::Fjall>(task, Tuning::Defaults)
        }
        #[cfg(feature = "redb")]
        Contestant::Redb => workload::run::<contestant::redb::Redb>(task, Tuning::Advised),
        #[cfg(feature = "lmdb")]
        Contestant::Lmdb => workload::run::<contestant::lmdb::Lmdb>(task, Tuning::Advised),
    }
}

/// What the process is asked to do: a task, or everything.
fn run() -> Result<()> {
    let arguments: Vec<String> = env::args().collect();
    if let [_, word, task] = &arguments[..]
        && word == CHILD
    {
        let measurement = measure(&serde_json::from_str(task)?)?;
        println!("{}", serde_json::to_string(&measurement)?);
        return Ok(());
    }
    Options::parse().run()
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
