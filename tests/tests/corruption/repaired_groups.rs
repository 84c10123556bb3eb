//! Groups of tables that a crash leaves incomplete, and taken names, without a manifest.

use std::sync::Arc;

use sievedb::{Compression, Db, Durability, KeyspaceOptions};
use sievedb_doubles::{Call, Fault, FaultFs, Loss, MemoryFs, Times};

use super::{
    lost_manifest::{lose, repaired},
    repair::{options, tables},
    repaired_crash::check,
    sample::{STORE_DIR, files},
};

const EIO: i32 = 5;
const KEYS: u32 = 400;

fn small_tables() -> KeyspaceOptions {
    let options = KeyspaceOptions::new().compression(Compression::None);
    options.table_bytes(64 << 10).block_bytes(1 << 10)
}

fn open(fs: &Arc<MemoryFs>) -> Db {
    options(fs).keyspace(small_tables()).open(STORE_DIR).unwrap()
}

/// Fills more than one table.
fn fill(db: &Db, byte: u8) {
    for key in 0..KEYS {
        let mut value = key.wrapping_mul(0x9e37_79b9).to_le_bytes().repeat(120);
        value[0] = byte;
        db.insert(key.to_be_bytes(), value).unwrap();
    }
}

/// Checks a power cut after each operation from `before` on, with each single loss and some others.
fn check_cuts(fs: &MemoryFs, before: usize, step: &str) {
    for at in before..=fs.operations() {
        let alone = (0..fs.unsynced(at)).map(Loss::Alone);
        let random = (0..8).map(|seed| Loss::Random { seed, torn: false });
        for loss in [Loss::Nothing, Loss::Everything].into_iter().chain(alone).chain(random) {
            check(&files(&fs.crash(at, &loss)), &format!("{step}, cut at {at}, {loss:?}"));
        }
    }
}

/// The last table of a group implies the others, so their names are durable before it.
#[test]
fn n15_last_table_of_a_group_requires_the_others() {
    let fs = Arc::new(MemoryFs::with_seed(7));
    let db = open(&fs);
    fill(&db, 1);
    db.persist(Durability::Disk).unwrap();
    let before = fs.operations();
    db.flush().unwrap();
    assert!(tables(&files(&fs)).len() > 1, "a group");
    check_cuts(&fs, before, "a flush");
}

/// As for a flush. The last table of the group is the newest one, of whichever range.
#[test]
fn n15_last_table_of_several_ranges_requires_the_others() {
    let fs = Arc::new(MemoryFs::with_seed(7));
    let options = options(&fs).keyspace(small_tables()).compaction_ranges(3);
    let db = options.open(STORE_DIR).unwrap();
    fill(&db, 1);
    db.flush().unwrap();
    (0..KEYS).step_by(3).for_each(|key| db.remove(key.to_be_bytes()).unwrap());
    db.flush().unwrap();
    db.persist(Durability::Disk).unwrap();
    let before = fs.operations();
    db.compact().unwrap();
    assert!(tables(&files(&fs)).len() > 2, "a group");
    drop(db);
    check_cuts(&fs, before, "a compaction");
}

/// The next open unlinks the tables; the unlinks may become durable in any order.
#[test]
fn n15_uninstalled_group_hides_nothing_while_unlinked() {
    let disk = Arc::new(MemoryFs::with_seed(7));
    let fs = Arc::new(FaultFs::new(disk.clone()));
    let db = options(&disk).fs(fs.clone()).open(STORE_DIR).unwrap();
    db.default_keyspace().set_options(small_tables()).unwrap();
    fill(&db, 1);
    db.persist(Durability::Disk).unwrap();
    let names = files(&disk);
    let manifest = names.keys().rfind(|name| name.starts_with("MANIFEST")).unwrap();
    fs.inject(Fault::new(EIO, Times::Once).calls(&[Call::Append]).suffix(manifest));
    db.flush().unwrap_err();
    drop(db);
    assert!(tables(&files(&disk)).len() > 1, "a group");
    let before = disk.operations();
    drop(open(&disk));
    assert_eq!(tables(&files(&disk)), [""; 0], "it is gone");
    check_cuts(&disk, before, "an opening");
}

/// A compaction without output writes no table, and its inputs are unlinked in any order.
#[test]
fn n15_compaction_without_output_restores_no_removed_key() {
    let fs = Arc::new(MemoryFs::with_seed(7));
    let db = open(&fs);
    db.insert("a", "1").unwrap();
    db.flush().unwrap();
    db.remove("a").unwrap();
    db.flush().unwrap();
    let before = fs.operations();
    db.compact().unwrap();
    assert_eq!(tables(&files(&fs)), [""; 0]);
    drop(db);
    check_cuts(&fs, before, "a compaction");
}

#[test]
fn n15_dropped_keyspace_is_not_partly_restored() {
    let fs = Arc::new(MemoryFs::with_seed(7));
    let db = open(&fs);
    let gone = db.keyspace("gone").unwrap();
    for value in ["1", "2"] {
        gone.insert("a", value).unwrap();
        gone.flush().unwrap();
    }
    gone.remove("a").unwrap();
    gone.flush().unwrap();
    drop(gone);
    let before = fs.operations();
    db.drop_keyspace("gone").unwrap();
    drop(db);
    check_cuts(&fs, before, "a drop");
    drop(open(&fs));
    check_cuts(&fs, before, "an opening");
}

#[test]
fn n15_unnamed_keyspace_gets_a_free_name() {
    let fs = Arc::new(MemoryFs::with_seed(7));
    let db = options(&fs).log_segment_bytes(4 << 10).open(STORE_DIR).unwrap();
    let unnamed = db.keyspace("unnamed").unwrap();
    let taken = db.keyspace("recovered-2").unwrap();
    taken.insert("a", "of a table").unwrap();
    for _ in 0..300 {
        taken.insert("b", [1; 50]).unwrap();
        db.persist(Durability::Disk).unwrap();
    }
    taken.flush().unwrap();
    db.flush().unwrap();
    unnamed.insert("a", "of the log").unwrap();
    db.persist(Durability::Disk).unwrap();
    let mut left = files(&fs);
    lose(&mut left, &["MANIFEST", "CURRENT", "CLOSED"]);
    let (report, found) = repaired(&left);
    assert_eq!(report.keyspaces_unnamed, ["recovered-2+"], "{report}");
    let value = |name: &str| found[&(name.to_owned(), b"a".to_vec())].clone();
    assert_eq!(value("recovered-2"), "of a table");
    assert_eq!(value("recovered-2+"), "of the log");
}
