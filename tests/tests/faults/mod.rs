//! Failing calls of the file system, one after the other.

mod panicking;
pub(crate) mod sweep;

use sievedb::planted::PlantedBug;
use sievedb_doubles::Times;
use sievedb_tests::{
    enumerate::{on_two_threads, verdict},
    settings::{from_env, report, seed, small_options},
    workload::workload,
};
use sweep::{EIO, ENOMEM, ENOSPC, Group, Trial, calls_of, run, run_with};

/// Workloads with failing calls. Together they use every kind of write.
const WORKLOADS: [&str; 9] = [
    "mixed",
    "reopen-flushed",
    "log-rotation",
    "compaction",
    "recreate",
    "batches-memory",
    "held-ranges",
    "filters-rebuilt",
    "filters-compacted",
];

/// Acknowledged writes survive, batches are whole, and the store recovers.
///
/// Takes every third trial from a place that the seed chooses; with `SIEVE_LONG=1`, all.
/// `SIEVE_FAULT`, which a failure prints, runs one trial alone.
#[test]
fn failed_call_loses_no_acknowledged_write() {
    let only = from_env("SIEVE_FAULT", String::new());
    let mut trials = Vec::new();
    for name in WORKLOADS {
        let calls = calls_of(workload(name));
        for (errno, times) in [
            (EIO, Times::Once),
            (EIO, Times::ForGood),
            (ENOSPC, Times::Once),
            (ENOSPC, Times::ForGood),
            (ENOMEM, Times::Once),
            (ENOMEM, Times::ForGood),
        ] {
            let of = |call| Trial { workload: name, call, errno, times, group: Group::All };
            trials.extend((0..calls.all).map(of));
        }
        for (errno, group, count) in
            [(ENOSPC, Group::Growing, calls.growing), (ENOMEM, Group::NoSyncs, calls.no_syncs)]
        {
            let times = Times::ForGood;
            trials.extend((0..count).map(|call| Trial {
                workload: name,
                call,
                errno,
                times,
                group,
            }));
        }
    }
    if !only.is_empty() {
        trials.retain(|trial| trial.to_string() == only);
        assert!(!trials.is_empty(), "SIEVE_FAULT={only} is no trial");
    } else if from_env("SIEVE_LONG", 0) == 0 {
        let first = seed("error sweep", 1) as usize % 3;
        trials = trials.into_iter().skip(first).step_by(3).collect();
    }
    let struck = verdict("error sweep", "failed calls", on_two_threads(&trials, run));
    assert!(!only.is_empty() || struck * 10 > trials.len() * 9, "most trials must strike");
}

/// An error of one range of a compaction ends the others, and leaves the store as it was.
#[test]
fn failed_call_of_several_ranges_loses_no_acknowledged_write() {
    let opening = |fs| small_options(fs).compaction_ranges(3);
    let (name, times) = ("compaction", Times::Once);
    let first = seed("error sweep of several ranges", 1) as usize % 5;
    // Several ranges make more calls.
    let calls = calls_of(workload(name)).all * 5 / 4;
    let mut trials = Vec::new();
    for errno in [EIO, ENOSPC] {
        let of = |call| Trial { workload: name, call, errno, times, group: Group::All };
        trials.extend((first..calls).step_by(5).map(of));
    }
    let results = on_two_threads(&trials, |trial| run_with(trial, opening, opening));
    let struck = verdict("error sweep of several ranges", "failed calls", results);
    assert!(struck * 2 > trials.len(), "most trials must strike");
}

/// A valid manifest must not be continued after its sync failed.
#[test]
fn planted_manifest_reuse_after_a_failed_sync_is_caught() {
    let name = "mixed";
    let trial =
        |call| Trial { workload: name, call, errno: EIO, times: Times::Once, group: Group::All };
    let opening = |fs| small_options(fs).planted_bug(PlantedBug::KeepAnyManifest);
    let caught = (0..calls_of(workload(name)).all)
        .find_map(|call| run_with(&trial(call), opening, small_options).err());
    let violation = caught.expect("the planted bug is caught");
    report(&format!(
        "planted bug, any manifest is kept: {}",
        violation.lines().next().unwrap_or("")
    ));
}
