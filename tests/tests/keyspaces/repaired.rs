//! Repair of stores with cleared and renamed keyspaces.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::{collections::BTreeMap, sync::Arc};

use sievedb::{Db, Durability, OlderValues, Options};
use sievedb_doubles::{Loss, MemoryFs};

const OLD: &str = "old";
const NEW: &str = "new";

/// Keys by keyspace.
type Contents = BTreeMap<String, Vec<String>>;

fn contents(db: &Db) -> Contents {
    let of_keyspace = |name: String| {
        let keys = db.open_keyspace(&name).unwrap().iter().keys();
        (name, keys.map(|key| String::from_utf8_lossy(&key.unwrap()).into_owned()).collect())
    };
    db.keyspaces().unwrap().into_iter().map(of_keyspace).collect()
}

fn options(fs: &Arc<MemoryFs>) -> Options {
    Options::new().fs(fs.clone()).worker_threads(0)
}

/// Repairs the store, without its manifest if that `is_lost`.
fn repaired(fs: &MemoryFs, is_lost: bool) -> Contents {
    let crashed = fs.crash(fs.operations(), &Loss::Nothing);
    for path in crashed.contents().into_keys() {
        let is_of_manifest = path.contains("MANIFEST") || path.contains("CURRENT");
        if path.contains("CLOSED") || is_lost && is_of_manifest {
            sievedb::fs::Fs::unlink(&crashed, path.as_ref().as_ref()).unwrap();
        }
    }
    let crashed = Arc::new(crashed);
    let report = options(&crashed).repair(OLD, NEW, OlderValues::LeaveOut).unwrap();
    assert_eq!(report.is_rebuilt, is_lost, "{report}");
    contents(&options(&crashed).open(NEW).unwrap())
}

#[test]
fn a_repair_restores_no_cleared_key_and_keeps_the_new_names() {
    let fs = Arc::new(MemoryFs::with_seed(3));
    let db = options(&fs).open(OLD).unwrap();
    let first = db.keyspace("a").unwrap();
    let pinned = {
        first.insert("cleared, in a table", "").unwrap();
        first.flush().unwrap();
        first.insert("cleared, in the log", "").unwrap();
        first.iter()
    };
    db.insert("kept", "").unwrap();
    first.clear().unwrap();
    first.insert("behind the clear", "").unwrap();
    db.persist(Durability::Disk).unwrap();
    for flushes in [false, true] {
        if flushes {
            // The merged table has lost its sequence numbers.
            first.flush().unwrap();
            first.insert("later", "").unwrap();
            first.compact().unwrap();
        }
        for is_lost in [false, true] {
            assert_eq!(repaired(&fs, is_lost), contents(&db), "lost: {is_lost}, {flushes}");
        }
    }
    // The old name goes to another keyspace.
    db.rename_keyspace("a", "b").unwrap();
    let second = db.keyspace("a").unwrap();
    second.insert("second", "").unwrap();
    db.persist(Durability::Disk).unwrap();
    for flushes in [false, true] {
        if flushes {
            second.flush().unwrap();
        }
        for is_lost in [false, true] {
            assert_eq!(repaired(&fs, is_lost), contents(&db), "lost: {is_lost}, {flushes}");
        }
    }
    drop(pinned);
}

/// Tables have the name that their keyspace had when they were written.
#[test]
fn n15_renames_without_manifest_and_log_lose_no_keyspace() {
    let fs = Arc::new(MemoryFs::with_seed(3));
    let db = options(&fs).open(OLD).unwrap();
    let live = db.keyspace("live").unwrap();
    live.insert("old data", "").unwrap();
    live.flush().unwrap();
    let new = db.keyspace("new").unwrap();
    new.insert("new data", "").unwrap();
    new.flush().unwrap();
    db.rename_keyspace("live", "old").unwrap();
    db.rename_keyspace("new", "live").unwrap();
    new.insert("newer data", "").unwrap();
    new.flush().unwrap();
    drop((live, new));
    db.close().unwrap();
    let lost = Arc::new(fs.crash(fs.operations(), &Loss::Nothing));
    for path in lost.contents().into_keys().filter(|path| !path.ends_with(".sst")) {
        sievedb::fs::Fs::unlink(&*lost, path.as_ref().as_ref()).unwrap();
    }
    let report = options(&lost).repair(OLD, NEW, OlderValues::LeaveOut).unwrap();
    let found = contents(&options(&lost).open(NEW).unwrap());
    let [name] = &report.keyspaces_unnamed[..] else { panic!("{found:?}: {report}") };
    assert_eq!(found[name], ["old data"], "{report}");
    assert_eq!(found["live"], ["new data", "newer data"], "{report}");
    assert_eq!(report.tables_left_out, 0, "{report}");
}
