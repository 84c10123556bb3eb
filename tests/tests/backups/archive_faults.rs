//! Failing calls of archives and restores: the next update continues without a gap.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::{path::Path, sync::Arc, time::Duration};

use sievedb::{Error, RestoreOptions, clock::ManualClock, fs::Fs};
use sievedb_doubles::{Fault, FaultFs, MemoryFs, Times};
use sievedb_tests::{
    enumerate::on_two_threads,
    settings::{STORE_DIR, report},
};

use super::{archive::retaining, entries, set, set_on};

/// Archives with a call that fails, then restores with one. A backup follows `log_bytes` of log.
/// Returns how many failed.
fn run(call: usize, errno: i32, log_bytes: u64) -> usize {
    let disk = Arc::new(MemoryFs::new());
    let clock = Arc::new(ManualClock::new());
    let db = retaining(&disk).clock(Arc::clone(&clock) as _).open(STORE_DIR).unwrap();
    let faults = Arc::new(FaultFs::new(Arc::clone(&disk) as Arc<dyn Fs>));
    let faulty = set_on(Arc::clone(&faults) as Arc<dyn Fs>);
    let mut archive = faulty.archive(&db).unwrap().backup_after_log_bytes(log_bytes);
    let mut points = Vec::new();
    faults.inject(Fault::new(errno, Times::Once).after(call));
    for round in 0..4_u8 {
        for number in 0..5_u32 {
            // Each adds a sample of the time.
            clock.advance(Duration::from_millis(1500));
            db.insert(number.to_be_bytes(), [round; 300]).unwrap();
        }
        points.push((db.snapshot().sequence(), entries(&db)));
        let _ = archive.update();
    }
    let mut struck = usize::from(faults.failures() > 0);
    faults.heal();
    archive.update().unwrap();
    let backups = set(&disk).list().unwrap();
    assert!(set(&disk).verify().unwrap().problems.is_empty(), "call {call}");
    for (number, (sequence, content)) in points.iter().enumerate() {
        // The first backup may have failed, and nothing was archived before.
        if *sequence < backups[0].sequence {
            continue;
        }
        let (path, to) = (format!("data/restored{number}"), RestoreOptions::new().to(*sequence));
        if number == 3 {
            faults.inject(Fault::new(errno, Times::Once).after(call));
            let restored = faulty.restore_with(&to, &path);
            struck += usize::from(faults.failures() > 1);
            faults.heal();
            match restored {
                Err(Error::Io { .. }) => {
                    let opened = retaining(&disk).create_if_missing(false).open(&path);
                    assert!(opened.is_err(), "call {call}");
                    for name in disk.list(Path::new(&path)).unwrap_or_default() {
                        disk.unlink(&Path::new(&path).join(name)).unwrap();
                    }
                    set(&disk).restore_with(&to, &path).unwrap();
                }
                restored => drop(restored.unwrap()),
            }
        } else {
            set(&disk).restore_with(&to, &path).unwrap();
        }
        let copy = retaining(&disk).create_if_missing(false).open(&path).unwrap();
        assert_eq!(entries(&copy), *content, "call {call}, point {sequence}");
    }
    struck
}

#[test]
fn failed_updates_and_restores_leave_no_gap() {
    // With long logs, parts overlap after a failed update.
    let kinds = [(5, 2500), (28, 2500), (5, 10_000)];
    let trials = (0..160).flat_map(|call| kinds.map(|(errno, bytes)| (call, errno, bytes)));
    let trials: Vec<_> = trials.collect();
    let results = on_two_threads(&trials, |&(call, errno, bytes)| run(call, errno, bytes));
    let struck: usize = results.iter().sum();
    report(&format!("failing calls of archives: {} trials, {struck} struck", trials.len()));
    assert!(struck > 200, "only {struck} struck");
}
