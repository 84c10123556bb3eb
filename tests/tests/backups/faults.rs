//! Failing calls: a backup is listed only if it is whole, and the next one continues.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::sync::Arc;

use sievedb::fs::Fs;
use sievedb_doubles::{Fault, FaultFs, MemoryFs, Times};
use sievedb_tests::{
    enumerate::on_two_threads,
    settings::{STORE_DIR, report},
};

use super::{entries, options, set_on};

/// Creates a backup whose call number `call` fails. Returns whether one failed, and the bytes that
/// the next attempt added.
fn run(call: usize, errno: i32) -> (bool, u64, u64) {
    let disk = Arc::new(MemoryFs::new());
    let db = options(&disk).open(STORE_DIR).unwrap();
    for number in 0..60_u32 {
        db.insert(number.to_be_bytes(), [1; 400]).unwrap();
    }
    db.flush().unwrap();
    db.insert("logged", [2; 100]).unwrap();
    let faults = Arc::new(FaultFs::new(Arc::clone(&disk) as Arc<dyn Fs>));
    let set = set_on(Arc::clone(&faults) as Arc<dyn Fs>);
    faults.inject(Fault::new(errno, Times::Once).after(call));
    let created = set.create(&db);
    let struck = faults.failures() > 0;
    faults.heal();
    let listed = set.list().unwrap();
    assert!(created.is_err() || listed.len() == 1, "call {call}: {created:?}");
    assert!(set.verify().unwrap().problems.is_empty(), "call {call}");
    for backup in &listed {
        set.restore(backup.number, "data/restored").unwrap();
        let copy = options(&disk).create_if_missing(false).open("data/restored").unwrap();
        assert_eq!(entries(&copy), entries(&db), "call {call}");
    }
    // What was copied is not copied again.
    let again = set.create(&db).unwrap();
    set.restore(again.number, "data/again").unwrap();
    let copy = options(&disk).create_if_missing(false).open("data/again").unwrap();
    assert_eq!(entries(&copy), entries(&db), "call {call}");
    (struck, again.bytes_added, again.bytes)
}

#[test]
fn failed_backup_is_not_listed_and_continues() {
    let trials: Vec<_> = (0..120).flat_map(|call| [5, 28].map(|errno| (call, errno))).collect();
    let results = on_two_threads(&trials, |&(call, errno)| run(call, errno));
    let struck = results.iter().filter(|(struck, ..)| *struck).count();
    let continued = results.iter().filter(|(_, added, all)| (1..*all).contains(added)).count();
    report(&format!(
        "failing calls of backups: {} trials, {struck} struck, {continued} continued",
        trials.len()
    ));
    assert!(struck > 60 && continued > 10, "{struck} struck, {continued} continued");
}
