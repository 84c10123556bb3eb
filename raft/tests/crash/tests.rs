//! Crashes below log and state machine: power cuts and kills after any operation of a disk, and
//! the bugs that these tests find.
//!
//! `SIEVE_RAFT_STATES` is the number of states to check, `SIEVE_SEED` chooses other workloads.

use sievedb_doubles::Loss;
use sievedb_raft::{Options, PlantedBug};
use sievedb_tests::{
    check::guarded,
    rng::{Rng, mix},
    settings::{from_env, report, seed},
};

use crate::{check::check, history::History, workload};

/// Workloads of one run.
const WORKLOADS: usize = 4;

/// The result of a run.
struct Outcome {
    states: usize,
    violation: Option<String>,
}

/// Checks `states` states of several workloads, until one is illegal.
fn run(seed: u64, states: usize, bug: Option<PlantedBug>) -> Outcome {
    let mut checked = 0;
    for number in 0..WORKLOADS {
        let workload = mix(seed ^ mix(number as u64));
        let history = workload::record(workload, bug);
        let mut lots = Rng::new(workload);
        let cuts = (number + 1) * states / WORKLOADS - checked;
        for _ in 0..cuts {
            let at = lots.below(history.disk.operations() + 1);
            let loss = loss(&history, at, &mut lots);
            let second = lots.chance(1, 10).then(|| lots.number());
            checked += 1;
            let found = guarded(|| check(&history, at, &loss, second, bug));
            if let Err(message) = found {
                let trace = history.disk.trace(at, &loss);
                let lines: Vec<_> = trace.lines().rev().take(40).collect();
                let trace: Vec<_> = lines.into_iter().rev().collect();
                let violation = format!(
                    "workload {number}, cut at {at}, {loss:?}: {message}\n{}",
                    trace.join("\n")
                );
                return Outcome { states: checked, violation: Some(violation) };
            }
        }
    }
    Outcome { states: checked, violation: None }
}

fn loss(history: &History, at: usize, lots: &mut Rng) -> Loss {
    match (history.disk.unsynced(at), lots.below(5)) {
        (0, _) | (_, 0) => Loss::Nothing,
        (_, 1) => Loss::Everything,
        (unsynced, 2) => Loss::Alone(lots.below(unsynced)),
        (_, lot) => Loss::Random { seed: lots.number(), torn: lot == 3 },
    }
}

pub(crate) fn options(store: sievedb::Options, bug: Option<PlantedBug>) -> Options {
    let options = Options::new(store);
    match bug {
        Some(bug) => options.planted_bug(bug),
        None => options,
    }
}

#[test]
fn each_state_after_a_crash_is_legal() {
    let seed = seed("raft crashes", 1);
    let states = from_env("SIEVE_RAFT_STATES", 1000);
    let outcome = run(seed, states, None);
    let violations = usize::from(outcome.violation.is_some());
    report(&format!("raft crashes: {} states, {violations} violations", outcome.states));
    assert!(outcome.violation.is_none(), "{}", outcome.violation.unwrap_or_default());
}

#[test]
fn planted_bugs_are_found() {
    for bug in [
        PlantedBug::UnsyncedVote,
        PlantedBug::UnsyncedEntries,
        PlantedBug::ApplyWithoutId,
        PlantedBug::UnrecordedInstallation,
        PlantedBug::UnsyncedSnapshot,
    ] {
        let outcome = run(1, 4000, Some(bug));
        let found = outcome.violation.unwrap_or_default();
        let first = found.lines().next().unwrap_or_default();
        assert!(!first.is_empty(), "{bug:?} was not found in {} states", outcome.states);
        report(&format!("planted bug, {bug:?}: found after {} states: {first}", outcome.states));
    }
}
