//! Power cuts after every operation of scripted histories.

use std::sync::Arc;

use sievedb_doubles::MemoryFs;
use sievedb_tests::{
    case::Case,
    enumerate::{Extent, enumerate, on_two_threads, run_case, verdict},
    kill::kill_everywhere,
    settings::{bounded_options, from_env, report, seed},
    workload::{WORKLOADS, Workload, workload},
};

mod durability;
mod reach;
mod threads;

/// Minimum number of checked states.
const STATES_MIN: usize = 20_000;

/// Returns the workloads to run, with the text that chooses them.
fn chosen() -> (String, Vec<Workload>) {
    let only = from_env("SIEVE_WORKLOAD", String::new());
    let is_chosen = |workload: &&Workload| workload.name.contains(&only);
    let workloads = WORKLOADS.iter().filter(is_chosen).copied().collect();
    (only, workloads)
}

/// Recovery succeeds, the state is a legal prefix of the history, and reopening changes nothing.
///
/// `SIEVE_CASE`, which a failure prints, runs one state alone, and `SIEVE_WORKLOAD` the workloads
/// with this text in their names.
#[test]
fn every_crash_leaves_a_legal_state() {
    let case = from_env("SIEVE_CASE", String::new());
    let seed = seed("crash enumeration", 1);
    // The filter limit differs by seed.
    let options = move |disk: Arc<MemoryFs>| bounded_options(disk, seed);
    if !case.is_empty() {
        let case: Case = case.parse().expect("SIEVE_CASE is as a failure printed it");
        let workload = workload(&case.workload);
        run_case(workload, &options, &case).unwrap_or_else(|violation| panic!("{violation}"));
        report(&format!("crash enumeration: {case} is legal"));
        return;
    }
    let extent = Extent::usual(seed);
    let (only, workloads) = chosen();
    let results = on_two_threads(&workloads, |workload| {
        enumerate(workload, &options, &extent).inspect(|states| {
            report(&format!("crash enumeration: {states:>6} states of {}", workload.name));
        })
    });
    let states = verdict("crash enumeration", "states", results);
    assert!(states >= STATES_MIN || !only.is_empty(), "only {states} states");
}

/// A compaction of several ranges installs all of their tables, or none.
#[test]
fn every_crash_of_several_ranges_leaves_a_legal_state() {
    const NAMES: [&str; 6] = [
        "compaction",
        "overwrite-remove",
        "range-removals-drop-tables",
        "merge-folded-by-compactions",
        "blob-files-rewritten",
        "expiring-values",
    ];
    let seed = seed("crash enumeration of several ranges", 1);
    let options = move |disk: Arc<MemoryFs>| bounded_options(disk, seed).compaction_ranges(3);
    let extent = Extent { random: 1, alone_max: 2, second_every: 80, ..Extent::usual(seed) };
    let results = on_two_threads(&NAMES, |name| enumerate(workload(name), &options, &extent));
    let states = verdict("crash enumeration of several ranges", "states", results);
    assert!(states > 1_000, "only {states} states");
}

/// A killed process leaves valid unsynced bytes. The next process must make durable what it depends
/// on.
#[test]
fn restart_after_a_kill_depends_on_synced_data_only() {
    let seed = seed("kills", 1);
    let is_long = from_env("SIEVE_LONG", 0) == 1;
    let every = from_env("SIEVE_KILL_EVERY", if is_long { 3 } else { 6 });
    let (_, workloads) = chosen();
    let results = on_two_threads(&workloads, |workload| kill_everywhere(workload, every, seed));
    let states = verdict("kills", "states", results);
    assert!(states > 0, "no kill at all");
}
