//! Power cuts and failing calls, as of a store without encryption.

use std::sync::Arc;

use sievedb_doubles::{MemoryFs, Times};
use sievedb_tests::{
    enumerate::{Extent, enumerate, on_two_threads, verdict},
    settings::{bounded_options, seed},
    workload::workload,
};

use super::{encrypted, keys};
use crate::faults::sweep::{EIO, ENOSPC, Group, Trial, calls_of, run_with};

/// Together they use every kind of file and the ends of logs.
const CUT: [&str; 6] =
    ["mixed", "reopen-often", "log-rotation", "filters-rebuilt", "changes-anything", "checkpoints"];

#[test]
fn every_crash_leaves_a_legal_state() {
    let seed = seed("crashes of encrypted stores", 1);
    let options = move |disk: Arc<MemoryFs>| bounded_options(disk, seed).encryption(keys(1));
    let extent =
        Extent { random: 1, alone_max: usize::MAX, second_every: 40, second_cuts: 2, seed };
    let results = on_two_threads(&CUT, |name| enumerate(workload(name), &options, &extent));
    let states = verdict("crashes of encrypted stores", "states", results);
    assert!(states > 2000, "only {states} states");
}

#[test]
fn failed_call_loses_no_acknowledged_write() {
    let mut trials = Vec::new();
    for name in ["mixed", "log-rotation", "filters-rebuilt"] {
        let calls = calls_of(workload(name)).all;
        for (errno, times) in [(EIO, Times::Once), (EIO, Times::ForGood), (ENOSPC, Times::ForGood)]
        {
            // An encrypted store reads heads of files, too.
            trials.extend((0..calls * 5 / 4).step_by(2).map(|call| Trial {
                workload: name,
                call,
                errno,
                times,
                group: Group::All,
            }));
        }
    }
    let results = on_two_threads(&trials, |trial| run_with(trial, encrypted, encrypted));
    let struck = verdict("failing calls of encrypted stores", "failed calls", results);
    assert!(struck > trials.len() / 2, "only {struck} of {} trials struck", trials.len());
}
