//! Compares SieveDB with other embedded key-value engines: same keys, same cache, same lookups.
//!
//! Runs one process per engine and workload, in interleaved rounds. `docs/benchmarks.md` explains
//! the output.

#![expect(clippy::print_stdout, reason = "a report goes to the terminal")]

mod case;
mod contestant;
mod failure;
mod figures;
mod keys;
mod machine;
mod page_cache;
mod place;
mod plot;
mod process;
mod promises;
mod report;
mod rounds;
mod settings;
mod task;
mod workload;

use std::{
    env, fs, io,
    path::{Path, PathBuf},
    process::ExitCode,
    thread,
};

use clap::Parser;

use crate::{
    case::{Case, Fit, Workload},
    contestant::{Contestant, Tuning},
    failure::Result,
    figures::Measurement,
    machine::Machine,
    promises::Topic,
    report::{Report, Saved},
    rounds::{CHILD, Plan},
    settings::{Settings, default_total_bytes},
    task::Task,
};

/// SieveDB beside other embedded key-value engines.
#[derive(Debug, Parser)]
#[command(name = "compare")]
struct Options {
    /// Keys of 16 bytes, with values of 100 bytes.
    #[arg(long, default_value_t = 1_000_000, value_name = "N", value_parser = clap::value_parser!(u64).range(1..1 << 40))]
    keys: u64,
    /// Short operations in each workload and round, if there is time. Overwrites and deletes have
    /// the number of `--keys` instead.
    #[arg(long, default_value_t = 1_000_000, value_name = "N")]
    lookups: u64,
    /// Seconds after which a workload other than a load ends.
    #[arg(long, default_value_t = 3.0, value_name = "S")]
    seconds: f64,
    /// Seconds after which a load one by one ends.
    #[arg(long, default_value_t = 30.0, value_name = "S")]
    load_seconds: f64,
    /// Rounds, of which the median counts.
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    rounds: u64,
    /// Rounds of the loads.
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    load_rounds: u64,
    /// Memory of each engine in MiB, in all, where it is to hold the data. Default: 1.15 times the
    /// data.
    #[arg(long, value_name = "MIB")]
    memory: Option<u64>,
    /// Entries that are written per second while another thread reads.
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
    /// Ratios of data to memory, separated by commas. Default: cached and ten-times.
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    fits: Vec<Fit>,
    /// Measures only the engines and workloads that the promises name: 1 s each, writes 5 s.
    #[arg(
        long,
        value_name = "TOPIC",
        num_args = 0..=1,
        default_missing_value = "engines",
        conflicts_with_all = ["engines", "workloads", "fits", "seconds"]
    )]
    promises: Option<Topic>,
    /// Exits with 1 if a promise falls short that this run measures. With `--promises`, also if one
    /// of the topic is not measured.
    #[arg(long)]
    check: bool,
    /// Keeps the stores in this directory. Without the workload `load` it reads existing stores.
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
    /// Writes all figures to this file, after each measurement.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Measures only what is not in the file of `--json` yet.
    #[arg(long, requires = "json", requires = "folder")]
    resume: bool,
    /// Measures nothing: prints and draws what is in the file of `--json`.
    #[arg(long, requires = "json", conflicts_with = "resume")]
    only_report: bool,
    /// Draws the ratios into SVG files in this directory.
    #[arg(long, value_name = "DIR")]
    plots: Option<PathBuf>,
    /// Prints the tasks, each of which `child TASK` does, and does nothing.
    #[arg(long, requires = "folder")]
    show_tasks: bool,
    /// One round of short workloads, which checks results and measures no speed.
    #[arg(long)]
    small: bool,
}

impl Options {
    fn plan(&self) -> Result<Plan> {
        let cores = thread::available_parallelism()?.get();
        let or_all = |chosen: &[Contestant]| match chosen {
            [] => Contestant::ALL.to_vec(),
            chosen => chosen.to_vec(),
        };
        let workloads = match &self.workloads[..] {
            [] => &Workload::ALL[..],
            chosen => chosen,
        };
        let fits = match &self.fits[..] {
            [] => &[Fit::Cached, Fit::TenTimes],
            chosen => chosen,
        };
        let (contestants, cases) = match self.promises {
            Some(topic) => (topic.contestants(), topic.cases(cores)),
            None => (or_all(&self.engines), Case::all(workloads, fits, cores)),
        };
        let plan = Plan {
            contestants,
            cases,
            scale_ours_alone: self.promises.is_some(),
            rounds: if self.small { 1 } else { self.rounds },
            load_rounds: if self.small { 1 } else { self.load_rounds },
            folder: self.folder.clone(),
            settings: if self.small { settings::small() } else { self.settings() },
        };
        Ok(plan)
    }

