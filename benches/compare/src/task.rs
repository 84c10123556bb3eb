//! The task of one process: one case on one contestant.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::{case::Case, contestant::Contestant, settings::Settings};

/// One case on one contestant in one round.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq)]
pub(crate) struct Task {
    pub(crate) contestant: Contestant,
    pub(crate) case: Case,
    /// From 0.
    pub(crate) round: u64,
    /// Directory of all stores of the contestant.
    pub(crate) folder: PathBuf,
    /// Number of this process among those measured against threads.
    pub(crate) peer: Option<usize>,
    pub(crate) settings: Settings,
}

impl Task {
    /// Returns the task with the settings for its case.
    pub(crate) fn new(
        contestant: Contestant,
        case: Case,
        round: u64,
        folder: &Path,
        settings: &Settings,
    ) -> Self {
        let folder = folder.join(contestant.name());
        let settings = settings.of_fit(case.fit);
        let sync_writes = case.workload == crate::case::Workload::SyncWrite;
        let settings = Settings { sync_writes, ..settings };
        Self { contestant, case, round, folder, peer: None, settings }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        case::{Fit, Workload},
        settings,
    };

    #[test]
    fn task_is_passed_to_the_child_process() {
        let settings = Settings { seed: u64::MAX, ..settings::small() };
        let folder = Path::new("a folder/with \"quotes\"");
        for &contestant in Contestant::ALL {
            for case in Case::all(&Workload::ALL, &Fit::ALL, 16) {
                let task =
                    Task { peer: Some(1), ..Task::new(contestant, case, 1, folder, &settings) };
                let text = serde_json::to_string(&task).unwrap();
                assert_eq!(serde_json::from_str::<Task>(&text).unwrap(), task, "{text}");
            }
        }
    }

    #[test]
    fn settings_match_the_case() {
        let settings = settings::small();
        let task =
            |case| Task::new(Contestant::Sievedb, case, 0, Path::new("f"), &settings).settings;
        let hit = Case::cached(Workload::Hit);
        assert_eq!(task(hit), settings);
        let ten_times = task(Case { fit: Fit::TenTimes, ..hit });
        assert!(ten_times.total_bytes < settings.total_bytes && ten_times.drop_page_cache);
        assert!(task(Case::cached(Workload::SyncWrite)).sync_writes);
    }
}
