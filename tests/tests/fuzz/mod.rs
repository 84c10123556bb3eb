//! Random histories with several faults, crashes and failed recoveries.
//!
//! `SIEVE_FUZZ_STATES` sets the number of states, and `SIEVE_SEED` the seed. A violation prints the
//! `SIEVE_FUZZ` that repeats its run alone.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use sievedb::{Options, planted::PlantedBug};
use sievedb_tests::{
    enumerate::on_two_threads,
    fuzz::{Counts, Planting, fuzz},
    rng::mix,
    settings::{from_env, report, seed},
};

/// Default number of checked states.
const STATES: usize = 10_000;

/// Runs until `states_min` states are checked, a promise is violated, or `runs_max` is reached.
/// Returns the number of runs, their counts, and the violations.
fn run(
    seed: u64,
    states_min: usize,
    runs_max: usize,
    violations_max: usize,
    flips: bool,
    planting: &Planting,
) -> (usize, Counts, Vec<String>) {
    let (runs, states, stop) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicBool::new(false));
    let results = on_two_threads(&[(), ()], |()| {
        let (mut counts, mut violations) = (Counts::default(), Vec::new());
        while !stop.load(Relaxed) && states.load(Relaxed) < states_min {
            let number = runs.fetch_add(1, Relaxed);
            if number >= runs_max {
                break;
            }
            match fuzz(mix(seed ^ mix(number as u64)), flips, planting) {
                Ok(done) => {
                    states.fetch_add(done.states, Relaxed);
                    counts += done;
                }
                Err(text) => {
                    violations.push(format!("run {number}: {text}"));
                    stop.store(violations.len() >= violations_max, Relaxed);
                }
            }
        }
        (counts, violations)
    });
    let (mut counts, mut violations) = (Counts::default(), Vec::new());
    for (done, found) in results {
        counts += done;
        violations.extend(found);
    }
    (runs.into_inner().min(runs_max), counts, violations)
}

fn as_drawn(options: Options) -> Options {
    options
}

/// Acknowledged writes survive, batches are whole, the state is a prefix of the history, the store
/// opens, a second open changes nothing, and no table is leaked.
#[test]
fn random_faults_and_crashes_break_no_promise() {
    let alone = from_env("SIEVE_FUZZ", 0);
    if alone != 0 {
        let counts = fuzz(alone, true, &as_drawn).unwrap_or_else(|text| panic!("{text}"));
        report(&format!("crash fuzzer: SIEVE_FUZZ={alone} is legal: {counts:?}"));
        return;
    }
    let states = from_env("SIEVE_FUZZ_STATES", STATES);
    let seed = seed("crash fuzzer", 1);
    let shown = from_env("SIEVE_SHOWN", 1);
    let (runs, counts, violations) = run(seed, states, usize::MAX, shown, true, &as_drawn);
    let Counts { states, failures, recoveries, flips } = counts;
    report(&format!(
        "crash fuzzer: {states} states of {runs} runs, {failures} failed calls, {recoveries} \
         failing recoveries, {flips} flipped bytes, {} violations",
        violations.len()
    ));
    assert!(violations.is_empty(), "{}", violations.join("\n\n"));
    assert!(
        failures > runs && recoveries > runs / 2 && flips > runs / 4,
        "the fuzzer became blind"
    );
}

/// Asserts that the fuzzer reports `what` within `runs_max` runs of a store with `bug`.
fn assert_found(bug: PlantedBug, what: &str, runs_max: usize, flips: bool) {
    let planting = move |options: Options| options.planted_bug(bug);
    let seed = seed("crash fuzzer", 1);
    let (runs, _, violations) = run(seed, usize::MAX, runs_max, 1, flips, &planting);
    let found = violations.iter().find(|text| text.contains(what));
    let found = found.unwrap_or_else(|| panic!("not found in {runs} runs: {violations:?}"));
    let first = found.lines().next().unwrap_or_default();
    report(&format!("crash fuzzer: {bug:?} was found within {runs} runs: {first}"));
}

/// This bug needs two failing calls, a reopen and a power cut.
#[test]
fn n3_reused_file_id_is_found_within_ten_thousand_runs() {
    assert_found(PlantedBug::AdoptSegmentBelowFloor, "segment of the log", 10_000, false);
}

/// With this bug, a close after a full disk does not mark the log as synced.
#[test]
fn n2_missing_synced_mark_is_found_within_a_thousand_runs() {
    let what = "is flipped, and not refused";
    assert_found(PlantedBug::LeaveEndedLogUnvouched, what, 1_000, true);
}
