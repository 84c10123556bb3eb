//! Power cuts: each listed backup is whole.

use std::sync::Arc;

use sievedb::{BackupSet, Retention, clock::ManualClock, fs::Fs, planted::PlantedBug};
use sievedb_doubles::{Loss, MemoryFs};
use sievedb_tests::{
    cuts::cut_power,
    model::{DEFAULT, Model},
    observe::observe,
    recorder::Recorder,
    settings::{STORE_DIR, report, seed},
};

use super::{options, set};

/// A backup, when it was done, and its content. Pruned backups may be gone.
struct Taken {
    number: u64,
    ended: usize,
    content: Model,
    is_pruned: bool,
}

/// Cuts the power after each operation of backups and a prune. Returns the number of checked
/// states.
fn cut_everywhere(planted: Option<PlantedBug>, seed: u64) -> Result<usize, String> {
    let disk = Arc::new(MemoryFs::new());
    let with_bug = options(&disk);
    let with_bug = planted.map_or(with_bug.clone(), |bug| with_bug.planted_bug(bug));
    let mut recorder = Recorder::new(Arc::clone(&disk), with_bug, Model::default());
    let (set, mut taken, began) = (set(&disk), Vec::new(), disk.operations());
    for round in 0..4 {
        for number in 0..5 {
            recorder.insert(DEFAULT, format!("{}", number + round), 700);
        }
        if round % 2 == 1 {
            recorder.flush();
        }
        let backup = set.create(recorder.db()).map_err(|error| format!("{error:?}"))?;
        let (ended, content) = (disk.operations(), recorder.history().model().clone());
        taken.push(Taken { number: backup.number, ended, content, is_pruned: round < 2 });
    }
    set.prune(&Retention::new().last(2)).map_err(|error| format!("{error:?}"))?;
    let pruned_from = taken.last().map_or(0, |newest| newest.ended);
    cut_power(&disk, began, seed, |left, at| {
        let done = |it: &&Taken| it.ended <= at && (!it.is_pruned || at <= pruned_from);
        let done: Vec<_> = taken.iter().filter(done).map(|it| it.number).collect();
        check(left, &taken, &done, &recorder).map(|()| 1)
    })
}

/// Checks that every listed backup restores its content, and that all of `done` are listed.
fn check(
    left: &Arc<MemoryFs>,
    taken: &[Taken],
    done: &[u64],
    recorder: &Recorder,
) -> Result<(), String> {
    let set = set(left);
    let listed = set.list().map_err(|error| format!("{error:?}"))?;
    let is_listed = |number: &u64| listed.iter().any(|backup| backup.number == *number);
    if let Some(lost) = done.iter().find(|number| !is_listed(number)) {
        return Err(format!("backup {lost} is lost"));
    }
    for backup in listed {
        let path = format!("data/restored{}", backup.number);
        set.restore(backup.number, &path).map_err(|error| format!("{error:?}"))?;
        let copy = options(left).create_if_missing(false).read_only(true).open(&path);
        let copy = copy.map_err(|error| format!("{error:?}"))?;
        let found = observe(&copy, recorder.history().keys()).map_err(|it| it.to_string())?;
        let wanted = taken.iter().find(|it| it.number == backup.number);
        let wanted = &wanted.ok_or_else(|| format!("backup {}", backup.number))?.content;
        if found != *wanted {
            return Err(format!("{path}: {}", found.difference(wanted, 12)));
        }
    }
    Ok(())
}

#[test]
fn each_backup_is_whole_after_a_power_cut() {
    let states = cut_everywhere(None, seed("cuts of backups", 1));
    let states = states.unwrap_or_else(|violation| panic!("{violation}"));
    report(&format!("cuts of backups: {states} states, 0 violations"));
    assert!(states > 500, "only {states} states");
}

#[test]
fn planted_early_record_of_a_backup_is_caught() {
    let caught = cut_everywhere(Some(PlantedBug::RecordBackupEarly), 1);
    let violation = caught.expect_err("the planted bug is caught");
    let first = violation.lines().next().unwrap_or_default();
    report(&format!("planted bug, backup recorded early: {first}"));
}

#[test]
fn a_new_set_in_new_directories_is_durable() {
    let disk = Arc::new(MemoryFs::new());
    let db = options(&disk).open(STORE_DIR).expect("a new store");
    let set_of = |disk: &Arc<MemoryFs>| {
        let fs = Arc::clone(disk) as Arc<dyn Fs>;
        BackupSet::with_fs("data/x/y/set", fs, Arc::new(ManualClock::new()))
    };
    let backup = set_of(&disk).create(&db).expect("there is room");
    let left = Arc::new(disk.crash(disk.operations(), &Loss::Everything));
    assert_eq!(set_of(&left).list().expect("it can be read").len(), 1, "{backup:?}");
}
