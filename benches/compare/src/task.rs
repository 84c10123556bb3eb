//! What one process does: one workload on one contestant.

use std::path::PathBuf;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::{contestant::Contestant, settings::Settings};

/// What is done to a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Workload {
    /// Writes all keys in random order into a new store, in batches.
    Load,
    /// Looks up present keys.
    Hit,
    /// Looks up absent keys.
    Miss,
    /// Asks whether keys are present, in batches; none is.
    Contains,
    /// The same, when half of the keys are present.
    ContainsHalf,
    /// Looks up absent keys while another thread writes new ones.
    MissWhileWriting,
}

impl Workload {
    /// All, in the order in which they are run: what changes a store comes last.
    pub(crate) const ALL: [Self; 6] = [
        Self::Load,
        Self::Hit,
        Self::Miss,
        Self::Contains,
        Self::ContainsHalf,
        Self::MissWhileWriting,
    ];

    /// What it is called in a report.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Load => "Random load",
            Self::Hit => "Hit",
            Self::Miss => "Miss",
            Self::Contains => "Contains, in batches, all absent",
            Self::ContainsHalf => "Contains, in batches, half present",
            Self::MissWhileWriting => "Miss during writes",
        }
    }
}

/// One workload on one contestant in one round, in a process of its own.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq)]
pub(crate) struct Task {
    pub(crate) contestant: Contestant,
    pub(crate) workload: Workload,
    /// From 0.
    pub(crate) round: u64,
    /// Folder of the store.
    pub(crate) path: PathBuf,
    pub(crate) settings: Settings,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings;

    #[test]
    fn a_task_reaches_the_process_that_does_it() {
        let settings = Settings { seed: u64::MAX, ..settings::small() };
        for &contestant in Contestant::ALL {
            for workload in Workload::ALL {
                let path = PathBuf::from("a folder/with \"quotes\"");
                let task =
                    Task { contestant, workload, round: 1, path, settings: settings.clone() };
                let text = serde_json::to_string(&task).unwrap();
                assert_eq!(serde_json::from_str::<Task>(&text).unwrap(), task, "{text}");
            }
        }
    }
}