    fn settings(&self) -> Settings {
        let total_bytes =
            self.memory.map_or_else(|| default_total_bytes(self.keys), |mib| mib << 20);
        Settings {
            keys: self.keys,
            lookups: self.lookups,
            seconds_max: self.promises.map_or(self.seconds, Topic::seconds),
            load_seconds_max: self.load_seconds,
            total_bytes,
            tombstones: promises::TOMBSTONES_ASKED,
            writes_per_second: self.writes_per_second,
            settle_window_ms: 300,
            seed: self.seed,
            ..settings::small()
        }
    }

    fn run(&self) -> Result<()> {
        if self.only_report {
            let path = self.json.as_deref().ok_or("there is no file")?;
            let mut report: Report = serde_json::from_str(&process::read(path)?)?;
            report.conclude();
            return self.show(&report);
        }
        let plan = self.plan()?;
        if let Some(folder) = self.folder.as_ref().filter(|_| self.show_tasks) {
            for task in plan.tasks(folder) {
                println!("{}", serde_json::to_string(&task)?);
            }
            return Ok(());
        }
        let command = env::args().skip(1).fold("compare".to_owned(), |all, one| all + " " + &one);
        let saved = self.saved(&plan.settings)?;
        let mut report = Report::new(command, Machine::look()?, plan.settings.clone(), saved);
        report.topic = self.promises;
        plan.run(&mut report, |report| self.save(report))?;
        self.save(&report)?;
        self.show(&report)?;
        if !report.failures.is_empty() {
            return Err(format!("{} tasks have failed", report.failures.len()).into());
        }
        let is_missed = |holds: Option<bool>| holds.map_or(self.promises.is_some(), |holds| !holds);
        let missed = report.promises.iter().filter(|one| is_missed(one.holds)).count();
        if self.check && missed > 0 {
            return Err(format!("{missed} promises fall short").into());
        }
        Ok(())
    }

    /// Returns the measurements of an earlier run.
    fn saved(&self, settings: &Settings) -> Result<Vec<Measurement>> {
        let Some(path) = self.json.as_deref().filter(|path| self.resume && path.exists()) else {
            return Ok(Vec::new());
        };
        let saved: Saved = serde_json::from_str(&process::read(path)?)?;
        if saved.settings != *settings {
            return Err(format!("{} has other settings", path.display()).into());
        }
        Ok(saved.measurements)
    }

    fn save(&self, report: &Report) -> Result<()> {
        self.json
            .as_ref()
            .map_or(Ok(()), |path| write(path, &serde_json::to_string_pretty(report)?))
    }

    fn show(&self, report: &Report) -> Result<()> {
        println!("{}", report.markdown());
        if let Some(folder) = &self.plots {
            make_folder(folder)?;
            for (name, svg) in plot::plots(report)? {
                write(&folder.join(name), &svg)?;
            }
        }
        Ok(())
    }
}

#[expect(clippy::disallowed_methods, reason = "a report is no file of a store")]
fn write(path: &Path, text: &str) -> Result<()> {
    // In one go, so that an interrupted run leaves the last report whole.
    let new = path.with_extension("new");
    fs::write(&new, text)
        .and_then(|()| fs::rename(&new, path))
        .map_err(|error| format!("{}: {error}", path.display()).into())
}

#[expect(clippy::disallowed_methods, reason = "plots are no files of a store")]
fn make_folder(path: &Path) -> io::Result<()> {
    fs::create_dir_all(path)
}

/// Does a task in this process.
fn measure(task: &Task) -> Result<Option<Measurement>> {
    match task.contestant {
        Contestant::Sievedb => workload::run::<contestant::sievedb::SieveDb>(task, Tuning::Advised),
        Contestant::SievedbDefaults => {
            workload::run::<contestant::sievedb::SieveDb>(task, Tuning::Defaults)
        }
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
        #[cfg(feature = "sled")]
        Contestant::Sled => workload::run::<contestant::sled::Sled>(task, Tuning::Advised),
        #[cfg(feature = "surrealkv")]
        Contestant::Surrealkv => {
            workload::run::<contestant::surrealkv::SurrealKv>(task, Tuning::Advised)
        }
        #[cfg(feature = "mace")]
        Contestant::Mace => workload::run::<contestant::mace::Mace>(task, Tuning::Advised),
        #[cfg(feature = "canopydb")]
        Contestant::Canopydb => {
            workload::run::<contestant::canopydb::Canopydb>(task, Tuning::Advised)
        }
    }
}

/// Runs a task or the whole comparison, depending on the arguments.
fn run() -> Result<()> {
    let arguments: Vec<String> = env::args().collect();
    if let [_, word, task] = &arguments[..]
        && word == CHILD
    {
        if let Some(measurement) = measure(&serde_json::from_str(task)?)? {
            println!("{}", serde_json::to_string(&measurement)?);
        }
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
