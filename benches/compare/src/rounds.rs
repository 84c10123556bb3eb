//! Runs each task in its own process. Interleaves contestants, so that all of them meet the same
//! machine conditions.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use indicatif::{ProgressBar, ProgressStyle};
use tempfile::TempDir;

use crate::{
    case::{Case, Store, Workload},
    contestant::Contestant,
    failure::Result,
    figures::Measurement,
    report::Report,
    settings::Settings,
    task::Task,
};

/// The argument before the task of a child process.
pub(crate) const CHILD: &str = "child";

/// Minimum number of rounds of openings, unless there is one: they are short and noisy.
const OPEN_ROUNDS_MIN: u64 = 5;

/// Plan of a run.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) contestants: Vec<Contestant>,
    pub(crate) cases: Vec<Case>,
    /// `true` if only SieveDB is measured with threads versus processes.
    pub(crate) scale_ours_alone: bool,
    pub(crate) rounds: u64,
    /// Rounds of the loads, which take longest.
    pub(crate) load_rounds: u64,
    /// Directory that keeps the stores; without it they are removed.
    pub(crate) folder: Option<PathBuf>,
    pub(crate) settings: Settings,
}

impl Plan {
    /// Returns the tasks in order: by case, round and contestant. Each round starts with another
    /// contestant.
    pub(crate) fn tasks(&self, folder: &Path) -> Vec<Task> {
        let mut tasks = Vec::new();
        for &case in &self.cases {
            let scale = matches!(case.workload, Workload::ScaleHit | Workload::ScaleMiss);
            let takes_part = |one: &&Contestant| {
                !scale || !self.scale_ours_alone || **one == Contestant::Sievedb
            };
            let contestants: Vec<_> = self.contestants.iter().filter(takes_part).collect();
            for round in 0..self.rounds_of(case.workload) {
                let first = round as usize % contestants.len().max(1);
                let (late, early) = contestants.split_at(first);
                let turns = early.iter().chain(late);
                tasks.extend(turns.map(|&&contestant| {
                    Task::new(contestant, case, round, folder, &self.settings)
                }));
            }
        }
        tasks
    }

    fn rounds_of(&self, workload: Workload) -> u64 {
        match workload {
            Workload::Load | Workload::LoadSingle | Workload::LoadAscending => self.load_rounds,
            Workload::Open if self.rounds > 1 => self.rounds.max(OPEN_ROUNDS_MIN),
            _ => self.rounds,
        }
    }

    /// Runs the tasks that `report` has no measurement of, and adds their measurements. Calls
    /// `on_measured` after each. Records failures in the report, and continues with other tasks.
    /// Skips a contestant after a failed load.
    pub(crate) fn run(
        &self,
        report: &mut Report,
        mut on_measured: impl FnMut(&Report) -> Result<()>,
    ) -> Result<()> {
        let (folder, _temporary) = self.folder()?;
        let mut tasks = self.tasks(&folder);
        tasks.retain(|task| !report.measurements.iter().any(|done| is_of(done, task)));
        let bar = ProgressBar::new(tasks.len() as u64).with_style(ProgressStyle::with_template(
            "{bar:30} {pos}/{len} {elapsed} of {duration} {msg}",
        )?);
        let mut without_store = Vec::new();
        for task in &tasks {
            let name = format!("{}, {}", task.contestant.title(), task.case);
            bar.set_message(name.clone());
            if !without_store.contains(&task.contestant) {
                match in_child(task) {
                    Ok(measurement) => {
                        bar.suspend(|| eprintln!("{}", line(&measurement)));
                        report.measurements.push(measurement);
                    }
                    Err(error) => {
                        let failure = format!("{name}, round {}: {error}", task.round + 1);
                        bar.suspend(|| eprintln!("failed: {failure}"));
                        report.failures.push(failure);
                        if task.case.workload.store() == Store::Main {
                            without_store.push(task.contestant);
                        }
                    }
                }
                on_measured(report)?;
            }
            bar.inc(1);
        }
        bar.finish_and_clear();
        report.conclude();
        Ok(())
    }

    #[expect(clippy::disallowed_methods, reason = "these are directories of other engines too")]
    fn folder(&self) -> Result<(PathBuf, Option<TempDir>)> {
        if let Some(folder) = &self.folder {
            fs::create_dir_all(folder)?;
            // The canonical path, by which memory maps are found.
            return Ok((fs::canonicalize(folder)?, None));
        }
        let temporary = tempfile::Builder::new().prefix("sieve-compare-").tempdir()?;
        Ok((fs::canonicalize(temporary.path())?, Some(temporary)))
    }
}

/// Returns `true` if `measurement` is the result of `task`.
fn is_of(measurement: &Measurement, task: &Task) -> bool {
    let Measurement { contestant, case, round, .. } = *measurement;
    (contestant, case, round) == (task.contestant, task.case, task.round)
}

/// Formats a measurement in one line.
fn line(measurement: &Measurement) -> String {
    let Measurement { contestant, case, round, shape, figures } = measurement;
    format!(
        "{:<18} {:<44} round {}: {:>9.0} ns, {:>8.0} ns CPU, {:>8.0} operations; {shape}",
        contestant.title(),
        case.to_string(),
        round + 1,
        figures.ns,
        figures.cpu_ns,
        figures.operations,
    )
}

/// Runs `task` in a child process.
fn in_child(task: &Task) -> Result<Measurement> {
    let text = serde_json::to_string(task)?;
    let mut child = Command::new(env::current_exe()?);
    let output =
        child.args([CHILD, &text]).stdin(Stdio::null()).stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        return Err(output.status.to_string().into());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::Fit;

    fn plan(workloads: &[Workload]) -> Plan {
        Plan {
            contestants: Contestant::ALL.to_vec(),
            cases: Case::all(workloads, &[Fit::Cached], 2),
            scale_ours_alone: true,
            rounds: 2,
            load_rounds: 1,
            folder: None,
            settings: crate::settings::small(),
        }
    }

    #[test]
    fn contestants_alternate_and_rotate_the_first() {
        let plan = plan(&[Workload::Miss, Workload::Load]);
        let contestants = &plan.contestants;
        let tasks = plan.tasks(Path::new("f"));
        let count = contestants.len();
        assert_eq!(tasks.len(), 3 * count);
        let kinds: Vec<_> = tasks.iter().map(|task| (task.case.workload, task.round)).collect();
        assert_eq!(kinds[..count], vec![(Workload::Load, 0); count]);
        assert_eq!(kinds[count..2 * count], vec![(Workload::Miss, 0); count]);
        assert_eq!(kinds[2 * count..], vec![(Workload::Miss, 1); count]);
        assert_eq!(tasks[count].contestant, contestants[0]);
        assert_eq!(tasks[2 * count].contestant, contestants[1 % count]);
        let folders: std::collections::HashSet<_> = tasks.iter().map(|task| &task.folder).collect();
        assert_eq!(folders.len(), count);
    }

    #[test]
    fn cases_may_have_their_own_rounds_or_contestants() {
        let count = Contestant::ALL.len();
        let tasks = |workload| plan(&[workload]).tasks(Path::new("f")).len();
        assert_eq!(tasks(Workload::LoadSingle), count);
        assert_eq!(tasks(Workload::Hit), 2 * count);
        assert_eq!(tasks(Workload::Open), OPEN_ROUNDS_MIN as usize * count);
        assert_eq!(tasks(Workload::ScaleHit), 2);
    }
}
