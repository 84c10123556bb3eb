//! A read-only store never changes its directory.

use std::{sync::Arc, time::Duration};

use sievedb::{Db, KeyspaceOptions, ReadMode, fs::Fs};
use sievedb_doubles::{Call, MemoryFs};
use sievedb_tests::settings::{STORE_DIR, small_options};

use super::{CHANGING, ENOSPC, EROFS, check_entries, failing, killed, reading};

/// Reads in every way, and makes all other calls of a read-only store.
fn use_it(db: &Db) {
    check_entries(db);
    let snapshot = db.snapshot();
    let many: Vec<_> = (0..50_u32).map(u32::to_be_bytes).collect();
    assert_eq!(db.get_many(&many).unwrap().iter().flatten().count(), 49);
    assert_eq!(db.contains_many(&many).unwrap().iter().filter(|is_there| **is_there).count(), 49);
    assert_eq!(snapshot.get_many(&many).unwrap().iter().flatten().count(), 49);
    assert_eq!(snapshot.iter().count(), db.prefix([0]).count());
    let explanation = db.explain(8_u32.to_be_bytes()).unwrap().to_string();
    assert!(explanation.contains("memtable"), "{explanation}");
    db.set_filter_bytes_max(0).unwrap();
    db.set_filter_bytes_max(1 << 20).unwrap();
    let stats = db.stats();
    assert_eq!(stats.filters_not_whole, 0, "they are read back at once: {stats}");
    db.set_memory_budget(8 << 20).unwrap();
    db.wait_for_background().unwrap();
    check_entries(db);
    let report = db.verify().unwrap();
    assert!(report.is_good() && report.tables > 0, "{report}");
    let stats = db.stats();
    assert!(stats.log_segments > 0 && stats.log_bytes > 0, "what was replayed: {stats}");
    assert!(stats.read_only.is_none(), "it did not become so: {stats}");
    assert_eq!(stats.keyspaces.iter().map(|it| it.frozen_memtables).sum::<u64>(), 0);
}

/// No changing call reaches the file system, and all would fail, as without write permission or on
/// a read-only mount.
#[test]
fn read_only_calls_change_no_file() {
    let closed = {
        let disk = Arc::new(killed());
        let options = small_options(disk.clone());
        drop(options.clone().open(STORE_DIR).unwrap());
        // A log that the manifest marks as synced.
        let db = options.open(STORE_DIR).unwrap();
        db.insert(8_u32.to_be_bytes(), "newer").unwrap();
        drop(db);
        disk.copy()
    };
    for (name, image) in [("killed", killed()), ("closed", closed)] {
        for mode in [ReadMode::Pread, ReadMode::Map, ReadMode::Direct] {
            for workers in [0, 2] {
                let disk = Arc::new(image.copy());
                let before = disk.contents();
                let fs = failing(&disk, EROFS, &CHANGING);
                let options = reading(fs.clone()).worker_threads(workers).read_mode(mode);
                let keyspace = KeyspaceOptions::new().block_bytes(2 << 10);
                let options =
                    options.keyspace(keyspace).stats_file_interval(Duration::from_secs(1));
                let name = format!("{name}, {mode:?}, {workers} workers");
                for round in 0..2 {
                    let db = options.clone().open(STORE_DIR).unwrap_or_else(|error| {
                        panic!("{name}, opening {round}: {error:?}");
                    });
                    use_it(&db);
                    assert_eq!(
                        db.default_keyspace().options().get_block_bytes(),
                        2 << 10,
                        "{name}: for this opening"
                    );
                }
                options.verify(STORE_DIR, |_| ()).unwrap();
                assert_eq!(fs.failures(), 0, "{name}: {:?}", fs.first_failure());
                assert_eq!(disk.journal(), [], "{name}");
                assert!(disk.contents() == before, "{name}");
            }
        }
    }
}

/// After a crash on a full disk, only a read-only open succeeds; with free space, a writable one
/// does too.
#[test]
fn read_only_open_needs_no_disk_space() {
    let disk = Arc::new(killed());
    let fs = failing(&disk, ENOSPC, &Call::GROWING);
    let refused = small_options(fs.clone()).open(STORE_DIR).unwrap_err();
    assert!(refused.is_no_space(), "{refused:?}");
    check_entries(&reading(fs.clone()).open(STORE_DIR).unwrap());
    fs.heal();
    check_entries(&small_options(fs).open(STORE_DIR).unwrap());
}

/// Tombstones that scans step over request a flush, which does not run.
#[test]
fn read_only_scans_trigger_no_compaction() {
    const REMOVED: u32 = 3_000;
    let disk = Arc::new(MemoryFs::new());
    let options = |fs: Arc<dyn Fs>| {
        let keyspace = KeyspaceOptions::new().memtable_bytes(1 << 20);
        small_options(fs).log_bytes_max(1 << 20).keyspace(keyspace)
    };
    let db = options(disk.clone()).open(STORE_DIR).unwrap();
    for number in 0..REMOVED {
        db.remove(number.to_be_bytes()).unwrap();
    }
    let disk = Arc::new(disk.copy());
    let db = options(disk.clone()).read_only(true).open(STORE_DIR).unwrap();
    for _ in 0..100 {
        assert_eq!(db.iter().count(), 0);
    }
    db.wait_for_background().unwrap();
    assert_eq!(db.stats().keyspaces[0].frozen_memtables, 0);
    assert_eq!(disk.journal(), []);
}
