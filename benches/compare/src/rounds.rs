//! Runs the tasks, each in a process of its own, interleaved so that all contestants meet the same
//! moods of the machine.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use tempfile::TempDir;

use crate::{
    contestant::Contestant,
    failure::Result,
    figures::Measurement,
    settings::Settings,
    task::{Task, Workload},
};

/// The word behind which a process is told its task.
pub(crate) const CHILD: &str = "child";

/// What is measured.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) contestants: Vec<Contestant>,
    pub(crate) workloads: Vec<Workload>,
    pub(crate) rounds: u64,
    /// Rounds of the load, which takes longest.
    pub(crate) load_rounds: u64,
    /// Where stores are kept; without it they vanish.
    pub(crate) folder: Option<PathBuf>,
    pub(crate) settings: Settings,
}

impl Plan {
    /// The tasks in their order: workloads one after the other, in each all rounds, in each round all
    /// contestants, beginning with another one each time.
    pub(crate) fn tasks(&self, folder: &Path) -> Vec<Task> {
        let workloads = Workload::ALL.into_iter().filter(|known| self.workloads.contains(known));
        let mut tasks = Vec::new();
        for workload in workloads {
            let rounds = if workload == Workload::Load { self.load_rounds } else { self.rounds };
            for round in 0..rounds {
                let first = round as usize % self.contestants.len().max(1);
                let (late, early) = self.contestants.split_at(first);
                tasks.extend(early.iter().chain(late).map(|&contestant| Task {
                    contestant,
                    workload,
                    round,
                    path: folder.join(contestant.name()),
                    settings: self.settings.clone(),
                }));
            }
        }
        tasks
    }

    /// Does all of it.
    pub(crate) fn run(&self) -> Result<Vec<Measurement>> {
        let (folder, _temporary) = self.folder()?;
        let tasks = self.tasks(&folder);
        let mut measurements = Vec::with_capacity(tasks.len());
        for (number, task) in tasks.iter().enumerate() {
            let measurement = in_child(task)?;
            let figures = &measurement.figures;
            eprintln!(
                "{:>3}/{} {:<18} {:<34} round {}: {:>7.0} ns, {:>7.0} ns CPU; {}",
                number + 1,
                tasks.len(),
                task.contestant.title(),
                task.workload.title(),
                task.round + 1,
                figures.ns,
                figures.cpu_ns,
                measurement.shape,
            );
            measurements.push(measurement);
        }
        Ok(measurements)
    }

    #[expect(clippy::disallowed_methods, reason = "these are folders of other engines too")]
    fn folder(&self) -> Result<(PathBuf, Option<TempDir>)> {
        if let Some(folder) = &self.folder {
            fs::create_dir_all(folder)?;
            return Ok((folder.clone(), None));
        }
        let temporary = tempfile::Builder::new().prefix("sieve-compare-").tempdir()?;
        Ok((temporary.path().to_owned(), Some(temporary)))
    }
}

/// Does `task` in a process of its own.
fn in_child(task: &Task) -> Result<Measurement> {
    let (contestant, workload) = (task.contestant.title(), task.workload.title());
    let failed = |cause: String| format!("{contestant}, {workload}: {cause}");
    let text = serde_json::to_string(task)?;
    let mut child = Command::new(env::current_exe()?);
    let output = child.args([CHILD, &text]).stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        return Err(failed(output.status.to_string()).into());
    }
    serde_json::from_slice(&output.stdout).map_err(|error| failed(error.to_string()).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contestants_take_turns_and_begin_in_turn() {
        let contestants = Contestant::ALL.to_vec();
        let plan = Plan {
            contestants: contestants.clone(),
            workloads: vec![Workload::Miss, Workload::Load],
            rounds: 2,
            load_rounds: 1,
            folder: None,
            settings: crate::settings::small(),
        };
        let tasks = plan.tasks(Path::new("f"));
        let count = contestants.len();
        assert_eq!(tasks.len(), 3 * count);
        let kinds: Vec<_> = tasks.iter().map(|task| (task.workload, task.round)).collect();
        assert_eq!(kinds[..count], vec![(Workload::Load, 0); count]);
        assert_eq!(kinds[count..2 * count], vec![(Workload::Miss, 0); count]);
        assert_eq!(kinds[2 * count..], vec![(Workload::Miss, 1); count]);
        assert_eq!(tasks[count].contestant, contestants[0]);
        assert_eq!(tasks[2 * count].contestant, contestants[1 % count]);
        let folders: std::collections::HashSet<_> = tasks.iter().map(|task| &task.path).collect();
        assert_eq!(folders.len(), count);
    }
}
