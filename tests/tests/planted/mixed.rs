//! Planted bugs that the random calls of every feature find.

use sievedb::planted::PlantedBug;
use sievedb_tests::{
    check::guarded,
    settings::{report, seed},
};

use crate::mixed::{SETS, Story};

/// Calls under each set of options until a bug must be found.
const CALLS_MAX: usize = 40_000;

#[test]
fn mixed_calls_catch_planted_bugs() {
    let bugs = [
        PlantedBug::DropTombstoneEarly,
        PlantedBug::InstallFlushBeforeLogSync,
        PlantedBug::SkipRangeValidation,
        PlantedBug::FilterVersionsOfSnapshots,
    ];
    let seed = seed("planted bug", 1);
    for bug in bugs {
        let caught = SETS.iter().find_map(|set| {
            let mut calls = 0;
            let run = guarded(|| {
                let mut story = Story::new(set, seed, Some(bug));
                while calls < CALLS_MAX {
                    story.call();
                    calls += 1;
                }
                Ok(())
            });
            run.err().map(|text| (set.name, calls, text))
        });
        let (set, calls, text) = caught.unwrap_or_else(|| panic!("{bug:?} was not caught"));
        let first = text.lines().next().unwrap_or_default();
        report(&format!("planted bug, {bug:?}, at call {calls} of set \"{set}\": {first}"));
    }
}
