//! Power cuts of archives: each archived point is restored, and no other state.

use std::{path::Path, sync::Arc};

use sievedb::{ChangeRetention, Error, RestoreOptions, Retention, fs::Fs, planted::PlantedBug};
use sievedb_doubles::{Loss, MemoryFs};
use sievedb_tests::{
    cuts::cut_power,
    model::{DEFAULT, Model},
    observe::observe,
    recorder::Recorder,
    rng::mix,
    settings::{STORE_DIR, report, seed},
};

use super::{SET, archive::retaining, set};

/// A point of the history, and the operations of the disk when it was archived.
struct Point {
    sequence: u64,
    content: Model,
    archived: usize,
}

/// Cuts the power after each operation of an archive. Returns the number of checked states.
fn cut_everywhere(planted: Option<PlantedBug>, seed: u64) -> Result<usize, String> {
    let disk = Arc::new(MemoryFs::new());
    let options = retaining(&disk);
    let options = planted.map_or(options.clone(), |bug| options.planted_bug(bug));
    let mut recorder = Recorder::new(Arc::clone(&disk), options, Model::default());
    let set = set(&disk);
    let archive = set.archive(recorder.db()).map_err(|error| format!("{error:?}"))?;
    let mut archive = archive.backup_after_log_bytes(5000);
    let mut points: Vec<Point> = Vec::new();
    let mut new = Vec::new();
    let began = disk.operations();
    for round in 0..6 {
        for number in 0..4 {
            if number == 2 {
                recorder.batch(&[(DEFAULT, "a"), (DEFAULT, "b")], 300, sievedb::Durability::Memory);
            } else {
                recorder.insert(DEFAULT, format!("{}", number + round), 500);
            }
            new.push((recorder.db().snapshot().sequence(), recorder.history().model().clone()));
        }
        if round % 3 == 1 {
            recorder.flush();
        }
        archive.update().map_err(|error| format!("{error:?}"))?;
        let archived = disk.operations();
        let first = points.is_empty();
        // Before the first backup there is only its own point.
        let done = new.drain(..).skip(if first { 3 } else { 0 });
        points.extend(done.map(|(sequence, content)| Point { sequence, content, archived }));
    }
    let archived_by = disk.operations();
    set.prune(&Retention::new().last(9)).map_err(|error| format!("{error:?}"))?;
    drop(archive);
    cut_power(&disk, began, seed, |left, at| {
        let mut states = 0;
        for pick in 0..2 {
            let lot = mix(seed ^ mix((at * 2 + pick) as u64)) as usize % points.len();
            check(left, &points[lot], at, &recorder, &format!("data/pick{pick}"))?;
            states += 1;
        }
        if at == archived_by {
            // The last state in full.
            points.iter().try_for_each(|point| {
                check(left, point, at, &recorder, &format!("data/full{}", point.sequence))
            })?;
        }
        Ok(states)
    })
}

/// Checks that `point` is restored to `path`, or was not archived yet.
fn check(
    left: &Arc<MemoryFs>,
    point: &Point,
    at: usize,
    recorder: &Recorder,
    path: &str,
) -> Result<(), String> {
    let Point { sequence, content, archived } = point;
    let restored = set(left).restore_with(&RestoreOptions::new().to(*sequence), path);
    match restored {
        Ok(_) => {}
        Err(Error::NotArchived { .. } | Error::NoBackup { .. }) if at < *archived => return Ok(()),
        Err(error) => return Err(format!("point {sequence}, archived at {archived}: {error:?}")),
    }
    let copy = retaining(left).create_if_missing(false).read_only(true).open(path);
    let copy = copy.map_err(|error| format!("{error:?}"))?;
    let found = observe(&copy, recorder.history().keys()).map_err(|it| it.to_string())?;
    if found == *content {
        return Ok(());
    }
    Err(format!("point {sequence}: {}", found.difference(content, 12)))
}

#[test]
fn archived_points_are_restored_after_a_power_cut() {
    let states = cut_everywhere(None, seed("cuts of archives", 1));
    let states = states.unwrap_or_else(|violation| panic!("{violation}"));
    report(&format!("cuts of archives: {states} states, 0 violations"));
    assert!(states > 1000, "only {states} states");
}

#[test]
fn planted_missing_part_of_a_log_is_caught() {
    let caught = cut_everywhere(Some(PlantedBug::OmitArchivedPart), 1);
    let violation = caught.expect_err("the planted bug is caught");
    let first = violation.lines().next().unwrap_or_default();
    report(&format!("planted bug, part of an archived log omitted: {first}"));
}

#[test]
fn a_long_update_leaves_no_gap_after_a_power_cut() {
    let disk = Arc::new(MemoryFs::new());
    let options = retaining(&disk).retain_changes(ChangeRetention::bytes(64 << 20));
    let db = options.open(STORE_DIR).expect("a new store");
    let mut archive = set(&disk).archive(&db).expect("changes are retained");
    archive.update().expect("a backup");
    for _ in 0..3 {
        db.insert("key", vec![1; 5 << 20]).expect("there is room");
    }
    let began = disk.operations();
    archive.update().expect("three parts");
    let parts = |disk: &MemoryFs| disk.list(&Path::new(SET).join("log")).unwrap_or_default();
    let all = parts(&disk);
    assert_eq!(all.len(), 4, "the last is empty");
    for at in began..=disk.operations() {
        for seed in 0..8 {
            let left = parts(&disk.crash(at, &Loss::Random { seed, torn: false }));
            let left: Vec<_> = left.into_iter().filter(|name| all.contains(name)).collect();
            assert!(all.starts_with(&left), "cut at {at}: {left:?} of {all:?}");
        }
    }
}
