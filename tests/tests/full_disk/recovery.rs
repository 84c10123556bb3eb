//! Repeated opens and flushes on a full disk must not use up the remaining space.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::sync::Arc;

use sievedb::{Durability, fs::Fs};
use sievedb_doubles::{Call, Fault, FaultFs, MemoryFs, Times};
use sievedb_tests::settings::{STORE_DIR, small_options};

use super::ENOSPC;

/// Error of every call after a kill (`EIO`).
const DEAD: i32 = 5;
const KEYSPACES: usize = 4;

/// A crashed store whose log has entries of several keyspaces.
fn crashed_store() -> Arc<MemoryFs> {
    let disk = Arc::new(MemoryFs::new());
    let faults = Arc::new(FaultFs::new(Arc::clone(&disk) as Arc<dyn Fs>));
    let db = small_options(faults.clone()).open(STORE_DIR).unwrap();
    for keyspace in 0..KEYSPACES {
        let keyspace = db.keyspace(&format!("k{keyspace}")).unwrap();
        for number in 0..4_u32 {
            keyspace.insert(number.to_be_bytes(), [7; 100]).unwrap();
        }
    }
    db.persist(Durability::Disk).unwrap();
    faults.inject(Fault::new(DEAD, Times::ForGood));
    drop(db);
    disk
}

fn count(disk: &MemoryFs, part: &str) -> usize {
    disk.contents().iter().filter(|(path, _)| path.contains(part)).count()
}

fn check_entries(disk: &Arc<MemoryFs>) {
    let db = small_options(Arc::clone(disk) as Arc<dyn Fs>).open(STORE_DIR).unwrap();
    for keyspace in 0..KEYSPACES {
        let keyspace = db.keyspace(&format!("k{keyspace}")).unwrap();
        assert_eq!(keyspace.iter().count(), 4);
    }
}

#[test]
fn n1_killed_recoveries_leave_files_of_at_most_one() {
    let disk = crashed_store();
    let mut logs_most = 0;
    for call in 0.. {
        let faults = Arc::new(FaultFs::new(Arc::clone(&disk) as Arc<dyn Fs>));
        // The call in flight may have written something.
        faults.inject(Fault::new(DEAD, Times::ForGood).after(call).written_bytes(100));
        let opened = small_options(faults.clone()).open(STORE_DIR).is_ok();
        if opened && faults.failures() == 0 {
            break;
        }
        let (logs, manifests) = (count(&disk, ".log"), count(&disk, "MANIFEST-"));
        assert!(logs <= 2, "{logs} log segments after a kill at call {call}");
        assert!(manifests <= 2, "{manifests} manifests after a kill at call {call}");
        assert_eq!(count(&disk, ".sst"), 0, "tables after a kill at call {call}");
        logs_most = logs_most.max(logs);
    }
    assert_eq!(logs_most, 2, "no recovery was killed while it wrote");
    check_entries(&disk);
}

#[test]
fn n1_opens_on_a_full_disk_leave_no_file() {
    let disk = crashed_store();
    let logs = count(&disk, ".log");
    let (mut refused, mut bytes_max) = (0, None);
    for call in 0.. {
        let faults = Arc::new(FaultFs::new(Arc::clone(&disk) as Arc<dyn Fs>));
        let full = Fault::new(ENOSPC, Times::ForGood).calls(&Call::GROWING).after(call);
        faults.inject(full.written_bytes(100));
        match small_options(faults.clone()).open(STORE_DIR) {
            Ok(db) => {
                drop(db);
                break;
            }
            Err(error) => assert!(error.is_no_space(), "call {call}: {error:?}"),
        }
        refused += 1;
        assert_eq!((count(&disk, ".sst"), count(&disk, ".log")), (0, logs), "call {call}");
        let bytes: usize = disk.contents().values().map(|bytes| bytes.len()).sum();
        // `CURRENT.tmp` may remain.
        assert!(bytes <= *bytes_max.get_or_insert(bytes) + 100, "{bytes} bytes at call {call}");
    }
    assert!(refused > 3, "{refused} openings failed");
    check_entries(&disk);
}

/// With space for tables but not for a manifest, flushes and compactions write no table.
#[test]
fn n6_retries_without_space_for_a_manifest_leave_no_table() {
    let disk = Arc::new(MemoryFs::new());
    let faults = Arc::new(FaultFs::new(Arc::clone(&disk) as Arc<dyn Fs>));
    let db = small_options(faults.clone()).open(STORE_DIR).unwrap();
    for number in 0..2_u8 {
        db.insert("key", [number]).unwrap();
        db.flush().unwrap();
    }
    db.insert("key", "newest").unwrap();
    // A manifest has no suffix: it is matched by its number.
    for id in 0..100 {
        let full = Fault::new(ENOSPC, Times::ForGood).calls(&Call::GROWING);
        faults.inject(full.suffix(format!("MANIFEST-{id:06}")));
    }
    assert!(db.flush().unwrap_err().is_no_space());
    let first = count(&disk, ".sst");
    for retry in 1..=8 {
        assert!(db.flush().unwrap_err().is_no_space());
        assert!(db.compact().unwrap_err().is_no_space());
        assert_eq!(count(&disk, ".sst"), first, "retry {retry}");
    }
    faults.heal();
    db.flush().unwrap();
    db.compact().unwrap();
    db.wait_for_background().unwrap();
    assert_eq!(count(&disk, ".sst"), 1);
    assert_eq!(db.get("key").unwrap().as_deref(), Some(&b"newest"[..]));
}
