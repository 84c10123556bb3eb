//! Failing calls during checkpoints: the store is unharmed, and no incomplete checkpoint opens.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::{path::Path, sync::Arc};

use sievedb::{Error, fs::Fs};
use sievedb_doubles::{Fault, FaultFs, Loss, MemoryFs, Times};
use sievedb_tests::{
    check::guarded,
    enumerate::{on_two_threads, verdict},
    model::{DEFAULT, Model},
    recorder::Recorder,
    settings::{STORE_DIR, small_options},
};

const COPY: &str = "data/copy";

/// A failing call during a checkpoint.
#[derive(Debug, Clone, Copy)]
struct Trial {
    call: usize,
    errno: i32,
    times: Times,
    carried_out: bool,
}

/// Returns whether a call failed.
fn run(trial: &Trial) -> Result<bool, String> {
    guarded(|| {
        let disk = Arc::new(MemoryFs::new());
        let faults = Arc::new(FaultFs::new(Arc::clone(&disk) as Arc<dyn Fs>));
        let options = small_options(Arc::clone(&faults) as Arc<dyn Fs>);
        let mut recorder = Recorder::new(Arc::clone(&disk), options, Model::default());
        recorder.create("other");
        for number in 0..12 {
            recorder.insert(DEFAULT, format!("{number}"), 500);
            recorder.insert("other", format!("{number}"), 500);
        }
        recorder.flush();
        recorder.insert_with(DEFAULT, "logged", 5000, sievedb::Durability::Memory);
        recorder.insert_with(DEFAULT, "logged too", 100, sievedb::Durability::Memory);
        recorder.expect_failures();
        let fault = Fault::new(trial.errno, trial.times).after(trial.call);
        faults.inject(if trial.carried_out { fault.carried_out() } else { fault });
        let taken = recorder.checkpoint(COPY);
        let struck = faults.failures() > 0;
        let of_store = faults.failed_calls().iter().any(|it| it.path.starts_with(STORE_DIR));
        faults.heal();
        // Without `CLOSED` the next open only takes longer.
        let counts = faults.failed_calls().iter().any(|it| !it.path.ends_with("CLOSED"));
        if taken && trial.times == Times::ForGood && counts {
            return Err("a checkpoint succeeded on a broken disk".to_owned());
        }
        // A call that failed once may be one that only cleans up.
        if !taken && trial.times == Times::Once && !trial.carried_out {
            let left = disk.list(Path::new(COPY)).unwrap_or_default();
            if !left.is_empty() {
                return Err(format!("files are left: {left:?}"));
            }
        }
        // Calls on the target alone do not concern the store.
        recorder.expect_no_failures(of_store);
        recorder.insert(DEFAULT, "healed", 20);
        recorder.check();
        if !of_store {
            recorder.compact();
            if !taken {
                assert!(recorder.checkpoint("data/second"), "the disk is healed");
            }
        }
        recorder.expect_no_failures(true);
        recorder.reopen();
        for loss in [Loss::Nothing, Loss::Everything] {
            let left = Arc::new(disk.crash(disk.operations(), &loss));
            let opened = small_options(left).create_if_missing(false).open(COPY);
            match opened {
                Ok(copy) => {
                    let report = copy.verify().map_err(|error| format!("{error:?}"))?;
                    assert!(report.is_good(), "{report}");
                    assert_eq!(copy.get("logged too").unwrap().map(|value| value.len()), Some(100));
                }
                Err(Error::NoStore { .. } | Error::Corrupt { .. }) if !taken => {}
                Err(error) => return Err(format!("the checkpoint does not open: {error:?}")),
            }
        }
        Ok(struck)
    })
    .map_err(|text| format!("{trial:?}: {text}"))
}

#[test]
fn failed_call_harms_neither_store_nor_checkpoint() {
    let mut trials = Vec::new();
    for call in 0..90 {
        for (errno, times) in [(5, Times::Once), (5, Times::ForGood), (28, Times::Once)] {
            for carried_out in [false, true] {
                trials.push(Trial { call, errno, times, carried_out });
            }
        }
    }
    let results = on_two_threads(&trials, run);
    let struck = verdict("failing calls of checkpoints", "failed calls", results);
    assert!(struck > trials.len() / 3, "only {struck} trials struck");
}
