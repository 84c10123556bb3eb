//! Power cuts during and after checkpoints: a checkpoint is whole or does not open.

use std::sync::Arc;

use sievedb::{Durability, Error, Options, fs::Fs, planted::PlantedBug};
use sievedb_doubles::MemoryFs;
use sievedb_tests::{
    cuts::cut_power,
    model::{DEFAULT, Model},
    observe::observe,
    recorder::Recorder,
    settings::{STORE_DIR, report, seed, small_options},
};

/// A checkpoint, and the operations of the disk before and after it.
#[derive(Debug, Clone)]
struct Taken {
    path: String,
    began: usize,
    ended: usize,
    sequence: u64,
    content: Model,
}

/// Options of stores, with a bug or without.
fn options(disk: &Arc<MemoryFs>, planted: Option<PlantedBug>) -> Options {
    let options = small_options(Arc::clone(disk) as Arc<dyn Fs>);
    planted.map_or(options.clone(), |bug| options.planted_bug(bug))
}

/// Writes to a store and takes checkpoints. Returns these.
fn story(recorder: &mut Recorder) -> Vec<Taken> {
    let mut taken = Vec::new();
    let mut take = |recorder: &mut Recorder| {
        let (path, began) = (format!("data/copy{}", taken.len()), recorder.disk().operations());
        let db = recorder.db().clone();
        let taken_now = db.checkpoint(&path).unwrap_or_else(|error| panic!("{path}: {error:?}"));
        let sequence = taken_now.sequence;
        let (ended, content) = (recorder.disk().operations(), recorder.history().model().clone());
        taken.push(Taken { path, began, ended, sequence, content });
    };
    recorder.create("other");
    for round in 0..3 {
        for number in 0..4 {
            recorder.insert_with(DEFAULT, format!("{number}"), 300, Durability::Memory);
        }
        recorder.batch(&[(DEFAULT, "both"), ("other", "both")], 700, Durability::OsBuffer);
        take(recorder);
        // Ends a segment of the log, which nothing syncs.
        recorder.insert(DEFAULT, "long", 5000);
        recorder.insert("other", "short", 50);
        take(recorder);
        recorder.insert(DEFAULT, format!("later{round}"), 2500);
        recorder.flush();
        recorder.insert(DEFAULT, format!("last{round}"), 100);
        take(recorder);
    }
    recorder.compact();
    take(recorder);
    recorder.insert_with(DEFAULT, "end", 50, Durability::Disk);
    taken
}

/// Cuts the power after each operation from the first checkpoint on. Returns the number of checked
/// states of checkpoints.
fn cut_everywhere(planted: Option<PlantedBug>, seed: u64) -> Result<usize, String> {
    let disk = Arc::new(MemoryFs::new());
    let mut recorder = Recorder::new(Arc::clone(&disk), options(&disk, planted), Model::default());
    let taken = story(&mut recorder);
    recorder.close();
    cut_power(&disk, taken[0].began, seed, |left, at| {
        let begun = taken.iter().filter(|checkpoint| checkpoint.began < at);
        begun.map(|checkpoint| check(left, checkpoint, at, &recorder).map(|()| 1)).sum()
    })
}

/// Checks that a checkpoint is whole on the disk that a cut left, or that it was not done and does
/// not open.
fn check(
    left: &Arc<MemoryFs>,
    checkpoint: &Taken,
    at: usize,
    recorder: &Recorder,
) -> Result<(), String> {
    let Taken { path, ended, sequence, content, .. } = checkpoint;
    if at >= *ended {
        let store = options(left, None).read_only(true).open(STORE_DIR);
        let newest = store.map_err(|error| format!("{error:?}"))?.snapshot().sequence();
        if newest < *sequence {
            return Err(format!("the store ends at {newest}, its checkpoint at {sequence}"));
        }
    }
    let found = match options(left, None).create_if_missing(false).open(path) {
        Ok(copy) => {
            let found = observe(&copy, recorder.history().keys());
            let report = copy.verify().map_err(|error| format!("{error:?}"))?;
            if !report.is_good() {
                return Err(format!("{path}: {report}"));
            }
            found.map_err(|error| format!("{path}: {error}"))?
        }
        Err(Error::NoStore { .. } | Error::Corrupt { .. }) if at < *ended => return Ok(()),
        Err(error) => return Err(format!("{path}, done at {ended}, cannot be opened: {error:?}")),
    };
    match found == *content {
        true => Ok(()),
        false => Err(format!("{path}, cut at {at}: {}", found.difference(content, 12))),
    }
}

#[test]
fn checkpoint_is_whole_or_does_not_open_after_a_power_cut() {
    let states = cut_everywhere(None, seed("cuts of checkpoints", 1));
    let states = states.unwrap_or_else(|violation| panic!("{violation}"));
    report(&format!("cuts of checkpoints: {states} states, 0 violations"));
    assert!(states > 2000, "only {states} states");
}

#[test]
fn planted_unsynced_checkpoint_is_caught() {
    let caught = cut_everywhere(Some(PlantedBug::CheckpointWithoutLogSync), 1);
    let violation = caught.expect_err("the planted bug is caught");
    let first = violation.lines().next().unwrap_or_default();
    report(&format!("planted bug, linked log without a sync: {first}"));
}
